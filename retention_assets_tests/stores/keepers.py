"""Triggers that keep rows, or bring them back, while the database says that they are deleted.

Belongs here: making them in each kind of database; a caller says for which rows of which table.
"""

from sqlalchemy import Engine, text

# Before the deletion, after it, and when the transaction commits.
WAYS = ("before", "after", "commit")


def keeps(engine: Engine, table: str, condition: str, way: str) -> None:
    """From now on rows of a table stay for which a condition about OLD is true. The name of the trigger is `keeper`."""
    if engine.dialect.name == "sqlite":
        assert way != "commit"
        act = "SELECT RAISE(IGNORE)" if way == "before" else f"INSERT OR IGNORE INTO {table} SELECT * FROM kept_{table}"
        statements = [
            f"CREATE TABLE kept_{table} AS SELECT * FROM {table} AS OLD WHERE {condition}",
            f"CREATE TRIGGER keeper {way.upper()} DELETE ON {table} WHEN {condition} BEGIN {act}; END",
        ]
    else:
        act = "RETURN NULL;" if way == "before" else f"INSERT INTO {table} SELECT OLD.*; RETURN OLD;"
        kind = {"before": "TRIGGER keeper BEFORE", "after": "TRIGGER keeper AFTER"}.get(way, "CONSTRAINT TRIGGER keeper AFTER")
        when = "DEFERRABLE INITIALLY DEFERRED " if way == "commit" else ""
        statements = [
            f"CREATE FUNCTION keeper() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {condition} THEN {act} END IF;"
            " RETURN OLD; END $$",
            f"CREATE {kind} DELETE ON {table} {when}FOR EACH ROW EXECUTE FUNCTION keeper()",
        ]
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement.replace(":", r"\:")))

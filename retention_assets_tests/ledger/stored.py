"""The ledger of release 0.2.0 as it is stored in release_0_2_0.sql: marks in every state, holds, reports, and an audit of it all.

Programs of 0.2.0 wrote it, and it is never written again: later releases are tested to bring it up to date. lake/d, lake/u and
lake/m are sweeps of stores. lake/k, lake/l and lake/a were settled in the ledger itself, for what 0.2.0 called kept readable:
before and between others of one act and of two datasets, after a failure, behind a verification, and once it was set aside.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import create_engine, insert, select, text, update

from retention_assets.ledger import open_ledger
from retention_assets.ledger.audit.rows import seal_state
from retention_assets.ledger.schema import LEDGER_REVISION, METADATA

FILE = Path(__file__).with_name("release_0_2_0.sql")
RELEASE = "0024"


def store(url: str, folder: Path) -> str:
    """Put the stored ledger where a URL leads to: as it is, or its rows into the tables of another kind of database."""
    file = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else folder / "stored.db"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(FILE.read_text())
    if url.startswith("sqlite"):
        return url
    source = create_engine(f"sqlite:///{file}").connect()
    with open_ledger(url) as ledger, source, ledger.database.engine.execution_options(ledger_writes=True).begin() as target:
        target.execute(text("ALTER TABLE marks DROP CONSTRAINT ck_marks_outcome"))
        for table in METADATA.sorted_tables:
            target.execute(table.delete())
            if rows := [dict(row) for row in source.execute(select(table)).mappings()]:
                target.execute(insert(table), rows)
        target.execute(update(LEDGER_REVISION).values(revision=RELEASE))
        seal_state(target)
    return url

"""Finds what a database would delete or change besides the rows that a store names, and refuses it unless the settings accept
it.

A store names rows by the key of their owner. A cascade along that key between its own tables deletes only rows that it names
anyway; nobody has checked whether any other row may go.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

from sqlalchemy import Connection, Table

from retention_assets.errors import Refused
from retention_assets.sql.errors import WriteFailed
from retention_assets.sql.foreign import ForeignDatabase, Place
from retention_assets.sql.references import ForeignKey, References, references_of

# paths that a refusal names; there may be hundreds
_MOST = 5
_GOES = "ON DELETE CASCADE"
_ACCEPT = "write `cascades: accepted` in the store if all of that may go"


@dataclass(frozen=True)
class DeletedTable:
    """A table from which a store deletes rows, with the column of the owner's key; None where each row stands by itself."""

    table: Table
    key: str | None = None


@dataclass(frozen=True)
class CascadePath:
    """Chain of foreign keys from a table of the store to rows that nobody named, with the action of each key."""

    steps: tuple[tuple[ForeignKey, str], ...]

    @property
    def table(self) -> Place:
        return self.steps[-1][0].table

    @property
    def deletes(self) -> bool:
        return self.steps[-1][1] == _GOES


@dataclass(frozen=True)
class Cascades:
    """Catalog information about the tables of a store; the first one is the root."""

    store: str
    tables: tuple[DeletedTable, ...]
    references: References
    # from the store's settings
    is_accepted: bool = False
    # row-level rules may show rows that can't be deleted, or hide rows that can
    is_filtered: bool = False

    @classmethod
    def of(cls, database: ForeignDatabase, accepting: Literal["refused", "accepted"], tables: Sequence[DeletedTable]) -> Self:
        """Read the catalog. Raises Refused where the database can't be reached."""
        references = references_of(database, [deleted.table for deleted in tables])
        return cls(database.store, tuple(tables), references, accepting == "accepted", not database.sees_all)

    def check(self) -> Self:
        """Raise Refused if the tables are unsuitable, or if unnamed rows would go and the settings don't accept it."""
        if faults := self._wrong_tables() + ([] if self.is_accepted else self._side_effects()):
            raise Refused(" ".join(faults))
        return self

    def warnings(self) -> list[str]:
        """Describe what is refused, what is accepted, and triggers, whose effects can't be foreseen."""
        triggers = [
            f"The trigger {hook.name} of the table {self._name(hook.table)} of the store {self.store} runs at each "
            "deletion. Its other effects are not checked."
            for hook in self.references.hooks
            if not hook.is_rule
        ]
        return self._wrong_tables() + self._side_effects() + [*filter(None, (self.about_keepers,))] + triggers

    @property
    def foreseen(self) -> str | None:
        """Describe what a sweep does besides, and what may keep it from deleting."""
        return " ".join(filter(None, (self.accepted_paths, self.about_keepers))) or None

    @property
    def accepted_paths(self) -> str | None:
        """Describe every path that the database follows because the settings accept it."""
        if not (self.is_accepted and self.paths):
            return None
        effects = (
            f"{'deletes' if path.deletes else 'changes'} rows of {self._name(path.table)}: {self._text(path)}"
            for path in self.paths
        )
        return f"The store {self.store} accepts cascades: with swept rows, the database also {'; '.join(effects)}."

    @cached_property
    def paths(self) -> tuple[CascadePath, ...]:
        paths_by_key: dict[tuple[ForeignKey, str], CascadePath] = {}
        for place in dict.fromkeys(self.references.asked):
            self._follow(place, paths_by_key)
        return tuple(paths_by_key.values())

    @cached_property
    def about_keepers(self) -> str | None:
        """Name foreign keys without an action by which rows of unlisted tables keep rows; None if there are none."""
        listed = frozenset[Place]().union(*map(self._parts, self.references.asked))
        goes = listed.union(*(self._parts(path.table) for path in self.paths if path.deletes))
        keys = [key for key in self.references.keys if key.to in goes and key.table not in goes and not key.acts]
        if not keys:
            return None
        named = [
            f"{self._name(key.table)} refers to {self._name(key.to)} by {_label(key, f'ON DELETE {key.on_delete}')}"
            for key in keys[:_MOST]
        ]
        more = f", and {len(keys) - _MOST} more" if len(keys) > _MOST else ""
        tables = ", ".join(f"`{name}`" for name in dict.fromkeys(self._name(key.table) for key in keys[:_MOST]))
        by_key = f"List {tables} under `children` by the column that holds the key of the unit of work, or delete"
        remedy = by_key if self._has_children else "Delete"
        return (
            f"The database of the store {self.store} keeps each row that a row of an unlisted table refers to: "
            f"{'; '.join(named)}{more}. {remedy} those rows before the sweep."
        )

    @property
    def is_entangled(self) -> bool:
        """Rows of one table can block another's deletion, so all tables share one transaction, in their order.

        Otherwise children could be gone for good before the database refuses to delete their root.
        """
        families = [self._parts(place) for place in self.references.asked]
        roots, all_ = families[0], frozenset[Place]().union(*families)
        reached = all_.union(*(self._parts(path.table) for path in self.paths))
        in_the_way = (
            key.to in reached and not (key.to in roots and key.table not in roots and self._is_own(key))
            for key in self.references.keys
        )
        return sum(map(len, families)) > len(all_) or any(in_the_way)

    @property
    def may_keep(self) -> bool:
        """A trigger, a rule or a policy may keep rows, or bring them back, though a statement deleted them."""
        return bool(self.references.hooks or self.references.hidden or self.is_filtered)

    def check_gone(self, connection: Connection, *looks: Callable[[], bool]) -> None:
        """Raise WriteFailed, which rolls the transaction back, if rows deleted in it are still there.

        Call it at the end of the transaction. `looks` has a query for each table, in their order.
        """
        if not self.may_keep:
            return
        if connection.dialect.name == "postgresql":
            # run deferred constraints and their actions now
            connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
        for place, is_left in zip(self.references.asked, looks, strict=False):
            if is_left():
                raise WriteFailed(self.about_kept(place), is_lost=False, is_transient=False)

    def about_kept(self, place: Place | None = None) -> str:
        """Say why rows of a table (default: the root) did not go, as far as the catalog tells."""
        hooks = [hook for hook in self.references.hooks if hook.table in self._parts(place or self.references.asked[0])]
        kinds = {True: "rule", False: "trigger"}
        by = " or ".join(f"the {kinds[hook.is_rule]} {hook.name} on the table {self._name(hook.table)}" for hook in hooks)
        return f"{by[:1].upper()}{by[1:] or 'The database'} kept the row: it still exists after its deletion, which is undone."

    def _follow(self, start: Place, paths: dict[tuple[ForeignKey, str], CascadePath]) -> None:
        waiting: list[tuple[Place, frozenset[str] | None, CascadePath]] = [(start, None, CascadePath(()))]
        while waiting:
            place, changed, path = waiting.pop(0)
            for key in self.references.keys:
                action = _action(key, changed) if key.to in self._parts(place) else None
                if not action or (key, action) in paths or (not path.steps and self._is_own(key)):
                    continue
                further = paths[key, action] = CascadePath((*path.steps, (key, action)))
                waiting.append((key.table, None if action == _GOES else frozenset(key.columns), further))

    def _is_own(self, key: ForeignKey) -> bool:
        # referring rows of the same owner as those they refer to are named themselves
        referred, referring = self._owner_columns.get(key.to, set()), self._owner_columns.get(key.table, set())
        # With two keys a row belongs to two owners, of which only one may go. A key to a table without a primary key has
        # unknown columns.
        pairs = zip(key.columns, key.to_columns, strict=False)
        return len(referred) == 1 and any(column in referring and to_column in referred for column, to_column in pairs)

    @cached_property
    def _owner_columns(self) -> Mapping[Place, set[str]]:
        # for each table and its partitions
        columns: dict[Place, set[str]] = {}
        for place, deleted in zip(self.references.asked, self.tables, strict=True):
            for part in self._parts(place) if deleted.key is not None else ():
                columns.setdefault(part, set()).add(self._folded(deleted.key or ""))
        return columns

    def _folded(self, name: str) -> str:
        # only PostgreSQL distinguishes column names that differ in case
        return name if self.references.tells_case else name.lower()

    def _parts(self, place: Place) -> frozenset[Place]:
        return self.references.parts.get(place, frozenset({place}))

    def _wrong_tables(self) -> list[str]:
        # a deletion from them is unpredictable, and no setting accepts them
        faults = [
            f"{self._name(place)} of the store {self.store} is {kind}: deleting from it deletes rows of other tables. Name "
            "the table that holds the rows."
            for place, kind in self.references.no_tables.items()
        ]
        root, *others = dict.fromkeys(self.references.asked)
        faults += [
            f"The table {self._name(place)} among the children of the store {self.store} shares rows with the root's table "
            f"{self._name(root)} (one inherits from the other), so rows of other units of work would be deleted from it. "
            "Name tables under `children` that do not inherit from it."
            for place in others
            if self._parts(place) & self._parts(root)
        ]
        faults += [
            f"The rule {hook.name} of the table {self._name(hook.table)} of the store {self.store} replaces deletions "
            "with something else. Drop the rule."
            for hook in self.references.hooks
            if hook.replaces
        ]
        return faults

    def _side_effects(self) -> list[str]:
        accepts = " The store accepts that." if self.is_accepted else None
        faults = []
        if self.references.hidden:
            about = f"Which tables refer to those of the store {self.store} cannot be read: {self.references.hidden}."
            faults.append(about + (accepts or f" Or {_ACCEPT}."))
        if self.paths:
            faults.append(self.accepted_paths or self._about_paths())
        faults += [
            f"The rule {hook.name} of the table {self._name(hook.table)} of the store {self.store} does more at each "
            f"deletion than delete rows.{accepts or f' Drop the rule, or {_ACCEPT}.'}"
            for hook in self.references.hooks
            if hook.is_rule and not hook.replaces
        ]
        return faults

    def _about_paths(self) -> str:
        more = f", and {len(self.paths) - _MOST} more" if len(self.paths) > _MOST else ""
        by_key = "List a table under `children` by the column that holds the key of the unit of work, have"
        remedy = by_key if self._has_children else "Have"
        return (
            f"The database of the store {self.store} would delete or change other rows as well: "
            f"{'; '.join(self._text(path) for path in self.paths[:_MOST])}{more}. {remedy} the foreign key changed to NO "
            f"ACTION, or {_ACCEPT}."
        )

    @property
    def _has_children(self) -> bool:
        return any(deleted.key is not None for deleted in self.tables)

    def _text(self, path: CascadePath) -> str:
        steps = [f"{self._name(key.table)} by {_label(key, action)}" for key, action in path.steps]
        return " -> ".join([self._name(path.steps[0][0].to), *steps])

    def _name(self, place: Place) -> str:
        return place[1] if place[0] == self.references.asked[0][0] else ".".join(place)


def _action(key: ForeignKey, changed: frozenset[str] | None) -> str | None:
    # of the key when a row is deleted or, with `changed`, when these columns change
    if changed is None:
        return f"ON DELETE {key.on_delete}" if key.acts else None
    return f"ON UPDATE {key.on_update}" if key.follows_updates and changed & set(key.to_columns) else None


def _label(key: ForeignKey, action: str) -> str:
    about = f"({', '.join(key.columns)}, {action})"
    return f"{key.name} {about}" if key.name else about

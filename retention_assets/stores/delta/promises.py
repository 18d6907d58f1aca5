"""Sentences about versions that policies keep and other readers refuse, and about versions that tables keep themselves."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches

from retention_assets.policy.globs import matching, protecting
from retention_assets.policy.model import Policy
from retention_assets.stores.delta.folder import canonical_place
from retention_assets.stores.delta.table import DELETED_FILES, IN_COMMIT_TIME, KEEP_VERSIONS, LOG_CLEANUP, LOG_RETENTION, Table

# tables that a sentence names
_SHOWN = 3
# properties by their names in lower case; and the similarity of two names of 25 letters that differ in one
_PROPERTIES = {name.lower(): name for name in (KEEP_VERSIONS, DELETED_FILES, LOG_RETENTION, LOG_CLEANUP, IN_COMMIT_TIME)}
_ONE_LETTER = 0.95


def promise_warnings(tables: Mapping[str, Table], policies: Sequence[Policy], spares: bool) -> list[str]:
    """Compare the ages of policies with the windows of the tables that they are about."""
    tables_of: dict[tuple[str, str], list[str]] = {}
    names = [*tables]
    for policy in policies:
        included, excluded = matching(names, policy.datasets.include), protecting(names, policy.datasets.exclude)
        for name, is_included, is_excluded in zip(names, included, excluded, strict=True):
            for sentence in _warnings(policy, tables[name], spares) if is_included and not is_excluded else ():
                tables_of.setdefault(sentence, []).append(name)
    return [f"{begin} {_listed(own)}{rest}" for (begin, rest), own in tables_of.items()]


def clone_warnings(tables: Mapping[str, Table], known: Collection[str]) -> list[str]:
    """Name clones of tables that the settings do not know."""
    return [
        f"Version {version.number} of {name} is a clone of {version.source}, which the settings do not name. A store that"
        " deletes there has to name this table under also_read, or files that it needs may go."
        for name, table in tables.items()
        for version in table.versions.values()
        if version.source and f"{canonical_place(version.source.removeprefix('delta.').strip('`').rstrip('/'))}/" not in known
    ]


def pin_warnings(tables: Mapping[str, Table]) -> Iterator[str]:
    """Say which versions that tables pin themselves are not there, and which ones other readers will refuse; and which
    properties look like others with a letter changed.
    """
    for name, table in tables.items():
        for written in table.properties.keys() - {*_PROPERTIES.values()}:
            if near := get_close_matches(written.lower(), _PROPERTIES, n=1, cutoff=_ONE_LETTER):
                yield f"{name} has the property {written}, which nobody knows. Did you mean {_PROPERTIES[near[0]]}?"
        if table.pins_nothing:
            yield (
                f"{KEEP_VERSIONS} of {name} is {table.keep_versions!r} since the table was made, perhaps as a copy of another:"
                " it pins nothing. Set it anew, or remove it: ALTER TABLE … UNSET TBLPROPERTIES."
            )
        for number in table.pinned_by_property():
            pinned = f"version {number} of {name}, which {KEEP_VERSIONS} pins"
            if (version := table.versions.get(number)) is None:
                yield f"Nobody can keep {pinned}: it is not in the log."
                continue
            until = version.closed_at + table.interval(DELETED_FILES)
            refused = f"From {until:%Y-%m-%d} on, Spark 4.1 and newer refuse to read {pinned}."
            yield f"{refused} Set {DELETED_FILES} to a longer interval to read it there."
            if table.cleans_log:
                until = version.closed_at + table.interval(LOG_RETENTION)
                yield f"From {until:%Y-%m-%d} on, cleanup of the log may make unreachable {pinned}. Set {LOG_CLEANUP} = false."


def _warnings(policy: Policy, table: Table, spares: bool) -> Iterator[tuple[str, str]]:
    # sentences in two halves, between which the names of the tables stand
    line, window, kept = policy.select.older_than, table.interval(DELETED_FILES), table.interval(LOG_RETENTION)
    if line is None and policy.select.beyond:
        yield (
            f"Policy {policy.name} keeps the newest versions of",
            f", whatever their age: Spark 4.1 and newer refuse to read those that are past {DELETED_FILES} ({_days(window)}).",
        )
    if line is None:
        return
    age = line.age
    if age.length > window:
        yield (
            f"Policy {policy.name} keeps versions for {age.words()} of",
            f", but Spark 4.1 and newer refuse to read those that are past {DELETED_FILES} ({_days(window)}), whatever is kept."
            f" Set it to 'interval {_days(age.length)}' to read them there.",
        )
    elif spares and age.length < window:
        yield (
            f"Policy {policy.name} selects versions after {age.words()} of",
            f", but those inside the table's window, {DELETED_FILES} ({_days(window)}), are spared (TABLE_WINDOW). Shorten it, "
            "or say window_below_table: allow in the store.",
        )
    if age.length > kept and table.cleans_log:
        oldest = next(iter(table.versions.values()))
        yield (
            f"From {oldest.closed_at + kept:%Y-%m-%d} on, cleanup of the log may make version {oldest.number} unreachable of",
            f", though policy {policy.name} keeps it for {age.words()}: {LOG_RETENTION} is {_days(kept)}. Set"
            f" {LOG_CLEANUP} = false, or {LOG_RETENTION} = 'interval {_days(age.length)}'.",
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _days(length: timedelta) -> str:
    days = -(-length // timedelta(days=1))
    return "1 day" if days == 1 else f"{days} days"

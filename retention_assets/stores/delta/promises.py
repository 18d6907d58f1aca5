"""Sentences about what policies promise of tables and other readers refuse, and about what tables keep by themselves."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta

from retention_assets.policy.durations import Duration
from retention_assets.policy.globs import matches, protects
from retention_assets.policy.model import OlderThan, Policy
from retention_assets.stores.delta.folder import canonical_place
from retention_assets.stores.delta.table import DELETED_FILES, LOG_CLEANUP, LOG_RETENTION, Table


def promise_warnings(tables: Mapping[str, Table], policies: Sequence[Policy], spares: bool) -> list[str]:
    """Compare the ages of policies with the windows of the tables that they are about."""
    return [
        sentence
        for policy in policies
        for name, table in tables.items()
        if matches(name, policy.datasets.include) and not protects(name, policy.datasets.exclude)
        for sentence in _warnings(policy, name, table, spares)
    ]


def clone_warnings(tables: Mapping[str, Table], known: Collection[str]) -> list[str]:
    """Name clones that were made of tables that the settings do not know, and files that tables have elsewhere."""
    return [
        f"Version {version.number} of {name} is a clone of {version.source}, which the settings do not name. A store"
        " that deletes there has to name this table under also_read, or files that it needs may go."
        for name, table in tables.items()
        for version in table.versions.values()
        if version.source and f"{canonical_place(version.source.strip('`').removeprefix('delta.`'))}/" not in known
    ]


def _warnings(policy: Policy, name: str, table: Table, spares: bool) -> Iterator[str]:
    window, age = table.interval(DELETED_FILES), _age_of(policy)
    if age is None:
        return
    property_ = f"{DELETED_FILES} = '{table.properties.get(DELETED_FILES, 'interval 1 week')}'"
    if age.length > window:
        yield (
            f"Policy {policy.name} keeps the versions of {name} for {age.words()}, but Spark 4.1 and newer refuse to read those"
            f" that are past {property_}, whatever is kept. Set it to 'interval {_days(age.length)} days' to read them there."
        )
    elif spares and age.length < window:
        yield (
            f"Policy {policy.name} selects versions of {name} after {age.words()}, but those inside the table's window"
            f" ({property_}) are spared (TABLE_WINDOW). Shorten the property, or say window_below_table: allow in the store."
        )
    cleanup = table.properties.get(LOG_CLEANUP, "true").lower() == "true"
    kept = table.interval(LOG_RETENTION)
    if cleanup and age.length > kept:
        oldest = next(iter(table.versions.values()))
        at = oldest.closed_at + kept
        yield (
            f"From {at:%Y-%m-%d} on, cleanup of the log of {name} ({LOG_RETENTION} = '{_days(kept)} days') may make version"
            f" {oldest.number} unreachable, which policy {policy.name} keeps for {age.words()}. Set {LOG_CLEANUP} = false, or"
            f" {LOG_RETENTION} = 'interval {_days(age.length) + 1} days'."
        )


def _age_of(policy: Policy) -> Duration | None:
    line = policy.select.older_than
    return line.age if isinstance(line, OlderThan) else None


def _days(length: timedelta) -> int:
    return -(-length // timedelta(days=1))

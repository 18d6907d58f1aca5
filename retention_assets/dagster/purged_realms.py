"""Close realms: a PURGING one is PURGED once a run over everything finds nothing in it that is not swept."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from retention_assets.dagster.step import Step
from retention_assets.errors import Refused
from retention_assets.evaluation.changes import list_datasets
from retention_assets.ledger import Ledger
from retention_assets.pipeline.realm_counts import LeftOfRealm
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import Policy
from retention_assets.policy.realms import realm_of
from retention_assets.policy.sentences import count


def counted_realms(ledger: Ledger) -> tuple[str, ...]:
    """The realms of which a run counts what is left."""
    return tuple(name for name, realm in ledger.realms.all().items() if realm.status in ("PURGING", "PURGED"))


def close_purged_realms(
    ledger: Ledger,
    run: Step,
    policies: Sequence[Policy],
    datasets: pa.Table,
    left: Mapping[str, Sequence[LeftOfRealm]],
    begun: datetime | None,
) -> None:
    """Make PURGED what is over, and say what is left of the others. `begun`: since when all logs are known."""
    status = {name: realm.status for name, realm in ledger.realms.all().items()}
    for name, groups in left.items():
        # new data in it stays, and the person who purged it should know
        if status.get(name) == "PURGED" and groups:
            appeared = count(sum(one.transactions for one in groups), "transaction")
            run.log.warning(f"Realm {name} is PURGED, and {appeared} appeared in it since: kept until it is ACTIVE again.")
    # A realm that became PURGING during this evaluation was not counted. A run whose partitions are all datasets counts as
    # everything; one with other globs than `*` does not, nor one with a refused dataset: it may be of any realm.
    purged = {realm_of(policy.name) for policy in policies}
    realms = [name for name, now in status.items() if now == "PURGING" and name in purged]
    if not realms or "*" not in run.datasets.globs or datasets["fault"].null_count < len(datasets):
        return
    present = list_datasets(run.retention)
    if not present.away and set(present.names) <= set(datasets["dataset"].to_pylist()):
        for name in realms:
            _close(ledger, run, name, left.get(name, ()), begun)


def close_realms_of_nothing(ledger: Ledger, run: Step) -> None:
    """Close realms where there is no dataset at all any more: there is nothing to evaluate, so no evaluation would."""
    present = list_datasets(run.retention)
    if run.datasets.selects_all and not present.away and not present.names:
        for name, realm in ledger.realms.all().items():
            if realm.status == "PURGING":
                _close(ledger, run, name, (), run.retention.present())


def _close(ledger: Ledger, run: Step, name: str, left: Sequence[LeftOfRealm], begun: datetime | None) -> None:
    if left:
        for one in left:
            if one.why:
                run.log.warning(f"Realm {name} stays PURGING: {one.why}: {count(one.transactions, 'transaction')}.")
        return
    last = max(ledger.realms.last_changes(name))
    if begun is None or begun <= last:
        since = f"before {text_of(last)}, when it was changed last, or something of it deleted"
        run.log.info(f"Nothing of realm {name} was found, in logs that were read {since}: a later run makes it PURGED.")
        return
    try:
        ledger.realms.purged(name, 0, run.actor)
    except Refused as fault:
        # Its status was changed concurrently.
        run.log.warning(str(fault))
    else:
        run.log.info(f"Realm {name} is PURGED: nothing of it is left.")

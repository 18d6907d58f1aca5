"""Acts on the ledger as jobs, for people who look at Dagster and have no shell: the same acts as the commands of those names.

Belongs here: what is asked in the launchpad, and what the run shows of the result. Each act is in the record with the actor and
the reason that were given, or is refused with the sentence that the command would print.
Does not belong here: the acts themselves (ledger), and how one becomes a job (operation_forms.py).
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

import dagster as dg
from pydantic import Field

from retention_assets.clock import now
from retention_assets.dagster.housekeeping_job import housekeeping
from retention_assets.dagster.naming import Names
from retention_assets.dagster.operation_forms import (
    OperationContext,
    OperationForm,
    OperationJob,
    ReasonForm,
    duration_of,
    instant_of,
    operation_job,
)
from retention_assets.dagster.partitions import Choice
from retention_assets.dagster.run_config import JudgingConfig
from retention_assets.dagster.step import Metadata
from retention_assets.errors import BadInput, Problem, Refused, nearest
from retention_assets.evaluation.rulebook import items_of
from retention_assets.frames.soundness import sound_log
from retention_assets.operations.input import hold_of, newest_close, unknown_stores
from retention_assets.pipeline.stage import write_text
from retention_assets.policy.book import Stored
from retention_assets.policy.durations import text_of
from retention_assets.policy.language import load_policies
from retention_assets.policy.sentences import hold_sentence
from retention_assets.sweep.dry_run import DryRun, dry_run
from retention_assets.sweep.read import call_store

_MOST_SHOWN = 1000
_COLUMNS = ("dataset", "transaction", "would", "bytes", "why")


class UnmarkForm(ReasonForm):
    """Whose marks are taken back."""

    dataset: str = Field(default="", description="A dataset, as store/name.")
    transactions: list[str] = Field(default=[], description="Only these of the dataset: all of them are taken back, or none.")
    policy: str = Field(default="", description="A policy; with a dataset, only what it marked there.")


@operation_job(UnmarkForm)
def unmark(doing: OperationContext, form: UnmarkForm) -> Metadata:
    """Take marks back: of transactions of a dataset, or all of a dataset, of a policy, or of a policy in a dataset.

    What is being swept or was swept can't be taken back.
    """
    if form.transactions and (form.policy or not form.dataset):
        raise BadInput(
            Problem("are named by their dataset", key="transactions", expected="a dataset and no policy beside them")
        )
    with doing.retention.ledger() as ledger:
        if form.transactions:
            done = ledger.unmark.transactions(form.dataset, form.transactions, doing.actor, form.reason)
        else:
            done = ledger.unmark.all_of(doing.actor, form.reason, form.dataset or None, form.policy or None)
    return vars(done)


class HoldForm(ReasonForm):
    """What is held, under which name."""

    name: str = Field(description="What it is called; by this it is released.")
    datasets: list[str] = Field(description="Globs over store/name: what is held.")
    transactions: list[str] = Field(default=[], description="Globs; only these transactions. All when left out.")
    owner: str = Field(default="", description="Who answers for it. Left out, it is whoever places it.")
    until: str = Field(default="", description="When it ends by itself, such as 2026-12-31T00:00:00Z; never when left out.")


@operation_job(HoldForm)
def hold(doing: OperationContext, form: HoldForm) -> Metadata:
    """Place a hold: nothing that it holds is marked or swept, by any policy, until it ends or is released."""
    until = instant_of(form.until, "until") if form.until else None
    owner = form.owner.strip() or doing.actor
    placed = hold_of(form.name, form.datasets, form.transactions, form.reason, owner, until, now())
    for words in unknown_stores(placed, [store.name for store in doing.retention.settings.stores]):
        doing.log.warning(words)
    with doing.retention.ledger() as ledger:
        ledger.holds.place(placed, doing.actor)
    return {"name": placed.name, "holds": hold_sentence(placed)}


class NameForm(ReasonForm):
    """Something that has a name."""

    name: str


@operation_job(NameForm)
def release(doing: OperationContext, form: NameForm) -> Metadata:
    """Release a hold. What it kept is judged by the policies alone from the next evaluation on."""
    with doing.retention.ledger() as ledger:
        ledger.holds.release(form.name, doing.actor, form.reason)
    return {"name": form.name, "released_by": doing.actor}


class AdvanceForm(OperationForm):
    """How far history stays readable."""

    dataset: str = Field(description="A dataset, as store/name.")
    retention: str = Field(description="How long history stays readable, such as 30d.")
    as_of: str = Field(default="", description="Counted back from this instant; the present when left out.")


@operation_job(AdvanceForm)
def advance_visibility(doing: OperationContext, form: AdvanceForm) -> Metadata:
    """Raise the visibility mark of a dataset: the time before which its history is not to be read.

    It is raised to as_of less the retention, but never past the newest transaction, and it only rises.
    """
    as_of = instant_of(form.as_of, "as_of") if form.as_of else now()
    retention = duration_of(form.retention, "retention")
    newest = _newest_close(doing, form.dataset)
    with doing.retention.ledger() as ledger:
        before = ledger.visibility.of(form.dataset)
        after = ledger.visibility.advance(form.dataset, as_of, retention, newest, doing.actor)
    return {"dataset": form.dataset, "visible_from": text_of(after), "raised": after != before}


def _newest_close(doing: OperationContext, dataset: str) -> datetime:
    """When the newest transaction that readers can see was committed, by the store as it is now."""
    name = dataset.partition("/")[0]
    store = doing.retention.stores([name]).get(name)
    if store is None:
        raise BadInput(Problem(f"the settings have no store named {name}", key="dataset", value=f"'{dataset}'"))
    log = sound_log(call_store(store, lambda: store.read([dataset])))
    for row in log.datasets.to_pylist():
        if row["fault"]:
            raise Refused(f"{dataset} is refused: {row['fault']} (transaction {row['fault_transaction']}). Mend its log first.")
    return newest_close(log.transactions, dataset)


class RealmStatus(Enum):
    """What a person may say of a realm."""

    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    PURGING = "PURGING"


class RealmForm(ReasonForm):
    """What a realm is to become."""

    name: str
    status: RealmStatus
    grace: str = Field(default="", description="The grace of the marks that purging makes, such as 7d; as it is when left out.")
    yes: bool = Field(default=False, description="Purging marks everything of the realm. Say yes to it.")


@operation_job(RealmForm)
def change_realm(doing: OperationContext, form: RealmForm) -> Metadata:
    """Change a realm. ACTIVE and INACTIVE ones are retained; PURGING marks everything of one, whatever the policies say."""
    if form.status is RealmStatus.PURGING and not form.yes:
        words = "whatever the policies say; holds still stop it. If that is meant, set `yes: true`."
        raise Refused(f"Nothing was changed. Purging {form.name} marks everything of it, {words}")
    grace = duration_of(form.grace, "grace") if form.grace else None
    with doing.retention.ledger() as ledger:
        realm = ledger.realms.change(form.name, form.status.value, doing.actor, form.reason, grace)
    return {"name": realm.name, "status": realm.status, "grace": str(realm.grace)}


@operation_job(NameForm)
def policy_overwrite(doing: OperationContext, form: NameForm) -> Metadata:
    """Take what the files say of an entry into the policy book, as a person's decision; this ends a drift."""
    settings = doing.retention.settings
    items = {item.name: item for item in items_of(load_policies(settings.policies, {store.name for store in settings.stores}))}
    if form.name not in items:
        guess = nearest(form.name, list(items))
        remedy = f"Did you mean {guess}?" if guess else None
        raise BadInput(Problem(f"'{form.name}' is not in the policy files", key="name", remedy=remedy))
    with doing.retention.ledger() as ledger:
        return _version(ledger.policy_book.write(items[form.name], doing.actor, form.reason))


@operation_job(NameForm)
def policy_revoke(doing: OperationContext, form: NameForm) -> Metadata:
    """Put an entry of the policy book out of force. The marks that it made stay, until they are taken back."""
    with doing.retention.ledger() as ledger:
        written = ledger.policy_book.revoke(form.name, doing.actor, form.reason)
        orphaned = sum(one.marks for one in ledger.policy_book.orphaned() if one.policy == form.name)
    return {**_version(written), "orphaned_marks": orphaned}


def _version(written: Stored) -> Mapping[str, Any]:
    return {"name": written.name, "version": written.version, "written_by": written.written_by, "revoked": written.revoked}


@operation_job(JudgingConfig)
def preview(doing: OperationContext, form: JudgingConfig) -> Metadata:
    """Show what a sweep of the chosen datasets would delete and spare. Marks nothing, deletes nothing.

    It is the very sweep, on a copy of the open marks and on stores that write down instead of deleting.
    """
    settings, as_of = doing.retention.settings, form.instant()
    with doing.retention.ledger() as ledger:
        names = Choice(tuple(form.datasets)).of(ledger.marks.datasets_to_sweep(as_of))
        stores = doing.retention.stores({name.partition("/")[0] for name in names})
        files = load_policies(settings.policies, {store.name for store in settings.stores})
        found = dry_run(ledger, stores, settings, files, as_of, names)
    place = f"{doing.warehouse.folder(doing.names.key('preview'), doing.run_id)}/preview.json"
    write_text(json.dumps(_as_dict(found, as_of), ensure_ascii=False, indent=2), place)
    for one in found.results:
        if one.refused:
            doing.log.warning(f"{one.dataset} would not be swept: {one.refused}")
    return {
        "as_of": text_of(as_of),
        "datasets": len(found.results),
        "refused": sum(one.refused is not None for one in found.results),
        "would_delete": len(found.deleted),
        "would_free": sum(one.bytes or 0 for one in found.deleted),
        "would_spare": len(found.spared),
        "file": dg.MetadataValue.path(place),
        "transactions": _table(found),
    }


def _as_dict(found: DryRun, as_of: datetime) -> Mapping[str, Any]:
    """The shape that `retention run --dry-run --format json` has."""
    rows = {"deleted": [vars(one) for one in found.deleted], "spared": [vars(one) for one in found.spared]}
    refused = {one.dataset: one.refused for one in found.results if one.refused}
    return {"as_of": text_of(as_of), "dry_run": True, **rows, "refused": refused}


def _table(found: DryRun) -> dg.MetadataValue:
    """The first of what would go, and of what would be spared and why. All of it is in the file."""
    rows = [(one.dataset, one.transaction, "delete", one.bytes or 0, "") for one in found.deleted[:_MOST_SHOWN]]
    rows += [(one.dataset, one.transaction, "spare", 0, one.why) for one in found.spared[:_MOST_SHOWN]]
    columns = [dg.TableColumn(name, "int" if name == "bytes" else "string") for name in _COLUMNS]
    records = [dg.TableRecord(dict(zip(_COLUMNS, row, strict=True))) for row in rows]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


ACTS: Sequence[OperationJob[Any]] = (
    unmark, hold, release, advance_visibility, change_realm, policy_overwrite, policy_revoke, preview,
    housekeeping,
)  # fmt: skip


def operation_jobs(names: Names) -> list[dg.JobDefinition]:
    """All of them, as the jobs of an environment."""
    return [one.job(names) for one in ACTS]

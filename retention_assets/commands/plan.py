"""`retention plan`: what a run would do now, read before it is let do it.

Belongs here: arguments, how a plan looks on a terminal, and its exit code. `run --dry-run` is the same, and `run` shows what is
about deleting before it asks.
Does not belong here: what a plan says (people/plan.py).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from retention_assets.people.common.options import ACCEPT_LARGE, AS_OF, FORMAT, STRICT, examples
from retention_assets.people.common.output import ExitCode, finish, print_json, print_tables, print_words, progress, say
from retention_assets.people.common.sources import find_environment

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

    from retention_assets.environment import Environment
    from retention_assets.people.amounts import Amount
    from retention_assets.people.plan import PlanGroup, RetentionPlan

# What is shown of each list without --detail.
_MOST = 20


@examples("retention plan", "retention plan -d 'lake/raw.*' --detail", "retention plan -t 'in 7d' -f json")
@click.command()
@click.option("-d", "--dataset", "datasets", multiple=True, metavar="GLOB", help="Only these datasets; may be repeated.")
@AS_OF
@click.option("--detail", is_flag=True, help="List the transactions too.")
@ACCEPT_LARGE
@FORMAT
@STRICT
def plan(
    datasets: tuple[str, ...], as_of: datetime | None, detail: bool, accept_large: bool, format_: str, strict: bool
) -> ExitCode:
    """Show what a run would do now: mark, delete, spare, and what falls due on which day. Changes nothing.

    Exits with 0 where there is nothing to do, and with 3 where there is something.

    It reads the stores, judges, and sweeps a copy of the ledger over stores that write down what they would delete. Dagster is
    not started, and Spark only for the scan of a large store of objects, or where it is a cluster.
    """
    return show_plan(find_environment(), datasets, as_of, accept_large, detail=detail, format_=format_, strict=strict)


def show_plan(
    environment: "Environment",
    datasets: tuple[str, ...],
    as_of: datetime | None,
    accept_large: bool,
    *,
    detail: bool,
    format_: str,
    strict: bool,
) -> ExitCode:
    """Make a plan, print it, and say by the exit code whether there is something to do."""
    plan = find_plan(environment, datasets, as_of, accept_large)
    for words in plan.notes:
        say(words)
    if format_ == "json":
        print_json(plan.as_dict())
    else:
        _print(plan, detail)
    failed = (*plan.failures, *(plan.warnings if plan.store_failed else ()))
    refused = () if plan.store_failed else plan.warnings
    return finish(failed=failed, refused=refused, strict=strict, to_do=plan.has_work)


def find_plan(
    environment: "Environment", datasets: tuple[str, ...], as_of: datetime | None, accept_large: bool
) -> "RetentionPlan":
    """The plan, while a terminal shows that it is being made."""
    from retention_assets.people.plan import PlanRequest, make_plan

    with progress("reading the stores, judging, and sweeping a copy"):
        return make_plan(PlanRequest(as_of=as_of, datasets=datasets or ("*",), accept_large=accept_large), environment)


def _print(plan: "RetentionPlan", detail: bool) -> None:
    print_words(f"{_summary(plan)} Nothing was changed.")
    _print_beside(plan)
    tables = list(_tables(plan))
    if detail:
        tables += _detail(plan)
    print_tables(tables)


def print_deletions(plan: "RetentionPlan") -> None:
    """What would be deleted now, and what goes with it."""
    print_words(deletions_of(plan))
    _print_beside(plan)
    groups = [one for one in plan.groups() if one.deleted.transactions]
    print_tables([_group_table(plan, groups, ("deleted",)), *_spared(plan), *_beside(plan)])


def deletions_of(plan: "RetentionPlan") -> str:
    """How much would be deleted now, in a sentence."""
    spared = f" and spare {len(plan.spared):,}" if len(plan.spared) else ""
    return f"This run would delete {_of(plan.total(plan.deleted))}{spared}."


def _summary(plan: "RetentionPlan") -> str:
    from retention_assets.render.text import minute_in_utc

    at = minute_in_utc(plan.as_of)
    if not plan.has_work:
        return f"As of {at} a run has nothing to do: nothing new is to be marked, and nothing is due."
    marked, deleted = plan.total(plan.newly_marked), plan.total(plan.deleted)
    spared = f" and spare {len(plan.spared):,}" if len(plan.spared) else ""
    return f"As of {at} a run would mark {_of(marked)}; delete {_of(deleted)}{spared}."


def _tables(plan: "RetentionPlan") -> "Iterator[Table]":
    from retention_assets.policy.sentences import sentence
    from retention_assets.render.terminal import table

    if groups := plan.groups():
        there = (name for name in _SAID if any(getattr(one, name).transactions for one in groups))
        if names := tuple(there):
            yield _group_table(plan, groups, names)
    yield from _spared(plan)
    yield from _beside(plan)
    if days := plan.days():
        rows = [
            (one.date, _cell(one.marked_before), _cell(one.newly_marked), _cell(one.marked_before + one.newly_marked))
            for one in days[:_MOST]
        ]
        columns = ("day", "marked before", "newly marked", "together")
        yield table(f"Due later, by day{_more(days)}", columns, rows, columns[1:])
    if plan.policies:
        why = [(one.name, one.description or sentence(one)) for one in plan.policies]
        yield table("Why", ("policy", "what it is for"), why)


# The amounts of a group, as their columns are called.
_SAID = {"newly_marked": "mark", "deleted": "delete now", "waiting": "due later"}


def _group_table(plan: "RetentionPlan", groups: "Sequence[PlanGroup]", names: tuple[str, ...]) -> "Table":
    from retention_assets.render.terminal import table
    from retention_assets.render.text import money_of

    # The largest are shown, in the order of their names.
    largest = sorted(groups, key=lambda one: -sum(getattr(one, name).bytes for name in names))[:_MOST]
    shown = [one for one in groups if one in largest]
    rows = []
    for number, one in enumerate(shown):
        again = number and shown[number - 1].dataset == one.dataset
        amount = one.deleted.costs or one.newly_marked.costs
        costs = (money_of(amount.saved_monthly, plan.currency) if amount else "",) if plan.currency else ()
        rows.append(("" if again else one.dataset, one.policy, *(_cell(getattr(one, name)) for name in names), *costs))
    columns = (*(_SAID[name] for name in names), *(("saved a month",) if plan.currency else ()))
    return table(f"By dataset and policy{_more(groups)}", ("dataset", "policy", *columns), rows, columns)


def _spared(plan: "RetentionPlan") -> "Iterator[Table]":
    from retention_assets.render.terminal import table

    if not len(plan.spared):
        return
    counts = plan.spared.group_by(["dataset", "why"]).aggregate([("transaction", "count"), ("transaction", "min")])
    rows = [
        (row["dataset"], f"{row['transaction_count']:,}", f"{row['transaction_min']}: {row['why']}")
        for row in counts.sort_by([("dataset", "ascending"), ("why", "ascending")]).to_pylist()
    ]
    columns = ("dataset", "marks", "one of them, and why")
    yield table(f"Spared, because somebody needs them: {len(plan.spared):,}{_more(rows)}", columns, rows[:_MOST], ("marks",))


def _beside(plan: "RetentionPlan") -> "Iterator[Table]":
    """Tables of what goes with what is deleted: latest views and refs."""
    from retention_assets.render.terminal import table

    deleted = plan.deleted.select(["dataset", "transaction", "in_latest_view", "refs"]).to_pylist()
    latest: dict[str, int] = {}
    for row in deleted:
        if row["in_latest_view"]:
            latest[row["dataset"]] = latest.get(row["dataset"], 0) + 1
    if latest:
        rows = [(name, f"{count:,}") for name, count in sorted(latest.items())]
        title = f"Current data that goes: in a latest view{_more(rows)}"
        yield table(title, ("dataset", "transactions"), rows[:_MOST], ("transactions",))
    if dropped := [(row["dataset"], ref, row["transaction"]) for row in deleted for ref in row["refs"]]:
        yield table(f"Branches and tags that are dropped{_more(dropped)}", ("dataset", "ref", "with"), dropped[:_MOST])


def _detail(plan: "RetentionPlan") -> "Iterator[Table]":
    from retention_assets.render.terminal import table
    from retention_assets.render.text import minute_in_utc, size_of

    def rows(transactions: "pa.Table", last: str) -> Iterator[tuple[str, ...]]:
        for row in transactions.to_pylist():
            value = "It expires by itself." if row.get("expires") else row[last]
            cell = minute_in_utc(value) if isinstance(value, datetime) else str(value or "")
            yield row["dataset"], row["transaction"], row["policy"], size_of(row["bytes"]), cell

    lists = (
        ("To be marked", plan.newly_marked, "due_at", "due"),
        ("To be deleted now", plan.deleted, "reason", "by"),
        ("To be spared", plan.spared, "why", "why"),
        ("Marked before, and not due yet", plan.waiting, "due_at", "due"),
    )
    for title, transactions, last, words in lists:
        if len(transactions):
            columns = ("dataset", "transaction", "policy", "size", words)
            yield table(f"{title}: {len(transactions):,}", columns, rows(transactions, last), ("size",))


def _print_beside(plan: "RetentionPlan") -> None:
    """Sentences about accepted cascades, and about what deleting saves and costs where it has a price."""
    from retention_assets.render.text import money_of

    for sentence in plan.cascades.values():
        print_words(sentence)
    costs, currency = plan.total(plan.deleted).costs, plan.currency
    if costs is None or currency is None:
        return
    words = f"Deleting saves {money_of(costs.saved_monthly, currency)} a month"
    words += f", its requests cost {money_of(costs.requests, currency)}" if costs.requests else ""
    early = f" {money_of(costs.ended_early, currency)} are billed on, as it is deleted early."
    print_words(f"{words}.{early if costs.ended_early else ''}")


def _of(amount: "Amount") -> str:
    from retention_assets.render.text import size_of

    return f"{amount.transactions:,} ({size_of(amount.bytes)})" if amount.transactions else "none"


def _cell(amount: "Amount") -> str:
    return _of(amount) if amount.transactions else ""


def _more(rows: Sequence[object]) -> str:
    return f" ({_MOST} of {len(rows):,})" if len(rows) > _MOST else ""

"""The commands about marks: what is going to be deleted and when, and taking it back while there is time.

Belongs here: `marks` and `unmark`, and choosing and counting the marks that are listed.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from retention_assets.commands.common.options import ACTOR, AS_OF, DATASETS, FORMAT, REASON, examples
from retention_assets.commands.common.output import echo, print_json, print_rows, print_tables, say
from retention_assets.commands.common.sources import find_environment, instant, ledger_to_read

if TYPE_CHECKING:
    import pyarrow as pa

    from retention_assets.environment import Environment
    from retention_assets.ledger import Ledger

STATUSES = ("MARKED", "UNMARKED", "SPARED", "SWEEPING", "SWEPT")
_SHOWN = (
    "dataset", "transaction", "policy", "policy_version", "reason", "marked_at", "due_at", "status", "bytes", "attempts",
    "last_error", "opened_at", "closed_at",
)  # fmt: skip


@examples("retention marks", "retention marks --due", "retention marks -d 'lake/raw.*' -s SWEPT -f json")
@click.command()
@DATASETS
@click.option("-p", "--policy", metavar="NAME", help="Only marks of this policy.")
@click.option(
    "-s", "--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="Only marks of this status; may be repeated."
)
@click.option("--due", is_flag=True, help="Only marks whose grace is over: the next sweep takes them up.")
@AS_OF
@FORMAT
@click.option("-n", "--most", type=click.IntRange(min=0), default=20, show_default=True, help="How many marks the table lists.")
def marks(
    globs: tuple[str, ...],
    policy: str | None,
    statuses: tuple[str, ...],
    due: bool,
    as_of: datetime | None,
    format_: str,
    most: int,
) -> None:
    """List marks: what is going to be deleted, since when, by which policy, when it is due, and what became of it."""
    if due and statuses not in ((), ("MARKED",)):
        raise click.UsageError("Only MARKED marks are due: give --due without another --status.")
    if as_of and not due:
        raise click.UsageError("--as-of says when marks are due: it goes with --due.")
    due_by = instant(as_of) if due else None
    environment = find_environment()
    with ledger_to_read(environment) as ledger:
        tables = _chosen(ledger, globs, policy, ("MARKED",) if due else statuses, due_by) if ledger else iter(())
        rows = _with_fates(environment, ledger, tables, due_by) if ledger else iter(())
        if format_ == "json":
            print_rows({name: value for name, value in row.items() if name not in ("held_by", "spared")} for row in rows)
            return
        from retention_assets.render.ledger_tables import mark_tables

        sums, first = dict[str, tuple[int, int]](), list[dict[str, Any]]()
        for row in rows:
            state = "MARKED, held" if row["held_by"] is not None and row["status"] == "MARKED" else row["status"]
            count, size = sums.get(state, (0, 0))
            sums[state] = (count + 1, size + (row["bytes"] or 0))
            first += [row] if len(first) < most else []
    print_tables(mark_tables(sums, first, None if environment.settings.clock.simulated else instant(None)))


def _with_fates(
    environment: "Environment", ledger: "Ledger", tables: "Iterator[pa.Table]", due_by: datetime | None
) -> "Iterator[dict[str, Any]]":
    """Give marks as they are printed, each with what becomes of it; of those that are due only what goes."""
    from retention_assets.operations.questions import fates_of

    at = due_by or instant(None)
    fates = fates_of(environment, ledger, at)
    for rows in (table.to_pylist() for table in tables):
        swept = [row["id"] for row in rows if row["status"] == "SWEPT"]
        hidden = ledger.histories.hidden(swept) if swept else ()
        for row in rows:
            fate = fates.of(row, row.pop("id") in hidden)
            if due_by is None or (fate.goes and fate.at <= due_by):
                yield {**row, "due_at": fate.at, "message": fate.message, "held_by": fate.hold, "spared": fate.spared}


def _chosen(
    ledger: "Ledger", globs: Sequence[str], policy: str | None, statuses: Sequence[str], due_by: datetime | None
) -> "Iterator[pa.Table]":
    """Marks that fit, a batch at a time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from retention_assets.policy.globs import is_literal, matching

    exact = bool(globs) and all(is_literal(glob) for glob in globs)
    for batch in ledger.marks.read(globs if exact else None, statuses or None, due_by):
        table = pa.Table.from_batches([batch]).select(("id", *_SHOWN))
        if globs and not exact:
            names = table["dataset"].combine_chunks().dictionary_encode()
            fits = pa.array(matching(names.dictionary.to_pylist(), globs), pa.bool_())
            table = table.filter(fits.take(names.indices))
        yield table.filter(pc.equal(table["policy"], policy)) if policy else table


@examples(
    "retention unmark lake/raw.orders T1 T2 -r 'the audit needs them'",
    "retention unmark -d lake/raw.orders -p raw-30-days -r 'the policy was wrong'",
)
@click.command()
@click.argument("names", nargs=-1, metavar="[DATASET TRANSACTION...]")
@click.option("-d", "--dataset", metavar="NAME", help="Take back every mark of this dataset.")
@click.option(
    "-p", "--policy", metavar="NAME", help="Take back every mark of this policy; with --dataset, only those in that dataset."
)
@REASON
@ACTOR
@FORMAT
def unmark(names: tuple[str, ...], dataset: str | None, policy: str | None, reason: str, actor: str, format_: str) -> None:
    """Take marks back: those of TRANSACTIONs of a DATASET (all of them or none), or all of a dataset or policy.

    The mark of what is being swept or was swept can't be taken back.
    """
    if bool(names) == bool(dataset or policy):
        raise click.UsageError("Say which marks: DATASET TRANSACTION..., or --dataset NAME, --policy NAME or both.")
    if len(names) == 1:
        raise click.UsageError(f"Name transactions of {names[0]}, or take all its marks back by --dataset {names[0]}.")
    from retention_assets.operations.marks import UnmarkRequest, unmark
    from retention_assets.policy.sentences import count

    dataset = names[0] if names else dataset
    request = UnmarkRequest(actor=actor, reason=reason, dataset=dataset, transactions=names[1:], policy=policy)
    done = unmark(request, find_environment())
    if format_ == "json":
        print_json(done.as_dict())
        return
    echo(f"{count(done.unmarked, 'mark')} taken back.")
    if done.sweeping or done.swept:
        echo(f"Too late for {done.sweeping:,} that are being swept and {done.swept:,} that were swept.")
    # Which says what comes next.
    say(done.note)

"""The commands about what of a history may be read: raising the visibility mark, and reading at an instant.

Belongs here: `advance` and `as-of`. What the readers of a branch see at an instant is said by evaluation/reader_view.py.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retention_assets.commands.logs import read_one
from retention_assets.commands.options import ACTOR, AS_OF, FORMAT, LOG, DurationParam, InstantParam, examples
from retention_assets.commands.output import echo, print_json, print_tables, progress, say
from retention_assets.commands.sources import find_environment, instant, ledger_to_read
from retention_assets.errors import BadInput, Problem, Refused, nearest
from retention_assets.policy.durations import Duration, text_of

if TYPE_CHECKING:
    import pyarrow as pa

    from retention_assets.evaluation.reader_view import BranchAsOf
    from retention_assets.ledger import Ledger


@examples("retention advance lake/raw.orders --retention 30d")
@click.command()
@click.argument("dataset")
@click.option("--retention", type=DurationParam(), required=True, help="How long history stays readable, such as 30d.")
@LOG
@AS_OF
@ACTOR
@FORMAT
def advance(dataset: str, retention: Duration, log_path: Path | None, as_of: datetime | None, actor: str, format_: str) -> None:
    """Raise the visibility mark of DATASET: the time before which its history must not be read.

    The mark is raised to as_of less the retention, but never past the newest transaction, so that a fast clock can't hide what
    is current. It is never lowered.
    """
    from retention_assets.operations.visibility import AdvanceRequest, advance_visibility

    request = AdvanceRequest(actor=actor, dataset=dataset, retention=retention, as_of=instant(as_of), log=log_path)
    with progress(f"reading {dataset}"):
        found = advance_visibility(request, find_environment())
    if format_ == "json":
        print_json(found.as_dict())
        return
    echo(f"The history of {dataset} is readable from {text_of(found.visible_from)} on.")
    if not found.raised:
        echo("Nothing was changed: a visibility mark is never lowered.")


@examples("retention as-of lake/raw.orders 7d", "retention as-of lake/raw.orders 2026-03-01 -b main")
@click.command("as-of")
@click.argument("dataset")
@click.argument("at", metavar="T", type=InstantParam())
@click.option("-b", "--branch", help="Only this branch.")
@LOG
@FORMAT
def as_of(dataset: str, at: datetime, branch: str | None, log_path: Path | None, format_: str) -> None:
    """Show what a reader of DATASET sees at the instant T: on each live branch, the view that was current then.

    A view consists of the transactions that the branch holds today and that were committed by T. What was swept since is
    flagged. Before the visibility mark only a view that is still current is shown.
    """
    from retention_assets.evaluation.reader_view import views_at

    environment = find_environment(needed=log_path is None)
    rows = read_one(log_path, environment, dataset).transactions
    seen = views_at(rows, at, branch)
    if branch is not None and not seen:
        raise _unknown(branch, dataset, rows)
    with ledger_to_read(environment) as ledger:
        visible_from = ledger.visibility.of(dataset) if ledger else None
        swept, gone = _swept(ledger, dataset, rows)
    _refuse_hidden(dataset, at, visible_from, seen)
    views = [
        {
            "branch": one.branch,
            "current": one.current,
            "transactions": [{**asdict(row), "swept": row.transaction in swept} for row in one.rows],
        }
        for one in seen
    ]
    if format_ == "json":
        print_json({"dataset": dataset, "at": at, "visible_from": visible_from, "swept_and_unlisted": gone, "branches": views})
    else:
        from retention_assets.render.ledger_tables import as_of_tables

        print_tables(as_of_tables(dataset, at, views))
    if gone:
        say(f"{gone:,} swept transactions of {dataset} are not in its log any more; a view may have held some of them.")


def _swept(ledger: "Ledger | None", dataset: str, rows: "pa.Table") -> tuple[set[str], int]:
    """What of a log was swept, and how many were that it does not list any more."""
    if ledger is None:
        return set(), 0
    from retention_assets.frames.lives import is_in_log

    marks = ledger.marks.table([dataset], ["SWEPT"])
    names, listed = marks["transaction"].to_pylist(), is_in_log(marks, rows).tolist()
    swept = {name for name, still in zip(names, listed, strict=True) if still}
    return swept, len(set(names) - set(rows["transaction"].to_pylist()))


def _refuse_hidden(dataset: str, at: datetime, visible_from: datetime | None, seen: "Sequence[BranchAsOf]") -> None:
    if visible_from is None or at >= visible_from or (seen and all(one.current for one in seen)):
        return
    raise Refused(
        f"The history of {dataset} before {text_of(visible_from)} is not to be read: some of it may be gone. Ask for that time"
        " or a later one."
    )


def _unknown(branch: str, dataset: str, rows: "pa.Table") -> BadInput:
    import pyarrow.compute as pc

    guess = nearest(branch, pc.unique(pc.list_flatten(rows["heads"])).to_pylist())
    remedy = f"Did you mean {guess}?" if guess else None
    return BadInput(Problem(f"branch '{branch}' is not a live branch of {dataset}", remedy=remedy))

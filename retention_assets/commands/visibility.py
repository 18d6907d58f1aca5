"""The commands about what of a history may be read: raising the visibility mark, and reading at an instant.

Belongs here: `advance`, `readable` and `as-of`. What readers see is said by evaluation/readable.py and reader_view.py.
"""

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retention_assets.commands.common.logs import read_one
from retention_assets.commands.common.options import ACTOR, AS_OF, FORMAT, LOG, DurationParam, InstantParam, examples
from retention_assets.commands.common.output import ExitCode, echo, finish, print_json, print_tables, progress, say
from retention_assets.commands.common.sources import find_environment, instant, ledger_to_read
from retention_assets.errors import BadInput, Problem, nearest
from retention_assets.policy.durations import Duration, text_of
from retention_assets.policy.globs import is_literal

if TYPE_CHECKING:
    import pyarrow as pa

    from retention_assets.ledger import Ledger


@examples("retention advance", "retention advance lake/raw.orders --retention 30d")
@click.command()
@click.argument("dataset", required=False)
@click.option("-d", "--dataset", "globs", multiple=True, help="Only these of the datasets that the policy files name: a glob.")
@click.option("--retention", type=DurationParam(), help="How long the history of DATASET stays readable, such as 30d.")
@LOG
@AS_OF
@ACTOR
@FORMAT
def advance(
    dataset: str | None,
    globs: tuple[str, ...],
    retention: Duration | None,
    log_path: Path | None,
    as_of: datetime | None,
    actor: str,
    format_: str,
) -> ExitCode:
    """Raise the visibility mark of DATASET: the time before which its history must not be read.

    The mark is raised to as_of less the retention, but never past the newest transaction, so that a fast clock can't hide what
    is current. It is never lowered. Without DATASET the marks of all datasets rise that `visibility` in the policy files names,
    as each evaluation raises them.
    """
    if dataset is None and retention is not None and len(globs) == 1 and is_literal(globs[0]):
        dataset, globs = globs[0], ()
    if dataset is None and retention is None and log_path is None:
        return _advance_by_rules(globs or ("*",), as_of, actor, format_)
    if dataset is None or retention is None or globs:
        expected = "DATASET together with --retention, or neither: then the `visibility` of the policy files counts"
        raise BadInput(
            Problem("is missing" if retention is None else "is about one dataset", key="--retention", expected=expected)
        )
    from retention_assets.operations.visibility import AdvanceRequest, advance_visibility

    request = AdvanceRequest(actor=actor, dataset=dataset, retention=retention, as_of=instant(as_of), log=log_path)
    with progress(f"reading {dataset}"):
        found = advance_visibility(request, find_environment())
    if format_ == "json":
        print_json(found.as_dict())
        return ExitCode.DONE
    echo(f"The history of {dataset} is readable from {text_of(found.visible_from)} on.")
    if not found.raised:
        echo("Nothing was changed: a visibility mark is never lowered.")
    return ExitCode.DONE


def _advance_by_rules(globs: tuple[str, ...], as_of: datetime | None, actor: str, format_: str) -> ExitCode:
    from retention_assets.operations.visibility import AdvanceByRulesRequest, advance_by_rules

    request = AdvanceByRulesRequest(actor=actor, datasets=globs, as_of=as_of)
    with progress("reading the datasets that the policy files name"):
        found = advance_by_rules(request, find_environment())
    if format_ == "json":
        print_json(found.as_dict())
    else:
        from retention_assets.render.readable import advance_table

        print_tables([advance_table([one.as_dict() for one in found.datasets])])
    return finish(
        failed=tuple(found.away.values()), refused=[f"{name} is refused: {why}" for name, why in found.refused.items()]
    )


@examples("retention readable lake/raw.orders", "retention readable lake/raw.orders --at 7d -f json")
@click.command()
@click.argument("dataset")
@click.option("--at", type=InstantParam(), help="The instant that somebody wants to read; the present when left out.")
@click.option("-b", "--branch", help="Only this branch.")
@click.option("--for", "lasting", type=DurationParam(), default="10m", show_default=True, help="How long reading will take.")
@LOG
@AS_OF
@FORMAT
def readable(
    dataset: str,
    at: datetime | None,
    branch: str | None,
    lasting: Duration,
    log_path: Path | None,
    as_of: datetime | None,
    format_: str,
) -> None:
    """Say from when on the history of DATASET may be read, what was current at an instant, and whether that may be read.

    For query engines and catalogs: ask before reading. What is said of an instant stays true until `until`; a policy without
    grace gives no such promise, so ask again afterwards.
    """
    from retention_assets.evaluation.readable import readable as ask

    environment = find_environment(needed=log_path is None)
    with progress(f"reading {dataset}"):
        found = ask(environment, dataset, at, branch=branch, lasting=lasting, log=log_path, as_of=as_of)
    if branch is not None and not found.branches:
        raise _unknown(branch, dataset, read_one(log_path, environment, dataset).transactions)
    if format_ == "json":
        print_json(found.as_dict())
    else:
        from retention_assets.render.readable import readable_tables

        print_tables(readable_tables(found.as_dict()))
        for why in dict.fromkeys(one.why for one in found.branches if one.why):
            echo(f"Why not: {why}")


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
    from retention_assets.evaluation.readable import refuse_hidden
    from retention_assets.evaluation.reader_view import views_at

    environment = find_environment(needed=log_path is None)
    rows = read_one(log_path, environment, dataset).transactions
    seen = views_at(rows, at, branch)
    if branch is not None and not seen:
        raise _unknown(branch, dataset, rows)
    with ledger_to_read(environment) as ledger:
        visible_from = ledger.visibility.of(dataset) if ledger else None
        swept, gone = _swept(ledger, dataset, rows)
    refuse_hidden(dataset, at, visible_from, seen)
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


def _unknown(branch: str, dataset: str, rows: "pa.Table") -> BadInput:
    import pyarrow.compute as pc

    guess = nearest(branch, pc.unique(pc.list_flatten(rows["heads"])).to_pylist())
    remedy = f"Did you mean {guess}?" if guess else None
    return BadInput(Problem(f"branch '{branch}' is not a live branch of {dataset}", remedy=remedy))

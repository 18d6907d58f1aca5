"""Tokens of logs from before they are read, the instants at which reading began, and the evaluations that record both."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.log import faults_of
from retention_assets.ledger.evaluations import EVALUATION_ROWS, VerdictCount, counts_text
from retention_assets.pipeline.file_systems import inside, place_of
from retention_assets.pipeline.stage import Source, read_output, write_part
from retention_assets.stores.logs import ChosenDatasets, tokens_of

TOKENS, BEGUN = "tokens", "begun"
# unreadable logs are retried this often, not at every tick: a run costs seconds, and a broken file may stay for days
_RETRY = timedelta(hours=1)
_UNREAD = r"\b(cannot|can't) be read\b"
_BEGUN = pa.schema([pa.field("store", pa.string()), pa.field("begun_at", pa.timestamp("us", tz="UTC"))])
_TOKENS = pa.schema([pa.field("dataset", pa.string()), pa.field("token", pa.string())])


def write_tokens(chosen: Iterable[ChosenDatasets], folder: str, known: Mapping[str, str] | None = None) -> None:
    """Ask for tokens and write them into the folder of the logs, with those already `known`.

    Before logs are read, so that a change in between has another token at the next look. A store that can't say has none.
    """
    tokens = dict(known or {})
    for share in chosen:
        with suppress(Exception):
            tokens.update(tokens_of(share.store, share.datasets))
    _write(pa.table([list(tokens), list(tokens.values())], schema=_TOKENS), inside(folder, TOKENS))


def write_begun(begun: Mapping[str, datetime], folder: str) -> None:
    """Write by store the instant at which its reading began, or its listing was made."""
    _write(pa.table([list(begun), list(begun.values())], schema=_BEGUN), inside(folder, BEGUN))


def _write(table: pa.Table, folder: str) -> None:
    files, root = place_of(folder)
    files.create_dir(root, recursive=True)
    write_part(table, f"{root}/part.parquet", files)


def read_begun(sources: Sequence[Source]) -> datetime:
    """Return the earliest instant of these logs."""
    instants: list[datetime] = []
    for source in sources:
        instants += read_output(source.folder, BEGUN)["begun_at"].to_pylist()
    return min(instants)


def read_tokens(sources: Sequence[Source]) -> dict[str, str]:
    """Return the tokens of datasets when they were read, as far as noted."""
    tokens: dict[str, str] = {}
    for source in sources:
        rows = read_output(source.folder, TOKENS, None if source.datasets is None else sorted(source.datasets))
        tokens.update(zip(rows["dataset"].to_pylist(), rows["token"].to_pylist(), strict=True))
    return tokens


def with_findings(evaluations: pa.Table, datasets: pa.Table, counts: pa.Table) -> pa.Table:
    """Add to evaluations, in the order of `datasets`, the verdicts or the refusal of each dataset."""
    verdicts: dict[str, list[VerdictCount]] = {}
    for row in counts.select(["dataset", "verdict", "policy", "transactions", "bytes"]).to_pylist():
        count = VerdictCount(row["verdict"], row["policy"] or "", row["transactions"], int(row["bytes"] or 0))
        verdicts.setdefault(row["dataset"], []).append(count)
    texts = [counts_text(verdicts.get(name, ())) for name in datasets["dataset"].to_pylist()]
    faults = faults_of(datasets)
    why = pa.array([faults.get(name) for name in datasets["dataset"].to_pylist()], pa.string())
    return evaluations.append_column("counts", pa.array(texts, pa.string())).append_column("fault", why)


def evaluations_of(
    datasets: pa.Table, tokens: dict[str, str], rules: Sequence[str], next_looks: pa.Table, as_of: datetime
) -> pa.Table:
    """Make the evaluations of datasets (`EVALUATION_ROWS`), in their order; `rules` are digests in the same order."""
    names = datasets["dataset"]
    at = pc.index_in(names, value_set=next_looks["dataset"].combine_chunks())
    then = next_looks["next_look"].take(at)
    now = pa.scalar(as_of, EVALUATION_ROWS.field("next_look").type)
    # where marking changes the verdicts, the next look is at once
    then = pc.if_else(pc.fill_null(next_looks["again"].take(at), False), now, then)
    unread = pc.fill_null(pc.match_substring_regex(datasets["fault"], _UNREAD), False)
    then = pc.if_else(unread, pa.scalar(as_of + _RETRY, now.type), then)
    columns = {
        "dataset": names,
        "token": pa.array([tokens.get(name) for name in names.to_pylist()], pa.string()),
        "rules": pa.array(rules, pa.string()),
        "looked_at": pa.array([as_of] * len(names), now.type),
        "next_look": then,
    }
    return pa.table(columns, schema=EVALUATION_ROWS)

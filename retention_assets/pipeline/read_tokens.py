"""Tokens of logs on their way: from before a log is read to the transaction that marks.

Belongs here: asking for tokens before anything is read, keeping them beside what was read, and the rows of evaluations that
they become. And since when what was read is known: before anything that was deleted later.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.log import faults_of
from retention_assets.ledger.evaluations import EVALUATION_ROWS, VerdictCount, counts_text
from retention_assets.pipeline.file_systems import inside, place_of
from retention_assets.pipeline.stage import Source, read_output, write_part
from retention_assets.stores.realms import tokens_of

if TYPE_CHECKING:
    from retention_assets.stores.logs import ChosenDatasets

TOKENS, BEGUN = "tokens", "begun"
# What could not be read is tried again, not at every tick: a run costs seconds, and a broken file may stay for days.
_RETRY = timedelta(hours=1)
_UNREAD = r"\b(cannot|can't) be read\b"
_BEGUN = pa.schema([pa.field("store", pa.string()), pa.field("begun_at", pa.timestamp("us", tz="UTC"))])
_TOKENS = pa.schema([pa.field("dataset", pa.string()), pa.field("token", pa.string())])


def write_tokens(chosen: Iterable["ChosenDatasets"], folder: str, known: Mapping[str, str] | None = None) -> None:
    """Ask what each log is, and write it down beside where the logs will be, with those that are `known` already.

    Before they are read: what changes in between has another token at the next look. A store that can't say has none.
    """
    tokens = dict(known or {})
    for one in chosen:
        with suppress(Exception):
            tokens.update(tokens_of(one.store, one.datasets))
    files, root = place_of(inside(folder, TOKENS))
    files.create_dir(root, recursive=True)
    write_part(pa.table([list(tokens), list(tokens.values())], schema=_TOKENS), f"{root}/part.parquet", files)


def write_begun(begun: Mapping[str, datetime], folder: str) -> None:
    """Write down for each store since when what is read of it is known: when reading it began, or when its listing was made."""
    files, root = place_of(inside(folder, BEGUN))
    files.create_dir(root, recursive=True)
    write_part(pa.table([list(begun), list(begun.values())], schema=_BEGUN), f"{root}/part.parquet", files)


def read_begun(sources: Sequence[Source]) -> datetime | None:
    """Since when all of some logs is known; none where an earlier release read any of it, and did not write that down."""
    found = []
    for source in sources:
        try:
            found += read_output(source.folder, BEGUN)["begun_at"].to_pylist()
        except FileNotFoundError:
            return None
    return min(found, default=None)


def read_tokens(sources: Sequence[Source]) -> dict[str, str]:
    """By dataset what its log was when it was read, as far as that was written down."""
    tokens: dict[str, str] = {}
    for source in sources:
        # A log that an earlier release read has none.
        with suppress(FileNotFoundError):
            rows = read_output(source.folder, TOKENS, None if source.datasets is None else sorted(source.datasets))
            tokens.update(zip(rows["dataset"].to_pylist(), rows["token"].to_pylist(), strict=True))
    return tokens


def with_findings(evaluations: pa.Table, datasets: pa.Table, counts: pa.Table) -> pa.Table:
    """Evaluations with what was found of each dataset, in the order of `datasets`: its verdicts, or why it was refused."""
    found: dict[str, list[VerdictCount]] = {}
    for row in counts.select(["dataset", "verdict", "policy", "transactions", "bytes"]).to_pylist():
        one = VerdictCount(row["verdict"], row["policy"] or "", row["transactions"], int(row["bytes"] or 0))
        found.setdefault(row["dataset"], []).append(one)
    texts = [counts_text(found.get(name, ())) for name in datasets["dataset"].to_pylist()]
    faults = faults_of(datasets)
    why = pa.array([faults.get(name) for name in datasets["dataset"].to_pylist()], pa.string())
    return evaluations.append_column("counts", pa.array(texts, pa.string())).append_column("fault", why)


def evaluations_of(
    datasets: pa.Table, tokens: dict[str, str], rules: Sequence[str], next_looks: pa.Table, as_of: datetime
) -> pa.Table:
    """The evaluations of some datasets (`EVALUATION_ROWS`), in their order; `rules` is in the same order, as digests."""
    names = datasets["dataset"]
    at = pc.index_in(names, value_set=next_looks["dataset"].combine_chunks())
    then = next_looks["next_look"].take(at)
    now = pa.scalar(as_of, EVALUATION_ROWS.field("next_look").type)
    # What is marked by now changes the answer: at once.
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

"""Data that transactions share, on random small worlds, against the sentences of the design in plain loops over pieces.

Belongs here: who is NEEDED, by whom, and how limits count it. A world is two or three tables of versions; a piece of data is the
set of versions that have it.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.frames import candidate_marks, columns_for
from retention_assets.policy import Policy
from retention_assets_tests.histories import AS_OF, History, history, log_of
from retention_assets_tests.policies import keepers_of
from retention_assets_tests.rounds import rounds

NAMES = [f"V{number}" for number in range(6)]


@dataclass
class Table:
    """Versions V0, V1 …; of pieces the versions that have them; who marked, swept, holds or tags which version."""

    dataset: str
    size: int
    shares: bool
    deletes: set[int]
    pieces: list[set[int]] = field(default_factory=list)
    claimed: set[int] = field(default_factory=set)
    incomplete: set[int] = field(default_factory=set)
    marked: set[int] = field(default_factory=set)
    # also those that are another life of what was swept
    swept: set[int] = field(default_factory=set)
    other_life: set[int] = field(default_factory=set)
    guarded: set[int] = field(default_factory=set)
    selected: set[int] = field(default_factory=set)
    limit: int | None = None

    @property
    def versions(self) -> list[int]:
        """All but those that only remove: they own no data, and are spared with the version before."""
        return [version for version in range(self.size) if version not in self.deletes]

    def pieces_of(self, version: int) -> list[set[int]]:
        return [piece for piece in self.pieces if version in piece]

    def judge(self) -> tuple[set[int], set[int], set[int]]:
        """Versions that are marked, those that are NEEDED, and those that need their data."""
        going, swept = self.selected - self.guarded, self.swept - self.other_life
        if not self.shares:
            return (set() if self._is_over(going - self.marked - swept) else going), set(), set()
        kept = self._kept(going, swept)
        frees = {version for version in going if any(not piece & kept for piece in self.pieces_of(version))}
        needed = going - kept - frees
        if self._is_over(going - needed - self.marked - swept):
            return set(), needed, self._kept(needed, swept)
        return going - needed, needed, kept

    def _is_over(self, fresh: set[int]) -> bool:
        return self.limit is not None and len(fresh) > self.limit

    def _kept(self, going: set[int], swept: set[int]) -> set[int]:
        stays = set(range(self.size)) - going - self.marked - swept
        return (stays | self.guarded | (swept - self.incomplete)) - self.deletes


def _draw(rng: random.Random, dataset: str) -> tuple[Table, History]:
    size, shares = rng.randint(1, len(NAMES)), rng.random() < 0.85
    table = Table(dataset, size, shares, {v for v in range(1, size - 1) if rng.random() < 0.15})
    kinds = ["DELETE" if version in table.deletes else "SNAPSHOT" for version in range(size)]
    steps = " - ".join(f"V{version}:{kind}@{50 - version}d" for version, kind in enumerate(kinds))
    attributes = {"data.shared": "version"} if shares else {}
    tagged = [version for version in table.versions if rng.random() < 0.1]
    tags = "".join(f" | #t{version}=V{version}" for version in tagged)
    drawn = history(f"main: {steps}{tags}", dataset=dataset, attributes=attributes | {"versions.empty": "kept"})
    for version, row in enumerate(drawn.transactions if shares else ()):
        lengths = [rng.choice((1, 1, 2, 3, "*")) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        lengths = [] if version in table.deletes else lengths
        for length in lengths:
            table.pieces.append({v for v in range(size) if version <= v and (length == "*" or v < version + int(length))})
        if lengths:
            row["attributes"]["data.lives"] = ",".join(map(str, lengths))
        if rng.random() < 0.2:
            table.claimed.add(version)
            row["attributes"]["data.claimed"] = f"clone lake/c{version}"
        if rng.random() < 0.3:
            table.incomplete.add(version)
            row["attributes"]["data.missing"] = "1"
    for version in range(size):
        state = rng.choice(("", "", "", "marked", "swept", "other life"))
        table.marked |= {version} if state == "marked" else set()
        table.swept |= {version} if state in ("swept", "other life") else set()
        table.other_life |= {version} if state == "other life" else set()
    # the newest version is the latest view
    table.guarded = {size - 1, *tagged}
    return table, drawn


def _known(worlds: Sequence[tuple[Table, History]]) -> pa.Table:
    rows = [
        {
            "dataset": table.dataset,
            "transaction": NAMES[version],
            "opened_at": _time_of(drawn, version, "opened_at") - timedelta(days=version in table.other_life),
            "closed_at": _time_of(drawn, version, "closed_at"),
            "swept": version in table.swept,
        }
        for table, drawn in worlds
        for version in sorted(table.marked | table.swept)
    ]
    times = pa.timestamp("us", "UTC")
    columns = {"dataset": pa.string(), "transaction": pa.string(), "opened_at": times, "closed_at": times, "swept": pa.bool_()}
    return pa.Table.from_pylist(rows, pa.schema(list(columns.items())))


def _time_of(drawn: History, version: int, column: str) -> datetime:
    return datetime.fromisoformat(drawn.transactions[version][column])


def _policy(rng: random.Random, name: str, tables: Sequence[Table]) -> Policy:
    chosen = [name for name in NAMES if rng.random() < 0.7] or NAMES[:1]
    limit = rng.choice((None, None, 1, 2))
    for table in tables:
        table.selected, table.limit = {version for version in table.versions if NAMES[version] in chosen}, limit
    where = "transaction IN ({})".format(", ".join(f"'{name}'" for name in chosen))
    shape: dict[str, object] = {
        "name": name,
        "datasets": {"include": [table.dataset for table in tables]},
        "select": {"where": where},
    }
    return Policy.model_validate(shape | ({} if limit is None else {"limits": {"transactions": limit}}))


def _worlds(seed: int) -> Iterator[tuple[list[Table], Mapping[tuple[str, str], dict[str, Any]]]]:
    rng = random.Random(seed)
    for _ in range(60):
        worlds = [_draw(rng, f"lake/d{number}") for number in range(rng.randint(1, 3))]
        tables = [table for table, _ in worlds]
        border = rng.randint(1, len(tables))
        parts = [part for part in (tables[:border], tables[border:]) if part]
        policies = [_policy(rng, f"p{number}", part) for number, part in enumerate(parts)]
        held = [(table, version) for table in tables for version in table.versions if rng.random() < 0.08]
        for table, version in held:
            table.guarded.add(version)
        shapes = [{"datasets": [table.dataset], "transactions": [NAMES[version]]} for table, version in held]
        log = log_of([drawn for _, drawn in worlds])
        rows = log.transactions.select(columns_for(policies, log.datasets))
        judged = candidate_marks(rows, log.datasets, policies, keepers_of(shapes), AS_OF, _known(worlds))
        yield tables, {(row["dataset"], row["transaction"]): row for row in judged.to_pylist()}


@pytest.mark.parametrize("seed", range(rounds(3)))
def test_what_loses_nothing_is_needed_by_who_has_all_of_its_data(seed: int) -> None:
    seen = {"mark": 0, "needed": 0, "pair": 0}
    for tables, rows in _worlds(seed):
        for table in tables:
            marks, needed, kept = table.judge()
            ours = {version: rows[table.dataset, NAMES[version]] for version in table.versions}
            because = {
                version: {reason["code"]: reason["witness"] for reason in row["reasons"]} for version, row in ours.items()
            }
            assert {version for version, row in ours.items() if row["verdict"] == "mark"} == marks, table
            assert {version for version, codes in because.items() if "NEEDED" in codes} == needed, table
            for version in sorted(needed):
                text = because[version]["NEEDED"]
                holders = {int(name) for name in re.findall(r"version V(\d+)", text)}
                assert holders <= kept, (text, table)
                assert all(piece & holders for piece in table.pieces_of(version)), (text, table)
                assert (f"clone lake/c{version} " in text) == (version in table.claimed), (text, table)
                assert ("it has no files" in text) == (not holders and version not in table.claimed), (text, table)
                assert bool(holders) == bool(table.pieces_of(version)), (text, table)
                seen["pair"] += len(holders) == 2
            seen["mark"] += len(marks)
            seen["needed"] += len(needed)
    assert all(seen.values()), seen

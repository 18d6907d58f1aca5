"""The `delta` store at size: a long log, many tables, and a sweep beside deltalake's own vacuum.

Tables are laid down after the protocol, without data, which nobody reads. deltalake finds the files of one version at a time; its
vacuum knows a window and no versions, so it meets the store where only the newest version stays.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from benchmarks.measures import Contender, timed
from retention_assets.outcomes import Outcome
from retention_assets.stores.delta import DeltaSettings
from retention_assets.stores.delta.store import DeltaStore
from retention_assets.stores.protocol import Target

if TYPE_CHECKING:
    from benchmarks.sections import Bench

# files of a commit, commits for which each lives, retained versions
_FILES, _LIFE, _RETAINED, _THREADS = 40, 10, 100, 8
_SCHEMA = r"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}"
_FIRST = '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n{"metaData":{"id":"%s","format":{"provider":"parquet","options":{}},'
_FIRST += f'"schemaString":"{_SCHEMA}","partitionColumns":[],"configuration":{{}}}}}}'
_STATS = r"{\"numRecords\":1000,\"minValues\":{\"id\":1,\"at\":\"2026-01-01\"},\"maxValues\":{\"id\":9,\"at\":\"2026-01-02\"}}"
_NAME = "part-%05d-%03d-c000.snappy.parquet"
_REST = '"partitionValues":{},"size":0,"dataChange":true'
_ADD = f'{{"add":{{"path":"{_NAME}",{_REST},"modificationTime":0,"stats":"{_STATS}"}}}}'
_REMOVE = f'{{"remove":{{"path":"{_NAME}",{_REST},"deletionTimestamp":0}}}}'


def write(folder: Path, commits: int, files: int = 1, life: int = 1) -> Path:
    """A table of so many commits: each adds files, and removes those that have lived long enough."""
    (folder / "_delta_log").mkdir(parents=True)
    for number in range(commits):
        lines = [f'{{"commitInfo":{{"timestamp":{number}}}}}', *(_ADD % (number, file) for file in range(files))]
        lines += [_REMOVE % (number - life, file) for file in range(files) if number >= life]
        lines += [] if number else [_FIRST % folder.name]
        (folder / "_delta_log" / f"{number:020}.json").write_text("\n".join(lines))
    return folder


def _store(folder: Path) -> DeltaStore:
    return DeltaStore(DeltaSettings.model_validate({"name": "lh", "tables": [f"{folder}/*"]}))


def _only(call: Callable[[], object]) -> Contender:
    def contender() -> None:
        call()

    return contender


def delta(bench: "Bench") -> None:
    rows, folder = bench.sizes.rows, bench.folder / "delta"
    _long(bench, folder / "long", max(rows // 2_000, 20))
    _many(bench, folder / "many", max(rows // 10_000, 4))
    _overwritten(bench, folder / "overwritten", max(rows // 10_000, 20))
    bench.clear("delta")


def _long(bench: "Bench", above: Path, commits: int) -> None:
    folder, store, planned = write(above / "t", commits, _FILES, _LIFE), _store(above), list[str]()
    newest, every = _only(lambda: DeltaTable(folder)), _only(lambda: _store(above).read(["lh/t"]))
    contenders = {"deltalake, the newest version alone": newest, "store, every version": every}
    bench.meet("delta", f"read a log of {commits:,} commits, {commits * _FILES:,} files", contenders, commits)
    kept = range(commits - 1, -1, -max(commits // _RETAINED, 2))
    going = [number for number in range(commits) if number not in kept]
    store.read(["lh/t"])

    def plan() -> None:
        names = list(map(str, going))
        store.prepare("lh/t", names)
        planned[:] = store.check_needs("lh/t", names, list(map(str, kept)))

    find = _only(lambda: [DeltaTable(folder, version=number).file_uris() for number in kept[:: len(kept) // 5]])
    amounts = {"deltalake, files of each": 5, "store": len(kept)}
    bench.meet("delta", f"plan with {len(kept)} retained", dict(zip(amounts, (find, plan), strict=True)), amounts, 1)
    lives = {added for number in kept for added in range(number - _LIFE + 1, number + 1)}
    needed = [{*range(max(0, number - _LIFE + 1), number + 1)} <= lives for number in going]
    different = sum((str(number) in planned) != is_needed for number, is_needed in zip(going, needed, strict=True))
    bench.report.agree("second reader and lives of files", len(going), different)


def _many(bench: "Bench", above: Path, tables: int) -> None:
    folders, store = [write(above / f"t{number:05}", 10) for number in range(tables)], _store(above)
    names, threads = store.datasets(), ThreadPoolExecutor(_THREADS)
    contenders = {
        "deltalake, opened in threads": _only(lambda: [*threads.map(DeltaTable, folders)]),
        "store, list": _only(store.datasets),
        "store, read": _only(lambda: _store(above).read(names)),
        "store, tokens": _only(lambda: store.tokens(names)),
    }
    bench.meet("delta", f"{tables:,} tables of 10 versions", contenders, tables)


def _overwritten(bench: "Bench", above: Path, versions: int) -> None:
    different = list[int]()

    def on_a_new_table(run: Callable[[], None]) -> float:
        rmtree(above, ignore_errors=True)
        files = list(map(write(above / "t", versions).joinpath, (_NAME % (number, 0) for number in range(versions))))
        list(map(Path.touch, files))
        seconds = timed(run)
        different.append(len({*above.rglob("*.parquet")} ^ {files[-1]}))
        return seconds

    def sweep() -> None:
        store, going = _store(above), [str(number) for number in range(versions - 1)]
        targets = [Target(prepared.transaction, prepared.note) for prepared in store.prepare("lh/t", going)]
        assert all(answer.outcome is Outcome.DELETED for answer in store.sweep("lh/t", targets, _THREADS))

    def vacuum() -> None:
        DeltaTable(above / "t").vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    contenders = {"deltalake, vacuum": partial(on_a_new_table, vacuum), "store, plan and sweep": partial(on_a_new_table, sweep)}
    bench.meet("delta", f"all but the newest of {versions:,} overwrites", contenders, versions - 1)
    bench.report.agree("store and vacuum", versions, sum(different))

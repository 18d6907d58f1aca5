"""A campaign against whole cycles over objects: scan, marks, second look and deletion in programs that are killed anywhere.

Belongs here: one game on one store of objects and one ledger, who needs which objects while it goes on, and what must be true
after each run. A run is Dagster's job `cycle` with a Spark that is none. Who plays, and how many games: test_campaign.py.

What no run may take is said before it (`protected`), from the objects and references as the game itself wrote them: ten lines of
Python sets that know nothing of scans. What must be gone in the end is said the same way.
"""

import json
import multiprocessing
import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3fs import S3FileSystem  # type: ignore[import-untyped]
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.pool import NullPool

from retention_assets import clock
from retention_assets.policy import Hold
from retention_assets.settings import load_settings
from retention_assets.settings.sections import ClockSettings
from retention_assets_tests.clocks import CLOCK, open_simulated
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.ledger.states import change_leases
from retention_assets_tests.stores.objects.blobs import Blobs, run_here
from retention_assets_tests.stores.objects.environments import Objects, write_lines
from retention_assets_tests.stores.records.environments import DRIVERS
from retention_assets_tests.sweep.campaign import Fate
from retention_assets_tests.warm import keep_warm, share_jobs

REALMS = ("r0", "r1", "r2")
OBJECTS = 7
OLD, GRACE = timedelta(days=30), timedelta(days=7)
POLICY = (
    "policies: [{name: p, datasets: {include: ['*']}, select: {unreferenced: true, older_than: 30d}, grace: 7d,"
    " sweep: {every: 0s, batch: 3, parallelism: 2}}]\n"
)
# A run has some hundred acts; so that some come to their end, it may be killed after its last.
_ACTS = 700
# In which part of a run an act is, by the module that it is called from: the innermost of these counts.
_PARTS = {
    "retention_assets.stores.objects.delete": "deletion",
    "retention_assets.stores.objects.look": "second look",
    "retention_assets.stores.objects.scan": "scan",
    "retention_assets.pipeline.scans": "scan",
    "retention_assets.sweep.": "sweep",
    "retention_assets.dagster.assets": "mark",
}
_OPEN = ("MARKED", "SWEEPING")


def part_of_run() -> str:
    frame: Any = sys._getframe()
    while frame:
        name = str(frame.f_globals.get("__name__"))
        for prefix, part in _PARTS.items():
            if name.startswith(prefix):
                return part
        frame = frame.f_back
    return "between"


class Runs:
    """Where runs are forked from, each into a program of its own: one that has done a run, so that none has to load anything."""

    def __init__(self, folder: Path) -> None:
        (folder / "warm").mkdir(mode=0o700)
        self._calls, theirs = multiprocessing.Pipe()
        self._program = multiprocessing.get_context("forkserver").Process(target=_fork_runs, args=(theirs, folder), daemon=True)
        self._program.start()
        theirs.close()

    def begin(self, *given: Any) -> tuple[str, str, int]:
        """Begin a run: "stopped" or "ended", in which part of it, and its exit code."""
        self._calls.send(given)
        said: tuple[str, str, int] = self._calls.recv()
        return said

    def go_on(self) -> tuple[str, str, int]:
        return self.begin()

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *fault: object) -> None:
        self._calls.close()
        self._program.join()


def _fork_runs(calls: Connection, folder: Path) -> None:
    os.environ.pop("DAGSTER_HOME", None)
    with pytest.MonkeyPatch.context() as patch:
        share_jobs(patch)
        keep_warm(patch)
        run_here(Blobs(folder / "warm").has("a").refers("a").settings, AS_OF)
        running, said = 0, 0
        while True:
            try:
                given = calls.recv()
            except EOFError:
                return
            if given:
                said, saying = os.pipe()
                running = os.fork()
                if not running:
                    with _ending_here():
                        fate, at, as_of, environ = given
                        run(fate, at, as_of, environ, saying)
                os.close(saying)
            else:
                os.kill(running, signal.SIGCONT)
            _, status = os.waitpid(running, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                calls.send(("stopped", os.read(said, 20).decode(), 0))
            else:
                calls.send(("ended", os.read(said, 20).decode(), os.waitstatus_to_exitcode(status)))
                os.close(said)


@contextmanager
def _ending_here() -> Iterator[None]:
    """A forked program ends here, whatever happens in it, and does nothing of what its parent would do in the end."""
    try:
        yield
        os._exit(0)
    except BaseException as fault:  # noqa: BLE001 - there is nobody above
        sys.stderr.write(f"{type(fault).__name__}: {fault}\n")
        sys.stderr.flush()
        os._exit(1)


def run(fate: Fate, folder: Path, as_of: datetime, environ: dict[str, str], saying: int) -> None:
    """A run, in a program of its own that may kill or stop itself before an act, and says in which part of the run that is."""
    os.environ.update(environ)
    left, once = [fate.act], threading.Lock()

    def act(deletes: bool = False) -> None:
        if fate.what == "none" or (fate.deletion and not deletes):
            return
        with once:
            left[0] -= 1
            if left[0] != -1:
                return
            if fate.what == "jump":
                clocks: Any = vars(clock)["time"]
                shifted = SimpleNamespace(time=lambda: clocks.time() + fate.jump, clock_gettime=clocks.clock_gettime)
                vars(clock)["time"] = shifted
                return
            os.write(saying, part_of_run().encode())
            os.kill(os.getpid(), signal.SIGKILL if fate.what == "kill" else signal.SIGSTOP)

    def seen(name: str, arguments: tuple[Any, ...]) -> None:
        # Whatever is deleted by name below a descriptor is an object; what else is removed is the warehouse's.
        if name == "os.remove":
            act(deletes=arguments[1] != -1)
        elif name in ("os.rename", "os.scandir") or (name == "open" and str(arguments[0]).startswith(str(folder))):
            act()

    def statement(connection: Any, _: Any, said: str, *__: Any) -> None:
        # Dagster's own are in its memory.
        if connection.engine.url.database not in (None, "", ":memory:"):
            act(deletes=said.startswith("DELETE FROM objs"))

    def request(call: Any) -> Any:
        def counted(self: Any, name: str, *arguments: Any, **named: Any) -> Any:
            act(deletes=name.startswith("delete_object"))
            return call(self, name, *arguments, **named)

        return counted

    event.listen(Engine, "before_cursor_execute", statement)
    event.listen(Engine, "commit", lambda connection: statement(connection, None, ""))
    S3FileSystem.call_s3 = request(S3FileSystem.call_s3)
    sys.addaudithook(seen)
    # A file that says so may have no store in a bucket, for it may be anybody's.
    settings = load_settings(folder / "retention.yaml").model_copy(update={"clock": ClockSettings.model_validate(CLOCK)})
    troubles = run_here(settings, as_of).troubles
    # By a clock that jumped a run may be refused.
    if troubles and fate.what != "jump":
        raise RuntimeError(str(troubles))


@dataclass(frozen=True)
class Reference:
    """That somebody needs an object: by one of the sources, or over an edge from another object."""

    key: str
    source: str


@dataclass
class ObjectGame:
    """One store of objects, and what people and accidents did to it so far."""

    objects: Objects
    url: str
    folder: Path
    random: random.Random
    # Where a source of references is a table.
    database: str
    runs: Runs
    tally: Counter[str] = field(default_factory=Counter)
    environ: dict[str, str] = field(default_factory=dict)
    # What the game wrote: the bytes of each object, when it was made, and since when in the game it is this very object.
    written: dict[str, bytes] = field(default_factory=dict)
    made: dict[str, datetime] = field(default_factory=dict)
    since: dict[str, datetime] = field(default_factory=dict)
    references: set[Reference] = field(default_factory=set)
    edges: set[tuple[str, str]] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    as_of: datetime = AS_OF
    # Bytes that went in all; of what a run deleted that could not write it down, by key; and of what of that nobody can say
    # whose doing it was, for it was needed, or made again, before the next run came to it.
    gone: int = 0
    unsettled: dict[str, int] = field(default_factory=dict)
    unsure: int = 0

    def __post_init__(self) -> None:
        (self.folder / "policies").mkdir(parents=True)
        self.folder.chmod(0o700)
        (self.folder / "policies" / "p.yaml").write_text(POLICY)
        tables = create_engine(
            make_url(self.database).set(drivername=DRIVERS[make_url(self.database).get_backend_name()]), poolclass=NullPool
        )
        self.tables = tables
        with tables.begin() as connection:
            connection.execute(text("CREATE TABLE needs (object VARCHAR(60), tenant VARCHAR(9))"))
        refs = self.objects.folder / "refs"
        references = [
            {"lines": str(refs / "*.jsonl")},
            {"parquet": str(refs / "*.parquet"), "key": "object", "realm": "realm"},
            {"sql": self.database.replace("$", "$$"), "table": "needs", "key": "object", "realm": "tenant"},
        ]
        store = self.objects.settings(
            realm="{0}", dataset="{realm}", references=references, edges=[{"lines": str(refs / "edges" / "*.jsonl")}],
            brakes={"empty_source": "allow", "references_shrink": 1, "unreferenced_fraction": 1, "unresolved_references": 1},
        )  # fmt: skip
        settings = {"ledger": self.url.replace("$", "$$"), "warehouse": "warehouse", "policies": "policies", "stores": [store]}
        # JSON is YAML.
        (self.folder / "retention.yaml").write_text(json.dumps(settings))
        keys = [f"{realm}/d{number % 2}/o{number}" for realm in REALMS for number in range(OBJECTS)]
        for key in keys:
            self._make(key)
        # The last realm is of nobody at first: no source speaks for it.
        self.references = {self._reference(key) for key in self.random.sample(keys[:-OBJECTS], OBJECTS)}
        self.edges = {self._edge(keys) for _ in range(4)}
        self._write_references()
        self.ledger = open_simulated(self.url)
        # A run that finds no dataset at all is refused, so one object stays for ever.
        self._place_hold(keys[0])

    def play(self) -> None:
        """Runs with accidents, and then as many without any as it takes."""
        self._run(Fate("none"), timedelta(hours=1))
        for _ in range(self.random.randint(4, 10)):
            self._change()
            self.random.choice(
                [self._kill, self._kill, self._kill, self._kill_deleting, self._kill_deleting, self._stop, self._jump]
            )()
        rest = self.as_of
        for _ in range(4):
            self._run(Fate("none"), GRACE + timedelta(days=1))
        self.check_end(rest)
        self.ledger.close()
        self.tables.dispose()

    # --- what happens between runs ------------------------------------------------------------------------------------

    def _change(self) -> None:
        for _ in range(self.random.randint(0, 3)):
            change: Callable[[], object] = self.random.choice(
                [self._refer, self._refer, self._forget, self._forget, self._rewrite, self._make_one, self._hold, self._purge]
            )
            change()
        self._write_references()

    def _refer(self, source: str | None = None) -> None:
        if self.written:
            reference = self._reference(self.random.choice(sorted(self.written)))
            self.references.add(reference if source is None else Reference(reference.key, source))

    def _forget(self) -> None:
        if self.references:
            self.references.remove(self.random.choice(sorted(self.references, key=str)))
        if self.edges and self.random.random() < 0.3:
            self.edges.remove(self.random.choice(sorted(self.edges)))

    def _rewrite(self) -> None:
        """Another object under a key, old or new, there or swept."""
        if keys := [key for key in sorted(self.since) if self._realm_status(key) != "PURGED"]:
            self._make(self.random.choice(keys))

    def _make_one(self) -> None:
        realm = self.random.choice(REALMS)
        if self._realm_status(realm) != "PURGED":
            self._make(f"{realm}/n/o{len(self.since)}")

    def _hold(self) -> None:
        if (free := sorted(self.written.keys() - self.held)) and len(self.held) < 5:
            self._place_hold(self.random.choice(free))

    def _place_hold(self, key: str) -> None:
        scope = {"datasets": {"include": ["*"]}, "transactions": [key]}
        hold = {"name": f"h{len(self.held)}", **scope, "reason": "r", "owner": "o"}
        self.ledger.holds.place(Hold.model_validate(hold), "ann")
        self.held.add(key)

    def _purge(self) -> None:
        """A tenant leaves, or comes back while there is something left of it."""
        realm = self.random.choice(REALMS)
        arrows = {"ACTIVE": "PURGING", "PURGING": "ACTIVE"}
        if self.random.random() < 0.4 and (then := arrows.get(self._realm_status(realm))):
            self.ledger.realms.change(realm, then, "ann", "r")

    def _make(self, key: str) -> None:
        age = timedelta(days=self.random.choice([3, 25, 40, 90]), seconds=self.random.randrange(80_000))
        content, at = b"x" * self.random.randint(1, 40), self.as_of - age
        self.objects.put(key, content, at)
        self.written[key], self.made[key], self.since[key] = content, at, self.as_of

    def _reference(self, key: str) -> Reference:
        return Reference(key, self.random.choice(["lines", "parquet", "sql"]))

    def _edge(self, keys: list[str]) -> tuple[str, str]:
        realm = self.random.choice(REALMS)
        one, other = self.random.sample([key for key in keys if key.startswith(realm)], 2)
        return one, other

    def _write_references(self) -> None:
        refs = self.objects.folder / "refs"
        by = {
            source: sorted(one.key for one in self.references if one.source == source) for source in ("lines", "parquet", "sql")
        }
        write_lines(refs / "a.jsonl", *({"object": key, "realm": _realm_of(key)} for key in by["lines"]))
        edges = ({"from": one, "to": other, "realm": _realm_of(one)} for one, other in sorted(self.edges))
        write_lines(refs / "edges" / "e.jsonl", *edges)
        table = pa.table(
            {"object": pa.array(by["parquet"], pa.string()), "realm": pa.array(map(_realm_of, by["parquet"]), pa.string())}
        )
        pq.write_table(table, refs / "new")
        (refs / "new").replace(refs / "a.parquet")
        with self.tables.begin() as connection:
            connection.execute(text("DELETE FROM needs"))
            for key in by["sql"]:
                connection.execute(text("INSERT INTO needs VALUES (:key, :realm)"), {"key": key, "realm": _realm_of(key)})

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        self._run(Fate("kill", self.random.randrange(_ACTS)))

    def _kill_deleting(self) -> None:
        """Before an object goes, or with some gone and nothing written down of them."""
        self._run(Fate("kill", self.random.randrange(6), deletion=True))

    def _jump(self) -> None:
        self._run(Fate("jump", self.random.randrange(_ACTS), self.random.choice([-86_400.0, -5.0, 5.0, 3_600.0, 86_400.0])))

    def _stop(self) -> None:
        self._run(Fate("stop", self.random.randrange(_ACTS // 2)))

    def _run(self, fate: Fate, later: timedelta | None = None) -> None:
        """A run that many days after the one before. What was protected before it must be there after it."""
        days = self.random.choice([0.1, 1, 3, 8, 8, 15]) if later is None else 0
        self.as_of += later if later is not None else timedelta(days=days)
        protected = self.protected()
        doubtful = self.doubtful(fate)
        what, part, code = self.runs.begin(fate, self.folder, self.as_of, self.environ)
        if what == "stopped":
            self.tally[f"stopped: {part}"] += 1
            # Of the lines, which are written at once.
            self._refer("lines")
            refs = [
                {"object": one.key, "realm": _realm_of(one.key)}
                for one in sorted(self.references, key=str)
                if one.source == "lines"
            ]
            write_lines(self.objects.folder / "refs" / "a.jsonl", *refs)
            doubtful |= self.doubtful(fate)
            if part in ("scan", "mark"):
                # It has everything looked at once more before it deletes: by then the reference is there.
                protected |= self.protected()
            _, _, code = self.runs.go_on()
        assert code in (0, -signal.SIGKILL), code
        killed = bool(code)
        self.tally[f"killed: {part}" if killed else "came to an end"] += 1
        self.tally["killed"] += killed
        self.tally["jumped"] += fate.what == "jump"
        if killed:
            # Its program is dead: a real one would wait until they are over.
            change_leases(self.ledger, "UPDATE leases SET expires_at = taken_at")
        self.check(protected, doubtful, ended=not killed and fate.what != "jump")

    # --- what must be true --------------------------------------------------------------------------------------------

    def protected(self) -> set[str]:
        return self.kept(self.written)

    def doubtful(self, fate: Fate) -> set[str]:
        """Of what a run deleted that could not write it down, what may be needed, or another object, as the next one comes to it."""
        mine = set(self.unsettled)
        # Of which realm something was that no log has any more nobody knows: it may have been one that is PURGED.
        purged = any(self._realm_status(realm) == "PURGED" for realm in REALMS)
        return mine if fate.what == "jump" or purged else mine & self.written.keys() | self.kept(mine)

    def kept(self, keys: Iterable[str]) -> set[str]:
        """Of some keys those of which the next run has no reason to delete anything."""
        needed = self.needed()
        spoken_for = self.spoken_for()
        marks = {row["transaction"]: row for row in self._marks()}
        found = set()
        for key in keys:
            realm, mark = _realm_of(key), marks.get(key)
            status = self._realm_status(realm)
            # The grace begins anew with an object that is made under the key again.
            is_due = mark and mark["status"] in _OPEN and self.since[key] < mark["marked_at"] <= self.as_of - GRACE
            young = self.made[key] > self.as_of - OLD
            kept = status == "PURGED" or (
                status != "PURGING" and (key in needed or young or realm not in spoken_for or not is_due)
            )
            if kept or key in self.held:
                found.add(key)
        return found

    def spoken_for(self) -> set[str]:
        """The realms that some source names; lines without any reference speak for all of them."""
        if not any(one.source == "lines" for one in self.references):
            return set(REALMS)
        return {_realm_of(one.key) for one in self.references}

    def needed(self, kept: Set[str] = frozenset()) -> set[str]:
        """Return what is referred to, and what that and what is kept for other reasons leads to."""
        needed, new = set[str](), {one.key for one in self.references} | kept
        while new:
            needed |= new
            new = {other for one, other in self.edges if one in needed} - needed
        return needed

    def check(self, protected: set[str], doubtful: Set[str], ended: bool) -> None:
        # Files by which a root is known, and which a run that is killed leaves half written; listings know such names.
        there = {
            key: content for key, content in self.objects.data().items() if not key.startswith((".retention-", "..retention-"))
        }
        lost = protected - there.keys()
        assert not lost, f"{sorted(lost)} had to stay: {[row for row in self._marks() if row['transaction'] in lost]}"
        assert all(self.written[key] == content for key, content in there.items())
        gone = {key: content for key, content in self.written.items() if key not in there}
        self.gone += sum(map(len, gone.values()))
        self.tally["gone"] += len(gone)
        self.written = there
        assert self.ledger.verify().faults == ()
        marks = self._marks()
        begun = {row["transaction"] for row in marks if row["status"] == "SWEEPING"}
        self._settle(gone, marks, doubtful)
        # What went has a mark on which a sweep had begun, before it went and for ever.
        assert {key for key in gone if self._status(marks, key) not in ("SWEEPING", "SWEPT", "SPARED")} == set()
        assert not (ended and begun), f"{sorted(begun)} was begun, and the run that has come to its end left it so"
        for row in marks:
            if row["status"] == "SWEPT" and row["transaction"] in there:
                # Of a realm that is purged a run deletes what it marks itself; what is made after it is of its instant.
                assert self.since[row["transaction"]] >= row["marked_at"], f"{row['transaction']} is swept, and it is there"
        for name, realm in self.ledger.realms.all().items():
            if realm.status == "PURGED":
                assert not {key for key in there if _realm_of(key) == name}, f"something is left of {name}, which is PURGED"

    def _settle(self, gone: Mapping[str, bytes], marks: list[dict[str, Any]], doubtful: Set[str]) -> None:
        """What a run deleted is written down by it, or else by the one that comes to its mark."""
        for key in list(self.unsettled):
            status = self._status(marks, key)
            if status != "SWEEPING":
                size = self.unsettled.pop(key)
                self.unsure += size if status != "SWEPT" or key in doubtful else 0
                self.tally["settled later"] += 1
        self.unsettled |= {key: len(content) for key, content in gone.items() if self._status(marks, key) == "SWEEPING"}

    def check_end(self, rest: datetime) -> None:
        """After some runs without any accident: what nobody needs is gone, and the reports are the sum of what happened."""
        purging = {name for name, realm in self.ledger.realms.all().items() if realm.status == "PURGING"}
        spoken_for = self.spoken_for()
        judged = {key for key in self.written if _realm_of(key) in spoken_for and self.made[key] <= rest - OLD}
        garbage = judged - self.needed(self.held | (self.written.keys() - judged))
        assert not garbage, (
            f"{sorted(garbage)} should be gone: {[row for row in self._marks() if row['transaction'] in garbage]}"
        )
        for name in purging:
            left = {key for key in self.written if _realm_of(key) == name}
            assert left, f"nothing is left of {name}, and it is not PURGED"
            assert left <= self.held
        reports = self.ledger.reports
        freed = sum(row["bytes_freed"] for day in reports.days() for row in reports.of(day))
        assert not self.unsettled
        assert self.gone - self.unsure <= freed <= self.gone, (self.gone, self.unsure, freed)
        self.tally["games"] += 1
        self.tally["purged"] += sum(realm.status == "PURGED" for realm in self.ledger.realms.all().values())

    def _marks(self) -> list[dict[str, Any]]:
        rows = self.ledger.marks.table([f"blobs/{realm}" for realm in REALMS]).to_pylist()
        return list({row["transaction"]: row for row in sorted(rows, key=lambda row: row["id"])}.values())

    def _status(self, marks: Iterable[dict[str, Any]], key: str) -> str | None:
        return next((row["status"] for row in marks if row["transaction"] == key), None)

    def _realm_status(self, key: str) -> str:
        found = self.ledger.realms.all().get(_realm_of(key))
        return found.status if found else "ACTIVE"


def _realm_of(key: str) -> str:
    return key.partition("/")[0]

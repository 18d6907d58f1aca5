"""A campaign against the sweep: sweepers that are killed, stopped or given a wrong clock at random, and holds placed meanwhile.

Belongs here: one game on one store and one ledger, and what must be true of it after each event. A game ends when everything that
is due was swept or is held. Who plays, and how many games: test_campaign.py.
"""

import itertools
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sqlalchemy import Engine, event

from retention_assets import clock
from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Ledger
from retention_assets.policy import Hold
from retention_assets.settings import Settings, load_settings
from retention_assets.stores.protocol import Store
from retention_assets.sweep import Sweeper
from retention_assets_tests.sweep.cycle import BATCH, Cycle, count_deletions
from retention_assets_tests.sweep.datasets import DUE

# Long enough that a sweeper keeps it on a busy machine, and short enough to wait for.
LEASE = 0.6
# No sweep of a game has more acts than this, so that some sweepers come to their end.
_ACTS = 260


@dataclass(frozen=True)
class Fate:
    """What happens to a sweeper before its so-manyth act: "kill", "stop", "jump" (its clock), or nothing."""

    what: str
    act: int = 0
    jump: float = 0.0
    # Only acts that delete objects count.
    deletion: bool = False


def sweep(fate: Fate, store: Store, folder: Path, at: Any, begun: Any) -> None:
    """A sweeper, in a program of its own. `at` says before which kind of act it was stopped, `begun` that it has begun."""
    counted, waiting, writing = itertools.count(), [fate.what], set[int]()

    def count(kind: str) -> None:
        if next(counted) < fate.act or not waiting or (fate.what == "stop" and kind in ("record", "statement")):
            return
        waiting.clear()
        if fate.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fate.what == "stop":
            at.value = kind.encode()
            # Its heart may be in the middle of a beat: who is stopped there keeps everybody else out of the ledger.
            while writing:
                _wait(0.001)
            os.kill(os.getpid(), signal.SIGSTOP)
        if fate.what == "jump":
            clocks: Any = vars(clock)["time"]
            shifted = SimpleNamespace(time=lambda: clocks.time() + fate.jump, clock_gettime=clocks.clock_gettime)
            vars(clock)["time"] = shifted

    settings = settings_with(folder, store)
    ledger = ExitStack().enter_context(Environment(settings).ledger())
    ours = ledger.database.engine
    event.listen(ours, "begin", lambda connection: writing.add(id(connection)))
    for end in ("commit", "rollback"):
        event.listen(ours, end, lambda connection: writing.discard(id(connection)))
    event.listen(Engine, "before_cursor_execute", lambda *_: count("statement"))
    event.listen(Engine, "commit", lambda connection: count("record" if connection.engine is ours else "commit"))
    count_deletions(count)
    begun.set()
    sweep_here(ledger, store, settings, LEASE)


def settings_with(folder: Path, store: Any) -> Settings:
    """The settings of a folder, with a store: so heads are noted beside its data as well."""
    return load_settings(folder / "retention.yaml").model_copy(update={"stores": (store.settings,)})


def sweep_here(ledger: Ledger, store: Store, settings: Settings, lease_seconds: float = 120) -> list[str]:
    """Sweep what is due, by the heads and places that there are; what was refused."""
    environment = Environment(settings)
    assert (environment.head_faults(ledger), environment.place_faults(ledger, [store])) == ({}, {})
    sweeper = Sweeper(
        ledger, {store.name: store}, load_rulebook(ledger, settings, "test"), DUE, "test", lease_seconds=lease_seconds
    )
    return [one.refused for one in sweeper.run(ledger.marks.datasets_to_sweep(DUE)) if one.refused]


@dataclass
class Game:
    """One dataset of one store with marks that are due, and what people and accidents did to it so far."""

    marked: Cycle
    random: random.Random
    tally: Counter[str] = field(default_factory=Counter)
    # Of each transaction that was held in time what of it was there then.
    safe: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = self.marked.kept.store()
        self.settings = settings_with(self.marked.folder, self.store)
        self.opened = ExitStack()
        self.ledger = self.opened.enter_context(Environment(self.settings).ledger())
        assert Environment(self.settings).place_faults(self.ledger, [self.store], "ann") == {}
        self.going = {name: self.marked.reached[name] for name in self.marked.due}
        self.context = multiprocessing.get_context("forkserver")

    def play(self) -> None:
        for _ in range(self.random.randint(2, 7)):
            if not self._open():
                break
            self.random.choice(
                [self._kill, self._kill, self._kill_two, self._stop, self._stop, self._jump, self._hold_meanwhile]
            )()
            self.check()
        self._wait_for_leases()
        refused = sweep_here(self.ledger, self.store, self.settings)
        assert refused == [], refused
        self.check()
        self.check_end()
        self.opened.close()
        # A server has room for so many connections, and there are hundreds of games.
        self.store.close()

    # --- events -------------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        self._end([self._start(self._fate("kill"))])

    def _kill_two(self) -> None:
        self._end([self._start(self._fate("kill")), self._start(self._fate("kill"))])

    def _jump(self) -> None:
        jump = self.random.choice([-86_400.0, -5.0, 5.0, 3_600.0, 86_400.0])
        self._end([self._start(Fate("jump", self.random.randrange(_ACTS), jump))])
        self.tally["jumped"] += 1

    def _hold_meanwhile(self) -> None:
        """A hold while a sweeper runs: what it had not begun by then stays."""
        sweeper = self._start(Fate("none"))
        _wait(self.random.random() * 0.15)
        self._hold()
        self._end([sweeper])

    def _stop(self) -> None:
        """A sweeper is stopped until its lease is over. Somebody places a hold, another one sweeps; then it goes on."""
        at = self.context.Array("c", b"............")
        sweeper = self._start(self._fate("stop"), at)
        if not _stopped(sweeper):
            self._end([sweeper])
            return
        if self._is_locked():
            os.kill(int(sweeper.pid or 0), signal.SIGCONT)
            self._end([sweeper])
            return
        self.tally["stopped"] += 1
        held = self._hold() if self.random.random() < 0.8 else {}
        self._wait_for_leases()
        if self.random.random() < 0.7:
            self._end([self._start(self._fate("kill") if self.random.random() < 0.3 else Fate("none"))])
        before = self.marked.data().keys()
        os.kill(int(sweeper.pid or 0), signal.SIGCONT)
        self._end([sweeper])
        lost = sorted(set[str]().union(*held.values()) & before - self.marked.data().keys())
        # One act was already in hand: a file, or the commit of a batch.
        most = {b"unlink": 1, b"commit": BATCH}.get(cast(Any, at).value, 0)
        if cast(Any, at).value == b"commit":
            lost = [one for one, places in held.items() if places & before - self.marked.data().keys()]
        assert len(lost) <= most, (cast(Any, at).value, lost)
        if lost:
            self.tally["in hand"] += 1
            self.safe = {one: places & self.marked.data().keys() for one, places in self.safe.items()}

    def _is_locked(self) -> bool:
        """Whether it was stopped in the middle of a beat all the same."""
        if not self.marked.url.startswith("sqlite"):
            return False
        with closing(sqlite3.connect(self.marked.url.removeprefix("sqlite:///"), timeout=0)) as file:
            try:
                file.execute("BEGIN IMMEDIATE").close()
            except sqlite3.OperationalError:
                return True
        return False

    def _hold(self) -> dict[str, set[str]]:
        """A hold on some transactions: from now on nothing goes of what no sweep had begun; of the rest no more than there is."""
        names = self.random.sample(sorted(self.going), self.random.randint(1, 3))
        hold = {
            "name": f"h{self.tally['held']}",
            "datasets": {"include": ["*"]},
            "transactions": names,
            "reason": "r",
            "owner": "o",
        }
        self.ledger.holds.place(Hold.model_validate(hold), "ann")
        self.tally["held"] += 1
        status = self.marked.statuses()
        there = self.marked.data().keys()
        held = {one: self.going[one] & there for one in names}
        self.safe |= {one: held[one] for one in names if status[one] in ("MARKED", "SPARED") and held[one] == self.going[one]}
        return held

    def _fate(self, what: str) -> Fate:
        return Fate(what, self.random.randrange(_ACTS))

    def _start(self, fate: Fate, at: Any = None) -> BaseProcess:
        begun = self.context.Event()
        arguments = (fate, self.store, self.marked.folder, at, begun)
        sweeper = self.context.Process(target=sweep, args=arguments)
        sweeper.start()
        begun.wait(60)
        return sweeper

    def _end(self, sweepers: list[BaseProcess]) -> None:
        for sweeper in sweepers:
            sweeper.join()
            assert sweeper.exitcode in (0, -signal.SIGKILL), sweeper.exitcode
            self.tally["killed" if sweeper.exitcode else "came to an end"] += 1

    def _wait_for_leases(self) -> None:
        while self.ledger.leases.held():
            _wait(0.05)

    def _open(self) -> bool:
        return bool(self.ledger.marks.datasets_to_sweep(DUE))

    # --- what must be true --------------------------------------------------------------------------------------------

    def check(self) -> None:
        """At any moment: what must be true of a marked store, and what is held is there. The ledger is the newest by every head."""
        self.marked.check([name for name, places in self.safe.items() if places == self.going[name]])
        assert Environment(self.settings).head_faults(self.ledger) == {}
        there = self.marked.data().keys()
        for name, places in self.safe.items():
            assert places <= there, f"{name} was held, and something of it is gone: {self.marked.statuses()[name]}"

    def check_end(self) -> None:
        statuses = self.marked.statuses()
        held = {one for hold in self.ledger.holds.recorded(DUE).placed for one in hold.transactions or ()}
        needed = self.marked.needed()
        assert {one for one, status in statuses.items() if status != "SWEPT"} <= held | needed
        assert set(statuses.values()) <= {"SWEPT", "SPARED"}
        for one in needed:
            others = self.marked.reached.keys() - {name for name, status in statuses.items() if status == "SWEPT"} - {one}
            assert self.marked.reached[one] <= set[str]().union(*(self.marked.reached[other] for other in others))
        report = self.marked.report()
        ends = ("deleted", "already_gone", "spared", "unmarked")
        done = sum(report[name] for name in ends)
        assert report["to_delete"] == len(self.going) == done
        assert report["finished_at"] is not None
        assert report["bytes_freed"] <= self.marked.freed()
        self.tally["games"] += 1


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _stopped(process: BaseProcess) -> bool:
    stat = Path(f"/proc/{process.pid}/stat")
    # Its own server collects it when it ends, between any two of these lines.
    with suppress(FileNotFoundError, ProcessLookupError):
        while process.is_alive():
            if stat.read_text().rpartition(")")[2].split()[0] == "T":
                return True
            _wait(0.01)
    return False

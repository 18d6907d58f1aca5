"""A dataset of twelve marks that are due, in any kind of store, which tasks sweep in parts.

Belongs here: building it, dealing it out as a run does, and sweeping a part as a task does, with a ledger and a store of its own.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event

from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import DatasetPart, NameRange
from retention_assets.settings.model import Settings, load_settings
from retention_assets.stores.protocol import Store
from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets.sweep.engine import Sweeper
from retention_assets.sweep.lease import hold_leases
from retention_assets_tests.clocks import open_simulated
from retention_assets_tests.stores.aspects.environments import Aspects
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.objects.environments import LocalObjects
from retention_assets_tests.stores.records.environments import Records
from retention_assets_tests.sweep.datasets import DUE, MARKED, evaluate

RUN = "run 1"
MARKS = 12
_POLICY = "policies: [{{name: p, datasets: {{include: ['*']}}, select: {{{select}}}, sweep: {{every: 0s, batch: 2}}}}]\n"


class ManyAspects(Aspects):
    """One aspect of four urns, each with three versions before its current one."""

    def write(self, dataset: str, drawing: str) -> dict[str, str]:  # noqa: ARG002 - it has a history of its own
        urns = [f"urn:li:dataset:{name}" for name in ("a", "b@c", "d", "e")]
        for urn in urns:
            self.table.chain(urn, dataset.partition(".")[2], {1: 90, 2: 80, 3: 70, 0: 60})
        return {name: name for urn in urns for name in (f"{urn}@{version}" for version in (1, 2, 3, 0))}


ENVIRONMENTS: dict[str, Callable[[Path, Callable[[], str]], Environment]] = {
    "files": lambda folder, _: LocalFiles(folder),
    "objects": lambda folder, _: LocalObjects(folder),
    "records": lambda _, url: Records(url()),
    "aspects": lambda _, url: ManyAspects(url()),
}


@dataclass
class Parted:
    """The dataset, marked."""

    environment: Environment
    url: str
    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "policies").mkdir(parents=True)
        select = "unreferenced: true, older_than: 1d" if isinstance(self.environment, LocalObjects) else "older_than: 1d"
        (self.folder / "policies" / "p.yaml").write_text(_POLICY.format(select=select))
        (self.folder / "retention.yaml").write_text("clock: {simulated: true}\n")
        self.dataset = self.environment.datasets[0]
        # Of independent transactions all are due, of a history all but the newest.
        amount = MARKS + (not self.environment.independent)
        self.environment.write(self.dataset, "main: " + " - ".join(f"T{n:02}:SNAPSHOT@{90 - n}d" for n in range(amount)))
        with self.opened() as ledger:
            evaluate(ledger, [self.environment.store()], self.settings, MARKED)
            self.due: list[str] = sorted(ledger.marks.table([self.dataset])["transaction"].to_pylist())
        assert len(self.due) == MARKS, self.due

    @property
    def settings(self) -> Settings:
        """The rules alone: stores are given."""
        return load_settings(self.folder / "retention.yaml")

    def opened(self) -> Ledger:
        """The ledger."""
        return open_simulated(self.url)

    @contextmanager
    def dealt(self, ledger: Ledger, parts: int | Sequence[NameRange]) -> Iterator[list[DatasetPart]]:
        """Parts, while whoever dealt them out is there."""
        together = self.environment.store().capabilities.parts_at
        assert together is not None
        ranges = ledger.parts.cut(self.dataset, DUE, MARKS, parts, together) if isinstance(parts, int) else parts
        with hold_leases(ledger, [self.dataset], RUN) as held:
            lease = held.leases[self.dataset]
            yield [DatasetPart(lease, number, names, MARKS // len(ranges)) for number, names in enumerate(ranges)]

    def sweeps(self, part: DatasetPart | None = None, store: Store | None = None) -> SweepResult:
        """What a task does."""
        with self.opened() as ledger:
            store = store or self.environment.store()
            rulebook = load_rulebook(ledger, self.settings, "test")
            sweeper = Sweeper(ledger, {store.name: store}, rulebook, DUE, RUN)
            (result,) = sweeper.run([self.dataset], part)
            return result

    def sweeps_at_once(self, parts: Sequence[DatasetPart]) -> list[SweepResult]:
        """All parts, each in a thread."""
        found: list[SweepResult] = []
        threads = [threading.Thread(target=lambda part=one: found.append(self.sweeps(part))) for one in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def report(self) -> dict[str, Any]:
        """The day's report."""
        with self.opened() as ledger:
            (found,) = ledger.reports.of(DUE.date(), self.dataset)
        return dict(found)

    def statuses(self) -> dict[str, str]:
        """Where the marks are."""
        with self.opened() as ledger:
            rows = ledger.marks.table([self.dataset]).to_pylist()
        return {row["transaction"]: row["status"] for row in rows}

    def is_done(self) -> None:
        """Everything went once, and the record of it is sound."""
        report = self.report()
        assert report["to_delete"] == MARKS == report["deleted"] + report["already_gone"]
        assert (report["failed"], report["spared"]) == (0, 0)
        assert report["finished_at"] is not None
        assert set(self.statuses().values()) == {"SWEPT"}
        with self.opened() as ledger:
            assert ledger.verify().faults == ()
        store = self.environment.store()
        there = set(store.read([self.dataset])["transaction"].drop_null().to_pylist())
        if store.capabilities.log_is_complete:
            assert not there & set(self.due)
        else:
            assert not set().union(*(self.environment.owned(self.dataset, one) for one in self.due))


def sweeps_until(parted: Parted, part: DatasetPart, last: int) -> None:
    """A task that kills itself before its so-manyth write or deletion."""
    left = last

    def counts(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counting(act: Any) -> Any:
        def counted_act(*arguments: Any, **named: Any) -> Any:
            counts()
            return act(*arguments, **named)

        return counted_act

    ledger = parted.opened()
    event.listen(ledger.database.engine, "commit", counts)
    os.unlink, os.rmdir = counting(os.unlink), counting(os.rmdir)
    store = parted.environment.store()
    rulebook = load_rulebook(ledger, parted.settings, "test")
    list(Sweeper(ledger, {store.name: store}, rulebook, DUE, RUN).run([parted.dataset], part))

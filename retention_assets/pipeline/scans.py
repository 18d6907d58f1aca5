"""Scans of stores of objects in a run: begun under a lease, compared with brakes, published with everything else it has read.

A run publishes all that it reads at once, so its scans end there. A scan that fails before is recorded at once; its store
counts as one that is away, and the others go on. Tasks write the logs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.fs as pafs

from retention_assets.datasets import DatasetFilter
from retention_assets.frames.log import DATASETS, LOG, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.ledger import Ledger
from retention_assets.ledger.evaluations import Publication
from retention_assets.ledger.leases import Lease
from retention_assets.ledger.stores import ScanClosing, ScanEnd, ScanRecord, ScanStatus, scan_lease
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.read_logs import write_read_log
from retention_assets.pipeline.stage import SparkTasks, cut
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import Keeper
from retention_assets.stores.logs import ChosenDatasets
from retention_assets.stores.objects.classes import log_lines
from retention_assets.stores.objects.folder import ScanFolder
from retention_assets.stores.objects.scan import Scan, scan_in
from retention_assets.stores.objects.scan_result import (
    ObjectClass,
    ScanFailed,
    ScanResult,
    find_brakes,
    find_source_faults,
    own_peaks,
    peaks_of,
)
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import Store, ask_store, error_text
from retention_assets.sweep.permit import hold_leases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# holds and retain rules in force at an instant, with those of the policy files, which nobody may have recorded yet
HeldAt = Callable[[datetime], Sequence[Keeper]]
# rows of a log per task; a dataset is never split, so a giant one is a task of its own
_LOG_ROWS = 500_000
# key in the totals of a failed scan: its number of references, by which the next scan is sized
_REFUSED_REFERENCES = "too_many_references"


def next_scan(ledger: Ledger | None, settings: ObjectsSettings, as_of: datetime | None, held: HeldAt) -> Scan:
    if ledger is None:
        # without an instant, also those that have ended
        ever = datetime.min.replace(tzinfo=UTC)
        return Scan.of(settings, holds=tuple(held(as_of or ever)), as_of=as_of)
    before, newest = ledger.scans.last_whole(settings.name), ledger.scans.newest_ended(settings.name)
    refused = int(newest.totals.get(_REFUSED_REFERENCES, 0)) if newest else 0
    return Scan.of(
        settings,
        purging=ledger.realms.purging(),
        holds=tuple(held(ledger.clock.due_by(as_of))),
        as_of=as_of,
        last=_result_of(ledger, before) if before else None,
        count_swept=partial(ledger.scans.swept_since, before) if before else int,
        refused=refused or None,
    )


@dataclass
class SparkScanner:
    """Scans in tasks of a Spark session, which the first scan starts."""

    session: "Callable[[], SparkSession]"

    def scan(self, scan: Scan, folder: str) -> ScanResult:
        return scan_in(SparkTasks(self.session()), scan, ScanFolder(folder, place_of))

    def write_log(
        self, folder: str, result: ScanResult, settings: ObjectsSettings, target: str, datasets: Sequence[str], first_share: int
    ) -> int:
        """Write logs of a scan as parts of whole datasets, numbered from `first_share` on; return the number of parts."""
        shares = log_shares(result, datasets)
        work = _WriteLog(ScanFolder(folder, place_of), result, settings, target, shares, first_share)
        return sum(SparkTasks(self.session()).run(work, len(shares)))


@dataclass(frozen=True)
class StoreScan:
    """A finished scan: its record from before it is published, its result, and its brakes."""

    store: Store
    settings: ObjectsSettings
    lease: Lease
    record: ScanRecord
    result: ScanResult
    datasets: tuple[str, ...]
    tokens: Mapping[str, str]
    # none for an accepted scan
    brakes: tuple[str, ...] = ()
    # braked by another run, and accepted by a person since
    is_accepted: bool = False

    @property
    def fault(self) -> str | None:
        if not self.brakes:
            return None
        name, scan = self.store.name, self.record.id
        return (
            f"scan {scan} is braked: {'; '.join(self.brakes)}. `retention scans {name} accept {scan} --reason …` lets it mark;"
            " otherwise the next scan decides"
        )

    @property
    def closing(self) -> ScanClosing:
        if self.is_accepted:
            return ScanClosing(self.lease, self.record, None)
        status = ScanStatus.BRAKED if self.brakes else ScanStatus.KEPT
        reason = "; ".join(self.brakes) or None
        end = ScanEnd(status, reason, scan_totals(self.result), self.result.as_json())
        return ScanClosing(self.lease, self.record, end, self.settings.scans_kept)


@dataclass
class RunScans:
    ledger: Ledger
    warehouse: Warehouse
    scanner: SparkScanner
    actor: str
    held: HeldAt
    # nothing is judged that was younger at this instant, if given
    as_of: datetime | None = None
    done: list[StoreScan] = field(default_factory=list)
    away: list[ChosenDatasets] = field(default_factory=list)
    published: list[ScanRecord] = field(default_factory=list)

    @contextmanager
    def scanning(self, stores: Iterable[tuple[Store, ObjectsSettings]], wanted: DatasetFilter) -> Iterator[Self]:
        """Scan stores one after the other, if they may have a wanted dataset. Each is scanned whole.

        Their leases are held to the end of the block, by which the scans are to be published.
        """
        with ExitStack() as leases:
            for store, settings in stores:
                if wanted.may_select_of(store.name):
                    self._scan(leases, store, settings, wanted)
            try:
                yield self
            except Exception as fault:
                if not self.published:
                    self._fail(error_text(fault))
                raise

    def _scan(self, leases: ExitStack, store: Store, settings: ObjectsSettings, wanted: DatasetFilter) -> None:
        ledger, name = self.ledger, scan_lease(store.name)
        taken = leases.enter_context(hold_leases(ledger, [name], self.actor))
        if name in taken.others:
            self.away.append(ChosenDatasets(store, (), is_running(ledger, store.name, taken.others[name])))
            return
        lease = taken.leases[name]
        if accepted := accepted_scan(ledger, self.warehouse, settings):
            record, result = accepted
            datasets, tokens = tuple(wanted.select(_names(result))), _tokens(store, _names(result))
            self.done.append(StoreScan(store, settings, lease, record, result, datasets, tokens, is_accepted=True))
            return
        scan = ledger.scans.begin(lease)
        scanned: ScanResult | None = None
        try:
            # read after the scan begins: a realm purged from now on was not scanned for, so it does not become PURGED
            order = next_scan(ledger, settings, self.as_of, self.held)
            last = order.last
            tokens_before = _tokens(store, _names(last)) if last else {}
            scanned = self.scanner.scan(order, self.warehouse.scan_folder(store.name, scan.id))
            scanned.judging, scanned.purging = settings.judging, sorted(order.purging)
            if faults := find_source_faults(settings.brakes, scanned, last):
                raise ScanFailed(store.name, "; ".join(faults))
        except Exception as fault:  # noqa: BLE001 - sources may raise anything; the other stores are still read
            end = ScanEnd(ScanStatus.FAILED, why_failed(fault))
            if scanned:
                end = replace(end, totals=scan_totals(scanned), result=scanned.as_json())
            elif isinstance(fault, ScanFailed) and fault.references:
                end = replace(end, totals={_REFUSED_REFERENCES: fault.references})
            ledger.scans.end(lease, scan, end)
            self.away.append(ChosenDatasets(store, (), f"scan {scan.id} failed: {end.reason}"))
            return
        names = _names(scanned)
        brakes = tuple(find_brakes(settings.brakes, scanned, last))
        # peaks start anew with a braked scan, once somebody accepts it
        scanned.peaks = own_peaks(scanned) if brakes else peaks_of(settings.brakes, scanned, last)
        # new datasets get their tokens now
        tokens = {**_tokens(store, names), **{name: token for name, token in tokens_before.items() if name in set(names)}}
        self.done.append(StoreScan(store, settings, lease, scan, scanned, tuple(wanted.select(names)), tokens, brakes))

    @property
    def chosen(self) -> list[ChosenDatasets]:
        return [*(ChosenDatasets(scan.store, scan.datasets) for scan in self.done), *self.away]

    @property
    def tokens(self) -> dict[str, str]:
        return {name: token for scan in self.done for name, token in scan.tokens.items()}

    @property
    def begun(self) -> dict[str, datetime]:
        """Instant, by store, since when the result is known: the listing may be an older one."""
        return {scan.store.name: min(scan.record.started_at, scan.result.listing_as_of) for scan in self.done}

    @property
    def shown(self) -> list[tuple[ScanRecord, list[dict[str, Any]]]]:
        return [
            (record, [asdict(source) for source in scan.result.sources])
            for scan, record in zip(self.done, self.published, strict=True)
        ]

    def write_logs(self, folder: str, share: int) -> int:
        """Write the logs into a folder of parts numbered from `share` on; return the number of parts. Braked datasets are
        refused.
        """
        parts = 0
        for scan in self.done:
            if not scan.datasets:
                continue
            if scan.fault:
                row = {"transactions": 0, "attributes": None, "fault": scan.fault, "fault_transaction": None}
                refused = pa.Table.from_pylist([{"dataset": name, **row} for name in scan.datasets], DATASETS)
                parts += write_read_log(Log(LOG.empty_table(), refused), folder, share + parts)
            else:
                source = self.warehouse.scan_folder(scan.store.name, scan.record.id)
                parts += self.scanner.write_log(source, scan.result, scan.settings, folder, scan.datasets, share + parts)
        return parts

    def publish(self, publications: Sequence[Publication]) -> None:
        if not self.done:
            self.ledger.publications.publish(publications, self.actor)
            return
        self.published = self.ledger.scans.publish([scan.closing for scan in self.done], publications, self.actor)

    def clean(self) -> None:
        for scan in self.done:
            self.warehouse.clean_scans(self.ledger, scan.store.name, self.ledger.scans.needed(scan.store.name))

    def _fail(self, why: str) -> None:
        for scan in self.done:
            if not scan.is_accepted:
                end = ScanEnd(ScanStatus.FAILED, f"its run failed: {why}", scan_totals(scan.result), scan.result.as_json())
                # must not hide what the run itself raised
                with suppress(Exception):
                    self.ledger.scans.end(scan.lease, scan.record, end)


def why_failed(fault: Exception) -> str:
    """Return the reason without the store's name."""
    return fault.why if isinstance(fault, ScanFailed) else error_text(fault)


def accepted_scan(ledger: Ledger, warehouse: Warehouse, settings: ObjectsSettings) -> tuple[ScanRecord, ScanResult] | None:
    """Return the scan that a person lets mark. None if its listing is gone, or would be judged otherwise by now."""
    scan = ledger.scans.usable(settings.name)
    if scan is None:
        return None
    result = _result_of(ledger, scan)
    files, place = place_of(warehouse.scan_folder(settings.name, scan.id))
    is_gone = files.get_file_info(place).type is pafs.FileType.NotFound
    return None if is_gone or result.outdated(settings.judging, ledger.realms.purging()) else (scan, result)


def is_running(ledger: Ledger, store: str, otherwise: str) -> str:
    running = ledger.scans.running(store)
    if running is None:
        return otherwise
    return (
        f"scan {running.id} is running, by {running.holder} since {text_of(running.started_at)}. Wait for it to end; if its"
        " program is dead, its lease ends within two minutes"
    )


def _names(result: ScanResult) -> list[str]:
    return sorted(dataset.name for dataset in result.datasets)


def _tokens(store: Store, names: Sequence[str]) -> dict[str, str]:
    # a store that can't say has none
    with suppress(Exception):
        return dict(ask_store(store, lambda: store.tokens(names)))
    return {}


def _result_of(ledger: Ledger, scan: ScanRecord) -> ScanResult:
    return ScanResult.from_json(ledger.scans.results([scan.id])[scan.id])


def scan_totals(result: ScanResult) -> dict[str, int | float]:
    """Sum up a scan: objects and bytes of each class, which add up to what was scanned, and references."""
    totals: dict[str, int | float] = {"scanned": result.scanned, "scanned_bytes": result.scanned_bytes}
    for kind in ObjectClass:
        totals[kind.value], totals[f"{kind.value}_bytes"] = result.total(kind)
    return totals | {
        "references": result.distinct_references,
        "unresolved_references": result.unresolved_references,
        "edges": result.edges,
        "effective_fpp": result.effective_fpp,
        "seconds": (result.finished_at - result.started_at).total_seconds(),
    }


def log_shares(result: ScanResult, datasets: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    rows = dict.fromkeys(datasets, 0) | {dataset.name: dataset.rows for dataset in result.datasets}
    return tuple(cut(sorted(set(datasets)), rows, _LOG_ROWS))


@dataclass(frozen=True)
class _WriteLog:
    """Payload of a task: names of datasets, never rows."""

    scan: ScanFolder
    result: ScanResult
    settings: ObjectsSettings
    target: str
    shares: tuple[tuple[str, ...], ...]
    first: int

    def __call__(self, number: int) -> int:
        datasets = self.shares[number]
        log = sound_log(log_lines(self.scan, self.result, self.settings, datasets))
        empty = sorted(set(datasets).difference(log.datasets["dataset"].to_pylist()))
        rows = [{"dataset": name, "transactions": 0} for name in empty]
        every = pa.concat_tables([log.datasets, pa.Table.from_pylist(rows, DATASETS)]).sort_by("dataset")
        return write_read_log(Log(log.transactions, every), self.target, self.first + number)

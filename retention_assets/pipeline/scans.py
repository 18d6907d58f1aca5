"""Scans of stores of objects in a run: begun under a lease, held against brakes, published with everything else it has read.

Belongs here: the order of a scan in a run, what becomes of one that fails or is braked, and of one that a person has accepted.
Does not belong here: listing, references and classes (scan_stage.py), the brakes (stores/objects/scan/brakes.py), and what the
ledger keeps (ledger/scans.py).

All that a run reads is published at once, so a scan ends where the run publishes. One that fails before is recorded at once;
its store counts as one that is away, and the others go on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from retention_assets.datasets import DatasetFilter
from retention_assets.frames.log import DATASETS, LOG, Log
from retention_assets.ledger import Ledger
from retention_assets.ledger.publications import Publication
from retention_assets.ledger.scans import ScanClosing, ScanEnd, ScanRecord, ScanStatus, scan_lease
from retention_assets.ledger.sweeps.leases import Lease
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.read_logs import write_read_log
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import Hold
from retention_assets.stores.logs import ChosenDatasets
from retention_assets.stores.objects.scan.brakes import find_brakes, find_source_faults, own_peaks, peaks_of
from retention_assets.stores.objects.scan_result import ObjectClass, ScanFailed, ScanResult
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import Store, ask_store, error_text
from retention_assets.sweep.lease import hold_leases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In the sums of a scan that failed for them: by so many the next one is sized.
_TOO_MANY = "too_many_references"


class Scanner(Protocol):
    """Who scans: Spark, by its tasks."""

    def scan(
        self,
        settings: ObjectsSettings,
        purging: frozenset[str],
        folder: str,
        last: ScanResult | None,
        refused: int | None,
        as_of: datetime | None,
        holds: tuple[Hold, ...],
    ) -> ScanResult:
        """List, read the references, and write into a folder what each object is. Anything that is not whole raises.

        `refused` are the references for which the newest scan was too small and failed.
        """

    def write_log(
        self, folder: str, result: ScanResult, settings: ObjectsSettings, target: str, datasets: Sequence[str], share: int
    ) -> int:
        """Write the logs of some datasets of a scan, the parts numbered from a share on; how many parts."""


@dataclass(frozen=True)
class SparkScanner:
    """Scans in the tasks of a session, which is started when the first scan begins."""

    session: "Callable[[], SparkSession]"

    def scan(
        self,
        settings: ObjectsSettings,
        purging: frozenset[str],
        folder: str,
        last: ScanResult | None,
        refused: int | None,
        as_of: datetime | None,
        holds: tuple[Hold, ...],
    ) -> ScanResult:
        """In tasks over shares of the listing and of each source."""
        # Whoever loads definitions needs none of what lists and reads.
        from retention_assets.pipeline.scan_stage import Scan, run_scan
        from retention_assets.stores.objects.listings import open_listing
        from retention_assets.stores.objects.references import open_edges, open_references

        listing, references, edges = open_listing(settings), open_references(settings), open_edges(settings)
        scan = Scan(settings, listing, references, edges, purging, holds, as_of)
        return run_scan(self.session(), scan, folder, last, refused)

    def write_log(
        self, folder: str, result: ScanResult, settings: ObjectsSettings, target: str, datasets: Sequence[str], share: int
    ) -> int:
        """In tasks, a dataset in each at a time."""
        from retention_assets.pipeline.scan_stage import write_log

        return write_log(self.session(), folder, result, settings, target, datasets, share)


@dataclass(frozen=True)
class StoreScan:
    """A scan that came to its end: its record as it was before it is published, what it found, and what brakes it."""

    store: Store
    settings: ObjectsSettings
    lease: Lease
    record: ScanRecord
    result: ScanResult
    datasets: tuple[str, ...]
    tokens: Mapping[str, str]
    # Of one that was not accepted.
    brakes: tuple[str, ...] = ()
    # It was braked by another run, and somebody has accepted it since.
    is_accepted: bool = False

    @property
    def fault(self) -> str | None:
        """Why its datasets are refused, if they are."""
        if not self.brakes:
            return None
        name, scan = self.store.name, self.record.id
        return (
            f"scan {scan} is braked: {'; '.join(self.brakes)}. `retention scans {name} accept {scan} --reason …` lets it mark;"
            " otherwise the next scan decides"
        )

    @property
    def closing(self) -> ScanClosing:
        """How the ledger writes it down."""
        if self.is_accepted:
            return ScanClosing(self.lease, self.record, None)
        status = ScanStatus.BRAKED if self.brakes else ScanStatus.KEPT
        reason = "; ".join(self.brakes) or None
        end = ScanEnd(status, reason, scan_totals(self.result), self.result.as_json())
        return ScanClosing(self.lease, self.record, end, self.settings.scans_kept)


@dataclass
class RunScans:
    """The scans of a run, from when they have been done to when they are published."""

    ledger: Ledger
    warehouse: Warehouse
    scanner: Scanner
    actor: str
    # Nothing is judged that was younger at this instant, if one was given.
    as_of: datetime | None = None
    # Those of the policy files, which nobody may have recorded yet.
    file_holds: Sequence[Hold] = ()
    done: list[StoreScan] = field(default_factory=list)
    away: list[ChosenDatasets] = field(default_factory=list)
    published: list[ScanRecord] = field(default_factory=list)

    @property
    def chosen(self) -> list[ChosenDatasets]:
        """The datasets that they are about; and the stores of which none could be scanned, with why."""
        return [*(ChosenDatasets(one.store, one.datasets) for one in self.done), *self.away]

    @property
    def tokens(self) -> dict[str, str]:
        """What each log is, as it was before it was scanned."""
        return {name: token for one in self.done for name, token in one.tokens.items()}

    @property
    def begun(self) -> dict[str, datetime]:
        """By store since when what was found of it is known: the listing may be an older one."""
        return {one.store.name: min(one.record.started_at, one.result.listing_as_of) for one in self.done}

    @property
    def shown(self) -> list[tuple[ScanRecord, list[dict[str, Any]]]]:
        """The scans that were published, each with what its sources said."""
        return [
            (scan, [asdict(source) for source in one.result.sources])
            for one, scan in zip(self.done, self.published, strict=True)
        ]

    def write_logs(self, folder: str, share: int) -> int:
        """Write the logs into a folder of parts, numbered from a share on; how many parts. What is braked is refused."""
        parts = 0
        for one in self.done:
            if not one.datasets:
                continue
            if one.fault:
                parts += write_read_log(_refused(one.datasets, one.fault), folder, share + parts)
            else:
                source = self.warehouse.scan_folder(one.store.name, one.record.id)
                parts += self.scanner.write_log(source, one.result, one.settings, folder, one.datasets, share + parts)
        return parts

    def publish(self, publications: Sequence[Publication]) -> None:
        """End the scans and publish all that the run has read, at once."""
        if not self.done:
            self.ledger.publications.publish(publications, self.actor)
            return
        self.published = self.ledger.scans.publish([one.closing for one in self.done], publications, self.actor)

    def clean(self) -> None:
        """Remove what scans of these stores have left in the warehouse and nobody asks for any more."""
        for one in self.done:
            self.warehouse.clean_scans(self.ledger, one.store.name, self.ledger.scans.needed(one.store.name))

    def fail(self, why: str) -> None:
        """The run fails before it has published anything."""
        for one in self.done:
            if not one.is_accepted:
                end = ScanEnd(ScanStatus.FAILED, f"its run failed: {why}", scan_totals(one.result), one.result.as_json())
                # What the run itself raised must not be hidden by this.
                with suppress(Exception):
                    self.ledger.scans.end(one.lease, one.record, end)


@contextmanager
def scan_stores(
    ledger: Ledger,
    warehouse: Warehouse,
    scanner: Scanner,
    stores: Iterable[tuple[Store, ObjectsSettings]],
    wanted: DatasetFilter,
    actor: str,
    as_of: datetime | None = None,
    file_holds: Sequence[Hold] = (),
) -> Iterator[RunScans]:
    """Scan stores one after the other, as far as they may have a dataset that is wanted. Each is covered whole.

    Their leases are held to the end, by which the scans are to be published.
    """
    run = RunScans(ledger, warehouse, scanner, actor, as_of, file_holds)
    with ExitStack() as leases:
        for store, settings in stores:
            if wanted.may_select_of(store.name):
                _scan(run, leases, store, settings, wanted)
        try:
            yield run
        except Exception as fault:
            if not run.published:
                run.fail(error_text(fault))
            raise


def _scan(run: RunScans, leases: ExitStack, store: Store, settings: ObjectsSettings, wanted: DatasetFilter) -> None:
    ledger, name = run.ledger, scan_lease(store.name)
    held = leases.enter_context(hold_leases(ledger, [name], run.actor))
    if name in held.others:
        run.away.append(ChosenDatasets(store, (), is_running(ledger, store.name, held.others[name])))
        return
    lease = held.leases[name]
    if accepted := accepted_scan(ledger, run.warehouse, settings):
        record, result = accepted
        datasets, tokens = tuple(wanted.select(_names(result))), _tokens(store, _names(result))
        run.done.append(StoreScan(store, settings, lease, record, result, datasets, tokens, is_accepted=True))
        return
    last, refused = scans_before(ledger, store.name)
    scan = ledger.scans.begin(lease)
    found: ScanResult | None = None
    try:
        known = _tokens(store, _names(last)) if last else {}
        # After it has begun: a realm that is to be purged from now on is not PURGED by what was not looked for.
        purging = ledger.realms.purging()
        holds = ledger.holds.known(ledger.clock.due_by(run.as_of), run.file_holds)
        folder = run.warehouse.scan_folder(store.name, scan.id)
        found = run.scanner.scan(settings, purging, folder, last, refused, run.as_of, holds)
        found.judging, found.purging = settings.judging, sorted(purging)
        if faults := find_source_faults(settings.brakes, found, last):
            raise ScanFailed(store.name, "; ".join(faults))
    except Exception as fault:  # noqa: BLE001 - sources may be anybody's; one that fails must not keep other stores from being read
        end = _failed(fault, found)
        ledger.scans.end(lease, scan, end)
        run.away.append(ChosenDatasets(store, (), f"scan {scan.id} failed: {end.reason}"))
        return
    names = _names(found)
    brakes = tuple(find_brakes(settings.brakes, found, last))
    # It is braked until somebody accepts it, and then the memory begins with it.
    found.peaks = own_peaks(found) if brakes else peaks_of(settings.brakes, found, last)
    # What has come since is asked about now.
    tokens = {**_tokens(store, names), **{dataset: token for dataset, token in known.items() if dataset in set(names)}}
    run.done.append(StoreScan(store, settings, lease, scan, found, tuple(wanted.select(names)), tokens, brakes))


def _failed(fault: Exception, found: ScanResult | None) -> ScanEnd:
    """How a scan ended that failed, with what it had counted by then."""
    reason = why_failed(fault)
    if found:
        return ScanEnd(ScanStatus.FAILED, reason, scan_totals(found), found.as_json())
    many = fault.references if isinstance(fault, ScanFailed) else None
    return ScanEnd(ScanStatus.FAILED, reason, {_TOO_MANY: many} if many else None)


def why_failed(fault: Exception) -> str:
    """Why a scan failed, without whose."""
    return fault.why if isinstance(fault, ScanFailed) else error_text(fault)


def scans_before(ledger: Ledger, store: str) -> tuple[ScanResult | None, int | None]:
    """The last whole scan of a store; and for how many references the newest one was too small, if that failed for them."""
    before, newest = ledger.scans.last_whole(store), ledger.scans.newest_ended(store)
    refused = int(newest.totals.get(_TOO_MANY, 0)) if newest else 0
    return _result_of(ledger, before) if before else None, refused or None


def accepted_scan(ledger: Ledger, warehouse: Warehouse, settings: ObjectsSettings) -> tuple[ScanRecord, ScanResult] | None:
    """The scan that a person lets mark. None if what it has listed is no longer there, or is judged otherwise by now."""
    found = ledger.scans.usable(settings.name)
    if found is None:
        return None
    result = _result_of(ledger, found)
    files, place = place_of(warehouse.scan_folder(settings.name, found.id))
    is_gone = files.get_file_info(place).type is pafs.FileType.NotFound
    return None if is_gone or result.outdated(settings.judging, ledger.realms.purging()) else (found, result)


def is_running(ledger: Ledger, store: str, otherwise: str) -> str:
    """Who scans a store, and since when."""
    running = ledger.scans.running(store)
    if running is None:
        return otherwise
    return (
        f"scan {running.id} is running, by {running.holder} since {text_of(running.started_at)}. Wait for it to end; if its"
        " program is dead, its lease ends within two minutes"
    )


def _names(result: ScanResult) -> list[str]:
    return sorted(one.name for one in result.datasets)


def _tokens(store: Store, names: Sequence[str]) -> dict[str, str]:
    """A store that can't say has none."""
    with suppress(Exception):
        return dict(ask_store(store, lambda: store.tokens(names)))
    return {}


def _result_of(ledger: Ledger, scan: ScanRecord) -> ScanResult:
    return ScanResult.from_json(ledger.scans.results([scan.id])[scan.id])


def _refused(names: Sequence[str], fault: str) -> Log:
    row = {"transactions": 0, "attributes": None, "fault": fault, "fault_transaction": None}
    return Log(LOG.empty_table(), pa.Table.from_pylist([{"dataset": name, **row} for name in names], DATASETS))


def scan_totals(result: ScanResult) -> dict[str, int | float]:
    """The sums of a scan: of each class objects and bytes, which add up to what was scanned, and of references."""
    totals: dict[str, int | float] = {"scanned": result.scanned, "scanned_bytes": result.scanned_bytes}
    for one in ObjectClass:
        totals[one.value], totals[f"{one.value}_bytes"] = result.total(one)
    return totals | {
        "references": result.distinct_references,
        "unresolved_references": result.unresolved_references,
        "edges": result.edges,
        "effective_fpp": result.effective_fpp,
        "seconds": (result.finished_at - result.started_at).total_seconds(),
    }

"""Lists scans of stores of objects, accepts a braked one, and exports what one found.

Modules that read a scan are imported where they are needed: listing takes none of them.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from shlex import quote
from typing import Annotated, Any

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, suggest
from retention_assets.evaluation.keepers import Keepers
from retention_assets.ledger.stores import ScanRecord, ScanStatus
from retention_assets.people.command import ACTOR, FORMAT, ask_and_show, examples
from retention_assets.people.operation import Flags, Kind, ReasonedRequest, Request, Result, Text, operation
from retention_assets.people.output import ExitCode
from retention_assets.policy.model import Keeper
from retention_assets.render.page import Table
from retention_assets.render.tables import SCANS
from retention_assets.render.text import json_rows
from retention_assets.stores.objects.scan_result import ObjectClass, ScanResult
from retention_assets.stores.objects.settings import ObjectsSettings

_OBJECT = {"object": pa.string(), "realm": pa.string(), "kind": pa.string(), "size": pa.int64()}
RETAINED = pa.schema({**_OBJECT, "witness": pa.string()})
EVERYTHING = pa.schema({**_OBJECT, "class": pa.string()})
# rows per file; their witnesses are read together, by one pass over each source
ROWS_PER_FILE = 1_000_000


class AcceptScanRequest(ReasonedRequest):
    """Acceptance of a braked scan."""

    store: Annotated[Text, Flags()] = Field(description="A store of kind objects, such as blobs.")
    scan: Annotated[int, Flags()] = Field(description="The number of its braked scan, such as 12, as `scans` shows it.")


class ScansRequest(Request):
    """Store whose scans are listed; by default all stores."""

    store: str | None = None


class ExportRequest(Request):
    """Retained objects of a scan with their witnesses, or all objects with their classes; by default of the newest listing."""

    store: str
    to: Text
    scan: int | None = None
    realm: str | None = None
    everything: bool = False


def _scan_dict(scan: ScanRecord, result: str | None = None) -> dict[str, Any]:
    return {**asdict(scan), "status": scan.status.value, **({"result": json.loads(result)} if result else {})}


@operation(Kind.LOOK)
@contextmanager
def list_scans(request: ScansRequest, environment: Environment) -> Iterator[Result]:
    """List the scans of a store or of all stores, the newest first."""
    stores = _scanned_stores(environment) if request.store is None else [_store(environment, request.store)]
    with environment.ledger_if_any() as ledger:
        scans = [scan for store in stores if ledger for scan in ledger.scans.newest(store.name, store.scans_kept)]
        scans.sort(key=lambda scan: -scan.id)
        rows = sorted(scans, key=lambda scan: scan.store)
        yield Result(
            tables=lambda: [Table("Scans", SCANS, rows, empty="No scan yet: `retention run` scans", grouped=True)],
            # with all their counts by realm, kind and class, which are read one by one
            pieces=lambda: json_rows(
                _scan_dict(scan, ledger.scans.results([scan.id]).get(scan.id)) for scan in scans if ledger
            ),
            next="\nNext: ".join(
                f"`retention scans {quote(scan.store)} accept {scan.id} -r …` lets it mark." for scan in _waiting(scans)
            ),
        )


def _waiting(scans: Sequence[ScanRecord]) -> list[ScanRecord]:
    newest: dict[str, ScanRecord] = {}
    for scan in scans:
        if scan.ended_at and scan.status != "superseded":
            newest.setdefault(scan.store, scan)
    return [scan for scan in newest.values() if scan.status == "braked" and scan.accepted_at is None]


@operation(Kind.ACT)
def scan_accept(request: AcceptScanRequest, environment: Environment) -> Result:
    """Let a braked scan mark although its numbers look wrong: the next run judges it. Only the newest scan of a store can be
    accepted.

    It is refused if the scan is out of date.
    """
    store = _store(environment, request.store)
    with environment.existing_ledger() as ledger:
        braked = ledger.scans.of(store.name, request.scan).status is ScanStatus.BRAKED
        result = ledger.scans.results([request.scan]).get(request.scan) if braked else None
        if result and (why := ScanResult.from_json(result).outdated(store.judging, ledger.realms.purging())):
            raise Refused(
                f"Scan {request.scan} of {store.name} is out of date: {'; '.join(why)}. Nothing was changed; the next run "
                "scans again."
            )
        scan = ledger.scans.accept(store.name, request.scan, request.actor, request.reason)
    return Result(
        headline=f"Scan {scan.id} of {scan.store} is accepted, although {scan.reason}.",
        next="the next `retention run` judges it, and marks what its policies select.",
        data=_scan_dict(scan),
    )


@operation(Kind.LOOK, progress="writing what the scan found")
def export_scan(request: ExportRequest, environment: Environment) -> Result:
    """Write what a scan found as Parquet files into a new folder."""
    from retention_assets.pipeline.file_systems import place_of
    from retention_assets.pipeline.warehouse import Warehouse

    settings = _store(environment, request.store)
    with environment.existing_ledger() as ledger:
        holds = Keepers.of_settings(ledger, environment.settings).in_force(environment.present())
        last = ledger.scans.last_whole(settings.name)
        scan = last if request.scan is None else ledger.scans.of(settings.name, request.scan)
    if scan is None:
        raise Refused(f"No scan of {settings.name} was ever complete. `retention run` scans it.")
    source = Warehouse(str(environment.settings.warehouse)).scan_folder(settings.name, scan.id)
    files, folder = place_of(source)
    if files.get_file_info(folder).type is pafs.FileType.NotFound:
        raise Refused(
            f"The listing of scan {scan.id} of {settings.name} is no longer kept. The warehouse keeps only the last "
            "complete scan and a newer braked one. Leave the scan out to export the last."
        )
    files, folder = place_of(request.to)
    if files.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
        raise Refused(f"{request.to} is not empty. Nothing was written; name a new folder.")
    files.create_dir(folder, recursive=True)
    schema = EVERYTHING if request.everything else RETAINED
    written, objects, size, without_witness = 0, 0, 0, 0
    for table in _tables_of_files(_rows(source, request)):
        rows = table if request.everything else _with_witnesses(settings, table, holds)
        rows = rows.select(schema.names).cast(schema)
        pq.write_table(rows, f"{folder}/part-{written:05d}.parquet", filesystem=files, compression="zstd")
        written, objects, size = written + 1, objects + len(rows), size + int(pc.sum(rows["size"]).as_py() or 0)
        without_witness += 0 if request.everything else rows["witness"].null_count
    if not written:
        pq.write_table(schema.empty_table(), f"{folder}/part-00000.parquet", filesystem=files)
    files_written = max(written, 1)
    counts = {"files": files_written, "objects": objects, "bytes": size, "without_witness": without_witness}
    note = f"{without_witness:,} of them had references at the scan and have none any more."
    return Result(
        headline=f"{objects:,} objects of scan {scan.id} of {settings.name}, in {files_written:,} files in {request.to}.",
        closing=lambda: [note] if without_witness else [],
        data={"store": settings.name, "scan": scan.id, "folder": request.to, **counts},
    )


def _scanned_stores(environment: Environment) -> list[ObjectsSettings]:
    return [store for store in environment.settings.stores if isinstance(store, ObjectsSettings)]


def _store(environment: Environment, name: str) -> ObjectsSettings:
    stores = {store.name: store for store in _scanned_stores(environment)}
    if name in stores:
        return stores[name]
    expected = f"one of {', '.join(stores)}" if stores else "a store of kind objects in the settings; there is none"
    remedy = suggest(name, list(stores))
    raise BadInput(Problem("is no store that is scanned", key="store", value=name, expected=expected, remedy=remedy))


def _rows(folder: str, request: ExportRequest) -> Iterator[pa.Table]:
    from retention_assets.pipeline.file_systems import place_of
    from retention_assets.stores.objects.folder import ScanFolder, read_classes

    for rows in read_classes(ScanFolder(folder, place_of), ("key", "realm", "kind", "size")):
        table = rows.rename_columns({"key": "object"}).select(EVERYTHING.names).cast(EVERYTHING)
        if not request.everything:
            table = table.filter(pc.equal(table["class"], ObjectClass.REFERENCED.value))
        if request.realm is not None:
            # a null realm matches none
            below = pc.starts_with(table["realm"], f"{request.realm}/")
            table = table.filter(pc.or_(pc.equal(table["realm"], request.realm), below))
        yield table


def _tables_of_files(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        while len(table):
            part = table.slice(0, ROWS_PER_FILE - count)
            waiting.append(part)
            count += len(part)
            table = table.slice(len(part))
            if count == ROWS_PER_FILE:
                yield pa.concat_tables(waiting)
                waiting, count = [], 0
    if count:
        yield pa.concat_tables(waiting)


def _with_witnesses(settings: ObjectsSettings, table: pa.Table, holds: Sequence[Keeper]) -> pa.Table:
    from retention_assets.stores.objects.look import find_witnesses
    from retention_assets.stores.objects.scan import Scan

    objects = table.select(["realm", "object"]).rename_columns(["realm", "key"])
    return table.append_column("witness", find_witnesses(Scan.of(settings, holds=holds), objects))


@examples(
    "retention scans",
    "retention scans blobs accept 12 -r 'the prefix moved'",
    "retention scans blobs export --realm acme --to acme-objects",
)
@click.command()
@click.argument("store", required=False)
@click.argument("action", required=False, type=click.Choice(["accept", "export"]), metavar="[accept|export]")
@click.argument("scan", required=False, type=click.IntRange(min=1))
@click.option("-r", "--reason", help="Why a braked scan may mark, for the record.")
@click.option("--realm", metavar="NAME", help="Export only this realm and what is below it.")
@click.option("--all", "everything", is_flag=True, help="Export every object with its class, not only retained ones.")
@click.option("--to", metavar="FOLDER", help="Export Parquet files into this new folder.")
@ACTOR
@FORMAT
def scans(
    store: str | None, action: str | None, scan: int | None, reason: str | None, actor: str, format_: str, **export: Any
) -> ExitCode:
    """List the scans of stores of objects, accept a braked one, or export what one has found.

    Without an action it lists the newest scans of STORE, or of all stores.

    A scan whose numbers look wrong is braked: it marks nothing until you `accept` it or a newer scan replaces it. `export`
    writes object, realm, kind, size and witness of retained objects, from the last complete scan, or from SCAN while its
    listing is kept.
    """
    if action != "export" and any(value not in (None, False) for value in export.values()):
        raise click.UsageError("--realm, --all and --to go with export: retention scans STORE export --to FOLDER.")
    if action != "accept" and reason is not None:
        raise click.UsageError("--reason goes with accept: retention scans STORE accept SCAN --reason TEXT.")
    if action is None:
        return ask_and_show(list_scans, format_, store=store)
    if action == "accept":
        if scan is None or reason is None:
            raise click.UsageError("To accept a scan, name it and say why: retention scans STORE accept SCAN --reason TEXT.")
        return ask_and_show(scan_accept, format_, actor=actor, reason=reason, store=store, scan=scan)
    if export["to"] is None:
        raise click.UsageError("To export a scan, say where: retention scans STORE export --to FOLDER.")
    return ask_and_show(export_scan, format_, store=store, scan=scan, **export)

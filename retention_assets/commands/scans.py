"""The command about scans of stores of objects: what they found, letting a braked one mark, and writing out what is retained.

Belongs here: `scans`: which of the three is asked for, and what is printed. What each does is in operations/scans.py.
"""

from shlex import quote
from typing import TYPE_CHECKING

import click

from retention_assets.commands.common.options import ACTOR, FORMAT, NonEmptyText, examples
from retention_assets.commands.common.output import echo, print_json, print_rows, print_tables, progress, say, say_next
from retention_assets.commands.common.sources import find_environment

if TYPE_CHECKING:
    from retention_assets.environment import Environment
    from retention_assets.ledger.scans import ScanRecord
    from retention_assets.operations.scans import ExportRequest


@examples(
    "retention scans",
    "retention scans blobs accept 12 -r 'the prefix moved'",
    "retention scans blobs export --realm acme --to acme-objects",
)
@click.command()
@click.argument("store", required=False)
@click.argument("action", required=False, type=click.Choice(["accept", "export"]), metavar="[accept|export]")
@click.argument("scan", required=False, type=click.IntRange(min=1))
@click.option("-r", "--reason", help="Why a braked scan may mark: the record keeps it.")
@click.option("--realm", metavar="NAME", help="Export only this realm and what is below it.")
@click.option("--all", "everything", is_flag=True, help="Export every object with its class, and not what is retained alone.")
@click.option("--to", type=NonEmptyText(), metavar="FOLDER", help="Export Parquet files into this new folder.")
@ACTOR
@FORMAT
def scans(
    store: str | None,
    action: str | None,
    scan: int | None,
    reason: str | None,
    realm: str | None,
    everything: bool,
    to: str | None,
    actor: str,
    format_: str,
) -> None:
    """List the scans of stores of objects, accept a braked one, or export what one has found.

    Without an action the newest scans of STORE are listed, or those of all stores.

    A scan is braked when its numbers look odd. Nothing of it is marked until `accept SCAN` lets the next run judge it; a newer
    scan takes its place otherwise. `export` writes object, realm, kind, size and witness of what is retained. It is about the
    last whole scan, or about SCAN as long as its listing is kept.
    """
    if action != "export" and (realm is not None or everything or to is not None):
        raise click.UsageError("--realm, --all and --to say what is exported: retention scans STORE export --to FOLDER.")
    if action != "accept" and reason is not None:
        raise click.UsageError("--reason says why a scan is accepted: retention scans STORE accept SCAN --reason TEXT.")
    environment = find_environment()
    if action is None:
        _list(environment, store, format_)
    elif action == "accept":
        if scan is None or reason is None:
            raise click.UsageError("To accept a scan, name it and say why: retention scans STORE accept SCAN --reason TEXT.")
        _accept(environment, store or "", scan, reason, actor, format_)
    else:
        if to is None:
            raise click.UsageError("To export a scan, say where: retention scans STORE export --to FOLDER.")
        from retention_assets.operations.scans import ExportRequest

        request = ExportRequest(store=store or "", scan=scan, realm=realm, everything=everything, to=to)
        _export(environment, request, format_)


def _list(environment: "Environment", store: str | None, format_: str) -> None:
    from retention_assets.operations.scans import detailed, list_scans

    found = list_scans(environment, store)
    if format_ == "json":
        print_rows(detailed(environment, found))
        return
    from retention_assets.render.ledger_tables import scan_table

    print_tables([scan_table(found)])
    newest: dict[str, ScanRecord] = {}
    for one in found:
        if one.ended_at and one.status != "superseded":
            newest.setdefault(one.store, one)
    for one in newest.values():
        if one.status == "braked" and one.accepted_at is None:
            say_next(f"`retention scans {quote(one.store)} accept {one.id} -r …` lets it mark.")


def _accept(environment: "Environment", store: str, scan: int, reason: str, actor: str, format_: str) -> None:
    from retention_assets.operations.scans import AcceptScanRequest, accept_scan, scan_dict

    accepted = accept_scan(AcceptScanRequest(actor=actor, reason=reason, store=store, scan=scan), environment)
    if format_ == "json":
        print_json(scan_dict(accepted))
        return
    echo(f"Scan {accepted.id} of {accepted.store} is accepted, though {accepted.reason}.")
    say_next("the next `retention run` judges it, and marks what its policies select.")


def _export(environment: "Environment", request: "ExportRequest", format_: str) -> None:
    from retention_assets.operations.scans import export_scan

    with progress("writing what the scan found"):
        done = export_scan(request, environment)
    if format_ == "json":
        print_json(done.as_dict())
        return
    echo(f"{done.objects:,} objects of scan {done.scan} of {done.store}, in {done.files:,} files in {done.folder}.")
    if done.without_witness:
        say(f"{done.without_witness:,} of them were referred to when they were scanned, and nothing refers to them any more.")

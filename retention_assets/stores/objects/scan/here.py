"""Runs a scan in this process and a temporary folder: for small stores, explanations and dry runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from retention_assets.stores.objects.scan.folder import ScanFolder
from retention_assets.stores.objects.scan.log_lines import log_lines
from retention_assets.stores.objects.scan.scan import Scan, scan_in
from retention_assets.stores.objects.scan_result import ScanResult
from retention_assets.stores.tasks import TasksHere
from retention_assets.stores.temporary import temporary_folder


@contextmanager
def scan_here(
    scan: Scan, last: ScanResult | None = None, refused: int | None = None
) -> Iterator[tuple[ScanResult, ScanFolder]]:
    """Scan a store: the result, and its folder, which exists as long as the context."""
    with temporary_folder("scan") as place:
        folder = ScanFolder(place)
        yield scan_in(TasksHere(), scan, folder, last, refused), folder


def read_here(scan: Scan, datasets: Sequence[str], last: ScanResult | None = None) -> tuple[ScanResult, pa.Table]:
    with scan_here(scan, last) as (result, folder):
        return result, log_lines(folder, result, scan.settings, datasets)

"""Commits that say that files are being deleted: VACUUM START before the first goes, VACUUM END after the last.

The first takes the number after the version that was judged, and only if it is free: a writer who had read that version and
would bring a file back loses the race, reads again, and finds its file gone or still there.
"""

import json
import uuid
from dataclasses import dataclass
from typing import Any, Literal

from retention_assets import __version__
from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.policy.durations import micros
from retention_assets.stores.delta.folder import LOG, TableFolder
from retention_assets.stores.delta.table import END, ENGINE, START, Table
from retention_assets.stores.places.own_files import add_file
from retention_assets.stores.protocol import error_text


@dataclass
class Announcer:
    folder: TableFolder
    mode: Literal["auto", "always", "never"]
    # version of the commit VACUUM START, once it was added
    begun_at: int | None = None

    def start(self, table: Table, files: int, size: int) -> bool:
        """Announce a sweep of a table as read; False if its next version is taken. Raises Refused if it can't and must."""
        if self.mode == "never":
            return True
        facts = {"numFilesToDelete": str(files), "sizeOfDataToDelete": str(size)}
        try:
            if not self._add(table, table.newest + 1, START, facts):
                return False
        except OSError as fault:
            if self.mode == "auto":
                return True
            raise Refused(f"the sweep can't be announced in {self.folder.shown}: {error_text(fault)}") from fault
        self.begun_at = table.newest + 1
        return True

    def end(self, table: Table) -> bool:
        """Announce the end of a sweep of a table as read; False if its next version is taken. Raises OSError."""
        return self._add(table, table.newest + 1, END, {"status": "COMPLETED"})

    def _add(self, table: Table, number: int, operation: str, facts: dict[str, str]) -> bool:
        time = micros(now()) // 1000
        info: dict[str, Any] = {
            "timestamp": time, "operation": operation, "operationParameters": {"retentionCheckEnabled": "false"},
            "operationMetrics": facts, "isBlindAppend": True, "engineInfo": f"{ENGINE}/{__version__}",
            "txnId": str(uuid.uuid4()),
        }  # fmt: skip
        if table.has_commit_times:
            info["inCommitTimestamp"] = max(time, micros(table.versions[table.newest].closed_at) // 1000 + 1)
        content = f"{json.dumps({'commitInfo': info})}\n".encode()
        return add_file(f"{self.folder.location}/{LOG}/{number:020}.json", content)

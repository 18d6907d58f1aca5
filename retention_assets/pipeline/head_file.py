"""HEAD.json: the end of the ledger's chain, kept in the warehouse, where an older copy of the ledger does not reach.

Belongs here: reading and writing that file, and holding a ledger against it. It also says whose the warehouse is: another
ledger that finds it removes nothing there.
Does not belong here: the folders of the warehouse (warehouse.py, which needs Spark; this is asked where there is none).
"""

import json
import logging
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from retention_assets.errors import Refused
from retention_assets.ledger.audit.heads import REMEDY, LedgerHead, head_fault, head_of
from retention_assets.ledger.database import LedgerDatabase
from retention_assets.pipeline.file_systems import inside, place_of

NAME = "HEAD.json"
_LOG = logging.getLogger(__name__)
_HASH_LENGTH = 64
# Where an object is there whole or not at all; elsewhere a file is written under another name first.
_WHOLE = ("s3", "gcs", "abfs")


@dataclass(frozen=True)
class HeadFile:
    """The file below the root of a warehouse."""

    root: str

    @property
    def path(self) -> str:
        """Where it is."""
        return inside(self.root, NAME)

    def read(self) -> LedgerHead | None:
        """What was noted, or none where nothing ever was; refused where nobody can say."""
        try:
            files, place = place_of(self.path)
            if files.get_file_info(place).type is pafs.FileType.NotFound:
                return None
            with files.open_input_stream(place) as stream:
                text = stream.read()
        except (OSError, pa.ArrowException) as fault:
            raise Refused(
                f"{self.path} can't be read: {fault}. Mend the access to the warehouse; nothing is swept before."
            ) from None
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        match found:
            case {"ledger": str(ledger), "position": int(position), "hash": str(digest)} if len(digest) == _HASH_LENGTH:
                return LedgerHead(ledger, position, digest)
        raise Refused(
            f"{self.path} is damaged: it names no end of a record, so nobody knows whether this ledger is the newest. {REMEDY}"
        )

    def write(self, head: LedgerHead) -> None:
        """Note a head, at once or not at all."""
        data = (json.dumps(asdict(head)) + "\n").encode()
        files, place = place_of(self.path)
        files.create_dir(place.rpartition("/")[0], recursive=True)
        if isinstance(files, pafs.LocalFileSystem):
            _replace(Path(place), data)
            return
        target = place if files.type_name in _WHOLE else f"{place}.{secrets.token_hex(8)}"
        with files.open_output_stream(target) as stream:
            stream.write(data)
        if target != place:
            files.move(target, place)

    def note(self, database: LedgerDatabase) -> None:
        """Note where the chain of a ledger ends now. What can't be noted is told: it undoes nothing.

        A note that the chain does not hold stays: it is what shows that the ledger is not the newest.
        """
        try:
            noted = self.read()
            with database.reading() as connection:
                present = head_of(connection)
                fault = head_fault(connection, noted, self.path) if noted else None
            if fault:
                _LOG.warning("%s It was left as it is.", fault)
            elif noted is None or noted.position < present.position:
                self.write(present)
        except (OSError, pa.ArrowException, Refused) as fault:
            _LOG.warning("The end of the record was not noted in %s: %s. What was recorded stands.", self.path, fault)

    def check(self, database: LedgerDatabase) -> None:
        """Refuse a ledger that does not hold what was noted. Where nothing ever was, there is nothing to hold."""
        noted = self.read()
        if noted is None:
            return
        with database.reading() as connection:
            fault = head_fault(connection, noted, self.path)
        if fault:
            raise Refused(fault)

    def check_owner(self, database: LedgerDatabase) -> None:
        """Refuse a warehouse that belongs to another ledger."""
        noted = self.read()
        with database.reading() as connection:
            present = head_of(connection)
            fault = head_fault(connection, noted, self.path) if noted and noted.ledger != present.ledger else None
        if fault:
            raise Refused(f"Nothing is written or removed there: {fault}")


def _replace(file: Path, data: bytes) -> None:
    """Under another name first, and on the disk before it has its own."""
    new = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    with new.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(new, file)

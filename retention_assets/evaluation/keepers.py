"""Keepers in force: holds and retain rules of policy files, of the ledger's record of files, of people and of purged realms.

Each question reads the policy files and the ledger anew: what protects counts as it is when something is about to go.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Self

from retention_assets.ledger import Ledger
from retention_assets.ledger.book import RecordedKeepers
from retention_assets.policy.language import Policies, load_policies
from retention_assets.policy.model import Keeper
from retention_assets.settings.model import Settings
from retention_assets.settings.yaml import yaml_files


@dataclass(frozen=True)
class Keepers:
    """Answers what is held or retained at an instant. Raises BadInput while a policy file is broken."""

    ledger: Ledger | None
    # holds and retain rules in the policy files as they are at the call
    in_files: Callable[[], Sequence[Keeper]] = tuple
    # Folders of `in_files`: recorded keepers of these folders alone do not count. None: all recorded ones count.
    folders: frozenset[str] | None = None
    # they count even if their files change: nothing here reads these
    kept: tuple[Keeper, ...] = ()

    @classmethod
    def of_settings(cls, ledger: Ledger | None, settings: Settings) -> Self:
        """Go by the policy files of the settings, if there are any, and by the recorded keepers of other folders."""
        folders = frozenset(folders_of_policies(settings))
        return cls(ledger, lambda: read_policies(settings).holds if files_of(settings) else (), folders)

    @classmethod
    def of_run(cls, ledger: Ledger, settings: Settings, kept: Sequence[Keeper]) -> Self:
        """Also count `kept`, whatever becomes of its files. Raises BadInput when the policies of the settings are gone."""
        return cls(ledger, lambda: read_policies(settings).holds, frozenset(folders_of_policies(settings)), tuple(kept))

    def in_force(self, as_of: datetime, in_purged_realms: bool = True) -> tuple[Keeper, ...]:
        """List the holds and retain rules in force at an instant; those of PURGED realms hold whatever appears there."""
        recorded = self.ledger.holds.recorded(as_of) if self.ledger else RecordedKeepers()
        others = [row.keeper for row in recorded.files if self.folders is None or not row.folders <= self.folders]
        keepers = list(self.in_files())
        keepers += [keeper for keeper in (*self.kept, *others) if keeper not in keepers]
        keepers += [*recorded.placed, *(recorded.purged if in_purged_realms else ())]
        return tuple(keeper for keeper in keepers if keeper.is_live(as_of))


def files_of(settings: Settings) -> list[Path]:
    return [file for path in settings.policies if path.exists() for file in yaml_files(path)]


def folders_of_policies(settings: Settings) -> list[str]:
    """Folders of the policies, as the record stores them."""
    return [str(path.resolve()) for path in settings.policies]


class _Parsed(NamedTuple):
    settings: Settings
    digest: str
    policies: Policies


# read last in this program
_last: _Parsed | None = None


def read_policies(settings: Settings, paths: Sequence[Path] = ()) -> Policies:
    """Read the policies of the settings, or those of some paths, which may be about stores that the settings lack.

    Files of the settings are parsed again only when they have changed.
    """
    global _last
    digest = None if paths else _digest_of(settings.policies)
    if _last and (_last.digest, _last.settings) == (digest, settings):
        return _last.policies
    stores = None if paths else settings.branches
    policies = load_policies(
        paths or settings.policies, stores, settings.needing_grace, settings.branches, settings.undo_faults
    )
    # not remembered if a file changed while it was parsed
    if digest is not None and digest == _digest_of(settings.policies):
        _last = _Parsed(settings, digest, policies)
    return policies


def _digest_of(paths: Sequence[Path]) -> str | None:
    # None where a file can't be read: loading says why
    digest = hashlib.sha256()
    try:
        for file in (file for path in paths for file in (path, *yaml_files(path))):
            digest.update(repr((str(file), file.read_bytes() if file.is_file() else file.exists())).encode())
    except OSError:
        return None
    return digest.hexdigest()

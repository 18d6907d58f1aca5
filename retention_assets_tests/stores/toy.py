"""A kind of store as a package outside brings it: a folder with one log and, for each transaction, one file."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa

from retention_assets.errors import Withheld
from retention_assets.exchange import datasets_in, read_file
from retention_assets.frames import LINES
from retention_assets.outcomes import Outcome
from retention_assets.settings.places import LocalPath
from retention_assets.stores.protocol import Only, Permit, PreparedTarget, Store, SweptTarget, Target, always
from retention_assets.stores.registry import StoreKind
from retention_assets.stores.settings import StoreSettings


class ToySettings(StoreSettings):
    kind: Literal["toy"] = "toy"
    root: LocalPath

    @property
    def data_root(self) -> str:
        return str(self.root)


class ToyStore(Store):
    settings: ToySettings

    @property
    def log(self) -> Path:
        return self.settings.root / "log.jsonl"

    def datasets(self) -> list[str]:
        return sorted(datasets_in(self.log))

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:  # noqa: ARG002 - it is read whole
        return read_file(self.log, datasets) if datasets else LINES.empty_table()

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        return dict.fromkeys(set(datasets) & set(self.datasets()), hashlib.sha256(self.log.read_bytes()).hexdigest())

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        found = {name: self._file(dataset, name) for name in transactions}
        return [PreparedTarget(name, file.stat().st_size if file.is_file() else 0) for name, file in found.items()]

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:  # noqa: ARG002 - one after the other
        return [self._delete(target.transaction, self._file(dataset, target.transaction), permit) for target in targets]

    def _delete(self, transaction: str, file: Path, permit: Permit) -> SweptTarget:
        try:
            permit()
            size = file.stat().st_size
            file.unlink()
        except Withheld as fault:
            return SweptTarget(transaction, Outcome.WITHHELD, error=str(fault))
        except FileNotFoundError:
            return SweptTarget(transaction, Outcome.ALREADY_GONE)
        except OSError as fault:
            return SweptTarget(transaction, Outcome.FAILED, error=str(fault))
        return SweptTarget(transaction, Outcome.DELETED, size)

    def _file(self, dataset: str, transaction: str) -> Path:
        return self.settings.root / dataset.partition("/")[2] / transaction


KIND = StoreKind("toy", ToySettings, ToyStore)

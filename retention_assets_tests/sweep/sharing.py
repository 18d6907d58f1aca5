"""A lake's store as if its transactions shared their files: it takes what was swept, and answers for some as a test says."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Policy
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.protocol import Permit, PreparedTarget, Remains, StoreFailed, SweptTarget, Target, always

__all__ = ["FilesStore", "SharingFiles", "kept", "sharing"]

Told = tuple[str, tuple[str, ...], tuple[str, ...]]


def kept(transaction: str, by: str = "S6") -> SweptTarget:
    why = f"version {transaction} can still be read: version {by} needs all of its files"
    return SweptTarget(transaction, Outcome.KEPT_READABLE, error=why)


class SharingFiles(FilesStore):
    # to orders to delete, by transaction
    answers: ClassVar[dict[str, SweptTarget]] = {}
    # each question and order, with the deleted ones and those set aside of which it was told right before
    told: ClassVar[list[Told]] = []
    fails: ClassVar[bool] = False
    _swept: ClassVar[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {}

    def know_swept(self, dataset: str, deleted: Collection[str], aside: Collection[str]) -> None:
        if self.fails:
            raise StoreFailed("the log can't be read")
        self._swept[dataset] = tuple(sorted(deleted)), tuple(sorted(aside))

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        self._note("prepare", dataset)
        prepared = super().prepare(dataset, transactions)
        return [replace(each, bytes=0, kept_readable=True) if each.transaction in self.answers else each for each in prepared]

    def carry_out(
        self, order: Order, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        self._note(order.value, dataset)
        answers = self.answers if order.deletes else {}
        going = [target for target in targets if target.transaction not in answers]
        given = [answers[target.transaction] for target in targets if target.transaction in answers]
        return [*given, *super().carry_out(order, dataset, going, parallelism, permit)]

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        self._note("remains", dataset)
        return super().remains(dataset, targets)

    def explain_needs(self, dataset: str, transaction: str) -> list[str]:
        self._note("explain", dataset)
        return [str(self.answers[transaction].error)]

    def policy_warnings(self, policies: Sequence[Policy]) -> list[str]:
        if self.fails:
            raise StoreFailed("the log can't be read")
        return [f"readers refuse what {policy.name} promises" for policy in policies]

    def _note(self, question: str, dataset: str) -> None:
        self.told.append((question, *self._swept.pop(dataset)))


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> type[SharingFiles]:
    """All stores of kind `files` share; S2 and S3 are needed by S6."""
    monkeypatch.setattr("retention_assets.environment.open_store", SharingFiles)
    for name, value in {"answers": {"S2": kept("S2"), "S3": kept("S3")}, "told": [], "_swept": {}, "fails": False}.items():
        monkeypatch.setattr(SharingFiles, name, value)
    return SharingFiles

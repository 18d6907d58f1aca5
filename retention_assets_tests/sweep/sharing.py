"""A lake's store as if its transactions shared their files: it takes what was swept, and answers for some as a test says."""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

import pytest

from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Policy
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.protocol import Permit, PreparedTarget, Remains, StoreFailed, SweptTarget, Target, always

__all__ = ["FilesStore", "SharingFiles", "needed", "sharing"]

Told = tuple[str, tuple[str, ...], tuple[str, ...]]
Names = tuple[str, ...]


def needed(transaction: str, by: str = "S6") -> SweptTarget:
    return SweptTarget(transaction, Outcome.SPARED, error=f"Nothing would go with it: version {by} needs all of its files.")


class SharingFiles(FilesStore):
    shares_data = True
    # to orders to delete, by transaction
    answers: ClassVar[dict[str, SweptTarget]] = {}
    # each question and order, with the deleted ones and those set aside of which it was told right before
    told: ClassVar[list[Told]] = []
    fails: ClassVar[bool] = False
    # answers of the second reader, and of the store about what is set aside
    faults: ClassVar[dict[str, str]] = {}
    wanted: ClassVar[dict[str, str]] = {}
    # of the swept ones, those that a hold or a retain rule names
    kept: ClassVar[list[Names]] = []
    _swept: ClassVar[dict[str, tuple[Names, Names]]] = {}

    def know_swept(self, dataset: str, deleted: Collection[str], aside: Collection[str], kept: Collection[str]) -> None:
        if self.fails:
            raise StoreFailed("the log can't be read")
        self._swept[dataset] = tuple(sorted(deleted)), tuple(sorted(aside))
        self.kept.append(tuple(sorted(kept)))

    def check_needs(self, dataset: str, going: Sequence[str], retained: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        return {name: why for name, why in self.faults.items() if name in going}

    def wanted_again(self, dataset: str, transactions: Collection[str]) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        return {name: why for name, why in self.wanted.items() if name in transactions}

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        self._note("prepare", dataset)
        return super().prepare(dataset, transactions)

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
        self.told.append((question, *self._swept[dataset]))


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> type[SharingFiles]:
    """All stores of kind `files` share; S2 and S3 are needed by S6."""
    monkeypatch.setattr("retention_assets.environment.open_store", SharingFiles)
    answers = {"S2": needed("S2"), "S3": needed("S3")}
    state = {"answers": answers, "told": [], "_swept": {}, "fails": False, "faults": {}, "wanted": {}, "kept": []}
    for name, value in state.items():
        monkeypatch.setattr(SharingFiles, name, value)
    return SharingFiles

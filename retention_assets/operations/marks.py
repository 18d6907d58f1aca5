"""Take marks back while there is time."""

from dataclasses import dataclass

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.ledger.marks.unmarking import UnmarkResult
from retention_assets.operations.request import ReasonedRequest


@dataclass(frozen=True, kw_only=True)
class UnmarkRequest(ReasonedRequest):
    """Marks of some transactions of a dataset (all of them or none), or all of a dataset, of a policy, or of both."""

    dataset: str | None = None
    transactions: tuple[str, ...] = ()
    policy: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.transactions and (self.policy or not self.dataset):
            expected = "a dataset and no policy beside them"
            raise BadInput(Problem("are named by their dataset", key="transactions", expected=expected))


def unmark(request: UnmarkRequest, environment: Environment) -> UnmarkResult:
    """Take the marks back."""
    with environment.existing_ledger() as ledger:
        if request.dataset and request.transactions:
            return ledger.unmark.transactions(request.dataset, request.transactions, request.actor, request.reason)
        return ledger.unmark.all_of(request.actor, request.reason, request.dataset, request.policy)

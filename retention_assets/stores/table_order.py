"""The frame of an order about one table: look, decide per target, commit or announce, act, settle."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from retention_assets.errors import Refused, Withheld
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.protocol import Permit, SweptTarget, Target, error_text

ATTEMPTS = 5


@dataclass
class TableOrder(ABC):
    """An order about one table. Its targets are in `going` until they have an outcome."""

    order: Order
    permit: Permit
    outcomes: dict[str, SweptTarget] = field(default_factory=dict, init=False)
    going: dict[Any, Any] = field(default_factory=dict, init=False)
    # targets may have moved already, by this order or an earlier one
    in_doubt: bool = field(default=False, init=False)

    def run(self, targets: Sequence[Target]) -> list[SweptTarget]:
        # all targets: a fault may come before they are in `going`
        names = [target.transaction for target in targets]
        self.in_doubt = any(target.begun_earlier for target in targets)
        try:
            for _ in range(ATTEMPTS):
                if not self.decide(targets) or self.commit():
                    break
            else:
                self.give_up()
            if self.going:
                self.act()
        except Withheld as fault:
            self.settle(names, Outcome.WITHHELD, str(fault))
        # drivers have exceptions of their own
        except Exception as fault:  # noqa: BLE001
            self.settle(names, self.order.failed(self.in_doubt), self.why(fault))
        return [self.outcomes[name] for name in names]

    @abstractmethod
    def decide(self, targets: Sequence[Target]) -> bool:
        """Look at the table as it is now; settle what is gone and what must stay. True if the rest goes by a commit."""

    @abstractmethod
    def commit(self) -> bool:
        """Say in the table what goes. False if another writer was first: then it is looked at again."""

    @abstractmethod
    def act(self) -> None:
        """Move or delete what is going, and settle it."""

    def give_up(self) -> None:
        """End the attempts to commit."""
        raise Refused(f"other writers committed during each of {ATTEMPTS} attempts; the next sweep tries again")

    def why(self, fault: Exception) -> str:
        return error_text(fault)

    def settle(self, names: Iterable[str], outcome: Outcome, error: str | None = None, size: int = 0, left: int = 0) -> None:
        """Give targets their outcome. The first one stands: a later fault of all does not change it."""
        for name in names:
            self.outcomes.setdefault(name, SweptTarget(name, outcome, size, error, left=left))

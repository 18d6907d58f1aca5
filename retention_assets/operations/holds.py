"""Holds: placing one, so that nothing it holds is marked or swept, and releasing it.

Belongs here: what makes a hold from what somebody typed, and what to say of one that holds nothing or stands in a file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, nearest
from retention_assets.evaluation.rules_in_force import files_of, read_policies
from retention_assets.operations.request import NamedRequest
from retention_assets.policy.durations import text_of
from retention_assets.policy.errors import problems_of
from retention_assets.policy.globs import is_literal
from retention_assets.policy.model import Hold
from retention_assets.settings.model import Settings
from retention_assets.settings.yaml import Document


@dataclass(frozen=True, kw_only=True)
class HoldRequest(NamedRequest):
    """A hold as somebody asks for it at an instant. `owner` answers for it: the actor if left out."""

    datasets: tuple[str, ...]
    transactions: tuple[str, ...] = ()
    owner: str | None = None
    until: datetime | None = None
    at: datetime

    def hold(self) -> Hold:
        """The hold, or BadInput with every fault of it."""
        if self.until is not None and self.until <= self.at:
            raise BadInput(Problem("is past", key="until", value=text_of(self.until), expected="an instant to come"))
        typed = {
            "name": self.name,
            "datasets": {"include": list(self.datasets)},
            **({"transactions": list(self.transactions)} if self.transactions else {}),
            "reason": self.reason,
            "owner": self.owner or self.actor,
            **({"until": text_of(self.until)} if self.until else {}),
        }
        try:
            return Hold.model_validate(typed)
        except ValidationError as error:
            raise BadInput(problems_of(error, Document("hold", typed, {}), Hold)) from None


@dataclass(frozen=True)
class HoldResult:
    """The hold that was placed, and what its owner should know of it."""

    hold: Hold
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """As `--format json` prints it."""
        return hold_row(self.hold, "ledger")


def hold_row(hold: Hold, source: str) -> dict[str, Any]:
    """A hold and where it was found, as `--format json` prints it."""
    return {
        "name": hold.name,
        "source": source,
        "datasets": hold.datasets.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "transactions": hold.transactions,
        "reason": hold.reason,
        "owner": hold.owner,
        "until": hold.until,
    }


def place_hold(request: HoldRequest, environment: Environment) -> HoldResult:
    """Place a hold."""
    hold = request.hold()
    with environment.ledger() as ledger:
        ledger.holds.place(hold, request.actor)
    return HoldResult(hold, tuple(_unknown_stores(hold, environment.settings)))


def _unknown_stores(hold: Hold, settings: Settings) -> Iterator[str]:
    """A hold on a store that is not there holds nothing; but a team's ledger may know more stores than these settings."""
    known = [store.name for store in settings.stores]
    for glob in hold.datasets.include:
        store, slash, _ = glob.partition("/")
        if slash and is_literal(store) and store not in known:
            guess = nearest(store, known)
            yield f"store '{store}' of '{glob}' is not in the settings." + (f" Did you mean {guess}?" if guess else "")


@dataclass(frozen=True)
class ReleaseResult:
    """Which hold is over, and who released it why."""

    name: str
    released_by: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """As `--format json` prints it."""
        return dict(vars(self))


def release_hold(request: NamedRequest, environment: Environment) -> ReleaseResult:
    """Release a hold of the ledger. One of a policy file is released by taking it out of the file."""
    try:
        with environment.existing_ledger() as ledger:
            ledger.holds.release(request.name, request.actor, request.reason)
    except Refused:
        if _is_in_files(request.name, environment.settings):
            raise Refused(
                f"The hold {request.name} stands in a policy file: it is released by taking it out of the file."
            ) from None
        raise
    return ReleaseResult(request.name, request.actor, request.reason)


def _is_in_files(name: str, settings: Settings) -> bool:
    return bool(files_of(settings)) and any(hold.name == name for hold in read_policies(settings).holds)

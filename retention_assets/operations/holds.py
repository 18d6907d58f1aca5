"""Place a hold, so that nothing it covers is marked or swept, and release it.

A hold is placed first and checked afterwards: the last verdicts may be old.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, nearest
from retention_assets.evaluation.rules_in_force import files_of, read_policies
from retention_assets.frames.grouping import holds_dataset
from retention_assets.ledger import Ledger
from retention_assets.operations.request import NamedRequest
from retention_assets.pipeline.stage import read_output
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.durations import text_of
from retention_assets.policy.errors import problems_of
from retention_assets.policy.fields import Glob
from retention_assets.policy.globs import is_literal, protecting
from retention_assets.policy.model import Hold
from retention_assets.settings.model import Settings
from retention_assets.settings.yaml import Document


@dataclass(frozen=True, kw_only=True)
class HoldRequest(NamedRequest):
    """Hold as somebody asks for it. `owner` answers for it: the actor if left out."""

    datasets: tuple[str, ...]
    transactions: tuple[str, ...] = ()
    owner: str | None = None
    until: datetime | None = None
    at: datetime

    def hold(self) -> Hold:
        """Build the hold, or raise BadInput with every fault."""
        if self.until is not None and self.until <= self.at:
            raise BadInput(
                Problem("is past", key="until", value=text_of(self.until), expected="an instant to come, such as 'in 30d'")
            )
        typed = {
            "name": self.name,
            "datasets": {"include": _globs_of(self.datasets)},
            **({"transactions": _globs_of(self.transactions)} if self.transactions else {}),
            "reason": self.reason,
            "owner": self.owner or self.actor,
            **({"until": text_of(self.until)} if self.until else {}),
        }
        try:
            return Hold.model_validate(typed)
        except ValidationError as error:
            raise BadInput(problems_of(error, Document("hold", typed, {}), Hold)) from None


_GLOBS = TypeAdapter(Glob)


def _globs_of(texts: Sequence[str]) -> list[str]:
    """Invalid globs are taken for names; a character that no glob may have becomes `?`, and both readings are meant: a hold
    may only become wider.
    """
    found: list[str] = []
    for text in texts:
        if _is_glob(text):
            found.append(text)
        else:
            found += [glob for glob in (_with_any_signs(text), _with_any_signs(escape_glob(text))) if _is_glob(glob)] or [text]
    return found


def _is_glob(text: str) -> bool:
    try:
        _GLOBS.validate_python(text)
    except ValidationError:
        return False
    return True


def _with_any_signs(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)


@dataclass(frozen=True)
class HoldReach:
    """Transactions of the last evaluation that a hold covers; unknown where nothing was judged yet. `sweeping` are those
    being swept right now, by datasets.
    """

    name: str
    datasets: int | None
    transactions: int | None
    sweeping: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "sweeping": list(self.sweeping)}

    @property
    def is_empty(self) -> bool:
        """Something was judged, and the hold covers none of it."""
        return self.transactions == 0

    def words(self) -> tuple[str, ...]:
        if self.datasets is None:
            found = "Nothing was judged yet, so nobody can say how much this hold is about. It is placed."
        elif self.is_empty:
            found = (
                f"This hold is about {self.datasets:,} datasets and none of the transactions of the last evaluation. It is"
                " placed; check its names."
            )
        else:
            return _sweeping(self.sweeping)
        return (found, *_sweeping(self.sweeping))


def _sweeping(datasets: Sequence[str]) -> tuple[str, ...]:
    if not datasets:
        return ()
    some = ", ".join(datasets)
    return (f"{some}: being swept right now. The hold stops it before its next batch; what went before is gone.",)


@dataclass(frozen=True)
class HoldResult:
    """Placed hold, and what its owner should know."""

    hold: Hold
    reach: HoldReach
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {**hold_row(self.hold, "ledger"), **self.reach.as_dict()}


def hold_row(hold: Hold, source: str) -> dict[str, Any]:
    """`scope` shows in globs what the hold covers."""
    datasets = hold.datasets.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {
        "name": hold.name,
        "source": source,
        "scope": {"datasets": datasets, "transactions": hold.transactions},
        "reason": hold.reason,
        "owner": hold.owner,
        "until": hold.until,
    }


def place_hold(request: HoldRequest, environment: Environment) -> HoldResult:
    """Place a hold, and say how much it covers."""
    hold = request.hold()
    with environment.ledger() as ledger:
        ledger.holds.place(hold, request.actor)
        reach = hold_reach(hold, ledger)
    return HoldResult(hold, reach, (*_unknown_stores(hold, environment.settings), *reach.words()))


def hold_reach(hold: Hold, ledger: Ledger) -> HoldReach:
    """Count what a hold covers in the last evaluation."""
    folders = ledger.publications.named("candidate_marks")
    sweeping = tuple(one.dataset for one in ledger.leases.held() if _is_about(hold, one.dataset))
    mine = {name: folder for name, folder in folders.items() if _is_about(hold, name)}
    if not folders:
        return HoldReach(hold.name or "", None, None, sweeping)
    return HoldReach(hold.name or "", len(mine), _count(hold, mine, ledger), sweeping)


def _is_about(hold: Hold, dataset: str) -> bool:
    # A hold that a person places asks for no attributes.
    return holds_dataset(hold, dataset, {})


def _count(hold: Hold, folders: Mapping[str, str], ledger: Ledger) -> int:
    """Count verdicts; marks where a folder can't be read."""
    by_folder: dict[str, list[str]] = {}
    for dataset, folder in folders.items():
        by_folder.setdefault(folder, []).append(dataset)
    total = 0
    for folder, datasets in by_folder.items():
        try:
            rows = read_output(folder, "candidate_marks", datasets, ["transaction"])
        except (OSError, pa.ArrowInvalid):
            rows = ledger.marks.table(datasets)
        total += len(rows) if hold.transactions is None else sum(protecting(rows["transaction"].to_pylist(), hold.transactions))
    return total


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
    """Released hold, who released it and why."""

    name: str
    released_by: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
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

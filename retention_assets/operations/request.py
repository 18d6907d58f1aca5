"""Base of every request: actor and reason. The audit keeps both for ever, so neither may be empty."""

from dataclasses import dataclass

from retention_assets.errors import BadInput, Problem

_SYSTEM = "::"
_WHY = "The record keeps who did what, and why."


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request of a person or a run."""

    actor: str

    def __post_init__(self) -> None:
        self._strip("actor", "a name")
        if self.actor.startswith(_SYSTEM):
            what = f"begins with {_SYSTEM}, as only the system's names do"
            raise BadInput(Problem(what, key="actor", value=f"'{self.actor}'"))

    def _strip(self, key: str, expected: str) -> None:
        text = getattr(self, key).strip()
        if not text:
            raise BadInput(Problem("is empty", key=key, expected=expected, remedy=_WHY))
        object.__setattr__(self, key, text)


@dataclass(frozen=True, kw_only=True)
class ReasonedRequest(Request):
    """Request that needs a reason, because it changes what is kept or deleted."""

    reason: str

    def __post_init__(self) -> None:
        self._strip("reason", "some words")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class NamedRequest(ReasonedRequest):
    """Request about something with a name: a hold, an entry of the policy book."""

    name: str

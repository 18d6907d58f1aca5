"""Forms of the launchpad as typed configurations: that of the step of all assets, and those made from requests of people.

Dagster's own types of texts and numbers take `{env: NAME}`, which would put the server's variable into the record. The types
of these forms take only what is typed.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import dagster as dg
from pydantic import Field, SkipValidation, create_model

from retention_assets.clock import now
from retention_assets.errors import BadInput, Problem, quote
from retention_assets.people.operation import Only, Operation, RecordedRequest, RequestField, fields_of
from retention_assets.policy.durations import EXPECTED_MOMENT, parse_moment

if TYPE_CHECKING:
    Text: TypeAlias = str
    Flag: TypeAlias = bool
    Number: TypeAlias = int
else:
    # the types of Dagster's older schemas, which are no sources
    Text, Flag, Number = (Annotated[dg.Field(kind).config_type, SkipValidation()] for kind in (str, bool, int))

_INSTANT = "An instant, such as 2026-03-01, or 7d for 7 days before the launch; now by default."
_ACTOR = "Your name for the record, such as ann. Dagster's user and run are recorded beside it."


class StepConfig(dg.Config):
    """Instant and datasets of a run, and consent to a large sweep."""

    as_of: Text = Field(default="", description=_INSTANT)
    datasets: list[Text] = Field(
        default=["*"], description="Globs over store/name, such as 'lake/raw.*'. A dataset matches if one of them does."
    )
    accept_large: Flag = Field(
        default=False,
        description="Sweep even if far more would go than on any of the last 30 days, which the `brake` of the settings stops.",
    )

    def given(self, run_made_at: Callable[[], datetime] = now) -> datetime | None:
        """The instant, if one was given. Steps say when their run was made, so that all of them find the same one."""
        if not self.as_of:
            return None
        try:
            return parse_moment(self.as_of.strip(), run_made_at())
        except (ValueError, OverflowError) as fault:
            raise BadInput(Problem(str(fault), key="as_of", value=quote(self.as_of), expected=EXPECTED_MOMENT)) from None


def form_of(operation: Operation[Any]) -> type[dg.Config]:
    """Make the form of an operation from the fields of its request. Who acts stands first."""
    fields: dict[str, Any] = {}
    if issubclass(operation.request, RecordedRequest):
        fields["actor"] = (Text, Field(default="", description=_ACTOR))
    fields |= {field.name: _typed(field) for field in _asked(operation)}
    return create_model(f"{operation.name}_form", __base__=dg.Config, **fields)


def given_in(form: dg.Config, operation: Operation[Any]) -> Mapping[str, Any]:
    """Fields that a person has filled in, without the actor."""
    typed = {field: getattr(form, field.name) for field in _asked(operation)}
    # The request itself refuses an empty one that it needs.
    return {field.name: value for field, value in typed.items() if field.required or (value != [] and str(value).strip())}


def _asked(operation: Operation[Any]) -> Iterable[RequestField]:
    return [field for field in fields_of(operation.request) if field.only is not Only.COMMAND]


def _typed(field: RequestField) -> tuple[Any, Any]:
    plain = {bool: Flag, int: Number}.get(field.type, Text)
    kind: Any = field.type if issubclass(field.type, Enum) else plain
    empty = "" if plain is Text else field.type()
    default: Any = list(field.default or ()) if field.many else field.default or empty
    # Dagster refuses to launch a form that lacks a field without a default.
    optional = {} if field.required else {"default": default}
    return (list[kind] if field.many else kind), Field(description=field.help, **optional)

"""Run configuration, as forms that the launchpad shows."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import dagster as dg
from pydantic import Field

from retention_assets.clock import now
from retention_assets.errors import BadInput, Problem, Refused, quote
from retention_assets.policy.durations import EXPECTED_MOMENT, parse_moment

_INSTANT = (
    "An instant with a zone, such as 2026-01-01T00:00:00Z, or one counted from when the run was made: 7d is 7 days before it,"
    " in 7d 7 days after it. Empty is the present."
)


# parts of a run's configuration that are no form
_NOT_FORMS = ("resources", "execution", "loggers")


def refuse_variables(run_config: Mapping[str, Any]) -> None:
    """Refuse a form in which `{env: NAME}` stands for a text: Dagster would put the server's variable into the record."""

    def check(key: str, value: object) -> None:
        if isinstance(value, Mapping) and set(value) == {"env"}:
            raise Refused(
                f"{key} in the form is {{env: {value['env']}}}. A form takes only what is typed, so that no variable of the"
                " server gets into the record: type the text itself."
            )
        items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        for name, part in items:
            check(f"{key}.{name}" if key else str(name), part)

    check("", {name: part for name, part in run_config.items() if name not in _NOT_FORMS})


class AsOfConfig(dg.Config):
    """The instant at which to judge."""

    as_of: str = Field(default="", description=_INSTANT)

    def given(self, run_made_at: Callable[[], datetime] = now) -> datetime | None:
        """The instant, if one was given. Steps say when their run was made, so that all of them find the same one."""
        if not self.as_of:
            return None
        try:
            return parse_moment(self.as_of.strip(), run_made_at())
        except (ValueError, OverflowError) as fault:
            raise BadInput(Problem(str(fault), key="as_of", value=quote(self.as_of), expected=EXPECTED_MOMENT)) from None


class JudgingConfig(AsOfConfig):
    """Instant, and datasets among those of the run's partitions."""

    datasets: list[str] = Field(default=["*"], description="Globs over store/name; any one matches.")


class SweepConfig(JudgingConfig):
    """Instant, datasets and consent of a sweep."""

    accept_large: bool = Field(
        default=False,
        description="Sweep also where far more would go than on any day of the last 30: the settings' `brake` stops that.",
    )


class ListConfig(JudgingConfig):
    """What a job works through, and how much it says on the console."""

    log_level: str = Field(default="INFO", description="DEBUG, INFO, WARNING or ERROR.")


class SweepListConfig(ListConfig, SweepConfig):
    """A list of datasets that a job sweeps."""

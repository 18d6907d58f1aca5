"""The job `forecast`: its form, and what its run shows."""

import json
from pathlib import Path

import dagster as dg
from pydantic import Field

from retention_assets.dagster.operations.operation_job import OperationContext, operation_job
from retention_assets.dagster.run_config import JudgingConfig
from retention_assets.dagster.step import Metadata
from retention_assets.evaluation.forecast import Forecast
from retention_assets.people.forecast import ForecastRequest
from retention_assets.people.forecast import forecast as foresee
from retention_assets.people.operation import Kind
from retention_assets.pipeline.file_systems import inside
from retention_assets.pipeline.stage import write_text
from retention_assets.render.dagster import plot_metadata, table
from retention_assets.render.forecast import ASSUMPTION, forecast_plot, periods_of, summary
from retention_assets.render.svg import strip
from retention_assets.render.text import visible_line

_COUNTS = ("marked", "deleted", "bytes_deleted")


class ForecastForm(JudgingConfig):
    """How far ahead is looked, at which datasets, and under which policies."""

    days: int = Field(default=90, description="How many days ahead, up to 1,000.")
    policies: list[str] = Field(
        default=[],
        description="Files or folders of other policies, such as policies-draft/: each is shown beside the policies in force.",
    )


@operation_job(ForecastForm, Kind.LOOK)
def forecast(context: OperationContext, form: ForecastForm) -> Metadata:
    """Foresee, day by day, what will be stored, marked and deleted, and what it costs.

    Nothing new arrives, and each day has one run.
    """
    request = ForecastRequest(
        days=form.days,
        as_of=form.given(),
        datasets=tuple(form.datasets),
        others=tuple(map(Path, form.policies)),
    )
    found = foresee(request, context.environment)
    for words in found.left_out:
        context.log.warning(words)
    file = inside(context.warehouse.folder(context.names.key("forecast").to_user_string(), context.run_id), "forecast.json")
    write_text(json.dumps(found.as_dict(), ensure_ascii=False, indent=2), file)
    first, last = found.in_force.start, found.in_force.days[-1]
    plot = forecast_plot(found)
    return {
        "summary": dg.MetadataValue.md(_markdown(found)),
        "stored_by_day": dg.MetadataValue.md(strip(plot.title, [part.last.bytes for part in periods_of(found.in_force)])),
        "plot": plot_metadata(plot),
        "bytes_now": first.bytes,
        "bytes_then": last.bytes,
        **{name: found.in_force.total(name) for name in _COUNTS},
        "left_out": len(found.refused) + len(found.away),
        "file": dg.MetadataValue.path(file),
        "days": _days(found),
    }


def _markdown(found: Forecast) -> str:
    """Markdown is safe here: the sentences have only numbers, and file names from the form."""
    said = [summary(one, found.currency) for one in found.sets]
    return "\n\n".join(f"- {visible_line(words)}" for words in [*said, ASSUMPTION, *found.left_out])


def _days(found: Forecast) -> dg.MetadataValue:
    """Few rows for each set of policies. The file has all days."""
    columns = {"policies": "string", "until": "string", **dict.fromkeys((*_COUNTS, "bytes"), "int")}
    money = {"month": "float"} if found.currency else {}
    rows = [
        {
            "policies": one.policies,
            "until": part.last.date.isoformat(),
            **{name: getattr(part, name) for name in _COUNTS},
            "bytes": part.last.bytes,
            "month": part.last.month,
        }
        for one in found.sets
        for part in periods_of(one)
    ]
    meanings = {"bytes": "what is stored then", "month": f"what a month of that costs, in {found.currency}"}
    return table({**columns, **money}, rows, meanings)

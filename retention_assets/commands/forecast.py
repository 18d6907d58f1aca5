"""The command that looks ahead: what storage, marks and deletions will be like.

Belongs here: `forecast`, its options, and how what could not be forecast ends it.
"""

from datetime import datetime
from pathlib import Path

import click

from retention_assets.people.common.options import AS_OF, FORMAT, STRICT, examples
from retention_assets.people.common.output import ExitCode, finish, print_json, progress
from retention_assets.people.common.sources import find_environment


@examples("retention forecast", "retention forecast --days 365 -p other-policies/ -f json")
@click.command()
@click.option("--days", type=click.IntRange(1, 1_000), default=90, show_default=True, help="How many days ahead.")
@click.option(
    "-p", "--policies", "others", type=click.Path(path_type=Path), multiple=True,
    help="Show beside it what this policy file or folder would lead to; may be repeated.",
)  # fmt: skip
@click.option("-d", "--dataset", "globs", multiple=True, metavar="GLOB", help="Only these datasets; may be repeated.")
@AS_OF
@FORMAT
@STRICT
def forecast(
    days: int,
    others: tuple[Path, ...],
    globs: tuple[str, ...],
    as_of: datetime | None,
    format_: str,
    strict: bool,
) -> ExitCode:
    """Foresee, day by day, what will be stored, marked and deleted, and what it costs. Writes nothing, deletes nothing.

    Nothing new arrives, and each day has one run.
    """
    from retention_assets.people.forecast import ForecastRequest, forecast

    request = ForecastRequest(days=days, as_of=as_of, datasets=globs or ("*",), others=others)
    environment = find_environment()
    with progress(f"living through {days:,} days"):
        found = forecast(request, environment)
    if format_ == "json":
        print_json(found.as_dict())
    else:
        from retention_assets.render.forecast import forecast_texts
        from retention_assets.render.terminal import console

        for part in forecast_texts(found):
            console().print(part)
    return finish(failed=found.stores_left_out, refused=found.datasets_left_out, strict=strict)

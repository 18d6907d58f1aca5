"""The command that demonstrates retention on a small environment.

Belongs here: `demo`. What it builds and prints is the demonstration's (retention_assets/demo).
"""

from pathlib import Path

import click

from retention_assets.errors import Refused
from retention_assets.people.common.options import examples
from retention_assets.people.common.output import echo


@examples("retention demo", "retention demo --folder /tmp/demo --build-only")
@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path(".retention/demo"),
    show_default=True,
    help="Build the environment in this folder.",
)
@click.option("--build-only", is_flag=True, help="Build the environment and stop, for `dagster dev`.")
def demo(folder: Path, build_only: bool) -> None:
    """Build a small environment, and show what retention does with it."""
    try:
        if build_only:
            from retention_assets.demo.environment import build_environment

            echo(str(build_environment(folder)))
            return
        from retention_assets.demo.walkthrough import demo as show
        from retention_assets.render.terminal import console

        show(folder, console(markup=True))
    except FileExistsError as fault:
        raise Refused(str(fault)) from None

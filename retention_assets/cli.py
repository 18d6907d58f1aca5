"""The command line: `retention …`.

Belongs here: the group, the registration of its commands, and the exit codes: 0 is done, 1 is refused or failed, 2 is bad
input. What a command does is in its module (retention_assets/commands).
"""

import os
import sys
import warnings
from typing import NoReturn

import click

from retention_assets import __version__
from retention_assets.commands.demo import demo
from retention_assets.commands.evaluation import compare, explain, preview, schema, validate
from retention_assets.commands.history import history
from retention_assets.commands.holds import hold, release
from retention_assets.commands.housekeeping import housekeeping
from retention_assets.commands.ledger import audit, clock
from retention_assets.commands.marks import marks, unmark
from retention_assets.commands.policies import policies
from retention_assets.commands.realms import realm
from retention_assets.commands.report import report
from retention_assets.commands.run import run
from retention_assets.commands.visibility import advance, as_of
from retention_assets.errors import BadInput, Problem, Refused

COMMANDS: tuple[click.Command, ...] = (
    demo, run, report, validate, schema, preview, compare, explain, marks, unmark, history, hold, release, realm, advance,
    as_of, policies, clock, audit, housekeeping,
)  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="retention")
def retention() -> None:
    """Retention for versioned data: mark, wait, check again, sweep, report."""


for command in COMMANDS:
    retention.add_command(command)


def main() -> NoReturn:
    """The console script. Every problem becomes a line on stderr and an exit code."""
    # Dagster warns of what may change in a minor release. The pins admit one, so nobody can do anything about it.
    warnings.filterwarnings("ignore", message=".* is currently in (beta|preview)")
    try:
        retention.main(standalone_mode=False)
    except BadInput as fault:
        _print_problems(fault.problems)
        sys.exit(2)
    except Refused as fault:
        click.echo(str(fault), err=True)
        sys.exit(1)
    except click.ClickException as fault:
        fault.show()
        sys.exit(fault.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except OSError as fault:
        # Most likely a full disk below stdout. What is still buffered goes nowhere, instead of failing again at the exit.
        click.echo(f"cannot go on: {fault}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    sys.exit(0)


def _print_problems(problems: tuple[Problem, ...], most: int = 200) -> None:
    for problem in problems[:most]:
        click.echo(str(problem), err=True)
    if len(problems) > most:
        click.echo(f"… and {len(problems) - most} more problems.", err=True)

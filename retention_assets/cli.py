"""The command line: `retention …`.

Belongs here: the group, the registration of its commands, and what a problem becomes: a sentence and an exit code. What a
command does is in its module (retention_assets/commands); the exit codes are in commands/output.py.
"""

import io
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
from retention_assets.commands.keep import keep
from retention_assets.commands.ledger import audit, clock
from retention_assets.commands.marks import marks, unmark
from retention_assets.commands.output import ExitCode, echo, say
from retention_assets.commands.policies import policies
from retention_assets.commands.realms import realm
from retention_assets.commands.report import report
from retention_assets.commands.run import run
from retention_assets.commands.visibility import advance, as_of
from retention_assets.errors import BadInput, Problem
from retention_assets.failures import failure_text

COMMANDS: tuple[click.Command, ...] = (
    demo, run, report, validate, schema, preview, compare, explain, marks, unmark, keep, history, hold, release, realm, advance,
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
        code = retention.main(standalone_mode=False)
    except BadInput as fault:
        _print_problems(fault.problems)
        sys.exit(ExitCode.BAD_INPUT)
    except click.ClickException as fault:
        _print_usage(fault)
        sys.exit(fault.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except Exception as fault:
        words = failure_text(fault)
        if words is None and not isinstance(fault, OSError):
            # A fault of the program: whoever mends it needs the trace.
            raise
        say(words or f"cannot go on: {fault}")
        if isinstance(fault, OSError):
            # Most likely a full disk below stdout. What is still buffered goes nowhere, instead of failing again at the exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(ExitCode.FAILED)
    sys.exit(code if isinstance(code, int) else ExitCode.DONE)


def _print_problems(problems: tuple[Problem, ...], most: int = 200) -> None:
    for problem in problems[:most]:
        say(str(problem))
    if len(problems) > most:
        say(f"… and {len(problems) - most} more problems.")


def _print_usage(fault: click.ClickException) -> None:
    """What click has to say, which quotes what was typed."""
    said = io.StringIO()
    fault.show(said)
    echo(said.getvalue(), err=True, nl=False)

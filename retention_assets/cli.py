"""The command line: the group `retention`, its commands, and the exit code and sentence of every problem."""

import io
import os
import re
import sys
import warnings
from collections.abc import Mapping
from typing import NoReturn

import click

from retention_assets import __version__
from retention_assets.commands.common.options import config_option
from retention_assets.commands.common.output import ExitCode, echo, say
from retention_assets.commands.demo import demo
from retention_assets.commands.evaluation import compare, explain, preview, schema, validate
from retention_assets.commands.forecast import forecast
from retention_assets.commands.history import history
from retention_assets.commands.holds import hold, release
from retention_assets.commands.housekeeping import housekeeping
from retention_assets.commands.init import init
from retention_assets.commands.keep import keep
from retention_assets.commands.ledger import audit, clock
from retention_assets.commands.marks import marks, unmark
from retention_assets.commands.plan import plan
from retention_assets.commands.policies import policies
from retention_assets.commands.realms import realm
from retention_assets.commands.report import report
from retention_assets.commands.run import run
from retention_assets.commands.scans import scans
from retention_assets.commands.simulate import simulate
from retention_assets.commands.visibility import advance, as_of, readable
from retention_assets.errors import BadInput, Problem
from retention_assets.failures import failure_text
from retention_assets.settings.secrets import masked_fault

# Sections of the help: beginning, looking ahead, looking back, deciding, acting, and keeping the ledger. A new command is one
# line.
GROUPS: Mapping[str, tuple[click.Command, ...]] = {
    "Start": (
        init,
        demo,
        validate,
        schema,
    ),
    "Look ahead": (
        plan,
        simulate,
        forecast,
        preview,
        compare,
    ),
    "Look": (
        explain,
        history,
        marks,
        report,
        scans,
        as_of,
        readable,
    ),
    "Decide": (
        keep,
        unmark,
        hold,
        release,
        policies,
        realm,
        advance,
    ),
    "Act": (
        run,
        housekeeping,
    ),
    "Operate": (
        clock,
        audit,
    ),
}
COMMANDS: tuple[click.Command, ...] = tuple(command for commands in GROUPS.values() for command in commands)
# Commands without settings take no --config.
WITHOUT_SETTINGS = (init, demo, schema)


class RetentionGroup(click.Group):
    """The commands, listed by what people want to do."""

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List a section for each group, with a few words on each command."""
        widest = max(map(len, self.commands))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{one.name:{widest}}", _few_words(one)) for one in commands])


def _few_words(command: click.Command) -> str:
    """First sentence of the help, up to a colon or the like."""
    return re.split(r"[.:](?:\s|$)", command.help or "", maxsplit=1)[0]


@click.group(cls=RetentionGroup, context_settings={"help_option_names": ["-h", "--help"]}, params=[config_option()])
@click.version_option(__version__, "-V", "--version", prog_name="retention")
def retention() -> None:
    """Retention for versioned data: mark, wait, check again, sweep, report.

    `retention init --sample` begins with a small lake; `retention COMMAND --help` shows examples.
    """


def _takes_config(command: click.Command) -> None:
    command.params.append(config_option())
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        _takes_config(below)


for command in COMMANDS:
    if command not in WITHOUT_SETTINGS:
        _takes_config(command)
    retention.add_command(command)


def main() -> NoReturn:
    """Run the console script. Every problem becomes a line on stderr and an exit code."""
    # Dagster warns of what may change in a minor release. The pins admit one, so nobody can do anything about it.
    warnings.filterwarnings("ignore", message=".* is currently in (beta|preview)")
    try:
        code = retention.main(prog_name="retention", standalone_mode=False)
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
            # A fault of the program: a maintainer needs the trace.
            if (harmless := masked_fault(fault)) is not fault:
                raise harmless from None
            raise
        say(words or f"cannot go on: {fault}")
        if isinstance(fault, OSError):
            # Probably a full disk below stdout. Discard the buffer, instead of failing again at the exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(ExitCode.FAILED)
    sys.exit(code if isinstance(code, int) else ExitCode.DONE)


def _print_problems(problems: tuple[Problem, ...], most: int = 200) -> None:
    for problem in problems[:most]:
        say(str(problem))
    if len(problems) > most:
        say(f"… and {len(problems) - most} more problems.")


def _print_usage(fault: click.ClickException) -> None:
    """click's message quotes what was typed."""
    said = io.StringIO()
    fault.show(said)
    echo(said.getvalue(), err=True, nl=False)

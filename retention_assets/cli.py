"""The command line: the group `retention`, its commands, and the exit code and sentence of every problem."""

import io
import os
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from retention_assets import __version__
from retention_assets.errors import BadInput, Problem
from retention_assets.failures import failure_text
from retention_assets.people.output import CONFIG_NOTE, ExitCode, echo, say
from retention_assets.settings.secrets import masked_fault

# Sections of the help. Each command has the place of its definition, and its summary, so that help loads no command.
GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Start": {
        "init": (
            "people.init:init",
            "Write starter files: settings, a policy, the policy schema for editors, and a .gitignore",
        ),
        "demo": ("people.init:demo", "Build a small environment and run the whole cycle on it"),
        "validate": ("people.policy_files:validate", "Check policy files and print each policy as a sentence"),
        "schema": ("people.policy_files:schema", "Print the JSON Schema of policy files, for editors"),
    },
    "Look ahead": {
        "plan": ("people.plan:plan", "Show what a run would do now"),
        "preview": ("people.preview:preview", "Show what policies would decide about a log"),
    },
    "Look": {
        "explain": (
            "people.history:explain",
            "Explain the verdict of one TRANSACTION of DATASET, line by line, and say whether it is scheduled for deletion",
        ),
        "history": ("people.history:history", "Show the life of each transaction of DATASET"),
        "marks": ("people.marks:marks", "List marks"),
        "report": ("people.report:report", "Show what was due for deletion on DATE and what became of it"),
        "scans": (
            "people.scans:scans",
            "List the scans of stores of objects, accept a braked one, or export what one has found",
        ),
        "as-of": ("people.visibility:as_of", "Show what a reader of DATASET sees at the instant T"),
        "readable": (
            "people.visibility:readable",
            "Say whether the state of DATASET at an instant may be read, and until when the answer holds",
        ),
    },
    "Decide": {
        "keep": ("people.marks:keep_command", "Keep transactions, or a whole dataset"),
        "unmark": ("people.marks:unmark_command", "Take marks back"),
        "hold": ("people.holds:hold_command", "Place a hold"),
        "release": ("people.holds:release_command", "Release a hold"),
        "restore": ("people.trash:restore_command", "Bring back what a sweep has set aside"),
        "policies": ("people.policies:policies", "Show the policy book"),
        "realm": ("people.realms:realm_command", "List realms, show the realm NAME, or change it with --status"),
        "advance": ("people.visibility:advance", "Raise the visibility mark of a dataset"),
    },
    "Act": {
        "run": ("people.run:run", "Read the stores, judge, mark what may go, sweep what is due, and report"),
        "trash": ("people.trash:trash", "List what sweeps have set aside"),
        "replay": ("people.replay:replay_command", "Delete again what was deleted and is there again"),
        "housekeeping": (
            "people.housekeeping:housekeeping_command",
            "Postpone rows that a database would expire too early, and list what expires tomorrow",
        ),
    },
    "Operate": {
        "clock": ("people.clock:clock", "Show the times that the clock guard compares"),
        "audit": ("people.audit:audit", "Verify or export the permanent record of every decision and act"),
    },
}
_COMMANDS = {name: entry for commands in GROUPS.values() for name, entry in commands.items()}
# commands and options of 0.2.0, each with its replacement
REMOVED: Mapping[str, str] = {
    "simulate": "retention plan --days 8",
    "forecast": "retention plan --days 90",
    "compare": "retention preview --policies OLD --against NEW",
    "run --dry-run": "retention plan",
    "report --forecast": "retention plan --days 90",
}
# Commands without settings take no --config.
WITHOUT_SETTINGS = ("init", "demo", "schema")


def _config_option() -> click.Option:
    # for the whole command line and for each command; the last one given counts
    def note(context: click.Context, _: click.Parameter, file: Path | None) -> None:
        if file is not None:
            context.meta[CONFIG_NOTE] = file

    return click.Option(
        ["-c", "--config"], type=click.Path(path_type=Path), expose_value=False, callback=note, metavar="FILE",
        help="Use these settings instead of ./retention.yaml; also RETENTION_CONFIG.",
    )  # fmt: skip


class RetentionGroup(click.Group):
    """The commands, loaded when they are called, and listed by what people want to do."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in self.commands and name in _COMMANDS:
            module, attribute = _COMMANDS[name][0].split(":")
            command: click.Command = getattr(import_module(f"{__package__}.{module}"), attribute)
            if name not in WITHOUT_SETTINGS:
                _add_config_option(command)
            self.add_command(command)
        return self.commands.get(name)

    def resolve_command(self, context: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        typed = {word.partition("=")[0] for word in args[1:]}
        for words, instead in REMOVED.items():
            name, *options = words.split()
            if args[0] == name and typed.issuperset(options):
                raise BadInput(Problem(f"`retention {words}` is not there any more", remedy=f"Type `{instead}`."))
        return super().resolve_command(context, args)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List a section for each group, with a few words on each command."""
        widest = max(map(len, _COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{widest}}", summary) for name, (_, summary) in commands.items()])


@click.group(cls=RetentionGroup, context_settings={"help_option_names": ["-h", "--help"]}, params=[_config_option()])
@click.version_option(__version__, "-V", "--version", prog_name="retention")
def retention() -> None:
    """Retention for versioned data: mark, wait, check again, sweep, report.

    `retention init --sample` begins with a small lake; `retention COMMAND --help` shows examples.
    """


def _add_config_option(command: click.Command) -> None:
    command.params.append(_config_option())
    for subcommand in command.commands.values() if isinstance(command, click.Group) else ():
        _add_config_option(subcommand)


def main() -> NoReturn:
    """Run the console script. Every problem becomes a line on stderr and an exit code."""
    # Dagster warns of what may change in a minor release. The pins admit one, so nobody can do anything about it.
    warnings.filterwarnings("ignore", message=".* is currently in (beta|preview)")
    try:
        code = retention.main(prog_name="retention", standalone_mode=False)
    except BadInput as fault:
        for sentence in fault.first_problems():
            say(sentence)
        sys.exit(ExitCode.BAD_INPUT)
    except click.ClickException as fault:
        # echo escapes what was typed, which click's message quotes
        message = io.StringIO()
        fault.show(message)
        echo(message.getvalue(), err=True, nl=False)
        sys.exit(fault.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(ExitCode.STOPPED)
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

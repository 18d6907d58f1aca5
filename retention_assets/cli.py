"""The command line: `retention …`.

Belongs here: arguments, output and exit codes. Results go to stdout, words about the work to stderr. Exit 0 is done, 1 is
refused or failed, 2 is bad input. Heavy imports happen inside the commands, so that `--help` and `validate` start at once.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from retention_assets import __version__
from retention_assets.problems import BadInput, Problem, Refused

if TYPE_CHECKING:
    from retention_assets.frames.log import Log
    from retention_assets.in_force import Rules
    from retention_assets.policy.language import Policies
    from retention_assets.settings import Settings

FORMAT = click.option(
    "--format", "format_", type=click.Choice(["json", "table"]), default="table", help="How the result is printed."
)
LOG = click.option(
    "--log", "log_path", type=click.Path(path_type=Path), help="A log in the exchange format: a file or a folder."
)
POLICIES = click.option(
    "--policies",
    "policy_paths",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A policy file or folder; may be repeated.",
)


class Instant(click.ParamType[datetime]):
    """An instant that names its zone."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read the instant, or fail with what was expected."""
        from retention_assets.policy.instants import EXPECTED_INSTANT, LONGEST_YEARS, parse_instant

        if isinstance(value, datetime):
            return value
        try:
            instant = parse_instant(value)
            if instant.year <= LONGEST_YEARS + 1:
                raise OverflowError("no age may lead to an instant before the first one")
            return instant
        except OverflowError:
            self.fail(f"'{value}' is out of range; expected {EXPECTED_INSTANT}", param, ctx)
        except ValueError as fault:
            self.fail(f"'{value}' {fault}; expected {EXPECTED_INSTANT}", param, ctx)


AS_OF = click.option("--as-of", type=Instant(), help="The instant at which to judge; the present when left out.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="retention")
def retention() -> None:
    """Retention for versioned data: mark, wait, re-check, sweep, report."""


def main() -> NoReturn:
    """The console script. Every problem becomes a line on stderr and an exit code."""
    try:
        retention.main(standalone_mode=False)
    except BadInput as fault:
        _say_all(fault.problems)
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


def _say_all(problems: tuple[Problem, ...], most: int = 200) -> None:
    for problem in problems[:most]:
        click.echo(str(problem), err=True)
    if len(problems) > most:
        click.echo(f"… and {len(problems) - most} more problems.", err=True)


@retention.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@FORMAT
def validate(paths: tuple[Path, ...], format_: str) -> None:
    """Check policy files and print each policy as a sentence.

    PATHS are files or folders; the folder of the settings when left out.
    """
    from retention_assets.policy import datahub
    from retention_assets.policy.sentences import hold_sentence, sentence

    settings = _settings()
    try:
        policies = _policies(paths, settings, stores=not paths)
    except BadInput as fault:
        if format_ == "json":
            _print_json({"valid": False, "problems": [problem.as_dict() for problem in fault.problems]})
        raise
    said = [(policy.name, sentence(policy)) for policy in policies.policies]
    said += [(entry.name, datahub.sentence(entry)) for entry in policies.entries]
    held = [(hold.name or "", hold_sentence(hold)) for hold in policies.holds]
    if format_ == "json":
        _print_json(
            {
                "valid": True,
                "policies": [{"name": name, "sentence": words} for name, words in said],
                "holds": [{"name": name, "sentence": words} for name, words in held],
            }
        )
        return
    for name, words in said + held:
        click.echo(f"{name}\n  {words}\n")
    if not said:
        click.echo("No policy is in force: nothing will be marked and nothing deleted.")
    click.echo(
        f"{len(said)} polic{'y' if len(said) == 1 else 'ies'} and {len(held)} hold{'' if len(held) == 1 else 's'} are valid.",
        err=True,
    )


@retention.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    from retention_assets.policy.schema import policy_schema

    click.echo(policy_schema(), nl=False)


@retention.command()
@LOG
@POLICIES
@AS_OF
@FORMAT
@click.option("--most", default=20, show_default=True, help="How many marks the table lists.")
def preview(log_path: Path | None, policy_paths: tuple[Path, ...], as_of: datetime | None, format_: str, most: int) -> None:
    """Show what policies would decide about a log. Nothing is written, nothing deleted."""
    from retention_assets.preview import as_json, preview

    settings = _settings()
    policies = _policies(policy_paths, settings)
    log = _log(log_path, settings)
    with _progress(f"judging {len(log.transactions):,} transactions"):
        result = preview(log, _rules(policies, log, settings), _instant(as_of))
    if format_ == "json":
        for piece in as_json(result):
            click.echo(piece, nl=False)
    else:
        from retention_assets.tables import console, preview_tables

        for made in preview_tables(result, most):
            console().print(made)
    _refuse_unsound(log)


@retention.command()
@LOG
@click.option(
    "--policies", "policy_paths", type=click.Path(path_type=Path), multiple=True, required=True,
    help="Given twice: the policies in force, then those to compare them with.",
)  # fmt: skip
@AS_OF
@FORMAT
@click.option("--transactions", "each", is_flag=True, help="List every transaction, not only sums (JSON).")
def compare(log_path: Path | None, policy_paths: tuple[Path, ...], as_of: datetime | None, format_: str, each: bool) -> None:
    """Show what another set of policies would newly mark and no longer mark."""
    from retention_assets.preview import compare

    if len(policy_paths) != 2:
        raise click.UsageError("--policies has to be given exactly twice: before and after.")
    settings = _settings()
    before, after = (_policies((path,), settings) for path in policy_paths)
    log = _log(log_path, settings)
    with _progress(f"judging {len(log.transactions):,} transactions twice"):
        changes, rows = compare(log, _rules(before, log, settings), _rules(after, log, settings), _instant(as_of))
    if format_ == "json":
        found: dict[str, Any] = {"changes": [vars(change) for change in changes]}
        _print_json({**found, "transactions": rows.to_pylist()} if each else found)
    else:
        from retention_assets.tables import compare_tables, console

        for made in compare_tables(changes):
            console().print(made)
    _refuse_unsound(log)


@retention.command()
@click.argument("dataset")
@click.argument("transaction")
@LOG
@POLICIES
@AS_OF
@FORMAT
def explain(
    dataset: str, transaction: str, log_path: Path | None, policy_paths: tuple[Path, ...], as_of: datetime | None, format_: str
) -> None:
    """Explain the verdict of one TRANSACTION of DATASET, line by line."""
    from retention_assets.explain import explain

    settings = _settings()
    policies = _policies(policy_paths, settings)
    log = _log(log_path, settings, dataset)
    told = explain(log, _rules(policies, log, settings), dataset, transaction, _instant(as_of))
    if format_ == "json":
        _print_json(told.as_dict())
    else:
        from retention_assets.tables import console, explanation

        console().print(explanation(told))


@retention.command()
@click.option(
    "--folder", type=click.Path(path_type=Path), default=Path(".retention/demo"), show_default=True, help="Where it is built."
)
@click.option("--build-only", is_flag=True, help="Build the environment and stop, for `dagster dev`.")
def demo(folder: Path, build_only: bool) -> None:
    """Build a small environment and show what retention does with it."""
    try:
        if build_only:
            from retention_assets.demo.environment import build

            click.echo(str(build(folder)))
            return
        from retention_assets.demo.page import demo as show
        from retention_assets.tables import console

        show(folder, console())
    except FileExistsError as fault:
        raise Refused(str(fault)) from None


def _settings() -> "Settings":
    from retention_assets.settings import load_settings

    return load_settings()


def _policies(paths: tuple[Path, ...], settings: "Settings", stores: bool = False) -> "Policies":
    """The policies of the paths given, or those of the settings. Only the latter have to name stores that exist."""
    from retention_assets.policy.language import load_policies

    if paths:
        return load_policies(paths, {store.name for store in settings.stores} if stores else None)
    return load_policies(settings.policies, {store.name for store in settings.stores})


def _log(path: Path | None, settings: "Settings", dataset: str | None = None) -> "Log":
    from retention_assets.exchange import read_log

    if path is None:
        path = _log_in_settings(settings, dataset)
    with _progress(f"reading {path.name}"):
        return read_log(path)


def _log_in_settings(settings: "Settings", dataset: str | None) -> Path:
    """The log of a `files` store, where no other was named."""
    from retention_assets.stores.kinds import FilesSettings

    wanted = dataset.partition("/")[0] if dataset else None
    for store in settings.stores:
        if isinstance(store, FilesSettings) and wanted in (None, store.name):
            return Path(store.log)
    about = f"store '{wanted}'" if wanted else "a store"
    raise BadInput(Problem(f"no log was named, and the settings have no log of {about}", remedy="Name one with --log FILE."))


def _rules(policies: "Policies", log: "Log", settings: "Settings") -> "Rules":
    from retention_assets.in_force import rules_for

    rules = rules_for(policies, log.datasets["dataset"].to_pylist(), settings)
    if rules.guessed:
        some = ", ".join(rules.guessed[:3])
        click.echo(
            f"DataHub entries were applied to {len(rules.guessed)} datasets by their names ({some} …): "
            "their stores are not in the settings, where `kind: aspects` would say so.",
            err=True,
        )
    return rules


def _refuse_unsound(log: "Log") -> None:
    refused = len(log.datasets) - log.datasets["fault"].null_count
    if refused:
        raise Refused(f"{refused} of {len(log.datasets)} datasets were refused: their logs are not sound.")


def _instant(as_of: datetime | None) -> datetime:
    from retention_assets.clock import now

    return as_of or now()


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))


@contextmanager
def _progress(what: str) -> Iterator[None]:
    """Say on a terminal what is being done; stay silent elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield

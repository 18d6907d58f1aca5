"""Writes commands.md from the commands themselves: `make docs`, or `python docs/generate_commands.py`.

Belongs here: what a page about the command line looks like. The words are those of `--help`.
A test compares the page with what is written here.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from retention_assets.cli import GROUPS, retention

# commands that an option has to be the same in to stand above them all
SHARED = 5
OPTIONS = ["| option | what it does |", "| --- | --- |"]
PAGE = Path(__file__).with_name("commands.md")
INTRODUCTION = """\
# Commands

`make docs` writes this page from the command line. `retention COMMAND --help` says the same in a terminal.

Results go to stdout, everything else to stderr. `--format json` prints a result for programs.

* **Settings**: `--config FILE` (`-c`), before or after the command, or `RETENTION_CONFIG` names another file than
  `retention.yaml`. `retention init` writes one.
* **An instant** is `2026-03-01T00:00:00Z` or another one with a zone, `2026-03-01` (its midnight in UTC), `7d` (7 days ago) or
  `in 7d`, with any duration of a policy. JSON has the fixed instant. Commands that mark, sweep or report refuse the future
  ([the clock](clock.md)). Files take fixed instants only.
* **Tables** fit the terminal. Times are UTC. Long values are folded, and no id is cut. In a pipe each row is one line, unless
  `COLUMNS` sets a width.
* **Completion** of commands, options and values: [in your shell](operations.md#completion-in-the-shell).

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | refused or failed: a store is away, or a transaction could not be deleted |
| 2 | bad input, or no settings where a command needs them |
| 3 | `plan` and dry runs: there is something to do |
| 4 | done, except for refused datasets (1 with `--strict`) |
| 130 | stopped with Ctrl-C |

If several codes apply, the command exits with the first of 2, 1, 4 and 3. Invisible characters in names (control characters,
marks of text direction) are shown as escapes, `\\x1b` or `\\u202e`. JSON escapes them as JSON does.

What a command needs, and what it leaves alone: [Operations](operations.md#what-commands-work-on).
"""


def page() -> str:
    """The whole page."""
    context = click.Context(retention, info_name="retention")
    groups = {
        title: list(
            _commands(
                click.Group(commands=[command for name in group if (command := retention.get_command(context, name))]), context
            )
        )
        for title, group in GROUPS.items()
    }
    rows = Counter(row for group in groups.values() for _, command in group for row in _options(command))
    shared = sorted(row for row, count in rows.items() if count >= SHARED)
    lines, sections = ["| | command | what it does |", "| --- | --- | --- |"], []
    for title, group in groups.items():
        for name, command in group:
            lines.append(f"| {title} | [`{name}`](#{name.replace(' ', '-')}) | {_first_sentence(command)} |")
            sections.append(_section(name, command, shared))
            title = ""
    common = ["## Options of many commands", "", *OPTIONS, *shared, ""]
    return "\n".join([INTRODUCTION, *lines, "", *common, *sections])


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Every command below a group with its full name; a group that can be run is one itself."""
    for word in group.commands:
        command = group.commands[word]
        inner = click.Context(command, info_name=word, parent=context)
        if not isinstance(command, click.Group):
            yield inner.command_path, command
            continue
        if command.invoke_without_command:
            yield inner.command_path, command
        yield from _commands(command, inner)


def _section(name: str, command: click.Command, shared: Sequence[str]) -> str:
    arguments = [argument for argument in command.params if isinstance(argument, click.Argument)]
    options = _options(command)
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *(_argument(argument) for argument in arguments)])
    lines = [f"## {name}", "", f"    {usage}", "", _text(command.help or ""), ""]
    if own := [row for row in options if row not in shared]:
        lines += [*OPTIONS, *own, ""]
    if common := [row.split("`")[1 if "`, `" not in row else 3].split()[0] for row in options if row in shared]:
        named = ", ".join(f"`{option}`" for option in common)
        lines += [f"{'Also' if own else 'Takes'} {named} ([above](#options-of-many-commands)).", ""]
    if command.epilog:
        # The lines of the examples, of which the first is their heading.
        lines += ["```sh", *(line.strip() for line in command.epilog.splitlines()[2:]), "```", ""]
    return "\n".join(lines)


def _options(command: click.Command) -> list[str]:
    """A row for each option but --config, which the introduction names."""
    options = [option for option in command.params if isinstance(option, click.Option) and option.name != "config"]
    return [f"| {_option(option, command)} |" for option in options]


def _argument(argument: click.Argument) -> str:
    return argument.make_metavar(click.Context(click.Command("none")))


def _option(option: click.Option, command: click.Command) -> str:
    kind = option.type
    value = "" if option.is_flag else f" {option.metavar or kind.name.partition(' ')[0].upper()}"
    notes = []
    if isinstance(kind, click.Choice):
        value = f" {max(option.opts, key=len).lstrip('-').upper()}"
        notes.append("One of " + ", ".join(f"`{one}`" for one in kind.choices) + ".")
    shown = option.get_help_extra(click.Context(command)).get("default")
    if shown:
        notes.append(f"Default: {shown.strip('()')}.")
    if option.required:
        notes.append("Required.")
    return " | ".join([", ".join(f"`{one}{value}`" for one in option.opts), " ".join([_cell(option.help or ""), *notes])])


def _first_sentence(command: click.Command) -> str:
    return _cell(re.split(r"(?<=\.)\s", _text(command.help or "") + " ", maxsplit=1)[0])


def _text(text: str) -> str:
    """Paragraphs, each on one line, as click reads a docstring."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _cell(text: str) -> str:
    return _text(text).replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

"""The command with which one begins.

Belongs here: `init`: what is printed of what was written, and what comes next. The files are operations/new_folder.py's, the
sample's demo/sample.py's.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from retention_assets.people.common.options import examples
from retention_assets.people.common.output import echo, say, say_next

if TYPE_CHECKING:
    from retention_assets.operations.new_folder import NewFolder


@examples("retention init", "retention init my-lake --sample")
@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("."), metavar="[DIR]")
@click.option("--sample", is_flag=True, help="Write also a small lake, in which something may go today.")
def init(folder: Path, sample: bool) -> None:
    """Write settings, a policy, the schema by which editors complete policies, and a .gitignore.

    They go into DIR, or the folder that one is in. Nothing that is there is written over.
    """
    from retention_assets.operations.new_folder import NewFolderRequest, write_folder

    request = NewFolderRequest(folder=folder)
    if sample:
        from retention_assets.clock import now
        from retention_assets.demo.sample import POLICIES, SETTINGS, sample_files

        request = NewFolderRequest(folder=folder, settings=SETTINGS, policies=POLICIES, sample=sample_files(now()))
    _print(write_folder(request), sample)


def _print(found: "NewFolder", sample: bool) -> None:
    from retention_assets.operations.new_folder import IGNORE_FILE, POLICY_FILE, SCHEMA_FILE, SETTINGS_FILE

    words = {
        SETTINGS_FILE: "where things are", POLICY_FILE: "what may go", SCHEMA_FILE: "by which editors complete policies",
        IGNORE_FILE: "keeps the ledger and the warehouse out of git",
    }  # fmt: skip
    for name, what in words.items():
        echo(f"{name:24}{what}" if name in found.written else f"{name:24}was there already, and is as it was")
    if sample:
        echo(f"{'lake/':24}a sample: a log, and the data of {sum('/data/' in name for name in found.written)} transactions")
    for warning in found.warnings:
        say(warning)
    there = "" if found.folder.resolve() == Path.cwd().resolve() else f"`cd {found.folder}`, then "
    then = "`retention preview` shows what may go" if sample else f"say in {SETTINGS_FILE} where your data is"
    say_next(f"{there}{then}; `retention validate` says in sentences what the policies mean.")

"""Creates starter files (settings, a policy, the schema for editors, .gitignore), and the demonstration.

Existing files are never overwritten, not even by two processes at once.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.people.command import examples
from retention_assets.people.output import echo, say
from retention_assets.policy.language import policy_schema

SETTINGS = """\
# The settings of this folder. Relative paths start here. ${NAME} is replaced by that environment variable: keep
# passwords out of this file.

# The record of every mark, decision and act. It must outlive everything else: give it a backup.
# A team shares one:  postgresql://retention:${LEDGER_PASSWORD}@db.example.com/retention
ledger: sqlite:///.retention/ledger.db

# The tables of the assets, as Parquet. On a cluster a path that every executor reaches: s3://bucket/retention
warehouse: .retention/warehouse

# Policy files: a folder with *.yaml files.
policies: policies

# Where the work runs: local[*], spark://host:7077, yarn, k8s://https://host, sc://host:15002. `conf` takes any Spark property.
spark: {master: "local[*]", conf: {}}

# The data. Each store has a kind and a name. The name begins the names of its datasets: lake/raw.orders.
stores:
  # files: histories as JSON lines or Parquet, and one folder of data per transaction. `data` begins with a folder that holds
  # nothing else. Nothing is ever deleted outside of it.
  - name: lake
    kind: files
    log: lake/log
    data: "lake/data/{dataset}/{transaction}"

  # iceberg: every table of a PyIceberg catalog is a dataset; `catalog` takes PyIceberg's own properties.
  # - {name: ice, kind: iceberg, catalog: {type: rest, uri: "https://catalog.example.com", token: "${CATALOG_TOKEN}"}}

  # delta: tables of Delta Lake, by their folders.
  # - {name: lakehouse, kind: delta, tables: ["s3://bucket/tables/*"]}

  # aspects: DataHub's table; a dataset is entity.aspect.
  # - {name: meta, kind: aspects, url: "postgresql://datahub:${DATAHUB_PASSWORD}@db.example.com/datahub"}

  # records: units of work in a database. Rows of the children go before their root.
  # - name: ods
  #   kind: records
  #   url: "postgresql://ods:${ODS_PASSWORD}@db.example.com/ods"
  #   root: {table: unit_of_work, key: id, opened_at: started_at, closed_at: finished_at}
  #   children: [{table: summary, key: unit_of_work_id}]
"""

POLICIES = """\
# A policy selects what may go. Everything else stays.
policies:
  - name: raw-90-days
    description: Old raw views, once three newer views exist.
    datasets:
      include: ["lake/raw.*"]
    select: # every line must hold
      older_than: 90d
      beyond: {views: 3}
    # How long a mark can be taken back before anything is deleted.
    grace: 7d
    # Over a limit the policy marks nothing of a dataset, and the run says so.
    limits: {fraction: 0.5}
"""

SETTINGS_FILE = "retention.yaml"
POLICY_FILE = "policies/retention.yaml"
SCHEMA_FILE = "policies/schema.json"
IGNORE_FILE = ".gitignore"
# editors check and complete the file by this line
_MODELINE = "# yaml-language-server: $schema=schema.json\n"
_IGNORED = "/.retention/"
_IGNORE = f"# The ledger and the warehouse: data, never source.\n{_IGNORED}\n"


def write_folder(
    folder: Path, settings: str = SETTINGS, policies: str = POLICIES, sample: Mapping[str, bytes] | None = None
) -> list[str]:
    """Write the files that are missing, and name them. A sample is written whole, or not at all."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(Problem("is not a folder", file=str(folder), expected="a folder, or a name that is free"))
    roots = sorted({name.partition("/")[0] for name in sample or ()})
    if existing := [name for name in (SETTINGS_FILE, "policies", *roots) if (folder / name).exists()] if sample else []:
        raise Refused(
            f"{', '.join(existing)} in {folder} would not fit the sample, and files are never overwritten. Name an empty "
            "folder: `retention init DIR --sample`."
        )
    files = {
        SETTINGS_FILE: settings.encode(), POLICY_FILE: f"{_MODELINE}{policies}".encode(),
        SCHEMA_FILE: policy_schema().encode(), IGNORE_FILE: _IGNORE.encode(), **(sample or {}),
    }  # fmt: skip
    written = []
    try:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError), (folder / name).open("xb") as stream:
                stream.write(content)
                written.append(name)
    except PermissionError as fault:
        at = Path(fault.filename).absolute()
        raise Refused(f"{at} cannot be written. Name a folder of your own: `retention init DIR`.") from fault
    return written


@examples("retention init", "retention init my-lake --sample")
@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("."), metavar="[DIR]")
@click.option("--sample", is_flag=True, help="Also write a small lake with data that may go today.")
def init(folder: Path, sample: bool) -> None:
    """Write starter files: settings, a policy, the policy schema for editors, and a .gitignore.

    They go into DIR, by default the current folder. Existing files are never overwritten.
    """
    if sample:
        from retention_assets.clock import now
        from retention_assets.demo.lake import SAMPLE_POLICIES, SAMPLE_SETTINGS, sample_files

        written = write_folder(folder, SAMPLE_SETTINGS, SAMPLE_POLICIES, sample_files(now()))
    else:
        written = write_folder(folder)
    purposes = {
        SETTINGS_FILE: "where things are", POLICY_FILE: "what may go", SCHEMA_FILE: "by which editors complete policies",
        IGNORE_FILE: "keeps the ledger and the warehouse out of git",
    }  # fmt: skip
    for name, purpose in purposes.items():
        echo(f"{name:24}{purpose}" if name in written else f"{name:24}exists already and is unchanged")
    if sample:
        echo(f"{'lake/':24}a sample: a log, and the data of {sum('/data/' in name for name in written)} transactions")
    ignored = {line.strip().strip("/") for line in (folder / IGNORE_FILE).read_text("utf-8", "replace").splitlines()}
    if _IGNORED.strip("/") not in ignored:
        say(f"Add {_IGNORED} to {IGNORE_FILE}: it holds the ledger and the warehouse.")
    if sample:
        echo(
            "The clock of this sample is simulated: `retention run --as-of 'in 8d'` jumps a week ahead. After that, give "
            "each run this time or a later one."
        )
    change_folder = "" if folder.resolve() == Path.cwd().resolve() else f"`cd {folder}`, then "
    step = "`retention preview` shows what may go" if sample else f"name the place of your data in {SETTINGS_FILE}"
    say(f"Next: {change_folder}{step}; `retention validate` prints each policy as a sentence.")


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
    """Build a small environment and run the whole cycle on it."""
    if build_only:
        from retention_assets.demo.environment import build_environment

        echo(str(build_environment(folder)))
        return
    from retention_assets.demo.walkthrough import demo as show
    from retention_assets.render.terminal import console

    show(folder, console(markup=True))

"""Create starter files: settings, a policy, the schema for editors, and .gitignore. Existing files are never overwritten,
not even by two processes at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.policy.schema import policy_schema

SETTINGS = """\
# The settings of this folder. Relative places are meant from here. ${NAME} is replaced by that environment variable: keep
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

# What is retained. Each store has a name, which begins the names of its datasets (lake/raw.orders), and a kind.
stores:
  # files: histories as JSON lines or Parquet, and one folder of data per transaction. `data` begins with a folder that holds
  # nothing else; nothing is ever deleted outside of it.
  - name: lake
    kind: files
    log: lake/log
    data: "lake/data/{dataset}/{transaction}"

  # iceberg: every table of a PyIceberg catalog is a dataset; `catalog` takes PyIceberg's own properties.
  # - name: ice
  #   kind: iceberg
  #   catalog: {type: rest, uri: "https://catalog.example.com", token: "${CATALOG_TOKEN}"}

  # aspects: DataHub's table; a dataset is entity.aspect.
  # - name: meta
  #   kind: aspects
  #   url: "postgresql://datahub:${DATAHUB_PASSWORD}@db.example.com/datahub"

  # records: units of work in a database. Rows of the children go before their root.
  # - name: ods
  #   kind: records
  #   url: "postgresql://ods:${ODS_PASSWORD}@db.example.com/ods"
  #   root: {table: unit_of_work, key: id, opened_at: started_at, closed_at: finished_at}
  #   children: [{table: summary, key: unit_of_work_id}]
"""

POLICIES = """\
# What may go. Nothing goes that no policy selects.
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


@dataclass(frozen=True, kw_only=True)
class NewFolderRequest:
    """Folder and starter files. A sample belongs to its settings and policies, so it is written whole or not at all."""

    folder: Path
    settings: str = SETTINGS
    policies: str = POLICIES
    sample: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class NewFolder:
    """Written files, existing files that were left alone, and what a person has to do about these."""

    folder: Path
    written: Sequence[str]
    kept: Sequence[str]
    warnings: Sequence[str]


def write_folder(request: NewFolderRequest) -> NewFolder:
    """Write the files that are missing."""
    folder = request.folder
    if folder.exists() and not folder.is_dir():
        raise BadInput(Problem("is not a folder", file=str(folder), expected="a folder, or a name that is free"))
    if request.sample:
        _check_free(folder, request.sample)
    files = {
        SETTINGS_FILE: request.settings.encode(), POLICY_FILE: f"{_MODELINE}{request.policies}".encode(),
        SCHEMA_FILE: policy_schema().encode(), IGNORE_FILE: _IGNORE.encode(), **request.sample,
    }  # fmt: skip
    written, kept = list[str](), list[str]()
    for name, content in files.items():
        (written if _write(folder / name, content) else kept).append(name)
    return NewFolder(folder, written, kept, _warnings(folder, kept))


def _check_free(folder: Path, sample: Mapping[str, bytes]) -> None:
    tops = {name.partition("/")[0] for name in sample}
    there = [name for name in (SETTINGS_FILE, "policies", *sorted(tops)) if (folder / name).exists()]
    if there:
        raise Refused(
            f"{', '.join(there)} in {folder} would not fit the sample, and nothing is written over. Name an empty folder:"
            " `retention init DIR --sample`."
        )


def _write(file: Path, content: bytes) -> bool:
    """False if the file existed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("xb") as stream:
            stream.write(content)
    except FileExistsError:
        return False
    return True


def _warnings(folder: Path, kept: Sequence[str]) -> list[str]:
    if IGNORE_FILE not in kept:
        return []
    text = (folder / IGNORE_FILE).read_text("utf-8", "replace")
    lines = {line.strip().strip("/") for line in text.splitlines()}
    return [] if _IGNORED.strip("/") in lines else [f"Add {_IGNORED} to {IGNORE_FILE}: the ledger and the warehouse are there."]

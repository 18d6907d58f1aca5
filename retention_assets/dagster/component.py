"""`RetentionComponent`: an environment as a component of a Dagster project, from a few lines of YAML, and its scaffolding.

Dagster finds the class as `retention_assets.RetentionComponent`; loading it needs no Java and opens no store. Scaffolding
puts ledger and warehouse outside of the code, in a folder that git ignores: a ledger that is committed comes back with an old
commit, and knows nothing of what was swept since.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any, Self

import dagster as dg
from dagster.components import Scaffolder, ScaffoldRequest, scaffold_component
from pydantic import BaseModel, Field, model_validator

from retention_assets.clock import now
from retention_assets.dagster.build import embedded_defs
from retention_assets.dagster.naming import Names
from retention_assets.dagster.private import is_first_load
from retention_assets.demo.lake import SAMPLE_POLICIES, SAMPLE_STORES, sample_files
from retention_assets.errors import BadInput, Problem
from retention_assets.evaluation.keepers import files_of
from retention_assets.policy.language import load_policies
from retention_assets.settings.model import FILE, Settings, load_settings, settings_of
from retention_assets.settings.schema import settings_schema
from retention_assets.settings.sections import WORD
from retention_assets.settings.yaml import Document

# below the root of the project, beside the code
_DATA_FOLDER = ".retention"
_IGNORED = """\
# A ledger restored from an old commit does not know what was swept since.
*
!.gitignore
"""
_SETTINGS = """\
# Relative paths start at this folder; ${{NAME}} is an environment variable.
ledger: {ledger}
warehouse: {warehouse}
policies: policies
# Dagster's daemon adds a partition for each dataset. Nothing else runs by itself until you turn it on here.
automation: {{discover: true}}
# For runs over more than a thousand partitions give Dagster's programs DAGSTER_EVENT_BATCH_SIZE=1000 and
# DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS=1, and an instance on PostgreSQL. Or one partition per store:
# partition_by: store

"""


class RetentionScaffoldParams(BaseModel):
    """Options of `dg scaffold`. Invalid values are refused before anything is written."""

    key_prefix: Annotated[str | None, Field(description="Prefix of every name. By default the name of the component.")] = None
    ledger: Annotated[
        str | None,
        Field(description="A database, such as postgresql://… or ${LEDGER_URL}. By default SQLite, outside of the code."),
    ] = None
    warehouse: Annotated[
        str | None,
        Field(description="A folder or URI that Spark can write to. By default a folder outside of the code."),
    ] = None

    @model_validator(mode="after")
    def _settings_can_be_made_of_it(self) -> Self:
        places = {"ledger": self.ledger, "warehouse": self.warehouse}
        # The value of a variable is known where the project runs, not here.
        data = {key: text for key, text in places.items() if text and "${" not in text}
        try:
            Names.below(self.key_prefix or ())
            settings_of(Document(FILE, data, {}))
        except BadInput as fault:
            raise ValueError(str(fault)) from None
        return self


class RetentionScaffolder(Scaffolder[RetentionScaffoldParams]):
    """Starts an instance of the component with settings and policies that can be launched, on a sample lake."""

    @classmethod
    def get_scaffold_params(cls) -> type[RetentionScaffoldParams]:
        return RetentionScaffoldParams

    def scaffold(self, request: ScaffoldRequest[RetentionScaffoldParams]) -> None:
        folder = request.target_path.parent if request.append else request.target_path
        prefix = request.params.key_prefix or (folder.name if WORD.fullmatch(folder.name) else "retention")
        data_folder = (request.project_root or folder) / _DATA_FOLDER
        place = Path(os.path.relpath(data_folder / prefix, folder)).as_posix()
        scaffold_component(request, {"config": FILE, "key_prefix": prefix} if request.scaffold_format == "yaml" else None)
        if request.append:
            # Beside another component, in whose folder there may be settings already.
            return
        ledger = json.dumps(request.params.ledger or f"sqlite:///{place}/ledger.db")
        warehouse = json.dumps(request.params.warehouse or f"{place}/warehouse")
        settings = _SETTINGS.format(ledger=ledger, warehouse=warehouse)
        # A ledger that a person names is a real one, in which no sample is marked.
        if request.params.ledger or request.params.warehouse:
            settings += "# Name your stores, such as:\n" + _commented(SAMPLE_STORES.format(lake="s3://bucket/lake"))
            policies = "policies: []\n\n# A policy selects what may go. Everything else stays:\n" + _commented(SAMPLE_POLICIES)
        else:
            settings += "# A sample lake. Replace it by your own stores and policies.\n" + SAMPLE_STORES.format(
                lake=f"{place}/lake"
            )
            policies = (
                "# Policies for the sample lake. Marks wait out their grace before anything is deleted.\n" + SAMPLE_POLICIES
            )
            (data_folder / prefix).mkdir(0o700, parents=True, exist_ok=True)
            for name, content in sample_files(now()).items():
                file = data_folder / prefix / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        (folder / FILE).write_text(settings, "utf-8")
        (folder / "policies").mkdir()
        (folder / "policies" / "policies.yaml").write_text(policies, "utf-8")
        data_folder.mkdir(exist_ok=True)
        (data_folder / ".gitignore").write_text(_IGNORED, "utf-8")


def _commented(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


@dg.scaffold_with(RetentionScaffolder)
class RetentionComponent(dg.Component, dg.Model, dg.Resolvable):
    """Retention for versioned data: judges histories by policy, marks what may go, sweeps it after its grace, and reports."""

    config: Annotated[
        str | None,
        dg.Resolver.default(
            description="The settings file, relative to this folder. By default retention.yaml, unless `settings` is given."
        ),
    ] = None
    settings: Annotated[
        dict[str, Any] | None,
        dg.Resolver.default(
            description="The keys of the settings file. Relative paths start at this folder.",
            # Dagster admits a template for each attribute, which hides the errors of all of them.
            json_schema_extra={"if": {"type": "object"}, "then": settings_schema()},
        ),
    ] = None
    key_prefix: Annotated[
        str | list[str] | None,
        dg.Resolver.default(description="Prefix of every name. By default that of the settings."),
    ] = None

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        kinds = ("asset", "asset_check", "job", "resource", "schedule", "sensor")
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=["retention", "spark"], produces=kinds)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make definitions without an executor: where steps run is for the project to say.

        Broken policies are refused where a project is loaded or checked. A run that is launched later, which may be one that
        puts a hold, loads all the same; what needs policies then refuses them.
        """
        settings = self._settings(context.path)
        if is_first_load():
            load_policies(files_of(settings))
        return embedded_defs(settings, self.key_prefix or ())

    def _settings(self, folder: Path) -> Settings:
        # A component beside others in one file gets the path of that file.
        folder = folder if folder.is_dir() else folder.parent
        if self.settings is None:
            return load_settings(folder / (self.config or FILE))
        if self.config is not None:
            raise BadInput(Problem("stands beside config", key="settings", expected="either the keys here or a file with them"))
        return settings_of(Document(str(folder / "defs.yaml"), self.settings, {}))

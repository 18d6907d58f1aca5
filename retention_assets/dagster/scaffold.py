"""`dg scaffold defs retention_assets.RetentionComponent NAME`: the files with which a component begins, and its parameters.

The ledger and the warehouse lie outside of the code, in a folder that git ignores: a ledger that is committed comes back
with an old commit, and knows nothing of what was swept since.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Self

from dagster.components import Scaffolder, ScaffoldRequest, scaffold_component
from pydantic import BaseModel, Field, model_validator

from retention_assets.dagster.naming import Names
from retention_assets.errors import BadInput
from retention_assets.settings.dagster import WORD
from retention_assets.settings.model import FILE, settings_of
from retention_assets.settings.yaml import Document

# below the root of the project, beside the code
_KEPT = ".retention"
_IGNORED = """\
# A ledger that comes back with an old commit has forgotten what was swept since.
*
!.gitignore
"""
_SETTINGS = """\
# Relative paths are meant from this folder; ${{NAME}} is an environment variable.
ledger: {ledger}
warehouse: {warehouse}
policies: policies
# Nothing is looked at before a store is named here, and nothing is deleted by itself before `automation` says so.
stores: []
# For runs over more than a thousand partitions give Dagster's programs DAGSTER_EVENT_BATCH_SIZE=1000 and
# DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS=1, and an instance on PostgreSQL. Or one partition per store:
# partition_by: store
"""
_POLICIES = """\
# No policy, no mark. A policy, and what it means: retention validate
policies: []
"""


class RetentionScaffoldParams(BaseModel):
    """What `dg scaffold` asks for, each of which may be left out. What nothing can be made of is refused before it writes."""

    key_prefix: Annotated[
        str | None, Field(description="Before every name, so that nothing clashes. Left out: the name of the component.")
    ] = None
    ledger: Annotated[
        str | None,
        Field(description="A database, such as postgresql://… or ${LEDGER_URL}. Left out: SQLite, outside of the code."),
    ] = None
    warehouse: Annotated[
        str | None,
        Field(description="A folder or URI that Spark can write to. Left out: a folder outside of the code."),
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
    """Starts an instance of the component with settings that load, and a folder for policies."""

    @classmethod
    def get_scaffold_params(cls) -> type[RetentionScaffoldParams]:
        """Its parameters, as options of the command."""
        return RetentionScaffoldParams

    def scaffold(self, request: ScaffoldRequest[RetentionScaffoldParams]) -> None:
        """Write its files into the new folder."""
        folder = request.target_path.parent if request.append else request.target_path
        prefix = request.params.key_prefix or (folder.name if WORD.fullmatch(folder.name) else "retention")
        kept = (request.project_root or folder) / _KEPT
        place = Path(os.path.relpath(kept / prefix, folder)).as_posix()
        scaffold_component(request, {"config": FILE, "key_prefix": prefix} if request.scaffold_format == "yaml" else None)
        if request.append:
            # Beside another component, in whose folder there may be settings already.
            return
        ledger = json.dumps(request.params.ledger or f"sqlite:///{place}/ledger.db")
        warehouse = json.dumps(request.params.warehouse or f"{place}/warehouse")
        (folder / FILE).write_text(_SETTINGS.format(ledger=ledger, warehouse=warehouse), "utf-8")
        (folder / "policies").mkdir()
        (folder / "policies" / "policies.yaml").write_text(_POLICIES, "utf-8")
        kept.mkdir(exist_ok=True)
        (kept / ".gitignore").write_text(_IGNORED, "utf-8")

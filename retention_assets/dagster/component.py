"""`RetentionComponent`: an environment as a component of a Dagster project, from a few lines of YAML.

Dagster finds the class as `retention_assets.RetentionComponent`; loading it needs no Java and opens no store.
"""

from pathlib import Path
from typing import Annotated, Any

import dagster as dg

# Dagster's documentation imports it from there as well.
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

from retention_assets.dagster.build import embedded_defs
from retention_assets.dagster.scaffold import RetentionScaffolder
from retention_assets.errors import BadInput, Problem
from retention_assets.evaluation.rules_in_force import files_of
from retention_assets.policy.language import load_policies
from retention_assets.settings.model import FILE, Settings, load_settings, settings_of
from retention_assets.settings.schema import settings_schema
from retention_assets.settings.yaml import Document


@dg.scaffold_with(RetentionScaffolder)
class RetentionComponent(dg.Component, dg.Model, dg.Resolvable):
    """Retention for versioned data: judges histories by policy, marks what may go, sweeps it after its grace, and reports."""

    config: Annotated[
        str | None,
        dg.Resolver.default(description="The settings file, from this folder. Left out, and without settings: retention.yaml."),
    ] = None
    settings: Annotated[
        dict[str, Any] | None,
        dg.Resolver.default(
            description="The keys of the settings file, here. Relative paths are meant from this folder.",
            # Dagster admits a template for each attribute, which hides the errors of all of them.
            json_schema_extra={"if": {"type": "object"}, "then": settings_schema()},
        ),
    ] = None
    key_prefix: Annotated[
        str | list[str] | None,
        dg.Resolver.default(description="Before every name, so that nothing clashes; what the settings say when left out."),
    ] = None

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """What dg lists of it."""
        kinds = ("asset", "asset_check", "job", "resource", "schedule", "sensor")
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=["retention", "spark"], produces=kinds)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions; whose steps run where is for the project to say, so they bring no executor.

        Broken policies are refused where a project is loaded or checked. A run that is launched later, which may be one that
        puts a hold, loads all the same; what needs policies then refuses them.
        """
        settings = self._settings(context.path)
        if DefinitionsLoadContext.get().load_type is DefinitionsLoadType.INITIALIZATION:
            load_policies(files_of(settings))
        return embedded_defs(settings, self.key_prefix or ())

    def _settings(self, folder: Path) -> Settings:
        # A component beside others in one file gets the path of that file.
        folder = folder if folder.is_dir() else folder.parent
        if self.settings is None:
            return load_settings(folder / (self.config or FILE))
        if self.config is not None:
            raise BadInput(
                Problem("stands beside config", key="settings", expected="one of them: the keys here, or a file that has them")
            )
        return settings_of(Document(str(folder / "defs.yaml"), self.settings, {}))

"""Names that Dagster keeps to itself, all in this module, so that a new release of it is looked at in one place."""

# Dagster's documentation imports them from there as well.
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType


def is_first_load() -> bool:
    """False where a process of a run loads definitions that another process has loaded before."""
    return DefinitionsLoadContext.get().load_type is DefinitionsLoadType.INITIALIZATION

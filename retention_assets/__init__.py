"""Retention for versioned data: mark, wait, re-check, sweep, report, as Dagster assets on Spark."""

from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from retention_assets.dagster.component import RetentionComponent as RetentionComponent

if not TYPE_CHECKING:
    # Dagster lists the package's contents by these two. Commands need no Dagster and never ask.
    def __dir__() -> list[str]:
        return [*globals(), "RetentionComponent"]

    def __getattr__(name: str) -> object:
        if name != "RetentionComponent":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from retention_assets.dagster.component import RetentionComponent

        return RetentionComponent

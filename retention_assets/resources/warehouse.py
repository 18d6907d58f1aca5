"""The warehouse: where assets keep their tables, one folder per asset and run, never changed once written.

Belongs here: places, and which folder of an asset is the newest complete one. A run announces its folder in the asset's
materialization, so that a folder which a crash left half written is never read.
"""

import dagster as dg

FOLDER = "folder"


class Warehouse(dg.ConfigurableResource):  # type: ignore[type-arg]  # the resource is its own value
    """The root below which assets are written: a path, or a URI that Arrow can write to."""

    root: str

    def folder(self, asset: dg.AssetKey, run_id: str) -> str:
        """Where a run writes an asset."""
        return "/".join((self.root, *asset.path, run_id))

    def newest(self, instance: dg.DagsterInstance, asset: dg.AssetKey) -> str:
        """The folder of the newest materialization, or a sentence that says what to do."""
        event = instance.get_latest_materialization_event(asset)
        materialization = event.asset_materialization if event else None
        if materialization is None:
            name = asset.to_user_string()
            raise dg.Failure(f"{name} was never materialized. Materialize it first, or run the job `evaluate`.")
        return str(materialization.metadata[FOLDER].value)

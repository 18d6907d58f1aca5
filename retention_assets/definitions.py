"""Entry point for Dagster: `defs` is the code location, `build_defs` builds definitions of one's own, whose runs are given
an `Environment` and a `Warehouse`.

Public: these names stay here.
"""

import dagster as dg

from retention_assets.dagster.build import build_defs as build_defs
from retention_assets.dagster.build import embedded_defs as embedded_defs
from retention_assets.environment import Environment as Environment
from retention_assets.pipeline.warehouse import Warehouse as Warehouse


@dg.definitions
def defs() -> dg.Definitions:
    """The code location."""
    return build_defs()

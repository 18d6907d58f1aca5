"""Programs that tests fork in order to kill them: from one that has loaded everything and holds no connection.

Belongs here: what they all need, imported. There is one such program for all tests of this one, whoever asks for it first; what
it has not loaded each fork loads for itself, and that takes longer than what it is forked for.
"""

import multiprocessing
from multiprocessing.context import ForkServerContext

import retention_assets_tests.dagster.launch
import retention_assets_tests.ledger.states
import retention_assets_tests.stores.aspects.environments
import retention_assets_tests.stores.delta.environments
import retention_assets_tests.stores.files.environments
import retention_assets_tests.stores.records.environments
import retention_assets_tests.sweep.campaign
import retention_assets_tests.sweep.lakes
import retention_assets_tests.sweep.object_games  # noqa: F401


def forking() -> ForkServerContext:
    """Where to start them: `Process(target=…, args=…)`. What the environment says is as it was when the first was started."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context

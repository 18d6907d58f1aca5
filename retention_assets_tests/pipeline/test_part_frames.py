"""What a program of tasks has to load before its first row: each of them pays for it."""

import subprocess
import sys

SCRIPT = """
import sys
import retention_assets.pipeline.part_frames
import retention_assets.pipeline.read_logs
import retention_assets.stores.files.store
print(sorted({"dagster", "sqlalchemy", "alembic", "retention_assets.ledger", "retention_assets.dagster"} & sys.modules.keys()))
"""


def test_tasks_that_read_and_judge_load_neither_dagster_nor_the_ledger() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

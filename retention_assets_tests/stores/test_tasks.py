"""What keeps a program quick that runs many tasks, seen from outside."""

import subprocess
import sys

LOADED = """
import retention_assets.exchange
from retention_assets.stores.concurrency import set_aside_what_is_loaded
set_aside_what_is_loaded()
"""


def test_what_is_set_aside_is_cleared_away_at_the_end_of_a_program_without_a_word() -> None:
    """DuckDB would complain of what it loaded in fifty lines, below what the user came for."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")

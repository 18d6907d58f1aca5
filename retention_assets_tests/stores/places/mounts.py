"""Runs programs that mount, in namespaces of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
_ROOT = str(Path(__file__).parents[3])


def run_with_mounts(program: str, folder: Path, cases: Any) -> Mapping[str, Any]:
    """Run a program with a folder and cases (as JSON) as its arguments, and return what it prints. Skips where nobody may mount."""
    if subprocess.run([*_NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount in a namespace of his own (unshare --user --mount)")
    command = [*_NAMESPACE, sys.executable, "-c", program, str(folder), json.dumps(cases)]
    environment = {**os.environ, "PYTHONPATH": _ROOT}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    answers: Mapping[str, Any] = json.loads(done.stdout)
    return answers

"""The acceptance cases: histories and verdicts from the documents and test tables of other systems, answered by the command line.

Belongs here: `cases/`, as they are, through `retention preview`. They are examples of rules; the rules themselves are
frames/test_laws.py's. A case that fails here is a promise to a user of that system that is not kept.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from retention_assets_tests.people.conftest import script

CASES = Path(__file__).parents[1] / "cases"
FILES = ("main", "ods")


def expected(file: str) -> dict[str, Any]:
    return dict(json.loads((CASES / f"{file}.expected.json").read_text()))


@cache
def answered(file: str) -> dict[str, dict[str, str]]:
    files = ("--log", f"{file}.log.jsonl", "--policies", f"{file}.policies.yaml")
    run = script(CASES, "preview", "--format", "json", *files, "--as-of", expected(file)["as_of"])
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert all(dataset["refused"] is None for dataset in result["datasets"].values())
    found: dict[str, dict[str, str]] = {name: {} for name in result["datasets"]}
    for row in result["transactions"]:
        found[row["dataset"]][row["transaction"]] = row["verdict"]
    return found


@pytest.mark.parametrize(("file", "case"), [(file, case) for file in FILES for case in expected(file)["datasets"]])
def test_a_case_has_exactly_the_expected_verdicts(file: str, case: str) -> None:
    assert answered(file)[case] == expected(file)["datasets"][case]["verdicts"]


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_answered_with_its_cases_and_no_others(file: str) -> None:
    assert answered(file).keys() == expected(file)["datasets"].keys()

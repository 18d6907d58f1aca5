"""The shipped policies: each example is read, said, accepted by the schema, and run, so that it marks what its comments say."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import retention_assets
from retention_assets.evaluation.preview import preview
from retention_assets.evaluation.rules_in_force import rules_for
from retention_assets.policy import datahub, load_policies, policy_schema
from retention_assets.settings import Settings
from retention_assets.settings.yaml import read_document
from retention_assets_tests.histories import AS_OF, History, history, log_of

FOLDER = Path(retention_assets.__file__).parents[1] / "policies"
PAGE = FOLDER.parent / "docs" / "policies.md"
EXAMPLES = sorted((FOLDER / "examples").glob("*.yaml"))
HEADER = "# yaml-language-server: $schema=../schema.json\n"
# DataHub's list is not what the schema describes, and an editor that holds it against the schema would underline all of it.
FOREIGN = "datahub.yaml"

# The stores that the examples are about.
STORES = {"lake", "ods", "meta", "ice", "orphans"}

by_name = pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)


def drawn(dataset: str, drawing: str, **attributes: str) -> History:
    return history(drawing, dataset=dataset, attributes=attributes)


DAY = 24 * 60 * 60 * 1000


def own(days: int, snapshots: int) -> dict[str, str]:
    return {"history.expire.max-snapshot-age-ms": str(days * DAY), "history.expire.min-snapshots-to-keep": str(snapshots)}


# Per example: histories as of noon of 2026-03-31, and the verdict of every transaction.
RUNS: dict[str, list[tuple[History, dict[str, str]]]] = {
    "raw_by_age_and_views": [
        # A and B are old and behind three newer views; C is old, but one of the newest three.
        (drawn("lake/raw.orders", "main: A:SNAPSHOT@90d - B:APPEND@89d - C:SNAPSHOT@60d - D:SNAPSHOT@5d - "
                                 "E:SNAPSHOT@4d - F:APPEND@3d - G:APPEND@2d - H:APPEND@1d", tier="bronze"),
         {"A": "mark", "B": "mark", **dict.fromkeys("CDEFGH", "keep")}),
        # Behind three newer views, but exactly as old as the age, which is not older.
        (drawn("lake/raw.young", "main: A:SNAPSHOT@30d - B:SNAPSHOT@3d - C:SNAPSHOT@2d - D:SNAPSHOT@1d", tier="bronze"),
         dict.fromkeys("ABCD", "keep")),
        # More than a quarter of the dataset at once: nothing.
        (drawn("lake/raw.much", "main: A:SNAPSHOT@90d - B:SNAPSHOT@80d - C:SNAPSHOT@70d - D:SNAPSHOT@60d - E:SNAPSHOT@1d",
               tier="bronze"),
         {"A": "spare", "B": "spare", "C": "keep", "D": "keep", "E": "keep"}),
        (drawn("lake/raw.legal_a", "main: A:SNAPSHOT@90d - B:SNAPSHOT@3d - C:SNAPSHOT@2d - D:SNAPSHOT@1d", tier="bronze"),
         dict.fromkeys("ABCD", "keep")),
        (drawn("lake/raw.silver", "main: A:SNAPSHOT@90d - B:SNAPSHOT@3d - C:SNAPSHOT@2d - D:SNAPSHOT@1d", tier="silver"),
         dict.fromkeys("ABCD", "keep")),
    ],
    "aborted_transactions": [
        # A failed while it was appended to the latest view, and is in no view; X has no end, and is judged by its beginning;
        # L hangs on a path that no branch holds; O is still open.
        (drawn("lake/d", "main: S:SNAPSHOT@9d - A:APPEND!@8d - B:APPEND@7d - Y:APPEND!@20h  |  -: B - X:APPEND!@6d..  |  "
                         "-: S - G:APPEND@5d - L:APPEND!@4d  |  -: B - O:APPEND?@3d"),
         {"S": "keep", "A": "mark", "B": "keep", "Y": "keep", "X": "mark", "G": "keep", "L": "mark", "O": "open"}),
        (drawn("ods/d", "main: S:SNAPSHOT@9d - A:APPEND!@8d"), {"S": "keep", "A": "keep"}),
    ],
    "per_branch_windows": [
        # A left the latest view of main two years ago. B was current a year ago, so it stays with its append.
        (drawn("lake/mart.a", "main: A:SNAPSHOT@900d - B:SNAPSHOT@700d - C:APPEND@600d - D:SNAPSHOT@100d - E:SNAPSHOT@1d"),
         {"A": "mark", "B": "keep", "C": "keep", "D": "keep", "E": "keep"}),
        # On a branch of its own the same history goes after three days.
        (drawn("lake/mart.b", "topic: A:SNAPSHOT@900d - B:SNAPSHOT@700d - D:SNAPSHOT@2d - E:SNAPSHOT@1d"),
         {"A": "mark", "B": "mark", "D": "keep", "E": "keep"}),
        # Shared with main, it goes when main agrees as well: main keeps B for its year.
        (drawn("lake/mart.c", "main: A:SNAPSHOT@900d - B:SNAPSHOT@200d - M:SNAPSHOT@1d  |  topic: B - T:SNAPSHOT@1d"),
         {"A": "keep", "B": "keep", "M": "keep", "T": "keep"}),
        # A release keeps two views beside its month.
        (drawn("lake/mart.d", "release/1: A:SNAPSHOT@90d - B:SNAPSHOT@80d - C:SNAPSHOT@70d"),
         {"A": "mark", "B": "keep", "C": "keep"}),
        # Only on a backup: not looked at. In the backup's latest view: protected, whoever looks.
        (drawn("lake/mart.e", "backup/1: A:SNAPSHOT@90d - B:SNAPSHOT@80d"), {"A": "keep", "B": "keep"}),
        (drawn("lake/mart.f", "topic: A:SNAPSHOT@90d - B:SNAPSHOT@1d  |  backup/1: A"), {"A": "spare", "B": "keep"}),
    ],
    "datahub": [
        # 25 versions, all of them old: the current one and 20 before it stay.
        (drawn("meta/dataset.schemaMetadata", "u: " + " - ".join(f"V{n}:SNAPSHOT@{300 - n}d" for n in range(25))),
         {f"V{n}": "mark" if n < 4 else "keep" for n in range(25)}),
        # 25 versions, all of them young: all stay.
        (drawn("meta/dataset.domains", "u: " + " - ".join(f"V{n}:SNAPSHOT@{30 - n}d" for n in range(25))),
         {f"V{n}": "keep" for n in range(25)}),
        # The most specific entry counts whole: no age here.
        (drawn("meta/dataset.datasetProfile", "u: A:SNAPSHOT@3d - B:SNAPSHOT@2d - C:SNAPSHOT@1d"),
         {"A": "mark", "B": "keep", "C": "keep"}),
        (drawn("meta/chart.ownership", "u: " + " - ".join(f"V{n}:SNAPSHOT@{300 - n}d" for n in range(25))),
         {f"V{n}": "keep" for n in range(25)}),
    ],
    "units_of_work": [
        # Two years before noon is 2024-03-31, cut to its midnight: B closed in that night and stays, A closed before and goes.
        (drawn("ods/unit_of_work",
               "-: A:RECORD@2024-03-30T23:00:00Z  |  -: B:RECORD@2024-03-31T01:00:00Z  |  -: C:RECORD?@1200d  |  "
               "-: D:RECORD@1200d{type=PAYMENT}  |  -: E:RECORD@1200d~900d{type=PAYMENT}  |  -: F:RECORD@1200d{type=RECALL}"),
         {"A": "mark", "B": "keep", "C": "keep", "D": "keep", "E": "mark", "F": "mark"}),
    ],
    "hold": [
        (drawn("lake/orders", "main: 2025-1:SNAPSHOT@90d - 2026-1:SNAPSHOT@60d - 2026-2:SNAPSHOT@1d"),
         {"2025-1": "spare", "2026-1": "mark", "2026-2": "keep"}),
        (drawn("lake/orders.scratch", "main: 2025-1:SNAPSHOT@90d - 2026-2:SNAPSHOT@1d"), {"2025-1": "mark", "2026-2": "keep"}),
    ],
    "iceberg-own": [
        # Two days and the newest two on main; dev keeps twenty days, and shares A and B.
        (drawn("ice/db.a", "main: A:SNAPSHOT@90d - B:SNAPSHOT@9d - C:SNAPSHOT@8d - D:SNAPSHOT@7d - E:SNAPSHOT@1d  |  dev: B - F:SNAPSHOT@6d",
               **{"gc.enabled": "true", **own(2, 2), "history.expire.branch.dev.max-snapshot-age-ms": str(20 * DAY)}),
         {"A": "mark", "B": "keep", "C": "mark", "D": "keep", "E": "keep", "F": "keep"}),
        # A tag stands above what the table says.
        (drawn("ice/db.b", "main: A:SNAPSHOT@9d - B:SNAPSHOT@8d - C:SNAPSHOT@7d  |  #v1=A", **{"gc.enabled": "true", **own(2, 1)}),
         {"A": "spare", "B": "mark", "C": "keep"}),
        (drawn("ice/db.c", "main: A:SNAPSHOT@9d - B:SNAPSHOT@8d", **{"gc.enabled": "false", **own(2, 1)}), {"A": "keep", "B": "keep"}),
        # A number that cannot be read, and none at all.
        (drawn("ice/db.d", "main: A:SNAPSHOT@9d - B:SNAPSHOT@8d",
               **{"gc.enabled": "true", **own(2, 1), "history.expire.min-snapshots-to-keep": "few"}), {"A": "keep", "B": "keep"}),
        (drawn("ice/db.e", "main: A:SNAPSHOT@9d - B:SNAPSHOT@8d", **{"gc.enabled": "true"}), {"A": "keep", "B": "keep"}),
    ],
    "orphan_files": [
        # Exactly a week is not older. What a scan did not call unreferenced is not.
        (drawn("orphans/orphans", "-: A:OBJECT@8d{referenced=false}  |  -: B:OBJECT@7d{referenced=false}  |  "
                                  "-: C:OBJECT@90d{referenced=true}  |  -: D:OBJECT@90d"),
         {"A": "mark", "B": "keep", "C": "keep", "D": "keep"}),
    ],
    "derived_in_the_trash": [
        # All of it, the latest view and what no branch holds included; not what a tag pins.
        (drawn("lake/a", "main: A:SNAPSHOT@9d - B:APPEND@1d  |  -: A - C:APPEND@2d  |  -: B - O:APPEND?@1h",
               trashed="true", derived="true"),
         {"A": "mark", "B": "mark", "C": "mark", "O": "open"}),
        (drawn("lake/b", "main: A:SNAPSHOT@9d - B:SNAPSHOT@1d  |  #v1=A", trashed="true", derived="true"),
         {"A": "spare", "B": "mark"}),
        (drawn("lake/c", "main: A:SNAPSHOT@9d - B:SNAPSHOT@1d", trashed="true"), {"A": "keep", "B": "keep"}),
        (drawn("lake/e", "main: A:SNAPSHOT@9d=10000000000000 - B:SNAPSHOT@1d=1", trashed="true", derived="true"),
         {"A": "spare", "B": "spare"}),
    ],
}  # fmt: skip


def test_every_example_has_a_run() -> None:
    assert sorted(RUNS) == [file.stem for file in EXAMPLES]


@by_name
def test_an_example_marks_what_its_comments_say(file: Path) -> None:
    runs = RUNS[file.stem]
    log = log_of(one for one, _ in runs)
    # Without settings: the DataHub entries go by the names of the datasets.
    rules = rules_for(load_policies([file]), log.datasets["dataset"].to_pylist(), Settings())
    result = preview(log, rules, AS_OF)
    assert result.refused == {}
    found: dict[str, dict[str, str]] = {}
    for row in result.marks.select(["dataset", "transaction", "verdict"]).to_pylist():
        found.setdefault(row["dataset"], {})[row["transaction"]] = row["verdict"]
    for one, expected in runs:
        assert found[one.dataset] == expected, one


@by_name
def test_an_example_is_accepted_by_the_schema(file: Path) -> None:
    document = read_document(file)
    if file.name == FOREIGN:
        assert datahub.looks_like_datahub(document.data)
    else:
        jsonschema.Draft202012Validator(json.loads(policy_schema())).validate(document.data)


@by_name
def test_an_example_teaches_by_comments_and_names_its_schema(file: Path) -> None:
    text = file.read_text()
    assert text.startswith(HEADER) == (file.name != FOREIGN)
    comments = sum(line.lstrip().startswith("#") for line in text.splitlines())
    assert comments >= 5


def test_the_examples_may_stand_in_one_folder(tmp_path: Path) -> None:
    # So that somebody who copies several of them does not run into names that collide.
    policies = load_policies(EXAMPLES, STORES)
    assert len(policies.policies) >= 6
    assert len(policies.entries) == 3


def test_the_default_marks_nothing() -> None:
    policies = load_policies([FOLDER])
    assert (policies.policies, policies.holds, policies.entries) == ((), (), ())


def test_the_schema_in_the_folder_is_that_of_the_model() -> None:
    # To bring it up to date: retention schema > policies/schema.json
    assert (FOLDER / "schema.json").read_text() == policy_schema()


def keys_of(schema: dict[str, Any]) -> Iterator[str]:
    for part in [schema, *schema["$defs"].values()]:
        yield from part.get("properties", {})


def test_the_page_about_the_language_has_every_key() -> None:
    page = PAGE.read_text()
    missing = sorted(key for key in set(keys_of(json.loads(policy_schema()))) if not re.search(rf"[`.]{key}[`.]", page))
    assert missing == []


def test_the_worked_example_of_the_page_is_read(tmp_path: Path) -> None:
    page = PAGE.read_text()
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    assert blocks
    for number, block in enumerate(blocks):
        (tmp_path / f"{number}.yaml").write_text(block)
    assert load_policies([tmp_path]).policies

"""Policy files that are accepted, and what each form in them means; entries under `visibility`, and how their mistakes are named."""

from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import BadInput
from retention_assets.policy import (
    Duration,
    Hold,
    OlderThan,
    Policies,
    Policy,
    Selection,
    as_loaded,
    load_policies,
    parse_instant,
    scope_of,
)
from retention_assets.policy.book import item_of, sentence_of
from retention_assets_tests.policy.broken_files import WIDE, datasets, hold, policy, select


def one(tmp_path: Path, text: str) -> Policy:
    (tmp_path / "p.yaml").write_text(text)
    [found] = load_policies([tmp_path]).policies
    return found


DEFAULTS: dict[str, Any] = {"age": Duration(days=30), "of": "closed", "align": None}


@pytest.mark.parametrize(
    ("lines", "meaning"),
    [
        ("all", Selection()),
        ("{older_than: 30d}", Selection(older_than=OlderThan(**DEFAULTS))),
        ("{older_than: {age: 30d}}", Selection(older_than=OlderThan(**DEFAULTS))),
        ("{older_than: '30d'}", Selection(older_than=OlderThan(**DEFAULTS))),
        ("{older_than: {age: P30D, of: archived, align: day}}",
         Selection(older_than=OlderThan(age=Duration(days=30), of="archived", align="day"))),
        ("{types: [APPEND], status: [ABORTED]}", Selection(types=("APPEND",), status=("ABORTED",))),
        ("{terminal_only: true}", Selection(terminal_only=True)),
        ("{terminal_only: false, older_than: 30d}", Selection(terminal_only=False, older_than=OlderThan(**DEFAULTS))),
    ],
)  # fmt: skip
def test_each_form_of_select_means_what_it_says(lines: str, meaning: Selection, tmp_path: Path) -> None:
    assert one(tmp_path, select(lines)).select == meaning


def test_durations_are_read_in_every_place(tmp_path: Path) -> None:
    text = "P1Y2M3W4DT5H6M7S"
    lines = f"select: {{older_than: {text}, in_views_older_than: {text}}}\ngrace: {text}\nsweep: {{every: {text}}}"
    found, meaning = one(tmp_path, policy(lines)), Duration(months=14, days=25, seconds=5 * 3600 + 6 * 60 + 7)
    assert found.select.older_than is not None
    assert found.select.older_than.age == found.select.in_views_older_than == found.grace == found.sweep.every == meaning


def test_a_policy_without_the_keys_that_may_be_left_out_has_the_defaults_of_the_design(tmp_path: Path) -> None:
    found = one(tmp_path, select("all"))
    assert found.grace == Duration(days=7)
    assert (found.branches.include, found.branches.reach, found.branches.windows) == (("*",), "live", ())
    assert (found.latest_view, found.limits, found.confirm, found.force_overwrite) == (None, None, None, False)
    sweep = found.sweep
    assert (sweep.mode, sweep.batch, sweep.every, sweep.parallelism) == ("delete", 500, Duration(seconds=1), 8)


def test_no_grace_is_accepted_with_its_word(tmp_path: Path) -> None:
    assert not one(tmp_path, policy("select: all\ngrace: 0s\nconfirm: no-grace")).grace


@pytest.mark.parametrize(("text", "meaning"), [("1", 1.0), ("1.0", 1.0), ("0.05", 0.05), (".5", 0.5), ("5e-2", 0.05)])
def test_a_fraction_is_accepted_up_to_one(text: str, meaning: float, tmp_path: Path) -> None:
    limits = one(tmp_path, policy(f"select: all\nlimits: {{fraction: {text}}}")).limits
    assert limits is not None
    assert limits.fraction == meaning


@pytest.mark.parametrize(
    "glob",
    ["lake/[[]x]", "lake/[]ab]", "lake/[!a]*", "lake/[a-z]", "lake/[a-a]", "lake/a]", "lake/[-a]", "lake/[a-]", "lake/日本"],
)
def test_a_glob_with_whole_sets_is_accepted(glob: str, tmp_path: Path) -> None:
    assert one(tmp_path, datasets(f"{{include: ['{glob}']}}")).datasets.include == (glob,)


@pytest.mark.parametrize("form", ["lake/d", "[lake/d]", "{include: [lake/d]}"])
def test_a_hold_names_its_datasets_as_text_as_a_list_or_as_a_mapping(form: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        hold(f"datasets: {form}\ntransactions: [T1, 'T2*']\nuntil: 2026-06-01T02:00:00+02:00\nowner: legal")
    )
    [found] = load_policies([tmp_path]).holds
    assert isinstance(found, Hold)
    assert (found.name, found.datasets.include, found.transactions) == ("h", ("lake/d",), ("T1", "T2*"))
    assert found.until == parse_instant("2026-06-01T00:00:00Z")


def test_a_hold_without_a_name_gets_one_for_its_reasons_to_name(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("holds:\n  - datasets: lake/a\n  - {name: b, datasets: lake/b}\n  - datasets: lake/c\n")
    assert [found.name for found in load_policies([tmp_path]).holds] == ["hold-1", "b", "hold-3"]


@pytest.mark.parametrize("name", ["2026-01-01", "on", "yes", "12:30", "'7'", "raw 30 days", "日本", "0x", "1_000"])
def test_a_name_that_other_yaml_readers_take_for_something_else_is_its_text(name: str, tmp_path: Path) -> None:
    assert one(tmp_path, WIDE.format(name=name)).name == name.strip("'")


def test_policies_are_in_the_order_of_file_name_and_position(tmp_path: Path) -> None:
    # The first policy that selects a transaction gets the credit, so the order is part of what the files say.
    for folder, file, names in (("z", "a.yml", "23"), ("a", "b.YAML", "45"), ("a", "0.yaml", "1")):
        (tmp_path / folder).mkdir(exist_ok=True)
        text = "policies:\n" + "".join(WIDE.format(name=f"p{name}").partition("\n")[2] for name in names)
        (tmp_path / folder / file).write_text(text)
    found = load_policies([tmp_path / "z", tmp_path / "a"])
    assert [one.name for one in found.policies] == ["p1", "p2", "p3", "p4", "p5"]


def test_no_policies_are_said_with_an_empty_list(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("policies: []\nholds: []\n")
    assert load_policies([tmp_path]) == Policies()


LAKE = "{datasets: {include: ['lake/*']}, retention: 30d}"


def read(folder: Path, *entries: str) -> Policies:
    (folder / "v.yaml").write_text(f"visibility: [{', '.join(entries)}]\n")
    return load_policies([folder], {"lake"})


def test_an_entry_says_for_how_long_datasets_stay_readable(tmp_path: Path) -> None:
    [rule] = read(tmp_path, LAKE).visibility
    assert (rule.datasets.include, rule.retention) == (("lake/*",), Duration(days=30))


def test_an_entry_is_the_same_after_the_book(tmp_path: Path) -> None:
    [rule] = read(tmp_path, "{datasets: {include: [lake/d], exclude: [lake/x], with: {tier: b}}, retention: P1M}").visibility
    loaded = as_loaded(rule)
    assert item_of(loaded.name, loaded.content) == rule
    assert scope_of(loaded.name, loaded.content) == rule.datasets
    assert rule.name == "visibility:lake/d without lake/x with tier=b"
    assert sentence_of(rule) == (
        "Keeps the last 1 month of the history of lake/d without lake/x with tier=b readable: each evaluation raises the"
        " visibility mark of these datasets to that age, and never past what is current."
    )


MISTAKES = {
    "no retention": ("{datasets: {include: ['lake/*']}}", "retention: is missing"),
    "a retention of zero": ("{datasets: {include: ['lake/*']}, retention: 0d}", "retention: an age of zero does not narrow"),
    "an unknown key": ("{datasets: {include: ['lake/*']}, retentoin: 30d}", "Did you mean retention?"),
    "an unknown store": ("{datasets: {include: ['laek/*']}, retention: 30d}", "store 'laek' is not in the settings"),
    "the same datasets twice": (
        f"{LAKE}, {LAKE.replace('30d', '60d')}", "datasets: matches the same datasets as another entry of visibility",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_names_file_line_and_key(entry: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, entry)
    assert words in str(caught.value)
    assert all(problem.line == 1 and str(problem.file).endswith("v.yaml") for problem in caught.value.problems)


def test_entries_of_two_files_about_the_same_datasets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"visibility: [{LAKE}]\n")
    with pytest.raises(BadInput, match=r"The other one is at .*a\.yaml:1"):
        read(tmp_path, LAKE.replace("30d", "60d"))


def test_no_policy_has_a_name_of_theirs(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("policies: [{name: 'visibility:lake/*', datasets: {include: ['lake/*']}, select: all}]\n")
    with pytest.raises(BadInput, match="begins with visibility:, which names entries of visibility"):
        load_policies([tmp_path])

"""The forecast of an environment: its rules, its marks, other policies, prices, and what is left out."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.environment import Environment
from retention_assets.errors import BadInput
from retention_assets.evaluation.days import Forecast, ForecastDay
from retention_assets.people.forecast import ForecastRequest, forecast_environment
from retention_assets.policy.model import Hold
from retention_assets.settings.model import load_settings
from retention_assets_tests.histories import AS_OF, history, to_lines
from retention_assets_tests.sweep.lakes import MARKED, OLD, Lake

GIB = 2**30
GRACE = 7
# A was replaced long ago; the others are in the latest view.
TWO_VIEWS = "main: A:SNAPSHOT@50d=700 - B:SNAPSHOT@40d=90 - C:APPEND@39d=8"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(TWO_VIEWS)


def foreseen(lake: Lake, days: int = 12, as_of: datetime = AS_OF, **request: Any) -> Forecast:
    return forecast_environment(ForecastRequest(days=days, as_of=as_of, **request), Environment(lake.settings))


def said(days: Sequence[ForecastDay], name: str) -> dict[int, int]:
    """By the number of the day what is not nothing."""
    return {number: value for number, day in enumerate(days, 1) if (value := getattr(day, name))}


def test_what_a_policy_selects_is_marked_on_the_first_day_and_goes_when_its_grace_is_over(lake: Lake) -> None:
    found = foreseen(lake).in_force
    assert (said(found.days, "marked"), said(found.days, "deleted")) == ({1: 1}, {1 + GRACE: 1})
    assert (found.start.bytes, [day.bytes for day in found.days[6:8]], found.days[-1].bytes) == (798, [798, 98], 98)
    assert set(said(found.days, "waiting")) == set(range(1, 1 + GRACE))
    assert [day.date for day in found.days] == [(AS_OF + timedelta(days=number)).date() for number in range(12)]
    assert (found.marked["old"], found.deleted["old"], found.bytes_deleted["old"]) == (1, 1, 700)


def test_nothing_is_written(lake: Lake) -> None:
    before = {str(file): file.read_bytes() for file in lake.folder.rglob("*") if file.is_file()}
    foreseen(lake)
    assert {str(file): file.read_bytes() for file in lake.folder.rglob("*") if file.is_file()} == before
    assert not (lake.folder / "ledger.db").exists()


def test_what_is_marked_keeps_the_day_on_which_it_is_due(lake: Lake) -> None:
    lake.marks(AS_OF - timedelta(days=3))
    found = foreseen(lake).in_force
    assert (said(found.days, "marked"), said(found.days, "deleted")) == ({}, {1 + GRACE - 3: 1})
    assert (found.start.waiting, found.start.bytes_waiting) == (1, 700)


def test_what_was_swept_is_not_there_any_more(lake: Lake) -> None:
    lake.marks()
    lake.sweeps()
    found = foreseen(lake, as_of=MARKED + timedelta(days=8)).in_force
    assert (found.start.transactions, found.start.bytes) == (2, 98)
    assert (said(found.days, "marked"), said(found.days, "deleted")) == ({}, {})


def test_marks_of_a_policy_that_was_narrowed_are_spared(lake: Lake) -> None:
    lake.marks()
    lake.says(OLD.replace("30d", "900d"))
    days = foreseen(lake).in_force.days
    assert (said(days, "spared"), said(days, "deleted")) == ({1 + GRACE: 1}, {})


def test_a_mark_that_its_own_policy_no_longer_justifies_is_spared_whatever_others_say(lake: Lake) -> None:
    alone = "{name: a, datasets: {include: ['lake/*']}, branches: {only_in: main}, select: {older_than: 30d}}"
    lake.says(alone)
    lake.marks()
    lake.branches("dev", "C")
    lake.says(f"{alone}, {{name: b, datasets: {{include: ['lake/*']}}, select: {{older_than: 30d}}, grace: 2d}}")
    found = foreseen(lake).in_force
    assert (said(found.days, "spared"), said(found.days, "marked"), said(found.days, "deleted")) == ({8: 1}, {9: 1}, {11: 1})


def test_limits_bound_what_is_marked_and_not_what_is_swept(tmp_path: Path) -> None:
    limited = OLD.replace("select:", "limits: {transactions: 1}, select:")
    young = " - ".join(f"{name}:SNAPSHOT@25d" for name in ("B", "C", "D"))
    lake = Lake(tmp_path / "lake", policies=limited).has(f"main: A:SNAPSHOT@50d - {young}")
    found = foreseen(lake).in_force
    # B and C are two at once, and so too many; A was marked before, and is neither counted nor kept.
    assert (said(found.days, "marked"), said(found.days, "spared"), said(found.days, "deleted")) == ({1: 1}, {}, {8: 1})


def test_what_people_hold_stays_until_they_do_not(lake: Lake) -> None:
    lake.marks()
    with lake.opened() as ledger:
        until = AS_OF + timedelta(days=9)
        ledger.holds.place(
            Hold.model_validate({"name": "h", "datasets": ["lake/d"], "reason": "why", "until": until.isoformat()}), "ann"
        )
    found = foreseen(lake, 20).in_force
    # Spared when it is due, and marked anew on the first day without the hold.
    assert (said(found.days, "spared"), said(found.days, "marked"), said(found.days, "deleted")) == ({8: 1}, {10: 1}, {17: 1})


def test_what_comes_again_under_the_name_of_what_is_marked_is_spared_and_marked_anew(lake: Lake) -> None:
    lake.marks()
    lake.comes_again("A", bytes=701)
    found = foreseen(lake, 20).in_force
    assert (said(found.days, "spared"), said(found.days, "marked"), said(found.days, "deleted")) == ({8: 1}, {9: 1}, {16: 1})


def test_marks_that_no_log_has_any_more_are_spared_when_they_are_due(lake: Lake) -> None:
    lake.marks()
    rewritten = to_lines([history("main: B:SNAPSHOT@40d=90 - C:APPEND@39d=8", dataset="lake/d")])
    (lake.folder / "log" / "lake-d.jsonl").write_text("".join(f"{line}\n" for line in rewritten))
    found = foreseen(lake).in_force
    assert (found.start.waiting, said(found.days, "spared"), said(found.days, "deleted")) == (0, {1 + GRACE: 1}, {})
    assert found.spared_because == {"The store's log does not have it any more.": 1}


def test_a_realm_that_is_purged_goes_whole(lake: Lake) -> None:
    lake._log("lake/d", ['{"dataset":"lake/d","realm":"acme"}'])
    with lake.opened() as ledger:
        ledger.realms.change("acme", "PURGING", "ann", "over")
    found = foreseen(lake, 3)
    assert said(found.in_force.days, "deleted") == {1: 3}
    assert found.in_force.days[-1].bytes == 0


def test_others_are_shown_beside_and_change_nothing_of_what_is_marked(lake: Lake, tmp_path: Path) -> None:
    lake.marks()
    other = tmp_path / "other.yaml"
    eager = {"name": "all", "datasets": {"include": ["lake/*"]}, "select": {"older_than": "1d"}, "latest_view": "allow"}
    other.write_text(json.dumps({"policies": [{**eager, "grace": "2d"}]}))
    found = foreseen(lake, policies=(other,))
    assert said(found.in_force.days, "deleted") == {1 + GRACE: 1}
    (beside,) = found.others
    assert (beside.policies, said(beside.days, "deleted")) == (str(other), {3: 2, 1 + GRACE: 1})
    told = found.as_dict()
    assert (told["policies"], [one["policies"] for one in told["others"]]) == ("today", [str(other)])


def priced(lake: Lake, table: Mapping[str, Any]) -> None:
    settings = json.loads(lake.settings_file.read_text())
    lake.settings_file.write_text(json.dumps({**settings, "prices": table}))


def test_money_is_said_where_there_are_prices(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake").has(f"main: A:SNAPSHOT@50d={3 * GIB}[#2000] - B:SNAPSHOT@40d={GIB}")
    assert "currency" not in (told := foreseen(lake).as_dict())
    assert "month" not in told["days"][0]
    price = {"gib_month": 0.5, "thousand_deletes": 0.25, "minimum_days": 87}
    priced(lake, {"currency": "EUR", "default": price})
    told = foreseen(lake).as_dict()
    assert (told["currency"], told["start"]["month"], told["days"][-1]["month"]) == ("EUR", 2, 0.5)
    day = told["days"][GRACE]
    # 57 days old when it goes, so a month of it is billed still.
    assert {name: day[name] for name in ("saved", "requests", "early")} == {"saved": 1.5, "requests": 0.5, "early": 1.5}
    assert sum(one["saved"] for one in told["days"]) == 1.5


def test_a_class_of_storage_has_its_own_price(tmp_path: Path) -> None:
    drawing = f"main: A:SNAPSHOT@50d={GIB}{{storage_class=COLD}} - B:SNAPSHOT@40d={GIB}"
    lake = Lake(tmp_path / "lake").has(drawing)
    priced(lake, {"stores": {"lake": {"gib_month": 2}}, "classes": {"COLD": {"gib_month": 0.125}}})
    assert foreseen(lake).in_force.start.month == 2.125
    priced(lake, {"classes": {"COLD": {"gib_month": 0.125}}})
    assert foreseen(lake).in_force.start.month == 0.125


def test_a_dataset_that_is_not_sound_is_named_and_the_others_are_foreseen(lake: Lake) -> None:
    lake._log("lake/bad", ['{"dataset":"lake/bad","transaction":"X","parent":"X","type":"APPEND","status":"ABORTED"}'])
    found = foreseen(lake)
    assert found.refused == {"lake/bad": {"fault": "cycle", "transaction": "X"}}
    assert found.in_force.total("deleted") == 1
    assert found.left_out == ["lake/bad is left out, because its log is not sound: cycle"]


def test_a_store_that_is_away_is_named_and_the_others_are_foreseen(lake: Lake) -> None:
    settings = json.loads(lake.settings_file.read_text())
    away = {"name": "away", "kind": "files", "log": "nowhere", "data": "nothing/{dataset}/{transaction}"}
    lake.settings_file.write_text(json.dumps({**settings, "stores": [away, *settings["stores"]]}))
    found = foreseen(lake)
    assert found.away["away"].startswith("the store away failed: ")
    assert found.in_force.total("deleted") == 1


def test_only_the_datasets_that_are_asked_for_are_foreseen(lake: Lake) -> None:
    lake.has(TWO_VIEWS, "lake/e")
    assert foreseen(lake).in_force.total("deleted") == 2
    assert foreseen(lake, datasets=("lake/e",)).in_force.total("deleted") == 1
    assert foreseen(lake, datasets=("nothing",)).in_force.datasets == 0


@pytest.mark.parametrize("days", [0, -1, 1_001])
def test_no_days_and_too_many_are_refused(days: int) -> None:
    with pytest.raises(BadInput, match="is out of bounds"):
        ForecastRequest(days=days)


def test_an_instant_behind_which_there_are_too_few_years_is_refused(lake: Lake) -> None:
    with pytest.raises(BadInput, match="years enough"):
        foreseen(lake, as_of=AS_OF.replace(year=9990))


def test_settings_without_a_store_are_refused(tmp_path: Path) -> None:
    (tmp_path / "retention.yaml").write_text("{}")
    with pytest.raises(BadInput, match="no store"):
        forecast_environment(ForecastRequest(), Environment(load_settings(tmp_path / "retention.yaml")))


def test_many_datasets_are_foreseen_some_at_a_time_with_one_result(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [history(TWO_VIEWS, dataset=f"lake/m{number}") for number in range(7)]
    (lake.folder / "log" / "many.jsonl").write_text("".join(f"{line}\n" for line in to_lines(drawn)))
    whole = foreseen(lake).as_dict()
    assert sum(day["deleted"] for day in whole["days"]) == 8
    monkeypatch.setattr("retention_assets.people.rehearsal._ROWS_AT_ONCE", 7)
    assert foreseen(lake).as_dict() == whole

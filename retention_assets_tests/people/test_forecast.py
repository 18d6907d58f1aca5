"""`forecast` and `simulate`: each day has what marking and sweeping do on it, and nothing is touched.

The forecast knows policies in force and others, prices, and what is left out. The simulation lives through the days on a copy.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Refused
from retention_assets.evaluation.days import Forecast, ForecastDay
from retention_assets.outcomes import Outcome
from retention_assets.people.forecast import (
    ForecastRequest,
    SimulationRequest,
    forecast_environment,
    show_simulation,
)
from retention_assets.policy import Hold
from retention_assets.stores.files.store import FilesStore
from retention_assets_tests.histories import AS_OF, history, to_lines
from retention_assets_tests.people.conftest import DONE, FAILED, REFUSED, Json, Run
from retention_assets_tests.people.logs import CYCLE, NOW
from retention_assets_tests.people.terminals import COLUMNS, at_terminal
from retention_assets_tests.people.test_plan import AT_ONCE, ELSEWHERE, GONE, HISTORY, content
from retention_assets_tests.sweep.lakes import MARKED, OLD, Lake

GIB = 2**30
GRACE = 7
DAY = timedelta(days=1)
# A was replaced long ago; the others are in the latest view.
TWO_VIEWS = "main: A:SNAPSHOT@50d=700 - B:SNAPSHOT@40d=90 - C:APPEND@39d=8"
EAGER = "policies: [{name: eager, datasets: {include: ['lake/*']}, select: {older_than: 1d}, latest_view: allow, grace: 2d}]\n"


@pytest.fixture
def viewed(lake: Lake) -> Lake:
    """Two views, of which one may go."""
    return lake.has(TWO_VIEWS)


def foreseen(lake: Lake, days: int = 12, as_of: datetime = AS_OF, **request: Any) -> Forecast:
    return forecast_environment(ForecastRequest(days=days, as_of=as_of, **request), Environment(lake.settings))


def by_day(days: Sequence[ForecastDay], name: str) -> dict[int, int]:
    """By the number of the day what is not nothing."""
    return {number: value for number, day in enumerate(days, 1) if (value := getattr(day, name))}


def what_happens(lake: Lake, days: int = 12, **request: Any) -> tuple[dict[int, int], ...]:
    """Marked, spared and deleted, by the number of the day."""
    in_force = foreseen(lake, days, **request).in_force
    return tuple(by_day(in_force.days, name) for name in ("marked", "spared", "deleted"))


# --- the forecast ---


def test_what_a_policy_selects_is_marked_on_the_first_day_and_goes_when_its_grace_is_over(viewed: Lake) -> None:
    before = content(viewed.folder)
    in_force = foreseen(viewed).in_force
    assert what_happens(viewed) == ({1: 1}, {}, {1 + GRACE: 1})
    assert (in_force.start.bytes, [day.bytes for day in in_force.days[6:8]], in_force.days[-1].bytes) == (798, [798, 98], 98)
    assert set(by_day(in_force.days, "waiting")) == set(range(1, 1 + GRACE))
    assert [day.date for day in in_force.days] == [(AS_OF + timedelta(days=number)).date() for number in range(12)]
    assert (in_force.marked["old"], in_force.deleted["old"], in_force.bytes_deleted["old"]) == (1, 1, 700)
    assert content(viewed.folder) == before


def test_what_is_marked_keeps_the_day_on_which_it_is_due(viewed: Lake) -> None:
    viewed.marks(AS_OF - timedelta(days=3))
    assert what_happens(viewed) == ({}, {}, {1 + GRACE - 3: 1})
    start = foreseen(viewed).in_force.start
    assert (start.waiting, start.bytes_waiting) == (1, 700)


def test_what_was_swept_is_not_there_any_more(viewed: Lake) -> None:
    viewed.marks()
    viewed.sweeps()
    later = MARKED + timedelta(days=8)
    start = foreseen(viewed, as_of=later).in_force.start
    assert (start.transactions, start.bytes, what_happens(viewed, as_of=later)) == (2, 98, ({}, {}, {}))


def test_marks_of_a_policy_that_was_narrowed_are_spared(viewed: Lake) -> None:
    viewed.marks()
    viewed.says(OLD.replace("30d", "900d"))
    assert what_happens(viewed) == ({}, {1 + GRACE: 1}, {})


def test_a_mark_that_its_own_policy_no_longer_justifies_is_spared_whatever_others_say(viewed: Lake) -> None:
    alone = "{name: a, datasets: {include: ['lake/*']}, branches: {only_in: main}, select: {older_than: 30d}}"
    viewed.says(alone)
    viewed.marks()
    viewed.branches("dev", "C")
    viewed.says(f"{alone}, {{name: b, datasets: {{include: ['lake/*']}}, select: {{older_than: 30d}}, grace: 2d}}")
    assert what_happens(viewed) == ({9: 1}, {8: 1}, {11: 1})


def test_limits_bound_what_is_marked_and_not_what_is_swept(lake: Lake) -> None:
    lake.says(OLD.replace("select:", "limits: {transactions: 1}, select:"))
    lake.has("main: A:SNAPSHOT@50d - B:SNAPSHOT@25d - C:SNAPSHOT@25d - D:SNAPSHOT@25d")
    # B and C are two at once, and so too many; A was marked before, and is neither counted nor kept.
    assert what_happens(lake) == ({1: 1}, {}, {8: 1})


def test_what_people_hold_stays_until_they_do_not(viewed: Lake) -> None:
    viewed.marks()
    until = (AS_OF + timedelta(days=9)).isoformat()
    with viewed.opened() as ledger:
        ledger.holds.place(Hold.model_validate({"name": "h", "datasets": ["lake/d"], "reason": "why", "until": until}), "ann")
    # Spared when it is due, and marked anew on the first day without the hold.
    assert what_happens(viewed, 20) == ({10: 1}, {8: 1}, {17: 1})


def test_what_comes_again_under_the_name_of_what_is_marked_is_spared_and_marked_anew(viewed: Lake) -> None:
    viewed.marks()
    viewed.comes_again("A", bytes=701)
    assert what_happens(viewed, 20) == ({9: 1}, {8: 1}, {16: 1})


def test_marks_that_no_log_has_any_more_are_spared_when_they_are_due(viewed: Lake) -> None:
    viewed.marks()
    rewritten = to_lines([history("main: B:SNAPSHOT@40d=90 - C:APPEND@39d=8", dataset="lake/d")])
    (viewed.folder / "log" / "lake-d.jsonl").write_text("".join(f"{line}\n" for line in rewritten))
    in_force = foreseen(viewed).in_force
    assert (in_force.start.waiting, what_happens(viewed)) == (0, ({}, {1 + GRACE: 1}, {}))
    assert in_force.spared_because == {"The store's log does not have it any more.": 1}


def test_a_realm_that_is_purged_goes_whole(viewed: Lake) -> None:
    viewed._log("lake/d", ['{"dataset":"lake/d","realm":"acme"}'])
    with viewed.opened() as ledger:
        ledger.realms.change("acme", "PURGING", "ann", "over")
    in_force = foreseen(viewed, 3).in_force
    assert (by_day(in_force.days, "deleted"), in_force.days[-1].bytes) == ({1: 3}, 0)


def test_others_are_shown_beside_and_change_nothing_of_what_is_marked(viewed: Lake, run: Run) -> None:
    viewed.marks()
    Path("other.yaml").write_text(EAGER)
    forecast = foreseen(viewed, policies=(Path("other.yaml"),))
    assert by_day(forecast.in_force.days, "deleted") == {1 + GRACE: 1}
    (beside,) = forecast.others
    assert (beside.policies, by_day(beside.days, "deleted")) == ("other.yaml", {3: 2, 1 + GRACE: 1})
    code, out, _ = run("forecast", "--policies", "other.yaml", "--as-of", NOW)
    assert code == DONE
    assert "Week by week, with the policies in force" in out
    assert "Week by week, with other.yaml" in out


def test_money_is_said_where_there_are_prices(lake: Lake) -> None:
    lake.has(f"main: A:SNAPSHOT@50d={3 * GIB}[#2000] - B:SNAPSHOT@40d={GIB}")
    told = foreseen(lake).as_dict()
    assert ("currency" in told, "month" in told["days"][0]) == (False, False)
    lake.configures(prices={"currency": "EUR", "default": {"gib_month": 0.5, "thousand_deletes": 0.25, "minimum_days": 87}})
    told = foreseen(lake).as_dict()
    assert (told["currency"], told["start"]["month"], told["days"][-1]["month"]) == ("EUR", 2, 0.5)
    day = told["days"][GRACE]
    # 57 days old when it goes, so a month of it is billed still.
    assert {name: day[name] for name in ("saved", "requests", "early")} == {"saved": 1.5, "requests": 0.5, "early": 1.5}
    assert sum(one["saved"] for one in told["days"]) == 1.5


@pytest.mark.parametrize(("stores", "month"), [({"lake": {"gib_month": 2}}, 2.125), ({}, 0.125)])
def test_a_class_of_storage_has_its_own_price(stores: dict[str, Any], month: float, lake: Lake) -> None:
    lake.has(f"main: A:SNAPSHOT@50d={GIB}{{storage_class=COLD}} - B:SNAPSHOT@40d={GIB}")
    lake.configures(prices={"stores": stores, "classes": {"COLD": {"gib_month": 0.125}}})
    assert foreseen(lake).in_force.start.month == month


def test_what_is_sick_or_away_is_named_and_the_others_are_foreseen(viewed: Lake, run: Run) -> None:
    viewed._log("lake/bad", [CYCLE.strip()])
    forecast = foreseen(viewed)
    assert (forecast.refused, forecast.in_force.total("deleted")) == ({"lake/bad": {"fault": "cycle", "transaction": "X"}}, 1)
    code, out, err = run("forecast", "--as-of", NOW, "--format", "json")
    assert (code, json.loads(out)["refused"]["lake/bad"]["fault"]) == (REFUSED, "cycle")
    assert err == "lake/bad is left out, because its log is not sound: cycle\n"
    assert run("forecast", "--as-of", NOW, "--strict")[0] == FAILED
    viewed.configures(GONE)
    assert foreseen(viewed).away["gone"].startswith("the store gone failed: ")
    code, out, err = run("forecast", "--as-of", NOW, "--format", "json")
    assert (code, list(json.loads(out)["away"]), len(json.loads(out)["days"])) == (FAILED, ["gone"], 90)
    assert err.startswith("gone is left out: ")


def test_only_the_datasets_that_are_asked_for_are_foreseen(viewed: Lake, run: Run) -> None:
    viewed.has(TWO_VIEWS, "lake/e")
    assert foreseen(viewed).in_force.total("deleted") == 2
    assert foreseen(viewed, datasets=("lake/e",)).in_force.total("deleted") == 1
    assert foreseen(viewed, datasets=("nothing",)).in_force.datasets == 0
    assert run("forecast", "--dataset", "lake/x*")[:2] == (DONE, "There is no dataset to forecast.\n")


def test_an_instant_behind_which_there_are_too_few_years_and_settings_without_a_store_are_refused(lake: Lake) -> None:
    with pytest.raises(BadInput, match="an earlier instant"):
        foreseen(lake, as_of=AS_OF.replace(year=9990))
    lake.configures(stores=[])
    with pytest.raises(BadInput, match="no store"):
        foreseen(lake)


def test_many_datasets_are_foreseen_some_at_a_time_with_one_result(viewed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [history(TWO_VIEWS, dataset=f"lake/m{number}") for number in range(7)]
    (viewed.folder / "log" / "many.jsonl").write_text("".join(f"{line}\n" for line in to_lines(drawn)))
    whole = foreseen(viewed).as_dict()
    assert sum(day["deleted"] for day in whole["days"]) == 8
    monkeypatch.setattr("retention_assets.people.rehearsal._ROWS_AT_ONCE", 7)
    assert foreseen(viewed).as_dict() == whole


@pytest.fixture
def daily(lake: Lake) -> Lake:
    return lake.has("main: " + " - ".join(f"T{age}:SNAPSHOT@{age}d=1000000" for age in range(60, 0, -1)))


@pytest.mark.usefixtures("daily")
def test_json_has_an_entry_for_each_of_ninety_days(found: Json) -> None:
    told = found("forecast", "--as-of", NOW)
    assert len(told["days"]) == 90
    assert (told["days"][0]["date"], told["days"][-1]["date"]) == ("2026-03-31", "2026-06-28")
    for name in ("bytes", "bytes_marked", "bytes_deleted", "marked", "deleted", "waiting", "transactions"):
        assert all(isinstance(day[name], int) for day in told["days"]), name
    assert (told["policies"], told["others"], told["refused"], told["away"]) == ("today", [], {}, {})
    assert told["by_policy"]["old"]["deleted"] == sum(day["deleted"] for day in told["days"]) == 59
    # What is there is what was there and did not go.
    left = told["start"]["bytes"]
    for day in told["days"]:
        left -= day["bytes_deleted"]
        assert day["bytes"] == left


@pytest.mark.parametrize(("days", "rows"), [("1", 1), ("14", 14), ("15", 3), ("90", 13), ("126", 18), ("365", 14)])
def test_the_table_has_few_rows_and_fits_80_columns(days: str, rows: int, daily: Lake, run: Run) -> None:
    daily.configures(prices={"currency": "EUR", "default": {"gib_month": 0.023}})
    code, out, err = run("forecast", "--days", days, "--as-of", NOW)
    assert (code, err) == (DONE, "")
    assert len(re.findall(r"^│ \d{4}-\d\d-\d\d", out, re.MULTILINE)) == rows
    assert max(len(line) for line in out.splitlines() if line and not line[0].isalpha()) <= 80
    for words in ("EUR a month", "█", "Assumed: nothing new arrives"):
        assert words in out


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    "typed",
    [
        "forecast --days 0", "forecast --days -1", "forecast --days 1001", "forecast --days x", "forecast --policies missing.yaml",
        "simulate", "simulate --days 0", "simulate --days -1", "simulate --days 3661", "simulate --days x",
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_bad_input(typed: str, run: Run) -> None:
    code, out, err = run(*typed.split())
    assert (code, out, bool(err)) == (2, "", True)


# --- the simulation ---


def simulated(lake: Lake, days: int = 14, **request: Any) -> Any:
    return show_simulation(SimulationRequest(days=days, **{"begin": MARKED, **request}), Environment(lake.settings)).data


def deleted(simulation: Any) -> int:
    count: int = simulation["totals"]["deleted"]["transactions"]
    return count


@pytest.fixture
def new(lake: Lake) -> Lake:
    """Three datasets that were never judged; a tag keeps the view of S2 for five days in one of them."""
    lake.says(f"{ELSEWHERE}, {AT_ONCE}")
    return lake.has(f"{HISTORY} | #v1=S2@+5d").has(HISTORY, "lake/now").has(HISTORY, "lake/e")


def test_each_day_is_as_it_is_then_lived(new: Lake) -> None:
    """With marks of before, a branch that saves one of them, a hold and a tag that end meanwhile."""
    new.says(f"{ELSEWHERE}, {AT_ONCE}", "{name: h, datasets: 'lake/e', transactions: [S3], reason: law, until: 2026-04-04}")
    new.marks(MARKED - 3 * DAY)
    new.branches("rescue", "S1")
    before = content(new.folder)
    simulation = simulated(new)
    assert content(new.folder) == before
    lived = []
    for number in range(14):
        at = MARKED + number * DAY
        marked, done = new.marks(at), new.sweeps(at).values()
        lived.append((at, marked, *(sum(one.outcomes[what] for one in done) for what in (Outcome.DELETED, Outcome.SPARED))))
    counted = ("newly_marked", "deleted", "spared")
    assert [(day["as_of"], *(day[name]["transactions"] for name in counted)) for day in simulation["days"]] == lived
    with new.opened() as ledger:
        spared = ledger.marks.table(statuses=["SPARED"])["why"].to_pylist()
    assert simulation["spared_because"] == Counter(spared)
    assert all(sum(amounts) > 0 for amounts in list(zip(*lived, strict=True))[1:])


def test_each_log_of_the_chosen_datasets_is_read_once(new: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that changes within a simulation would be nobody's."""
    asked: list[str] = []
    original = FilesStore.read

    def read(store: FilesStore, datasets: Sequence[str]) -> Any:
        asked.extend(datasets)
        return original(store, datasets)

    monkeypatch.setattr(FilesStore, "read", read)
    simulated(new)
    assert sorted(asked) == ["lake/d", "lake/e", "lake/now"]
    assert deleted(simulated(new, days=8, datasets=("lake/e",))) == 3


def test_a_simulation_does_not_begin_before_the_newest_mark(new: Lake) -> None:
    new.marks()
    with pytest.raises(Refused, match="a simulation can't begin earlier"):
        simulated(new, begin=MARKED - DAY)


def test_a_sick_dataset_is_named_and_the_others_are_lived_through(new: Lake, run: Run) -> None:
    new.branches("main", "S1", "lake/e")
    simulation = simulated(new, days=8)
    assert (set(simulation["refused"]), deleted(simulation)) == ({"lake/e"}, 4 + 2)
    code, _, err = run("simulate", "--days", "2", "--from", MARKED.isoformat())
    assert (code, err.count("lake/e was refused: ")) == (REFUSED, 1)
    assert run("simulate", "--days", "2", "--from", MARKED.isoformat(), "--strict")[0] == FAILED


def test_nothing_is_swept_by_policies_that_have_nothing_in_common_with_the_loaded_ones(new: Lake) -> None:
    new.marks()
    (new.folder / "theirs").mkdir()
    (new.folder / "theirs" / "p.yaml").write_text("policies: []")
    simulation = simulated(new.configures(policies="theirs"))
    assert (deleted(simulation), simulation["days"][-1]["due"]) == (0, simulation["days"][-1]["waiting"])
    assert set(simulation["refused"]) == {"lake/d", "lake/e", "lake/now"}
    assert "nothing of lake is swept. The policies at" in simulation["refused"]["lake/d"]


def test_eight_days_show_the_sweep_in_a_table_and_as_json(lake: Lake, run: Run) -> None:
    lake.has("main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=20 - S3:SNAPSHOT@25d=30 - S4:SNAPSHOT@1d=40")
    options = ("--days", "8", "--from", MARKED.isoformat())
    code, out, err = run("simulate", *options)
    assert (code, err) == (DONE, "")
    assert out.startswith("In 8 days: 3 marked, 2 deleted (")
    assert "nothing was changed" in out
    assert "New data is not in it." in out
    rows = {line.split("│")[1].strip() for line in out.splitlines() if "│" in line}
    assert rows == {"2026-03-31", "2026-04-06", "2026-04-07"}
    code, out, _ = run("simulate", *options, "--format", "json")
    told = json.loads(out)
    assert (code, [one["date"] for one in told["days"]]) == (
        DONE, ["2026-03-31", *(f"2026-04-0{day}" for day in range(1, 8))]
    )  # fmt: skip
    assert told["days"][0]["newly_marked"] == told["days"][7]["due"] == {"transactions": 2, "bytes": 30}
    assert told["days"][7]["deleted"]["transactions"] == told["totals"]["deleted"]["transactions"] == 2
    assert told["days"][7]["waiting"] == {"transactions": 1, "bytes": 30}


def test_a_simulation_fits_eighty_columns(new: Lake) -> None:
    new.branches("late", "S2")
    code, lines = at_terminal(new.folder, "simulate", "--days", "9", "--from", MARKED.isoformat())
    assert code == DONE
    begin = next(at for at, line in enumerate(lines) if line.startswith("In 9 days"))
    assert max(map(len, lines[begin:])) <= COLUMNS

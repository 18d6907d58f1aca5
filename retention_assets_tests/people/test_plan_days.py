"""`retention plan --days`: each day has what marking and sweeping do on it, and nothing is touched.

That each day is the one which is then lived is test_plan_laws.py's.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Refused
from retention_assets.outcomes import Outcome
from retention_assets.people.plan import PlanRequest, UpcomingRequest, make_plan, show_upcoming
from retention_assets.people.plan_days import PlannedDays, plan_days
from retention_assets.policy import Hold
from retention_assets.render import Medium
from retention_assets.stores.files.store import FilesStore
from retention_assets_tests.histories import AS_OF, history, to_lines
from retention_assets_tests.people.conftest import BAD_INPUT, DONE, FAILED, REFUSED, TO_DO, Json, Run
from retention_assets_tests.people.logs import CYCLE, NOW
from retention_assets_tests.people.terminals import COLUMNS, at_terminal
from retention_assets_tests.people.test_plan import AT_ONCE, ELSEWHERE, GONE, HISTORY, content
from retention_assets_tests.sweep.lakes import MARKED, OLD, Lake

GRACE = 7
DAY = timedelta(days=1)
# A was replaced long ago; the others are in the latest view.
TWO_VIEWS = "main: A:SNAPSHOT@50d=700 - B:SNAPSHOT@40d=90 - C:APPEND@39d=8"
UNDO = "{name: old, datasets: {include: ['lake/*']}, select: {older_than: 30d}, grace: 2d, undo: 3d, sweep: {every: 0s}}"


@pytest.fixture
def viewed(lake: Lake) -> Lake:
    """Two views, of which one may go."""
    return lake.has(TWO_VIEWS)


def planned(lake: Lake, days: int = 12, as_of: datetime | None = AS_OF, *datasets: str, **more: Any) -> PlannedDays:
    return plan_days(Environment(lake.settings), days, datasets or ("*",), as_of, **more)


def by_day(plan: PlannedDays, name: str) -> dict[int, int]:
    """By the number of the day, how many transactions."""
    return {number: amount for number, day in enumerate(plan.days, 1) if (amount := getattr(day, name).transactions)}


def what_happens(lake: Lake, days: int = 12, as_of: datetime = AS_OF) -> tuple[dict[int, int], ...]:
    """Marked, spared and deleted, by the number of the day."""
    plan = planned(lake, days, as_of)
    return tuple(by_day(plan, name) for name in ("newly_marked", "spared", "deleted"))


# --- what is marked, and when it goes ---------------------------------------------------------------------------------


def test_what_a_policy_selects_is_marked_on_the_first_day_and_goes_when_its_grace_is_over(viewed: Lake) -> None:
    before = content(viewed.folder)
    plan = planned(viewed)
    assert content(viewed.folder) == before
    assert what_happens(viewed) == ({1: 1}, {}, {1 + GRACE: 1})
    assert [day.stored.bytes for day in plan.days[6:8]] == [798, 98]
    assert set(by_day(plan, "waiting")) == set(range(1, 1 + GRACE))
    assert [day.as_of for day in plan.days] == [AS_OF + number * DAY for number in range(12)]
    (gone,) = plan.gone.to_pylist()
    assert (gone["on"], gone["transaction"], gone["policy"], gone["how"]) == (AS_OF + GRACE * DAY, "A", "old", "deleted")


def test_what_is_marked_keeps_the_day_on_which_it_is_due(viewed: Lake) -> None:
    viewed.marks(AS_OF - 3 * DAY)
    assert what_happens(viewed) == ({}, {}, {1 + GRACE - 3: 1})


@pytest.mark.parametrize(("days", "deleted"), [(GRACE, 0), (GRACE + 1, 1)])
def test_the_last_day_is_swept_as_well(days: int, deleted: int, viewed: Lake) -> None:
    viewed.marks(AS_OF)
    plan = planned(viewed, days)
    assert (plan.total("deleted").transactions, plan.days[-1].waiting.transactions) == (deleted, 1 - deleted)


def test_what_was_swept_is_not_there_any_more(viewed: Lake) -> None:
    viewed.marks()
    viewed.sweeps()
    plan = planned(viewed, as_of=MARKED + 8 * DAY)
    assert (plan.days[0].stored.bytes, plan.days[0].stored.transactions) == (98, 2)
    assert what_happens(viewed, as_of=MARKED + 8 * DAY) == ({}, {}, {})


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
    assert what_happens(viewed) == ({}, {1 + GRACE: 1}, {})
    assert planned(viewed).spared_because == {"The store's log does not have it any more.": 1}


def test_a_realm_that_is_purged_goes_whole(viewed: Lake) -> None:
    viewed._log("lake/d", ['{"dataset":"lake/d","realm":"acme"}'])
    with viewed.opened() as ledger:
        ledger.realms.change("acme", "PURGING", "ann", "over")
    plan = planned(viewed, 3)
    assert (by_day(plan, "deleted"), plan.days[-1].stored.bytes) == ({1: 3}, 0)


# --- what is set aside ------------------------------------------------------------------------------------------------


def test_what_is_set_aside_is_deleted_when_it_can_no_longer_be_restored(viewed: Lake) -> None:
    viewed.says(UNDO)
    plan = planned(viewed)
    assert [by_day(plan, name) for name in ("newly_marked", "set_aside", "deleted", "emptied")] == [{1: 1}, {3: 1}, {}, {6: 1}]
    freed = plan.total("emptied").bytes
    assert freed == plan.total("set_aside").bytes > 0
    assert [row["how"] for row in plan.gone.to_pylist()] == ["set aside", "deleted from trash"]


@pytest.mark.parametrize(("hold", "emptied"), [(None, {4: 1}), ("lake/d", {})])
def test_what_was_set_aside_before_goes_unless_it_is_held(hold: str | None, emptied: dict[int, int], viewed: Lake) -> None:
    viewed.says(UNDO)
    viewed.marks(AS_OF - 2 * DAY)
    viewed.sweeps(AS_OF)
    if hold:
        viewed.hold(hold)
    plan = planned(viewed, 8)
    assert by_day(plan, "emptied") == emptied
    assert plan.days[0].stored.bytes == 98
    # the plan of that day says so as well
    (now,) = (make_plan(PlanRequest(as_of=AS_OF + 3 * DAY), Environment(viewed.settings)),)
    assert len(now.emptied) == len(emptied)


# --- brakes and refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("accept_large", "deleted"), [(False, 7), (True, 7 + 12)])
def test_a_day_that_the_brake_would_stop_is_named(accept_large: bool, deleted: int, lake: Lake) -> None:
    """One a day for a week, then twelve at once: more than ten times the largest day."""
    each = [f"T{age}:SNAPSHOT@{age}d=10" for age in range(30, 23, -1)]
    lake.has("main: " + " - ".join([*each, *(f"U{number}:SNAPSHOT@23d=10" for number in range(12)), "Z:SNAPSHOT@1d=10"]))
    lake.says(OLD)
    plan = planned(lake, 18, accept_large=accept_large)
    assert plan.total("deleted").transactions == deleted
    braked = [why for why in plan.refusals if "more than 10 times the largest day" in why]
    assert (len(braked), any("would not be swept on 2026-04-15" in why for why in braked)) == (0 if accept_large else 1,) * 2


def test_what_is_sick_or_away_is_named_and_the_others_are_planned(viewed: Lake, run: Run) -> None:
    viewed._log("lake/bad", [CYCLE.strip()])
    plan = planned(viewed)
    assert (plan.refusals, plan.total("deleted").transactions) == (["lake/bad was refused: cycle (transaction X)"], 1)
    code, out, err = run("plan", "--days", "9", "--as-of", NOW, "--format", "json")
    assert (code, list(json.loads(out)["refused"]), err.count("lake/bad was refused: cycle")) == (REFUSED, ["lake/bad"], 1)
    assert run("plan", "--days", "9", "--as-of", NOW, "--strict")[0] == FAILED
    viewed.configures(GONE)
    code, out, err = run("plan", "--days", "9", "--as-of", NOW, "--format", "json")
    assert (code, list(json.loads(out)["stores_away"]), len(json.loads(out)["days"])) == (FAILED, ["gone"], 9)
    assert "gone/* was not read: " in err


def test_nothing_is_swept_by_policies_that_have_nothing_in_common_with_the_loaded_ones(viewed: Lake) -> None:
    viewed.marks()
    (viewed.folder / "theirs").mkdir()
    (viewed.folder / "theirs" / "p.yaml").write_text("policies: []")
    plan = planned(viewed.configures(policies="theirs"))
    assert (plan.total("deleted").transactions, plan.days[-1].due) == (0, plan.days[-1].waiting)
    (why,) = plan.failures
    assert why.startswith("From 2026-03-31 on: Nothing would be swept. The policies at")


def test_the_days_do_not_begin_before_the_newest_mark(viewed: Lake) -> None:
    viewed.marks()
    with pytest.raises(Refused, match="Nothing is marked or swept at"):
        planned(viewed, as_of=MARKED - DAY)


def test_an_instant_behind_which_there_are_too_few_years_is_refused(viewed: Lake) -> None:
    with pytest.raises(BadInput, match="an earlier instant"):
        planned(viewed, as_of=AS_OF.replace(year=9990))


# --- how it is done ---------------------------------------------------------------------------------------------------


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
    plan = planned(new, 14, MARKED)
    assert content(new.folder) == before
    first = make_plan(PlanRequest(as_of=MARKED), Environment(new.settings))
    lived = []
    for number in range(14):
        at = MARKED + number * DAY
        marked, done = new.marks(at), new.sweeps(at).values()
        lived.append((at, marked, *(sum(one.outcomes[what] for one in done) for what in (Outcome.DELETED, Outcome.SPARED))))
    names = ("newly_marked", "deleted", "spared")
    assert [(day.as_of, *(getattr(day, name).transactions for name in names)) for day in plan.days] == lived
    # and the first is the plan of now
    assert [getattr(plan.days[0], name) for name in names] == [first.total(name) for name in names]
    with new.opened() as ledger:
        assert plan.spared_because == Counter(ledger.marks.table(statuses=["SPARED"])["why"].to_pylist())
    assert all(sum(amounts) > 0 for amounts in list(zip(*lived, strict=True))[1:])


def test_each_log_of_the_chosen_datasets_is_read_once(new: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that changes within a rehearsal would be nobody's."""
    asked: list[str] = []
    original = FilesStore.read

    def read(store: FilesStore, datasets: Sequence[str]) -> Any:
        asked.extend(datasets)
        return original(store, datasets)

    monkeypatch.setattr(FilesStore, "read", read)
    planned(new, 14, MARKED)
    assert sorted(asked) == ["lake/d", "lake/e", "lake/now"]
    assert planned(new, 8, MARKED, "lake/e").total("deleted").transactions == 3


def test_the_form_in_dagster_says_what_the_command_says(new: Lake) -> None:
    told = show_upcoming(UpcomingRequest(days=9, as_of=MARKED), Environment(new.settings))
    plan = planned(new, 9, MARKED)
    assert told.data == plan.as_dict()
    assert told.numbers is not None
    numbers = told.numbers()
    assert (told.headline, numbers["deleted"]) == (plan.headline, plan.total("deleted").transactions)
    goes = [(row["on"].date().isoformat(), row["dataset"], row["transaction"]) for row in plan.gone.to_pylist()]
    assert [(row["day"], row["dataset"], row["transaction"]) for row in numbers["goes"].records(Medium.RUN)] == goes


# --- the command ------------------------------------------------------------------------------------------------------


def test_eight_days_show_the_sweep_in_a_table_and_as_json(lake: Lake, run: Run, found: Json) -> None:
    lake.has("main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=20 - S3:SNAPSHOT@25d=30 - S4:SNAPSHOT@1d=40")
    options = ("plan", "--days", "8", "--as-of", MARKED.isoformat())
    code, out, err = run(*options, "--detail")
    assert (code, "no ledger yet" in err, len(err.splitlines())) == (TO_DO, True, 1)
    first = out.splitlines()[0]
    assert first.startswith("In 8 days: 3 marked, 2 deleted (")
    assert first.endswith("), 0 spared. Nothing was changed. New data is not in it.")
    assert re.findall(r"^│ (\d{4}-\d\d-\d\d) │", out, re.MULTILINE) == [
        "2026-03-31", "2026-04-06", "2026-04-07", "2026-04-07", "2026-04-07"
    ]  # fmt: skip
    told = found(*options)
    assert [day["date"] for day in told["days"]] == ["2026-03-31", *(f"2026-04-0{day}" for day in range(1, 8))]
    assert told["days"][0]["newly_marked"] == told["days"][7]["due"] == {"transactions": 2, "bytes": 30}
    assert told["days"][7]["deleted"]["transactions"] == told["totals"]["deleted"]["transactions"] == 2
    assert [(row["on"], row["transaction"]) for row in told["goes"]] == [("2026-04-07", "S1"), ("2026-04-07", "S2")]


@pytest.mark.parametrize(("days", "code"), [("1", DONE), ("2", TO_DO)])
def test_the_exit_code_says_whether_there_is_something_to_do(days: str, code: int, lake: Lake, run: Run) -> None:
    lake.has("main: S1:SNAPSHOT@29d=10 - S2:SNAPSHOT@28d=20 - S3:SNAPSHOT@1d=40")
    lake.says(OLD.replace("30d", "29d"))
    assert run("plan", "--days", days, "--as-of", (MARKED - timedelta(hours=1)).isoformat())[0] == code


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("days", ["0", "-1", "1001", "x"])
def test_what_cannot_be_meant_is_bad_input(days: str, run: Run) -> None:
    code, out, err = run("plan", "--days", days)
    assert (code, out, bool(err)) == (BAD_INPUT, "", True)


def test_the_days_fit_eighty_columns(new: Lake) -> None:
    new.branches("late", "S2")
    code, lines = at_terminal(new.folder, "plan", "--days", "9", "--as-of", MARKED.isoformat(), "--detail")
    assert code == TO_DO
    begin = next(at for at, line in enumerate(lines) if line.startswith("In 9 days"))
    assert max(map(len, lines[begin:])) <= COLUMNS

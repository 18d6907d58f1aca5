"""What is told once when it begins and once when it is over: failing ticks, standing violations, drift, what is overdue."""

from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._utils.error import SerializableErrorInfo  # type: ignore[attr-defined]

from retention_assets.dagster.automation.alerts import Notice
from retention_assets.definitions import build_defs
from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger.invariants import Violation
from retention_assets.operations.policy_book import overwrite_policy
from retention_assets.operations.request import NamedRequest
from retention_assets_tests.dagster.automation.conftest import changed
from retention_assets_tests.dagster.launch import tick
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import OLD, Lake


class Teller:
    """The sensor, with what it has told and its cursor."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance = lake, instance
        self.cursor: str | None = None
        self.broken: Callable[[Notice], bool] = lambda _: False

    def tells(self) -> list[Notice]:
        """A tick; what was told by it."""
        told: list[Notice] = []

        def notify(notice: Notice) -> None:
            if self.broken(notice):
                raise ConnectionError("nobody is there")
            told.append(notice)

        self.cursor = tick(self.lake.settings, self.instance, "alert_on_change", self.cursor, notify).cursor
        return told

    def titles(self) -> list[str]:
        return [notice.title for notice in self.tells()]


@pytest.fixture
def instance(instance_on_disk: dg.DagsterInstance) -> dg.DagsterInstance:
    """One on disk: what is in memory knows nothing of ticks."""
    return instance_on_disk


@pytest.fixture
def teller(lake: Lake, instance: dg.DagsterInstance) -> Teller:
    return Teller(lake, instance)


class Sensor:
    """A sensor or schedule as an instance knows it."""

    def __init__(self, instance: dg.DagsterInstance, name: str, status: str = "DECLARED_IN_CODE", place: str = "here") -> None:
        origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(place), "__repository__"), name)
        data = SensorInstigatorData(sensor_type=None)
        self.instance, self.seconds = instance, count()
        self.state = InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus(status), data)
        instance.add_instigator_state(self.state)

    def ticked(self, status: str, error: str | None = None) -> None:
        """A tick of it ends, or begins."""
        bottom = SerializableErrorInfo(error, [], "BadInput") if error else None
        info = SerializableErrorInfo("Error in the sensor", [], "SensorExecutionError", cause=bottom) if error else None
        state = self.state
        self.instance.create_tick(
            TickData(
                state.instigator_origin_id,
                state.instigator_name,
                InstigatorType.SENSOR,
                TickStatus(status),
                AS_OF.timestamp() + next(self.seconds),
                error=info,
                selector_id=state.selector_id,
            )
        )


def test_a_sensor_whose_ticks_fail_is_told_once_and_once_more_when_one_succeeds(
    teller: Teller, instance: dg.DagsterInstance
) -> None:
    sensor = Sensor(instance, "policy_files")
    sensor.ticked("SKIPPED")
    assert teller.tells() == []
    for _ in range(3):
        sensor.ticked("FAILURE", "p.yaml:1: policy 'p': select.oldr_than: is not a known key")
    (notice,) = teller.tells()
    assert (notice.title, notice.run_id) == ("The sensor policy_files fails", "")
    assert notice.text == "p.yaml:1: policy 'p': select.oldr_than: is not a known key"
    sensor.ticked("FAILURE", "p.yaml:2: something else")
    sensor.ticked("STARTED")
    assert teller.tells() == []
    sensor.ticked("SKIPPED")
    (notice,) = teller.tells()
    assert (notice.title, notice.text) == ("No longer: the sensor policy_files fails", "What was said is over.")
    assert teller.tells() == []


@pytest.mark.parametrize(("name", "status"), [("orders", "DECLARED_IN_CODE"), ("sweep_tick", "STOPPED")])
def test_sensors_of_others_and_those_that_somebody_stopped_are_not_told(
    teller: Teller, instance: dg.DagsterInstance, name: str, status: str
) -> None:
    Sensor(instance, name, status).ticked("FAILURE", "no")
    assert teller.tells() == []


@pytest.mark.parametrize(("place", "titles"), [("here", ["The sensor sweep_tick fails"]), ("there", [])])
def test_a_sensor_of_the_same_name_in_another_code_location_is_not_told(
    lake: Lake, instance: dg.DagsterInstance, place: str, titles: list[str]
) -> None:
    """As the daemon evaluates the sensor, which knows its code location."""
    Sensor(instance, "sweep_tick", place=place).ticked("FAILURE", "no")
    told: list[Notice] = []
    defs = build_defs(lake.settings, told.append)
    resources: dict[str, Any] = dict(defs.resources or {})
    with dg.build_sensor_context(instance=instance, definitions=defs, resources=resources) as context:
        context._code_location_origin = RegisteredCodeLocationOrigin("here")
        defs.get_repository_def().get_sensor_def("alert_on_change").evaluate_tick(context)
    assert [notice.title for notice in told] == titles


def stands(lake: Lake, *names: str, check: str = "log_is_sound") -> None:
    """What a check finds from now on."""
    with lake.opened() as ledger:
        ledger.violations.update(check, {name: Violation(name, "unknown parent") for name in names}, None, AS_OF, "test")


def test_each_dataset_that_a_check_names_is_told_once_and_what_is_mended_with_what_is_left(lake: Lake, teller: Teller) -> None:
    begins = "he check log_is_sound of transaction_log fails: "
    stands(lake, "lake/a")
    (notice,) = teller.tells()
    assert notice.title == f"T{begins}lake/a"
    assert notice.text == f"lake/a: unknown parent, since {AS_OF:%Y-%m-%d %H:%M} UTC"
    stands(lake, "lake/a", "lake/b", "lake/c")
    assert teller.titles() == [f"T{begins}lake/b, lake/c"]
    stands(lake, "lake/b", "lake/c")
    (notice,) = teller.tells()
    assert (notice.title, notice.text) == (f"No longer: t{begins}lake/a", "What was said of lake/a is over; 2 remain.")
    stands(lake, "lake/a")
    (notice,) = teller.tells()
    assert notice.title == f"T{begins}lake/a"
    assert notice.text.splitlines()[1] == "What was said of lake/b, lake/c is over; 1 remain."
    stands(lake)
    assert teller.titles() == [f"No longer: t{begins}lake/a"]
    assert teller.tells() == []


def test_a_policy_that_a_person_changed_is_told_until_book_and_files_agree(lake: Lake, teller: Teller) -> None:
    with lake.opened() as ledger:
        load_rulebook(ledger, lake.settings, "test")
        ledger.policy_book.revoke("old", "ann", "no longer")
    lake.says(OLD.replace("30d", "31d"))
    assert teller.titles() == ["The policy book differs from the policy files: old"]
    # A file that is broken for a while is told by whoever loads it, and says nothing of the others.
    lake.says("{name: old, datasets: {include: ['lake/*']}, select: {oldr_than: 30d}}")
    assert teller.tells() == []
    lake.says(OLD.replace("30d", "31d"))
    assert teller.tells() == []
    overwrite_policy(NamedRequest(name="old", reason="as the file has it", actor="ann"), Environment(lake.settings))
    assert teller.titles() == ["No longer: the policy book differs from the policy files: old"]


@pytest.mark.parametrize(
    ("asset", "automation", "title", "text"),
    [
        ("candidate_marks", {"evaluate": "5m"}, "candidate_marks is overdue", "No dataset was judged for 7 days"),
        ("swept_transactions", {"sweep": "15m"}, "swept_transactions is overdue", "for a day"),
        ("swept_transactions", {"evaluate": "5m"}, None, ""),
    ],
)
def test_what_is_overdue_is_told_where_it_was_to_run_by_itself(
    lake: Lake, teller: Teller, instance: dg.DagsterInstance, asset: str, automation: Any, title: str | None, text: str
) -> None:
    changed(lake, automation=automation)
    key, states = dg.AssetKey(asset), [FreshnessState.UNKNOWN, FreshnessState.FAIL, FreshnessState.PASS]
    for before, after in pairwise(states):
        change = FreshnessStateChange(key=key, new_state=after, previous_state=before, state_change_timestamp=AS_OF.timestamp())
        instance.report_runless_asset_event(change)
        told = teller.tells()
        if title is None:
            assert told == []
        elif after is FreshnessState.FAIL:
            assert [notice.title for notice in told] == [title]
            assert text in told[0].text
        else:
            assert [notice.title for notice in told] == [f"No longer: {title}"]


def test_a_ledger_that_cannot_be_read_is_told_and_ends_nothing_else(
    lake: Lake, teller: Teller, instance: dg.DagsterInstance
) -> None:
    stands(lake, "lake/a")
    assert len(teller.tells()) == 1
    ledger = lake.folder / "ledger.db"
    ledger.rename(lake.folder / "elsewhere.db")
    ledger.mkdir()
    assert teller.titles() == ["The ledger can't be read"]
    assert teller.tells() == []
    ledger.rmdir()
    (lake.folder / "elsewhere.db").rename(ledger)
    assert teller.titles() == ["No longer: the ledger can't be read"]


def test_what_could_not_be_told_is_told_by_the_next_tick_and_nothing_twice(lake: Lake, teller: Teller) -> None:
    stands(lake, "lake/a")
    stands(lake, "lake/b", check="limits_are_respected")
    teller.broken = lambda notice: "log_is_sound" in notice.title
    assert teller.titles() == ["The check limits_are_respected of candidate_marks fails: lake/b"]
    with pytest.raises(Exception, match="nobody is there"):
        teller.tells()
    teller.broken = lambda _: False
    assert teller.titles() == ["The check log_is_sound of transaction_log fails: lake/a"]
    assert teller.tells() == []


def test_a_long_list_is_cut_in_the_notice_and_known_in_whole(lake: Lake, teller: Teller) -> None:
    names = [f"lake/d{number:02}" for number in range(30)]
    stands(lake, *names)
    (notice,) = teller.tells()
    assert notice.title.endswith("fails: lake/d00, lake/d01, lake/d02, lake/d03, lake/d04 and 25 more")
    assert notice.text.splitlines()[20:] == ["… and 10 more."]
    assert teller.tells() == []


def test_of_very_many_names_the_cursor_keeps_checksums_and_each_new_one_is_told(lake: Lake, teller: Teller) -> None:
    """Beside a few that were told before, as belong to the same share; and all that is left once they are few again."""
    names = [f"lake/d{number:05}" for number in range(5_000)]
    stands(lake, *names)
    assert len(teller.tells()) == 1
    assert len(teller.cursor or "") < 10_000
    assert teller.tells() == []
    for some, told in (([*names, "lake/new"], "lake/new"), (names, None), (["lake/other", *names[1:]], "lake/other")):
        stands(lake, *some)
        (notice,) = teller.tells()
        assert told is None or told in notice.text
        assert notice.text.splitlines()[-1] == f"Some of what was said may be over; {len(some):,} remain."
        assert teller.tells() == []
    stands(lake, *names[:3])
    assert set(names[:3]) <= {line.partition(":")[0] for line in teller.tells()[0].text.splitlines()}
    stands(lake)
    (notice,) = teller.tells()
    assert (notice.title[:10], notice.text) == ("No longer:", "What was said of lake/d00000, lake/d00001, lake/d00002 is over.")

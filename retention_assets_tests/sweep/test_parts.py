"""The small parts of a sweep, each by itself: looks, batches and their pace, classes of a report, stopping, and the dry run's
store.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from inspect import signature
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames import DATASETS, INSTANT, LOG, Log
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Duration, Policy, Sweep
from retention_assets.stores.dry_run import RecordedDeletion, RecordingStore
from retention_assets.stores.protocol import Store, SweptTarget, Target
from retention_assets.sweep import StoreReading, classes_of, opening, opening_of, stop_on_signals
from retention_assets.sweep.execute import cut_batches, pause
from retention_assets_tests.architecture import ORDERS
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.ledger.states import CLOSED_LATER, FIRST_LIFE, NO_TIMES, OPENED_LATER, Times
from retention_assets_tests.sweep.lakes import FIVE, Lake

DAY = timedelta(days=1)
EMPTY = Log(LOG.empty_table(), DATASETS.empty_table())


# --- the dry run's store ---


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(FIVE).has("main: S1:SNAPSHOT@9d", "lake/e")


def test_a_recording_store_writes_down_what_would_be_deleted_and_deletes_nothing(lake: Lake) -> None:
    """Transactions of one name in two datasets are two; of one that was not prepared nobody knows the size."""
    before, recording = lake.left(), RecordingStore(lake.stores["lake"])
    (one,), (other,) = (recording.prepare(dataset, ["S1"]) for dataset in ("lake/d", "lake/e"))
    assert one.bytes
    targets = [Target("S1"), Target("S2")]
    assert recording.sweep("lake/d", targets, 1) == [
        SweptTarget("S1", Outcome.DELETED, one.bytes), SweptTarget("S2", Outcome.DELETED, 0),
    ]  # fmt: skip
    assert recording.sweep("lake/e", targets[:1], 1) == [SweptTarget("S1", Outcome.DELETED, other.bytes or 0)]
    assert recording.recorded == [
        RecordedDeletion("lake/d", "S1", one.bytes), RecordedDeletion("lake/d", "S2", None),
        RecordedDeletion("lake/e", "S1", other.bytes),
    ]  # fmt: skip
    assert lake.left() == before


def test_a_recording_store_writes_down_times_that_would_be_given_and_none_that_would_be_taken_back(lake: Lake) -> None:
    recording = RecordingStore(lake.stores["lake"])
    (prepared,) = recording.prepare("lake/d", ["S1"])
    targets = [Target("S1"), Target("S2")]
    expected = [SweptTarget("S1", Outcome.EXPIRING), SweptTarget("S2", Outcome.EXPIRING)]
    assert recording.expire("lake/d", targets, None, 1) == expected
    assert recording.recorded == []
    assert recording.expire("lake/d", targets, AS_OF, 1) == expected
    assert recording.recorded == [
        RecordedDeletion("lake/d", "S1", prepared.bytes, expires=True), RecordedDeletion("lake/d", "S2", None, expires=True),
    ]  # fmt: skip


def test_a_recording_store_passes_on_every_method_of_the_base_but_orders(lake: Lake) -> None:
    """What it answered by a default of the base would part the dry run from the run."""
    public = {name: member for name, member in vars(Store).items() if not name.startswith("_")}
    # `Store.sweep` gives the order to `carry_out`, which records it.
    assert public.keys() - vars(RecordingStore).keys() == {"sweep"}
    calls: list[tuple[str, object]] = []

    def told(name: str, *asked: object) -> list[object]:
        calls.append((name, asked))
        return []

    def telling(name: str) -> Callable[..., list[object]]:
        return lambda _, *asked: told(name, *asked)

    methods = {
        name: property(telling(name)) if isinstance(member, property) else telling(name) for name, member in public.items()
    }
    recording = RecordingStore(
        type("Echo", (Store,), {**methods, "among": lambda store, _: store})(lake.stores["lake"].settings)
    )
    for name, member in public.items():
        asked = () if isinstance(member, property) else (*signature(member).parameters,)[1:]
        if name in ORDERS:
            assert attrgetter(name)(recording)(*(Order.DELETE if one == "order" else () for one in asked)) == []
            assert calls == [], name
        elif name != "among":
            (attrgetter(name)(recording) if isinstance(member, property) else attrgetter(name)(recording)(*asked))
            assert calls == [(name, asked if "claim" not in asked else asked[:-1])]
        calls.clear()
    assert recording.among(1) is recording


# --- what was read ---


def test_the_newest_time_of_a_reading_is_the_latest_that_has_come() -> None:
    rows = [{"dataset": "lake/a", "transaction": f"T{days}", "closed_at": AS_OF - days * DAY} for days in (3, 1, 2)]
    log = Log(pa.Table.from_pylist(rows, LOG), EMPTY.datasets)
    reading = StoreReading(log, ())
    presents = (AS_OF, AS_OF - DAY, AS_OF - 2 * DAY, AS_OF - 4 * DAY)
    assert [reading.newest_closed_at(present) for present in presents] == [AS_OF - DAY, AS_OF - DAY, AS_OF - 2 * DAY, None]
    assert StoreReading(EMPTY, ()).newest_closed_at(AS_OF) is None


# --- batches ---


@pytest.mark.parametrize(
    ("ways", "cut"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("aa", ["01"], id="one that is full"),
        pytest.param("aaaaa", ["01", "23", "4"], id="a rest"),
        pytest.param("abab", ["02", "13"], id="two ways"),
        pytest.param("abbba", ["04", "123"], id="the other way has another size"),
        pytest.param("bba", ["01", "2"], id="not full"),
    ],
)
@pytest.mark.parametrize("datasets", [1, 2])
def test_a_batch_is_of_one_way_of_sweeping_and_ends_where_it_is_full(ways: str, cut: list[str], datasets: int) -> None:
    """However many datasets its marks are of."""
    how = {"a": Sweep(batch=2, every=Duration(seconds=6)), "b": Sweep(batch=3, every=Duration())}
    rows = [
        {"id": at, "transaction": f"T{at}", "note": f"note {at}", "dataset": f"lake/{at * datasets // 4}", "policy": way}
        | {"plan": 7, "order": "DELETE", "until": None}
        for at, way in enumerate(ways)
    ]
    names = ("transaction", "note", "dataset", "policy", "order")
    schema = pa.schema(
        {"id": pa.int64(), "plan": pa.int64(), "until": pa.timestamp("us", "UTC"), **dict.fromkeys(names, pa.string())}
    )
    found = list(cut_batches(pa.Table.from_pylist(rows, schema), {number: how[way] for number, way in enumerate(ways)}))
    assert [(batch.sweep, batch.policies) for batch in found] == [
        (how[ways[int(part[0])]], {ways[int(part[0])]: len(part)}) for part in cut
    ]
    assert [batch.targets for batch in found] == [
        {
            name: {at: (f"T{at}", f"note {at}", 7) for at in map(int, part) if rows[at]["dataset"] == name}
            for name in {rows[int(at)]["dataset"] for at in part}
        }
        for part in cut
    ]
    # One that is not full takes its part of the time, and none at all where the policy has no pace.
    assert [batch.takes() for batch in found] == [
        {"a": len(part) * timedelta(seconds=3)} if ways[int(part[0])] == "a" else {} for part in cut
    ]


class Waits(threading.Event):
    """An event that keeps for how long somebody would have waited."""

    waited: float | None = None

    def wait(self, timeout: float | None = None) -> bool:
        self.waited = timeout
        return True


@pytest.mark.parametrize(
    ("every", "seconds"),
    [
        (Duration(seconds=90), 90),
        (Duration(days=1), 86_400),
        (Duration(), 0),
        (Duration(months=12_000), threading.TIMEOUT_MAX),
    ],
)
def test_the_pause_between_batches_is_the_policys_and_ends_when_somebody_says_stop(every: Duration, seconds: float) -> None:
    stop = Waits()
    pause(every.length, stop)
    assert stop.waited == min(seconds, threading.TIMEOUT_MAX)


# --- classes ---


@pytest.mark.parametrize("hashed", [1, 100])
def test_a_mark_says_more_of_a_transaction_than_its_verdict(hashed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_HASHED", hashed)
    marked = {"swept": "mark", "begun": "keep", "due": "mark", "soon": "spare"}
    verdicts = {"V": "mark", "S": "spare", "K": "keep", "O": "open", **marked}
    marks = {"swept": ("SWEPT", True), "begun": ("SWEEPING", True), "due": ("MARKED", True)}
    marks |= {"soon": ("MARKED", False), "elsewhere": ("MARKED", True)}
    rows = lives(dict.fromkeys(verdicts, FIRST_LIFE))
    held = lives(dict.fromkeys(marks, FIRST_LIFE), *zip(*marks.values(), strict=True))
    found = classes_of(rows, rows.append_column("verdict", [list(verdicts.values())]), held)
    assert found == dict.fromkeys(("swept", "sweeping", "due", "waiting", "selected", "spared", "kept", "open"), 1)


def lives(
    times: Mapping[str, Times] | Sequence[tuple[str, Times]], statuses: Sequence[str] = (), due: Sequence[bool] = ()
) -> pa.Table:
    pairs = list(times.items()) if isinstance(times, Mapping) else list(times)
    columns: dict[str, Any] = {
        "dataset": ["lake/d"] * len(pairs),
        "transaction": [name for name, _ in pairs],
        "opened_at": pa.array([opened for _, (opened, _) in pairs], INSTANT),
        "closed_at": pa.array([closed for _, (_, closed) in pairs], INSTANT),
    }
    more = {"status": list(statuses), "is_due": pa.array(due).cast(pa.int8())} if statuses else {}
    return pa.table(columns | more)


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        pytest.param([("SWEPT", FIRST_LIFE)], "swept", id="it was swept"),
        pytest.param([("SWEPT", NO_TIMES)], "swept", id="something was swept, and nobody knows what"),
        pytest.param([("SWEPT", OPENED_LATER)], "selected", id="one that was opened later was swept"),
        pytest.param([("SWEPT", CLOSED_LATER)], "selected", id="one that was closed later was swept"),
        pytest.param([("SWEPT", OPENED_LATER), ("SWEPT", FIRST_LIFE)], "swept", id="two were swept, it is one of them"),
        pytest.param([("SWEPT", OPENED_LATER), ("SWEPT", CLOSED_LATER)], "selected", id="two others were swept"),
        pytest.param([("SWEPT", OPENED_LATER), ("MARKED", FIRST_LIFE)], "waiting", id="another was swept, it waits"),
        pytest.param([("SWEPT", FIRST_LIFE), ("SWEEPING", OPENED_LATER)], "sweeping", id="it was swept, another has begun"),
    ],
)
def test_what_came_again_under_the_id_of_something_swept_is_not_swept(marks: list[tuple[str, Times]], found: str) -> None:
    rows = lives({"T": FIRST_LIFE, "other": FIRST_LIFE})
    verdicts = rows.append_column("verdict", [["mark", "keep"]])
    held = lives([("T", times) for _, times in marks], [status for status, _ in marks], [False] * len(marks))
    classes = classes_of(rows, verdicts, held)
    assert {name: times for name, times in classes.items() if times} == {found: 1, "kept": 1}


@pytest.mark.parametrize(
    ("selects", "terminal", "archived"),
    [
        ([{"terminal_only": True}, {"terminal_only": False}], False, ()),
        ([{"terminal_only": True}, {"terminal_only": True}], True, ()),
        ([{}], None, ()),
        (
            [{"archived_before_purge": ["SNAPSHOT", "APPEND"]}, {"archived_before_purge": ["SNAPSHOT"]}],
            None,
            ("APPEND", "SNAPSHOT"),
        ),
    ],
)
def test_a_report_opens_with_the_rules_that_are_about_its_dataset(
    selects: list[dict[str, Any]], terminal: bool | None, archived: tuple[str, ...]
) -> None:
    def policy(name: str, include: str, **select: Any) -> Policy:
        older = {"older_than": {"age": "30d", "align": "day"}, **select}
        return Policy.model_validate({"name": name, "datasets": {"include": [include]}, "select": older})

    mine = [policy(f"p{number}", "lake/*", **select) for number, select in enumerate(selects)]
    others = policy("other", "ods/*", terminal_only=False)
    log = Log(LOG.empty_table(), pa.Table.from_pylist([{"dataset": "lake/a"}], DATASETS))
    rules = RulesInForce((*mine, others), (), (), {"p0": 3, "p1": 4, "other": 5})
    opened = opening_of("lake/a", log, {}, rules, AS_OF)
    names = [one.name for one in mine]
    assert opened.policies == {name: rules.versions[name] for name in names}
    assert opened.bounds == dict.fromkeys(names, "2026-03-01T00:00:00Z")
    assert opened.periods == dict.fromkeys(names, "P30D")
    assert (opened.terminal_only, opened.archived_types) == (terminal, archived)


# --- stopping ---


@pytest.fixture
def heard() -> Any:
    """What the program did with these signals before anybody stopped a sweep."""
    heard: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        heard.append(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    yield heard
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_the_sweep_and_the_second_ends_the_program_as_ever(number: int, heard: list[int]) -> None:
    with stop_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.is_set()
        assert heard == []
        os.kill(os.getpid(), number)
        assert heard == [number]
    with stop_on_signals() as stop:
        pass
    for one in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), one)
    assert (heard, stop.is_set()) == ([number, signal.SIGINT, signal.SIGTERM], False)


def test_only_the_main_thread_hears_signals(heard: list[int]) -> None:
    handlers: list[object] = []

    def elsewhere() -> None:
        with stop_on_signals() as stop:
            handlers.extend((stop.is_set(), signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert handlers == [False, signal.getsignal(signal.SIGTERM)]

"""Units of work through the whole cycle: evaluated, marked, swept, reported; the rows in the database are looked at afterwards."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from retention_assets.environment import Environment
from retention_assets.ledger.schema import REPORTS
from retention_assets.outcomes import Outcome
from retention_assets.people.plan import PlanRequest, RetentionPlan, make_plan
from retention_assets_tests.stores.records.cycle import UnitsCycle
from retention_assets_tests.stores.records.environments import TOLD_TO, Units

# The execution of the documentation's table: 2023-05-17, two years, and so a lower bound of 2021-05-17.
AS_OF = datetime(2023, 5, 17, 0, 0, 2, 170_000, UTC)
DAY = timedelta(days=1)
TWO_YEARS = {"age": "P2Y", "align": "day"}
LAST_MOMENT = "2021-05-16T23:59:59.999999"

# started at, finished at, archived at, journey type, terminal only, archived-dependent journey types, purged?
TABLE_1 = {
    "finished before the bound": ("2021-05-16", "2021-05-16", None, "PAYMENT", False, [], True),
    "finished at the bound": ("2021-05-17", "2021-05-17", None, "PAYMENT", False, [], False),
    "unfinished, started before the bound": ("2021-05-16", None, None, "PAYMENT", False, [], True),
    "terminal, finished before the bound": ("2021-05-16", "2021-05-16", None, "PAYMENT", True, [], True),
    "terminal, finished at the bound": ("2021-05-17", "2021-05-17", None, "PAYMENT", True, [], False),
    "terminal, unfinished": ("2021-05-16", None, None, "PAYMENT", True, [], False),
    "archived as it must be": ("2021-05-16", "2021-05-16", "2021-05-16", "PAYMENT", True, ["PAYMENT"], True),
    "not archived and must be": ("2021-05-16", "2021-05-16", None, "PAYMENT", True, ["PAYMENT"], False),
    "not archived and need not be": ("2021-05-16", "2021-05-16", None, "RECALL", True, ["PAYMENT"], True),
    # What the table leaves open.
    "finished a microsecond before the bound": ("2021-05-15", LAST_MOMENT, None, "PAYMENT", False, [], True),
    "started long ago, finished at the bound": ("2011-01-01", "2021-05-17", None, "PAYMENT", False, [], False),
    "unfinished, started at the bound": ("2021-05-17", None, None, "PAYMENT", False, [], False),
    "unfinished, started a microsecond before the bound": (LAST_MOMENT, None, None, "PAYMENT", False, [], True),
    "without a type": ("2021-05-16", "2021-05-16", None, None, True, ["PAYMENT"], True),
    "archived after the bound": ("2021-05-16", "2021-05-16", "2023-05-16", "PAYMENT", True, ["PAYMENT"], True),
}  # fmt: skip


def policy(dataset: str = "ods/*", terminal: bool = False, archived: Any = (), **others: Any) -> dict[str, Any]:
    select: dict[str, Any] = {"older_than": others.pop("older_than", TWO_YEARS), "terminal_only": terminal}
    if archived:
        select["archived_before_purge"] = list(archived)
    return {
        "name": others.pop("name", dataset.partition("/")[0]),
        "datasets": {"include": [dataset]},
        "select": select,
        **others,
    }


@pytest.fixture
def cycle(tmp_path: Path, units: Units) -> UnitsCycle:
    return UnitsCycle(tmp_path / "cycle", [units])


def test_every_row_of_the_table_is_purged_or_kept_as_it_says(tmp_path: Path, store_url: str) -> None:
    """Each configuration is a policy over a root table of its own; all of them run at once."""
    ways = sorted({(terminal, tuple(archived)) for *_, terminal, archived, _ in TABLE_1.values()})
    databases = {way: Units(store_url, f"unit_{n}", (f"summary_{n}", f"mds_{n}"), f"ods{n}") for n, way in enumerate(ways)}
    for name, (opened, closed, archived, kind, terminal, types, _) in TABLE_1.items():
        databases[terminal, tuple(types)].has(name, opened=opened, closed=closed, archived=archived, kind=kind)
    cycle = UnitsCycle(tmp_path / "cycle", list(databases.values()))
    results = cycle.purges(*(policy(f"{units.store_name}/*", *way) for way, units in databases.items())).runs(AS_OF)
    assert [(one.refused, one.errors) for one in results.values()] == [(None, [])] * len(ways)
    for way, units in databases.items():
        mine = {name: purged for name, (*_, terminal, types, purged) in TABLE_1.items() if (terminal, tuple(types)) == way}
        assert units.whole(*(name for name, purged in mine.items() if not purged))
        (line,) = (line for line in cycle.day(AS_OF.date()).lines if line.dataset == units.dataset)
        assert (line.counters["to_delete"], line.counters["deleted"], line.unsettled) == (*[sum(mine.values())] * 2, 0)
        assert (line.terminal_only, line.archived_types) == way
        assert line.bounds == {units.store_name: ("2021-05-17T00:00:00Z",)}
    databases[ways[0]].store().close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_report_of_a_day_has_every_field_of_a_purge_report(cycle: UnitsCycle, units: Units) -> None:
    units.has("a", "b", kind="RECALL").has("c", kind="PAYMENT").has("d", kind="PAYMENT", archived="2022-01-01")
    cycle.purges(policy(terminal=True, archived=["PAYMENT", "RECALL"], name="two-years")).runs(AS_OF)
    told = cycle.day(AS_OF.date()).as_dict()
    fields = (
        "execution_date", "periods", "bounds", "terminal_only", "archived_types", "to_delete", "deleted",
    )  # fmt: skip
    assert [told[name] for name in fields] == [
        "2023-05-17", {"two-years": ["P2Y"]}, {"two-years": ["2021-05-17T00:00:00Z"]}, True, ["PAYMENT", "RECALL"], 1, 1,
    ]  # fmt: skip
    assert told["started_at"]
    assert told["finished_at"]
    assert told["duration"].startswith("PT")
    assert told["classes"] == {**dict.fromkeys(told["classes"], 0), "due": 1, "kept": 3}


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_report_lasts_from_its_beginning_until_all_is_deleted(cycle: UnitsCycle, units: Units) -> None:
    """00:00:02.170 to 00:32:03.180. Until then it has neither an end nor a duration."""
    units.has("a", "b")
    cycle.purges(policy()).marks(AS_OF)
    with units.broken("b"):
        (result,) = cycle.sweeps(AS_OF).values()
    assert TOLD_TO in result.errors[0]
    going = cycle.day(AS_OF.date()).total
    assert (going.counters["deleted"], going.counters["failed"], going.unsettled) == (1, 1, 1)
    assert (going.finished_at, going.duration) == (None, None)
    cycle.sweeps(AS_OF + timedelta(seconds=1))
    done = cycle.day(AS_OF.date()).total
    assert (done.counters["to_delete"], done.counters["deleted"], done.counters["failed"]) == (2, 2, 1)
    assert done.finished_at
    with cycle.opened() as ledger:
        # The ledger's clock is the database's; what it wrote is replaced by the times of the documentation.
        times = {"started_at": AS_OF, "finished_at": AS_OF.replace(minute=32, second=3, microsecond=180_000)}
        ledger.database.write(lambda doing: doing.connection.execute(update(REPORTS).values(**times)).rowcount)
    told = cycle.day(AS_OF.date()).as_dict()
    assert (told["started_at"], told["finished_at"]) == ("2023-05-17T00:00:02.170000Z", "2023-05-17T00:32:03.180000Z")
    assert told["duration"] == told["datasets"][0]["duration"] == "PT32M1.01S"


@pytest.mark.parametrize("store_url", ["mariadb"], indirect=True)
def test_the_next_day_has_a_report_of_its_own_with_its_own_bound_and_configuration(cycle: UnitsCycle, units: Units) -> None:
    units.has("a", closed="2021-05-16").has("b", closed="2021-05-17").has("c", closed="2022-11-01", kind="BULK")
    cycle.purges(policy(name="p")).runs(AS_OF)
    assert units.whole("b", "c")
    cycle.purges(policy(name="p", terminal=True, archived=["PAYMENT"], older_than={"age": "6mo", "align": "day"})).runs(
        AS_OF + DAY
    )
    assert units.whole()
    first, second = (cycle.day(day).total for day in (date(2023, 5, 17), date(2023, 5, 18)))
    assert (first.bounds, first.periods, first.policies) == ({"p": ("2021-05-17T00:00:00Z",)}, {"p": ("P2Y",)}, {"p": (1,)})
    assert (second.bounds, second.periods, second.policies) == ({"p": ("2022-11-18T00:00:00Z",)}, {"p": ("P6M",)}, {"p": (2,)})
    assert (first.terminal_only, first.archived_types) == (False, ())
    assert (second.terminal_only, second.archived_types) == (True, ("PAYMENT",))
    assert [one.counters["deleted"] for one in (first, second)] == [1, 2]


def test_a_unit_of_work_that_is_reopened_after_the_plan_is_spared_whole(cycle: UnitsCycle, units: Units) -> None:
    """The plan was made of a log that was sound and true; nobody reads it again, so the deletion itself has to ask."""
    units.has("a", "b", "c")
    # So long that the second batch has to wait on the slowest machine: nobody really waits.
    cycle.purges(policy(terminal=True, sweep={"batch": 1, "every": "1h"})).marks(AS_OF)

    def reopen(*_: object) -> None:
        units.becomes("b", closed=None)

    (result,) = cycle.sweeps(AS_OF, wait=reopen).values()
    assert result.refused is None
    assert units.whole("b")
    assert cycle.statuses(units.dataset) == {"a": "SWEPT", "b": "SPARED", "c": "SWEPT"}
    assert "It was reopened: closed_at was 2021-05-16" in cycle.why("b", units.dataset)
    total = cycle.day(AS_OF.date()).total
    assert (total.counters["deleted"], total.counters["spared"], total.unsettled) == (2, 1, 0)


INVOICES = (
    "CREATE TABLE invoice (n INTEGER PRIMARY KEY, unit VARCHAR(60), CONSTRAINT invoice_of_unit FOREIGN KEY (unit)"
    " REFERENCES unit_of_work (id) ON DELETE CASCADE)",
    "INSERT INTO invoice VALUES (1, 'a'), (2, 'a'), (3, 'b'), (4, 'open')",
)
PATH = "unit_of_work -> invoice by invoice_of_unit (unit, ON DELETE CASCADE)"


def invoices(units: Units) -> int:
    with units.engine.connect() as connection:
        return len(connection.exec_driver_sql("SELECT n FROM invoice").all())


def looked_at(cycle: UnitsCycle, **store: Any) -> RetentionPlan:
    file = cycle.settings_file
    settings = json.loads(file.read_text())
    settings["stores"][0] |= store
    file.write_text(json.dumps(settings))
    return make_plan(PlanRequest(as_of=AS_OF), Environment(cycle.settings))


def test_a_sweep_is_refused_where_more_would_go_and_its_dry_run_names_what_is_accepted(cycle: UnitsCycle, units: Units) -> None:
    units.has("a", "b").has("open", closed=None).has("young", closed="2023-05-16")
    cycle.purges(policy(terminal=True, sweep={"batch": 1})).marks(AS_OF)
    with units.engine.begin() as connection:
        for statement in INVOICES:
            connection.exec_driver_sql(statement)
    before = units.everything()
    assert PATH in looked_at(cycle).refused[units.dataset]
    assert PATH in str(cycle.sweeps(AS_OF)[units.dataset].refused)
    assert (units.everything(), invoices(units)) == (before, 4)
    assert cycle.statuses(units.dataset) == {"a": "MARKED", "b": "MARKED"}

    found = looked_at(cycle, cascades="accepted")
    sentence = f"The store ods accepts cascades: with swept rows, the database also deletes rows of invoice: {PATH}."
    assert found.as_dict()["cascades"] == {"ods": sentence}
    assert list(found.sentences) == [sentence]
    assert (units.everything(), invoices(units)) == (before, 4)
    assert cycle.sweeps(AS_OF)[units.dataset].outcomes == {Outcome.DELETED: 2}
    assert units.whole("open", "young")
    assert invoices(units) == 1


def test_a_key_of_a_table_that_nobody_listed_is_in_the_plan_and_in_the_failure(cycle: UnitsCycle, units: Units) -> None:
    units.has("a", "b")
    key = "CONSTRAINT audit_of_unit FOREIGN KEY (unit) REFERENCES unit_of_work (id)"
    units.do(
        f"CREATE TABLE audit_row (n INTEGER PRIMARY KEY, unit VARCHAR(60), {key})", "INSERT INTO audit_row VALUES (1, 'a')"
    )
    cycle.purges(policy(terminal=True)).marks(AS_OF)
    (sentence,) = looked_at(cycle).sentences
    assert (
        "keeps each row that a row of an unlisted table refers to: audit_row refers to unit_of_work by audit_of_unit"
        in sentence
    )
    assert "List `audit_row` under `children`" in sentence
    swept = cycle.sweeps(AS_OF)[units.dataset]
    assert swept.outcomes == {Outcome.DELETED: 1, Outcome.FAILED: 1}
    assert swept.errors[0].endswith(sentence)
    looked_at(cycle, children=[*units.settings["children"], {"table": "audit_row", "key": "unit"}])
    assert cycle.sweeps(AS_OF)[units.dataset].outcomes == {Outcome.DELETED: 1}
    assert list(looked_at(cycle).sentences) == []

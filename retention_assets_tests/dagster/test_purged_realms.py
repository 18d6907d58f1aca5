"""When a realm is PURGED, what keeps it from being so, and what is said of both; judged in one piece, without Spark."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from retention_assets.dagster import assets
from retention_assets.dagster.assets import close_purged_realms, close_realms_of_nothing
from retention_assets.dagster.step import Step
from retention_assets.datasets import DatasetFilter
from retention_assets.definitions import build_defs
from retention_assets.errors import Refused
from retention_assets.evaluation.changes import list_datasets
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Publication
from retention_assets.people.realms import realm_states
from retention_assets.pipeline.part_frames import REALMS, VERDICTS, Verdicts, add_up, published_counts, write_already_marked
from retention_assets.pipeline.read_tokens import read_begun, write_begun
from retention_assets.pipeline.stage import Source, write_part
from retention_assets.policy import Hold, text_of
from retention_assets.stores.logs import choose_datasets, read_share
from retention_assets_tests.dagster.launch import step_config
from retention_assets_tests.sweep.lakes import MARKED, Lake

THREE = "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d - T3:SNAPSHOT@7d"
FOUR = "-: T1:RECORD@9d | -: T2:RECORD@8d | -: T3:RECORD@7d | -: T4:RECORD@6d"
NONE = "{name: none, datasets: {include: ['lake/none']}, select: all}"
COURT = Hold.model_validate({"name": "court", "datasets": "lake/d", "transactions": ["T2"], "reason": "case 7"})


class Looked:
    """A lake that is looked at whole, again and again, and what each look said."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.said = lake, list[str]()

    def step(self, globs: Sequence[str] = ("*",)) -> Step:
        """As far as closing a realm asks for a step."""
        log = SimpleNamespace(info=self.said.append, warning=self.said.append)
        found = SimpleNamespace(retention=self.lake.environment, datasets=DatasetFilter(globs), log=log, actor="run r")
        return cast("Step", found)

    def look(self, globs: Sequence[str] = ("*",), begun: datetime | None = None, sweep: bool = False) -> dict[str, str]:
        """Judge, mark, close what is over, and sweep if asked to; the statuses of realms."""
        self.said.clear()
        # The next moment: SQLite rounds its own times.
        begun = begun or self.lake.environment.present() + timedelta(seconds=1)
        self.lake.marks()
        (chosen,) = choose_datasets(self.lake.stores.values(), DatasetFilter(globs))
        log = read_share(chosen.store, chosen.datasets)
        with self.lake.opened() as ledger:
            rules = load_rulebook(ledger, self.lake.settings, "test").rules(list(chosen.datasets), MARKED)
            realms = tuple(name for name, realm in ledger.realms.all().items() if realm.status in ("PURGING", "PURGED"))
            folder = str(self.lake.folder / "warehouse" / "judged")
            known = write_already_marked(ledger, rules.policies, log.datasets, folder, (), realms)
            self.found = Verdicts(rules.policies, rules.holds, rules.versions, MARKED, known, realms)(
                log.transactions, log.datasets
            )
            left = add_up([self.found[REALMS]])
            close_purged_realms(ledger, self.step(globs), rules.policies, log.datasets, left, begun)
            (Path(folder) / REALMS).mkdir(parents=True, exist_ok=True)
            write_part(self.found[REALMS], f"{folder}/{REALMS}/part.parquet", _local())
            ledger.publications.publish([Publication("candidate_marks", one, folder, "r") for one in chosen.datasets], "r")
        if sweep:
            self.lake.sweeps(MARKED)
        return self.statuses

    @property
    def statuses(self) -> dict[str, str]:
        """Of every realm that was ever changed."""
        with self.lake.opened() as ledger:
            return {name: realm.status for name, realm in ledger.realms.all().items()}

    def words(self, name: str) -> str:
        """What `retention realm` says of one."""
        with self.lake.opened() as ledger:
            return realm_states(ledger, name)[0].words

    def becomes(self, name: str, status: str) -> None:
        with self.lake.opened() as ledger:
            ledger.realms.change(name, status, "ann", "a test")

    def verdicts(self, dataset: str) -> dict[str, str]:
        """By transaction the verdict of the last look."""
        rows = self.found[VERDICTS].to_pylist()
        return {row["transaction"]: row["verdict"] for row in rows if row["dataset"] == dataset}


def _local() -> Any:
    from pyarrow.fs import LocalFileSystem

    return LocalFileSystem()


@pytest.fixture
def looked(tmp_path: Path) -> Looked:
    return Looked(Lake(tmp_path / "lake", policies=NONE))


def of(looked: Looked, dataset: str, realm: str, drawing: str = THREE) -> None:
    """A dataset of a realm."""
    looked.lake.has(drawing, dataset)._log(dataset, [json.dumps({"dataset": dataset, "realm": realm})])


def test_a_hold_keeps_a_realm_from_being_purged_and_is_named(looked: Looked) -> None:
    """And whoever is not of the realm goes on, however alike the name."""
    of(looked, "lake/d", "acme/sales", FOUR)
    of(looked, "lake/eu", "acme-eu", "-: T5:RECORD@5d | -: T6:RECORD@5d")
    looked.becomes("acme", "PURGING")
    with looked.lake.opened() as ledger:
        ledger.holds.place(COURT, "ann")
    assert looked.look(sweep=True) == {"acme": "PURGING"}
    assert looked.words("acme") == "held by court: 1 transaction; on their way out: 3 transactions"
    assert looked.look(sweep=True) == {"acme": "PURGING"}
    assert looked.said == ["Realm acme stays PURGING: held by court: 1 transaction."]
    assert looked.words("acme") == "held by court: 1 transaction"
    assert (looked.lake.there("lake/d"), looked.lake.there("lake/eu")) == ({"T2"}, {"T5", "T6"})
    with looked.lake.opened() as ledger:
        ledger.holds.release("court", "ann", "case closed")
    assert looked.look(sweep=True) == {"acme": "PURGING"}
    assert looked.look() == {"acme": "PURGED"}
    assert looked.lake.there("lake/eu") == {"T5", "T6"}
    assert looked.lake.verified() == ()


def test_a_realm_is_purged_only_once_nothing_of_it_is_set_aside(looked: Looked) -> None:
    looked.lake.configures(realms={"min_grace": "0s", "confirm": "no-grace", "undo": "14d"})
    of(looked, "lake/d", "acme/sales", FOUR)
    looked.becomes("acme", "PURGING")
    looked.look(sweep=True)
    trash = looked.lake.folder / "data" / ".retention-trash"
    assert len([*trash.glob("*/*/*")]) == 4
    assert looked.look(sweep=True) == {"acme": "PURGING"}
    assert looked.said == ["Realm acme stays PURGING: 4 transactions of it are set aside and not deleted yet."]
    looked.lake.sweeps(MARKED + timedelta(days=14))
    assert not trash.exists()
    assert looked.look() == {"acme": "PURGED"}
    assert looked.lake.verified() == ()


def test_a_look_that_began_before_the_last_deletion_counts_for_nothing(looked: Looked) -> None:
    of(looked, "lake/d", "acme")
    looked.becomes("acme", "PURGING")
    before = looked.lake.environment.present()
    looked.look(sweep=True)
    assert looked.look(begun=before) == {"acme": "PURGING"}
    assert looked.said[0].startswith("Nothing of realm acme was found in the logs, which were read before ")
    with looked.lake.opened() as ledger:
        changed, last = ledger.realms.last_changes("acme")
        assert (ledger.realms.last_changes("acme/sales"), ledger.realms.last_changes("acm")) == ([], [])
    assert changed < last
    assert looked.look(begun=last) == {"acme": "PURGING"}
    assert looked.look(begun=last + timedelta(microseconds=1)) == {"acme": "PURGED"}


def test_a_look_that_began_before_the_realm_was_to_be_purged_counts_for_nothing(looked: Looked) -> None:
    """Whoever lists for long may have left out what was not asked for then."""
    before = looked.lake.environment.present() - timedelta(seconds=1)
    looked.becomes("acme", "PURGING")
    of(looked, "lake/d", "beta")
    assert looked.look(begun=before) == {"acme": "PURGING"}
    assert looked.look() == {"acme": "PURGED"}


def test_a_look_at_less_than_everything_counts_for_nothing(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    of(looked, "lake/d", "beta")
    looked.becomes("acme", "PURGING")
    assert looked.look(globs=("lake/*",)) == {"acme": "PURGING"}
    listing = list_datasets(looked.lake.environment)
    with monkeypatch.context() as patch:
        patch.setattr(assets, "list_datasets", lambda _: replace(listing, away={"gone": "no route"}))
        assert looked.look() == {"acme": "PURGING"}
    looked.lake.has("main: T1:SNAPSHOT@9d", "lake/odd")
    looked.lake._log("lake/odd", ['{"dataset": "lake/odd", "branch": "x", "head": "nowhere"}'])
    assert looked.look() == {"acme": "PURGING"}


def test_a_catalog_is_purged_alone_and_all_of_them_with_their_realm(looked: Looked) -> None:
    for dataset, realm in (("a", "acme"), ("s", "acme/sales"), ("e", "acme/sales/eu"), ("x", "acme/salesforce")):
        of(looked, f"lake/{dataset}", realm)
    looked.becomes("acme/sales", "PURGING")
    looked.look(sweep=True)
    assert {name: bool(looked.lake.there(f"lake/{name}")) for name in "asex"} == {"a": True, "s": False, "e": False, "x": True}
    with looked.lake.opened() as ledger:
        # What was deleted of a catalog was of its realm.
        assert ledger.realms.last_changes("acme") == [max(ledger.realms.last_changes("acme/sales"))]
        assert ledger.realms.last_changes("acme/sale") == []
    assert looked.look() == {"acme/sales": "PURGED"}
    # What is above it beats what a catalog says: here, that what appears in it is kept.
    looked.lake.comes_again("T1", "lake/s", opened_at="2020-01-01T00:00:00Z")
    looked.becomes("acme", "PURGING")
    looked.look(sweep=True)
    assert not any(looked.lake.there(f"lake/{name}") for name in "asex")
    assert looked.look() == {"acme": "PURGED", "acme/sales": "PURGED"}


def test_both_a_realm_and_a_catalog_of_it_may_be_on_their_way_out(looked: Looked) -> None:
    """Whichever of the two marks, neither is PURGED as long as anything of it is there."""
    of(looked, "lake/s", "acme/sales")
    for name in ("acme", "acme/sales"):
        looked.becomes(name, "PURGING")
    assert set(looked.look(sweep=True).values()) == {"PURGING"}
    assert set(looked.look().values()) == {"PURGED"}


def test_what_appears_in_a_purged_realm_is_kept_and_warned_of_until_it_begins_anew(looked: Looked) -> None:
    looked.lake.says("{name: all, datasets: {include: ['lake/*']}, select: all, latest_view: allow}")
    of(looked, "lake/d", "acme/sales")
    looked.becomes("acme", "PURGING")
    looked.look(sweep=True)
    assert looked.look() == {"acme": "PURGED"}
    looked.lake.comes_again("T1", opened_at="2020-01-01T00:00:00Z")
    assert looked.look() == {"acme": "PURGED"}
    assert looked.verdicts("lake/d")["T1"] == "spare"
    assert looked.said == ["Realm acme is PURGED, but 1 transaction appeared in it since: kept until it is ACTIVE again."]
    assert looked.words("acme") == "held by realm acme is PURGED: 1 transaction"
    looked.becomes("acme", "ACTIVE")
    looked.look()
    assert (looked.verdicts("lake/d")["T1"], looked.said, looked.words("acme")) == ("mark", [], "")


def test_what_is_open_keeps_a_realm_from_being_purged(looked: Looked) -> None:
    """Nobody knows yet what will come of it."""
    of(looked, "lake/d", "acme", "main: T1:SNAPSHOT@9d - T2:APPEND?@8d")
    looked.lake.has("-: R1:RECORD?@9d", "lake/r").comes_again("R1", "lake/r", attributes={"realm": "acme"})
    looked.becomes("acme", "PURGING")
    looked.look(sweep=True)
    assert looked.look() == {"acme": "PURGING"}
    assert looked.words("acme") == "still open: 1 transaction; still open: 1 transaction"


@pytest.mark.parametrize("realm", ["::internal", "::internal/x"])
def test_a_reserved_realm_is_never_marked_and_the_systems_own_is_maintained(looked: Looked, realm: str) -> None:
    looked.lake.says("{name: all, datasets: {include: ['lake/*']}, select: all, latest_view: allow}")
    of(looked, "lake/d", realm)
    of(looked, "lake/s", "::system::")
    looked.lake.has("-: R1:RECORD@9d", "lake/r").comes_again("R1", "lake/r", attributes={"realm": realm})
    looked.look()
    assert set(looked.verdicts("lake/d").values()) == {"spare"}
    assert set(looked.verdicts("lake/s").values()) == {"mark"}
    assert looked.verdicts("lake/r") == {"R1": "spare"}


def _empties(lake: Lake) -> None:
    """From now on its only store is a catalog without a table."""
    place = {"type": "sql", "uri": f"sqlite:///{lake.folder}/catalog.db", "warehouse": f"file://{lake.folder}/tables"}
    SqlCatalog("ice", **place)
    settings = json.loads(lake.settings_file.read_text())
    lake.says(NONE.replace("lake/none", "ice/none"))
    settings["stores"] = [{"name": "ice", "kind": "iceberg", "catalog": place}]
    lake.settings_file.write_text(json.dumps(settings))


def test_a_realm_is_purged_where_no_dataset_is_left_at_all(looked: Looked) -> None:
    """There is nothing to evaluate then, so that no evaluation would say so."""
    looked.becomes("acme", "PURGING")
    of(looked, "lake/d", "beta")
    with looked.lake.opened() as ledger:
        close_realms_of_nothing(ledger, looked.step())
        assert looked.statuses == {"acme": "PURGING"}
        _empties(looked.lake)
        close_realms_of_nothing(ledger, looked.step(("lake/*",)))
        assert looked.statuses == {"acme": "PURGING"}
        close_realms_of_nothing(ledger, looked.step())
    assert looked.statuses == {"acme": "PURGED"}
    assert looked.said == ["Realm acme is PURGED: nothing of it is left."]


def test_a_run_that_finds_no_dataset_says_so_and_the_realm_is_over(looked: Looked) -> None:
    looked.becomes("acme", "PURGING")
    _empties(looked.lake)
    job = build_defs(looked.lake.settings).resolve_job_def("act_evaluate")
    with dg.DagsterInstance.ephemeral() as instance:
        config = step_config(as_of=text_of(MARKED), datasets=["*"])
        ran = job.execute_in_process(run_config=config, instance=instance, raise_on_error=False)
    assert not ran.success
    assert looked.statuses == {"acme": "PURGED"}


def test_the_oldest_reading_counts_and_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    first, second = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2))
    sources = [Source(str(tmp_path / name)) for name in ("a", "b")]
    write_begun({"lake": second, "blobs": first}, sources[0].folder)
    gone = (
        f"The folder {tmp_path}/b/begun of the warehouse is gone.*restore it, or judge its datasets again with `retention run`"
    )
    with pytest.raises(Refused, match=gone):
        read_begun(sources)
    write_begun({"lake": second}, sources[1].folder)
    assert (read_begun(sources), read_begun(sources[1:])) == (first, second)


def test_a_lost_folder_of_a_dataset_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    assert published_counts({"lake/d": f"{tmp_path}/lost"}) == {}

"""The measures of the house against their ceilings, and each count against a small tree."""

import pytest

from retention_assets_tests.architecture import ADMISSION, CEILINGS
from retention_assets_tests.house_measures import (
    TWINS,
    answers_about_holds,
    counts_of,
    deciders,
    exceeded,
    measures_of_run,
    options_of_stores,
    printers,
    read_tree,
    still_there,
)


def test_the_tree_keeps_its_ceilings() -> None:
    assert exceeded(counts_of(read_tree())) == {}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.program
def test_a_run_that_sweeps_six_files_keeps_its_ceilings() -> None:
    measures = measures_of_run()
    assert measures.keys() < CEILINGS.keys()
    assert all(measures.values())
    assert exceeded(measures) == {}


def test_what_is_above_its_ceiling_is_named() -> None:
    assert exceeded({"ways to look ahead": CEILINGS["ways to look ahead"]}) == {}
    assert exceeded({"ways to look ahead": CEILINGS["ways to look ahead"] + 1}) == {"ways to look ahead": "3 > 2"}


PROTOCOL = """
class Capabilities:
    undo: bool = False
    parts_at: str | None = None
class Store(Protocol): ...
class UndoStore(Store, Protocol): ...
class Files(UndoStore):
    root: str
"""
HOLDS = """
def in_force() -> tuple[Hold, ...]: ...
def newest() -> Hold | None: ...
class Holds:
    def of_files(self) -> Iterator[Keeper]:
        def inner() -> list[Hold]: ...
    def names(self) -> list[str]: ...
"""


def test_options_of_a_store_are_protocols_besides_the_store_and_its_capabilities() -> None:
    assert options_of_stores({"protocol": PROTOCOL}) == ["protocol:undo", "protocol:parts_at", "protocol:UndoStore"]


def test_an_answer_to_what_is_held_returns_several_holds_and_is_in_no_function() -> None:
    assert answers_about_holds({"book": HOLDS}) == ["book:in_force", "book:Holds.of_files"]


def test_the_door_and_whoever_asks_its_questions_decide() -> None:
    asks, named = "fault = environment.head_faults(ledger)", "from heads import head_faults"
    tree = {ADMISSION: "", "retention_assets.a": asks, "retention_assets.b": named, "retention_assets.people.audit": asks}
    assert deciders(tree) == {ADMISSION, "retention_assets.a"}


def test_a_printer_is_where_a_table_is_built() -> None:
    built = {"retention_assets.a": "import rich.table\nrich.table.Table()", "retention_assets.b": "LINE = '| --- |'"}
    declared = {"retention_assets.c": "from retention_assets.render.page import Table\nTable('t', (), ())"}
    assert printers(built | declared) == {"table.html", *built}


def test_declared_names_count_as_far_as_they_are_there() -> None:
    tree = {"retention_assets.protocol": PROTOCOL}
    names = ("protocol", "protocol:Files", "protocol:Capabilities.undo", "protocol:Capabilities.gone", "gone", "gone:Files")
    assert still_there(tree, names) == ["protocol", "protocol:Files", "protocol:Capabilities.undo"]


def test_each_measure_of_twins_has_a_ceiling_that_its_names_can_reach() -> None:
    assert {name: len(declared) for name, declared in TWINS.items() if CEILINGS[name] > len(declared)} == {}

"""The price table: what it says of bytes, requests and what is deleted early, and the tables that are refused."""

from pathlib import Path

import pytest

from retention_assets.settings.sections import GIB, Price, Prices
from retention_assets_tests.settings.settings_files import LAKE, problems, read


def prices(tmp_path: Path, table: str) -> Prices:
    return read(tmp_path, f"prices: {table}\n{LAKE}\n").prices


def test_where_nothing_has_a_price_nothing_is_said_of_money(tmp_path: Path) -> None:
    assert not read(tmp_path, LAKE).prices.are_set
    assert read(tmp_path, LAKE).prices.of("lake") is None
    assert not prices(tmp_path, "{currency: EUR}").are_set
    free = prices(tmp_path, "{stores: {lake: {gib_month: 0}}}")
    # What costs nothing has a price all the same.
    assert (free.of("ods"), free.of("lake")) == (None, Price(gib_month=0))


def test_a_class_of_storage_is_asked_before_its_store_and_that_before_the_default(tmp_path: Path) -> None:
    found = prices(tmp_path, "{default: {gib_month: 1}, stores: {lake: {gib_month: 2}}, classes: {GLACIER: {gib_month: 3}}}")
    said = {(store, kind): found.of(store, kind) for store in ("lake", "ods") for kind in (None, "STANDARD", "GLACIER")}
    assert {key: price.gib_month for key, price in said.items() if price} == {
        ("lake", None): 2, ("lake", "STANDARD"): 2, ("lake", "GLACIER"): 3,
        ("ods", None): 1, ("ods", "STANDARD"): 1, ("ods", "GLACIER"): 3,
    }  # fmt: skip
    assert found.are_set


def test_amounts_are_by_the_gib_the_month_and_the_thousand() -> None:
    price = Price(gib_month=0.02, thousand_deletes=0.005, minimum_days=30)
    assert price.monthly(100 * GIB) == pytest.approx(2)
    assert price.deleting(200_000) == pytest.approx(1)
    assert price.monthly(0) == price.deleting(0) == 0


@pytest.mark.parametrize(
    ("age", "months"),
    [(0, 3.0), (30, 2.0), (75, 0.5), (89.5, 1 / 60), (90, 0), (400, 0)],
    ids=["at_once", "a_month", "nearly_there", "half_a_day_before", "at_its_least_age", "old"],
)
def test_what_goes_early_is_billed_for_the_rest_of_its_least_age(age: float, months: float) -> None:
    price = Price(gib_month=0.5, minimum_days=90)
    assert price.ending_early(4 * GIB, age) == pytest.approx(2 * months)
    assert Price(gib_month=1).ending_early(GIB, age) == 0


@pytest.mark.parametrize(
    ("table", "key", "words"),
    [
        ("{currency: euro}", "prices.currency", "is not the code of a currency"),
        ("{currency: A1B}", "prices.currency", "is not the code of a currency"),
        ("{default: {gib_month: -1}}", "prices.default.gib_month", "0"),
        ("{default: {gib_month: .nan}}", "prices.default.gib_month", "finite"),
        ("{default: {gib_month: .inf}}", "prices.default.gib_month", "finite"),
        ("{default: {gib_month: 1, thousand_deletes: -0.1}}", "prices.default.thousand_deletes", "0"),
        ("{default: {gib_month: 1, minimum_days: 1.5}}", "prices.default.minimum_days", "a whole number"),
        ("{default: {gib_month: 1, per_day: 2}}", "prices.default.per_day", "per_day"),
        ("{default: {thousand_deletes: 1}}", "prices.default.gib_month", "missing"),
        ("{stores: {lakes: {gib_month: 1}}}", "prices", "a price for the store lakes, which does not exist"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_with_its_key(table: str, key: str, words: str, tmp_path: Path) -> None:
    (found,) = problems(tmp_path, f"prices: {table}\n{LAKE}\n")
    assert found.key == key
    assert words in str(found)

"""What people decide, on both databases: the policy book, holds, realms and visibility."""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import select

from retention_assets.errors import BadInput, Refused
from retention_assets.ledger import Ledger, Raise, Realm, raise_by, rule_faults
from retention_assets.ledger.invariants import visibility_rises
from retention_assets.ledger.schema import HOLDS
from retention_assets.policy import Duration, Hold, LoadOutcome, Policy, as_loaded
from retention_assets_tests.ledger.states import LATER, T0, candidates

DAY = timedelta(days=1)


def policy(age: str, name: str = "p") -> Policy:
    return Policy.model_validate({"name": name, "datasets": {"include": ("lake/*",)}, "select": {"older_than": age}})


def outcomes(ledger: Ledger, *policies: Policy) -> list[LoadOutcome]:
    return [one.outcome for one in ledger.policy_book.load([as_loaded(one) for one in policies], "loader")]


def test_loading_writes_versions_and_skips_what_is_known(ledger: Ledger) -> None:
    assert outcomes(ledger, policy("30d")) == [LoadOutcome.WRITTEN]
    assert outcomes(ledger, policy("P30D")) == [LoadOutcome.SKIPPED]
    assert outcomes(ledger, policy("31d")) == [LoadOutcome.WRITTEN]
    assert outcomes(ledger) == [LoadOutcome.ABSENT]
    written = [(one.version, one.written_by, one.system) for one in ledger.policy_book.versions("p")]
    assert written == [(number, "loader", True) for number in (1, 2, 3)]
    assert ledger.policy_book.in_force() == []
    assert outcomes(ledger, policy("31d")) == [LoadOutcome.WRITTEN]
    assert ledger.verify().faults == ()


def test_a_revoked_policy_is_in_force_no_more_and_its_marks_are_orphaned(ledger: Ledger) -> None:
    outcomes(ledger, policy("30d"))
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    assert ledger.policy_book.orphaned() == []
    ledger.policy_book.revoke("p", "ann", "too eager")
    assert ledger.policy_book.in_force() == []
    assert [(one.policy, one.policy_version, one.marks) for one in ledger.policy_book.orphaned()] == [("p", 1, 2)]
    assert ledger.marks.table(statuses=["MARKED"]).num_rows == 2
    with pytest.raises(Refused, match="No policy named p is in force"):
        ledger.policy_book.revoke("p", "ann", "again")


def test_loaders_at_once_write_each_version_once(ledger: Ledger) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: outcomes(ledger, policy("30d"))[0], range(8)))
    assert sorted(found) == [LoadOutcome.SKIPPED] * 7 + [LoadOutcome.WRITTEN]


def hold(name: str | None = "legal", until: str | None = None, reason: str = "case 7") -> Hold:
    return Hold.model_validate({"name": name, "datasets": "lake/*", "reason": reason, "owner": "ann", "until": until})


def test_a_hold_is_in_force_until_it_ends_or_is_released(ledger: Ledger) -> None:
    ledger.holds.place(hold(), "ann")
    ledger.holds.place(hold("short", "2026-01-02T00:00:00Z"), "ann")
    assert ledger.holds.recorded(T0).placed == [hold(), hold("short", "2026-01-02T00:00:00Z")]
    assert ledger.holds.recorded(T0 + DAY).placed == [hold()]
    ledger.holds.release("legal", "bob", "case closed")
    assert ledger.holds.recorded(LATER).placed == []
    with pytest.raises(Refused, match="No hold named legal is in force"):
        ledger.holds.release("legal", "bob", "case closed")
    ledger.holds.place(hold(), "ann")
    with pytest.raises(Refused, match="a name and a reason"):
        ledger.holds.place(hold("other", reason=" "), "ann")
    with pytest.raises(Refused, match="The record needs who"):
        ledger.holds.release("legal", "ann", "")
    assert ledger.verify().rows == 4


FAR = "2999-01-01T00:00:00Z"


def rows_of(ledger: Ledger, name: str) -> list[tuple[str, str | None, str | None]]:
    columns = (HOLDS.c.placed_by, HOLDS.c.released_by, HOLDS.c.release_reason)
    with ledger.database.reading() as connection:
        return [
            tuple(row) for row in connection.execute(select(*columns).where(HOLDS.c.name == name).order_by(HOLDS.c.placed_by))
        ]


def test_questions_of_one_moment_have_one_state_and_nothing_is_written_meanwhile(ledger: Ledger) -> None:
    def placed() -> list[Hold]:
        with ledger.database.one_moment():
            return list(ledger.holds.recorded(T0).placed)

    with ThreadPoolExecutor(1) as other, ledger.database.one_moment():
        assert placed() == []
        other.submit(ledger.holds.place, hold(), "ann").result()
        assert (placed(), other.submit(placed).result()) == ([], [hold()])
        with pytest.raises(ValueError, match="nothing can be written"):
            ledger.holds.release("legal", "ann", "the case is over")
    assert placed() == [hold()]
    ledger.holds.release("legal", "ann", "the case is over")
    assert placed() == []


@pytest.mark.parametrize("first", [None, FAR], ids=["no end", "an end to come"])
@pytest.mark.parametrize("second", [None, FAR, "2999-01-02T00:00:00Z"], ids=["no end", "the same end", "a later end"])
def test_a_hold_that_is_in_force_is_not_replaced(ledger: Ledger, first: str | None, second: str | None) -> None:
    ledger.holds.place(hold(until=first), "ann")
    ledger.holds.place(hold("other", FAR), "ann")
    with pytest.raises(Refused, match="A hold named legal is in force"):
        ledger.holds.place(hold(until=second, reason="case 8"), "bob")
    assert ledger.holds.recorded(T0).placed == [hold(until=first), hold("other", FAR)]
    assert rows_of(ledger, "legal") == [("ann", None, None)]
    assert ledger.verify().rows == 2


def test_a_hold_that_ended_by_itself_gives_its_own_name_free_and_no_other(ledger: Ledger) -> None:
    past = "2026-01-02T00:00:00Z"
    for name, until in (("legal", past), ("ended", past), ("other", FAR), ("endless", None)):
        ledger.holds.place(hold(name, until), "ann")
    ledger.holds.release("legal", "bob", "case closed")
    ledger.holds.place(hold(until=past), "cem")
    ledger.holds.place(hold(until=FAR), "dan")
    assert rows_of(ledger, "legal") == [
        ("ann", "bob", "case closed"),
        ("cem", "::until", "It ended by itself."),
        ("dan", None, None),
    ]
    assert [rows_of(ledger, name) for name in ("ended", "other", "endless")] == [[("ann", None, None)]] * 3
    ledger.holds.release("legal", "eve", "case closed")
    assert rows_of(ledger, "legal")[1:] == [("cem", "::until", "It ended by itself."), ("dan", "eve", "case closed")]
    assert [one.name for one in ledger.holds.recorded(T0).placed] == ["ended", "endless", "other"]
    assert [one.name for one in ledger.holds.recorded(LATER).placed] == ["endless", "other"]


def test_what_is_above_a_realm_counts_for_it(ledger: Ledger) -> None:
    for name, status in (("acme/sales", "INACTIVE"), ("acme", "PURGING"), ("acme-eu", "INACTIVE")):
        ledger.realms.change(name, status, "ann", "contract over")
    above = {name: ledger.realms.above(name) for name in ("acme", "acme-eu", "acme/sales", "acme/sales/eu")}
    acme = Realm("acme", "PURGING", Duration())
    assert above == {"acme": None, "acme-eu": None, "acme/sales": acme, "acme/sales/eu": acme}
    # Its own status is kept for when the one above it is ACTIVE again.
    ledger.realms.change("acme/sales", "ACTIVE", "ann", "they stay")
    ledger.realms.purged("acme", "scan")
    with pytest.raises(Refused, match=r"acme is PURGED, and acme/new with it\. To use it again, set acme to ACTIVE first\."):
        ledger.realms.change("acme/new", "INACTIVE", "ann", "why")
    ledger.realms.change("acme", "ACTIVE", "ann", "came back")
    assert ledger.realms.change("acme/new", "INACTIVE", "ann", "why").status == "INACTIVE"
    assert ledger.realms.above("acme/sales") is None


def test_what_appears_in_a_purged_realm_is_held_unless_one_above_it_is_purged(ledger: Ledger) -> None:
    for name in ("acme/sales", "beta"):
        ledger.realms.change(name, "PURGING", "ann", "contract over")
        ledger.realms.purged(name, "scan")
    held = ["realm acme/sales is PURGED", "realm beta is PURGED"]
    assert [hold.name for hold in ledger.holds.recorded(T0).purged] == held
    ledger.realms.change("acme", "PURGING", "ann", "contract over")
    assert [hold.name for hold in ledger.holds.recorded(T0).purged] == held[1:]
    ledger.realms.change("beta", "ACTIVE", "ann", "came back")
    assert ledger.holds.recorded(T0).purged == []


def test_what_is_said_of_a_realm_is_said_of_no_other(ledger: Ledger) -> None:
    days = {"acme": Duration(days=3), "beta": Duration(days=5)}
    for name, grace in days.items():
        ledger.realms.change(name, "PURGING", "ann", "contract over", grace)
    ledger.realms.change("aaa", "INACTIVE", "ann", "left us")
    assert ledger.realms.change("beta", "INACTIVE", "ann", "not yet") == Realm("beta", "INACTIVE", days["beta"])
    assert ledger.realms.purged("acme", "scan") == Realm("acme", "PURGED", days["acme"])
    with pytest.raises(Refused, match="beta is INACTIVE and can't become PURGED"):
        ledger.realms.purged("beta", "scan")
    assert ledger.realms.change("beta", "PURGING", "ann", "now", Duration()) == Realm("beta", "PURGING", Duration())
    assert {one.name: one.status for one in ledger.realms.all().values()} == {
        "aaa": "INACTIVE",
        "acme": "PURGED",
        "beta": "PURGING",
    }
    assert ledger.realms.of("aaa") == Realm("aaa", "INACTIVE", Duration())
    assert ledger.verify().rows == 6


MOVES = {
    "ACTIVE": {"INACTIVE", "PURGING"},
    "INACTIVE": {"ACTIVE", "PURGING"},
    "PURGING": {"ACTIVE", "INACTIVE", "PURGED"},
    "PURGED": {"ACTIVE"},
}


@pytest.mark.parametrize("before", MOVES)
def test_a_realm_goes_where_it_may_and_nowhere_else(ledger: Ledger, before: str) -> None:
    for after in MOVES.keys() - {before}:
        name = f"to-{after.lower()}"
        if before != "ACTIVE":
            ledger.realms.change(name, "PURGING" if before == "PURGED" else before, "ann", "why")
        if before == "PURGED":
            ledger.realms.purged(name, "scan")

        def moves(name: str = name, after: str = after) -> Realm:
            if after == "PURGED":
                return ledger.realms.purged(name, "scan")
            return ledger.realms.change(name, after, "ann", "why")

        if after in MOVES[before]:
            assert moves().status == ledger.realms.of(name).status == after
        else:
            allowed = ", only ACTIVE" if before == "PURGED" else ""
            with pytest.raises(Refused, match=f"is {before} and can't become {after}{allowed}"):
                moves()
            assert ledger.realms.of(name).status == before


def test_what_cannot_be_said_of_a_realm(ledger: Ledger) -> None:
    with pytest.raises(Refused, match="belongs to the system"):
        ledger.realms.change("::audit", "PURGING", "ann", "why")
    with pytest.raises(Refused, match="belongs to the system"):
        ledger.realms.change("::system::", "PURGING", "ann", "why")
    for name in ("acme eu", "acme/", "/acme", "acme//eu", "acmé", ""):
        with pytest.raises(BadInput, match="is not the name of a realm"):
            ledger.realms.change(name, "PURGING", "ann", "why")
    with pytest.raises(Refused, match="once a scan finds nothing"):
        ledger.realms.change("acme", "PURGED", "ann", "why")
    with pytest.raises(Refused, match="is ACTIVE and can't become PURGED"):
        ledger.realms.purged("acme", "scan")
    assert ledger.realms.all() == {}


NAMES = [f"lake/d{number}" for number in range(50)]


def raises(days: int, names: list[str] = NAMES) -> dict[str, Raise]:
    return {name: Raise(T0 + days * DAY, f"to day {days}") for name in names}


def faults(ledger: Ledger) -> list[object]:
    with ledger.database.reading() as connection:
        return [*ledger.verify().faults, *rule_faults(connection), *visibility_rises(connection)]


def test_many_marks_rise_at_once_each_with_its_act_and_where_nothing_rises_nothing_is_written(ledger: Ledger) -> None:
    risen = dict.fromkeys(NAMES, T0 + 2 * DAY)
    assert ledger.visibility.raise_to(raises(2), "ann") == risen
    for some, expected in ((raises(2), risen), (raises(1), risen), ({}, {})):
        assert ledger.visibility.raise_to(some, "bob") == expected
    assert sum('"ADVANCE"' in line for line in ledger.audit_lines()) == ledger.verify().rows == len(NAMES)
    assert faults(ledger) == []


def test_twenty_who_raise_the_same_marks_end_at_the_highest(ledger: Ledger) -> None:
    seed = random.Random(17)
    wanted = [
        [{name: Raise(T0 + seed.randrange(1000) * DAY, None) for name in seed.sample(NAMES[:8], 5)} for _ in range(4)]
        for _ in range(20)
    ]

    def raiser(number: int) -> bool:
        return all(
            found[name] >= to.visible_from
            for some in wanted[number]
            for found in (ledger.visibility.raise_to(some, f"raiser {number}"),)
            for name, to in some.items()
        )

    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(raiser, range(20)))
    highest: dict[str, object] = {}
    for some in (one for mine in wanted for one in mine):
        for name, to in some.items():
            highest[name] = max(to.visible_from, highest.get(name, to.visible_from))  # type: ignore[call-overload]
    assert ledger.visibility.of_all() == highest
    assert faults(ledger) == []


def test_clocks_that_are_months_wrong_hide_nothing_that_is_current(ledger: Ledger) -> None:
    month, newest = Duration(days=30), T0
    right = raise_by(month, T0 + DAY, newest)
    assert right.visible_from == T0 - 29 * DAY
    hurried = raise_by(month, T0 + 61 * DAY, newest)
    assert hurried.visible_from == newest
    ledger.visibility.raise_to({"lake/d": right}, "right")
    ledger.visibility.raise_to({"lake/d": hurried}, "two months ahead")
    slow = raise_by(month, T0 - 60 * DAY, newest)
    assert ledger.visibility.raise_to({"lake/d": slow}, "two months behind") == {"lake/d": newest}
    # What is written after, by clocks that are right again, is readable at once.
    assert ledger.visibility.of("lake/d") == newest
    assert faults(ledger) == []

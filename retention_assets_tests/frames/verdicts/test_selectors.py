"""Each selector, alone and together with others, on histories small enough to check by eye.

Belongs here: cases. A case is a dataset with a drawing, one policy and the answer beside it; all of them are judged in one call.
Drawings that kernel and oracle answer are in oracle/test_drawings.py, what holds for every history is in frames/test_laws.py.
"""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention_assets.frames import Log, candidate_marks, columns_for
from retention_assets.policy import Policy
from retention_assets_tests.histories import AS_OF, history, log_of


@dataclass(frozen=True)
class Case:
    """A drawing, a policy, and the transactions that it marks and that something spares; the others stay."""

    name: str
    why: str
    drawing: str
    select: Any
    mark: str = ""
    spare: str = ""
    branches: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)


SNAPSHOTS = "main: S1:SNAPSHOT@50d - S2:SNAPSHOT@40d - S3:SNAPSHOT@30d - S4:SNAPSHOT@20d"
SHARED = "abc: T1:APPEND@50d - T2:APPEND@40d - T3:SNAPSHOT@30d - T4:APPEND@20d | xyz: T2 - T5:APPEND@10d"
FORKED = "main: S1:SNAPSHOT@50d - S2:SNAPSHOT@40d - S3:SNAPSHOT@30d | dev: S1 - D2:SNAPSHOT@20d - D3:SNAPSHOT@10d"

HUNDRED = " | ".join(f"-: R{number}:RECORD@{80 if number < 30 else 1}d" for number in range(1, 101))
THREE_GIB = "main: " + " - ".join(f"S{n}:SNAPSHOT@{9 - n}d={3 * 2**30}" for n in (1, 2, 3)) + " - S4:SNAPSHOT@1d"
# The largest size that a log may have, as often as it goes into 2**64, and what is left of that and two.
LARGEST = 10**18 - 1
WRAPPING = [LARGEST] * (2**64 // LARGEST) + [2**64 % LARGEST + 2]

DAY = 24 * 60 * 60 * 1000


def own(max_age: int | None, min_snapshots: int | None, branch: str | None = None) -> dict[str, str]:
    """The attributes in which a dataset, or one of its branches, says how long it keeps its history."""
    prefix = "history.expire." if branch is None else f"history.expire.branch.{branch}."
    said = {"max-snapshot-age-ms": max_age, "min-snapshots-to-keep": min_snapshots}
    return {f"{prefix}{name}": str(number) for name, number in said.items() if number is not None}


def window(length: int | str) -> dict[str, str]:
    """The window of a table of versions, from when each was superseded."""
    return {"window.superseded-ms": str(length)}


SPARES = {"window.spares": "true"}
# S2 closes 30 days ago or a tick beside that, and supersedes S1.
TICKS = {tick: f"main: S1:SNAPSHOT@50d - S2:SNAPSHOT@2026-03-01T{time}Z - S3:SNAPSHOT@2d - S4:SNAPSHOT@1d" for tick, time in (
    ("before", "11:59:59.999999"), ("exactly", "12:00:00"), ("after", "12:00:00.000001"),
)}  # fmt: skip
COPIED = {"times": "copied"}


# v1 pins S1 and dev is on D4, 20 days old: ages() says when they end.
ENDED = "main: S1:SNAPSHOT@50d - S2:SNAPSHOT@40d - S3:SNAPSHOT@30d | dev: S1 - D4:SNAPSHOT@20d | #v1=S1"


def ages(tag: str, branch: str | None = None) -> dict[str, str]:
    """How old the tag v1 and the branch dev may become."""
    said = {"tag.v1": tag, "branch.dev": branch or tag, "branch.main": "1"}
    return {f"history.expire.{ref}.max-ref-age-ms": age for ref, age in said.items()}


CASES = [
    Case("age_of_opening_in_a_window", "on main by its opening; dev has none of its own",
         "main: S1:SNAPSHOT@50d - S2:SNAPSHOT@45d..20d - S3:SNAPSHOT@1d", {"types": ["SNAPSHOT"]}, "S1 S2", "",
         branches={"windows": [{"match": "main", "older_than": {"age": "30d", "of": "opened"}}]}),
    Case("age_of_archiving", "S2 was archived 40 days ago, S1 yesterday, S3 never",
         "main: S1:SNAPSHOT@50d~1d - S2:SNAPSHOT@45d~40d - S3:SNAPSHOT@44d - S4:SNAPSHOT@1d",
         {"older_than": {"age": "30d", "of": "archived"}}, "S2", code={"S1": "TOO_YOUNG", "S3": "NO_TIME"}),
    Case("age_of_superseding", "S2 left the latest view 30 days ago, S1 40 days ago", SNAPSHOTS,
         {"older_than": {"age": "30d", "of": "superseded"}}, "S1", code={"S4": "NO_TIME", "S2": "TOO_YOUNG"}),
    Case("beyond_views", "the newest two views stay", SNAPSHOTS, {"beyond": {"views": 2}}, "S1 S2", code={"S3": "WITHIN_VIEWS"}),
    Case("an_open_snapshot_changes_nothing", "until it commits", "main: S1:SNAPSHOT@9d - A2:APPEND@8d - O3:SNAPSHOT?@1d", "all", "",
         "S1 A2", code={"O3": "OPEN"}),
    Case("beyond_transactions", "the newest two data transactions stay; DELETE counts as none and is always beyond",
         "main: S1:SNAPSHOT@9d - A2:APPEND@8d - D3:DELETE@7d - A4:APPEND@6d", {"beyond": {"transactions": 2}}, "", "S1 D3",
         code={"A2": "WITHIN_TRANSACTIONS"}),
    Case("scope_of_counts", "dev alone counts; main's own are not looked at", FORKED, {"beyond": {"views": 1}}, "S1 D2",
         branches={"include": ["dev"]}, code={"S2": "OUT_OF_SCOPE"}),
    Case("a_window_replaces_the_count_too", "with the window, main has no count any more", SNAPSHOTS,
         {"older_than": "1d", "beyond": {"views": 4}}, "S1 S2", branches={"windows": [{"match": "main", "older_than": "30d"}]}),
    Case("reach_live_by_default", "X2 is on no branch", "main: S1:SNAPSHOT@50d - S2:SNAPSHOT@40d | -: S1 - X2:SNAPSHOT@30d",
         {"older_than": "1d"}, "S1", "S2", code={"X2": "UNREACHABLE"}),
    Case("reach_unreachable", "only what no branch reaches", "main: S1:SNAPSHOT@50d - S2:SNAPSHOT@40d | -: S1 - X2:SNAPSHOT@30d",
         {"older_than": "1d"}, "X2", branches={"reach": "unreachable"}, code={"S1": "REACHABLE"}),
    Case("views_older_than", "the view of S1 and A2 closed 40 days ago", "main: S1:SNAPSHOT@50d - A2:APPEND@40d - S3:SNAPSHOT@10d",
         {"in_views_older_than": "30d"}, "S1 A2", code={"S3": "VIEW_TOO_YOUNG"}),
    Case("an_open_transaction_after_the_view", "a build is in progress on it", "main: S1:SNAPSHOT@50d - A2:APPEND@40d - O3:APPEND?@1d",
         {"in_views_older_than": "30d"}, policy={"latest_view": "allow"}, code={"S1": "OPEN_AFTER", "O3": "OPEN"}),
    Case("complete_window", "S2 was current 35 days ago, and S3 after it", SNAPSHOTS, {"older_than": "35d", "window": "complete"}, "S1",
         code={"S2": "CURRENT_AT_CUT_OFF"}),
    Case("superseded_by_files", "both files of A1 were written again; one of A2 was not",
         "main: A1:APPEND@9d[a,b] - A2:APPEND@8d[c,d] - U3:UPDATE@7d[a,b,c]", {"superseded": True}, "A1", "",
         policy={"latest_view": "allow"}, code={"A2": "NOT_SUPERSEDED"}),
    Case("from_table", "older than 25 days and not of the newest two; nothing else is asked", SNAPSHOTS, {"from_table": True}, "S1 S2",
         attributes=own(25 * DAY, 2), code={"S3": "WITHIN_TRANSACTIONS", "S4": "TOO_YOUNG", "S1": "SELECTED"}),
    Case("from_table_age_is_strict", "exactly as old as the table's age is not older", SNAPSHOTS, {"from_table": True}, "S1",
         attributes=own(40 * DAY, 1), code={"S2": "TOO_YOUNG"}),
    Case("from_table_age_is_exact", "a millisecond less than 40 days, which no whole second rounds away", SNAPSHOTS,
         {"from_table": True}, "S1 S2", attributes=own(40 * DAY - 1, 1)),
    Case("from_table_age_is_exact_the_other_way", "S1 is 10 days and half a second old, and 10 days and 0.7 seconds are kept",
         "main: S1:SNAPSHOT@2026-03-21T11:59:59.500Z - S2:SNAPSHOT@1d", {"from_table": True}, attributes=own(10 * DAY + 700, 1),
         code={"S1": "TOO_YOUNG"}),
    Case("from_table_keeps_the_newest_however_old", "two of four, all long past the age", SNAPSHOTS, {"from_table": True}, "S1 S2",
         attributes=own(1, 2)),
    Case("from_table_for_ever", "the largest number that Iceberg writes", SNAPSHOTS, {"from_table": True}, attributes=own(2**63 - 1, 1),
         code={"S1": "TOO_YOUNG"}),
    Case("from_table_keeps_any_number", "and the largest count", SNAPSHOTS, {"from_table": True}, attributes=own(1, 2**63 - 1),
         code={"S1": "WITHIN_TRANSACTIONS"}),
    Case("from_table_counts_deletes", "Iceberg counts snapshots, whatever they did: D4 and A3 are the newest two",
         "main: A1:APPEND@9d - A2:APPEND@8d - A3:APPEND@7d - D4:DELETE@6d", {"from_table": True}, "A1 A2",
         policy={"latest_view": "allow"}, attributes=own(DAY, 2), code={"D4": "WITHIN_TRANSACTIONS", "A3": "WITHIN_TRANSACTIONS"}),
    Case("from_table_counts_nothing_that_never_was", "X3 is no snapshot, so S2 and S4 are the newest two",
         "main: S1:SNAPSHOT@9d - S2:SNAPSHOT@8d - X3:SNAPSHOT!@7d - S4:SNAPSHOT@6d", {"from_table": True}, "S1 X3",
         attributes=own(DAY, 2)),
    Case("from_table_on_a_line_without_a_commit", "what was ABORTED is among the newest of nothing", "-: T1:SNAPSHOT!@9d",
         {"from_table": True}, "T1", branches={"reach": "any"}, attributes=own(DAY, 1)),
    Case("from_table_protects_above_all", "min-snapshots-to-keep is 1, and dev and v1 still read older ones",
         f"{SNAPSHOTS} | dev: S1 | #v1=S2", {"from_table": True}, "S3", "S2", attributes=own(DAY, 1), code={"S2": "TAG",
         "S1": "WITHIN_TRANSACTIONS"}),
    Case("from_table_on_each_branch", "dev keeps three of its own; main alone would give up S1 and S2", FORKED, {"from_table": True},
         "S2", attributes=own(DAY, 1) | own(None, 3, "dev"), code={"S1": "WITHIN_TRANSACTIONS", "D2": "WITHIN_TRANSACTIONS"}),
    Case("from_table_a_branch_by_its_own_age", "dev keeps 60 days; its count is the table's", FORKED, {"from_table": True},
         "S2", attributes=own(DAY, 1) | own(60 * DAY, None, "dev"), code={"S1": "TOO_YOUNG", "D2": "TOO_YOUNG"}),
    Case("from_table_a_branch_that_keeps_less", "dev gives up D2 after a day; S1 is main's as well, which keeps 60", FORKED,
         {"from_table": True}, "D2", attributes=own(60 * DAY, 1) | own(DAY, 1, "dev"), code={"S1": "TOO_YOUNG"}),
    *(
        Case(f"from_table_two_branches_on_a_head_{one}", "they share all of it: the longer age and the larger count decide",
             SNAPSHOTS.replace("main", "main,dev"), {"from_table": True}, "S1",
             attributes=own(DAY, 1) | own(25 * DAY, 1, one) | own(DAY, 3, other),
             code={"S2": "WITHIN_TRANSACTIONS", "S3": "WITHIN_TRANSACTIONS", "S4": "TOO_YOUNG"})
        for one, other in (("main", "dev"), ("dev", "main"))
    ),
    Case("from_table_aborted", "X2 is on dev as S1 is, and dev keeps it for 60 days; X4 hangs on main alone",
         "main: S1:SNAPSHOT@50d - S3:SNAPSHOT@40d - S5:SNAPSHOT@1d | dev: S1 | -: S1 - X2:APPEND!@45d | -: S3 - X4:APPEND!@30d",
         {"from_table": True}, "S3 X4", attributes=own(DAY, 1) | own(60 * DAY, None, "dev"), code={"X2": "TOO_YOUNG"}),
    Case("from_table_aborted_without_a_root", "it is on every branch, and dev keeps its own for 60 days",
         "main: S1:SNAPSHOT@50d - S2:SNAPSHOT@40d | dev: S1 | -: X3:SNAPSHOT!@45d", {"from_table": True}, "",
         attributes=own(DAY, 1) | own(60 * DAY, None, "dev"), code={"X3": "TOO_YOUNG"}),
    Case("from_table_without_a_time", "nobody knows when X2 closed", "main: S1:SNAPSHOT@9d - X2:APPEND!@8d.. - A3:APPEND@7d",
         {"from_table": True}, "", "S1", attributes=own(DAY, 1), code={"X2": "NO_TIME"}),
    Case("from_table_names_with_dots", "feature/a.b sets its own, and it is not that of feature/a",
         "feature/a.b: S1:SNAPSHOT@9d - S2:SNAPSHOT@8d | feature/a: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d", {"from_table": True}, "S1",
         attributes=own(60 * DAY, 1) | own(DAY, None, "feature/a.b"), code={"T1": "TOO_YOUNG"}),
    Case("from_table_in_scope", "only dev is looked at, so main's numbers do not keep S1", FORKED, {"from_table": True}, "S1 D2",
         branches={"include": ["dev"]}, attributes=own(DAY, 1) | own(60 * DAY, 3, "main"), code={"S2": "OUT_OF_SCOPE"}),
    Case("from_table_unreferenced", "on no branch: by the age of the table alone, and only where reach says so",
         "main: S1:SNAPSHOT@50d - S2:SNAPSHOT@40d | -: S1 - X2:SNAPSHOT@30d | -: S1 - X3:SNAPSHOT@20d", {"from_table": True}, "X2",
         branches={"reach": "any"}, attributes=own(25 * DAY, 5), code={"X3": "TOO_YOUNG", "S1": "WITHIN_TRANSACTIONS"}),
    Case("from_table_reaches_live_by_default", "X2 is on no branch", "main: S1:SNAPSHOT@50d - S2:SNAPSHOT@40d | -: S1 - X2:SNAPSHOT@30d",
         {"from_table": True}, "S1", attributes=own(DAY, 1), code={"X2": "UNREACHABLE"}),
    Case("from_table_back_dated", "S3 is young behind an old one, and stays where Iceberg would lose it",
         "main: S1:SNAPSHOT@9d - S2:SNAPSHOT@1d - S3:SNAPSHOT@9d - S4:SNAPSHOT@8d", {"from_table": True}, "S1 S3",
         attributes=own(2 * DAY, 1), code={"S2": "TOO_YOUNG"}),
    Case("from_table_beside_other_lines", "appends only", "main: S1:SNAPSHOT@9d - A2:APPEND@8d - S3:SNAPSHOT@7d",
         {"from_table": True, "types": ["APPEND"]}, "A2", attributes=own(DAY, 1), code={"S1": "TYPE"}),
    Case("from_table_that_says_nothing", "no default stands in", SNAPSHOTS, {"from_table": True}, code={"S1": "NO_OWN_RETENTION"}),
    Case("from_table_that_says_half", "an age without a count", SNAPSHOTS, {"from_table": True}, attributes=own(DAY, None),
         code={"S1": "NO_OWN_RETENTION"}),
    *(
        Case(f"from_table_unreadable_{number}", f"{text[:25]!r} is not a whole number above zero", SNAPSHOTS, {"from_table": True},
             branches={"reach": "any"}, attributes=own(DAY, 1) | {key: text}, code={"S1": "NO_OWN_RETENTION"})
        for number, (key, text) in enumerate([
            ("history.expire.max-snapshot-age-ms", "5d"), ("history.expire.max-snapshot-age-ms", "0"),
            ("history.expire.max-snapshot-age-ms", " 86400000"), ("history.expire.max-snapshot-age-ms", str(2**63)),
            ("history.expire.max-snapshot-age-ms", "1" * 5000),
            ("history.expire.min-snapshots-to-keep", "-1"), ("history.expire.min-snapshots-to-keep", "1.0"),
            ("history.expire.min-snapshots-to-keep", ""), ("history.expire.min-snapshots-to-keep", "\u0663"),
            ("history.expire.branch.main.min-snapshots-to-keep", "many"),
            # What a branch says that is gone is not asked for, but what can be trusted of a table that says so?
            ("history.expire.branch.gone.max-snapshot-age-ms", "0"),
        ])
    ),
    Case("from_table_may_take_a_latest_view", "only where the age is over and the count leaves it, which never leaves the head",
         "main: S1:SNAPSHOT@9d - A2:APPEND@8d", {"from_table": True}, "S1", policy={"latest_view": "allow"}, attributes=own(DAY, 1),
         code={"S1": "SELECTED LATEST_VIEW_ALLOWED", "A2": "WITHIN_TRANSACTIONS"}),
    Case("expired_refs_stay", "v1 and dev are over, and nobody asked for anything", ENDED, {"from_table": True}, "S2", "S1",
         attributes=own(DAY, 1) | ages("1"), code={"S1": "TAG", "D4": "WITHIN_TRANSACTIONS"}),
    Case("expired_refs_keep", "the same, spelled out", ENDED, {"from_table": True, "expired_refs": "keep"}, "S2", "S1",
         attributes=own(DAY, 1) | ages("1")),
    Case("expired_refs_drop", "what they alone keep goes, with them", ENDED, {"from_table": True, "expired_refs": "drop"}, "S1 S2 D4",
         attributes=own(DAY, 1) | ages("1"),
         code={"S1": "SELECTED EXPIRED_REF", "S2": "SELECTED", "D4": "SELECTED EXPIRED_REF", "S3": "WITHIN_TRANSACTIONS"}),
    Case("expired_refs_not_yet", "v1 is exactly 50 days old, and dev's snapshot exactly 20", ENDED,
         {"from_table": True, "expired_refs": "drop"}, "S2", "S1", attributes=own(DAY, 1) | ages(str(50 * DAY), str(20 * DAY)),
         code={"S1": "TAG", "D4": "WITHIN_TRANSACTIONS"}),
    Case("expired_refs_a_millisecond_later", "and now they are a millisecond older than that", ENDED,
         {"from_table": True, "expired_refs": "drop"}, "S1 S2 D4", attributes=own(DAY, 1) | ages(str(50 * DAY - 1), str(20 * DAY - 1))),
    Case("expired_refs_by_the_dataset", "it says it of all that say nothing themselves; main never ends", ENDED,
         {"from_table": True, "expired_refs": "drop"}, "S2 D4", "S1",
         attributes=own(DAY, 1) | {"history.expire.max-ref-age-ms": "1", "history.expire.tag.v1.max-ref-age-ms": str(99 * DAY)}),
    Case("expired_refs_unreadable", "nobody knows when it ends, so it does not", ENDED, {"from_table": True, "expired_refs": "drop"},
         "S2 D4", "S1", attributes=own(DAY, 1) | {"history.expire.max-ref-age-ms": "1", "history.expire.tag.v1.max-ref-age-ms": "5d"}),
    Case("expired_refs_beside_a_living_one", "v2 pins S1 as well", f"{ENDED} | #v2=S1", {"from_table": True, "expired_refs": "drop"},
         "S2 D4", "S1", attributes=own(DAY, 1) | ages("1"), code={"S1": "TAG"}),
    Case("expired_refs_too_young_to_go", "dev is over, and its snapshot is kept for 30 days all the same", ENDED,
         {"from_table": True, "expired_refs": "drop"}, "S1 S2", attributes=own(30 * DAY, 1) | ages("1"), code={"D4": "TOO_YOUNG"}),
    Case("expired_refs_are_on_a_branch_until_they_are_dropped", "reach: live is the default; X5 is on none", f"{ENDED} | -: S1 - X5:SNAPSHOT@15d",
         {"from_table": True, "expired_refs": "drop"}, "S1 S2 D4", attributes=own(DAY, 1) | ages("1"), code={"X5": "UNREACHABLE"}),
    Case("expired_refs_within_limits", "three would go, two may", ENDED, {"from_table": True, "expired_refs": "drop"}, "", "S1 S2 D4",
         policy={"limits": {"transactions": 2}}, attributes=own(DAY, 1) | ages("1"), code={"S1": "LIMIT"}),
    Case("expired_refs_that_stay_count_for_no_limit", "one may go, and one would", ENDED, {"from_table": True}, "S2", "S1",
         policy={"limits": {"transactions": 1}}, attributes=own(DAY, 1) | ages("1")),
    Case("gc_disabled", "the table lets nobody delete its files", SNAPSHOTS, {"older_than": "1d"}, "", "S1 S2 S3 S4",
         attributes={"gc.enabled": "false"}, code={"S1": "GC_DISABLED", "S4": "LATEST_VIEW GC_DISABLED"}),
    Case("gc_disabled_by_a_typo", "anything but true", SNAPSHOTS, {"older_than": "1d"}, "", "S1 S2 S3 S4",
         attributes={"gc.enabled": "treu"}, code={"S1": "GC_DISABLED"}),
    Case("gc_enabled", "however it is spelled", SNAPSHOTS, {"older_than": "1d"}, "S1 S2 S3", "S4", attributes={"gc.enabled": " True "}),
    Case("gc_disabled_keeps_what_no_policy_selects", "as before", SNAPSHOTS, {"older_than": "99d"}, attributes={"gc.enabled": "false"},
         code={"S1": "TOO_YOUNG"}),
    Case("gc_disabled_is_over_no_limit", "nothing may go, so nothing counts", SNAPSHOTS, {"older_than": "1d"}, "", "S1 S2 S3 S4",
         policy={"limits": {"transactions": 1}}, attributes={"gc.enabled": "false"}, code={"S1": "GC_DISABLED"}),
    *(
        Case(f"superseded_window_{tick}", "older than the window is strictly older", drawing, {"from_table": True},
             "S1" if tick == "before" else "", attributes=window(30 * DAY),
             code={"S4": "NO_TIME", "S3": "TOO_YOUNG", "S1": "SELECTED" if tick == "before" else "TOO_YOUNG"})
        for tick, drawing in TICKS.items()
    ),
    *(
        Case(f"sparing_window_{tick}", "it spares what readers may need, whatever selects it", drawing, {"beyond": {"views": 1}},
             "S1" if tick == "before" else "", "S2 S3" if tick == "before" else "S1 S2 S3", attributes=window(30 * DAY) | SPARES,
             code={"S4": "WITHIN_VIEWS", "S3": "TABLE_WINDOW", "S1": "SELECTED" if tick == "before" else "TABLE_WINDOW"})
        for tick, drawing in TICKS.items()
    ),
    Case("superseded_window_of_zero", "whatever is superseded; the latest view never is", SNAPSHOTS, {"from_table": True}, "S1 S2 S3",
         policy={"latest_view": "allow"}, attributes=window(0), code={"S4": "NO_TIME"}),
    Case("superseded_window_counts_nothing", "a number of snapshots would keep two", SNAPSHOTS, {"from_table": True}, "S1 S2 S3",
         attributes=window(DAY) | own(99 * DAY, 2)),
    Case("superseded_window_off_branches", "never superseded", f"{SNAPSHOTS} | -: S1 - X5:SNAPSHOT@45d", {"from_table": True}, "S1 S2 S3",
         branches={"reach": "any"}, attributes=window(DAY), code={"X5": "NO_TIME"}),
    Case("sparing_window_of_the_newest", "never superseded, so it is inside", SNAPSHOTS, "all", "S1 S2 S3", "S4",
         policy={"latest_view": "allow"}, attributes=window(0) | SPARES, code={"S4": "TABLE_WINDOW"}),
    Case("sparing_window_beside_others", "all that spares is said", f"{SNAPSHOTS} | #v1=S3", "all", "S1 S2", "S3 S4",
         attributes=window(25 * DAY) | SPARES, code={"S3": "TAG TABLE_WINDOW", "S4": "LATEST_VIEW TABLE_WINDOW"}),
    Case("sparing_window_is_over_no_limit", "three would go, and two may", SNAPSHOTS, "all", "S1 S2", "S3 S4",
         policy={"limits": {"transactions": 2}}, attributes=window(25 * DAY) | SPARES),
    Case("sparing_window_that_is_off", "and one that nobody asks for", SNAPSHOTS, "all", "S1 S2 S3", "S4",
         attributes=window(99 * DAY) | {"window.spares": "False"}, code={"S4": "LATEST_VIEW"}),
    *(
        Case(f"window_unreadable_{number}_{key}", f"{text!r} is no whole number", SNAPSHOTS, select, "", spare,
             attributes=window(text) | SPARES, code={"S1": code})
        for number, text in enumerate(("", "7d", "-1", " 5", "1.0", "\u0663", str(2**63), "1" * 5000))
        for key, select, spare, code in (
            ("rule", {"from_table": True}, "", "NO_OWN_RETENTION"), ("spares", "all", "S1 S2 S3 S4", "TABLE_WINDOW")
        )
    ),
    *(
        Case(f"sparing_window_{name}", "nobody can say what is inside of it", SNAPSHOTS, "all", "", "S1 S2 S3 S4",
             attributes=attributes, code={"S1": "TABLE_WINDOW"})
        for name, attributes in {"of_nothing": SPARES, "of_iceberg": SPARES | own(1, 1),
                                 "by_a_typo": {"window.spares": "flase"}}.items()
    ),
    *(
        Case(f"times_of_a_copy_{number}", "nobody knows them", SNAPSHOTS, select, attributes=COPIED | window(0),
             policy={"latest_view": "allow"}, code={"S1": "TIMES_COPIED", "S4": "TIMES_COPIED"})
        for number, select in enumerate([
            *({"older_than": {"age": "1d", "of": clock}} for clock in ("closed", "opened", "superseded", "archived")),
            *({"beyond": {period: 1}} for period in ("hourly", "daily", "weekly", "monthly", "yearly")),
            {"in_views_older_than": "1d"}, {"from_table": True}, {"where": "closed_at < TIMESTAMP '2026-03-30T00:00:00Z'"},
            {"beyond": {"transactions": 1, "where": "opened_at IS NOT NULL"}},
        ])
    ),
    Case("times_of_a_copy_in_windows", "one of its windows compares them", SNAPSHOTS, {"beyond": {"views": 1}}, attributes=COPIED,
         branches={"windows": [{"match": "x", "older_than": "1d"}]}, code={"S1": "TIMES_COPIED"}),
    Case("counts_of_a_copy", "no time is asked for", SNAPSHOTS, {"beyond": {"transactions": 2, "views": 1}}, "S1 S2",
         attributes=COPIED),
    Case("own_times_of_a_copy", "an attribute was copied as it is", "main: S1:SNAPSHOT@50d{t=2026-01-01T00:00:00Z} - S2:SNAPSHOT@1d",
         {"older_than": {"age": "1d", "of": {"attribute": "t"}}, "where": "bytes IS NULL"}, "S1", attributes=COPIED),
    Case("a_copy_leaves_its_window", "its times are later than those that it lost", SNAPSHOTS, {"beyond": {"views": 1}}, "S1 S2", "S3",
         attributes=COPIED | window(25 * DAY) | SPARES),
    Case("versions_without_files", "they count for no limit either", "main: S1:SNAPSHOT@9d - D2:DELETE@8d - S3:SNAPSHOT@7d - D4:DELETE@6d",
         "all", "S1", "S3", policy={"limits": {"transactions": 1}}, attributes={"versions.empty": "kept"},
         code={"D2": "NO_FILES", "D4": "NO_FILES", "S3": "LATEST_VIEW"}),
    Case("from_table_within_limits", "two would go, one may", SNAPSHOTS, {"from_table": True}, "", "S1 S2 S3",
         policy={"limits": {"transactions": 2}}, attributes=own(DAY, 1), code={"S1": "LIMIT"}),
    Case("status", "aborted ones only", "main: S1:SNAPSHOT@9d - X2:APPEND!@8d - S3:SNAPSHOT@7d", {"status": ["ABORTED"]}, "X2",
         code={"S1": "STATUS"}),
    Case("where", "a condition over columns and attributes", "main: S1:SNAPSHOT@9d=10{k=x} - S2:SNAPSHOT@8d=99{k=x} - S3:SNAPSHOT@7d{k=x}",
         {"where": "bytes > 50 AND attributes['k'] = 'x'"}, "S2", code={"S1": "CONDITION"}),
    Case("a_null_in_where_is_not_true", "S1 has no bytes", "main: S1:SNAPSHOT@9d - S2:SNAPSHOT@8d=1", {"where": "NOT bytes > 50"}, "",
         "S2"),
    Case("latest_view_allowed", "this policy may take current data", "main: S1:SNAPSHOT@50d", {"older_than": "30d"}, "S1",
         policy={"latest_view": "allow"}, code={"S1": "SELECTED LATEST_VIEW_ALLOWED"}),
    Case("a_fraction_is_strict", "three of four are more than 0.74 of them", SNAPSHOTS, "all", "", "S1 S2 S3 S4",
         policy={"limits": {"fraction": 0.74}}, code={"S1": "LIMIT"}),
    Case("a_fraction_is_exact", "0.29 of 100 are 29, which no product of floats is", HUNDRED, {"older_than": "50d"},
         " ".join(f"R{number}" for number in range(1, 30)), policy={"limits": {"fraction": 0.29}}),
    Case("the_tighter_limit_counts", "three are within the one and not within the other", SNAPSHOTS, "all", "", "S1 S2 S3 S4",
         policy={"limits": {"fraction": 1, "transactions": 2}}, code={"S1": "LIMIT"}),
    Case("the_tighter_limit_counts_the_other_way", "and the other way round", SNAPSHOTS, "all", "", "S1 S2 S3 S4",
         policy={"limits": {"fraction": 0.5, "transactions": 3}}, code={"S1": "LIMIT"}),
    # Added up in 64 bits these are 2, and in an unsigned 64 as well: only a sum that is exact is over the limit.
    Case("a_limit_of_bytes_does_not_wrap_around", "more than an integer of 64 bits can hold, and than 65 can",
         "main: " + " - ".join(f"S{n}:SNAPSHOT@{40 - n}d={size}" for n, size in enumerate(WRAPPING, 1)) + " - S99:SNAPSHOT@1d",
         {"beyond": {"views": 1}}, "", " ".join(f"S{n}" for n in range(1, len(WRAPPING) + 1)), policy={"limits": {"bytes": 2**40}},
         code={"S1": "LIMIT"}),
    Case("a_limit_of_bytes_carries", "three of 3 GiB are 9 GiB, however small their lower halves are when they are added",
         THREE_GIB, {"beyond": {"views": 1}}, "", "S1 S2 S3", policy={"limits": {"bytes": 2**30}}, code={"S1": "LIMIT"}),
    Case("a_limit_of_bytes_is_exact_beyond_32_bits", "one byte less than what would go", THREE_GIB, {"beyond": {"views": 1}}, "",
         "S1 S2 S3", policy={"limits": {"bytes": 9 * 2**30 - 1}}, code={"S1": "LIMIT"}),
    Case("at_a_limit_of_bytes_beyond_32_bits_all_are_marked", "exactly what would go", THREE_GIB, {"beyond": {"views": 1}}, "S1 S2 S3",
         policy={"limits": {"bytes": 9 * 2**30}}),
    Case("a_limit_of_bytes_below_4_gib_is_not_passed_by_less", "two of 1 GiB",
         f"main: S1:SNAPSHOT@9d={2**30} - S2:SNAPSHOT@8d={2**30} - S3:SNAPSHOT@7d", {"beyond": {"views": 1}}, "S1 S2",
         policy={"limits": {"bytes": 2**31}}),
    Case("an_unfinished_record_has_not_closed", "older_than looks at the closing time", "-: R1:RECORD?@900d", {"older_than": "2y"}, "",
         code={"R1": "UNFINISHED"}),
    Case("archived_first", "a PAYMENT has to be archived, a RECALL need not",
         "-: R1:RECORD@900d{type=PAYMENT} | -: R2:RECORD@900d~800d{type=PAYMENT} | -: R3:RECORD@900d{type=RECALL}",
         {"older_than": "2y", "archived_before_purge": ["PAYMENT"]}, "R2 R3", code={"R1": "NOT_ARCHIVED"}),
    Case("unreferenced_to_the_letter", "a scan that says something else, or nothing, has not said so",
         "-: O1:OBJECT@9d{referenced=unknown} | -: O2:OBJECT@9d{referenced=} | -: O3:OBJECT@9d{referenced=False} | "
         "-: O4:OBJECT@9d{referenced=FALSE} | -: O5:OBJECT@9d{referenced=0} | -: O6:OBJECT@9d{referenced=no} | "
         "-: O7:OBJECT@9d{referenced=falsely} | -: O8:OBJECT@9d{Referenced=false} | -: O9:OBJECT@9d{referenced=false,scan=7}",
         {"unreferenced": True}, "O9", code={f"O{number}": "REFERENCED" for number in range(1, 9)}),
    Case("unreferenced_and_unfinished", "nobody knows what it will be", "-: O1:OBJECT?@9d{referenced=false}", {"unreferenced": True},
         code={"O1": "UNFINISHED"}),
    Case("referenced_objects_are_protected", "from a policy that does not ask, too; and only objects are",
         "-: O1:OBJECT@9d{class=referenced} | -: O2:OBJECT@9d{class=referenced,witness=w} | -: O3:OBJECT@9d{class=unreferenced} | "
         "-: R4:RECORD@9d{class=referenced}", {"older_than": "1d"}, "O3 R4", "O1 O2", code={"O1": "REFERRED_TO", "O2": "REFERRED_TO"}),
    Case("referenced_objects_count_for_no_limit", "one would go, one may", "-: O1:OBJECT@9d{class=referenced} | -: O2:OBJECT@9d",
         {"older_than": "1d"}, "O2", "O1", policy={"limits": {"transactions": 1}}),
    Case("dataset_attributes_must_match", "this one is not in the trash", SNAPSHOTS, "all", policy={"with": {"trashed": "true"}},
         attributes={"trashed": "false"}, code={"S1": "NO_POLICY"}),
    Case("back_dated", "order comes from parents: S2 is the newest view, whatever its clock says",
         "main: S1:SNAPSHOT@1d - S2:SNAPSHOT@50d", "all", "S1", "S2"),
    Case("back_dated_superseding", "S1 was left when S2 closed, 50 days ago", "main: S1:SNAPSHOT@1d - S2:SNAPSHOT@50d",
         {"older_than": {"age": "30d", "of": "superseded"}}, "S1"),
]  # fmt: skip


def _policy(case: Case) -> Policy:
    own = dict(case.policy)
    datasets = {"include": [f"case/{case.name}"], "with": own.pop("with", {})}
    return Policy.model_validate(
        {"name": case.name, "datasets": datasets, "branches": case.branches, "select": case.select, **own}
    )


@pytest.fixture(scope="module")
def log() -> Log:
    """All cases as one log."""
    return log_of(history(case.drawing, dataset=f"case/{case.name}", attributes=case.attributes) for case in CASES)


@pytest.fixture(scope="module")
def verdicts(log: Log) -> dict[str, dict[str, dict[str, Any]]]:
    """All cases, judged together."""
    policies = [_policy(case) for case in CASES]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in candidate_marks(log.transactions, log.datasets, policies, [], AS_OF).to_pylist():
        found.setdefault(row["dataset"], {})[row["transaction"]] = row
    return found


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_selector(case: Case, verdicts: dict[str, dict[str, dict[str, Any]]]) -> None:
    """The verdicts are those that stand beside the drawing, with the codes that stand there."""
    rows = verdicts[f"case/{case.name}"]
    for verdict, expected in (("mark", case.mark), ("spare", case.spare)):
        found = {name for name, row in rows.items() if row["verdict"] == verdict}
        assert found == set(expected.split()), f"{case.why}\n{case.drawing}\n{rows}"
    for name, codes in case.code.items():
        assert [reason["code"] for reason in rows[name]["reasons"]] == codes.split(), case.why


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_columns_that_a_policy_needs_are_enough(
    case: Case, log: Log, verdicts: dict[str, dict[str, dict[str, Any]]]
) -> None:
    """Alone, with no policy beside it that needs more: a log is read without the others."""
    policy = _policy(case)
    mine = log.transactions.filter(pc.equal(log.transactions["dataset"].cast(pa.string()), f"case/{case.name}"))
    alone = candidate_marks(mine.select(columns_for([policy], log.datasets)), log.datasets, [policy], [], AS_OF)
    assert {row["transaction"]: row for row in alone.to_pylist()} == verdicts[f"case/{case.name}"]


def test_the_sizes_that_wrap_around_do() -> None:
    """Else the case of that name would show nothing: in 64 bits they are below its limit."""
    assert sum(WRAPPING) == 2**64 + 2
    assert max(WRAPPING) <= LARGEST


def test_case_names_are_their_own() -> None:
    """A case of a name that stands twice would be judged by both policies."""
    assert len({case.name for case in CASES}) == len(CASES)

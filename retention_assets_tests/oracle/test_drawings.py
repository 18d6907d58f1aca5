"""Kernel and oracle against the acceptance cases, and against drawings whose answer was worked out from DESIGN.md."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from retention_assets.policy import Duration, Policy, parse_instant, purge_of
from retention_assets_tests.histories import History, from_lines, history
from retention_assets_tests.oracle.agreement import agreed
from retention_assets_tests.oracle.drawings import DELETED, DEMONSTRATION, FILES, FIVE, FORK, RECORDS, answer_of, policy
from retention_assets_tests.policies import keepers_of

CASES = Path(__file__).parents[1] / "cases"


def _acceptance() -> Iterator[Any]:
    for file in ("main", "ods"):
        expected = json.loads((CASES / f"{file}.expected.json").read_text())
        as_of = parse_instant(expected["as_of"])
        book = yaml.safe_load((CASES / f"{file}.policies.yaml").read_text())["policies"]
        parsed = [Policy.model_validate(entry) for entry in book]
        found = {one.dataset: one for one in from_lines((CASES / f"{file}.log.jsonl").read_text().splitlines(), as_of=as_of)}
        assert found.keys() == expected["datasets"].keys()
        for dataset, answer in expected["datasets"].items():
            yield pytest.param(found[dataset], parsed, answer["verdicts"], id=dataset)


@pytest.mark.parametrize(("given_history", "book", "answer"), list(_acceptance()))
def test_published_cases_get_the_published_verdicts(given_history: History, book: list[Policy], answer: dict[str, str]) -> None:
    assert {name: one.verdict for name, one in agreed(given_history, book).items()} == answer


# Lines of a policy that ask for views or branches: (what, select, branches).
ABOUT_BRANCHES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("beyond.views", {"beyond": {"views": 1}}, {}),
    ("beyond.views beside a count", {"beyond": {"views": 1, "transactions": 0}}, {}),
    ("in_views_older_than", {"in_views_older_than": "1d"}, {}),
    ("superseded", {"superseded": True}, {}),
    ("of: superseded", {"older_than": {"age": "1d", "of": "superseded"}}, {}),
    ("window: complete", {"older_than": "1d", "window": "complete"}, {}),
    ("only_in", {"older_than": "1d"}, {"only_in": "main"}),
    ("not_in", {"older_than": "1d"}, {"not_in": "main"}),
    ("windows", {"older_than": "1d"}, {"windows": [{"match": "main", "older_than": "1d"}]}),
    ("include", {"older_than": "1d"}, {"include": ["main"]}),
    ("exclude", {"older_than": "1d"}, {"exclude": ["main"]}),
]

# (name, drawing, policy, answer). The answer has the transactions of each verdict, in any order.
DRAWINGS = [
    # Views and protection.
    ("on abc alone, what lies before the last SNAPSHOT may go",
     DEMONSTRATION, policy(), "mark T1 T2, spare T3 T4"),
    ("xyz has no SNAPSHOT, so its latest view holds what abc has left behind (the demonstration of seed 000)",
     DEMONSTRATION + " | xyz: T2 - T5:APPEND@34d", policy(), "spare T1 T2 T3 T4 T5"),
    ("a branch that the policy does not look at protects all the same",
     DEMONSTRATION + " | xyz: T2 - T5:APPEND@34d", policy(branches={"include": ["abc"]}), "spare T1 T2 T3 T4, keep T5"),
    ("an ABORTED SNAPSHOT starts no view, and is in none",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT!@8d - T3:APPEND@7d", policy(), "spare T1 T3, mark T2"),
    ("an OPEN SNAPSHOT starts no view, and is never selected",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT?@8d - T3:APPEND@7d", policy(), "spare T1 T3, open T2"),
    ("the first COMMITTED transaction starts a view, also behind an ABORTED root",
     "main: T1:SNAPSHOT!@9d - T2:APPEND@8d - T3:SNAPSHOT@7d", policy(), "mark T1 T2, spare T3"),
    ("a branch whose head is inner protects the view that ends there",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d - T3:SNAPSHOT@7d | old: T2", policy(), "mark T1, spare T2 T3"),
    ("a branch whose head is ABORTED has the view before it as its latest",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d | dev: T1 - T3:SNAPSHOT!@7d", policy(), "spare T1 T2, mark T3"),
    # Tags.
    ("a tag pins its view from the start up to the tagged transaction, and no further",
     "main: T1:SNAPSHOT@9d - T2:APPEND@8d - T3:APPEND@7d - T4:SNAPSHOT@6d | #v1=T2", policy(), "spare T1 T2 T4, mark T3"),
    ("a tag that expires now is not live any more",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@6d | #v1=T1@0d", policy(), "mark T1, spare T2"),
    ("a tag that expires tomorrow is live",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@6d | #v1=T1@+1d", policy(), "spare T1 T2"),
    ("a tag on an ABORTED transaction pins the view in front of it, not the transaction itself",
     "main: T1:SNAPSHOT@9d - T2:APPEND!@8d - T3:SNAPSHOT@7d | #v1=T2", policy(), "spare T1 T3, mark T2"),
    ("latest_view: allow does not lift what a tag protects",
     "main: T1:SNAPSHOT@9d - T2:APPEND@8d | #v1=T1", policy(latest_view="allow"), "spare T1, mark T2"),
    ("a tag keeps what no branch reaches",
     DELETED + " | #v1=X3", policy(branches={"reach": "any"}), "mark T1 X4, spare T2 X3"),
    # Ages.
    ("strictly before: a microsecond decides",
     "main: T1:SNAPSHOT@2026-03-26T11:59:59.999999Z - T2:SNAPSHOT@5d - T3:SNAPSHOT@1d",
     policy({"older_than": "5d"}), "mark T1, keep T2 T3"),
    ("align: day cuts the bound from noon to midnight, so the morning stays",
     "main: T1:SNAPSHOT@2026-03-25T23:59:59Z - T2:SNAPSHOT@2026-03-26T00:00:00Z - T3:SNAPSHOT@1d",
     policy({"older_than": {"age": "5d", "align": "day"}}), "mark T1, keep T2 T3"),
    ("without align the morning goes",
     "main: T1:SNAPSHOT@2026-03-25T23:59:59Z - T2:SNAPSHOT@2026-03-26T00:00:00Z - T3:SNAPSHOT@1d",
     policy({"older_than": "5d"}), "mark T1 T2, keep T3"),
    ("a month before 31 March is 28 February, at the same hour: 30 days would take T2 and T3 as well",
     "main: T1:SNAPSHOT@2026-02-28T11:59:59Z - T2:SNAPSHOT@2026-02-28T12:00:00Z - T3:SNAPSHOT@2026-03-01T06:00:00Z"
     " - T4:SNAPSHOT@1d", policy({"older_than": "1mo"}), "mark T1, keep T2 T3 T4"),
    ("of: opened looks at the other end of a long transaction",
     "main: T1:SNAPSHOT@9d..1d - T2:SNAPSHOT@1d", policy({"older_than": {"age": "5d", "of": "opened"}}), "mark T1, keep T2"),
    ("of: closed_or_opened takes opened_at only where closed_at is missing",
     "main: T1:SNAPSHOT@9d..1d - T2:SNAPSHOT!@9d.. - T3:SNAPSHOT@1d",
     policy({"older_than": {"age": "5d", "of": "closed_or_opened"}}), "keep T1 T3, mark T2"),
    ("a null time is never old enough",
     "main: T1:SNAPSHOT@9d~8d - T2:SNAPSHOT@9d - T3:APPEND!@9d.. - T4:SNAPSHOT@9d",
     policy({"older_than": {"age": "5d", "of": "archived"}}), "mark T1, keep T2 T3 T4"),
    ("of: superseded is when the next view began; the latest view never was",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@3d - T3:SNAPSHOT@1d",
     policy({"older_than": {"age": "2d", "of": "superseded"}}), "mark T1, keep T2 T3"),
    ("of: superseded waits for the last branch that had it",
     "a: T1:SNAPSHOT@9d - T2:SNAPSHOT@5d | b: T1 - T3:SNAPSHOT@1d",
     policy({"older_than": {"age": "2d", "of": "superseded"}}), "keep T1 T2 T3"),
    ("of: superseded over one branch in scope asks only that one",
     "a: T1:SNAPSHOT@9d - T2:SNAPSHOT@5d | b: T1 - T3:SNAPSHOT@1d",
     policy({"older_than": {"age": "2d", "of": "superseded"}}, branches={"include": ["a"]}), "mark T1, keep T2 T3"),
    ("of: superseded is null while any branch has it in its latest view",
     "a: T1:SNAPSHOT@9d - T2:SNAPSHOT@5d | b: T1", policy({"older_than": {"age": "2d", "of": "superseded"}}), "keep T1 T2"),
    # Counts.
    ("a leading run without a SNAPSHOT is a view",
     "main: T1:APPEND@9d - T2:APPEND@8d - T3:SNAPSHOT@7d - T4:SNAPSHOT@6d",
     policy({"beyond": {"views": 2}}), "mark T1 T2, keep T3 T4"),
    ("a count of views is taken on each branch, and the most protective one decides",
     FORK, policy({"beyond": {"views": 2}}), "keep T1 T2 T3 T4"),
    ("a branch out of scope does not count, and what only it holds is not looked at",
     FORK, policy({"beyond": {"views": 2}}, branches={"exclude": ["dev"]}), "mark T1, keep T2 T3 T4"),
    ("ABORTED is beyond every count",
     "main: T1:APPEND@9d - T2:APPEND!@8d", policy({"beyond": {"views": 5, "transactions": 5}}), "keep T1, mark T2"),
    ("a DELETE neither counts nor is counted: T5 and T4 are the newest two, and T6 is only spared",
     "main: T1:APPEND@9d - T2:DELETE@8d - T3:APPEND@7d - T4:SNAPSHOT@6d - T5:APPEND@5d - T6:DELETE@4d",
     policy({"beyond": {"transactions": 2}}), "mark T1 T2 T3, keep T4 T5, spare T6"),
    ("beyond the newest 0 is everything",
     "main: T1:APPEND@9d - T2:SNAPSHOT@8d", policy({"beyond": {"transactions": 0}}), "mark T1, spare T2"),
    ("both counts must be passed: T2 is the second view but the fourth transaction",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d - T3:SNAPSHOT@7d - T4:APPEND@6d - T5:APPEND@5d",
     policy({"beyond": {"views": 2, "transactions": 3}}), "mark T1, keep T2 T3 T4 T5"),
    # in_views_older_than.
    ("a whole view goes by its last transaction, by order and not by time",
     "main: T1:SNAPSHOT@9d - T2:APPEND@1d - T3:APPEND@8d - T4:SNAPSHOT@1d",
     policy({"in_views_older_than": "5d"}), "mark T1 T2 T3, keep T4"),
    ("one young view that holds it keeps it",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d | dev: T1 - T3:APPEND@1d - T4:SNAPSHOT@1d",
     policy({"in_views_older_than": "5d"}), "keep T1 T3 T4, spare T2"),
    ("a view that closed exactly the age ago has not closed more than it ago",
     "main: T1:SNAPSHOT@9d - T2:APPEND@5d - T3:SNAPSHOT@1d", policy({"in_views_older_than": "5d"}), "keep T1 T2 T3"),
    ("an OPEN transaction at the end keeps the latest view, and not the one before",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d - T3:APPEND@7d - T4:APPEND?@6d",
     policy({"in_views_older_than": "5d"}, latest_view="allow"), "mark T1, keep T2 T3, open T4"),
    ("an OPEN side line that the last committed one came after does not",
     "main: T1:SNAPSHOT@9d - T2:APPEND@8d | -: T1 - T3:APPEND?@8d | > T1 T3 T2",
     policy({"in_views_older_than": "5d"}, latest_view="allow"), "mark T1 T2, open T3"),
    ("an OPEN side line that came after it does",
     "main: T1:SNAPSHOT@9d - T2:APPEND@8d | -: T1 - T3:APPEND?@8d",
     policy({"in_views_older_than": "5d"}, latest_view="allow"), "keep T1 T2, open T3"),
    ("an OPEN transaction without a parent is on every branch",
     "main: T1:SNAPSHOT@9d | dev: T2:SNAPSHOT@8d | -: T3:SNAPSHOT?@7d",
     policy({"in_views_older_than": "5d"}, latest_view="allow"), "keep T1 T2, open T3"),
    ("ABORTED and unreachable transactions are in no view",
     DELETED + " | -: T1 - X5:APPEND!@8d",
     policy({"in_views_older_than": "5d"}, branches={"reach": "any"}), "mark T1, spare T2, keep X3 X4 X5"),
    # window: complete.
    ("strict takes the view that was current at the cut-off",
     FIVE, policy({"older_than": "4d"}), "mark T1 T2 T3, keep T4"),
    ("complete keeps it",
     FIVE, policy({"older_than": "4d", "window": "complete"}), "mark T1 T2, keep T3 T4"),
    ("complete keeps the view whole, also the part that is young",
     "main: T1:SNAPSHOT@9d - T2:APPEND@8d - T3:APPEND@3d - T4:SNAPSHOT@2d",
     policy({"older_than": "4d", "window": "complete"}), "keep T1 T2 T3 T4"),
    ("at the cut-off itself the view that began then is current, so the one before may go",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@4d", policy({"older_than": "4d", "window": "complete"}), "mark T1, keep T2"),
    ("the latest view is current for ever, even where the policy may look into it",
     FIVE, policy({"older_than": "1d", "window": "complete"}, latest_view="allow"), "mark T1 T2 T3, keep T4"),
    ("ABORTED and unreachable transactions are in no view: their age alone decides",
     "main: T1:SNAPSHOT@9d - T2:APPEND!@8d | -: T1 - X3:APPEND@7d",
     policy({"older_than": "4d", "window": "complete"}, branches={"reach": "any"}), "keep T1, mark T2 X3"),
    # Where a transaction lies.
    ("only_in: on that branch alone",
     FORK, policy(branches={"only_in": "main"}), "keep T1 T4, mark T2, spare T3"),
    ("only_in: another branch counts also when it is out of scope",
     FORK, policy(branches={"only_in": "main", "exclude": ["dev"]}), "keep T1 T4, mark T2, spare T3"),
    ("not_in: not on that branch",
     FORK, policy(branches={"not_in": "main"}), "keep T1 T2 T3, spare T4"),
    ("not_in: on that branch counts also when it is out of scope",
     FORK, policy(branches={"not_in": "main", "exclude": ["main"]}), "keep T1 T2 T3, spare T4"),
    ("by default the unreachable stay", DELETED, policy(), "mark T1, spare T2, keep X3 X4"),
    ("reach: unreachable takes them and nothing else",
     DELETED, policy(branches={"reach": "unreachable"}), "keep T1 T2, mark X3 X4"),
    ("the unreachable are beyond every count",
     DELETED, policy({"beyond": {"views": 3}}, branches={"reach": "any"}), "keep T1 T2, mark X3 X4"),
    ("the unreachable are on no branch that a scope could leave out",
     DELETED, policy(branches={"reach": "any", "include": ["nowhere"]}), "keep T1 T2, mark X3 X4"),
    ("an ABORTED side line is on every branch that holds its parent, through another ABORTED one too",
     FORK + " | -: T1 - T5:APPEND!@5d - T6:APPEND!@4d", policy(branches={"only_in": "main"}),
     "keep T1 T4 T5 T6, mark T2, spare T3"),
    ("a COMMITTED child of an ABORTED side line is on no branch",
     "main: T1:SNAPSHOT@9d | -: T1 - T2:APPEND!@8d - T3:APPEND@7d", policy(branches={"reach": "unreachable"}),
     "keep T1 T2, mark T3"),
    ("without a branch an ABORTED root is unreachable",
     "-: T1:SNAPSHOT!@9d", policy(branches={"reach": "unreachable"}), "mark T1"),
    # Windows.
    ("each branch has its own age, and a shared transaction needs all of them",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d - T3:SNAPSHOT@1d | dev: T1 - T4:SNAPSHOT@8d - T5:SNAPSHOT@1d",
     policy({"older_than": "3d"}, branches={"windows": [{"match": "main", "older_than": "20d"}]}),
     "keep T1 T2 T3 T5, mark T4"),
    ("a window replaces the age also when it has none",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@2d - T3:SNAPSHOT@1d",
     policy({"older_than": "5d"}, branches={"windows": [{"match": "main", "beyond": {"views": 1}}]}), "mark T1 T2, keep T3"),
    ("a window without window: is strict, whatever select says",
     FIVE, policy({"older_than": "4d", "window": "complete"}, branches={"windows": [{"match": "main", "older_than": "4d"}]}),
     "mark T1 T2 T3, keep T4"),
    ("the first window that matches counts",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d",
     policy({"older_than": "1d"}, branches={"windows": [
         {"match": "m*", "older_than": "20d"}, {"match": "main", "older_than": "1d"}]}), "keep T1 T2"),
    ("the other lines of select stay beside a window",
     "main: T1:SNAPSHOT@9d - T2:APPEND@8d - T3:SNAPSHOT@2d",
     policy({"types": ["APPEND"]}, branches={"windows": [{"match": "main", "older_than": "5d"}]}), "keep T1 T3, mark T2"),
    ("an unreachable transaction has no branch, so no window",
     DELETED, policy({"older_than": "20d"}, branches={"reach": "any", "windows": [{"match": "*", "older_than": "1d"}]}),
     "mark T1, spare T2, keep X3 X4"),
    # Superseded files.
    ("files are superseded one by one, by an update or a removal",
     FILES, policy({"superseded": True}, latest_view="allow"), "mark T1, keep T2 T3 T4"),
    ("an unknown list of files is not superseded, until a SNAPSHOT follows",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d - T3:UPDATE@7d[a]",
     policy({"superseded": True}, latest_view="allow"), "mark T1, keep T2 T3"),
    ("a number of files names none of them",
     "main: T1:SNAPSHOT@9d[#1] - T2:UPDATE@8d[a]", policy({"superseded": True}, latest_view="allow"), "keep T1 T2"),
    ("what an ABORTED update would have replaced is not replaced, and ABORTED itself is not superseded",
     "main: T1:SNAPSHOT@9d[a] - T2:UPDATE!@8d[a] - T3:APPEND@7d[b]",
     policy({"superseded": True}, latest_view="allow"), "keep T1 T2 T3"),
    ("superseded on one branch in scope is not superseded on every one",
     "main: T1:SNAPSHOT@9d[a] - T2:SNAPSHOT@8d | dev: T1 - T3:APPEND@7d[b]",
     policy({"superseded": True}, latest_view="allow"), "keep T1 T2 T3"),
    ("one file that nothing replaced is enough to stay",
     "main: T1:SNAPSHOT@9d[a,b] - T2:UPDATE@8d[a]", policy({"superseded": True}, latest_view="allow"), "keep T1 T2"),
    ("a transaction that has no file has none left to replace",
     "main: T1:SNAPSHOT@9d[a] - T2:APPEND@8d[]", policy({"superseded": True}, latest_view="allow"), "keep T1, mark T2"),
    ("superseded on the branches in scope, whatever another branch still reads",
     "main: T1:SNAPSHOT@9d[a] - T2:SNAPSHOT@8d[b] | dev: T1 - T3:APPEND@7d[c]",
     policy({"superseded": True}, branches={"include": ["main"]}, latest_view="allow"), "mark T1, keep T2 T3"),
    ("no branch reads the files of the unreachable",
     DELETED + " | -: T1 - X5:APPEND!@8d", policy({"superseded": True}, branches={"reach": "any"}),
     "mark T1 X3 X4, keep T2 X5"),
    # Kinds.
    ("status and types are lists, and every line must hold",
     "main: T1:SNAPSHOT@9d - T2:APPEND!@8d - T3:UPDATE!@7d - T4:SNAPSHOT@6d",
     policy({"status": ["ABORTED", "OPEN"], "types": ["UPDATE", "SNAPSHOT"]}), "keep T1 T2 T4, mark T3"),
    ("terminal_only and archived_before_purge speak of records: a branched transaction passes",
     "main: T1:SNAPSHOT@9d{type=PAYMENT} - T2:SNAPSHOT@8d",
     policy({"terminal_only": True, "archived_before_purge": ["PAYMENT"]}), "mark T1, spare T2"),
    ("all is every closed record, ABORTED ones too", RECORDS, policy(), "mark R1 R3 R4, keep R2"),
    ("an unfinished record has no closed_at to be old", RECORDS, policy({"older_than": "5d"}), "mark R1 R3, keep R2 R4"),
    ("terminal_only: false judges it by opened_at",
     RECORDS, policy({"older_than": "5d", "terminal_only": False}), "mark R1 R2 R3, keep R4"),
    ("closed_or_opened does too",
     RECORDS, policy({"older_than": {"age": "5d", "of": "closed_or_opened"}}), "mark R1 R2 R3, keep R4"),
    ("of: opened does too",
     RECORDS, policy({"older_than": {"age": "5d", "of": "opened"}}), "mark R1 R2 R3, keep R4"),
    ("terminal_only: true does not",
     RECORDS, policy({"older_than": {"age": "5d", "of": "opened"}, "terminal_only": True}), "mark R1 R3, keep R2 R4"),
    ("without an age line nothing judges an unfinished record",
     RECORDS, policy({"status": ["OPEN"]}), "keep R1 R2 R3 R4"),
    ("terminal_only: false makes up no archived_at",
     RECORDS, policy({"older_than": {"age": "5d", "of": "archived"}, "terminal_only": False}), "keep R1 R2 R4, mark R3"),
    ("records of listed types must be archived, others need not",
     RECORDS, policy({"archived_before_purge": ["PAYMENT"]}), "keep R1 R2, mark R3 R4"),
    ("a record is on no branch, and by default it need not be", RECORDS, policy(branches={"reach": "live"}),
     "mark R1 R3 R4, keep R2"),
    # Lines: what lies on no branch where nothing does.
    ("the newest of the records stay, by closing; what never closed is not counted, and never goes by a count",
     "-: R1:RECORD@9d | -: R2:RECORD@5d | -: R3:RECORD@7d | -: R4:RECORD?@9d | -: R5:RECORD!@1d",
     policy({"beyond": {"transactions": 2}, "older_than": {"age": "1d", "of": "opened"}}), "mark R1, keep R2 R3 R4 R5"),
    ("an ABORTED record is beyond every count",
     "-: R1:RECORD@9d | -: R2:RECORD!@1d", policy({"beyond": {"transactions": 2}}), "keep R1, mark R2"),
    ("the newest 0 of the records are none, but an open one is never beyond",
     RECORDS, policy({"beyond": {"transactions": 0}, "older_than": {"age": "1d", "of": "opened"}}), "mark R1 R3, keep R2 R4"),
    ("records of one closing stand by their names, to the byte",
     "-: R2:RECORD@9d | -: R10:RECORD@9d | -: r1:RECORD@9d", policy({"beyond": {"transactions": 1}}), "mark R2 R10, keep r1"),
    ("records and objects are lines of their own beside a history",
     "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d | -: R1:RECORD@7d | -: R2:RECORD@6d | -: O1:OBJECT@9d | -: O2:OBJECT@8d",
     policy({"beyond": {"transactions": 1}}), "mark T1 R1 O1, keep T2 R2 O2"),
    ("of objects the line are those that nothing refers to, so that a count is the same at any size of a store",
     "-: O1:OBJECT@9d{class=unreferenced} | -: O2:OBJECT@8d{class=realm_purge} | -: O3:OBJECT@7d{class=referenced} | "
     "-: O4:OBJECT@6d{class=unreferenced} | -: O5:OBJECT?@5d{class=young}",
     policy({"beyond": {"transactions": 2}}), "mark O1, keep O2 O3 O4 O5"),
    ("a log without a branch is one line, by its order and not by time",
     "-: T1:SNAPSHOT@9d - T2:APPEND@1d - T3:DELETE@8d - T4:SNAPSHOT@7d - T5:APPEND!@2d",
     policy({"beyond": {"transactions": 2}}, branches={"reach": "any"}), "mark T1 T3 T5, keep T2 T4"),
    ("one branch makes it a history, in which the unreachable are beyond every count",
     "-: T1:SNAPSHOT@9d - T2:APPEND@8d | main: T3:SNAPSHOT@7d",
     policy({"beyond": {"transactions": 2}}, branches={"reach": "any"}), "mark T1 T2, keep T3"),
    ("a tag pins what is on a line",
     "-: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d | #v1=T1", policy(branches={"reach": "any"}), "spare T1, mark T2"),
    *(
        (f"{what} selects nothing of a line", drawing, policy(select, branches={"reach": "any", **branches}), answer)
        for what, select, branches in ABOUT_BRANCHES
        for drawing, answer in (
            ("-: R1:RECORD@9d | -: R2:RECORD@8d", "keep R1 R2"),
            ("-: O1:OBJECT@9d", "keep O1"),
            ("-: T1:SNAPSHOT@9d[a] - T2:SNAPSHOT@8d[a]", "keep T1 T2"),
        )
    ),
    ("a record is in no view", RECORDS, policy({"in_views_older_than": "1d"}), "keep R1 R2 R3 R4"),
    ("a record is superseded by nothing", RECORDS, policy({"superseded": True}), "keep R1 R2 R3 R4"),
    ("an OBJECT is judged as a RECORD, but nobody archives it",
     "-: O1:OBJECT@9d{type=PAYMENT} | -: O2:OBJECT?@9d | main: T1:SNAPSHOT@9d",
     policy({"older_than": {"age": "5d", "of": "opened"}, "archived_before_purge": ["PAYMENT"]}), "mark O1 O2, spare T1"),
    ("only a scan that says so, to the letter, makes an OBJECT unreferenced, and nothing makes a RECORD so",
     "-: O1:OBJECT@9d{referenced=false} | -: O2:OBJECT@9d{referenced=False} | -: O3:OBJECT@9d{referenced=unknown} | -: O4:OBJECT@9d | "
     "-: R5:RECORD@9d{referenced=false} | main: T6:SNAPSHOT@9d{referenced=false} - T7:SNAPSHOT@8d",
     policy({"unreferenced": True}), "mark O1, keep O2 O3 O4 R5 T6 T7"),
    ("an OPEN record is not closed, whatever its row says: it goes by its opening, and by its closing never",
     "-: R1:RECORD?@9d..9d | -: R2:RECORD?@9d..1d | -: R3:RECORD?@1d..1d",
     policy({"older_than": {"age": "5d", "of": "closed_or_opened"}}), "mark R1 R2, keep R3"),
    ("nor has an OPEN record closed for terminal_only: false",
     "-: R1:RECORD?@9d..9d | -: R2:RECORD?@9d..1d | -: R3:RECORD?@..9d",
     policy({"older_than": "5d", "terminal_only": False}), "mark R1 R2, keep R3"),
    ("a record beside a history is in no view of it",
     "main: T1:SNAPSHOT@9d | -: R1:RECORD@8d", policy(), "spare T1, mark R1"),
]  # fmt: skip


# Counts of transactions. The days of DAYS are the 27th, 28th (twice), 29th, 30th and 31st of March.
DAYS = "main: S1:SNAPSHOT@4d - A2:APPEND@3d - A3:APPEND@66h - S4:SNAPSHOT@2d - A5:APPEND@1d - S6:SNAPSHOT@6h"
WEEKS = (
    "main: S1:SNAPSHOT@2025-12-28T12:00:00Z - S2:SNAPSHOT@2025-12-29T12:00:00Z - S3:SNAPSHOT@2026-01-02T12:00:00Z"
    " - S4:SNAPSHOT@2026-01-05T12:00:00Z"
)
MIDNIGHT = "main: S1:SNAPSHOT@2026-03-30T21:30:00Z - S2:SNAPSHOT@2026-03-30T22:30:00Z - S3:SNAPSHOT@2h"
# Half past two, twice, in the night in which the clocks of Berlin go back.
BACK = (
    "main: S1:SNAPSHOT@2025-10-25T23:30:00Z - S2:SNAPSHOT@2025-10-26T00:30:00Z - S3:SNAPSHOT@2025-10-26T01:30:00Z"
    " - S4:SNAPSHOT@1d"
)
SOME = (
    "main: S1:SNAPSHOT@9d{kind=full} - A2:APPEND@8d - A3:APPEND@7d{kind=full} - D4:DELETE@6d{kind=full} - S5:SNAPSHOT@5d"
    " - S6:SNAPSHOT@1d{kind=full}"
)
GROUPS = (
    "main: S1:SNAPSHOT@9d{tag=a} - S2:SNAPSHOT@8d{tag=} - S3:SNAPSHOT@7d{tag=a,kind=k} - S4:SNAPSHOT@6d - S5:SNAPSHOT@5d{tag=b}"
    " - S6:SNAPSHOT@4d{tag=a}"
)
SPACE = "main: S1:SNAPSHOT@9d=10 - S2:APPEND@8d=1 - S3:SNAPSHOT@7d=50 - D4:DELETE@6d=99 - S5:SNAPSHOT@5d - S6:SNAPSHOT@4d=50"
QUARTERS = (
    "main: T1:SNAPSHOT@2024-12-31T23:59:59Z - T2:SNAPSHOT@2025-09-30T23:59:59Z - T3:SNAPSHOT@2025-10-31T23:59:59Z"
    " - T4:SNAPSHOT@2025-11-23T23:59:59Z - T5:SNAPSHOT@2025-11-24T00:00:00Z - T6:SNAPSHOT@1d"
)
EXPIRING = " | ".join(
    f"-: R{number}:RECORD{status}@1d" + (f"{{expires_at={text}}}" if text else "")
    for number, (status, text) in enumerate([
        ("", "2026-03-31T11:59:59.999999Z"), ("", "2026-03-31T12:00:00Z"), ("", "2026-03-31T13:30:00+02:00"), ("", "2026-03-01"),
        ("", "2026-03-01T00:00:00"), ("", "soon"), ("", ""), ("!", "2026-03-01T00:00:00Z"), ("?", "2026-03-01T00:00:00Z"),
    ], 1)
)  # fmt: skip
ANY = {"reach": "any"}
FULL = "attributes['kind'] = 'full'"

# (name, drawing, select.beyond, branches, answer)
COUNTS: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    ("of the newest day the last stays", DAYS, {"daily": 1}, {}, "mark S1 A2 A3 S4 A5, keep S6"),
    ("of a day before as a tag would keep it: with its view up to it", DAYS, {"daily": 2}, {}, "mark S1 A2 A3, keep S4 A5 S6"),
    ("days that have nothing are none", "main: S1:SNAPSHOT@9d - S2:SNAPSHOT@5d - S3:SNAPSHOT@1d", {"daily": 2}, {},
     "mark S1, keep S2 S3"),
    ("a count of transactions keeps no state: A3 alone cannot be read", DAYS, {"transactions": 4}, {},
     "mark S1 A2, keep A3 S4 A5 S6"),
    ("several keys keep together: A3 and what it needs for its day, A5 as one of two", DAYS, {"monthly": 1, "transactions": 2}, {},
     "mark S1 A2 A3 S4, keep A5 S6"),
    ("views beside a period", DAYS, {"views": 2, "daily": 1}, {}, "mark S1 A2 A3, keep S4 A5 S6"),
    ("the 29th of December is in the first ISO week of the year after", WEEKS, {"weekly": 4}, {}, "mark S2, keep S1 S3 S4"),
    ("and in the year before", WEEKS, {"yearly": 2}, {}, "mark S1 S3, keep S2 S4"),
    ("and in December", WEEKS, {"monthly": 2}, {}, "mark S1 S3, keep S2 S4"),
    ("days are those of UTC", MIDNIGHT, {"daily": 2}, {}, "mark S1, keep S2 S3"),
    ("or of a zone", MIDNIGHT, {"daily": 2, "zone": "Europe/Berlin"}, {}, "mark S2, keep S1 S3"),
    ("an hour that the clock shows twice is one", BACK, {"hourly": 3, "zone": "Europe/Berlin"}, {}, "mark S2, keep S1 S3 S4"),
    ("in UTC there is none", BACK, {"hourly": 3}, {}, "mark S1, keep S2 S3 S4"),
    ("the newest of a day is the last by order, the newest days are said by the calendar",
     "main: S1:SNAPSHOT@20h - S2:SNAPSHOT@30h - S3:SNAPSHOT@5d - S4:SNAPSHOT@2h", {"daily": 2}, {}, "mark S1 S3, keep S2 S4"),
    ("a DELETE stays only where a kept state needs it, and makes no day",
     "main: S1:SNAPSHOT@5d - D2:DELETE@4d - A3:APPEND@3d - D4:DELETE@2d - S5:SNAPSHOT@1d", {"daily": 2}, {},
     "mark D4, keep S1 D2 A3 S5"),
    ("ABORTED is beyond every period and size", "main: S1:SNAPSHOT@4d - A2:APPEND!@4d - S3:SNAPSHOT@1d",
     {"daily": 9, "bytes": "1GiB"}, {}, "mark A2, keep S1 S3"),
    ("periods among what meets a condition; a state needs what does not as well", SOME, {"daily": 2, "where": FULL}, {},
     "mark D4 S5, keep S1 A2 A3 S6"),
    ("transactions among what meets a condition", SOME, {"transactions": 2, "where": FULL}, {}, "mark S1 A2 D4 S5, keep A3 S6"),
    ("separately for each value of an attribute; absent is one, and not the empty text", GROUPS,
     {"transactions": 1, "per": ["tag"]}, {}, "mark S1 S3, keep S2 S4 S5 S6"),
    ("for each combination of two", GROUPS, {"daily": 1, "per": ["tag", "kind"]}, {}, "mark S1, keep S2 S3 S4 S5 S6"),
    ("exactly as many bytes fit; unknown ones count 0, and a DELETE is not weighed", SPACE, {"bytes": "100B"}, {},
     "mark S1 S2 D4, keep S3 S5 S6"),
    ("the first that does not fit is the end, though S2 would", SPACE, {"bytes": "60B"}, {}, "mark S1 S2 S3 D4, keep S5 S6"),
    ("nothing fits", SPACE, {"bytes": "1B"}, {}, "mark S1 S2 S3 D4 S5, spare S6"),
    ("each branch counts its own, and the most protective decides", FORK, {"daily": 2}, {}, "keep T1 T2 T3 T4"),
    ("a branch out of scope keeps nothing", FORK, {"daily": 2}, {"exclude": ["dev"]}, "mark T1, keep T2 T3 T4"),
    ("a window of a branch is in the place of all counts",
     DAYS, {"daily": 4}, {"windows": [{"match": "main", "beyond": {"transactions": 1}}]}, "mark S1 A2 A3 S4 A5, keep S6"),
    ("the other branches keep the counts of select", f"{DAYS} | dev: A3 - S7:SNAPSHOT@2h",
     {"daily": 2}, {"windows": [{"match": "main", "beyond": {"transactions": 1}}]}, "mark S4 A5, keep S1 A2 A3 S6 S7"),
    ("records lie in days by closing, ties by name; an OPEN one in none, and it is never beyond",
     "-: R2:RECORD@9d | -: R10:RECORD@9d | -: R3:RECORD@8d | -: R4:RECORD?@9d | -: R5:RECORD!@8d", {"daily": 2}, {},
     "mark R10 R5, keep R2 R3 R4"),
    ("a budget of objects is for those that nothing refers to",
     "-: O1:OBJECT@9d=5{class=unreferenced} | -: O2:OBJECT@8d=5{class=unreferenced} | -: O3:OBJECT@7d=9{class=referenced}",
     {"bytes": "9B"}, {}, "mark O1, keep O2 O3"),
    ("a log without branches keeps just what is counted", DAYS.replace("main", "-"), {"daily": 4}, ANY,
     "mark S1 A2, keep A3 S4 A5 S6"),
    ("and is looked at only where reach says so", DAYS.replace("main", "-"), {"daily": 1}, {}, "keep S1 A2 A3 S4 A5 S6"),
    ("beside a branch what is unreachable is beyond every count", "-: S1:SNAPSHOT@1h | main: S2:SNAPSHOT@9d", {"daily": 9}, ANY,
     "mark S1, keep S2"),
]  # fmt: skip
AGES: list[tuple[str, str, dict[str, Any], str]] = [
    ("its own end lies strictly before now; a day, no zone, no time and none never do, nor do those of an OPEN record",
     EXPIRING, {"age": "0s", "of": {"attribute": "expires_at"}}, "mark R1 R3 R8, keep R2 R4 R5 R6 R7 R9"),
    ("an age is counted from an attribute", "main: T1:SNAPSHOT@1d{last_pull=2026-03-01T11:59:59Z} - "
     "T2:SNAPSHOT@9d{last_pull=2026-03-01T12:00:00Z} - T3:SNAPSHOT@1d", {"age": "30d", "of": {"attribute": "last_pull"}},
     "mark T1, keep T2 T3"),
    *(
        (f"four months back, to the start of the {align}", QUARTERS, {"age": "4mo", "align": align}, answer)
        for align, answer in (
            ("week", "mark T1 T2 T3 T4, keep T5 T6"), ("month", "mark T1 T2 T3, keep T4 T5 T6"),
            ("quarter", "mark T1 T2, keep T3 T4 T5 T6"), ("year", "mark T1, keep T2 T3 T4 T5 T6"),
        )
    ),
]  # fmt: skip
DRAWINGS += [
    (name, drawing, policy({"beyond": beyond}, branches=branches), answer) for name, drawing, beyond, branches, answer in COUNTS
]
DRAWINGS += [(name, drawing, policy({"older_than": line}), answer) for name, drawing, line, answer in AGES]

# (name, drawing, retain rule, answer), under a policy that would take everything.
LOST = "main: S1:SNAPSHOT@9d=5{kind=full} - A2:APPEND@8d - A3:APPEND!@7d - S4:SNAPSHOT@6d{kind=full} - S5:SNAPSHOT@5d"
RULE: dict[str, Any] = {"name": "r", "reason": "law", "datasets": "*"}
RETAINED: list[tuple[str, str, dict[str, Any], str]] = [
    ("by condition", LOST, {"where": FULL}, "spare S1 S4, mark A2 A3 S5"),
    ("what was ABORTED, too", LOST, {"where": "status = 'ABORTED'"}, "spare A3, mark S1 A2 S4 S5"),
    ("what is OPEN has not closed, whatever its row says", "-: R1:RECORD?@9d..1d=500 | -: R2:RECORD@9d=500",
     {"where": "closed_at IS NULL OR bytes < 100"}, "spare R1, mark R2"),
    ("a condition without an answer does not keep", LOST, {"where": "bytes >= 0"}, "spare S1, mark A2 A3 S4 S5"),
    ("by age, not strictly before the bound", LOST, {"younger_than": "6d"}, "spare S4 S5, mark S1 A2 A3"),
    ("what never closed is young", "-: R1:RECORD?@9d | -: R2:RECORD!@9d.. | -: R3:RECORD@9d", {"younger_than": "1d"},
     "spare R1 R2, mark R3"),
    ("the newest, and what it needs", DAYS, {"newest": {"transactions": 2}}, "spare S4 A5 S6, mark S1 A2 A3"),
    ("of each of two days", DAYS.replace(" - S4", " - D9:DELETE@65h - S4"), {"newest": {"daily": 4}},
     "spare S1 A2 A3 S4 A5 S6, mark D9"),
    ("on every branch, whatever a policy looks at", f"{FORK} | old: T2", {"newest": {"transactions": 1}},
     "spare T2 T3 T4, mark T1"),
    ("every line must hold", DAYS, {"newest": {"transactions": 2}, "younger_than": "1d"}, "spare A5 S6, mark S1 A2 A3 S4"),
    ("all three", LOST, {"newest": {"transactions": 3, "where": FULL}, "younger_than": "8d", "where": FULL},
     "spare S4, mark S1 A2 A3 S5"),
    ("of records along their line", "-: R1:RECORD@9d | -: R2:RECORD@7d | -: R3:RECORD@8d | -: R4:RECORD!@1d",
     {"newest": {"transactions": 2}}, "spare R2 R3, mark R1 R4"),
    ("of a log without branches just what is counted", DAYS.replace("main", "-"), {"newest": {"daily": 2}},
     "spare A5 S6, mark S1 A2 A3 S4"),
    ("what no branch reaches is not among the newest", "-: S1:SNAPSHOT@1h | main: S2:SNAPSHOT@9d", {"newest": {"daily": 9}},
     "spare S2, mark S1"),
    ("of other datasets", LOST, {"where": FULL, "datasets": "ice/*"}, "mark S1 A2 A3 S4 S5"),
]  # fmt: skip


@pytest.mark.parametrize(("drawing", "rule", "answer"), [pytest.param(*row[1:], id=row[0]) for row in DRAWINGS])
def test_a_drawing_gets_the_answer_beside_it(drawing: str, rule: Policy, answer: str) -> None:
    drawn = history(drawing)
    assert {name: one.verdict for name, one in agreed(drawn, [rule]).items()} == answer_of(answer), drawn


@pytest.mark.parametrize(("drawing", "rule", "answer"), [pytest.param(*row[1:], id=row[0]) for row in RETAINED])
def test_a_retain_rule_keeps_what_it_says_from_every_policy(drawing: str, rule: dict[str, Any], answer: str) -> None:
    everything = policy({"older_than": {"age": "1s", "of": "opened"}}, latest_view="allow", branches=ANY)
    found = agreed(history(drawing), [everything], keepers_of([{**RULE, **rule}]))
    assert {name: one.verdict for name, one in found.items()} == answer_of(answer), drawing
    assert {one.spared_by for one in found.values() if one.verdict == "spare"} <= {frozenset({("RETAIN_RULE", "r")})}


def test_a_retain_rule_stands_above_the_purge_of_a_realm() -> None:
    drawn = history(LOST, attributes={"realm": "acme"})
    found = agreed(drawn, [purge_of("acme", Duration(days=7), Duration())], keepers_of([{**RULE, "where": FULL}]))
    assert {name: one.verdict for name, one in found.items()} == answer_of("spare S1 S4, mark A2 A3 S5")

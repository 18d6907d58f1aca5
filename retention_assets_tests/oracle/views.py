"""The naive oracle, sections 3 and 4 of DESIGN.md, sentence by sentence: branches, views, and what protects."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from retention_assets.policy import BRANCHED, parse_instant
from retention_assets_tests.histories import History


@dataclass(frozen=True)
class ViewRow:
    """A row of `branch_views`. `protected_by` has every branch and tag that protects; the table names one of them."""

    branches: int
    view: int | None
    newer: int | None
    superseded_at: datetime | None
    view_closed_at: datetime | None
    open_after: bool
    protected_by: frozenset[str]


@dataclass(frozen=True, eq=False)
class Transaction:
    name: str
    ordinal: int
    parent: str | None
    type: str
    status: str
    opened_at: datetime | None
    closed_at: datetime | None
    archived_at: datetime | None
    bytes: int | None
    files: frozenset[str] | None
    attributes: Mapping[str, str]

    @property
    def independent(self) -> bool:
        """A RECORD or an OBJECT: in no view, on no branch, on a line of its kind."""
        return self.type not in BRANCHED

    @property
    def in_views(self) -> bool:
        """ABORTED and OPEN transactions are in no view."""
        return self.status == "COMMITTED" and not self.independent


class Facts:
    """What the log of one dataset says, before any policy is looked at."""

    def __init__(self, history: History, as_of: datetime) -> None:
        self.history = history
        # The same once what is over was dropped, when somebody asked for it.
        self.remaining: Facts | None = None
        self.log = _in_order(history)
        self.path: dict[str, list[Transaction]] = {}
        self.views: dict[str, list[list[Transaction]]] = {}
        # The view of a branch that has each transaction, counted from the latest view, which is 0.
        self.place: dict[tuple[str, Transaction], int] = {}
        for branch, head in history.branches.items():
            self.path[branch] = self._path_to(head)
            self.views[branch] = _views(self.path[branch])
            for index, view in enumerate(reversed(self.views[branch])):
                self.place |= {(branch, one): index for one in view}
        # A tag is live until it expires; at the very instant of its expiry it is not live any more.
        self.pinned: dict[str, list[Transaction]] = {}
        for tag, (head, expires_at) in history.tags.items():
            if expires_at is None or expires_at > as_of:
                views = _views(self._path_to(head))
                self.pinned[tag] = views[-1] if views else []

    def _path_to(self, head: str) -> list[Transaction]:
        path: list[Transaction] = []
        step: str | None = head
        while step is not None:
            path.insert(0, self.log[step])
            step = self.log[step].parent
        return path

    def holds(self, branch: str, one: Transaction) -> bool:
        if one.independent:
            return False
        if one.status == "COMMITTED":
            return one in self.path[branch]
        # "An ABORTED or OPEN transaction counts as being on every branch that holds its parent; without a parent, on
        # every branch." Not asked of `holds` again for a parent that is a record: a path through one is still a path.
        if one.parent is None:
            return True
        parent = self.log[one.parent]
        return parent in self.path[branch] if parent.independent else self.holds(branch, parent)

    @cached_property
    def has_live_branches(self) -> bool:
        """Whether any transaction is on a live branch; otherwise the log is one line."""
        return any(self.branches_of(one) for one in self.log.values())

    def branches_of(self, one: Transaction) -> list[str]:
        return [branch for branch in self.history.branches if self.holds(branch, one)]

    def view_of(self, branch: str, one: Transaction) -> int | None:
        return self.place.get((branch, one))

    def state_at(self, branch: str, one: Transaction) -> list[Transaction]:
        """What a reader of the branch would have needed then: its view from the start up to it."""
        view = next(view for view in self.views[branch] if one in view)
        return view[: view.index(one) + 1]

    def latest_views_of(self, one: Transaction) -> list[str]:
        return [branch for branch in self.history.branches if self.view_of(branch, one) == 0]

    def tags_of(self, one: Transaction) -> list[str]:
        return [tag for tag, view in self.pinned.items() if one in view]

    def newer(self, branch: str, one: Transaction) -> int:
        later = self.path[branch][self.path[branch].index(one) + 1 :]
        return len([after for after in later if after.in_views and after.type != "DELETE"])

    def left_latest_view_at(self, branch: str, one: Transaction) -> datetime | None:
        """When the SNAPSHOT closed that began the view after its view. Null: it is in no view, or in the latest."""
        index = self.view_of(branch, one)
        if index is None or index == 0:
            return None
        return self.views[branch][-index][0].closed_at

    def superseded_at(self, branches: Collection[str], one: Transaction) -> datetime | None:
        """When it left the latest view of the last of the branches that had it."""
        times: list[datetime] = []
        for branch in branches:
            if self.view_of(branch, one) is None:
                continue
            left = self.left_latest_view_at(branch, one)
            if left is None:
                return None
            times.append(left)
        return max(times, default=None)

    def open_after(self, branch: str) -> bool:
        """Whether an OPEN transaction follows the last committed one of the branch, in the order of the log."""
        committed = [one.ordinal for one in self.path[branch] if one.in_views]
        last = committed[-1] if committed else -1
        return any(one.status == "OPEN" and one.ordinal > last for one in self.log.values() if self.holds(branch, one))

    def replaced(self, branch: str, one: Transaction) -> bool:
        """Whether all of its files were replaced or deleted later on a branch that has it in a view."""
        if self.view_of(branch, one) != 0:
            return True  # a committed SNAPSHOT follows
        if one.files is None:
            return False
        view = self.views[branch][-1]
        later = view[view.index(one) + 1 :]
        return all(any(after.files is not None and file in after.files for after in later) for file in one.files)


def _in_order(history: History) -> dict[str, Transaction]:
    """The log by id, parents before children; the order of the lines is kept where it is that already."""
    waiting = list(history.transactions)
    log: dict[str, Transaction] = {}
    while waiting:
        ready = [row for row in waiting if row["parent"] is None or row["parent"] in log]
        if not ready:
            raise ValueError(f"{history.dataset} is not sound: {[row['transaction'] for row in waiting]} have no root")
        row = ready[0]
        waiting.remove(row)
        log[row["transaction"]] = Transaction(
            name=row["transaction"],
            ordinal=len(log),
            parent=row["parent"],
            type=row["type"],
            status=row["status"],
            opened_at=_instant(row["opened_at"]),
            # "closed_at is null while OPEN": what the row of an OPEN one says all the same is not believed.
            closed_at=None if row["status"] == "OPEN" else _instant(row["closed_at"]),
            archived_at=_instant(row["archived_at"]),
            bytes=row["bytes"],
            # A count of files names none of them, not even a count of 0.
            files=frozenset(row["files"]) if isinstance(row["files"], list) else None,
            attributes=row["attributes"],
        )
    return log


def _instant(text: Any) -> datetime | None:
    return None if text is None else parse_instant(text)


def _views(path: Sequence[Transaction]) -> list[list[Transaction]]:
    """The first COMMITTED transaction starts a view, each later SNAPSHOT starts a new one; oldest first."""
    views: list[list[Transaction]] = []
    for one in path:
        if not one.in_views:
            continue
        if not views or one.type == "SNAPSHOT":
            views.append([])
        views[-1].append(one)
    return views


def branch_views(history: History, scope_branches: Collection[str], as_of: datetime) -> dict[str, ViewRow]:
    """The table of section 4, its columns computed over some branches; `protected_by` always looks at all of them."""
    facts = Facts(history, as_of)
    rows: dict[str, ViewRow] = {}
    for one in facts.log.values():
        holding = [branch for branch in facts.branches_of(one) if branch in scope_branches]
        viewing = [branch for branch in holding if facts.view_of(branch, one) is not None]
        rows[one.name] = ViewRow(
            branches=len(holding),
            view=min((facts.view_of(branch, one) or 0 for branch in viewing), default=None),
            newer=min((facts.newer(branch, one) for branch in viewing), default=None),
            superseded_at=facts.superseded_at(viewing, one),
            # Several branches may hold it in views of one index: then the one that closed last, the protective answer.
            view_closed_at=max((view_closed_at(facts, branch, one) for branch in viewing), default=None),
            open_after=any(facts.view_of(branch, one) == 0 and facts.open_after(branch) for branch in viewing),
            protected_by=frozenset(facts.latest_views_of(one)) | frozenset(facts.tags_of(one)),
        )
    return rows


def view_closed_at(facts: Facts, branch: str, one: Transaction) -> datetime:
    """The close time of the newest transaction, by order and not by time, of the branch's view that holds it."""
    index = facts.view_of(branch, one)
    assert index is not None
    closed_at = facts.views[branch][-1 - index][-1].closed_at
    assert closed_at is not None, "a COMMITTED transaction without closed_at is refused"
    return closed_at

"""The naive oracle, section 5 of DESIGN.md, sentence by sentence: what a policy selects, and each transaction's verdict."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from retention_assets.policy import Beyond, Datasets, Hold, Keeper, OlderThan, Policy, RetainRule, Selection, Window, matches
from retention_assets_tests.histories import History
from retention_assets_tests.oracle.counting import by_time, instant_in, kept_on_branch, kept_on_line, meets, start_of
from retention_assets_tests.oracle.views import Facts, Transaction, view_closed_at

Witness = tuple[str, str]


@dataclass(frozen=True)
class Verdict:
    """What becomes of a transaction; for a spare, everything that spares it as (code, witness)."""

    verdict: str
    policy: str | None = None
    also: tuple[str, ...] = ()
    spared_by: frozenset[Witness] = frozenset()


# --- section 5: what a policy selects ---------------------------------------------------------------------------------


def _chosen(datasets: Datasets, history: History) -> bool:
    return (
        matches(history.dataset, datasets.include)
        and not matches(history.dataset, datasets.exclude)
        and all(
            _below(history.attributes.get(key, ""), value) if key == "realm" else history.attributes.get(key) == value
            for key, value in datasets.with_.items()
        )
    )


def _below(realm: str, parent: str) -> bool:
    """Names of realms are paths; `acme` has `acme/sales` and not `acme-eu`."""
    return realm.split("/")[: len(parent.split("/"))] == parent.split("/")


def _is_reserved(realm: str) -> bool:
    return realm.startswith("::") and not _below(realm, "::system::")


def _bound(older_than: OlderThan, as_of: datetime) -> datetime:
    bound = older_than.age.before(as_of)
    return bound if older_than.align is None else start_of(bound, older_than.align)


def _clock(older_than: OlderThan, facts: Facts, one: Transaction, branches: Collection[str]) -> datetime | None:
    if not isinstance(older_than.of, str):
        return instant_in(one, older_than.of.attribute)
    if older_than.of == "closed":
        return one.closed_at
    if older_than.of == "opened":
        return one.opened_at
    if older_than.of == "closed_or_opened":
        return one.opened_at if one.closed_at is None else one.closed_at
    if older_than.of == "archived":
        return one.archived_at
    return facts.superseded_at(branches, one)


def _agrees(lines: Selection | Window, facts: Facts, one: Transaction, branches: Collection[str], as_of: datetime) -> bool:
    viewing = [branch for branch in branches if facts.view_of(branch, one) is not None]
    if lines.older_than is not None:
        bound = _bound(lines.older_than, as_of)
        time = _clock(lines.older_than, facts, one, branches)
        if time is None or not time < bound:
            return False
        if lines.window == "complete":
            # The view that was current at the bound began before it, and the next one had not begun: it stays whole.
            # The latest view was never followed, so it stays too. What is in no view is judged by its age alone.
            for branch in viewing:
                left = facts.left_latest_view_at(branch, one)
                if left is None or left > bound:
                    return False
    if lines.beyond is not None:
        for branch in viewing:
            index = facts.view_of(branch, one)
            assert index is not None
            if lines.beyond.views is not None and index < lines.beyond.views:
                return False
            if one in kept_on_branch(facts, branch, lines.beyond):
                return False
    return True


def _own_number(text: str | None) -> int | None:
    if text is None or not text or any(sign not in "0123456789" for sign in text) or len(text) > 19:
        return None
    return int(text) if 0 < int(text) < 2**63 else None


def _own_windows(facts: Facts) -> dict[str | None, tuple[int, int]] | None:
    """Max age in ms and min snapshots, of the dataset (None) and of each branch; nothing if any number cannot be read."""
    attributes = facts.history.attributes
    numbers = ("max-snapshot-age-ms", "min-snapshots-to-keep")
    own = [_own_number(attributes.get(f"history.expire.{number}")) for number in numbers]
    if own[0] is None or own[1] is None:
        return None
    windows: dict[str | None, tuple[int, int]] = {None: (own[0], own[1])}
    for key, text in attributes.items():
        # Of a branch that is not there, too: what else the dataset says is then in doubt as well.
        if key.startswith("history.expire.branch.") and key.endswith(numbers) and _own_number(text) is None:
            return None
    for branch in facts.history.branches:
        said = [_own_number(attributes.get(f"history.expire.branch.{branch}.{number}")) for number in numbers]
        windows[branch] = (said[0] or own[0], said[1] or own[1])
    return windows


def _in_window(facts: Facts, one: Transaction, branches: Collection[str], as_of: datetime) -> bool:
    """Not known to have left the latest view of the last branch longer ago than its table's window."""
    text, left = facts.history.attributes.get("window.superseded-ms", ""), facts.superseded_at(branches, one)
    is_number = text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < 2**63
    return not is_number or left is None or (as_of - left) // timedelta(microseconds=1) <= int(text) * 1000


def _own_agrees(facts: Facts, one: Transaction, branches: Collection[str], as_of: datetime) -> bool:
    """Older than each branch's own age, and not among the newest snapshots that it keeps. On no branch: older than the dataset's."""
    if "window.superseded-ms" in facts.history.attributes:
        return not _in_window(facts, one, branches, as_of)
    windows = _own_windows(facts)
    if windows is None or one.closed_at is None:
        return False
    age = (as_of - one.closed_at) // timedelta(microseconds=1)
    places: Sequence[str | None] = list(branches) or [None]
    for branch in places:
        max_age, min_snapshots = windows[branch]
        if not age > max_age * 1000:
            return False
        if branch is not None and one.in_views:
            # Every snapshot on the path counts, whatever it did; what never was committed is none.
            later = facts.path[branch][facts.path[branch].index(one) + 1 :]
            if len([after for after in later if after.in_views]) < min_snapshots:
                return False
    return True


def remaining_refs(facts: Facts, as_of: datetime) -> Facts:
    """The same log once every branch and tag is dropped that is past its age. `main` never is."""
    if facts.remaining is not None:
        return facts.remaining
    history, said = facts.history, facts.history.attributes
    every = said.get("history.expire.max-ref-age-ms")

    def is_over(kind: str, name: str, head: str) -> bool:
        text = said.get(f"history.expire.{kind}.{name}.max-ref-age-ms", every)
        age, made = _own_number(text), facts.log[head].closed_at
        if (kind, name) == ("branch", "main") or age is None or made is None or facts.log[head].status == "OPEN":
            return False
        # To the millisecond: one that is exactly so old is not over.
        return as_of - made >= timedelta(milliseconds=age + 1) if age < 10**14 else False

    branches = {name: head for name, head in history.branches.items() if not is_over("branch", name, head)}
    tags = {name: end for name, end in history.tags.items() if not is_over("tag", name, end[0])}
    facts.remaining = Facts(replace(history, branches=branches, tags=tags, drawn=None), as_of)
    return facts.remaining


def _protection(policy: Policy, facts: Facts, one: Transaction, as_of: datetime) -> tuple[list[str], list[str]]:
    seen = remaining_refs(facts, as_of) if policy.select.expired_refs == "drop" else facts
    return seen.latest_views_of(seen.log[one.name]), seen.tags_of(seen.log[one.name])


def _is_copied(facts: Facts) -> bool:
    return facts.history.attributes.get("times") == "copied"


def _compares_times(policy: Policy) -> bool:
    """Somewhere in it stands a time of a commit; what a transaction carries in an attribute is none."""
    select = policy.select
    parts: list[Selection | Window] = [select, *policy.branches.windows]
    ages = [part.older_than for part in parts if part.older_than and isinstance(part.older_than.of, str)]
    counts = [part.beyond for part in parts if part.beyond and by_time(part.beyond)]
    return bool(ages or counts or select.in_views_older_than or select.from_table or by_time(select))


def _selects(policy: Policy, facts: Facts, one: Transaction, as_of: datetime) -> bool:
    select, scope = policy.select, policy.branches
    if not _chosen(policy.datasets, facts.history) or (_is_copied(facts) and _compares_times(policy)):
        return False
    if select.where is not None and not meets(select.where.text, one):
        return False
    if select.status is not None and one.status not in select.status:
        return False
    if select.types is not None and one.type not in select.types:
        return False
    # Nothing retained refers to it only where a scan said so in this very word.
    if select.unreferenced and (one.type != "OBJECT" or one.attributes.get("referenced") != "false"):
        return False
    if one.status == "OPEN" and not one.independent:
        return False
    if one.independent or not facts.has_live_branches:
        if not one.independent and scope.reach == "live":
            return False
        return not _asks_for_branches(policy) and _selects_on_line(select, facts, one, as_of)

    holding = facts.branches_of(one)
    looked_at = [name for name in holding if matches(name, scope.include) and not matches(name, scope.exclude)]
    if scope.only_in is not None and holding != [scope.only_in]:
        return False
    if scope.not_in is not None and scope.not_in in holding:
        return False
    if not holding and scope.reach == "live":
        return False
    # On live branches: looked at only if one of them is in scope.
    if holding and (scope.reach == "unreachable" or not looked_at):
        return False
    if select.expired_refs == "drop":
        # What is over is no branch any more; until it is dropped, though, it is one that something lies on.
        facts = remaining_refs(facts, as_of)
        one = facts.log[one.name]
        looked_at = [name for name in looked_at if name in facts.history.branches and name in facts.branches_of(one)]
    if not looked_at:
        if not _agrees(select, facts, one, [], as_of) or (select.from_table and not _own_agrees(facts, one, [], as_of)):
            return False
    else:
        if select.from_table and not _own_agrees(facts, one, looked_at, as_of):
            return False
        for branch in looked_at:
            lines: Selection | Window = next((own for own in scope.windows if matches(branch, (own.match,))), select)
            group = [
                other
                for other in looked_at
                if next((own for own in scope.windows if matches(other, (own.match,))), select) is lines
            ]
            if not _agrees(lines, facts, one, group, as_of):
                return False

    if select.in_views_older_than is not None:
        viewing = [branch for branch in looked_at if facts.view_of(branch, one) is not None]
        bound = select.in_views_older_than.before(as_of)
        if not viewing:
            return False
        for branch in viewing:
            if not view_closed_at(facts, branch, one) < bound:
                return False
            if facts.view_of(branch, one) == 0 and facts.open_after(branch):
                return False
    if select.superseded is None:
        return True
    # On no branch: superseded. ABORTED: it never had files that anybody could read, so nothing replaced them.
    return one.status == "COMMITTED" and all(facts.replaced(branch, one) for branch in looked_at)


def _asks_for_branches(policy: Policy) -> bool:
    select, scope = policy.select, policy.branches
    return bool(
        "*" not in scope.include
        or scope.exclude
        or scope.only_in is not None
        or scope.not_in is not None
        or scope.windows
        or (select.older_than is not None and select.older_than.of == "superseded")
        or (select.beyond is not None and select.beyond.views is not None)
        or select.in_views_older_than is not None
        or select.superseded
        or select.window == "complete"
    )


def _line_of(facts: Facts, one: Transaction) -> list[Transaction]:
    """What lies on the line of a transaction and is committed, oldest first. Nothing that is open is counted."""
    kind = one.type if one.independent else None
    line = [other for other in facts.log.values() if (other.type if other.independent else None) == kind]
    line = [other for other in line if other.status == "COMMITTED"]
    if kind == "OBJECT":
        # Their line is the class `unreferenced` and `realm_purge`; of some nobody said a class.
        line = [other for other in line if other.attributes.get("class") in (None, "unreferenced", "realm_purge")]
    if kind is None:
        return line
    return sorted(line, key=lambda other: (other.closed_at, other.name.encode()))


def _is_beyond(facts: Facts, one: Transaction, keeps: Beyond | int) -> bool:
    """Whether nothing keeps it on its line. An open record never is beyond; what was never committed always is."""
    if one.status == "OPEN":
        return False
    if one.status == "ABORTED":
        return True
    line = _line_of(facts, one)
    if one not in line:
        return False
    # A table counts every commit, whatever it did.
    return one not in kept_on_line(line, keeps) if isinstance(keeps, Beyond) else line.index(one) < len(line) - keeps


def _selects_on_line(select: Selection, facts: Facts, one: Transaction, as_of: datetime) -> bool:
    """A RECORD, an OBJECT, or what lies in a log without live branches: judged by `select` alone, counted along its line."""
    if select.beyond is not None and not _is_beyond(facts, one, select.beyond):
        return False
    if select.from_table:
        own = _own_windows(facts)
        if own is None or not _is_beyond(facts, one, own[None][1]):
            return False
    if one.status == "OPEN":
        # An unfinished one can go only by its opened_at, and only where a line says so.
        if select.terminal_only is True or select.older_than is None:
            return False
        # `terminal_only: false` puts opened_at in the place of a missing closed_at; it does not make up an
        # archived_at or a superseded_at, for otherwise an unfinished record could go where a finished one could not.
        by_opened = select.older_than.of in ("opened", "closed_or_opened")
        if not by_opened and not (select.older_than.of == "closed" and select.terminal_only is False):
            return False
        if one.opened_at is None or not one.opened_at < _bound(select.older_than, as_of):
            return False
    elif select.older_than is not None:
        time = _clock(select.older_than, facts, one, [])
        if time is None or not time < _bound(select.older_than, as_of):
            return False
    elif select.from_table and not _own_agrees(facts, one, [], as_of):
        return False
    if select.archived_before_purge is not None and one.type == "RECORD":
        return one.attributes.get("type") not in select.archived_before_purge or one.archived_at is not None
    return True


# --- section 5: verdicts ----------------------------------------------------------------------------------------------


def _kept_by(keepers: Sequence[Keeper], facts: Facts, one: Transaction, as_of: datetime) -> list[Witness]:
    """Holds and retain rules: nothing of theirs is marked, by any policy or purge."""
    reserved = [("HOLD", "reserved realm")] if _is_reserved(facts.history.attributes.get("realm", "")) else []
    return reserved + [
        ("HOLD" if isinstance(keeper, Hold) else "RETAIN_RULE", keeper.name or "")
        for keeper in keepers
        if (_held(keeper, facts, one, as_of) if isinstance(keeper, Hold) else retained(keeper, facts, one, as_of))
    ]


def _held(hold: Hold, facts: Facts, one: Transaction, as_of: datetime) -> bool:
    is_live = hold.until is None or as_of < hold.until
    names = [one.name, *(other.name for other in facts.log.values() if _base(facts, other) == one.name)]
    named = hold.transactions is None or any(matches(name, hold.transactions) for name in names)
    return is_live and named and _chosen(hold.datasets, facts.history)


def _base(facts: Facts, one: Transaction) -> str | None:
    """The transaction whose files one has that has none of its own."""
    if not _has_no_files(facts, one):
        return None
    while one.parent is not None and _has_no_files(facts, one):
        one = facts.log[one.parent]
    return None if _has_no_files(facts, one) else one.name


def retained(rule: RetainRule, facts: Facts, one: Transaction, as_of: datetime) -> bool:
    if not _chosen(rule.datasets, facts.history):
        return False
    # Nobody knows when something of a copy was committed, so whatever asks for that keeps all of it.
    known = not _is_copied(facts)
    if rule.where is not None and (known or not by_time(rule)) and not meets(rule.where.text, one):
        return False
    # What has no time of closing is young.
    if known and rule.younger_than and one.closed_at is not None and one.closed_at < rule.younger_than.before(as_of):
        return False
    if rule.newest is None or (by_time(rule.newest) and not known):
        return True
    if one.independent or not facts.has_live_branches:
        return one in kept_on_line(_line_of(facts, one), rule.newest)
    return any(one in kept_on_branch(facts, branch, rule.newest) for branch in facts.history.branches)


def _forbids(history: History) -> bool:
    """The dataset lets nobody delete its files; whatever is no clear yes is a no."""
    return history.attributes.get("gc.enabled", "true").strip().lower() != "true"


def _commits(history: History) -> bool:
    """The store can commit to its table; whatever is no clear yes is a no."""
    return history.attributes.get("commits.enabled", "true").strip().lower() == "true"


def _is_spared_by_window(facts: Facts, one: Transaction, as_of: datetime) -> bool:
    """Its table spares what is inside of its window; whatever is no clear no is a yes."""
    spares = facts.history.attributes.get("window.spares", "false").strip().lower() != "false"
    return spares and _in_window(facts, one, facts.branches_of(one), as_of)


def _has_no_files(facts: Facts, one: Transaction) -> bool:
    return one.type == "DELETE" and facts.history.attributes.get("versions.empty") == "kept"


def _is_closed(facts: Facts, one: Transaction, as_of: datetime) -> bool:
    denied = _forbids(facts.history) or not _commits(facts.history)
    return denied or _is_spared_by_window(facts, one, as_of) or _has_no_files(facts, one)


def _is_referenced(one: Transaction) -> bool:
    """A scan has found a reference to it, and says so in this very word."""
    return one.type == "OBJECT" and one.attributes.get("class") == "referenced"


def _over_limit(policy: Policy, facts: Facts, keepers: Sequence[Keeper], as_of: datetime, known: Collection[str]) -> bool:
    if policy.limits is None:
        return False
    count = size = 0
    for one in facts.log.values():
        if one.name in known or not _selects(policy, facts, one, as_of):
            continue
        latest, tags = _protection(policy, facts, one, as_of)
        if _kept_by(keepers, facts, one, as_of) or tags or _is_closed(facts, one, as_of) or _is_referenced(one):
            continue
        if latest and policy.latest_view != "allow":
            continue
        count += 1
        size += one.bytes or 0
    limits = policy.limits
    return (
        (limits.transactions is not None and count > limits.transactions)
        or (limits.bytes is not None and size > limits.bytes)
        # As written by the operator, 0.1 is a tenth: no rounding may push an exact tenth over it.
        or (limits.fraction is not None and count > 0 and Fraction(count, len(facts.log)) > Fraction(str(limits.fraction)))
    )


def verdicts(
    history: History, policies: Sequence[Policy], keepers: Sequence[Keeper], as_of: datetime, known: Collection[str] = ()
) -> dict[str, Verdict]:
    """The verdict of every transaction; the policies are in their order of credit. `known`: marked or swept before."""
    facts = Facts(history, as_of)
    over = [policy.name for policy in policies if _over_limit(policy, facts, keepers, as_of, known)]
    return {name: _verdict(facts, one, policies, over, keepers, as_of) for name, one in facts.log.items()}


def _verdict(
    facts: Facts, one: Transaction, policies: Sequence[Policy], over: Sequence[str], keepers: Sequence[Keeper], as_of: datetime
) -> Verdict:
    if one.status == "OPEN" and not one.independent:
        return Verdict("open")
    if _has_no_files(facts, one):
        return Verdict("keep")
    selecting = [policy for policy in policies if _selects(policy, facts, one, as_of)]
    if not selecting:
        return Verdict("keep")

    protection = {policy.name: _protection(policy, facts, one, as_of) for policy in selecting}
    kept_by = _kept_by(keepers, facts, one, as_of)
    allowed = [policy for policy in selecting if not protection[policy.name][0] or policy.latest_view == "allow"]
    within = [policy for policy in allowed if policy.name not in over]
    # A policy that purges a realm is the system's own, and comes before all others.
    purging = [policy for policy in within if policy.name.startswith("::realm/")]
    free = [policy for policy in within if not protection[policy.name][1]]
    credit = next(iter([*purging, *free, *within, *selecting]))
    also = tuple(policy.name for policy in selecting if policy is not credit)

    spared_by: set[Witness] = set(kept_by)
    if _forbids(facts.history):
        spared_by.add(("GC_DISABLED", "gc.enabled=false"))
    if not _commits(facts.history):
        spared_by.add(("FORMAT_V3", "format-version=3"))
    if _is_spared_by_window(facts, one, as_of):
        spared_by.add(("TABLE_WINDOW", "window.superseded-ms"))
    if not purging and _is_referenced(one):
        spared_by.add(("REFERRED_TO", one.attributes.get("witness", "the last scan")))
    if not purging and not free:
        # "A purge goes over tags": only a hold, and a table that forbids it, keeps anything of the realm.
        spared_by |= {("TAG", tag) for _, tags in protection.values() for tag in tags}
    if not allowed:
        spared_by |= {("LATEST_VIEW", branch) for branches, _ in protection.values() for branch in branches}
    if not within:
        spared_by |= {("LIMIT", policy.name) for policy in allowed}
    if spared_by:
        # Beside another reason a tag is one as well, though one of the policies does not see it.
        if not purging:
            spared_by |= {("TAG", tag) for _, tags in protection.values() for tag in tags}
        return Verdict("spare", credit.name, also, frozenset(spared_by))
    return Verdict("mark", credit.name, also)

"""Random policies, holds and retain rules, as the mappings that a YAML file would hold, and what a ledger may know of some histories.

Belongs here: one random construction over every key that decides (section 5 of DESIGN.md), in bulk and for Hypothesis; purges of
realms, which are policies of the system's own; what is marked or swept already.
Does not belong here: keys that decide nothing about a verdict (sweep). Conditions are the oracle's few.

Ages, names and globs are those of histories.py, so that cut-offs fall on times and scopes on branches.
"""

import random
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Given
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from retention_assets.policy import Duration, Hold, Keeper, Policy, RetainRule, purge_of, text_of
from retention_assets_tests.histories import AS_OF, BRANCH_NAMES, History
from retention_assets_tests.oracle.counting import CONDITIONS

Mapping = dict[str, Any]
# By dataset the transactions that are marked or swept already.
Known = Given[str, frozenset[str]]

_AGES = ("1d", "2d", "3d", "4d", "5d", "7d", "10d", "2w", "36h", "60h", "12h", "P2DT12H", "1mo", "P1M", "90s")
_DATASETS = (["*"], ["*"], ["*"], ["lake/*"], ["lake/raw.*", "ice/*"], ["*/[rg]*"], ["ice/m?d.*", "lake/d"])
_ATTRIBUTES = ({"tier": "bronze"}, {"realm": "acme"}, {"trashed": "true"}, {"tier": "gold", "realm": "globex"})
_BRANCHES = ("main", "*", "feature/*", "release-?", "dev", "[!m]*", "b7", "feature/b", "nowhere")
# The first branch of most histories, and any.
_NAMED = ("main", "main", "main", *BRANCH_NAMES)
_TYPE_LISTS = (["SNAPSHOT"], ["APPEND", "UPDATE"], ["DELETE"], ["RECORD", "SNAPSHOT"], ["OBJECT", "APPEND"], ["RECORD"])
_STATUS_LISTS = (["COMMITTED"], ["ABORTED"], ["COMMITTED", "ABORTED"], ["OPEN"], ["OPEN", "COMMITTED"])
_PERIODS = ("hourly", "daily", "weekly", "monthly", "yearly")
_ZONES = ("Europe/Berlin", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "UTC")
# Between the sizes of histories.py and sums of them.
_SPACES = ("1B", "11B", "20B", "110B", "201B", "1GiB", "4GiB", "9GiB", "1024PiB")
_CLOCKS = ("closed", "opened", "closed_or_opened", "superseded", "archived")
_LINES = (
    "older_than", "older_than", "older_than", "beyond", "beyond", "in_views_older_than", "in_views_older_than", "superseded",
    "superseded", "status", "types", "where",
)  # fmt: skip
_RECORD_LINES = (
    "terminal_only",
    "terminal_only",
    "older_than",
    "archived_before_purge",
    "status",
    "unreferenced",
    "unreferenced",
    "beyond",
    "beyond",
    "where",
)
# Sums of the sizes of histories.py, those whose lower halves carry among them: three times 3 GiB are 9 GiB.
_BYTES = (2**30, 2**32 - 1, 2**32, 6 * 2**30, 9 * 2**30, 9 * 2**30 - 1, 2**62)


def _chance(rng: random.Random, probability: float) -> bool:
    return rng.random() >= 1 - probability


def _some(rng: random.Random, names: Sequence[str], most: int) -> list[str]:
    return rng.sample(names, rng.randint(1, most))


def _older_than(rng: random.Random) -> str | Mapping:
    if not _chance(rng, 0.6):
        return rng.choice(_AGES)
    line: Mapping = {"age": rng.choice(_AGES)}
    if _chance(rng, 0.8):
        line["of"] = rng.choice((*_CLOCKS, "superseded", {"attribute": "expires_at"}, {"attribute": "expires_at"}))
        if isinstance(line["of"], dict) and _chance(rng, 0.5):
            line["age"] = "0s"
    if _chance(rng, 0.3):
        line["align"] = rng.choice(("day", "week", "month", "quarter", "year"))
    return line


def random_counts(rng: random.Random, keys: Sequence[str] = ("transactions", "bytes", *_PERIODS)) -> Mapping:
    """Counts of transactions, often of some of them, or for each of some groups."""
    chosen = rng.sample(keys, rng.choice((1, 1, 2, 3)))
    line: Mapping = {key: rng.choice(_SPACES) if key == "bytes" else rng.choice((1, 1, 2, 3, 5)) for key in chosen}
    if not set(chosen).isdisjoint(_PERIODS) and _chance(rng, 0.5):
        line["zone"] = rng.choice(_ZONES)
    if _chance(rng, 0.3):
        line["where"] = rng.choice(list(CONDITIONS))
    if _chance(rng, 0.3):
        line["per"] = rng.choice((["tag"], ["kind"], ["tag", "kind"]))
    return line


def _beyond(rng: random.Random, *, along_lines: bool = False) -> Mapping:
    if _chance(rng, 0.6):
        line = random_counts(rng)
        return line if along_lines or not line.keys().isdisjoint(("where", "per")) else {**line, "views": 1}
    line = {}
    counted = rng.choice(("views", "transactions", "both") if not along_lines else ("transactions",) * 4 + ("both",))
    if counted != "transactions":
        line["views"] = rng.choice((1, 1, 2, 3))
    if counted != "views":
        line["transactions"] = rng.choice((0, 1, 2, 3, 5))
    return line


def _by_views(line: str | Mapping) -> bool:
    """Whether `window` may stand beside it."""
    return isinstance(line, str) or not isinstance(line.get("of"), dict)


def _window_lines(rng: random.Random, match: str) -> Mapping:
    line: Mapping = {"match": match}
    kept = rng.choice(("older_than", "beyond", "both"))
    if kept != "beyond":
        line["older_than"] = _older_than(rng)
        if _by_views(line["older_than"]) and _chance(rng, 0.4):
            line["window"] = rng.choice(("complete", "complete", "strict"))
    if kept != "older_than":
        line["beyond"] = _beyond(rng)
    return line


def _branches(rng: random.Random) -> Mapping:
    scope: Mapping = {}
    reach = rng.choice((None, None, "live", "any", "any", "unreachable"))
    if reach is not None:
        scope["reach"] = reach
    if _chance(rng, 0.35):
        scope["include"] = _some(rng, _BRANCHES, 2)
    if _chance(rng, 0.2):
        scope["exclude"] = _some(rng, _BRANCHES[2:], 2)
    if reach != "unreachable" and _chance(rng, 0.15):
        scope["only_in"] = rng.choice(_NAMED)
    if _chance(rng, 0.15) and (name := rng.choice(_NAMED)) != scope.get("only_in"):
        scope["not_in"] = name
    if reach != "unreachable" and _chance(rng, 0.35):
        # Globs may overlap here: the first match counts.
        scope["windows"] = [_window_lines(rng, match) for match in _some(rng, _BRANCHES, 3)]
    return scope


def _select(rng: random.Random) -> str | Mapping:
    if not _chance(rng, 0.85):
        return "all"
    lines: Mapping = {}
    # Records are few, and so are the lines that speak of them: they meet more often when a policy is about one of the two.
    about_records = _chance(rng, 0.3)
    for line in rng.sample(_RECORD_LINES if about_records else _LINES, rng.choice((1, 1, 2, 2, 3, 4))):
        if line == "older_than":
            lines[line] = _older_than(rng)
        elif line == "beyond":
            lines[line] = _beyond(rng, along_lines=about_records)
        elif line == "in_views_older_than":
            lines[line] = rng.choice(_AGES)
        elif line in ("superseded", "unreferenced"):
            lines[line] = True
        elif line == "status":
            lines[line] = rng.choice(_STATUS_LISTS)
        elif line == "types":
            lines[line] = rng.choice(_TYPE_LISTS)
        elif line == "terminal_only":
            lines[line] = rng.choice((True, False, False))
        elif line == "where":
            lines[line] = rng.choice(list(CONDITIONS))
        else:
            lines[line] = rng.choice((["PAYMENT"], ["RECALL"], ["PAYMENT", "RECALL"]))
    if lines == {"terminal_only": False} or (about_records and _chance(rng, 0.5)):
        # The three clocks between which terminal_only decides.
        lines["older_than"] = {"age": rng.choice(_AGES), "of": rng.choice(("closed", "opened", "closed_or_opened"))}
    if "older_than" in lines and _by_views(lines["older_than"]) and _chance(rng, 0.3):
        lines["window"] = rng.choice(("complete", "complete", "strict"))
    return lines


def _take_from_table(rng: random.Random, policy: Mapping) -> None:
    """The windows of the dataset in the place of the policy's own; the other lines stay."""
    others = {} if policy["select"] == "all" else policy["select"]
    own = {key: line for key, line in others.items() if key not in ("older_than", "beyond", "window")}
    policy["select"] = {**own, "from_table": True}
    if _chance(rng, 0.6):
        policy["select"]["expired_refs"] = rng.choice(("drop", "drop", "keep"))
    policy.get("branches", {}).pop("windows", None)


def random_policy(rng: random.Random, name: str) -> Mapping:
    datasets: Mapping = {"include": rng.choice(_DATASETS)}
    if _chance(rng, 0.1):
        datasets["exclude"] = rng.choice((["*/gold.*"], ["*[05]"]))
    if _chance(rng, 0.1):
        datasets["with"] = rng.choice(_ATTRIBUTES)
    policy: Mapping = {"name": name, "datasets": datasets, "select": _select(rng)}
    if _chance(rng, 0.55) and (scope := _branches(rng)):
        policy["branches"] = scope
    if _chance(rng, 0.15):
        _take_from_table(rng, policy)
    if _chance(rng, 0.25):
        policy["latest_view"] = "allow"
    if _chance(rng, 0.25):
        policy["limits"] = random_limits(rng)
    return policy


def random_limits(rng: random.Random) -> Mapping:
    large = {"bytes": rng.choice(_BYTES)}
    return rng.choice(
        ({"transactions": 2}, {"transactions": 5}, {"bytes": 20}, {"bytes": 110}, {"fraction": 0.1}, {"fraction": 0.3},
         {"fraction": 0.5}, {"fraction": 0.2}, {"fraction": 1}, {"transactions": 4, "bytes": 200, "fraction": 0.7}, large, large)
    )  # fmt: skip


def random_policies(rng: random.Random, n: int, *, prefix: str = "p") -> list[Mapping]:
    return [random_policy(rng, f"{prefix}{index}") for index in range(n)]


def random_holds(rng: random.Random, n: int, *, as_of: datetime = AS_OF, prefix: str = "h") -> list[Mapping]:
    """`n` holds of different names: live ones, ended ones, and ones that end at the very instant."""
    found: list[Mapping] = []
    for index in range(n):
        include = rng.choice(_DATASETS)
        hold: Mapping = {"name": f"{prefix}{index}", "datasets": rng.choice((include, include[0], {"include": include}))}
        if isinstance(hold["datasets"], dict) and _chance(rng, 0.5):
            hold["datasets"]["with"] = rng.choice(_ATTRIBUTES)
        if _chance(rng, 0.8):
            hold["transactions"] = rng.choice((["T1"], ["T?"], ["T1*"], ["T[2-4]", "T7"], ["nothing"]))
        if _chance(rng, 0.6):
            ends = as_of + rng.choice((timedelta(days=1), timedelta(microseconds=1), timedelta(0), -timedelta(days=1)))
            hold["until"] = text_of(ends)
        found.append(hold)
    return found


def random_retain_rules(rng: random.Random, n: int) -> list[Mapping]:
    """Rules that keep by condition, by age and by count, each alone or with the others."""
    found: list[Mapping] = []
    for index in range(n):
        rule: Mapping = {"name": f"r{index}", "reason": "drawn", "datasets": rng.choice(_DATASETS)}
        for line in rng.sample(("where", "younger_than", "newest", "newest"), rng.choice((1, 1, 2, 3))):
            if line == "newest":
                rule[line] = random_counts(rng, ("transactions", *_PERIODS))
            else:
                rule[line] = rng.choice(list(CONDITIONS) if line == "where" else _AGES)
        found.append(rule)
    return found


def keepers_of(shapes: Iterable[Mapping]) -> list[Keeper]:
    """Holds and retain rules of their mappings; a retain rule always has a reason, a hold of these tests never."""
    return [(RetainRule if "reason" in shape else Hold).model_validate(shape) for shape in shapes]


def with_purges(rng: random.Random, rules: Sequence[Policy]) -> list[Policy]:
    """The policies of a book, and now and then the purge of a realm or two, wherever among them."""
    found = list(rules)
    for realm in ("acme", "globex", "acme/sales"):
        if _chance(rng, 0.15):
            found.insert(rng.randint(0, len(found)), purge_of(realm, Duration(days=7), Duration()))
    return found


def random_known(rng: random.Random, drawn: Iterable[History]) -> Known:
    """What is marked or swept of some datasets: some of them whole, of others nothing, and what the log does not have any more."""
    found: dict[str, frozenset[str]] = {"lake/gone": frozenset({"T1", "T2", "T3"})}
    for one in drawn:
        names = [row["transaction"] for row in one.transactions]
        share = rng.choice((0.0, 0.0, 0.3, 0.7, 1.0))
        known = {name for name in names if _chance(rng, share)} | set(rng.choice(((), (), ("T99",))))
        if known:
            found[one.dataset] = frozenset(known)
    return found


def known_table(known: Known) -> pa.Table:
    """The same as the table that the ledger hands over, in no order of datasets."""
    pairs = sorted(((dataset, name) for dataset, names in known.items() for name in names), key=lambda pair: pair[::-1])
    columns = [pa.array([dataset for dataset, _ in pairs], pa.string()), pa.array([name for _, name in pairs], pa.string())]
    return pa.table(columns, names=["dataset", "transaction"])


def policies(most: int = 4) -> st.SearchStrategy[list[Mapping]]:
    return st.randoms(use_true_random=False).map(lambda rng: random_policies(rng, rng.randint(0, most)))


def holds(most: int = 2) -> st.SearchStrategy[list[Mapping]]:
    return st.randoms(use_true_random=False).map(lambda rng: random_holds(rng, rng.randint(0, most)))


def retain_rules(most: int = 2) -> st.SearchStrategy[list[Mapping]]:
    return st.randoms(use_true_random=False).map(lambda rng: random_retain_rules(rng, rng.randint(0, most)))

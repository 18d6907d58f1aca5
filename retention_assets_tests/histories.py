"""Histories for tests: drawings read into log rows, log rows drawn, and random histories of every shape.

Belongs here: the notation below, the exchange-format lines of a history, one random construction for bulk and Hypothesis.
Does not belong here: what a policy says about a history (oracle/), policies (policies.py).

The notation. Parts stand between `|` or line ends; steps of a path between ` - `; ages count back from `as_of`:

    abc: T1:APPEND@40d - T2:APPEND@38d - T3:SNAPSHOT@36d  |  xyz: T2 - T5:APPEND@34d  |  -: T1 - X9:APPEND@33d

    abc: …                a path and the branch at its end. A bare id is a step drawn before; the path goes on from there
    a,b: …                two branches on one head
    -: …                  a path without a branch: a deleted branch, a record
    T6:SNAPSHOT!@3d       ! is ABORTED, ? is OPEN, otherwise COMMITTED
    @3d  @5d..3d          closed (an OPEN one: opened) 3 days ago; opened 5 and closed 3 days ago; an empty side is null.
                          An OPEN one with a time of closing is sound, and counts as not closed
    @+1d  @2026-01-31T12:00:00Z    in a day; at an instant
    ~1d  =10  [a,b]  [#3]  {type=PAYMENT,derived=true}    archived, bytes, file names, file count, attributes; in this order
    #v1=T2  #v1=T2@+3d    a tag that never expires; one that expires in 3 days
    > T1 T2 T5 T3         the order of the log, where it is not the order of the drawing
"""

import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st

from retention_assets.exchange import read_log
from retention_assets.frames import Log
from retention_assets.policy import parse_duration, parse_instant, text_of

Row = dict[str, Any]

# Noon, so that `align: day` moves a bound; the end of March, so that months back are clamped.
AS_OF = datetime(2026, 3, 31, 12, tzinfo=UTC)
BRANCH_NAMES = ("main", "dev", "feature/a", "feature/b", "release-1", "release-2", "b7")
TAG_NAMES = ("v1", "v2", "main", "nightly")

_TYPES = ("SNAPSHOT", "APPEND", "UPDATE", "DELETE", "RECORD", "OBJECT")
_STATUS = {"": "COMMITTED", "!": "ABORTED", "?": "OPEN"}
_STEP = re.compile(
    r"""(?P<id>[^\s:@|#>{}\[\]=~!?,]+)
        (?: :(?P<type>[A-Z]+)(?P<status>[!?]?)
            @(?P<times>[^\s=\[{~]+)
            (?:~(?P<archived>[^\s=\[{]+))?
            (?:=(?P<bytes>\d+))?
            (?:\[(?P<files>[^\]\s]*)\])?
            (?:\{(?P<attributes>[^}]*)\})?
        )?""",
    re.VERBOSE,
)
_PATH = re.compile(r"(?P<names>[^\s:]+):\s+(?P<steps>\S.*)")
_TAG = re.compile(r"#(?P<name>[^\s=@]+)=(?P<head>[^\s=@]+)(?:@(?P<expires>\S+))?")


@dataclass(frozen=True, repr=False)
class History:
    """The log of one dataset, and the drawing to look at when a test fails."""

    dataset: str
    transactions: list[Row]
    branches: dict[str, str]
    tags: dict[str, tuple[str, datetime | None]]
    attributes: dict[str, str]
    as_of: datetime
    drawn: str | None = field(default=None, compare=False)

    @property
    def drawing(self) -> str:
        """As its author drew it; of a random history, as `draw` draws it."""
        return draw(self) if self.drawn is None else self.drawn

    def __repr__(self) -> str:
        head = f"History of {self.dataset} as of {text_of(self.as_of)} {self.attributes or ''}".rstrip()
        return f"<{head}\n{self.drawing}\n>"


# --- drawings to histories --------------------------------------------------------------------------------------------


def history(
    drawing: str, *, as_of: datetime = AS_OF, dataset: str = "lake/d", attributes: dict[str, str] | None = None
) -> History:
    """Read a drawing. A drawing that says two things, or nothing, is a ValueError that quotes the part."""
    rows: dict[str, Row] = {}
    branches: dict[str, str] = {}
    tags: dict[str, tuple[str, datetime | None]] = {}
    order: list[str] | None = None
    for part in (text.strip() for text in re.split(r"[|\n]", drawing)):
        if not part:
            continue
        if part.startswith(">"):
            if order is not None:
                raise ValueError(f"the order of the log is drawn twice: {part!r}")
            order = part[1:].split()
        elif part.startswith("#"):
            _read_tag(part, tags, as_of)
        else:
            _read_path(part, rows, branches, dataset, as_of)
    for name, (head, _) in tags.items():
        if head not in rows:
            raise ValueError(f"tag {name} is on {head}, which is not drawn")
    if order is not None:
        if sorted(order) != sorted(rows):
            raise ValueError(f"the order of the log is not of the drawn transactions: {order}")
        rows = {name: rows[name] for name in order}
    return History(dataset, list(rows.values()), branches, tags, dict(attributes or {}), as_of, drawing)


def _read_path(part: str, rows: dict[str, Row], branches: dict[str, str], dataset: str, as_of: datetime) -> None:
    path = _PATH.fullmatch(part)
    if path is None:
        raise ValueError(f"neither a path, a tag nor an order: {part!r}")
    last: str | None = None
    for position, text in enumerate(re.split(r"\s+-\s+", path["steps"])):
        step = _STEP.fullmatch(text)
        if step is None:
            raise ValueError(f"not a step: {text!r} in {part!r}")
        name = step["id"]
        if step["type"] is not None:
            if name in rows:
                raise ValueError(f"{name} is drawn twice: {part!r}")
            rows[name] = _read_step(step, last, dataset, as_of)
        elif name not in rows:
            raise ValueError(f"{name} has no type and no time: {part!r}")
        elif position > 0 and rows[name]["parent"] != last:
            raise ValueError(f"{name} follows {rows[name]['parent']}, not {last}: {part!r}")
        last = name
    assert last is not None
    for branch in () if path["names"] == "-" else path["names"].split(","):
        if not branch or branch == "-" or branch in branches:
            raise ValueError(f"branch {branch!r} is drawn twice or has no name: {part!r}")
        branches[branch] = last


def _read_step(step: re.Match[str], parent: str | None, dataset: str, as_of: datetime) -> Row:
    if step["type"] not in _TYPES:
        raise ValueError(f"not a type: {step['type']!r} in {step[0]!r}")
    status = _STATUS[step["status"]]
    before, dots, after = step["times"].partition("..")
    opened = _read_time(before, as_of) if before else None
    closed = (_read_time(after, as_of) if after else None) if dots else (None if status == "OPEN" else opened)
    if status == "COMMITTED" and closed is None:
        raise ValueError(f"a COMMITTED step has a time of closing: {step[0]!r}")
    if opened is not None and closed is not None and closed < opened:
        raise ValueError(f"closed before opened: {step[0]!r}")
    files: list[str] | int | None = None
    if step["files"] is not None:
        names = step["files"]
        files = int(names[1:]) if re.fullmatch(r"#\d+", names) else names.split(",") if names else []
    attributes: dict[str, str] = {}
    for pair in (step["attributes"] or "").split(","):
        key, equals, value = pair.partition("=")
        if pair and not (key and equals):
            raise ValueError(f"not an attribute: {pair!r} in {step[0]!r}")
        if pair:
            attributes[key] = value
    return {
        "dataset": dataset,
        "transaction": step["id"],
        "parent": parent,
        "type": step["type"],
        "status": status,
        "opened_at": None if opened is None else text_of(opened),
        "closed_at": None if closed is None else text_of(closed),
        "archived_at": text_of(_read_time(step["archived"], as_of)) if step["archived"] else None,
        "bytes": int(step["bytes"]) if step["bytes"] else None,
        "files": files,
        "attributes": attributes,
    }


def _read_tag(part: str, tags: dict[str, tuple[str, datetime | None]], as_of: datetime) -> None:
    tag = _TAG.fullmatch(part)
    if tag is None or tag["name"] in tags:
        raise ValueError(f"not a tag, or a tag drawn twice: {part!r}")
    tags[tag["name"]] = (tag["head"], _read_time(tag["expires"], as_of) if tag["expires"] else None)


def _read_time(text: str, as_of: datetime) -> datetime:
    try:
        if text.startswith("+"):
            return parse_duration(text[1:]).after(as_of)
        return parse_instant(text) if "-" in text else parse_duration(text).before(as_of)
    except ValueError as fault:
        raise ValueError(f"{text!r} {fault}") from None


# --- histories to drawings and lines ----------------------------------------------------------------------------------


def draw(drawn: History) -> str:
    """The drawing of a history: `history` reads it back to an equal one."""
    rows = {row["transaction"]: row for row in drawn.transactions}
    done: list[str] = []
    parts: list[str] = []

    def path_to(end: str) -> str:
        """From the root, or from the last step that is drawn already."""
        path = [end]
        while path[0] not in done and rows[path[0]]["parent"] is not None:
            path.insert(0, rows[path[0]]["parent"])
        steps = [name if name in done else _draw_step(rows[name], drawn.as_of) for name in path]
        done.extend(name for name in path if name not in done)
        return " - ".join(steps)

    for branch, head in drawn.branches.items():
        parts.append(f"{branch}: {path_to(head)}")
    # Backwards, so that a path without a branch is drawn from its end and not in pieces.
    for name in reversed(list(rows)):
        if name not in done:
            parts.append(f"-: {path_to(name)}")
    for tag, (head, expires) in drawn.tags.items():
        parts.append(f"#{tag}={head}" + ("" if expires is None else f"@{_draw_time(expires, drawn.as_of)}"))
    if done != list(rows):
        parts.append("> " + " ".join(rows))
    return "\n".join(parts)


def _draw_step(row: Row, as_of: datetime) -> str:
    status = next(sign for sign, status in _STATUS.items() if status == row["status"])
    opened, closed, archived = (
        "" if row[column] is None else _draw_time(parse_instant(row[column]), as_of)
        for column in ("opened_at", "closed_at", "archived_at")
    )
    short = not closed if row["status"] == "OPEN" else opened == closed
    times = opened if opened and short else f"{opened}..{closed}"
    text = f"{row['transaction']}:{row['type']}{status}@{times}"
    if archived:
        text += f"~{archived}"
    if row["bytes"] is not None:
        text += f"={row['bytes']}"
    if row["files"] is not None:
        text += f"[#{row['files']}]" if isinstance(row["files"], int) else f"[{','.join(row['files'])}]"
    if row["attributes"]:
        text += "{" + ",".join(f"{key}={value}" for key, value in row["attributes"].items()) + "}"
    return text


def _draw_time(instant: datetime, as_of: datetime) -> str:
    sign, distance = ("+", instant - as_of) if instant > as_of else ("", as_of - instant)
    for unit, size in (("d", timedelta(days=1)), ("h", timedelta(hours=1))):
        if not distance % size:
            return f"{sign}{distance // size}{unit}"
    return text_of(instant)


def to_lines(drawn: Iterable[History]) -> list[str]:
    """The exchange format of DESIGN.md section 3, dataset after dataset."""
    lines: list[Row] = []
    for one in drawn:
        lines += one.transactions
        lines += [{"dataset": one.dataset, "branch": name, "head": head} for name, head in one.branches.items()]
        lines += [
            {"dataset": one.dataset, "tag": name, "head": head, "expires_at": None if expires is None else text_of(expires)}
            for name, (head, expires) in one.tags.items()
        ]
        if one.attributes:
            # The realm is one of the dataset's attributes, and has a key of its own on the line.
            others = {key: value for key, value in one.attributes.items() if key != "realm"}
            lines.append({"dataset": one.dataset, "realm": one.attributes.get("realm"), "attributes": others})
    return [json.dumps(line, separators=(",", ":")) for line in lines]


def log_of(drawn: Iterable[History], shuffle: random.Random | None = None) -> Log:
    """Histories as a log, by the way that users take: exchange lines, read and found sound."""
    lines = to_lines(drawn)
    if shuffle:
        shuffle.shuffle(lines)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "log.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines) or "\n")
        log = read_log(file)
    assert log.datasets["fault"].null_count == len(log.datasets), "the histories of these tests are sound"
    return log


def from_lines(lines: Iterable[str], *, as_of: datetime) -> list[History]:
    found: dict[str, History] = {}
    for line in map(json.loads, lines):
        dataset = line.pop("dataset")
        one = found.setdefault(dataset, History(dataset, [], {}, {}, {}, as_of))
        if "transaction" in line:
            before = one.transactions[-1]["transaction"] if one.transactions else None
            absent: Row = {"archived_at": None, "bytes": None, "files": None, "attributes": {}}
            one.transactions.append({"dataset": dataset, "parent": before, **absent, **line})
        elif "branch" in line:
            one.branches[line["branch"]] = line["head"]
        elif "tag" in line:
            expires = line.get("expires_at")
            one.tags[line["tag"]] = (line["head"], None if expires is None else parse_instant(expires))
        else:
            one.attributes.update(line.get("attributes") or {})
            if line.get("realm") is not None:
                one.attributes["realm"] = line["realm"]
    return list(found.values())


# --- random histories -------------------------------------------------------------------------------------------------
# Every draw is such that the smallest one (0, the first of a list) is the plainest: Hypothesis shrinks towards it.

# `bare`: of any type that lies on branches, in a log without a branch.
_KINDS = ("branched",) * 15 + ("mixed", "mixed", "records", "records", "objects", "objects", "bare", "bare")
_MIXES = (
    ("APPEND",),
    ("SNAPSHOT", "APPEND"),
    ("SNAPSHOT",),
    ("APPEND", "APPEND", "APPEND", "SNAPSHOT", "UPDATE", "DELETE"),
    ("SNAPSHOT", "APPEND", "UPDATE", "DELETE", "DELETE"),
)
# Few bytes, of which limits of policies.py are the sums; and sizes below, at and above 4 GiB, whose sums carry into the upper half
# of 64 bits, and now and then out of it.
SMALL = (1, 10, 10, 100, 0, None)
SIZES: tuple[Sequence[int | None], ...] = (
    SMALL,
    SMALL,
    (2**30, 3 * 2**30, 2**31, 2**32 - 1, 2**32, 1, None),
    (3 * 2**30, 2**32 - 1, 10**18 - 1, 10**18 - 1),
)
# What a scan may have said of an OBJECT. Only the first, to the letter, says that nothing refers to it.
_REFERENCED = ("false", "false", "true", None, "unknown", "", "False", "0")
_CLASSES = {
    "true": {"class": "referenced"}, "unknown": {"class": "young"}, "0": {"class": "referenced", "witness": "refs/1"},
    "false": {"class": "unreferenced"}, "": {"class": ""},
}  # fmt: skip
_NUDGES = (
    *(timedelta(0),) * 10, timedelta(hours=12), timedelta(hours=12), timedelta(microseconds=1), -timedelta(microseconds=1)
)  # fmt: skip


def _chance(rng: random.Random, probability: float) -> bool:
    return rng.random() >= 1 - probability


def _ago(rng: random.Random, as_of: datetime, days: int) -> datetime:
    """A whole number of days ago, and now and then noon past it or a microsecond off: the two sides of a cut-off."""
    return as_of - timedelta(days=days) + rng.choice(_NUDGES)


def random_history(
    rng: random.Random,
    dataset: str = "lake/d",
    *,
    as_of: datetime = AS_OF,
    largest: int = 30,
    days: int = 12,
    kinds: Sequence[str] = _KINDS,
    sizes: Sequence[Sequence[int | None]] = SIZES,
    odd: bool = False,
) -> History:
    """One sound history. `odd` also lets transactions and heads follow records, which DESIGN.md says nothing about."""
    bound = min(rng.choice((6, 10, 14, 30)), largest)
    size = max(rng.randint(0, bound), rng.randint(0, bound))
    kind = rng.choice(kinds)
    # One temper per history: all shapes and all sorts in every history would make each of them the same grey.
    mix = rng.choice(_MIXES)
    fork, root = rng.choice(((0.0, 0.0), (0.15, 0.03), (0.3, 0.0), (0.5, 0.1))) if kind != "records" else (0.0, 1.0)
    aborted, opened = rng.choice(((0.0, 0.0), (0.1, 0.0), (0.08, 0.08), (0.25, 0.2)))
    clock = rng.choice(("forward", "forward", "any", "equal"))
    listing = rng.choice(("unknown", "names", "names", "count", "either"))
    temper = rng.choice(sizes)
    # Often few days, so that many times are equal and a cut-off hits; now and then past a month, for calendar ages.
    span = rng.choice((days, days, 3, 33))
    latest = [rng.randint(0, span) for _ in range(size)]
    if clock == "forward":
        latest.sort(reverse=True)
    if clock == "equal":
        latest = latest[:1] * size

    rows: list[Row] = []
    tips: list[str] = []
    for position in range(size):
        kinds_here = {"records": ("RECORD",), "objects": ("OBJECT",), "mixed": (*mix, *mix, "RECORD", "OBJECT")}
        type_ = rng.choice(kinds_here.get(kind, mix))
        independent = type_ in ("RECORD", "OBJECT")
        parent: str | None = None
        followed = [row["transaction"] for row in rows if odd or row["type"] not in ("RECORD", "OBJECT")]
        if followed and (odd or not independent) and not _chance(rng, root):
            parent = rng.choice(followed) if _chance(rng, fork) or not tips else rng.choice(tips)
        name = f"T{position + 1}"
        if odd or not independent:
            if parent in tips:
                tips.remove(parent)
            tips.append(name)
        rows.append(_random_row(rng, dataset, name, parent, type_, latest[position], aborted, opened, listing, temper, as_of))

    names = [row["transaction"] for row in rows if odd or row["type"] not in ("RECORD", "OBJECT")]
    heads = _random_heads(rng, names, tips) if kind != "bare" else {}
    tags: dict[str, tuple[str, datetime | None]] = {}
    for tag in TAG_NAMES:
        if names and _chance(rng, 0.12):
            expires = rng.choice((None, None, as_of, as_of + timedelta(microseconds=1), as_of - timedelta(days=1)))
            tags[tag] = (rng.choice(names), expires)
    attributes = {
        key: value
        for key, values in (("tier", ("bronze", "gold")), ("realm", ("acme", "globex")), ("trashed", ("true", "true")))
        if (value := rng.choice((*(None,) * 4, *values))) is not None
    }
    if _chance(rng, 0.6):
        attributes |= _own_retention(rng, heads)
    if _chance(rng, 0.04):
        attributes["gc.enabled"] = rng.choice(("false", "true", " TRUE ", "flase", ""))
    if _chance(rng, 0.04):
        attributes["commits.enabled"] = rng.choice(("false", "true", " TRUE ", ""))
    _say_realms(rows, attributes)
    _say_versions(rows, attributes)
    _say_labels(rows, as_of)
    return History(dataset, rows, heads, tags, attributes, as_of)


_REALMS = ("acme", "acme", "acme/sales", "acme/sales/eu", "acme-eu", "globex", "::internal", "::system::")


def _say_realms(rows: list[Row], attributes: dict[str, str]) -> None:
    """Catalogs below a dataset's realm, and now and then transactions that all name it. No draw is added to those of the
    history's own generator, so that everything else of it is what it was.
    """
    rng = random.Random(repr((rows, attributes)))
    if attributes.get("realm") == "acme":
        attributes["realm"] = rng.choice(_REALMS)
    for row in rows if "realm" in attributes and _chance(rng, 0.3) else ():
        row["attributes"]["realm"] = attributes["realm"]


def _say_versions(rows: list[Row], attributes: dict[str, str]) -> None:
    """The window of a table of versions in the place of Iceberg's; times of a copy; versions without files. No draw is added."""
    rng = random.Random(f"versions {rows!r} {attributes!r}")
    if _chance(rng, 0.15):
        for key in [key for key in attributes if key.startswith("history.expire.")]:
            del attributes[key]
        days = rng.choice((0, 1, 1, 2, 3, 5, 7))
        attributes["window.superseded-ms"] = rng.choice((*[str(days * 24 * 60 * 60 * 1000)] * 6, "1", str(2**63 - 1), "5d", ""))
    if "window.superseded-ms" in attributes or _chance(rng, 0.01):
        attributes |= rng.choice(({}, {"window.spares": rng.choice(("true", "true", "true", "false", " False", "ture"))}))
    attributes |= {"times": rng.choice(("copied", "copied", "known"))} if _chance(rng, 0.06) else {}
    attributes |= {"versions.empty": rng.choice(("kept", "kept", "counted"))} if _chance(rng, 0.06) else {}


_LABELS: dict[str, Sequence[str | None]] = {"tag": ("prod-1", "prod-2", "dev-1", "", None), "kind": ("full", "delta", None)}
# Instants that carry no zone, and what is none.
_UNREADABLE = ("2026-03-01", "2026-03-01T00:00:00", "2026-02-30T00:00:00Z", "soon", "")
# Where a period ends: midnights, an ISO year before the year, both changes of the clocks in Berlin and one in New York.
_TURNS = [
    parse_instant(text) for text in (
        "2026-03-31T00:00:00Z", "2026-03-30T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-28T23:00:00Z", "2026-03-08T07:00:00Z",
        "2026-03-01T00:00:00Z", "2026-02-28T23:00:00Z", "2026-01-01T00:00:00Z", "2025-12-31T23:00:00Z", "2025-12-29T00:00:00Z",
        "2025-10-26T01:00:00Z", "2025-10-26T00:30:00Z", "2025-01-01T00:00:00Z", "2024-12-30T00:00:00Z",
    )
]  # fmt: skip
_ABOUT = (0, 0, 1, 5, 20, 30, 40, 60, 90, 24 * 60)


def _say_labels(rows: list[Row], as_of: datetime) -> None:
    """What groups transactions and when they want to end; and in some histories all closings lie about where periods end.

    As with realms, no draw is added to those of the history's own generator.
    """
    rng = random.Random(f"labels {rows!r}")
    keys = [key for key in (*_LABELS, "expires_at") if _chance(rng, 0.4)]
    turns = rng.sample(_TURNS, 3) if _chance(rng, 0.3) else []
    for row in rows:
        for key in keys:
            value = rng.choice(_LABELS[key]) if key in _LABELS else _expiry(rng, as_of)
            if value is not None:
                row["attributes"][key] = value
        if turns and row["status"] != "OPEN" and row["closed_at"] is not None:
            minutes = rng.choice(_ABOUT) * rng.choice((1, -1))
            closed = min(as_of, rng.choice(turns) + timedelta(minutes=minutes, microseconds=rng.choice((0, 0, 1, -1))))
            moved = closed - parse_instant(row["closed_at"])
            for column in ("opened_at", "closed_at", "archived_at"):
                row[column] = row[column] and text_of(parse_instant(row[column]) + moved)


def _expiry(rng: random.Random, as_of: datetime) -> str | None:
    """An instant in UTC or in another zone, about now or long ago; or none that can be read."""
    text = text_of(_ago(rng, as_of, rng.choice((-1, 0, 0, 1, 3, 7, 40))))
    return rng.choice((text, text, text, text.replace("Z", "+02:00"), rng.choice(_UNREADABLE), None))


def _random_row(
    rng: random.Random,
    dataset: str,
    name: str,
    parent: str | None,
    type_: str,
    days_ago: int,
    aborted: float,
    opened: float,
    listing: str,
    sizes: Sequence[int | None],
    as_of: datetime,
) -> Row:
    status = "ABORTED" if _chance(rng, aborted) else "OPEN" if _chance(rng, opened) else "COMMITTED"
    end = _ago(rng, as_of, days_ago)
    start: datetime | None = end - timedelta(days=rng.choice((0, 0, 0, 1, 3)))
    closed: datetime | None = None if status == "OPEN" else end
    if status != "COMMITTED" and _chance(rng, 0.12):
        # Sound by the list of faults, and what a store that lost a time would say.
        start, closed = rng.choice(((None, closed), (start, None), (None, None)))
    if status == "OPEN" and _chance(rng, 0.2):
        # Sound as well: it is not closed, whatever its row says.
        closed = end
    files: list[str] | int | None = None
    if listing in ("names", "either"):
        files = sorted(rng.sample("abcde", rng.choice((1, 1, 2, 3, 0))))
    if listing == "count" or (listing == "either" and _chance(rng, 0.3)):
        files = rng.choice((None, 0, 3))
    attributes: dict[str, str] = {}
    archived: datetime | None = None
    if type_ in ("RECORD", "OBJECT") or _chance(rng, 0.05):
        if (journey := rng.choice(("PAYMENT", "RECALL", None))) is not None:
            attributes["type"] = journey
        # Now and then of a RECORD, too, where it says nothing.
        if (type_ == "OBJECT" or _chance(rng, 0.2)) and (said := rng.choice(_REFERENCED)) is not None:
            attributes["referenced"] = said
            # Which class a scan has found, and now and then the wrong one for the word.
            attributes |= _CLASSES.get(said, {})
        if _chance(rng, 0.5):
            archived = _ago(rng, as_of, rng.randint(0, days_ago))
    return {
        "dataset": dataset,
        "transaction": name,
        "parent": parent,
        "type": type_,
        "status": status,
        "opened_at": None if start is None else text_of(start),
        "closed_at": None if closed is None else text_of(closed),
        "archived_at": None if archived is None else text_of(archived),
        "bytes": rng.choice(sizes),
        "files": files,
        "attributes": attributes,
    }


def _own_retention(rng: random.Random, heads: Iterable[str]) -> dict[str, str]:
    """What a table says about its own history and that of some branches, now and then in a way that cannot be read."""
    ages = [str(days * 24 * 60 * 60 * 1000) for days in (1, 2, 3, 5, 7)] + ["1", "43200000", str(2**63 - 1)]
    said: dict[str, str] = {}
    for prefix in ("history.expire.", *(f"history.expire.branch.{name}." for name in heads if _chance(rng, 0.3))):
        if prefix == "history.expire." or _chance(rng, 0.7):
            said[f"{prefix}max-snapshot-age-ms"] = rng.choice(ages)
        if prefix == "history.expire." or _chance(rng, 0.7):
            said[f"{prefix}min-snapshots-to-keep"] = rng.choice(("1", "1", "2", "3", "5", str(2**63 - 1)))
    refs = (
        "history.expire.",
        *(f"history.expire.{kind}.{name}." for kind in ("branch", "tag") for name in (*heads, "v1", "v2")),
    )
    for prefix in refs if _chance(rng, 0.6) else ():
        if _chance(rng, 0.25):
            said[f"{prefix}max-ref-age-ms"] = rng.choice(ages)
    if _chance(rng, 0.1):
        said[rng.choice(sorted(said))] = rng.choice(("0", "-1", "1.5", "", " 5", "1_000", "5d", "\u0663", str(2**63), "9" * 20))
    return said


def _random_heads(rng: random.Random, names: list[str], tips: list[str]) -> dict[str, str]:
    heads: dict[str, str] = {}
    if not names:
        return heads
    free = list(BRANCH_NAMES)
    rng.shuffle(free)
    if _chance(rng, 0.8):
        free.remove("main")
        free.insert(0, "main")
    kept = rng.choice((1.0, 0.9, 0.6))
    for tip in tips[: len(BRANCH_NAMES)]:
        if not _chance(rng, 1 - kept) or (not heads and not _chance(rng, 0.15)):
            heads[free.pop(0)] = tip
    while free and _chance(rng, 0.3):
        heads[free.pop(0)] = rng.choice(list(heads.values())) if heads and _chance(rng, 0.3) else rng.choice(names)
    return heads


def random_histories(rng: random.Random, n: int, *, prefix: str = "", **knobs: Any) -> list[History]:
    named = (f"{rng.choice(('lake', 'ice'))}/{prefix}{rng.choice(('raw', 'mid', 'gold'))}.{index:05}" for index in range(n))
    return [random_history(rng, name, **knobs) for name in named]


def histories(**knobs: Any) -> st.SearchStrategy[History]:
    return st.randoms(use_true_random=False).map(lambda rng: random_history(rng, **knobs))

"""Policy files of the tests: one about each key, and every mistake with the place and words of its problem."""

from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import BadInput, Problem
from retention_assets.policy import load_policies

HEAD = "policies:\n  - name: p\n    datasets: {include: [lake/d]}\n"


def policy(body: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in body.splitlines())


def select(lines: str) -> str:
    return policy(f"select: {lines}")


def datasets(value: str) -> str:
    return f"policies:\n  - name: p\n    datasets: {value}\n    select: all\n"


def branches(value: str) -> str:
    return policy(f"branches: {value}\nselect: {{older_than: 30d}}")


def hold(body: str) -> str:
    return "holds:\n  - name: h\n" + "".join(f"    {line}\n" for line in body.splitlines())


def retain(lines: str) -> str:
    return f"retain:\n  - name: r\n    reason: law\n    datasets: lake/d\n    {lines}\n"


def datahub(retention: str, rest: str = "") -> str:
    return f"- entity: dataset\n  aspect: status\n  config: {{retention: {retention}}}\n{rest}"


WIDE = "policies:\n  - name: {name}\n    datasets: {{include: [lake/d]}}\n    select: all\n"
DURATION = "30d"
NO_AGE = "an age longer than zero"
WHOLE = "a whole number"


def case(id_: str, text: str, line: int | None, key: str | None, words: str, of: str | None = "p") -> Any:
    return pytest.param(text, line, of, key, words, id=id_)


# A name, the text of the file, line and key, and what the message has to say; `of` is the policy, the hold or the entry.
BROKEN = [
    # --- keys that nobody knows, at each level, with the nearest one ---
    case("unknown-key-at-the-top", "polices: []\n", 1, "polices", "Did you mean policies?", of=None),
    case("unknown-key-of-a-policy", policy("selct: all\nselect: all"), 4, "selct", "Did you mean select?"),
    case("python-name-of-with", datasets("{include: [lake/d], with_: {a: b}}"), 3, "datasets.with_", "Did you mean with?"),
    case("unknown-key-of-a-window", branches("{windows: [{match: dev, older_then: 3d}]}"),
         4, "branches.windows[0].older_then", "Did you mean older_than?"),
    case("unknown-key-of-select", select("{oldr_than: 30d}"), 4, "select.oldr_than", "Did you mean older_than?"),
    case("unknown-key-of-older-than", select("{older_than: {age: 30d, off: closed}}"),
         4, "select.older_than.off", "Did you mean of?"),
    case("unknown-key-of-a-hold", hold("dataset: [lake/d]"), 3, "dataset", "Did you mean datasets?", of="h"),
    # --- keys that are missing ---
    case("no-name", "policies:\n  - datasets: {include: [lake/d]}\n    select: all\n", 2, "name", "is missing", of="#1"),
    case("no-select", HEAD, 2, "select", "is missing"),
    case("no-age", select("{older_than: {of: opened}}"), 4, "select.older_than.age", "is missing"),
    case("no-match-of-a-window", branches("{windows: [{older_than: 3d}]}"), 4, "branches.windows[0].match", "is missing"),
    # --- wrong types ---
    case("list-where-the-file-is-a-mapping", "- name: p\n", 1, None, "a mapping with the keys policies, holds", of=None),
    case("text-at-the-top", "just text\n", None, None, "is a string at its top", of=None),
    case("mapping-where-policies-is-a-list", "policies: {name: p}\n", 1, "policies", "a list", of=None),
    case("text-where-a-policy-is-a-mapping", "policies: [p]\n", 1, None, "a mapping", of="#1"),
    case("list-where-datasets-is-a-mapping", datasets("[lake/d]"), 3, "datasets", "a mapping"),
    case("boolean-where-an-attribute-is-text", datasets("{include: [lake/d], with: {trashed: true}}"),
         3, "datasets.with", 'Put it in quotes: trashed: "true"'),
    case("fraction-of-a-view", select("{beyond: {views: 3.5}}"), 4, "select.beyond.views", WHOLE),
    case("number-where-older-than-has-a-unit", select("{older_than: 30}"), 4, "select.older_than", "a mapping"),
    case("text-where-a-boolean-is", select("{terminal_only: 'true'}"), 4, "select.terminal_only", "true or false"),
    case("yaml-1-1-no-is-text", select("{unreferenced: no}"), 4, "select.unreferenced", "True"),
    case("number-where-grace-has-a-unit", policy("select: all\ngrace: 7"), 5, "grace", DURATION),
    case("number-as-a-name", "policies:\n  - name: 7\n    datasets: {include: [lake/d]}\n    select: all\n",
         2, "name", "a string", of="#1"),
    # --- words that nobody knows ---
    case("unknown-clock", select("{older_than: {age: 3d, of: committed}}"), 4, "select.older_than.of", "one of closed"),
    case("unknown-align", select("{older_than: {age: 3d, align: hour}}"), 4, "select.older_than.align", "'quarter'"),
    case("unknown-status", select("{status: [DONE]}"), 4, "select.status[0]", "'COMMITTED'"),
    case("unknown-reach", branches("{reach: all}"), 4, "branches.reach", "'unreachable'"),
    case("unknown-sweep-mode", policy("select: all\nsweep: {mode: drop}"), 5, "sweep.mode", "'ttl'"),
    # --- numbers out of their bounds ---
    case("no-views", select("{beyond: {views: 0}}"), 4, "select.beyond.views", "at least 1"),
    case("negative-transactions", select("{beyond: {transactions: -1}}"), 4, "select.beyond.transactions", "at least 0"),
    case("more-than-64-bits", select("{beyond: {transactions: 99999999999999999999}}"),
         4, "select.beyond.transactions", "at most"),
    case("limit-of-zero", policy("select: all\nlimits: {transactions: 0}"), 5, "limits.transactions", "more than 0"),
    case("infinite-limit", policy("select: all\nlimits: {bytes: 1e400}"), 5, "limits.bytes", WHOLE),
    case("fraction-of-zero", policy("select: all\nlimits: {fraction: 0}"), 5, "limits.fraction", "above 0"),
    case("fraction-that-is-no-number", policy("select: all\nlimits: {fraction: .nan}"), 5, "limits.fraction", "at most 1"),
    case("fraction-true", policy("select: all\nlimits: {fraction: true}"), 5, "limits.fraction", "a number"),
    case("limits-without-a-limit", policy("select: all\nlimits: {}"), 5, "limits", "transactions, bytes or fraction"),
    case("too-parallel", policy("select: all\nsweep: {parallelism: 5000}"), 5, "sweep.parallelism", "at most 1024"),
    # --- durations ---
    case("age-of-zero", select("{older_than: 0d}"), 4, "select.older_than", NO_AGE),
    *(
        case(f"duration-{name}", select(f"{{older_than: {text!r}}}"), 4, "select.older_than", expected)
        for name, text, expected in (
            ("empty", "", DURATION),
            ("without-unit", "30", DURATION),
            ("month-as-M", "6M", DURATION),
            ("word", "30 days", DURATION),
            ("too-long", "1001y", "at most 1000 years"),
            ("number-too-long", "99999999999d", DURATION),
        )
    ),
    # --- counts, groups and sizes ---
    *(
        case(f"count-{name}", select(f"{{beyond: {{{counts}}}}}"), 4, f"select.beyond{key}", words)
        for name, counts, key, words in (
            ("of-no-days", "daily: 0", ".daily", "at least 1"), ("of-half-a-year", "yearly: 0.5", ".yearly", WHOLE),
            ("unknown", "dayly: 7", ".dayly", "Did you mean daily?"),
            ("of-bytes-without-a-unit", "bytes: 10", ".bytes", "Write for example 10GiB"),
            ("of-bytes-in-another-unit", "bytes: 10GB", ".bytes", "Units are B, KiB"),
            ("of-no-bytes", "bytes: 0B", ".bytes", "from 1B to 1024PiB"),
            ("of-too-many-bytes", "bytes: 1025PiB", ".bytes", "from 1B to 1024PiB"),
            ("in-an-unknown-zone", "daily: 1, zone: Europe/Berln", ".zone", "Did you mean Europe/Berlin?"),
            ("in-a-zone-that-is-no-place", "daily: 1, zone: right/UTC", ".zone", "is not a time zone"),
            ("in-the-zone-of-the-machine", "daily: 1, zone: localtime", ".zone", "the same on every machine"),
            ("in-the-zone-of-no-machine", "daily: 1, zone: Factory", ".zone", "is not a time zone"),
            ("in-the-zone-of-posix-rules", "daily: 1, zone: posixrules", ".zone", "is not a time zone"),
            ("in-a-zone-of-posix", "daily: 1, zone: posix/Europe/Berlin", ".zone", "is not a time zone"),
            ("in-an-empty-zone", "daily: 1, zone: ''", ".zone", "is not a time zone"),
            ("in-a-zone-without-a-period", "transactions: 1, zone: UTC", ".zone", "one of hourly, daily"),
            ("in-groups-without-a-count", "per: [tag]", ".per", "needs a count beside it"),
            ("in-groups-beside-views", "views: 1, daily: 1, per: [tag]", ".per", "beyond.views without per"),
            ("in-no-groups", "daily: 1, per: []", ".per", "at least one"),
            ("in-a-group-without-a-name", "daily: 1, per: ['']", ".per[0]", "at least one"),
            ("of-a-condition-alone", "where: bytes > 1", ".where", "needs a count beside it"),
            ("of-a-condition-beside-views", "views: 1, where: bytes > 1", ".where", "beyond.views without where"),
            ("of-a-condition-that-is-none", "daily: 1, where: byte > 1", ".where", "Did you mean bytes?"),
        )
    ),
    # --- times of one's own ---
    *(
        case(f"time-{name}", select(f"{{older_than: {{{line}}}{beside}}}"), 4, f"select.{key}", words)
        for name, line, beside, key, words in (
            ("of-an-unknown-form", "age: 1d, of: {atribute: k}", "", "older_than.of", "{attribute: name}"),
            ("of-no-attribute", "age: 1d, of: {attribute: ''}", "", "older_than.of", "{attribute: name}"),
            ("of-an-attribute-that-is-no-text", "age: 1d, of: {attribute: 7}", "", "older_than.of", "{attribute: name}"),
            ("zero-of-closing", "age: 0s", "", "older_than", NO_AGE),
            ("zero-of-archiving", "age: 0s, of: archived", "", "older_than", NO_AGE),
            ("of-an-attribute-beside-a-window", "age: 1d, of: {attribute: k}", ", window: complete", "window", "Leave window out"),
        )
    ),
    case("time-of-an-attribute-in-a-window", branches("{windows: [{match: dev, older_than: {age: 1d, of: {attribute: k}}, window: strict}]}"),
         4, "branches.windows[0].window", "Leave window out"),
    # --- retain rules ---
    case("retain-nothing", "retain:\n  - {name: r, reason: law, datasets: lake/d}\n", 2, None, "where, younger_than or newest", of="r"),
    case("retain-for-no-reason", "retain:\n  - {name: r, datasets: lake/d, younger_than: 7y}\n", 2, "reason", "is missing", of="r"),
    case("retain-without-a-name", "retain:\n  - {reason: law, datasets: lake/d, younger_than: 7y}\n", 2, "name", "is missing", of="#1"),
    case("retain-a-mapping", "retain: {name: r}\n", 1, "retain", "a list", of=None),
    *(
        case(f"retain-{name}", retain(line), 5, key, words, of="r")
        for name, line, key, words in (
            ("no-age", "younger_than: 0s", "younger_than", NO_AGE),
            ("an-unknown-line", "yonger_than: 7y", "yonger_than", "Did you mean younger_than?"),
            ("none-of-the-newest", "newest: {transactions: 0}", "newest.transactions", "at least 1"),
            ("nothing-newest", "newest: {}", "newest", "transactions: N, or one of hourly"),
            ("newest-views", "newest: {views: 1}", "newest.views", "is not a known key"),
            ("newest-bytes", "newest: {bytes: 1GiB}", "newest.bytes", "is not a known key"),
            ("a-zone-alone", "newest: {transactions: 1, zone: UTC}", "newest.zone", "needs a period beside it"),
            ("a-condition-that-is-none", "where: 'true'", "where", "reads no column"),
            ("no-value", "where:", "where", "has no value"),
        )
    ),
    case("two-retain-rules-of-one-name", retain("younger_than: 7y") + "  - {name: r, reason: law, datasets: lake/e, younger_than: 1y}\n",
         6, "name", "a name of its own", of="r"),
    # --- lines that do not narrow, or that need each other ---
    case("empty-select", select("{}"), 4, "select", "`select: all`"),
    case("select-that-only-widens", select("{terminal_only: false}"), 4, "select", "`select: all`"),
    case("select-everything", select("everything"), 4, "select", "the word all"),
    case("from-table-false", select("{from_table: false}"), 4, "select.from_table", "True"),
    case("from-table-beside-an-age", select("{from_table: true, older_than: 3d}"), 4, "select.from_table", "Leave out one"),
    case("from-table-beside-a-count", select("{from_table: true, beyond: {views: 3}}"), 4, "select.from_table", "Leave out one"),
    case("from-table-beside-a-window", select("{from_table: true, window: strict}"), 4, "select.from_table", "Leave out one"),
    case("from-table-beside-windows", policy("branches: {windows: [{match: dev, older_than: 3d}]}\nselect: {from_table: true}"),
         4, "branches", "or branches.windows"),
    case("from-table-of-a-branch", branches("{windows: [{match: dev, from_table: true}]}"),
         4, "branches.windows[0].from_table", "is not a known key"),
    case("window-without-an-age", select("{window: complete}"), 4, "select.window", "Add older_than"),
    case("beyond-that-counts-nothing", select("{beyond: {}}"), 4, "select.beyond", "views: N, transactions: N, bytes: 10GiB, or one of hourly"),
    case("no-types", select("{types: []}"), 4, "select.types", "at least one entry"),
    case("empty-record-type", select("{archived_before_purge: ['']}"), 4, "select.archived_before_purge[0]", "at least one"),
    case("window-of-a-branch-without-an-age", branches("{windows: [{match: dev, beyond: {views: 1}, window: complete}]}"),
         4, "branches.windows[0].window", "Add older_than"),
    case("window-without-a-line", branches("{windows: [{match: dev}]}"), 4, "branches.windows[0]", "older_than or beyond"),
    case("in-and-not-in-one-branch", branches("{only_in: dev, not_in: dev}"), 4, "branches.not_in", "different branches"),
    case("unreachable-on-a-branch", branches("{reach: unreachable, only_in: dev}"), 4, "branches.reach", "live or any"),
    case("no-grace-without-a-word", policy("select: all\ngrace: 0s"), 5, "grace", "confirm: no-grace"),
    case("a-word-without-no-grace", policy("select: all\nconfirm: no-grace"), 5, "confirm", "grace: 0s"),
    case("a-word-beside-a-grace", policy("select: all\ngrace: 7d\nconfirm: no-grace"), 6, "confirm", "grace: 0s"),
    case("undo-for-no-time", policy("select: all\nundo: 0s"), 5, "undo", "Leave it out to delete at once."),
    case("undo-without-a-unit", policy("select: all\nundo: 14"), 5, "undo", DURATION),
    case("undo-beside-expiry", policy("select: all\nsweep: {mode: ttl}\nundo: 14d"), 6, "undo", "where the database deletes by itself"),
    # --- names and globs ---
    case("name-with-a-space-at-its-end", WIDE.format(name="' p'"), 2, "name", "without spaces at the ends", of=" p"),
    case("empty-name", WIDE.format(name="''"), 2, "name", "1 to 200", of="#1"),
    case("name-too-long", WIDE.format(name="x" * 201), 2, "name", "1 to 200", of="x" * 201),
    case("name-of-two-lines", WIDE.format(name='"a\\nb"'), 2, "name", "printable", of="a\nb"),
    case("name-of-the-system", WIDE.format(name="'::all'"), 2, "name", "a name of your own", of="::all"),
    case("name-of-datahub", WIDE.format(name="'datahub:a.b'"), 2, "name", "a name of your own", of="datahub:a.b"),
    case("empty-glob", datasets("{include: ['']}"), 3, "datasets.include[0]", "a pattern"),
    case("glob-without-a-store", datasets("{include: [raw.orders]}"), 3, "datasets.include[0]", "lake/raw.orders"),
    case("glob-that-cannot-be-printed", datasets('{include: ["lake/\\0"]}'), 3, "datasets.include[0]", "a pattern"),
    case("glob-with-an-open-set", datasets("{include: ['lake/[ab']}"), 3, "datasets.include[0]", "a closing ]"),
    case("glob-with-an-empty-range", datasets("{include: ['lake/*'], exclude: ['lake/[z-a]*']}"),
         3, "datasets.exclude[0]", "from the lower"),
    case("exclude-without-a-store", datasets("{include: [lake/d], exclude: [d]}"), 3, "datasets.exclude[0]", "store/name"),
    # --- conditions: the grammar itself is where/test_grammar.py's ---
    case("empty-condition", select("{where: ''}"), 4, "select.where", "is empty"),
    case("condition-true", select("{where: true}"), 4, "select.where", "a boolean over log columns"),
    case("condition-that-reads-nothing", select("{where: 'true'}"), 4, "select.where", "`select: all`"),
    case("condition-about-an-unknown-column", select("{where: 'bytez > 0'}"), 4, "select.where", "Did you mean bytes?"),
    # --- holds ---
    case("until-that-is-no-time", hold("datasets: lake/d\nuntil: tomorrow"), 4, "until", "an instant with a zone", of="h"),
    case("until-without-a-zone", hold("datasets: lake/d\nuntil: 2026-01-01T00:00:00"), 4, "until", "has no zone", of="h"),
    case("until-a-day-that-is-not", hold("datasets: lake/d\nuntil: 2026-02-30"), 4, "until", "is not an instant", of="h"),
    case("until-before-the-year-one", hold("datasets: lake/d\nuntil: '0001-01-01T00:00:00+14:00'"),
         4, "until", "an instant with a zone", of="h"),
    case("hold-on-nothing", hold("datasets: []"), 3, "datasets", "at least one entry", of="h"),
    case("hold-without-a-store", hold("datasets: d"), 3, "datasets", "store/name", of="h"),
    case("hold-on-no-transaction", hold("datasets: lake/d\ntransactions: []"), 4, "transactions", "at least one entry", of="h"),
    case("two-holds-of-one-name", hold("datasets: lake/a") + "  - name: h\n    datasets: lake/b\n",
         4, "name", "a name of its own", of="h"),
    # --- keys without a value ---
    case("no-value-at-the-top", "policies:\n", 1, "policies", "has no value", of=None),
    case("line-without-a-value", policy("select:\n  older_than:"), 5, "select.older_than", "has no value"),
    case("line-that-is-null", policy("select: {older_than: ~, beyond: {views: 1}}"), 4, "select.older_than", "has no value"),
    case("entry-that-is-null", datasets("{include: [lake/*], exclude: [~]}"), 3, "datasets.exclude[0]", "has no value"),
    case("key-without-a-colon", "policies: [{name: p, datasets: {include: [lake/d], exclude}, select: all}]\n",
         1, "datasets.exclude", "has no value"),
    # --- two of one name ---
    case("two-policies-of-one-name", WIDE.format(name="p") + WIDE.format(name="p").partition("\n")[2],
         5, "name", "policies.yaml:2"),
    # --- YAML that is not read ---
    case("empty-file", "", None, None, "is empty", of=None),
    case("only-a-comment", "# nothing but words\n", None, None, "is empty", of=None),
    case("empty-mapping", "{}\n", 1, None, "`policies: []`", of=None),
    case("two-documents", "policies: []\n---\npolicies: []\n", 2, None, "one document in a file", of=None),
    case("tag-that-runs", "policies: !!python/object/apply:os.system [echo]\n", 1, "policies", "without tags", of=None),
    case("key-twice", "policies: []\npolicies: []\n", 2, "policies", "each key once", of=None),
    case("key-of-a-policy-twice", policy("select: all\nselect: {older_than: 9y}"),
         5, "policies[0].select", "each key once", of=None),
    case("number-as-a-key", "1: b\n", 1, None, "a string as a key", of=None),
    case("bracket-without-an-end", "policies: [\n", 2, None, "is not valid YAML", of=None),
    # --- DataHub's format ---
    case("datahub-zero-versions", datahub("{version: {maxVersions: 0}}"),
         3, "config.retention.version.maxVersions", "more than 0", of="datahub:dataset.status"),
    case("datahub-unknown-key", datahub("{version: {maxVersion: 1}}"),
         3, "config.retention.version.maxVersion", "Did you mean maxVersions?", of="datahub:dataset.status"),
    case("datahub-duplicate", datahub("{indefinite: {}}") + datahub("{indefinite: {}}"),
         4, None, "one entry for each", of="datahub:dataset.status"),
]  # fmt: skip


def problems_of(path: Path, *more: Path, stores: set[str] | None = None) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        load_policies([path, *more], stores)
    return caught.value.problems

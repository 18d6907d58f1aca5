"""DuckDB doing the same job: from the Parquet of a log to the Parquet of verdicts, in SQL, in two ways.

`walk` is what one writes first: a recursive CTE from each head towards its root. `runs` is the best that we could think of: our
own idea in SQL, where what happens between forks is a running sum and only stretches of history are walked.

`whole` is `walk` without an early end: the views of every transaction, written beside the verdicts, as our table of views is.

All are given what makes them fast. One integer is the key of a row, made from its place in its file, so that a parent is found
by subtraction and no string is ever joined. Without views to write, walks stop as soon as no policy can ask for
more: after the third view and, on features, the fourth transaction; features end where they meet main. Nothing is in order that need not be.

What DuckDB leaves out, all of it work that our side does: the list of reasons (it writes the first reason's code), witnesses
(which branch, which tag), policies beside the one with the credit (`also`), choosing datasets by glob (all match), records and
objects, holds, limits. The three policies are built into the query; others would need another query.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from benchmarks.environments import AS_OF
from benchmarks.policies import (
    FAILED_DAYS,
    FEATURE_DAYS,
    FEATURE_TRANSACTIONS,
    FEATURES,
    OLD_DAYS,
    OLD_VIEWS,
    bound,
)
from retention_assets.policy import micros

_AT = "(file_index::BIGINT * 4294967296 + file_row_number)"
_PARENT = f"CASE WHEN parent_ordinal >= 0 THEN {_AT} - ordinal + parent_ordinal END"
_PARTS = "read_parquet($parts, file_row_number = true)"

_HEADS = f"""
    SELECT unnest(heads) AS name, {_AT} AS place, {_AT} - ordinal AS dataset_place FROM {_PARTS} WHERE len(heads) > 0
"""
_TAGS = f"""
    SELECT place FROM (SELECT {_AT} AS place, unnest(tag_expiries) AS expires FROM {_PARTS} WHERE len(tags) > 0)
    WHERE expires IS NULL OR epoch_us(expires) > {micros(AS_OF)}
"""

# The narrow half of a log: what a walk needs to know of a transaction.
_FACTS = f"""
    {_AT} AS place, {_PARENT} AS parent, status = 'COMMITTED' AS committed,
    (status = 'COMMITTED' AND type = 'SNAPSHOT')::INTEGER AS snapshot,
    (status = 'COMMITTED' AND type <> 'DELETE')::INTEGER AS data
"""

# OPEN and ABORTED transactions lie on the branches of their nearest committed ancestor, or of the dataset without one.
_ANCHORS = """
    CREATE TEMP TABLE anchors AS
    WITH RECURSIVE climb(place, dataset_place, above, arrived) AS (
        SELECT place, dataset_place, parent, parent IS NULL FROM loose
        UNION ALL
        SELECT climb.place, climb.dataset_place, loose.parent, loose.parent IS NULL
        FROM climb JOIN loose ON loose.place = climb.above
    )
    SELECT place, dataset_place, above FROM climb
    WHERE arrived OR NOT EXISTS (SELECT 1 FROM loose WHERE loose.place = climb.above)
"""
_BRANCHES_OF_DATASETS = f"""
    SELECT dataset_place, bool_or(name = 'main') AS main, bool_or(starts_with(name, '{FEATURES}')) AS feature
    FROM heads GROUP BY dataset_place
"""


def _counted(stop: str) -> str:
    """The walk that counts views and data transactions on each branch; `stop` is where a walk may end early."""
    return f"""
        CREATE TEMP TABLE counted AS
        WITH RECURSIVE walk(place, parent, feature, view, newer, snapshot, data) AS (
            SELECT tx.place, tx.parent, starts_with(name, '{FEATURES}'), 0, 0, tx.snapshot, tx.data FROM heads JOIN tx USING (place)
            UNION ALL
            SELECT tx.place, tx.parent, feature, view + walk.snapshot, newer + walk.data, tx.snapshot, tx.data
            FROM walk JOIN tx ON tx.place = walk.parent
            WHERE {stop}
        )
        SELECT place, min(view) AS view, min(newer) FILTER (feature) AS newer, min(newer) AS newer_anywhere FROM walk GROUP BY place
    """


_COUNTED = _counted(f"view + walk.snapshot < {OLD_VIEWS} OR (feature AND newer + walk.data < {FEATURE_TRANSACTIONS})")

_WALK = (
    f"CREATE TEMP TABLE tx AS SELECT {_FACTS} FROM {_PARTS}",
    f"""
    CREATE TEMP TABLE loose AS
    SELECT place, parent, place - ordinal AS dataset_place FROM (SELECT {_FACTS}, ordinal FROM {_PARTS}) WHERE NOT committed
    """,
    _ANCHORS,
    """
    CREATE TEMP TABLE on_main AS
    WITH RECURSIVE walk(place, parent) AS (
        SELECT tx.place, tx.parent FROM heads JOIN tx USING (place) WHERE name = 'main'
        UNION ALL
        SELECT tx.place, tx.parent FROM walk JOIN tx ON tx.place = walk.parent
    )
    SELECT place FROM walk
    """,
    f"""
    CREATE TEMP TABLE on_others AS
    WITH RECURSIVE walk(place, parent, feature) AS (
        SELECT tx.place, tx.parent, starts_with(name, '{FEATURES}') FROM heads JOIN tx USING (place) WHERE name <> 'main'
        UNION
        SELECT tx.place, tx.parent, feature
        FROM walk JOIN tx ON tx.place = walk.parent ANTI JOIN on_main ON on_main.place = tx.place
    )
    SELECT place, bool_or(feature) AS feature FROM walk GROUP BY place
    """,
    _COUNTED,
    """
    CREATE TEMP TABLE pinned AS
    WITH RECURSIVE walk(place, parent, snapshot) AS (
        SELECT tx.place, tx.parent, tx.snapshot FROM tags JOIN tx USING (place)
        UNION
        SELECT tx.place, tx.parent, tx.snapshot FROM walk JOIN tx ON tx.place = walk.parent WHERE walk.snapshot = 0
    )
    SELECT place FROM walk
    """,
    f"""
    CREATE TEMP TABLE placed AS
    SELECT place, true AS main, false AS feature FROM on_main ANTI JOIN loose USING (place)
    UNION ALL SELECT place, false, feature FROM on_others ANTI JOIN loose USING (place)
    UNION ALL
    SELECT anchors.place, on_main.place IS NOT NULL, coalesce(on_others.feature, false)
    FROM anchors LEFT JOIN on_main ON on_main.place = above LEFT JOIN on_others ON on_others.place = above
    WHERE on_main.place IS NOT NULL OR on_others.place IS NOT NULL
    UNION ALL SELECT place, main, feature FROM anchors JOIN ({_BRANCHES_OF_DATASETS}) USING (dataset_place) WHERE above IS NULL
    """,
    f"""
    CREATE TEMP VIEW judged AS
    SELECT dataset, transaction, ordinal, type, status, epoch_us(closed_at) AS closed, placed.place IS NOT NULL AS live,
        coalesce(main, false) AS main, coalesce(feature, false) AS feature, view, newer, pinned.place IS NOT NULL AS pinned
    FROM (SELECT *, {_AT} AS place FROM read_parquet(getvariable('parts'), file_row_number = true))
    LEFT JOIN placed USING (place) LEFT JOIN counted USING (place) LEFT JOIN pinned USING (place)
    """,
)

# A run is a stretch of rows in which each is the only child of the one before it, and none but the last has a head or tag.
_RUNS = (
    f"""
    CREATE TEMP TABLE jumps AS
    SELECT place, parent FROM (SELECT {_AT} AS place, {_PARENT} AS parent FROM {_PARTS}) WHERE parent IS DISTINCT FROM place - 1
    """,
    """
    CREATE TEMP TABLE opens AS
    SELECT place FROM jumps UNION SELECT parent + 1 FROM jumps
    UNION SELECT place + 1 FROM heads UNION SELECT place + 1 FROM tags
    """,
    f"""
    CREATE TEMP TABLE tx AS
    SELECT * EXCLUDE opening, sum(opening) OVER rows_so_far + (place >> 32 << 32) AS run,
        sum(snapshot) OVER rows_so_far AS snapshots, sum(data) OVER rows_so_far AS datas
    FROM (
        SELECT {_FACTS}, {_AT} - ordinal AS dataset_place, (place IN (SELECT place FROM opens))::INTEGER AS opening
        FROM {_PARTS}
    )
    WINDOW rows_so_far AS (PARTITION BY place >> 32 ORDER BY place ROWS UNBOUNDED PRECEDING)
    """,
    "CREATE TEMP TABLE loose AS SELECT place, parent, dataset_place FROM tx WHERE NOT committed",
    _ANCHORS,
    """
    CREATE TEMP TABLE runs AS
    SELECT run, max(place) AS last, arg_min(parent, place) AS parent,
        sum(snapshot)::INTEGER AS snapshot, sum(data)::INTEGER AS data, max(snapshots) AS snapshots, max(datas) AS datas
    FROM tx GROUP BY run
    """,
    f"""
    CREATE TEMP TABLE ends AS
    WITH RECURSIVE walk(run, parent, main, feature, tag, view, newer, snapshot, data) AS (
        SELECT run, parent, main, feature, tag, 0, 0, snapshot, data
        FROM (
            SELECT place, name = 'main' AS main, starts_with(name, '{FEATURES}') AS feature, false AS tag FROM heads
            UNION ALL SELECT place, false, false, true FROM tags
        ) JOIN runs ON runs.last = place
        UNION ALL
        SELECT runs.run, runs.parent, main, feature, tag, view + walk.snapshot, newer + walk.data, runs.snapshot, runs.data
        FROM walk JOIN runs ON runs.last = walk.parent WHERE NOT tag OR walk.snapshot = 0
    )
    SELECT run, bool_or(NOT tag) AS live, bool_or(main) AS main, bool_or(feature) AS feature,
        min(view) FILTER (NOT tag) AS view, min(newer) FILTER (feature) AS newer, bool_or(tag) AS tag
    FROM walk GROUP BY run
    """,
    """
    CREATE TEMP TABLE lasts AS
    SELECT runs.run, runs.last, runs.snapshots, runs.datas, live, main, feature, view, newer, tag
    FROM runs JOIN ends USING (run)
    """,
    f"""
    CREATE TEMP TABLE elsewhere AS
    SELECT anchors.place, live, main, feature FROM anchors JOIN tx ON tx.place = above JOIN ends USING (run)
    UNION ALL
    SELECT place, true, main, feature FROM anchors JOIN ({_BRANCHES_OF_DATASETS}) USING (dataset_place) WHERE above IS NULL
    """,
    f"""
    CREATE TEMP VIEW judged AS
    SELECT dataset, transaction, ordinal, type, status, epoch_us(closed_at) AS closed,
        coalesce(if(committed, lasts.live, elsewhere.live), false) AS live,
        coalesce(if(committed, lasts.main, elsewhere.main), false) AS main,
        coalesce(if(committed, lasts.feature, elsewhere.feature), false) AS feature,
        lasts.view + lasts.snapshots - tx.snapshots AS view, lasts.newer + lasts.datas - tx.datas AS newer,
        coalesce(tag AND lasts.snapshots = tx.snapshots, false) AS pinned
    FROM (SELECT *, {_AT} AS place FROM read_parquet(getvariable('parts'), file_row_number = true))
    JOIN tx USING (place) LEFT JOIN lasts USING (run) LEFT JOIN elsewhere USING (place)
    """,
)

# The lines of each policy in our order: the first that does not hold, or null where the policy selects.
_VERDICTS = f"""
    SELECT dataset, transaction, ordinal,
        CASE WHEN status = 'OPEN' THEN 'open' WHEN NOT selected THEN 'keep' WHEN latest OR pinned THEN 'spare' ELSE 'mark' END
            AS verdict,
        CASE WHEN status = 'OPEN' OR NOT selected THEN NULL
            WHEN old IS NULL THEN 'old-views' WHEN failed IS NULL THEN 'failed' ELSE 'features' END AS policy,
        CASE WHEN NOT selected THEN old WHEN latest THEN 'LATEST_VIEW' WHEN pinned THEN 'TAG' ELSE 'SELECTED' END AS reason
    FROM (
        SELECT *, old IS NULL OR failed IS NULL OR features IS NULL AS selected
        FROM (
            SELECT dataset, transaction, ordinal, status,
                status = 'COMMITTED' AND live AND coalesce(view, 9) = 0 AS latest, status = 'COMMITTED' AND pinned AS pinned,
                CASE WHEN status = 'OPEN' THEN 'OPEN' WHEN NOT live THEN 'UNREACHABLE' WHEN closed IS NULL THEN 'NO_TIME'
                    WHEN closed >= {bound(OLD_DAYS)} THEN 'TOO_YOUNG'
                    WHEN status = 'COMMITTED' AND coalesce(view, {OLD_VIEWS}) < {OLD_VIEWS} THEN 'WITHIN_VIEWS' END AS old,
                CASE WHEN status = 'OPEN' THEN 'OPEN' WHEN NOT live THEN 'UNREACHABLE' WHEN status <> 'ABORTED' THEN 'STATUS'
                    WHEN closed IS NULL THEN 'NO_TIME' WHEN closed >= {bound(FAILED_DAYS)} THEN 'TOO_YOUNG' END AS failed,
                CASE WHEN status = 'OPEN' THEN 'OPEN' WHEN NOT live THEN 'UNREACHABLE' WHEN NOT feature THEN 'OUT_OF_SCOPE'
                    WHEN main THEN 'OTHER_BRANCH' WHEN closed IS NULL THEN 'NO_TIME'
                    WHEN closed >= {bound(FEATURE_DAYS)} THEN 'TOO_YOUNG'
                    WHEN status = 'COMMITTED' AND type <> 'DELETE'
                        AND coalesce(newer, {FEATURE_TRANSACTIONS}) < {FEATURE_TRANSACTIONS} THEN 'WITHIN_TRANSACTIONS' END AS features
            FROM judged
        )
    )
"""

WAYS = {"walk": _WALK, "runs": _RUNS}
# The recursive CTE without an end: the view and the depth of every transaction, which is what the table of views holds.
WHOLE = tuple(_counted("true") if query is _COUNTED else query for query in _WALK)
_VIEWS = f"""
    SELECT dataset, transaction, ordinal, CASE WHEN status = 'COMMITTED' THEN counted.view END AS view,
        CASE WHEN status = 'COMMITTED' THEN counted.newer_anywhere END AS newer
    FROM (SELECT *, {_AT} AS place FROM read_parquet(getvariable('parts'), file_row_number = true)) LEFT JOIN counted USING (place)
"""


@contextmanager
def _database(cores: int) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": cores}) as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute("SET preserve_insertion_order = false")
        yield db


def judge(way: str, source: Path, target: Path, cores: int) -> None:
    """Write verdicts as Parquet, compressed as ours, one file per thread or more; of `whole` the views as well."""
    outputs = {"": _VERDICTS} if way in WAYS else {"/candidate_marks": _VERDICTS, "/branch_views": _VIEWS}
    with _database(cores) as db:
        parts = sorted(str(part) for part in (source / "transactions").iterdir())
        db.execute("SET VARIABLE parts = $parts", {"parts": parts})
        for name, query in (("heads", _HEADS), ("tags", _TAGS)):
            db.execute(f"CREATE TEMP TABLE {name} AS {query}", {"parts": parts})
        for query in WAYS.get(way, WHOLE):
            db.execute(query, {"parts": parts} if "$parts" in query else None)
        for folder, query in outputs.items():
            Path(f"{target}{folder}").mkdir(parents=True, exist_ok=True)
            db.execute(
                f"COPY ({query}) TO '{target}{folder}' "
                "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PER_THREAD_OUTPUT, OVERWRITE_OR_IGNORE)"
            )


def differences(ours: Path, theirs: Path, every: int, cores: int) -> tuple[int, int]:
    """Rows compared and rows that differ: verdict, policy and first reason, over one of `every` datasets, whole ones."""
    with _database(cores) as db:
        found = db.execute(
            f"""
            SELECT count(*), count(*) FILTER (
                a.transaction IS DISTINCT FROM b.transaction OR a.verdict IS DISTINCT FROM b.verdict
                OR a.policy IS DISTINCT FROM b.policy OR a.reason IS DISTINCT FROM b.reason
            )
            FROM (
                SELECT dataset, ordinal, transaction, verdict, policy, reasons[1].code AS reason
                FROM read_parquet('{ours}/*.parquet') WHERE hash(dataset) % {every} = 0
            ) a FULL JOIN (
                SELECT dataset, ordinal, transaction, verdict, policy, reason
                FROM read_parquet('{theirs}/*.parquet') WHERE hash(dataset) % {every} = 0
            ) b USING (dataset, ordinal)
            """
        ).fetchone()
        assert found is not None
        return found[0], found[1]


def views_that_differ(ours: Path, theirs: Path, every: int, cores: int) -> tuple[int, int]:
    """Rows compared and rows that differ: view and depth, over one of `every` datasets, whole ones."""
    with _database(cores) as db:
        found = db.execute(
            f"""
            SELECT count(*), count(*) FILTER (a.view IS DISTINCT FROM b.view OR a.newer IS DISTINCT FROM b.newer)
            FROM (SELECT dataset, ordinal, view, newer FROM read_parquet('{ours}/*.parquet') WHERE hash(dataset) % {every} = 0) a
            FULL JOIN (
                SELECT dataset, ordinal, view, newer FROM read_parquet('{theirs}/*.parquet') WHERE hash(dataset) % {every} = 0
            ) b USING (dataset, ordinal)
            """
        ).fetchone()
        assert found is not None
        return found[0], found[1]

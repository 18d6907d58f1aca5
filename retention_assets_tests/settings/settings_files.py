"""Settings files of the tests: small ones, one with every key, and what reading a text as `retention.yaml` gives."""

from pathlib import Path

import pytest

from retention_assets.errors import BadInput, Problem
from retention_assets.settings import Settings, load_settings

LAKE = 'stores: [{name: lake, kind: files, log: log, data: "data/{dataset}/{transaction}"}]'
ROOTED = "root: {table: unit, key: id, opened_at: began, closed_at: ended}"


# Section 9 of the design, with every key of every kind.
WHOLE = """
ledger: sqlite:///.retention/ledger.db
warehouse: s3://bucket/warehouse
policies: [policies, more/extra.yaml]
spark: {master: "local[4]", conf: {spark.sql.shuffle.partitions: 8, spark.ui.enabled: false, spark.app.name: x}}
clock: {max_ahead: 2w, max_skew: PT10M}
overwrite_user_policies: true
partition_by: store
automation: {discover: true, policies: true, sweep: 15m, report: true}
stores:
  - {name: lake, kind: files, log: data/lake/log, data: "data/lake/{dataset}/{transaction}"}
  - {name: bucket, kind: files, log: "s3://b/log", data: "s3://b/data/{dataset}/{transaction}.parquet"}
  - name: ice
    kind: iceberg
    catalog: {type: sql, uri: "sqlite:///data/ice.db", warehouse: data/ice}
    namespaces: [a, "b.*"]
    model: deltas
  - {name: rest, kind: iceberg, catalog: {type: rest, uri: "https://catalog", warehouse: prod, s3.ssl: true}}
  - {name: lakehouse, kind: delta, tables: ["s3://b/t/*", data/sales], also_read: ["/data/clones/*"], streams: [s3://b/c],
     announce: always, window_below_table: allow, times: commit_info}
  - {name: meta, kind: aspects, url: "postgresql://datahub:pw@host/db", table: public.aspects, current_counts: true}
  - name: ods
    kind: records
    url: sqlite:////var/ods.db
    root: {table: unit_of_work, key: id, opened_at: began, closed_at: finished, archived_at: archived, type: journey_type}
    children: [{table: summary, key: unit_of_work_id}, {table: process_object, key: unit_of_work_id}]
"""


def read(folder: Path, text: str, **environ: str) -> Settings:
    folder.mkdir(exist_ok=True)
    (folder / "retention.yaml").write_text(text)
    return load_settings(folder / "retention.yaml", environ)


def problems(folder: Path, text: str, **environ: str) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        read(folder, text, **environ)
    return caught.value.problems

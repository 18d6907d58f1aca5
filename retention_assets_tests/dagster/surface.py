"""The surface of the definitions: every name, link and default that people and other tools rely on, as plain data.

Belongs here: taking it down. `cases/surface.json` holds what it is to be; where a change is meant, write it anew with
`python -m retention_assets_tests.dagster.surface > retention_assets_tests/cases/surface.json` and look at the difference.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import dagster as dg

from retention_assets.definitions import build_defs
from retention_assets.policy import parse_duration
from retention_assets.settings import Settings
from retention_assets.settings.sections import AutomationSettings, DagsterSettings


def surface(defs: dg.Definitions) -> Mapping[str, Any]:
    """All of it, sorted."""
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    assets = {key.to_user_string(): graph.get(key) for key in graph.get_all_asset_keys()}
    jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__ASSET")]
    return {
        "assets": {
            name: {
                "after": sorted(key.to_user_string() for key in node.parent_keys),
                "group": node.group_name,
                "kinds": sorted(node.kinds),
                "partitions": getattr(node.partitions_def, "name", None),
                "pools": sorted(node.pools or ()),
                "config": _config(repository, name),
            }
            for name, node in sorted(assets.items())
        },
        "checks": {key.to_user_string(): graph.get(key).blocking for key in sorted(graph.asset_check_keys)},
        "jobs": {
            job.name: {
                "steps": [node.name for node in job.nodes_in_topological_order],
                "config": _form(job),
                "pools": sorted({pool for node in job.nodes for pool in getattr(node.definition, "pools", ())}),
            }
            for job in sorted(jobs, key=lambda job: job.name)
        },
        "sensors": {
            one.name: {
                "launches": sorted(target.job_name for target in one.targets),
                "seconds": one.minimum_interval_seconds,
                "status": one.default_status.value,
            }
            for one in sorted(repository.sensor_defs, key=lambda one: one.name)
        },
        "schedules": {
            one.name: {
                "launches": one.job_name,
                "at": one.cron_schedule,
                "zone": one.execution_timezone,
                "status": one.default_status.value,
            }
            for one in sorted(repository.schedule_defs, key=lambda one: one.name)
        },
        "resources": sorted(defs.resources or {}),
    }


def all_on() -> dg.Definitions:
    """The definitions of settings that ask for everything."""
    minute = parse_duration("1m")
    on = AutomationSettings(discover=True, policies=True, report=True, verify=True, sweep=minute, evaluate=minute)
    return build_defs(Settings(automation=on, dagster=DagsterSettings(jobs="all")))


def _form(job: dg.JobDefinition) -> list[str]:
    """What a launch may say: fields that stand at the top, or those of the one step."""
    (op,) = job.nodes
    schema = job.config_mapping.config_schema if job.config_mapping else op.definition.config_schema
    return sorted(_fields(schema.config_type)) if schema else []


def _config(repository: dg.RepositoryDefinition, asset: str) -> list[str]:
    """What a launch of an asset may say."""
    op = repository.assets_defs_by_key[dg.AssetKey(asset)].op
    return sorted(_fields(op.config_schema.config_type)) if op.config_schema else []


def _fields(kind: Any) -> list[str]:
    return list(getattr(kind, "fields", None) or ())


if __name__ == "__main__":
    json.dump({"default": surface(build_defs(Settings())), "all_on": surface(all_on())}, sys.stdout, indent=1)
    sys.stdout.write("\n")

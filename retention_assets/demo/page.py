"""The demonstration from start to end: build, run the job, tell what happened.

Belongs here: the order of the acts and the words between them. The work is done by the same job that a real environment runs.
"""

import os
from pathlib import Path

import dagster as dg
from rich.console import Console
from rich.markup import escape

from retention_assets.definitions import build_defs
from retention_assets.demo.environment import AS_OF, build
from retention_assets.exchange import read_log
from retention_assets.explain import explain
from retention_assets.in_force import rules_for
from retention_assets.policy.instants import text_of
from retention_assets.policy.language import load_policies
from retention_assets.preview import Preview
from retention_assets.problems import Refused
from retention_assets.resources.stage import read_output
from retention_assets.resources.warehouse import FOLDER
from retention_assets.settings import load_settings
from retention_assets.tables import explanation, preview_tables


def demo(folder: Path, console: Console) -> None:
    """Build the environment, evaluate it through Dagster, and explain what was found."""
    settings_file = build(folder)
    settings = load_settings(settings_file)
    console.print(f"\n[bold]1. An environment[/]\n\nA lake of small histories was written to {escape(str(folder))}.")
    console.print("It has settings (retention.yaml), policies (policies/demo.yaml) and a log (log/log.jsonl).\n")
    console.print("[bold]2. The job `evaluate`[/]\n\nDagster runs transaction_log, branch_views and candidate_marks on Spark …")
    home = folder / "dagster"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    os.environ["DAGSTER_HOME"] = str(home.resolve())
    with dg.DagsterInstance.get() as instance:
        config = {"as_of": text_of(AS_OF)}
        result = build_defs(settings).resolve_job_def("evaluate").execute_in_process(
            run_config={
                "ops": {"branch_views": {"config": config}, "candidate_marks": {"config": config}},
                "loggers": {"console": {"config": {"log_level": "ERROR"}}},
            },
            instance=instance, raise_on_error=False,
        )  # fmt: skip
        if not result.success:
            failed = [event.step_key for event in result.get_step_failure_events()]
            raise Refused(f"The run failed in {', '.join(str(step) for step in failed)}. Its log is above.")
        event = instance.get_latest_materialization_event(dg.AssetKey("candidate_marks"))
    materialization = event.asset_materialization if event else None
    assert materialization is not None, "a run that succeeded has materialized its assets"
    marks = read_output(str(materialization.metadata[FOLDER].value), "candidate_marks")
    log = read_log(folder / "log")
    console.print("\n[bold]3. What was decided[/]\n\nNothing was deleted: these are verdicts.\n")
    for table in preview_tables(Preview(AS_OF, log, marks), most=5):
        console.print(table)
    console.print("\n[bold]4. Why[/]\n\nEvery verdict can be asked for its reasons. Here is one that surprises at first:\n")
    rules = rules_for(load_policies(settings.policies), log.datasets["dataset"].to_pylist(), settings)
    console.print(explanation(explain(log, rules, "lake/demo.shared_branch", "T1", AS_OF)))
    at = f"--as-of {text_of(AS_OF)}"
    console.print("\n[bold]5. Go on[/]\n")
    for command, words in (
        (f"retention explain lake/raw.models S3 {at}", "a tag that pins a view"),
        (f"retention preview {at}", "the same verdicts, without Dagster"),
        ("retention validate", "the policies as sentences"),
        ("make dev", "the Dagster UI on this environment"),
    ):
        prefix = "" if command == "make dev" else f"RETENTION_CONFIG={settings_file} "
        console.print(f"  {escape(prefix + command)}\n      {words}", soft_wrap=True)

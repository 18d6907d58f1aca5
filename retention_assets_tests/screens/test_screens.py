"""Dagster's pages in a real browser: a person materializes one dataset, runs checks, takes a mark back and reads the report.

Belongs here: what must be visible, and clickable, on a demonstration that has lived through three days. Numbers and names are
looked up in its ledger, so that the demonstration may change. With RETENTION_PICTURES naming a folder the pages are also written
there as pictures, for the documents (`make pictures`).
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.instance import InstanceRef

from retention_assets.clock import now
from retention_assets.dagster.headless import run_job
from retention_assets.demo.environment import build_environment
from retention_assets.demo.lake import AS_OF
from retention_assets.ledger import open_ledger
from retention_assets.settings import Settings, load_settings
from retention_assets_tests.dagster.launch import LAUNCHED_HERE, run_backfills, workspace_of
from retention_assets_tests.forked import forking
from retention_assets_tests.local_spark import place_here
from retention_assets_tests.screens.browser import HEIGHT, WIDTH, Page, browser, chromium

PROGRAM = chromium()
ROOT = Path(__file__).parent.parent.parent
PICTURES = os.environ.get("RETENTION_PICTURES")
DATASET = "lake/raw.flaky"
RUNS = [AS_OF + timedelta(days=day) for day in (0, 8, 16)]
DAY = RUNS[-1].date()
# What is marked by the first run is swept by the second.
FREED = f"freed in {(RUNS[-1] - RUNS[1]).days + 1} days"
# A run starts a Spark of its own; on a machine that does much else that takes minutes.
PATIENCE = 300

pytestmark = [
    pytest.mark.screen,
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here; .ci/chromium installs it where that is possible"),
]

# Runs start at once and not through a queue: there is no daemon here that would take them from it.
DAGSTER = """\
telemetry: {enabled: false}
nux: {enabled: false}
run_coordinator: {module: dagster.core.run_coordinator, class: DefaultRunCoordinator}
"""


@dataclass(frozen=True)
class Site:
    """The demonstration with its pages: where they are, and what is behind them."""

    url: str
    folder: Path
    settings: Settings
    instance: dg.DagsterInstance

    def newest_run(self) -> str:
        """The id of the run that was launched last."""
        return self.instance.get_runs(limit=1)[0].run_id

    def marks(self, *datasets: str) -> list[dict[str, Any]]:
        with open_ledger(self.settings.ledger) as ledger:
            return [*ledger.marks.table(datasets or None).to_pylist()]

    def reports(self, since: date = DAY) -> list[dict[str, Any]]:
        """Reports of datasets from a day on."""
        with open_ledger(self.settings.ledger) as ledger:
            return [{**row} for day in ledger.reports.days() if day >= since for row in ledger.reports.of(day)]

    def deleted(self, since: date = DAY) -> int:
        return sum(row["deleted"] for row in self.reports(since))

    def fault(self) -> tuple[str, str]:
        """The dataset that is refused, and why."""
        with open_ledger(self.settings.ledger) as ledger:
            ((dataset, fault),) = ledger.states.totals().refused.items()
        return dataset, fault

    def in_force(self) -> int:
        with open_ledger(self.settings.ledger) as ledger:
            return len(ledger.policy_book.in_force())


def marked(marks: Sequence[dict[str, Any]]) -> str:
    """Several transactions, as pages tell that they are marked."""
    return f"{len(marks)} transactions are marked ({sum(mark['bytes'] or 0 for mark in marks) / 1024:.1f} KiB)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The demonstration after three days of it, served. What is launched on its pages starts a Spark, what was before has none."""
    folder = tmp_path_factory.mktemp("site") / "demo"
    settings_file = build_environment(folder)
    settings = load_settings(settings_file)
    (folder / "dagster").mkdir(exist_ok=True)
    (folder / "dagster" / "dagster.yaml").write_text(DAGSTER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder / "dagster"))
        patch.setenv("RETENTION_CONFIG", str(settings_file))
        place_here(patch)
        with dg.DagsterInstance.get() as instance:
            instance.add_dynamic_partitions("datasets", [DATASET, "lake/raw.events", "ice/shop.orders", "lake/broken.log"])
            for as_of in RUNS:
                ran = run_job(settings, "cycle", as_of, log_level="critical")
                assert ran.said["purge_report"], ran.troubles
            with served() as url:
                yield Site(url, folder, settings, instance)


def served() -> "Serving":
    """The webserver on a port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Serving(free.getsockname()[1])


class Serving:
    """A webserver, from the line in which it says that it serves until its whole group of programs has ended."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-W", "ignore", "-m", "dagster_webserver", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--workspace", str(ROOT / "workspace.yaml")]
        self.running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=ROOT
        )
        self.reader = threading.Thread(target=lambda: list(self.running.stdout or ()), daemon=True)

    def __enter__(self) -> str:
        said = []
        for line in self.running.stdout or ():
            said.append(line)
            if "Serving dagster-webserver" in line:
                # Whoever writes into a pipe that nobody reads stops one day.
                self.reader.start()
                return self.url
        raise AssertionError(f"the webserver ended: {''.join(said)[-3000:]}")

    def __exit__(self, *_: object) -> None:
        self.running.terminate()
        # Its code server writes into the same pipe: at its end all of them have ended.
        self.reader.join()
        with self.running:
            pass


# The box of the table with a row, from that row on to the end of the window.
_TABLE = """
(() => {
  const row = [...document.querySelectorAll("td")].find(one => one.innerText.trim() === "%s");
  const table = row.closest("table").getBoundingClientRect(), y = row.getBoundingClientRect().top;
  return {x: table.left - 1, y: y + 2, width: table.width + 2, height: Math.min(table.bottom, %d) - y - 2};
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[Page]:
    """One page of a browser with a fresh profile, opened when there is something to see."""
    with browser(tmp_path_factory.mktemp("browser"), str(PROGRAM)) as opened:
        yield opened


def pictured(page: Page, name: str, height: int = HEIGHT, width: int = WIDTH, top: str = "") -> None:
    """A picture for the documents, where somebody asked for them; `top` is the row of metadata that it begins with, of which
    table alone it then is.
    """
    if PICTURES:
        page.look(width=width, height=height)
        page.rest()
        if top:
            row = f"[...document.querySelectorAll('td')].find(one => one.innerText.trim() === '{top}')"
            page.until(f"({row}).scrollIntoView({{block: 'start'}}) || true")
            page.rest()
        box = page.until(_TABLE % (top, height)) if top else None
        (Path(PICTURES) / f"{name}.png").write_bytes(page.picture(box))
        page.look()


def test_what_goes_what_went_and_what_is_broken_are_on_the_page_of_the_report(page: Page, site: Site) -> None:
    # What falls due when, what is broken, what went in seven days, by which policy and on whose order.
    page.goto(f"{site.url}/assets/purge_report")
    waiting = [mark for mark in site.marks() if mark["status"] == "MARKED"]
    due = min(mark["due_at"] for mark in waiting)
    page.see(f"{marked(waiting)}: ", f"due on {due:%-d %B %Y}", f"1 dataset is refused: {site.fault()[0]}.")
    page.see("1 check fails: log_is_sound.", f"{site.deleted(DAY - timedelta(days=6))} transactions were deleted in 7 days")
    page.see("ordered by run ", f"{DAY:%-d\u00a0%b}")
    page.rest()
    # One click: by name what goes next.
    page.click_in_row("next to go", "[Show Markdown]")
    page.see("Copy", f"{due:%Y-%m-%d %H:%M} UTC", "lake/raw.clicks", "raw-30-days")
    # Which check is broken is one click away as well.
    page.goto(f"{site.url}/asset-groups")
    page.see("transaction_log")
    page.rest()
    page.click("transaction_log")
    page.see("log_is_sound", "Failed")


def test_the_report_shows_the_day_at_once_and_its_plots_by_a_click(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/assets/purge_report")
    planned = sum(row["to_delete"] for row in site.reports())
    most = max(row["deleted"] for row in site.reports())
    page.see(f"{DAY}: {site.deleted()} of {planned} deleted", "freed (KiB)", f"{most}\u00a0deleted")
    strip = f"[...document.images].find(one => one.alt.includes('{FREED}') && one.naturalWidth > 200)"
    assert page.until(f"!!({strip})")
    pictured(page, "purge-report", 1050, 1280, top="summary")
    page.rest()
    page.click_in_row("by policy", "[Show Markdown]")
    plot = "[...document.images].find(one => one.src.includes('base64') && one.naturalWidth == 760)"
    title = page.until(f"({plot}) && ({plot}).alt")
    assert title.endswith("% by raw-30-days"), title


def test_the_page_of_the_report_stands_alone(page: Page, site: Site) -> None:
    (file,) = site.folder.glob(f"warehouse/purge_report/*/{DAY}.html")
    page.goto(file.as_uri())
    page.see(f"Retention report {DAY}", "finished", FREED, "The log:", "raw-30-days")
    page.until("document.querySelectorAll('figure svg path').length >= 2")
    ground = "getComputedStyle(document.querySelector('.plot .ground')).fill"
    assert page.until(ground) == "rgb(255, 255, 255)"
    pictured(page, "report", 1400, 1200)
    page.look("dark")
    assert page.until(ground) == "rgb(26, 33, 43)"
    page.look()


def test_verdicts_are_told_by_policy_and_say_why_with_examples(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/assets/candidate_marks")
    page.see("newly marked", "spared", "raw-30-days", "to go (KiB)", "the policy that decided")
    pictured(page, "candidate-marks", 800, 1280, top="summary")
    page.rest()
    page.click_in_row("why", "[Show Markdown]")
    page.see("Copy", "LATEST_VIEW", "readers of that branch need it")


@pytest.mark.parametrize("asset", ["transaction_log", "candidate_marks", "swept_transactions", "purge_report"])
def test_no_sentence_is_cut_on_a_narrow_page(asset: str, page: Page, site: Site) -> None:
    """A page is as wide as its widest word: one that does not fit would hide the end of every line."""
    page.look(width=1280)
    page.goto(f"{site.url}/assets/{asset}")
    page.see("summary", "data")
    page.rest()
    cell = "[...document.querySelectorAll('td')].find(one => one.innerText.trim() === 'summary').nextElementSibling"
    assert page.until(f"({cell}.parentElement.getBoundingClientRect().right <= window.innerWidth - 270) || 'cut'") is True
    page.look()


def test_a_dataset_says_what_waits_of_it_and_a_refused_one_why(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/assets/candidate_marks?view=partitions&partition=lake/raw.events")
    # It was judged before the last sweep, and after the one before.
    judged = [mark for mark in site.marks("lake/raw.events") if mark["due_at"] > RUNS[-2]]
    due = sum(mark["due_at"] <= RUNS[-1] for mark in judged)
    page.see(
        "Materialized",
        f"{marked(judged)}: {due} due now",
        "This transaction has been scheduled for deletion. Policy 'raw-30-days' selects it.",
        "marked (KiB)",
    )
    dataset, fault = site.fault()
    page.goto(f"{site.url}/assets/candidate_marks?view=partitions&partition={dataset}")
    page.see("Failed (0)", f"Refused: {fault[:1].upper()}{fault[1:]}.", "The check log_is_sound fails meanwhile.")
    pictured(page, "refused-dataset", 620, 1280)
    assert not site.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))


@pytest.mark.parametrize(
    ("asset", "texts"),
    [
        ("transaction_log", ("{fault[0]}", "{fault[1]}", "largest", "parents before")),
        ("branch_views", ("in latest views", "protected by a branch or tag", "all branches")),
        ("swept_transactions", ("{deleted} deleted", "freed (KiB)", "Ordered by", "by dataset")),
        ("retention_policies", ("{in_force} policies are in force.", "changed by a person")),
    ],
)
def test_each_asset_shows_what_matters_of_it(asset: str, texts: tuple[str, ...], page: Page, site: Site) -> None:
    page.goto(f"{site.url}/assets/{asset}")
    known = {"fault": site.fault(), "deleted": site.deleted(), "in_force": site.in_force()}
    page.see("Latest materialization", *(text.format_map(known) for text in texts))


def test_all_assets_of_one_dataset_are_materialized_from_the_graph(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/asset-groups")
    page.see("retention_policies", "transaction_log", "branch_views", "candidate_marks", "swept_transactions", "purge_report")
    page.click("Materialize all (6)…")
    page.see("Launch runs to materialize 6 assets")
    page.rest()
    page.click("Select a partition or create one")
    page.click(DATASET)
    page.see("Launch 1 run")
    page.press("Escape", 27)
    page.rest()
    pictured(page, "one-dataset", 780)
    page.click("Launch 1 run")
    page.see("Launched run")
    run = site.newest_run()
    page.goto(f"{site.url}/runs/{run}")
    page.see("Success", seconds=PATIENCE)
    assert site.instance.get_materialized_partitions(dg.AssetKey("swept_transactions")) >= {DATASET}
    page.goto(f"{site.url}/assets/swept_transactions?view=partitions&partition={DATASET}")
    page.see(DATASET, "Last sweep on")


def test_checks_are_executed_from_their_page(page: Page, site: Site) -> None:
    before = site.newest_run()
    page.goto(f"{site.url}/assets/swept_transactions?view=checks")
    page.see("nothing_is_swept_before_it_is_due", "Nothing was deleted in its grace.", "nothing_is_swept_without_a_mark")
    page.rest()
    page.click("Execute all")
    page.see("Launched run")
    run = site.newest_run()
    assert run != before
    page.goto(f"{site.url}/runs/{run}")
    page.see("Success", seconds=PATIENCE)
    page.goto(f"{site.url}/assets/swept_transactions?view=checks")
    page.see("Passed", "expected", "Every swept mark was planned after its grace was over.")


def test_what_is_sick_is_red_on_the_page_of_the_checks_with_since_when(page: Page, site: Site) -> None:
    """The demonstration has a dataset that is refused; its stores answer."""
    page.goto(f"{site.url}/assets/transaction_log?view=checks")
    page.see("stores_are_reachable", "Succeeded", "log_is_sound", "Failed", "This is a non-blocking asset check.")
    dataset, fault = site.fault()
    page.see(f"{dataset}: {fault}, since {RUNS[0]:%Y-%m-%d %H:%M} UTC", "offending_datasets", f"{RUNS[0]:%Y-%m-%dT%H:%M:%SZ}")
    pictured(page, "checks", 780)


def test_a_mark_is_taken_back_in_the_launchpad(page: Page, site: Site) -> None:
    with open_ledger(site.settings.ledger) as ledger:
        mark = ledger.marks.table(["lake/raw.events", "lake/raw.clicks"], ["MARKED"]).slice(0, 1).to_pylist()[0]
    page.goto(f"{site.url}/locations/retention_assets/jobs/act_unmark/playground")
    page.see("Reason for the record.", "Scaffold missing config")
    page.click_on(".CodeMirror-lines")
    said = f"{{actor: ann, dataset: '{mark['dataset']}', reason: still needed, transactions: ['{mark['transaction']}']}}"
    page.write(said)
    page.see("No errors")
    pictured(page, "launchpad", 720)
    page.click("Launch Run")
    page.until("location.pathname.startsWith('/runs/')")
    page.see("Success", seconds=PATIENCE)
    with open_ledger(site.settings.ledger) as ledger:
        (story,) = ledger.histories.of(mark["dataset"], [mark["transaction"]])[mark["transaction"]][-1:]
    assert (story.status, story.changed_by, story.why) == ("UNMARKED", f"ann (run {site.newest_run()})", "still needed")


def run_what_was_launched(home: str, settings: str) -> None:
    """Do as Dagster's daemon would, which does not run beside these pages."""
    os.environ.update(DAGSTER_HOME=home, RETENTION_CONFIG=settings)
    reference = InstanceRef.from_dir(home, overrides=LAUNCHED_HERE)
    with (
        pytest.MonkeyPatch.context() as patch,
        dg.DagsterInstance.from_ref(reference) as instance,
        workspace_of(instance) as workspace,
    ):
        place_here(patch)
        run_backfills(workspace)


def test_all_partitions_of_all_assets_are_one_run(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/asset-groups")
    page.see("retention_policies", "purge_report")
    page.click("Materialize all (6)…")
    page.see("Launch runs to materialize 6 assets")
    page.rest()
    page.click("All")
    page.click("Launch backfill")
    page.see("Created backfill")
    (backfill,) = site.instance.get_backfills()
    home, settings = str(site.folder / "dagster"), os.environ["RETENTION_CONFIG"]
    program = forking().Process(target=run_what_was_launched, args=(home, settings))
    program.start()
    program.join()
    assert program.exitcode == 0
    (run,) = site.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill.backfill_id}))
    page.goto(f"{site.url}/runs/{run.run_id}")
    page.see("Success", "6 assets", "15 checks", "retention")
    pictured(page, "run-of-all-datasets", 620, 1280)
    page.goto(f"{site.url}/assets/candidate_marks")
    page.see("all partitions of the run", "all: newly marked")
    pictured(page, "page-of-all-datasets", 700, 1280, top="all partitions of the run")
    page.goto(f"{site.url}/assets/purge_report")
    # Another run swept on this day, and whichever has the smaller id is named first.
    page.see("ordered by run", f"run {run.run_id[:8]}")


@pytest.mark.skipif(not PICTURES, reason="it is there for its picture")
def test_a_sound_environment_is_green(page: Page, site: Site) -> None:
    """The last one: it mends the dataset that is refused."""
    log = site.folder / "log" / "log.jsonl"
    log.write_text(log.read_text().replace('"transaction": "A2", "parent": "A9"', '"transaction": "A2", "parent": "A1"'))
    assert not run_job(site.settings, "cycle", now() + timedelta(days=1), log_level="critical").troubles
    page.look(width=1720, height=800)
    page.goto(f"{site.url}/asset-groups")
    page.see("retention_policies", "purge_report")
    page.rest(2000)
    # Without the lists beside the graph its names can be read at the width of a document.
    (Path(str(PICTURES)) / "asset-graph.png").write_bytes(page.picture(page.until(_GRAPH)))
    page.look()


# The box around all nodes of the graph.
_GRAPH = """
(() => {
  const boxes = [...document.querySelectorAll("foreignObject")].map(one => one.getBoundingClientRect()).filter(box => box.width);
  if (boxes.length < 10) return null;
  const x = Math.min(...boxes.map(box => box.left)) - 5, y = Math.min(...boxes.map(box => box.top)) - 5;
  return {x: x, y: y, width: Math.max(...boxes.map(box => box.right)) + 5 - x, height: Math.max(...boxes.map(box => box.bottom)) + 5 - y};
})()
"""

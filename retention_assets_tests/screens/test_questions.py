"""The four questions in a real browser: what goes next, why is it kept or marked, what happened, and keep it for good.

Belongs here: that a person who knows a job's name gets the answer by clicking, and types no more than names and a reason. What
the answers say in every case is dagster/test_questions.py's. With RETENTION_PICTURES the pages are written there as pictures.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import dagster as dg
import pytest

from retention_assets_tests.screens.browser import Page, browser, chromium
from retention_assets_tests.screens.test_screens import DAGSTER, PATIENCE, PROGRAM, pictured, served
from retention_assets_tests.sweep.lakes import DUE, Lake

pytestmark = [
    pytest.mark.screen,
    pytest.mark.long,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here; .ci/chromium installs it where that is possible"),
]

EVENTS = "main: T1:SNAPSHOT@90d=3000000 - T2:SNAPSHOT@80d=5000000 - T3:SNAPSHOT@32d=7000000 - T4:SNAPSHOT@1d=9000000"
CLICKS = "main: C1:SNAPSHOT@70d=800000 - C2:SNAPSHOT@1d=900000"


@dataclass(frozen=True)
class Served:
    """A lake whose Dagster has pages."""

    lake: Lake
    url: str

    def launchpad(self, job: str) -> str:
        """Where a job is launched."""
        return f"{self.url}/locations/retention_assets/jobs/{job}/playground"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Four transactions of two datasets are marked. Nothing of it has needed Spark."""
    folder = tmp_path_factory.mktemp("questions")
    lake = Lake(folder / "lake").has(EVENTS, "lake/raw.events").has(CLICKS, "lake/raw.clicks")
    lake.configures(dagster={"jobs": "all"})
    assert lake.marks() == 4
    home = folder / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(home))
        patch.setenv("RETENTION_CONFIG", str(lake.settings_file))
        with dg.DagsterInstance.get(), served() as url:
            yield Served(lake, url)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, site: Served) -> Iterator[Page]:
    """One page of a browser with a fresh profile."""
    with browser(tmp_path_factory.mktemp("browser"), str(chromium())) as opened:
        yield opened


def launch(page: Page, site: Served, job: str, said: Mapping[str, object] | None = None) -> None:
    """Launch a job from its launchpad, or the one that is open, with what a person types into the form; and open the answer of its run."""
    if job:
        page.goto(site.launchpad(job))
    page.see("CONFIG ACTIONS")
    page.rest()
    if said is not None:
        page.click_on(".CodeMirror-lines")
        # One line after the other: a newline would be indented by the editor.
        page.write(json.dumps(said))
        page.rest()
        page.see("No errors")
    page.click("Launch Run")
    page.until("location.pathname.startsWith('/runs/')")
    page.see("Success", seconds=PATIENCE)
    page.rest()
    page.click("[Show Markdown]")
    page.see("Copy")
    page.rest()


def test_what_goes_next_is_answered_by_one_click(page: Page, site: Served) -> None:
    launch(page, site, "look_upcoming")
    page.see("In 8 days: 0 marked, 4 deleted (224", "0 spared.")
    page.see("lake/raw.events", "lake/raw.clicks", "2026-04-07")
    pictured(page, "question-upcoming", 720, 1280)


def test_the_form_shows_what_there_is_to_fill_in(page: Page, site: Served) -> None:
    """What can be left out stands in it from the beginning; what is missing is named, and comes by two clicks."""
    page.goto(site.launchpad("act_keep"))
    page.see("actor: ''", "name: ''", "transactions: []", "until: ''", "Missing required config entries ['dataset', 'reason']")
    page.rest()
    page.click("Scaffold missing config")
    page.rest()
    page.click("Confirm")
    page.see("dataset: ''", "reason: ''", "No errors")
    page.see("A dataset, as store/name, such as lake/raw.events.", "retention/kind: act")
    pictured(page, "question-form", 720, 1280)


def test_why_it_is_marked_is_answered_in_the_words_that_never_change(page: Page, site: Served) -> None:
    """From the list of jobs by six clicks, of which one is into the form."""
    page.goto(f"{site.url}/jobs")
    page.see("look_explain", "act_keep", "delete_sweep")
    page.rest()
    page.clicks = 0
    page.click("look_explain")
    page.see("Launchpad")
    page.rest()
    page.click("Launchpad")
    launch(page, site, "", {"dataset": "lake/raw.events", "transaction": "T3"})
    assert page.clicks <= 6
    page.see("T3 of lake/raw.events: This transaction has been scheduled for deletion.", "It is due at 2026-04-07 12:00 UTC")
    page.see(
        "retention keep lake/raw.events T3 --reason …", "nothing protects it: it is marked, and swept when its grace is over."
    )
    pictured(page, "question-explain", 720, 1280)


def test_a_mistyped_name_is_answered_with_those_that_are_near(page: Page, site: Served) -> None:
    page.goto(site.launchpad("look_explain"))
    page.see("CONFIG ACTIONS")
    page.rest()
    page.click_on(".CodeMirror-lines")
    page.write('{"dataset": "evnts"}')
    page.rest()
    page.click("Launch Run")
    page.until("location.pathname.startsWith('/runs/')")
    page.see(
        "Failure", "the settings have no store named evnts (found 'evnts'). Did you mean lake/raw.events", seconds=PATIENCE
    )


def test_what_is_kept_for_good_is_told_with_what_comes_next(page: Page, site: Served) -> None:
    said = {"dataset": "lake/raw.events", "transactions": ["T3"], "reason": "still needed", "actor": "ann"}
    launch(page, site, "act_keep", said)
    page.see("1 transaction of lake/raw.events is kept until the hold is released.", "1 mark was taken back.")
    page.see("The hold keep-lake/raw.events-T3 was placed", "retention release keep-lake/raw.events-T3 --reason …")
    pictured(page, "question-keep", 620, 1280)
    assert site.lake.marks() == 0
    site.lake.sweeps(DUE)
    assert site.lake.there("lake/raw.events") == {"T3", "T4"}


def test_what_happened_is_answered_after_it(page: Page, site: Served) -> None:
    launch(page, site, "look_history", {"dataset": "lake/raw.events"})
    page.see("lake/raw.events: 2 deleted, 1 taken back, 1 never marked.", "Transaction data has been deleted.")
    page.see("): still needed; held by keep-lake/raw.events-T3")


def test_the_hold_is_placed_by_the_form(page: Page, site: Served) -> None:
    said = {"name": "audit-2026", "datasets": ["lake/raw.*"], "reason": "the audit", "actor": "ann"}
    launch(page, site, "act_hold", said)
    page.see("The hold audit-2026 is placed.", "retention release audit-2026 --reason … ends it.")
    with site.lake.opened() as ledger:
        assert [one.name for one in ledger.holds.recorded(DUE).placed] == ["audit-2026", "keep-lake/raw.events-T3"]


def test_runs_are_told_apart_by_what_they_do(page: Page, site: Served) -> None:
    page.goto(f"{site.url}/runs")
    page.see("upcoming", "retention/kind: look", "retention/kind: act")

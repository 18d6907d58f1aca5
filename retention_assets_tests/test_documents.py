"""The documents against the code: links, anchors, paths, commands and settings that a page names are there."""

import importlib.util
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from retention_assets.definitions import build_defs
from retention_assets.settings import Settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
# Where paths begin that pages name: the root, the package, and the tests (sweep.md).
BASES = (ROOT, ROOT / "retention_assets", ROOT / "retention_assets_tests")

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
# The changelog names what there was, and has the same headings for each version.
by_page_of_today = pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != "CHANGELOG"], ids=lambda page: str(page.relative_to(ROOT))
)


def prose_of(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs both make them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def links_of(page: Path) -> Iterator[tuple[str, str]]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if not re.match(r"https?://", target):
            file, _, anchor = target.partition("#")
            yield file, anchor


@by_page
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for file, anchor in links_of(page):
        target = (page.parent / file).resolve() if file else page
        if not target.is_file() or (anchor and anchor not in anchors_of(target)):
            lost.append(f"{file}#{anchor}")
    assert lost == []


@by_page_of_today
def test_headings_have_one_anchor_wherever_they_are_read(page: Path) -> None:
    """GitHub and MkDocs differ in runs of spaces and in headings that are there twice."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), flags=re.MULTILINE)
    assert len(anchors_of(page)) == len(headings)
    assert [heading for heading in headings if re.search(r" [^\w\s`]+ ", heading)] == []


@by_page_of_today
def test_every_path_that_is_named_is_there(page: Path) -> None:
    named = re.findall(r"`((?:[\w.*]+/)+[\w.*-]*)`", page.read_text("utf-8"))
    known = {name.partition("/")[0] for base in BASES for name in (entry.name for entry in base.iterdir())}
    # Made by runs and by `make test`.
    ours = [path for path in named if path.partition("/")[0] in known - {".retention", ".venv"}]
    assert [path for path in ours if not any(list(base.glob(path.rstrip("/"))) for base in BASES)] == []


def test_the_tree_of_the_architecture_is_the_tree() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    block = page.partition("```text\nretention_assets/\n")[2].partition("```")[0]
    named = {name for line in block.splitlines() for name in re.findall(r"^  ([\w.]+)/? ", line)}
    package = ROOT / "retention_assets"
    there = {entry.name for entry in package.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").exists()}
    assert named == there


def test_every_job_that_is_named_is_there() -> None:
    """In documents, and in what the package says to people."""
    jobs = set(build_defs(Settings.model_validate({"dagster": {"jobs": "all"}})).get_repository_def().job_names)
    pages = [page for page in PAGES if page.stem not in ("CHANGELOG", "ARCHITECTURE")]
    texts = [file.read_text("utf-8") for file in (*pages, *(ROOT / "retention_assets").rglob("*.py"))]
    named = {job for text in texts for job in re.findall(r"(?:job|launch) `(\w+)`|`((?:look|act|delete)_\w+)`", text)}
    assert {"act_keep", "delete_cycle", "look_preview"} <= (names := {"".join(job) for job in named})
    assert names - jobs == set()


def test_the_page_of_commands_is_that_of_the_command_line() -> None:
    # To bring it up to date: make docs
    page = runpy.run_path(str(DOCS / "generate_commands.py"))["page"]
    assert (DOCS / "commands.md").read_text("utf-8") == page()


def keys_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys_of(inner, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def test_the_page_of_settings_has_every_key() -> None:
    table = (DOCS / "settings.md").read_text("utf-8")
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = set()
    for row in rows:
        first, *others = re.findall(r"`([\w.]+)`", row)
        named |= {first, *(f"{first.partition('.')[0]}{other}" if other.startswith(".") else other for other in others)}
    assert named == set(keys_of(Settings))
    sample = (ROOT / "retention.yaml").read_text("utf-8")
    assert [key for key in named if f"{key.rpartition('.')[2]}:" not in sample] == []


@pytest.mark.program
@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="the extra docs is not installed")
def test_the_site_is_built_without_a_fault_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    # Not --quiet: it would silence the very warnings that --strict counts.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = {page: page.read_text("utf-8") for page in tmp_path.rglob("*.html")}
    assert tmp_path / "decisions" / "index.html" in pages
    # A drawing of Mermaid has the theme load a script; links are for people to follow.
    loads = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*|class=\"mermaid\"")
    assert [(page.name, loads.findall(text)) for page, text in pages.items() if loads.search(text)] == []
    styles = "".join(style.read_text("utf-8") for style in tmp_path.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//[^)]*", styles) == []

"""Kinds of store that other packages bring: found when they are named, and harmless to others when they are broken."""

import subprocess
import sys
from pathlib import Path

import pytest

from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.settings import Settings, load_settings
from retention_assets.stores.registry import BUILT_IN, GROUP, kind_named, known_kinds, open_store

# What a package outside would write: a place, a URL and a key of its own, with the base's strictness.
LANCE = """
from typing import Literal
from retention_assets.settings.places import DatabaseUrl, Location
from retention_assets.stores.registry import StoreKind
from retention_assets.stores.settings import StoreSettings

class LanceSettings(StoreSettings):
    kind: Literal["lance"] = "lance"
    root: Location
    index: DatabaseUrl = "sqlite:///index.db"
    depth: int = 3

KIND = StoreKind("lance", LanceSettings, lambda settings: None)
"""
# Its name in the entry point and in the class differ.
MISNAMED = LANCE.replace('StoreKind("lance"', 'StoreKind("lnce"')
SHADOWING = LANCE.replace('StoreKind("lance"', 'StoreKind("files"')
NO_KIND = "KIND = 'a string'"
NO_SETTINGS = "from retention_assets.stores.registry import StoreKind\nKIND = StoreKind('lance', dict, lambda settings: None)"
BROKEN = "raise RuntimeError('no licence')"
MISSING = "import a_driver_that_is_not_installed"

STORE = "stores: [{name: l, kind: lance, root: data%s}]"
LAKE = 'stores: [{name: lake, kind: files, log: log, data: "data/{dataset}/{transaction}"}]'


class Site:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def install(self, package: str, source: str, kind: str = "lance") -> str:
        module = f"{package.replace('-', '_')}_{abs(hash(self.folder))}"
        info = self.folder / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{kind} = {module}:KIND\n")
        (self.folder / f"{module}.py").write_text(source)
        return module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(made.folder)
    return made


def read(folder: Path, text: str) -> Settings:
    (folder / "retention.yaml").write_text(text)
    return load_settings(folder / "retention.yaml", {})


def problem(folder: Path, text: str) -> Problem:
    with pytest.raises(BadInput) as caught:
        read(folder, text)
    (found,) = caught.value.problems
    return found


def test_a_package_brings_a_kind(tmp_path: Path, site: Site) -> None:
    site.install("retention-lance", LANCE)
    settings = read(tmp_path, STORE % "")
    assert settings.kind_of("l") == "lance"
    assert settings.stores[0].model_dump() == {
        "name": "l", "kind": "lance", "root": f"{tmp_path}/data", "index": f"sqlite:///{tmp_path}/index.db", "depth": 3,
        "realm": None,
    }  # fmt: skip


def test_the_keys_of_a_kind_from_a_package_are_checked_like_any_other(tmp_path: Path, site: Site) -> None:
    site.install("retention-lance", LANCE)
    found = problem(tmp_path, STORE % ", dept: 4")
    assert (found.key, found.line, found.remedy) == ("stores[0].dept", 1, "Did you mean depth?")


def test_an_unknown_kind_is_answered_with_the_kinds_of_packages_too(tmp_path: Path, site: Site) -> None:
    module = site.install("retention-lance", BROKEN)
    found = problem(tmp_path, "stores: [{name: l, kind: lanse}]")
    assert (found.expected, found.remedy) == (
        "one of files, iceberg, delta, aspects, records, objects, lance",
        "Did you mean lance?",
    )
    assert module not in sys.modules  # only its name was read


@pytest.mark.parametrize(
    ("source", "what"),
    [
        pytest.param(BROKEN, "which cannot be loaded: RuntimeError: no licence", id="raises when imported"),
        pytest.param(MISSING, "which cannot be loaded: ModuleNotFoundError: No module named", id="lacks a driver"),
        pytest.param("", "which cannot be loaded: AttributeError", id="has no such attribute"),
        pytest.param("def", "which cannot be loaded: SyntaxError", id="is no Python"),
        pytest.param(NO_KIND, "which is no StoreKind", id="is something else"),
        pytest.param(NO_SETTINGS, "which is no StoreKind", id="has settings of another make"),
        pytest.param(MISNAMED, "which calls itself lnce", id="has another name than its entry point"),
        pytest.param(SHADOWING, "which calls itself files, a built-in kind", id="poses as a built-in kind"),
    ],
)
def test_a_broken_package_is_named(tmp_path: Path, site: Site, source: str, what: str) -> None:
    module = site.install("retention-lance", source)
    found = problem(tmp_path, STORE % "")
    assert found.what.startswith(f"is brought by retention-lance ({module}:KIND), {what}")
    assert (found.key, found.value, found.line) == ("stores[0].kind", "'lance'", 1)
    assert found.expected == f"a StoreKind named lance at {module}:KIND"
    assert found.remedy == "Mend or uninstall the package retention-lance."


# As a package wrote it for release 0.2.0, where `Store` was a protocol.
OLD = """
from retention_assets.stores.protocol import Capabilities, Only

class LanceStore:
    capabilities = Capabilities(undo=True)
"""
PORT = "Derive its class from Store of retention_assets.stores.protocol, as docs/stores/your-own.md says for each protocol and capability"


def test_a_kind_written_for_an_earlier_release_is_told_where_to_change_what(tmp_path: Path, site: Site) -> None:
    module = site.install("retention-lance", f"{OLD}{LANCE}")
    found = problem(tmp_path, STORE % "")
    assert found.what == (
        f"is brought by retention-lance ({module}:KIND), which was written for another version of retention_assets: "
        f"{site.folder}/{module}.py:2 has 'from retention_assets.stores.protocol import Capabilities, Only'"
    )
    assert found.remedy == f"{PORT}, or install a newer package."


@pytest.mark.parametrize(
    ("store", "what"),
    [
        pytest.param(OLD, "another version of retention_assets: {old}:2 has 'from retention_assets", id="asks for old names"),
        pytest.param(
            "class LanceStore:\n    def __init__(self, _): ...", "0.2.0 or earlier: {name}.LanceStore is", id="is no Store"
        ),
    ],
)
def test_a_store_written_for_an_earlier_release_is_told_once_it_is_opened(
    tmp_path: Path, site: Site, store: str, what: str
) -> None:
    old = site.folder / f"old_{site.folder.parent.name}.py"
    old.write_text(store)
    opener = LANCE.replace("lambda settings: None", f"opens('{old.stem}:LanceStore')").replace(
        "import StoreKind", "import StoreKind, opens"
    )
    site.install("retention-lance", opener)
    (lance,) = read(tmp_path, STORE % "").stores
    with pytest.raises(Refused) as refusal:
        open_store(lance)
    assert what.format(old=old, name=old.stem) in str(refusal.value)
    assert str(refusal.value).endswith(f"{PORT}, or install a newer package.")


def test_a_driver_that_is_missing_is_no_earlier_release(tmp_path: Path, site: Site) -> None:
    opener = LANCE.replace("lambda settings: None", "opens('a_driver_that_is_not_installed:Lance')")
    site.install("retention-lance", opener.replace("import StoreKind", "import StoreKind, opens"))
    (lance,) = read(tmp_path, STORE % "").stores
    with pytest.raises(ModuleNotFoundError, match="a_driver_that_is_not_installed"):
        open_store(lance)


def test_a_broken_package_harms_nobody_who_does_not_use_it(tmp_path: Path, site: Site) -> None:
    broken = site.install("retention-broken", BROKEN, kind="broken")
    site.install("retention-lance", LANCE)
    assert read(tmp_path, LAKE).kind_of("lake") == "files"
    assert read(tmp_path, STORE % "").kind_of("l") == "lance"
    assert broken not in sys.modules


def test_no_package_takes_the_place_of_a_built_in_kind(tmp_path: Path, site: Site) -> None:
    """It would be handed what only the built-in one may delete."""
    module = site.install("retention-evil", SHADOWING, kind="files")
    assert type(read(tmp_path, LAKE).stores[0]) is kind_named("files").settings
    assert module not in sys.modules
    assert known_kinds().count("files") == 1


def test_two_packages_that_bring_one_kind_are_both_named(tmp_path: Path, site: Site) -> None:
    """Which of them came first on the path must not decide what deletes."""
    one, two = site.install("retention-one", LANCE), site.install("retention-two", LANCE)
    found = problem(tmp_path, STORE % "")
    assert found.what == f"is a kind that several packages provide: retention-one ({one}:KIND), retention-two ({two}:KIND)"
    assert found.remedy == "Uninstall all but one of them."
    assert not {one, two} & set(sys.modules)


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_a_built_in_kind_answers_to_its_own_name(kind: str) -> None:
    assert kind_named(kind).name == kind
    assert kind_named(kind).settings.model_fields["kind"].default == kind


@pytest.mark.program
def test_a_kind_is_imported_when_it_is_named_and_its_driver_when_a_store_is_opened() -> None:
    script = """
import subprocess
import sys
from retention_assets.settings.model import Settings
from retention_assets.stores.registry import BUILT_IN, kind_named, known_kinds

known_kinds()
print(sorted(set(BUILT_IN.values()) & sys.modules.keys()))
kind_named("iceberg")
print(sorted(set(BUILT_IN.values()) & sys.modules.keys()))
print(sorted({"pyiceberg", "retention_assets.stores.iceberg.store"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['retention_assets.stores.iceberg']", "[]"]

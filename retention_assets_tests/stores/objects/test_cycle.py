"""Objects through the whole cycle with Dagster: what is marked, what goes, and what a person is told."""

from pathlib import Path

import pytest
import yaml

from retention_assets.environment import Environment
from retention_assets.errors import BadInput
from retention_assets.people.history import explain_transaction
from retention_assets.policy import Hold
from retention_assets_tests.clocks import open_simulated
from retention_assets_tests.stores.objects.blobs import DUE, MARKED, UNREFERENCED, Blobs
from retention_assets_tests.stores.objects.environments import write_lines

pytestmark = pytest.mark.usefixtures("shared_jobs")

FIVE = ("a", "b", "deep/c", "deep/d", "é 'q\" e")


@pytest.fixture(autouse=True)
def _no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "b").has(*FIVE).refers("a", "deep/d")


@pytest.mark.parametrize("fault", ["no last line", "a wrong count", "none at all"])
def test_a_source_that_is_not_whole_marks_and_sweeps_nothing(blobs: Blobs, fault: str) -> None:
    blobs.runs(MARKED)
    before = blobs.statuses()
    blobs.has("old too", days=90)
    if fault == "none at all":
        (blobs.folder / "refs" / "a.jsonl").rename(blobs.folder / "elsewhere")
    else:
        blobs.refers("a", "deep/d", whole=fault != "no last line", count=3)
    ran = blobs.runs(DUE)
    assert ran.troubles
    assert "refs/" in " ".join(ran.troubles)
    assert blobs.statuses() == before
    assert blobs.left() == {*FIVE, "old too"}


def test_an_empty_source_is_refused_until_the_settings_say_that_it_may_be(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "b").has(*FIVE).refers()
    assert blobs.runs(MARKED).troubles
    assert blobs.statuses() == {}
    blobs.has_settings(brakes={"empty_source": "allow", "unreferenced_fraction": 1.0})
    assert blobs.runs(MARKED).troubles == ()
    assert set(blobs.statuses()) == set(FIVE)


def test_references_under_a_wrong_prefix_are_braked(tmp_path: Path) -> None:
    keys = [f"k{number}" for number in range(10)]
    blobs = Blobs(tmp_path / "b").has(*keys).refers("k0", *(f"wrong/{key}" for key in keys[1:]))
    ran = blobs.runs(MARKED)
    assert "braked" in " ".join(ran.troubles)
    assert "90 %" in " ".join(ran.troubles)
    assert blobs.statuses() == {}


def test_young_objects_and_other_kinds_are_never_marked_whatever_a_policy_says(tmp_path: Path) -> None:
    everything = "{name: all, datasets: {include: ['blobs/*']}, select: all, sweep: {every: 0s}}"
    blobs = Blobs(tmp_path / "b", {"kind_of": {"pattern": "^([a-z]+)-"}, "known_kinds": ["blob"]}, everything)
    blobs.has("blob-old", "other-old", "blob-used").has("blob-young", days=0.05).refers("blob-used")
    assert blobs.runs(MARKED).troubles == ()
    assert set(blobs.statuses()) == {"blob-old"}


def test_realms_are_datasets_and_one_without_references_is_left_alone(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "b", {"realm": "{0}", "dataset": "{realm}"}).has("r1/a", "r1/b", "r2/a", "r2/b")
    blobs.refers({"object": "r1/a", "realm": "r1"})
    assert blobs.runs(MARKED).troubles == ()
    assert set(blobs.statuses()) == {"r1/b"}


def test_edges_retain_over_circles_until_nothing_refers_to_any_of_them(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "b").has("a", "b", "c", "d", "e", "f").refers("a", "e", "f")
    leads(blobs, ("a", "b"), ("b", "c"), ("c", "a"))
    blobs.runs(MARKED)
    assert set(blobs.statuses()) == {"d"}
    blobs.has_settings(edges=[{"lines": "edges/*.jsonl"}], brakes={"references_shrink": 0.5})
    blobs.refers("e", "f")
    blobs.runs(MARKED)
    assert set(blobs.statuses()) == {"a", "b", "c", "d"}
    # One of the circle is needed again: so is the rest of it, at the door of the sweep as well.
    blobs.refers("c", "e", "f")
    blobs.runs(DUE)
    assert blobs.left() == {"a", "b", "c", "e", "f"}


# --- edges from what is kept ------------------------------------------------------------------------------------------


def leads(blobs: Blobs, *pairs: tuple[str, str]) -> None:
    write_lines(blobs.folder / "edges" / "e.jsonl", *({"from": begin, "to": end} for begin, end in pairs))
    blobs.has_settings(edges=[{"lines": "edges/*.jsonl"}], **blobs.more)


@pytest.fixture
def chunks(tmp_path: Path) -> Blobs:
    """Two old chunks, to which only a manifest leads that nothing refers to; and what makes a scan usual."""
    blobs = Blobs(tmp_path / "b").has("used", "manifest", "chunk", "deep chunk", *("a", "b", "c")).refers("used", "a", "b", "c")
    leads(blobs, ("manifest", "chunk"), ("chunk", "deep chunk"))
    return blobs


KEPT = ("chunk", "deep chunk")
HOLD = "{name: trial, datasets: ['blobs/*'], transactions: [manifest], reason: lawsuit}"
RULE = "{name: trial, datasets: ['blobs/*'], where: \"transaction = 'manifest'\", reason: lawsuit}"


def test_what_a_young_object_leads_to_is_not_marked(chunks: Blobs) -> None:
    chunks.has("manifest", days=0)
    assert chunks.runs(MARKED).troubles == ()
    assert chunks.statuses() == {}
    chunks.has("manifest", days=60)
    chunks.runs(MARKED)
    assert set(chunks.statuses()) == {"manifest", *KEPT}


def test_what_an_object_leads_to_that_became_young_is_spared_and_it_is_named(chunks: Blobs) -> None:
    chunks.runs(MARKED)
    (chunks.folder / "blobs" / "manifest").write_bytes(b"anew")
    chunks.runs(DUE)
    assert chunks.left() >= set(KEPT)
    assert {name: chunks.statuses()[name] for name in KEPT} == dict.fromkeys(KEPT, "SPARED")
    assert "edges: over the edge from manifest, which is young" in chunks.why("chunk")


@pytest.mark.parametrize("holder", ["a file", "a person", "a rule"])
def test_what_a_held_object_leads_to_is_not_marked(chunks: Blobs, holder: str) -> None:
    holds(chunks, holder)
    assert chunks.runs(MARKED).troubles == ()
    assert chunks.statuses() == {}


@pytest.mark.parametrize("holder", ["a file", "a person", "a rule"])
def test_a_hold_that_came_since_spares_what_its_object_leads_to(chunks: Blobs, holder: str) -> None:
    chunks.runs(MARKED)
    holds(chunks, holder)
    chunks.runs(DUE)
    assert chunks.left() >= {"manifest", *KEPT}
    witness = "may be kept by retain rule trial" if holder == "a rule" else "is held by trial"
    assert f"edges: over the edge from manifest, which {witness}" in chunks.why("chunk")
    assert chunks.statuses()["deep chunk"] == "SPARED"


def holds(blobs: Blobs, holder: str) -> None:
    if holder != "a person":
        blobs.says(UNREFERENCED, **({"retain": RULE} if holder == "a rule" else {"holds": HOLD}))
        return
    with open_simulated(blobs.settings.ledger) as ledger:
        ledger.holds.place(Hold.model_validate(yaml.safe_load(HOLD)), "anna")


def test_what_an_object_of_an_unknown_kind_leads_to_is_neither_marked_nor_swept(chunks: Blobs) -> None:
    kinds = {"edges": [{"lines": "edges/*.jsonl"}], "kind_of": {"pattern": "^(manifest|.*chunk|used|[a-c])$$"}}
    chunks.runs(MARKED)
    chunks.has_settings(**kinds, known_kinds=["chunk", "deep chunk", "used", "a", "b", "c"])
    chunks.runs(DUE)
    assert chunks.left() >= {"manifest", *KEPT}
    assert "which has an unknown kind" in chunks.why("chunk")
    assert set(chunks.statuses()) == {"manifest", *KEPT}


def test_an_explanation_names_the_held_object_that_leads_there(chunks: Blobs) -> None:
    chunks.runs(MARKED)
    holds(chunks, "a person")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(chunks.folder)
        explained = explain_transaction(Environment(chunks.settings), "blobs/blobs", "chunk", MARKED)
    assert "over the edge from manifest, which is held by trial" in str(explained)


def test_a_hold_of_a_file_that_is_over_keeps_nothing(chunks: Blobs) -> None:
    chunks.says(UNREFERENCED, holds=HOLD.replace("reason", "until: '2020-01-01T00:00:00Z', reason"))
    chunks.runs(MARKED)
    assert set(chunks.statuses()) == {"manifest", *KEPT}
    chunks.runs(DUE)
    assert chunks.left().isdisjoint({"manifest", *KEPT})


def test_of_a_purged_realm_what_is_held_stays_and_what_it_leads_to_goes_with_the_realm(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "b", {"realm": "{0}", "dataset": "{0}"}).has("acme/held", "acme/x", "beta/used")
    blobs.has("acme/new", days=0).refers({"object": "beta/used", "realm": "beta"})
    leads(blobs, ("acme/held", "acme/x"), ("acme/new", "acme/x"))
    blobs.says(UNREFERENCED, holds="{name: trial, datasets: ['blobs/*'], transactions: ['acme/held'], reason: lawsuit}")
    with open_simulated(blobs.settings.ledger) as ledger:
        ledger.realms.change("acme", "PURGING", "ann", "the end")
    blobs.runs(MARKED)
    blobs.runs(DUE)
    assert blobs.left() == {"acme/held", "beta/used"}


def test_a_store_of_which_all_was_swept_is_scanned_and_its_only_realm_purged(tmp_path: Path) -> None:
    """Nothing is listed then; without a sweep that explains it, that is a fault of the place."""
    blobs = Blobs(tmp_path / "b", {"realm": "{0}", "brakes": {"references_shrink": 1, "unresolved_references": 1}})
    blobs.has("acme/a", "acme/b").refers({"object": "acme/a", "realm": "acme"}).says(UNREFERENCED)
    with open_simulated(blobs.settings.ledger) as ledger:
        ledger.realms.change("acme", "PURGING", "ann", "the end")
    blobs.runs(MARKED)
    blobs.runs(DUE)
    assert blobs.left() == set()
    assert "nothing is listed" not in " ".join(blobs.runs(DUE).troubles)
    with open_simulated(blobs.settings.ledger) as ledger:
        assert ledger.realms.of("acme").status == "PURGED"


def test_objects_that_somebody_else_deleted_are_missed(blobs: Blobs) -> None:
    blobs.runs(MARKED)
    for key in FIVE:
        (blobs.folder / "blobs" / key).unlink()
    assert "nothing is listed, and the last scan had 5 objects" in " ".join(blobs.runs(MARKED).troubles)


# --- sources of which a part is gone ----------------------------------------------------------------------------------

TEN = [f"f{number}" for number in range(10)]


@pytest.fixture
def ten(tmp_path: Path) -> Blobs:
    blobs = Blobs(tmp_path / "b").has("a", "b", *TEN, *(f"m{number}" for number in range(20)))
    for name in TEN:
        blobs.refers(name, *(f"m{number}" for number in range(20) if name == "f0"), file=name)
    assert blobs.runs(MARKED).troubles == ()
    assert set(blobs.statuses()) == {"a", "b"}
    return blobs


LOST = "had 10 files or shares last time and has 9. Restore the missing ones. If they come and go, write `shards: changing`"


@pytest.mark.parametrize("job", ["cycle", "sweep"])
def test_without_a_file_of_references_nothing_is_marked_or_swept(ten: Blobs, job: str) -> None:
    ten.has("old too", days=90)
    (ten.folder / "refs" / "f3.jsonl").unlink()
    assert LOST in " ".join(ten.runs(DUE, job).troubles)
    assert ten.statuses() == {"a": "MARKED", "b": "MARKED"}
    assert ten.left() >= {"a", "b", "old too"}


def test_files_of_new_names_are_as_good(ten: Blobs) -> None:
    (ten.folder / "refs" / "f3.jsonl").rename(ten.folder / "refs" / "g3.jsonl")
    ten.refers("b", file="more")
    assert ten.runs(DUE).troubles == ()
    assert ten.left() & {"a", "b"} == {"b"}


def test_files_may_come_and_go_where_the_settings_say_so(ten: Blobs) -> None:
    ten.has_settings(references=[{"lines": "refs/*.jsonl", "shards": "changing"}])
    (ten.folder / "refs" / "f3.jsonl").unlink()
    assert ten.runs(DUE).troubles == ()
    assert ten.left() & {"a", "b"} == set()
    assert "f3" in ten.statuses()


def test_a_sweep_before_which_a_file_of_edges_went_takes_nothing(chunks: Blobs) -> None:
    (chunks.folder / "edges" / "f.jsonl").write_text('{"complete": true, "count": 0}\n')
    chunks.runs(MARKED)
    (chunks.folder / "edges" / "f.jsonl").unlink()
    assert "edges by lines" in " ".join(chunks.runs(DUE, "sweep").troubles)
    assert chunks.left() >= {"manifest", *KEPT}


def test_a_file_of_edges_that_is_gone_is_as_one_of_references(chunks: Blobs) -> None:
    (chunks.folder / "edges" / "f.jsonl").write_text('{"complete": true, "count": 0}\n')
    chunks.has("manifest", days=0)
    chunks.runs(MARKED)
    (chunks.folder / "edges" / "f.jsonl").unlink()
    assert "edges by lines" in " ".join(chunks.runs(MARKED).troubles)
    assert chunks.statuses() == {}


def test_where_nothing_refers_to_objects_age_alone_decides(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "b", {"references": "none"}).has(*FIVE).has("new", days=9)
    assert blobs.runs(MARKED).troubles == ()
    assert set(blobs.statuses()) == set(FIVE)
    assert blobs.runs(DUE).troubles == ()
    assert blobs.left() == {"new"}


def test_where_nothing_refers_to_objects_with_realms_age_alone_decides_too(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "b", {"references": "none", "realm": "{0}", "dataset": "{0}"}).has("acme/x", "beta/y")
    blobs.runs(MARKED)
    assert set(blobs.statuses()) == {"acme/x", "beta/y"}


@pytest.mark.parametrize("said", ["nobody", [], ["none"], ["none", {"lines": "refs/*.jsonl"}], None])
def test_nothing_else_says_that_nothing_refers_to_objects(tmp_path: Path, said: object) -> None:
    with pytest.raises(BadInput, match="references"):
        _ = Blobs(tmp_path / "b", {"references": said}).settings

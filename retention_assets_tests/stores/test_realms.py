"""Realms that settings give to datasets: the same wherever a log is read, whatever the kind of store."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from retention_assets.datasets import DatasetFilter
from retention_assets.errors import Refused
from retention_assets.evaluation.changes import list_datasets
from retention_assets.evaluation.dataset_log import read_from
from retention_assets.frames import Log, sound_log
from retention_assets.outcomes import Outcome
from retention_assets.pipeline.read_tokens import read_tokens, write_tokens
from retention_assets.pipeline.stage import Source
from retention_assets.stores.aspects import AspectsSettings
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.files import FilesSettings
from retention_assets.stores.iceberg import IcebergSettings
from retention_assets.stores.logs import choose_datasets, read_lines, read_share, tokens_of
from retention_assets.stores.protocol import Store, Target
from retention_assets.stores.records import RecordsSettings
from retention_assets.stores.registry import StoreKind, open_store
from retention_assets.stores.settings import StoreSettings
from retention_assets.sweep import read_fresh
from retention_assets_tests.stores.records.environments import Units
from retention_assets_tests.stores.toy import ToySettings, ToyStore
from retention_assets_tests.sweep.lakes import Lake

ONE = "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d"


def given(tmp_path: Path, realm: Any, own: dict[str, str] | None = None) -> Store:
    lake = Lake(tmp_path / "lake")
    for name in ("acme.raw", "acme-eu.raw", "other"):
        lake.has(ONE, f"lake/{name}")
        if own and name in own:
            lake._log(f"lake/{name}", [json.dumps({"dataset": f"lake/{name}", "realm": own[name]})])
    settings = json.loads(lake.settings_file.read_text())
    settings["stores"][0] |= {"realm": realm} if realm else {}
    lake.settings_file.write_text(json.dumps(settings))
    return lake.stores["lake"]


def realms_of(log: Log) -> dict[str, str | None]:
    return {
        row["dataset"]: row["fault"] or dict(row["attributes"] or ()).get("realm") for row in log.datasets.to_pylist()
    }  # fmt: skip


def read_everywhere(store: Store) -> list[dict[str, str | None]]:
    names = store.datasets()
    alone: dict[str, str | None] = {}
    for name in names:
        try:
            log = read_from(store, name)
        except Refused as fault:
            alone[name] = str(fault)
        else:
            alone |= realms_of(log) if log else {}
    (chosen,) = choose_datasets([store], DatasetFilter())
    return [
        realms_of(sound_log(read_lines(store, names))), realms_of(read_share(store, chosen.datasets)),
        realms_of(read_fresh(store, names).log), realms_of(sound_log(read_lines(RecordingStore(store), names))),
        alone,
    ]  # fmt: skip


CASES: dict[str, tuple[Any, dict[str, str], list[str | None]]] = {
    "none": (None, {}, [None, None, None]),
    "the whole store": ("acme", {}, ["acme", "acme", "acme"]),
    "a catalog": ("acme/sales", {}, ["acme/sales", "acme/sales", "acme/sales"]),
    "a pattern": ({"pattern": r"^([\w-]+)\."}, {}, ["acme", "acme-eu", None]),
    "a group that takes no part": ({"pattern": r"^other|^(acme)\."}, {}, ["acme", None, None]),
    "what a log says itself wins": ("acme", {"other": "acme/own"}, ["acme", "acme", "acme/own"]),
    "the settings say nothing of it": ({"pattern": r"^(acme)\."}, {"other": "mine"}, ["acme", None, "mine"]),
    "the system's": ("::system::", {}, ["::system::", "::system::", "::system::"]),
}


@pytest.mark.parametrize(("realm", "own", "expected"), CASES.values(), ids=CASES)
def test_a_dataset_has_one_realm(tmp_path: Path, realm: Any, own: dict[str, str], expected: list[str | None]) -> None:
    names = ("lake/acme.raw", "lake/acme-eu.raw", "lake/other")
    for found in read_everywhere(given(tmp_path, realm, own)):
        assert [found[name] for name in names] == expected


def test_two_realms_of_one_dataset_are_a_fault_of_it_alone(tmp_path: Path) -> None:
    for found in read_everywhere(given(tmp_path, "acme", {"other": "acme-eu"})):
        assert "its log has the realm acme-eu, but the settings have acme" in (found.pop("lake/other") or "")
        assert set(found.values()) == {"acme"}


def test_a_name_that_gives_no_name_of_a_realm_is_a_fault(tmp_path: Path) -> None:
    found = read_everywhere(given(tmp_path, {"pattern": r"^(other|\W*)"}))[0]
    assert found["lake/other"] == "other"
    assert "which is no name of a realm: letters, digits" in (found["lake/acme.raw"] or "")


def with_realms(units: Units) -> Store:
    settings = {**units.settings, "url": units.store().settings.url, "realm": {"column": "kind"}}
    return open_store(RecordsSettings.model_validate(settings))


def test_each_realm_of_a_column_is_a_dataset(units: Units) -> None:
    units.has("a", kind="acme").has("A", kind="ACME").has("b", kind="acme/sales", closed=None).has("c").has("d", kind="")
    store, root = with_realms(units), units.dataset
    names = store.datasets()
    assert names == [root, f"{root}/ACME", f"{root}/acme", f"{root}/acme/sales"]
    assert realms_of(sound_log(read_lines(store, names))) == {
        root: None, f"{root}/ACME": "ACME", f"{root}/acme": "acme", f"{root}/acme/sales": "acme/sales",
    }  # fmt: skip
    for name, keys in zip(names, (["c", "d"], ["A"], ["a"], ["b"]), strict=True):
        alone = sound_log(read_lines(store, [name])).transactions
        assert alone["dataset"].cast("string").unique().to_pylist() == [name]
        assert sorted(alone["transaction"].to_pylist()) == keys
    before = store.tokens(names)
    assert before.keys() == set(names)
    units.has("e", kind="acme")
    assert [name for name in names if store.tokens(names)[name] != before[name]] == [f"{root}/acme"]


def test_rows_that_name_no_realm_refuse_the_dataset_without_one(units: Units) -> None:
    units.has("a", kind="acme").has("b", kind="a b").has("c")
    store = with_realms(units)
    found = realms_of(sound_log(read_lines(store, store.datasets())))
    assert found.pop(f"{units.dataset}/acme") == "acme"
    assert "the realm column holds 'a b', which is not a valid name" in (found.pop(units.dataset) or "")
    assert not found


def test_a_row_that_moves_to_another_realm_is_not_swept_with_the_first(units: Units) -> None:
    units.has("a", kind="acme").has("b", kind="acme")
    store = with_realms(units)
    dataset = f"{units.dataset}/acme"
    units.becomes("a", kind="beta")
    planned = store.prepare(dataset, ["a", "b"])
    assert [one.note is not None for one in planned] == [False, True]
    units.becomes("b", kind="beta")
    swept = store.sweep(dataset, [Target(one.transaction, note=one.note) for one in planned], 1)
    assert {one.outcome for one in swept} == {Outcome.SPARED}
    assert "realm was acme and is beta now" in (swept[1].error or "")
    assert units.there() == ["a", "b"]


class Logged(ToyStore):
    def tokens(self, datasets: Sequence[str]) -> dict[str, str]:
        return {name: "t" for name in datasets if name != "s/gone"}


KINDS: dict[str, tuple[type[StoreSettings], dict[str, Any]]] = {
    "files": (FilesSettings, {"log": "/l", "data": "/d/{dataset}/{transaction}"}),
    "iceberg": (IcebergSettings, {"catalog": {"uri": "x"}}),
    "aspects": (AspectsSettings, {"url": "postgresql://h/d"}),
    "records": (RecordsSettings, {"url": "postgresql://h/d", "root": {"table": "u", "key": "i", "opened_at": "a", "closed_at": "b"}}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_another_realm_by_the_settings_is_another_log_of_those_datasets_alone(kind: str) -> None:
    """So the next run reads them anew."""
    made, keys = KINDS[kind]

    def tokens(realm: Any) -> Mapping[str, str]:
        said = {"name": "s", **keys, **({"realm": realm} if realm else {})}
        store: Any = Logged(made.model_validate(said, context={"folder": Path("/")}))
        return tokens_of(store, ["s/acme.a", "s/b", "s/gone"])

    assert tokens(None) == {"s/acme.a": "t", "s/b": "t"}
    by_pattern, by_name = tokens({"pattern": r"^(acme)\."}), tokens("acme")
    assert by_pattern == {**tokens("acme"), "s/b": "t"}
    assert tokens("acme/eu")["s/b"] not in ("t", by_name["s/b"])


def test_a_run_notes_the_same_tokens_as_whoever_asks_what_has_changed(tmp_path: Path) -> None:
    """Otherwise every dataset would be read at every tick."""
    lake = Lake(tmp_path / "lake").has(ONE, "lake/a")
    said = json.loads(lake.settings_file.read_text())
    for realm in (None, "acme"):
        said["stores"][0] |= {"realm": realm} if realm else {}
        lake.settings_file.write_text(json.dumps(said))
        write_tokens(choose_datasets(lake.stores.values(), DatasetFilter()), str(tmp_path / str(realm)))
        noted = read_tokens([Source(str(tmp_path / str(realm)))])
        assert noted == list_datasets(lake.environment, with_tokens=True).tokens
        assert (noted == lake.stores["lake"].tokens(["lake/a"])) is (realm is None)


BAD: dict[str, tuple[type[Any], dict[str, Any], Any, str]] = {
    "a column of files": (
        FilesSettings, {"log": "/l", "data": "/d/{dataset}/{transaction}"}, {"column": "c"}, "a store of kind files has no realm column",
    ),
    "a column of tables": (IcebergSettings, {"catalog": {"uri": "x"}}, {"column": "c"}, "a store of kind iceberg has no realm column"),
    "a reserved name": (IcebergSettings, {"catalog": {"uri": "x"}}, "::audit", "is a reserved name"),
    "no name": (IcebergSettings, {"catalog": {"uri": "x"}}, "acme eu", "is not the name of a realm"),
    "an empty part": (IcebergSettings, {"catalog": {"uri": "x"}}, "acme//eu", "is not the name of a realm"),
    "two groups": (IcebergSettings, {"catalog": {"uri": "x"}}, {"pattern": "(a)(b)"}, "has 2 groups"),
    "no pattern": (IcebergSettings, {"catalog": {"uri": "x"}}, {"pattern": "("}, "is not a regular expression"),
    "a word": (IcebergSettings, {"catalog": {"uri": "x"}}, {"regex": "a"}, "says neither pattern nor column"),
    "a number": (IcebergSettings, {"catalog": {"uri": "x"}}, 7, "has the wrong type"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "keys", "realm", "words"), BAD.values(), ids=BAD)
def test_a_realm_that_cannot_be_is_refused(kind: type[Any], keys: dict[str, Any], realm: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kind.model_validate({"name": "s", **keys, "realm": realm}, context={"folder": Path("/")})


def test_a_kind_that_keeps_no_settings_takes_no_realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(ToyStore):
        def __init__(self, settings: ToySettings) -> None:
            super().__init__(settings.model_copy())

    for store, realm, refused in ((Forgetful, None, False), (Forgetful, "acme", True), (ToyStore, "acme", False)):
        kind = StoreKind("toy", ToySettings, store)
        monkeypatch.setattr("retention_assets.stores.registry.kind_named", lambda _, kind=kind: kind)
        settings = ToySettings(name="t", root=tmp_path, realm=realm)
        if refused:
            with pytest.raises(Refused, match="The settings give the store t a realm"):
                open_store(settings)
        else:
            assert open_store(settings) is not None

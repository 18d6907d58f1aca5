"""`realm`: PURGING marks everything of a realm, so it is never said in passing."""

import json
import shutil
from pathlib import Path

import pytest

from retention_assets.datasets import DatasetFilter
from retention_assets.ledger import Ledger, Publication
from retention_assets.pipeline.stage import write_log
from retention_assets.policy import parse_duration
from retention_assets.settings import load_settings
from retention_assets.stores.logs import choose_datasets, read_share
from retention_assets_tests.people.conftest import LEDGER, Json, Run
from retention_assets_tests.sweep.lakes import Lake

UNKNOWN = ("realm", "acme", "--status", "PURGING", "--reason", "contract ended")
# The settings of these tests have no store.
PURGE = (*UNKNOWN, "--anyway")
WHAT = "Purging acme: the next evaluation marks everything in it, whatever the policies say. Only holds stop it."


def test_a_realm_that_is_purged_says_what_that_does(ledger: Ledger, run: Run) -> None:
    code, out, err = run(*PURGE, "--grace", "9d", "--yes")
    assert code == 0
    assert out == "acme is PURGING; marks that purging makes have a grace of 9 days.\n"
    following = "Next: the next `retention run` marks everything in it; `retention realm acme -s ACTIVE -r …` stops that.\n"
    assert err == f"{WHAT} The marks are due 9 days later.\n{following}"
    assert ledger.realms.of("acme").status == "PURGING"


def test_a_grace_that_was_set_before_is_the_one_that_is_said(ledger: Ledger, run: Run) -> None:
    assert run("realm", "acme", "--status", "INACTIVE", "--grace", "10d", "--reason", "r")[0] == 0
    assert "due 10 days later" in run(*PURGE, "--yes")[2]


def test_before_a_purge_a_person_hears_for_how_long_it_can_be_undone_and_where_not(run: Run) -> None:
    lake = "{name: lake, kind: files, log: log, data: 'data/{dataset}/{transaction}'}"
    ods = "{name: ods, kind: records, url: 'sqlite:///o.db', root: {table: t, key: id, opened_at: o, closed_at: c}}"
    for stores, unless in (lake, ""), (f"{lake}, {ods}", ", except in ods"):
        Path("retention.yaml").write_text(f"realms: {{undo: 14d}}\nstores: [{stores}]\n")
        assert f"due 7 days later. What is swept can be restored for 14 days{unless}. To confirm" in run(*PURGE)[2]


CALLS = {"PURGING": (*PURGE, "--yes"), "INACTIVE": (*PURGE[:3], "INACTIVE", *PURGE[4:6])}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("grace", ["0s", "1s", "1d", "6d", "604799s"])
def test_a_grace_below_that_of_the_settings_is_refused(grace: str, call: tuple[str, ...], ledger: Ledger, run: Run) -> None:
    code, _, err = run(*call, "--grace", grace)
    assert code == 2
    assert f"grace: is shorter than realms.min_grace in the settings (found {grace}); expected at least 1w" in err
    assert ledger.realms.of("acme").status == "ACTIVE"


@pytest.mark.parametrize("status", CALLS)
@pytest.mark.parametrize("grace", ["1w", "7d", "604801s", "8d", "1mo"])
def test_a_grace_of_that_of_the_settings_or_above_is_taken(grace: str, status: str, ledger: Ledger, run: Run) -> None:
    assert run(*CALLS[status], "--grace", grace)[0] == 0
    realm = ledger.realms.of("acme")
    assert (realm.status, realm.grace) == (status, parse_duration(grace))
    # what purging marks has it, and never less than the settings say by then
    settings = load_settings(Path("retention.yaml")).realms
    assert settings.grace_of(realm.grace) == realm.grace
    assert settings.model_copy(update={"min_grace": parse_duration("60d")}).grace_of(realm.grace) == parse_duration("60d")


def test_without_a_terminal_purging_needs_a_yes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    code, out, err = run(*PURGE)
    assert (code, out) == (1, "")
    assert WHAT in err
    assert "The marks are due 7 days later." in err
    assert "Nothing was changed." in err
    assert not LEDGER.exists()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)], ids=["yes", "no", "nothing"])
def test_on_a_terminal_purging_is_asked_about(
    answer: str, code: int, ledger: Ledger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([answer.strip()])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: next(answers))
    assert run(*PURGE)[0] == code
    assert ledger.realms.of("acme").status == ("ACTIVE" if code else "PURGING")


def test_realms_are_listed_and_shown(ledger: Ledger, found: Json, run: Run) -> None:
    found("realm", "acme", "--status", "INACTIVE", "--reason", "r")
    assert found(*PURGE[:1], "beta", *PURGE[2:], "--yes") == {"name": "beta", "status": "PURGING", "grace": "1w"}
    nothing: dict[str, object] = {"above": None, "left": []}
    assert found("realm") == [
        {"name": "acme", "status": "INACTIVE", "grace": "0s", **nothing},
        {"name": "beta", "status": "PURGING", "grace": "1w", **nothing},
    ]
    assert found("realm", "beta/raw")["above"] == {"name": "beta", "status": "PURGING"}
    assert found("realm", "beta")["status"] == "PURGING"
    assert found("realm", "nobody")["status"] == "ACTIVE"
    _, out, _ = run("realm")
    assert "INACTIVE" in out
    assert "beta" in out


def test_what_a_realm_cannot_become_is_refused(ledger: Ledger, run: Run) -> None:
    run(*PURGE, "--yes")
    ledger.realms.purged("acme", "scan")
    code, _, err = run("realm", "acme", "--status", "INACTIVE", "--reason", "r")
    assert code == 1
    assert "acme is PURGED and can't become INACTIVE, only ACTIVE." in err
    assert run("realm", "acme", "--status", "ACTIVE", "--reason", "they came back")[0] == 0


def test_a_realm_below_one_that_is_purged_is_told_so(ledger: Ledger, run: Run) -> None:
    run(*PURGE, "--yes")
    code, out, err = run("realm", "acme/sales", "--status", "INACTIVE", "--reason", "r")
    assert (code, out.split(";")[0]) == (0, "acme/sales is INACTIVE")
    assert "acme is PURGING, and acme/sales with it, whatever its own status." in err


@pytest.mark.parametrize("is_read", [False, True], ids=["asked", "as it was read last"])
@pytest.mark.parametrize(
    ("name", "is_known", "guess"),
    [("acme", True, ""), ("acme/sales", True, ""), ("acme/sale", False, " Did you mean acme/sales?"), ("beta", True, ""),
     ("acme-e", False, " Did you mean acme-eu?"), ("mixed/eu", True, ""), ("nobody", False, "")],
)  # fmt: skip
def test_a_realm_that_no_store_knows_is_not_purged_by_a_typo(
    tmp_path: Path, run: Run, name: str, is_known: bool, guess: str, is_read: bool
) -> None:
    lake = Lake(tmp_path)
    for dataset, realm in (("a", "acme/sales"), ("b", "acme-eu"), ("c", "beta")):
        lake.has("main: T1:SNAPSHOT@9d", f"lake/{dataset}")
        lake._log(f"lake/{dataset}", [json.dumps({"dataset": f"lake/{dataset}", "realm": realm})])
    lake.has("-: R1:RECORD@9d", "lake/m").comes_again("R1", "lake/m", attributes={"realm": "mixed/eu"})
    if is_read:
        folder = str(tmp_path / "warehouse" / "transaction_log" / "run")
        (chosen,) = choose_datasets(lake.stores.values(), DatasetFilter())
        write_log(read_share(chosen.store, chosen.datasets), folder)
        with lake.opened() as ledger:
            published = [Publication("transaction_log", one, folder, "run") for one in chosen.datasets]
            ledger.publications.publish(published, "run")
        shutil.rmtree(lake.folder / "log")
    code, _, err = run("realm", name, *UNKNOWN[2:], "--yes")
    assert code == (0 if is_known else 1)
    unknown = f"Nothing was changed. No store knows a realm {name}.{guess} To purge it all the same, add --anyway"
    assert (unknown in err) == (not is_known)
    with lake.opened() as ledger:
        assert list(ledger.realms.all()) == ([name] if is_known else [])


def test_a_store_that_is_away_is_named_where_a_realm_is_not_known(tmp_path: Path, run: Run) -> None:
    shutil.rmtree(Lake(tmp_path).folder / "log")
    code, _, err = run(*UNKNOWN, "--yes")
    assert code == 1
    assert "No store knows a realm acme. lake could not be read: " in err


def test_a_realm_of_the_system_and_what_is_no_name_of_a_realm_are_refused(run: Run) -> None:
    assert run("realm", "::all", "--status", "INACTIVE", "--reason", "r")[0] == 1
    code, _, err = run("realm", "acme eu", "--status", "PURGING", "--reason", "r", "--yes")
    assert (code, "is not the name of a realm (found 'acme eu'); expected letters, digits" in err) == (2, True)
    for more in ((), ("--yes",), ("--anyway",)):
        # no warning of a purge that nobody may order
        code, _, err = run("realm", "::system::", "--status", "PURGING", "--reason", "r", *more)
        assert (code, err) == (1, "::system:: belongs to the system: realms whose names begin with :: can't be changed.\n")


@pytest.mark.parametrize(
    "typed",
    [
        "acme -s PURGED -r r", "acme -s INACTIVE", "-s INACTIVE -r r", "acme --grace 3d", "acme --yes", "acme --anyway",
        "acme -s INACTIVE -r r --anyway", "acme -r r", "acme -s INACTIVE -r r --yes", "acme -s PURGING -r r --grace soon --yes",
    ],
)  # fmt: skip
def test_half_a_change_is_bad_input(typed: str, ledger: Ledger, run: Run) -> None:
    code, out, err = run("realm", *typed.split())
    assert (code, out, bool(err)) == (2, "", True)
    assert ledger.realms.all() == {}

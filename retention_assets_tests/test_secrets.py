"""Secrets of the settings: wherever a text leaves the program they are masked, and no command line has one."""

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pytest

from retention_assets.dagster.step import masking_faults
from retention_assets.outcomes import Outcome
from retention_assets.people.output import say
from retention_assets.settings.secrets import masked, remember_secrets
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.protocol import SweptTarget, Target
from retention_assets_tests.people.conftest import script
from retention_assets_tests.settings.settings_files import read
from retention_assets_tests.sweep.lakes import Lake

SECRET = 'Tr0ub4dor&"3'
PLUGIN = """
class Talkative:
    def __init__(self, **options):
        self.options = options

    def shares(self, wanted):
        return ["all"]

    def read(self, share):
        raise RuntimeError(f"login as {self.options} refused")
        yield

    def finish(self, ends):
        return []
"""
STORE = {
    "name": "blobs", "kind": "objects", "dataset": "{1}",
    "listing": {"path": "data"},
    "references": [{"use": "talkative:Talkative", "options": {"password": "${PLUGIN_PASSWORD}", "login": "${PLUGIN_LOGIN}"}}],
}  # fmt: skip


@pytest.mark.program
@pytest.mark.spark
def test_what_a_plugin_tells_of_its_options_reaches_nobody(tmp_path: Path) -> None:
    (tmp_path / "talkative.py").write_text(PLUGIN)
    (tmp_path / "data/a").mkdir(parents=True)
    (tmp_path / "data/a/old").write_text("x")
    (tmp_path / "policies").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "policies/p.yaml").write_text("policies: [{name: p, datasets: {include: ['*']}, select: {older_than: 1d}}]")
    (tmp_path / "retention.yaml").write_text(json.dumps({"stores": [STORE]}))
    environ = {"PLUGIN_PASSWORD": SECRET, "PLUGIN_LOGIN": "some-service-user", "DAGSTER_HOME": str(tmp_path / "home")}
    done = script(tmp_path, "run", **environ)
    assert done.returncode == 1, done.stderr
    assert "use talkative:Talkative is not whole" in done.stderr
    shown = json.dumps(SECRET)[1:-1]
    for secret in (SECRET, shown, "some-service-user"):
        assert secret not in done.stdout + done.stderr
        telling = [str(file) for file in tmp_path.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
        assert telling == []


@pytest.mark.parametrize(
    ("text", "environ", "secret"),
    [
        ("ledger: sqlite:///${PLACE}.db", {"PLACE": "hidden-place"}, "hidden-place"),
        ("spark: {conf: {spark.hadoop.fs.s3a.secret.key: wJalrXUtn}}", {}, "wJalrXUtn"),
        ("spark: {conf: {some.sas-token: 12345678}}", {}, "12345678"),
        ("ledger: postgresql://u:p%40ssword@h/d", {}, "p@ssword"),
        (
            "stores: [{name: i, kind: iceberg, catalog: {type: rest, uri: 'http://h', credential: 'id:client-part'}}]",
            {},
            "client-part",
        ),
    ],
)
def test_what_is_a_secret(text: str, environ: dict[str, str], secret: str, tmp_path: Path) -> None:
    read(tmp_path, text, **environ)
    assert masked(f"it says {secret}.") == "it says ***."


@pytest.mark.parametrize(
    ("text", "environ", "harmless"),
    [
        ("ledger: sqlite:///${PLACE}.db", {"PLACE": "short"}, "short"),
        ("ledger: sqlite:///${PLACE:-default-place}.db", {}, "default-place"),
        ("spark: {conf: {a.token.enabled: true}}", {}, "true"),
        (
            "stores: [{name: '${NAME}', kind: files, log: l, data: 'd/{dataset}/{transaction}'}]",
            {"NAME": "production"},
            "production",
        ),
    ],
)
def test_what_is_none(text: str, environ: dict[str, str], harmless: str, tmp_path: Path) -> None:
    read(tmp_path, text, **environ)
    assert masked(f"it says {harmless}.") == f"it says {harmless}."


SESSION = """
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from retention_assets.environment import Environment
from retention_assets.pipeline.spark import spark_session
from retention_assets.settings.model import load_settings

settings = load_settings()
session = spark_session(settings.spark.master, settings.spark.conf)
lines = {}
for place in Path("/proc").iterdir():
    if place.name.isdecimal():
        try:
            lines[place.name] = (place / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            pass
assert any("org.apache.spark.deploy.SparkSubmit" in line for line in lines.values())
print([line for line in lines.values() if os.environ["S3_SECRET"] in line])
print(session.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == os.environ["S3_SECRET"])
print(session.conf.get("spark.odd key:") == "  a = b #! \\\\ c\\n")
session.stop()
"""


@pytest.mark.program
@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="command lines are read in /proc")
def test_no_secret_of_the_configuration_of_spark_is_on_a_command_line(tmp_path: Path) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "${S3_SECRET}", "spark.odd key:": "  a = b #! \\ c\n"}
    (tmp_path / "retention.yaml").write_text(json.dumps({"spark": {"master": "local[1]", "conf": conf}}))
    done = script(tmp_path, code=SESSION, S3_SECRET="wJalr XUtn=FEMI/K7")
    assert done.stdout.splitlines() == ["[]", "True", "True"], done.stderr


def test_no_secret_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    remember_secrets({"only-the-store-knows"})
    say("lake: login as only-the-store-knows refused")
    assert capsys.readouterr().err == "lake: login as *** refused\n"


@pytest.mark.parametrize("fault", [ValueError, dg.Failure])
def test_no_secret_of_a_fault_nor_of_its_cause_reaches_dagster(fault: type[Exception]) -> None:
    """Dagster keeps the text of an error, its trace and its causes."""
    remember_secrets({"only-the-store-knows"})

    @masking_faults()
    def fails() -> None:
        try:
            raise OSError("login as only-the-store-knows refused")
        except OSError as cause:
            raise fault("only-the-store-knows: away") from cause

    with pytest.raises((RuntimeError, dg.Failure)) as caught:
        fails()
    kept = "".join(traceback.format_exception(caught.value))
    assert "***: away" in kept
    assert "login as *** refused" in kept
    assert "only-the-store-knows: away" not in kept
    assert "login as only" not in kept


def test_no_secret_in_what_a_store_answers_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of another package may quote its options in the error of a transaction."""
    remember_secrets({"only-the-store-knows"})

    def fails(_: FilesStore, __: str, targets: Sequence[Target], *___: object) -> list[SweptTarget]:
        return [SweptTarget(one.transaction, Outcome.FAILED, error="login as only-the-store-knows refused") for one in targets]

    monkeypatch.setattr(FilesStore, "sweep", fails)
    lake = Lake(tmp_path).has("main: S1:SNAPSHOT@90d - S2:SNAPSHOT@1d")
    lake.marks()
    assert lake.sweeps()["lake/d"].errors == ["login as *** refused"]
    assert lake.why("S1") == "login as *** refused"

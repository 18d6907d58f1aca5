"""URLs and places: resolved from the file's folder, and never shown with a password."""

import json
from pathlib import Path

import pytest

from retention_assets.errors import BadInput
from retention_assets.settings.urls import Url, database_url, locate, mask_secrets
from retention_assets_tests.settings.settings_files import LAKE, problems, read

SECRETS = """
ledger: postgresql://u:hunter2@h:x/d
partition_by: ${PW}
spark: {master: bad, conf: {spark.hadoop.fs.s3a.secret.key: hunter2, b: [hunter2]}}
stores:
  - {name: a, kind: aspects, url: "oracle://u:hunter2@h/d"}
  - {name: b, kind: aspects, url: "postgresql//u:hunter2@h/d"}
  - {name: c, kind: aspects, url: "postgresql://u:hunter2/@h/d"}
  - {name: d, kind: aspects, url: "postgresql://u:${PW}@h:x/d"}
  - {name: e, kind: aspects, url: "${ALL}"}
  - {name: f, kind: iceberg, catalog: {uri: "sqlite+bad://u:hunter2@h"}, model: x}
  - {name: g, kind: iceberg, catalog: {token: "${PW}"}, model: x}
  - {name: h, kind: aspects, url: "postgresql://h:x/d?password=hunter2&user=u"}
  - {name: j, kind: aspects, url: "postgresql://u:hunter2@${NOT_SET}/d"}
  - {name: i, kind: aspects, url: "oracle://u:a-very-long-password-that-fills-the-message-hunter2-hunter2@h/d"}
"""


def test_no_message_shows_a_password(tmp_path: Path) -> None:
    found = problems(tmp_path, SECRETS, PW="hunter2", ALL="oracle://u:hunter2@h/d")
    assert {problem.key for problem in found} >= {
        "ledger",
        *(f"stores[{n}].url" for n in (0, 1, 2, 3, 4, 7, 8, 9)),
        "partition_by",
    }
    assert "hunter2" not in str(BadInput(found))
    assert "hunter2" not in json.dumps([problem.as_dict() for problem in found])


def test_no_repr_shows_a_password(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "ledger: postgresql://u:hunter2@h/d\nspark: {conf: {secret: hunter2}}\nstores:\n"
        "- {name: a, kind: aspects, url: 'postgresql://u:${PW}@h/d'}\n- {name: i, kind: iceberg, catalog: {token: hunter2}}",
        PW="hunter2",
    )
    ledger = settings.ledger
    texts = [repr(settings), str(settings), repr(settings.stores), repr(ledger), str(ledger), f"{ledger}", f"{ledger!r:>40}"]
    texts += [repr(settings.model_dump()["ledger"]), repr([ledger]), f"at {ledger:s}", "at %s" % ledger]  # noqa: UP031
    for text in texts:
        assert "hunter2" not in text
    assert json.loads(settings.model_dump_json(include={"ledger"})) == {"ledger": "postgresql://u:***@h/d"}
    assert isinstance(ledger, Url)
    assert ledger.exposed == "postgresql://u:hunter2@h/d"
    assert type(ledger.exposed) is str


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("postgresql://u:p@h/d", "postgresql://u:***@h/d", id="the usual place"),
        pytest.param("postgresql://u:p@q@h/d", "postgresql://u:***@h/d", id="an @ in the password"),
        pytest.param("postgresql://u:p/q:r@h/d", "postgresql://u:***@h/d", id="other marks in the password"),
        pytest.param("postgresql://:p@h/d", "postgresql://:***@h/d", id="no user"),
        pytest.param("postgresql:/u:p@h/d", "postgresql:***@h/d", id="a slash short: hides more"),
        pytest.param("postgresql://h/d?user=u&password=p&x=1", "postgresql://h/d?user=u&password=***&x=1", id="in the query"),
        pytest.param("postgresql://u@h:5432/d", "postgresql://u@h:5432/d", id="none there"),
        pytest.param("sqlite:///a/b.db", "sqlite:///a/b.db", id="a file"),
        pytest.param("s3://bucket/path", "s3://bucket/path", id="a bucket"),
        pytest.param("plain words", "plain words", id="no URL at all"),
    ],
)
def test_a_password_is_masked(text: str, answer: str) -> None:
    assert mask_secrets(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("sqlite:///a.db", "sqlite:////home/a.db", id="relative: from the folder"),
        pytest.param("sqlite:///../a.db", "sqlite:////a.db", id="up from the folder"),
        pytest.param("sqlite:////var/a.db", "sqlite:////var/a.db", id="absolute"),
        pytest.param("sqlite+pysqlite:///a.db", "sqlite+pysqlite:////home/a.db", id="the driver stays"),
        pytest.param("sqlite:///a.db?timeout=5", "sqlite:////home/a.db?timeout=5", id="the query stays"),
        pytest.param("postgresql+psycopg://u:p%40q@h:5432/d?sslmode=require", "postgresql+psycopg://u:p%40q@h:5432/d?sslmode=require",
                     id="PostgreSQL as it is"),
        pytest.param("postgresql:///d", "postgresql:///d", id="a socket"),
    ],
)  # fmt: skip
def test_a_database_url_is_resolved(text: str, answer: str) -> None:
    assert database_url(text, Path("/home")).exposed == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("a/b", "/home/a/b", id="relative"),
        pytest.param("./a/../b", "/home/b", id="tidied"),
        pytest.param("/a", "/a", id="absolute"),
        pytest.param("s3://b/x", "s3://b/x", id="a URI"),
        pytest.param("dbfs:/x", "dbfs:/x", id="a URI with one slash"),
        pytest.param("simplecache::s3://b/x", "simplecache::s3://b/x", id="a chain of fsspec"),
        pytest.param("a:b/c", "/home/a:b/c", id="a colon in a name is no scheme"),
    ],
)
def test_a_place_is_resolved(text: str, answer: str) -> None:
    assert locate(text, Path("/home")) == answer


def test_a_data_template_below_a_folder_with_braces_is_refused(tmp_path: Path) -> None:
    """The folder's braces would be read as placeholders when a transaction's place is written out."""
    (problem,) = problems(tmp_path / "{x}", LAKE)
    assert problem.what == "is meant from a folder whose name holds a brace"

"""URLs and places: resolved from the file's folder, and never shown with a password."""

import json
from pathlib import Path

import pytest

from retention_assets.errors import BadInput, InvalidValue
from retention_assets.settings.places import Url, database_url, locate, mask_secrets, mask_text
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
        pytest.param("postgresql://:p@h/d", "postgresql://:***@h/d", id="no user"),
        pytest.param("postgresql:/u:p@h/d", "postgresql:***@h/d", id="a slash short: hides more"),
        pytest.param("postgresql://h/d?user=u&password=p&x=1", "postgresql://h/d?user=u&password=***&x=***", id="in the query"),
        pytest.param("postgresql://u@h:5432/d", "postgresql://u@h:5432/d", id="none there"),
        pytest.param("plain words", "plain words", id="no URL at all"),
    ],
)
def test_a_password_is_masked(text: str, answer: str) -> None:
    assert mask_secrets(text) == answer


# As these services sign them; nothing of a signature may be seen, nor what it was made with.
SIGNED = {
    "AWS": (
        "https://bucket.s3.amazonaws.com/log.jsonl?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAHUSH%2F20260101%2Fus"
        "&X-Amz-Date=20260101T000000Z&X-Amz-Expires=3600&X-Amz-Security-Token=HUSH&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=HUSH&versionId=v1"
    ),
    "AWS, the older way": "https://bucket.s3.amazonaws.com/log?AWSAccessKeyId=HUSH&Signature=HUSH%3D&Expires=1767225600",
    "Azure": (
        "https://account.blob.core.windows.net/lake/log.jsonl?sv=2022-11-02&ss=b&srt=sco&sp=rl&se=2026-01-01T00:00:00Z"
        "&st=2026-01-01T00:00:00Z&spr=https&sig=HUSH%2Fhush%3D"
    ),
    "Azure by its driver": "abfss://lake@account.dfs.core.windows.net/log?SIG=HUSH",
    "GCS": (
        "https://storage.googleapis.com/lake/log?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential=me%40HUSH"
        "&X-Goog-Date=20260101T000000Z&X-Goog-Expires=60&X-Goog-SignedHeaders=host&X-Goog-Signature=HUSH"
    ),
    "GCS, the older way": "https://storage.googleapis.com/lake/log?GoogleAccessId=HUSH&Expires=1&Signature=HUSH",
    "a service that nobody knows": "https://host/log?unheard=HUSH;of=HUSH&%73ig=HUSH",
    "a fragment": "https://host/page#access_token=HUSH&state=HUSH",
    "a fragment alone": "https://host/page#HUSH",
    "a query in a fragment": "https://host/page#/here?sig=HUSH",
    "Azure's words for a connection": "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=HUSH==;SharedAccessSignature=HUSH",
    "PostgreSQL's words for a connection": "host=h user=me password=HUSH dbname=d",
}


@pytest.mark.parametrize("signed", SIGNED.values(), ids=SIGNED)
@pytest.mark.parametrize(
    "sentence", ["{}", "ClientError: 403, message='Forbidden', url=URL('{}') while reading", "no: {}, again"]
)
def test_nothing_of_a_signed_address_is_shown(signed: str, sentence: str) -> None:
    shown = mask_text(sentence.format(signed))
    assert "hush" not in shown.lower()
    assert "hush" not in mask_secrets(signed).lower()
    # What it is about is still told.
    assert shown.split()[0] == sentence.format(signed).split()[0] or sentence == "{}"
    assert signed.partition("?")[0].partition("#")[0].partition("=")[0][:8] in shown


@pytest.mark.parametrize("key", ["sslmode", "host", "port", "user", "timeout", "versionId"])
def test_what_is_known_to_be_harmless_is_shown(key: str) -> None:
    assert mask_secrets(f"postgresql://h/d?{key}=x1&other=HUSH") == f"postgresql://h/d?{key}=x1&other=***"
    assert mask_secrets(f"https://h/d#{key}=x1") == f"https://h/d#{key}=***"


@pytest.mark.parametrize(
    "text",
    [
        "Check that the disk is mounted. The sweep records nothing as gone.",
        "s3://bucket/a#b/c",
        "part of /data/dt=2026-01-01/x",
        "at 12:00:05 in a@b",
    ],
)
def test_a_sentence_without_a_secret_stays_as_it_is(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize("text", ["file://data/lake", "local://data", "FILE://localhost/lake"])
def test_a_file_on_a_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="names a host"):
        locate(text, Path("/home"))


def test_a_uri_does_not_lead_out_of_its_folder() -> None:
    with pytest.raises(InvalidValue, match=r"leads out of its folder by \.\."):
        locate("s3://bucket/a/../b", Path("/home"))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("sqlite:///a.db", "sqlite:////home/a.db", id="relative: from the folder"),
        pytest.param("sqlite:///../a.db", "sqlite:////a.db", id="up from the folder"),
        pytest.param("sqlite+pysqlite:///a.db", "sqlite+pysqlite:////home/a.db", id="the driver stays"),
        pytest.param("sqlite:///a.db?timeout=5", "sqlite:////home/a.db?timeout=5", id="the query stays"),
        pytest.param("postgresql+psycopg://u:p%40q@h:5432/d?sslmode=require", "postgresql+psycopg://u:p%40q@h:5432/d?sslmode=require",
                     id="PostgreSQL as it is"),
        pytest.param("postgresql:///d", "postgresql:///d", id="a socket"),
    ],
)  # fmt: skip
def test_a_database_url_is_resolved(text: str, answer: str) -> None:
    assert database_url(text, Path("/home")).exposed == answer


def test_a_place_is_resolved() -> None:
    """A URI may have one slash, or be a chain of fsspec; a colon in a name makes no scheme."""
    resolved = {text: locate(text, Path("/home")) for text in ("a/b", "/a", "dbfs:/x", "simplecache::s3://b/x", "a:b/c")}
    assert resolved == {**{text: text for text in resolved}, "a/b": "/home/a/b", "a:b/c": "/home/a:b/c"}


def test_a_data_template_below_a_folder_with_braces_is_refused(tmp_path: Path) -> None:
    """The folder's braces would be read as placeholders when a transaction's place is written out."""
    (problem,) = problems(tmp_path / "{x}", LAKE)
    assert problem.what == "is relative to a folder with a brace in its name"

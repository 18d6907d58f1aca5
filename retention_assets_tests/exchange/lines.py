"""Lines of the exchange format: a sound one, others made from it, and logs of them, read or refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import BadInput, Problem
from retention_assets.exchange import read_log
from retention_assets.frames import Log

SOUND: dict[str, Any] = {
    "dataset": "lake/d", "transaction": "T1", "type": "APPEND", "status": "COMMITTED",
    "opened_at": "2026-01-01T00:00:00Z", "closed_at": "2026-01-01T00:05:00Z",
}  # fmt: skip
LINE = json.dumps(SOUND)


def line(**changed: Any) -> str:
    return json.dumps({**SOUND, **changed}, ensure_ascii=False)


def read(tmp_path: Path, text: str | bytes, name: str = "log.jsonl") -> Log:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return read_log(tmp_path / name)


def row(tmp_path: Path, **changed: Any) -> dict[str, Any]:
    [found] = read(tmp_path, line(**changed)).transactions.to_pylist()
    return dict(found)


def refusal(tmp_path: Path, text: str | bytes, name: str = "log.jsonl") -> Problem:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text, name)
    assert caught.value.problems[0].file == str(tmp_path / name)
    return caught.value.problems[0]

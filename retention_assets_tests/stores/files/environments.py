"""Environments for the files store: a folder of this machine, and a bucket of an S3 on loopback."""

import io
import json
import os
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from retention_assets.stores.files import FilesSettings
from retention_assets.stores.files.store import FilesStore
from retention_assets_tests.histories import history, to_lines
from retention_assets_tests.stores.contract import Environment

Environ = dict[str, Any]
# What is answered instead (a status, a body), or None; by the method, the place with its query, and the body of a request.
Fault = Callable[[str, str, bytes], tuple[str, str] | None]

_ACCOUNT = "123456789012"


class S3:
    bucket = "lake"

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1",
        }  # fmt: skip
        self._objects = s3_backends[_ACCOUNT]["aws"]
        self._objects.create_bucket(self.bucket, "us-east-1")
        serving = self._server._server
        assert serving is not None
        self._answer, serving.app = serving.app, self._faulty

    def close(self) -> None:
        self._server.stop()

    def empty(self) -> None:
        self.faults.clear()
        for key in self.objects():
            self.take(key)

    def put(self, key: str, content: bytes) -> None:
        self._objects.put_object(self.bucket, key, content)

    def take(self, key: str) -> None:
        self._objects.delete_object(self.bucket, key)

    def dates(self, key: str, created_at: datetime) -> None:
        self._objects.get_bucket(self.bucket).keys[key].last_modified = created_at.replace(tzinfo=None)

    def deletes(self, body: bytes, refused: Mapping[str, str]) -> tuple[str, str]:
        """What AWS does with a bulk deletion, which this server does only in part: each key under its ETag, if it has one, and
        an answer of its own for each. Some are refused with a code.
        """
        said = ""
        for one in xml.fromstring(body).findall("{*}Object"):
            key, etag = one.findtext("{*}Key") or "", (one.findtext("{*}ETag") or "").strip('"')
            found = self._objects.get_bucket(self.bucket).keys.get(key)
            code = refused.get(key)
            if code is None and etag and (found is None or found.etag.strip('"') != etag):
                code = "PreconditionFailed" if found is not None else "NoSuchKey"
            if code is None:
                self.take(key)
                said += f"<Deleted><Key>{escape(key)}</Key></Deleted>"
            else:
                said += f"<Error><Key>{escape(key)}</Key><Code>{code}</Code><Message>told to</Message></Error>"
        return "200 OK", f"<DeleteResult>{said}</DeleteResult>"

    def objects(self) -> dict[str, bytes]:
        return {key: found.value for key, found in self._objects.get_bucket(self.bucket).keys.items()}

    def _faulty(self, environ: Environ, start: Callable[..., Any]) -> Any:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) if self.faults else b""
        for fault in list(self.faults):
            place = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
            if answer := fault(environ["REQUEST_METHOD"], place, body):
                start(answer[0], [("Content-Type", "application/xml")])
                return [answer[1].encode()]
        if self.faults:
            environ["wsgi.input"] = io.BytesIO(body)
        return self._answer(environ, start)


def error(status: str, code: str) -> tuple[str, str]:
    return status, f"<Error><Code>{code}</Code><Message>told to</Message></Error>"


class Files(Environment):
    """A lake of three datasets. Where its bytes are is the environment's own."""

    datasets = ("lake/a", "lake/b", "lake/é 'q\" c")
    settings: FilesSettings

    def store(self) -> FilesStore:
        return FilesStore(self.settings)

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        drawn = history(drawing, dataset=dataset)
        self.put_log(f"{self.datasets.index(dataset)}.jsonl", "".join(f"{line}\n" for line in to_lines([drawn])))
        for number, row in enumerate(drawn.transactions):
            name = row["transaction"]
            self.put(dataset, name, "part.parquet", f"{dataset} {name}".encode())
            self.put(dataset, name, f"deep er/é/{number}", b"x" * number)
        return {row["transaction"]: row["transaction"] for row in drawn.transactions}

    def commit(self, dataset: str) -> str:
        name = f"{self.datasets.index(dataset)}.jsonl"
        lines = [json.loads(line) for line in self.get_log(name).splitlines()]
        last = next(line["head"] for line in lines if "branch" in line)
        row = {**next(line for line in lines if line.get("transaction") == last), "transaction": "T99", "parent": last}
        moved = [{**line, "head": "T99"} if "branch" in line else line for line in lines]
        self.put_log(name, "".join(f"{json.dumps(line)}\n" for line in [*moved, row]))
        return "T99"

    def owned(self, dataset: str, transaction: str) -> set[str]:
        begin = self.folder(dataset, transaction) + "/"
        return {place for place in self.data() if place.startswith(begin)}

    def data(self) -> dict[str, bytes]:
        ours = ("log/", "data/.retention-trash/")
        return {place: content for place, content in self.everything().items() if not place.startswith(ours)}

    def trash(self) -> set[str]:
        return {place for place in self.everything() if place.startswith("data/.retention-trash/")}

    def occupy(self, dataset: str, transaction: str) -> None:
        self.put(dataset, transaction, "another", b"other bytes")

    def make_again(self, dataset: str, transaction: str) -> None:
        name = f"{self.datasets.index(dataset)}.jsonl"
        lines = [json.loads(line) for line in self.get_log(name).splitlines()]
        anew = {"opened_at": "2020-01-02T00:00:00Z"}
        made = [{**line, **(anew if line.get("transaction") == transaction else {})} for line in lines]
        self.put_log(name, "".join(f"{json.dumps(line)}\n" for line in made))
        self.put(dataset, transaction, "anew", b"other bytes")

    def folder(self, dataset: str, transaction: str) -> str:
        return f"data/{dataset.partition('/')[2]}/{transaction}"

    def put(self, dataset: str, transaction: str, name: str, content: bytes) -> None:
        self.put_place(f"{self.folder(dataset, transaction)}/{name}", content)

    def put_log(self, name: str, text: str) -> None:
        self.put_place(f"log/{name}", text.encode())

    def get_log(self, name: str) -> str:
        return self.everything()[f"log/{name}"].decode()

    def put_place(self, place: str, content: bytes) -> None:
        raise NotImplementedError


@contextmanager
def not_unlinking(stays: Callable[[str], bool]) -> Iterator[None]:
    unlink = os.unlink

    def stubborn(name: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None and stays(f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{name}"):
            raise PermissionError(1, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", stubborn)
        yield


class LocalFiles(Files):
    def __init__(self, root: Path, log: str = "log", data: str = "data/{dataset}/{transaction}") -> None:
        self.root = root
        (root / "data").mkdir()
        self.settings = FilesSettings.model_validate({"name": "lake", "log": log, "data": data}, context={"folder": str(root)})

    def put_place(self, place: str, content: bytes) -> None:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def drop(self, dataset: str) -> None:
        (self.root / "log" / f"{self.datasets.index(dataset)}.jsonl").unlink()

    def everything(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and not path.is_symlink()
        }

    @contextmanager
    def broken(self, dataset: str, transaction: str) -> Iterator[None]:
        """Its first file cannot be unlinked. Permissions would not do: the tests may run as root."""
        place = str(self.root / self.folder(dataset, transaction))
        with not_unlinking(lambda path: path.startswith(f"{place}/")):
            yield


class S3Files(Files):
    has_clock = True

    def __init__(self, s3: S3) -> None:
        self.s3 = s3
        places = {"log": f"s3://{s3.bucket}/log", "data": f"s3://{s3.bucket}/data/{{dataset}}/{{transaction}}"}
        self.settings = FilesSettings.model_validate({"name": "lake", **places})

    def put_place(self, place: str, content: bytes) -> None:
        self.s3.put(place, content)

    def everything(self) -> dict[str, bytes]:
        return self.s3.objects()

    @contextmanager
    def broken(self, dataset: str, transaction: str) -> Iterator[None]:
        place = f"{self.folder(dataset, transaction)}/".encode()

        def denied(method: str, query: str, body: bytes) -> tuple[str, str] | None:
            return error("403 Forbidden", "AccessDenied") if method == "POST" and b"<Key>" + place in body else None

        self.s3.faults.append(denied)
        yield
        self.s3.faults.remove(denied)

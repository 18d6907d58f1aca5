"""A REST catalog for tests: real HTTP on loopback, over a SQL catalog to which the server itself applies what is committed.

Belongs here: as much of the REST protocol as listing, loading and committing need. Each page of a listing has one entry, so that
whoever does not ask for the next one misses most. A fault is an answer that it gives instead of its own.
"""

import json
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import CommitTableRequest

# The status that is answered to a method and a path, or none.
Fault = Callable[[str, str], int | None]
_SEPARATOR = "\x1f"


class RestServer:
    def __init__(self, catalog: SqlCatalog) -> None:
        self.catalog = catalog
        self.faults: list[Fault] = []
        self.commits = 0
        server = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("GET")

            def do_HEAD(self) -> None:
                self._answer("HEAD")

            def do_POST(self) -> None:
                self._answer("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, method: str, body: Any = None) -> None:
                said = urlsplit(self.path)
                status, answer = server.answer(method, unquote(said.path), parse_qs(said.query), body)
                content = b"" if method == "HEAD" else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> "RestServer":
        return self

    def __exit__(self, *fault: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "rest", "uri": f"http://127.0.0.1:{self._server.server_address[1]}"}

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        for fault in self.faults:
            if status := fault(method, path):
                return _error(status, "told to")
        try:
            return self._answer(method, path, query, body)
        except NoSuchNamespaceError as fault:
            return _error(404, str(fault), "NoSuchNamespaceException")
        except NoSuchTableError as fault:
            return _error(404, str(fault), "NoSuchTableException")
        except CommitFailedException as fault:
            return _error(409, str(fault), "CommitFailedException")

    def _answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        parts = [tuple(part.split(_SEPARATOR)) for part in path.removeprefix("/v1/").split("/")]
        match [method, *(parts[number][0] if number in (0, 2) else "*" for number in range(len(parts)))]:
            case ["GET", "config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case ["GET", "namespaces"]:
                above = tuple(query["parent"][0].split(_SEPARATOR)) if "parent" in query else ()
                return 200, _page("namespaces", [list(one) for one in self.catalog.list_namespaces(above)], query)
            case ["GET", "namespaces", _, "tables"]:
                found = [{"namespace": list(one[:-1]), "name": one[-1]} for one in self.catalog.list_tables(parts[1])]
                return 200, _page("identifiers", found, query)
            case ["GET", "namespaces", _, "views"]:
                return 200, _page("identifiers", [], query)
            case [("GET" | "HEAD" | "POST"), "namespaces", _, "tables", _]:
                return self._table(method, (*parts[1], *parts[3]), body)
        return _error(404, f"no such place: {path}")

    def _table(self, method: str, name: tuple[str, ...], body: Any) -> tuple[int, Any]:
        table = self.catalog.load_table(name)
        if method == "POST":
            identifier = {"namespace": list(name[:-1]), "name": name[-1]}
            given = CommitTableRequest.model_validate({**body, "identifier": identifier})
            self.catalog.commit_table(table, given.requirements, given.updates)
            self.commits += 1
            table = self.catalog.load_table(name)
        # As it is written: PyIceberg itself writes no table of format 3.
        metadata = json.loads(table.io.new_input(table.metadata_location).open().read())
        return 200, {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _page(name: str, entries: Sequence[Any], query: dict[str, list[str]]) -> dict[str, Any]:
    at = int(query.get("pageToken", ["0"])[0])
    more = {"next-page-token": str(at + 1)} if at + 1 < len(entries) else {}
    return {name: entries[at : at + 1], **more}


def _error(status: int, why: str, kind: str = "Error") -> tuple[int, Any]:
    return status, {"error": {"message": why, "type": kind, "code": status}}

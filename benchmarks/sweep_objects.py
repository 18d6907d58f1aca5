"""Deleting objects: the `objects` store beside bare loops, on a disk and on an S3 server, and a whole sweep with its parts.

Belongs here: many small objects, both sides of the deletion, and what is done before the clock runs. The bare sides are given the
names and ask nobody: they unlink each file, or send a thousand keys in a request, and look at no object and no answer.

What is compared are seconds of processors: the server of the keys is a program of its own, whose work does not count.
"""

import json
import multiprocessing
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import rmtree
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

import fsspec  # type: ignore[import-untyped]  # it has no types

from benchmarks.sweep_files import Watched
from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import open_ledger
from retention_assets.outcomes import Outcome
from retention_assets.settings import load_settings
from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.store import ObjectsStore
from retention_assets.stores.places import file_systems
from retention_assets.stores.protocol import Target
from retention_assets.sweep import Sweeper
from retention_assets_tests.clocks import CLOCK
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.datasets import evaluate
from retention_assets_tests.sweep.lakes import DUE

if TYPE_CHECKING:
    from benchmarks.measures import Contender
    from benchmarks.sections import Bench

BATCH, THREADS, KEYS = 10_000, 8, 1_000
_PER_FOLDER = 1_000
_POLICY = (
    "policies: [{name: all, datasets: {include: ['*']}, select: {unreferenced: true, older_than: 30d},"
    f" sweep: {{every: 0s, batch: {BATCH}, parallelism: {THREADS}}}}}]\n"
)


def keys_of(objects: int) -> list[str]:
    """Names of objects, so many to a folder."""
    return [f"{number // _PER_FOLDER:04d}/{number:07d}" for number in range(objects)]


def cpu_of(run: Callable[[], object]) -> float:
    """Seconds that processors worked for this program."""
    begin = process_time()
    run()
    return process_time() - begin


@dataclass(frozen=True)
class Folder:
    """Empty files below a folder, old enough to go, and a file of references that names none of them."""

    folder: Path
    objects: int

    def grown(self) -> Self:
        """Written anew."""
        rmtree(self.folder, ignore_errors=True)
        old = AS_OF.timestamp() - 100 * 86_400
        for number in range(0, self.objects, _PER_FOLDER):
            (self.folder / "objects" / f"{number // _PER_FOLDER:04d}").mkdir(parents=True)
        for key in (*keys_of(self.objects), "kept"):
            path = self.folder / "objects" / key
            with path.open("wb") as file:
                file.write(b"x")
            os.utime(path, (old, old))
        return self.referring()

    def referring(self) -> Self:
        """Somebody needs an object that stays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "refs.jsonl").write_text('{"object": "kept"}\n{"complete": true, "count": 1}\n')
        return self

    @property
    def given(self) -> dict[str, Any]:
        """The settings of a store over it."""
        return {
            "name": "blobs", "kind": "objects", "listing": {"path": self.place}, "references": [{"lines": str(self.folder / "refs.jsonl")}],
            "rates": {"delete": 0}, "brakes": {"unreferenced_fraction": 1},
        }  # fmt: skip

    @property
    def place(self) -> str:
        """Where the objects are."""
        return str(self.folder / "objects")

    def store(self) -> ObjectsStore:
        """The store over it."""
        return ObjectsStore(ObjectsSettings.model_validate(self.given))

    def left(self) -> int:
        """How many objects are there."""
        return sum(len(files) for _, _, files in os.walk(self.place)) - (Path(self.place) / ".retention-store").exists()

    def by_loop(self, threads: int) -> float:
        """By name, one after the other, or by so many threads."""
        paths = [f"{self.place}/{key}" for key in keys_of(self.objects)]

        def unlink(some: Sequence[str]) -> None:
            for path in some:
                os.unlink(path)

        def loop() -> None:
            parts = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
            if threads == 1:
                unlink(paths)
                return
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(unlink, parts))

        return cpu_of(loop)


class Bucket(Folder):
    """Keys in a bucket of a server that takes what it is sent and keeps nothing but their names."""

    @property
    def place(self) -> str:
        """The prefix."""
        return "s3://bench/o"


def by_store(folder: Folder) -> float:
    """In batches, as a sweep asks for it; what is planned is noted before."""
    store, keys = folder.store(), keys_of(folder.objects)
    batches: list[list[Target]] = []
    for at in range(0, len(keys), BATCH):
        prepared = store.prepare("blobs/blobs", keys[at : at + BATCH])
        batches.append([Target(one.transaction, one.note, place_known=True) for one in prepared])

    def sweep() -> None:
        for batch in batches:
            swept = store.sweep("blobs/blobs", batch, THREADS)
            assert all(one.outcome is Outcome.DELETED for one in swept), swept[:3]

    return cpu_of(sweep)


def by_requests(bucket: Bucket) -> float:
    """A thousand names in each request, by the client that the store has below it, and no look at anything."""
    from retention_assets.stores.places.file_systems import open_file_system

    fs, _ = open_file_system(bucket.place)
    keys = keys_of(bucket.objects)

    def requests() -> None:
        def send(some: Sequence[str]) -> None:
            names = [{"Key": f"o/{key}"} for key in some]
            found = fs.call_s3("delete_objects", Bucket="bench", Delete={"Objects": names, "Quiet": True})
            assert not found.get("Errors")

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(send, [keys[at : at + KEYS] for at in range(0, len(keys), KEYS)]))

    return cpu_of(requests)


@contextmanager
def serving(objects: int) -> Iterator[None]:
    """A server with that many keys, in a program of its own, where the environment says that S3 is."""
    context = multiprocessing.get_context("spawn")
    said: Any = context.Queue()
    program = context.Process(target=_serve, args=(objects, said), daemon=True)
    program.start()
    given = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{said.get()}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    _forget_servers()
    try:
        yield
    finally:
        # Not asked to end: whoever runs this may ignore that, and what it starts then does as well.
        program.kill()
        program.join()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _forget_servers()


def _forget_servers() -> None:
    """Whoever asked another server before in this program would be asked again."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    file_systems.without_retries.cache_clear()


def _serve(objects: int, said: Any) -> None:
    keys = [f"o/{key}" for key in keys_of(objects)]

    class Answers(BaseHTTPRequestHandler):
        """What S3 says to a listing and to a bulk deletion."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """A page of the listing, or that versions are not kept."""
            asked = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
            if "versioning" in asked:
                self._say("<VersioningConfiguration/>")
                return
            begin = bisect_right(keys, asked.get("start-after", asked.get("continuation-token", [""]))[0])
            page = keys[begin : begin + KEYS]
            rows = "".join(
                f"<Contents><Key>{key}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag>"
                f"<Size>1</Size></Contents>"
                for key in page
            )
            more = begin + KEYS < len(keys)
            token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
            self._say(f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>")

        def do_POST(self) -> None:
            """All that is named is deleted."""
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if "<Quiet>true" in body:
                self._say("<DeleteResult/>")
                return
            named = re.findall("<Key>([^<]*)</Key>", body)
            self._say("<DeleteResult>" + "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in named) + "</DeleteResult>")

        def _say(self, text: str) -> None:
            content = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    said.put(server.server_address[1])
    server.serve_forever()


@dataclass
class WholeSweep:
    """Everything of a folder through the engine: marked before the clock runs, and swept with the ledger's record of each."""

    folder: Folder
    parts: dict[str, float] = field(default_factory=dict)

    def run(self) -> float:
        """Seconds of wall time of the sweep, and whose they were."""
        grown = self.folder.grown()
        (grown.folder / "policies").mkdir()
        (grown.folder / "policies" / "p.yaml").write_text(_POLICY)
        said = {
            "ledger": f"sqlite:///{grown.folder}/ledger.db",
            "clock": CLOCK,
            "policies": "policies",
            "stores": [grown.given],
        }
        # JSON is YAML.
        (grown.folder / "retention.yaml").write_text(json.dumps(said))
        grown.folder.chmod(0o700)
        settings = load_settings(grown.folder / "retention.yaml")
        with open_ledger(settings.ledger, simulated=True) as ledger:
            assert evaluate(ledger, Environment(settings).stores().values(), settings, AS_OF) == grown.objects
            store: Any = Watched(grown.store())
            rulebook = load_rulebook(ledger, settings, "bench")
            begin = perf_counter()
            sweeper = Sweeper(ledger, {"blobs": store}, rulebook, DUE, "bench")
            done = list(sweeper.run(ledger.marks.datasets_to_sweep(DUE)))
            whole = perf_counter() - begin
        assert not [one for one in done if one.refused or one.errors]
        assert grown.left() == 1
        self.parts = {**store.seconds, "rest": whole - sum(store.seconds.values())}
        return whole


def deletion(bench: "Bench") -> None:
    """1,000,000 files and 100,000 keys in a full run; a tenth of the files through the engine."""
    files = Folder(bench.folder / "objects-disk", max(bench.sizes.rows // 10, 1_000))
    contenders: dict[str, Contender] = {
        "floor: unlink, one thread": lambda: files.grown().by_loop(1),
        f"floor: unlink, {THREADS} threads": lambda: files.grown().by_loop(THREADS),
        "store": lambda: by_store(files.grown()),
    }
    bench.meet("deletion", f"{files.objects:,} files, seconds of processors", contenders, files.objects)
    bench.report.agree("objects that the store left", files.objects, files.left() - 1)
    bucket = Bucket(bench.folder / "objects-s3", max(bench.sizes.rows // 100, 1_000)).referring()
    with serving(bucket.objects):
        bench.meet(
            "deletion", f"{bucket.objects:,} keys of S3, seconds of processors",
            {"floor: DeleteObjects": lambda: by_requests(bucket), "store": lambda: by_store(bucket)},
            bucket.objects,
        )  # fmt: skip
    sweep = WholeSweep(Folder(bench.folder / "objects-whole", max(bench.sizes.rows // 100, 1_000)))
    parts: dict[str, Contender] = {
        "sweep": sweep.run,
        "of it: store, second look": lambda: sweep.parts["look"],
        "of it: store, notes": lambda: sweep.parts["prepare"],
        "of it: store, deleting": lambda: sweep.parts["delete"],
        "of it: ledger and re-check": lambda: sweep.parts["rest"],
    }
    bench.meet("deletion", f"{sweep.folder.objects:,} files through the engine", parts, sweep.folder.objects)
    for name in ("objects-disk", "objects-s3", "objects-whole"):
        bench.clear(name)

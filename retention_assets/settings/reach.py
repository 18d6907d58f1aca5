"""Where the places of the settings may be: not where somebody else deletes, where a cluster reaches them, and in a simulated
environment below one folder or on this machine.

Confinement is judged by the text of a place and by drivers' environment variables, without opening anything. What is not
understood is outside. Conflicts are asked for again before each part of a sweep.
"""

import ipaddress
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from retention_assets.errors import InvalidValue
from retention_assets.settings.places import Url, has_scheme, mask_secrets, place_of
from retention_assets.stores.settings import StoreSettings


@dataclass(frozen=True)
class Claim:
    """A place by its settings key; its store (None: retention itself), and if its owner deletes below it."""

    key: str
    text: str
    store: StoreSettings | None = None
    deletes: bool = False

    @property
    def words(self) -> str:
        return f"{self.key} ({mask_secrets(''.join(self.text))})"


@dataclass(frozen=True)
class PlaceConflict:
    """Two claims: the owner of the first deletes where the second is."""

    outer: Claim
    inner: Claim

    @property
    def stores(self) -> frozenset[str]:
        return frozenset(claim.store.name for claim in (self.outer, self.inner) if claim.store)

    @property
    def what(self) -> str:
        one, other = self.outer.store, self.inner.store
        keys = f"{self.inner.words} lies in {self.outer.words}"
        if one and other and one is not other and self.inner.deletes:
            return f"gives the stores {one.name} and {other.name} data in one folder: {keys}"
        return f"has one place inside another, where it could be deleted: {keys}"

    @property
    def remedy(self) -> str:
        if len(self.stores) == 2:
            return "Move the data of one of them, or keep both histories in one log."
        return f"Move {self.inner.key} out of it, or give {self.outer.key} a folder that holds nothing else."


def conflicts_of(claims: Sequence[Claim]) -> Iterator[PlaceConflict]:
    places = [(claim, place_of("".join(claim.text))) for claim in claims]
    for (outer, above), (inner, below) in itertools.permutations(places, 2):
        if outer.deletes and not _may_hold(outer, inner) and above.holds(below):
            yield PlaceConflict(outer, inner)


def guarded_places(store: StoreSettings, claims: Sequence[Claim]) -> tuple[str, ...]:
    """Places of retention and of other stores that a deletion of this store must never enter, by whatever link."""
    outer = next((claim for claim in claims if claim.store is store and claim.deletes), None)
    foreign = (claim for claim in claims if claim.store is not store)
    return tuple("".join(claim.text) for claim in foreign if outer and not _may_hold(outer, claim))


def _may_hold(outer: Claim, inner: Claim) -> bool:
    # A store may keep its log in its data; some kinds may refer to another store, but only to its data.
    one, other = outer.store, inner.store
    if one is None or other is None:
        return False
    if one.name in other.refers_to or other.name in one.refers_to:
        return inner.deletes
    return one is other or one.may_hold(other)


_HERE = ("file:", "local:", "sqlite")


def is_local_master(master: str) -> bool:
    return master.startswith("local")


def out_of_reach(
    master: str, ledger: Url | str, warehouse: str, stores: Iterable[tuple[str, str]], shared_disk: bool
) -> Iterator[InvalidValue]:
    """Settings that tasks on other machines can't reach. A shared SQLite file is one: its locks don't reach so far."""
    where = f"while spark.master is {master}: tasks run on other machines"
    if ledger.startswith("sqlite"):
        yield InvalidValue(
            f"is a file of this machine, {where}, and each would make its own empty ledger",
            "postgresql://user:password@host/database",
            "Give the ledger a PostgreSQL server, or set spark.master to local[*].",
            key="ledger",
        )
    if shared_disk:
        return
    shared = "If the folder is the same on all machines (NFS), say spark.shared_disk: true."
    if _is_local(warehouse):
        yield InvalidValue(
            f"is a folder of this machine, {where}, and would write where nobody reads",
            "a place that all machines reach, such as s3://bucket/prefix",
            shared,
            key="warehouse",
        )
    for store, place in stores:
        if _is_local(place):
            yield InvalidValue(
                f"holds the store {store} with {place}, of this machine, {where}, and would find nothing or other data",
                "places that all machines reach",
                shared,
                key="stores",
            )


def _is_local(place: str) -> bool:
    # fsspec reads a chain at its last part; the others are copies.
    last = place.rpartition("::")[2]
    return last.lower().startswith(_HERE) or not has_scheme(last)


_DATABASES = ("postgresql", "mysql", "mariadb")
# These lead PostgreSQL's driver away if a URL names no host; MySQL's goes to this machine.
_HOST_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE")
_HOSTS, _ELSEWHERE = ("host", "hostaddr", "unix_socket"), ("service", "servicefile", "read_default_file")


def is_confined(place: str, folder: Path, environ: Mapping[str, str] = os.environ) -> bool:
    if not has_scheme(place):
        return _is_below(place, folder)
    if "::" in place.partition("://")[0]:
        return False
    scheme, _, rest = place.partition(":")
    dialect = scheme.lower().partition("+")[0]
    if dialect == "sqlite":
        return _is_below(rest.removeprefix("///").partition("?")[0], folder)
    if dialect in ("file", "local"):
        netloc, path = (urlsplit(place).netloc, urlsplit(place).path) if rest.startswith("//") else ("", rest)
        # The name may be percent-encoded or contain a percent sign: both readings must be inside.
        return netloc in ("", "localhost") and all(_is_below(one, folder) for one in {path, unquote(path)})
    if dialect in _DATABASES:
        return _is_database_here(place, dialect, environ)
    if dialect in ("http", "https", "thrift"):
        return _is_loopback(urlsplit(place).hostname or "")
    return dialect == "memory"


def _is_below(path: str, folder: Path) -> bool:
    inside = Path(os.path.realpath(folder))
    # The root of the file system does not confine anything.
    return os.path.isabs(path) and inside != inside.parent and Path(os.path.realpath(path)).is_relative_to(inside)


def _is_database_here(url: str, dialect: str, environ: Mapping[str, str]) -> bool:
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    if any(name in _ELSEWHERE for name, _ in options):
        return False
    hosts = []
    for host in parts.netloc.rpartition("@")[2].split(","):
        hosts.append(unquote(host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]))
    hosts += [host for name, value in options if name in _HOSTS for host in value.split(",")]
    if not any(hosts) and dialect == "postgresql":
        hosts = [environ[name] for name in _HOST_VARIABLES if environ.get(name)]
    # A socket's path is on this machine, and so is a URL without a host.
    return all(not host or host.startswith("/") or _is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"

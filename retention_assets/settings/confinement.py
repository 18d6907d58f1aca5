"""Confinement of simulated environments: a store is below one folder or on this machine.

Judged by the text of a place and by drivers' environment variables, without opening anything. What is not understood is
outside.
"""

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from retention_assets.settings.urls import has_scheme

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
    hosts = [unquote(host) for host in _hosts_of(parts.netloc)]
    hosts += [host for name, value in options if name in _HOSTS for host in value.split(",")]
    if not any(hosts) and dialect == "postgresql":
        hosts = [environ[name] for name in _HOST_VARIABLES if environ.get(name)]
    # A socket's path is on this machine, and so is a URL without a host.
    return all(not host or host.startswith("/") or _is_loopback(host) for host in hosts)


def _hosts_of(netloc: str) -> list[str]:
    hosts = []
    for one in netloc.rpartition("@")[2].split(","):
        hosts.append(one[1:].partition("]")[0] if one.startswith("[") else one.partition(":")[0])
    return hosts


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"

"""Opens file systems from paths and URIs, and reports unknown schemes and missing drivers.

Drivers and credentials are found as fsspec finds them: by the environment and its configuration files.
"""

import os
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, TypeAlias

import fsspec  # type: ignore[import-untyped]
from fsspec.config import conf  # type: ignore[import-untyped]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
from fsspec.registry import known_implementations, registry  # type: ignore[import-untyped]

from retention_assets.errors import InvalidValue, Refused, nearest
from retention_assets.settings.places import has_scheme, mask_secrets, mask_text
from retention_assets.silence import silence_bound

# s3fs repeats a call and botocore each request within it; all attempts together wait for `timeout`
_S3_CALLS, _S3_ATTEMPTS = 2, 3
FileSystem: TypeAlias = fsspec.AbstractFileSystem


def check_scheme(place: str) -> None:
    """Raises InvalidValue for a URI of an unknown scheme or a missing driver. Opens nothing."""
    for link in place.split("::") if has_scheme(place) else ():
        scheme = link.partition(":")[0]
        # a chained URI may end in a path
        if "/" in scheme:
            continue
        if scheme not in known_implementations and scheme not in registry:
            guess = nearest(scheme.lower(), sorted(known_implementations))
            remedy = f"Did you mean {guess}:// ?" if guess else "A path of this machine needs no scheme."
            raise InvalidValue(
                f"begins with {scheme}:, which is not a known file system", "a path, or a URI such as s3://…", remedy
            )
        if missing := _missing_driver(scheme):
            extra = "pip install 'retention-assets[s3]'"
            remedy = extra if "s3fs" in missing else "Install that package where retention runs."
            raise InvalidValue(f"is on a file system whose driver is not installed: {missing}", remedy=remedy)


def _missing_driver(scheme: str) -> str | None:
    known = known_implementations.get(scheme, {})
    package = known.get("class", "fsspec").partition(".")[0]
    if package != "fsspec":
        # looked for, not imported
        return None if find_spec(package) else f"{known.get('err') or f'{package} is needed'}."
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as fault:
        return f"{fault}."
    return None


def open_file_system(place: str) -> tuple[FileSystem, str]:
    """Return the file system of a path or URI, and the path in it. A plain path may hold any characters.

    Raises Refused where the scheme is unknown, its driver is not installed, or the driver cannot be started.
    """
    if not has_scheme(place):
        return LocalFileSystem(), place
    try:
        fs, path = fsspec.url_to_fs(place)
    except ImportError as fault:
        # fsspec names the missing package; the one for S3 comes with an extra
        if "s3fs" in str(fault):
            raise Refused("s3fs is not installed. S3 needs it: pip install 'retention-assets[s3]'.") from fault
        raise Refused(f"The driver for this place is not installed: {fault}. Install it where retention runs.") from fault
    except Exception as fault:
        try:
            check_scheme(place)
        except InvalidValue as unknown:
            raise Refused(f"The place {mask_secrets(place)} {unknown.what}. {unknown.remedy}") from None
        # some drivers connect in their constructor and raise anything
        [line, *_] = str(fault).splitlines() or [""]
        raise Refused(
            f"The file system of {mask_secrets(place)} can't be opened: {type(fault).__name__}: {mask_text(line)}. Check "
            "that it is reachable and that its driver is installed here."
        ) from fault
    if is_s3(fs):
        _read_times_quickly(fs)
    _bound_waiting(fs)
    return fs, str(path)


def _read_times_quickly(fs: FileSystem) -> None:
    # the driver tries every date format, for each object of a listing; it must not have connected yet
    if fs.session is None:
        from aiobotocore.session import AioSession  # type: ignore[import-untyped]

        session = AioSession(**fs.kwargs)
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
        fs.session = session


def parse_time(value: Any) -> datetime:
    """Parse a time in S3's formats; leave any other to the driver's parser."""
    if isinstance(value, str):
        try:
            if value[10:11] == "T" and value.endswith("Z"):
                return datetime.fromisoformat(value)
            if value.endswith(" GMT"):
                return parsedate_to_datetime(value)
        except ValueError:
            pass
    from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

    time: datetime = parse_timestamp(value)
    return time


def _bound_waiting(fs: FileSystem) -> None:
    if is_s3(fs):
        each = silence_bound() / (_S3_CALLS * _S3_ATTEMPTS)
        bounds: dict[str, Any] = {"connect_timeout": each, "read_timeout": each}
        if "AWS_MAX_ATTEMPTS" not in os.environ:
            bounds["retries"] = {"total_max_attempts": _S3_ATTEMPTS}
        fs.config_kwargs = {**bounds, **fs.config_kwargs}
        fs.retries = _S3_CALLS
    elif "http" in fs.protocol:
        from aiohttp import ClientTimeout

        bound = ClientTimeout(total=None, sock_connect=silence_bound(), sock_read=silence_bound())
        fs.client_kwargs = {"timeout": bound, **fs.client_kwargs}


@lru_cache(maxsize=8)
def without_retries(fs: FileSystem, process: int) -> FileSystem:  # noqa: ARG001 - a connection is of one process
    """Copy an S3 file system without the driver's own retries: they ask for no permit and hide that a server is too busy."""
    own = type(fs)(*fs.storage_args, **{**fs.storage_options, "skip_instance_cache": True})
    own.config_kwargs = {**fs.config_kwargs, "retries": {"total_max_attempts": 1}}
    own.retries = 1
    return own


def is_local(fs: FileSystem) -> bool:
    return isinstance(fs, LocalFileSystem)


def is_s3(fs: FileSystem) -> bool:
    """Tell S3 and compatible servers from other file systems."""
    return "s3" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def server_time(place: str) -> datetime | None:
    """Return the object store's clock, to the second; None where there is none or it doesn't answer."""
    fs, path = open_file_system(place)
    if not is_s3(fs):
        return None
    answer = fs.call_s3("head_bucket", Bucket=path.partition("/")[0])
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return parsedate_to_datetime(date) if date else None


def s3_endpoint() -> str | None:
    """Follow fsspec's configuration (files and variables), then Amazon's own variables."""
    own = conf.get("s3", {})
    configured = (own.get("endpoint_url"), own.get("client_kwargs", {}).get("endpoint_url"))
    return next(filter(None, (*configured, os.environ.get("AWS_ENDPOINT_URL_S3"), os.environ.get("AWS_ENDPOINT_URL"))), None)

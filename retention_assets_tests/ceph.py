"""A Ceph of one node with its S3 gateway: a real object store, where one is installed."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

from retention_assets.stores.places import file_systems

_PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
_KEY, _SECRET = "test", "testtest"
# On a machine that has much else to do, a monitor takes longer to answer than a client waits before it gives the connection up.
_CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{monitor}
auth cluster required = none
auth service required = none
auth client required = none
ms bind msgr2 = false
mon client hunt interval = 60
mon client directed command retry = 20
mon allow pool size one = true
osd pool default size = 1
osd pool default pg num = 1
osd crush chooseleaf type = 0
osd crush update on start = false
osd class update on start = false
osd objectstore = memstore
memstore device bytes = 1073741824
mon data = {folder}/mon
osd data = {folder}/osd
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
pid file = {folder}/$name.pid
rgw frontends = beast endpoint=127.0.0.1:{gateway}
"""


@pytest.fixture(scope="session")
def ceph() -> Iterator[dict[str, str]]:
    """The environment variables with which a client reaches a gateway that is there for this session alone."""
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        pytest.skip(
            f"no Ceph is installed here, {missing[0]} is missing (Debian: apt-get install ceph-common ceph-mon ceph-osd radosgw)"
        )
    # Not below pytest's folder: the path of a socket holds about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="ceph-") as name:
        folder, (monitor, gateway) = Path(name), (_free_port(), _free_port())
        try:
            try:
                _start(folder, monitor, gateway)
            except subprocess.SubprocessError as error:
                pytest.skip(f"Ceph is installed, and does not start here: {error} {getattr(error, 'stderr', '')}")
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gateway}", "AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _SECRET,
                "AWS_DEFAULT_REGION": "us-east-1",
            }  # fmt: skip
        finally:
            for pid in folder.glob("*.pid"):
                with suppress(ProcessLookupError, ValueError):
                    os.kill(int(pid.read_text()), signal.SIGKILL)


def forget_connections() -> None:
    """Let the next client of S3 connect as the environment says now."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    file_systems.without_retries.cache_clear()


def _start(folder: Path, monitor: int, gateway: int) -> None:
    cluster, disk = str(uuid.uuid4()), str(uuid.uuid4())
    for part in ("mon", "osd"):
        (folder / part).mkdir()
    text = _CONFIGURATION.format(fsid=cluster, folder=folder, monitor=monitor, gateway=gateway)
    (folder / "ceph.conf").write_text(text)
    here = ["-c", str(folder / "ceph.conf")]
    _run("monmaptool", "--create", "--addv", "a", f"v1:127.0.0.1:{monitor}", "--fsid", cluster, str(folder / "monmap"))
    _run("ceph-mon", *here, "--mkfs", "-i", "a", "--monmap", str(folder / "monmap"))
    _run("ceph-mon", *here, "-i", "a")
    _run("ceph", *here, "osd", "new", disk)
    _run("ceph-osd", *here, "-i", "0", "--mkfs", "--osd-uuid", disk)
    _run("ceph-osd", *here, "-i", "0")
    _run("ceph", *here, "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=localhost")
    user = ("--uid=test", "--display-name=test", f"--access-key={_KEY}", f"--secret-key={_SECRET}")
    _run("radosgw-admin", *here, "user", "create", *user)
    _run("radosgw", *here, "-n", "client.rgw")


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port: int = found.getsockname()[1]
        return port

"""Settings that a Spark cluster can't use because they are local to this machine, or would name another place elsewhere."""

from collections.abc import Iterable, Iterator

from retention_assets.errors import InvalidValue
from retention_assets.settings.urls import Url, has_scheme

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
            f"is a file of this machine, {where}, and each would make an empty ledger of its own",
            "postgresql://user:password@host/database",
            "Give the ledger a PostgreSQL server, or set spark.master to local[*].",
            key="ledger",
        )
    if shared_disk:
        return
    shared = "If the folder is the same on all machines (NFS), say spark.shared_disk: true."
    if _is_local(warehouse):
        yield InvalidValue(
            f"is a folder of this machine, {where}, and write where nobody reads",
            "a place that all machines reach, such as s3://bucket/prefix",
            shared,
            key="warehouse",
        )
    for store, place in stores:
        if _is_local(place):
            yield InvalidValue(
                f"holds the store {store} with {place}, of this machine, {where}, and would find nothing, or other data",
                "places that all machines reach",
                shared,
                key="stores",
            )


def _is_local(place: str) -> bool:
    """fsspec reads a chain at its last part; the others are copies."""
    last = place.rpartition("::")[2]
    return last.lower().startswith(_HERE) or not has_scheme(last)

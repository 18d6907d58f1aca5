"""Published asset versions: which folder of the warehouse holds an asset's rows of a dataset.

Belongs here: pointing an asset and a dataset at a folder, and reading where they point.
Does not belong here: the folders themselves (pipeline/warehouse.py).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, or_, select

from retention_assets.ledger.audit.chain import Act, ActType, new_id
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import PUBLISHED
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.transactions import portions
from retention_assets.sql.upserts import insert_or_update


class Publication(NamedTuple):
    """The folder that holds an asset's rows of a dataset, and the run that wrote it."""

    asset: str
    dataset: str
    folder: str
    run: str


@dataclass(frozen=True)
class Publications:
    """The published asset versions of a ledger."""

    database: LedgerDatabase

    def publish(self, publications: Sequence[Publication], actor: str) -> None:
        """Point at new folders, all at once."""
        self.database.write(lambda tx: publish(tx, publications, actor))

    def of(self, asset: str, datasets: Iterable[str] | None = None) -> list[Publication]:
        """What is published of an asset, for all datasets or those that are named."""
        wanted = None if datasets is None else set(datasets)
        return [one for one in self._of(asset) if wanted is None or one.dataset in wanted]

    def datasets(self, asset: str) -> list[str]:
        """The datasets of which something is published of an asset, sorted."""
        query = select(PUBLISHED.c.dataset).where(PUBLISHED.c.asset == asset).order_by(PUBLISHED.c.dataset)
        with self.database.reading() as connection:
            return list(connection.execute(query).scalars())

    def named(self, name: str) -> dict[str, str]:
        """By dataset the newest folder of an asset of that name, whatever prefix its key has."""
        last = or_(PUBLISHED.c.asset == name, PUBLISHED.c.asset.endswith(f"/{name}", autoescape=True))
        query = select(PUBLISHED.c.dataset, PUBLISHED.c.folder).where(last).order_by(PUBLISHED.c.published_at)
        with self.database.reading() as connection:
            return {row.dataset: row.folder for row in connection.execute(query)}

    def by(self, asset: str, runs: Iterable[str]) -> list[Publication]:
        """What some runs published of an asset, as far as nobody has published it anew since."""
        return self._of(asset, PUBLISHED.c.run.in_(set(runs)))

    def folders(self) -> set[str]:
        """Every folder that something points at."""
        with self.database.reading() as connection:
            return set(connection.execute(select(PUBLISHED.c.folder).distinct()).scalars())

    def _of(self, asset: str, *where: ColumnElement[bool]) -> list[Publication]:
        query = select(*(PUBLISHED.c[name] for name in Publication._fields)).where(PUBLISHED.c.asset == asset, *where)
        with self.database.reading() as connection:
            return [Publication(*row) for row in connection.execute(query.order_by(PUBLISHED.c.dataset))]


def publish(tx: WriteTransaction, publications: Sequence[Publication], actor: str) -> None:
    """Point at new folders as part of a transaction."""
    if not publications:
        return
    act, at = new_id(), tx.connection.execute(select(DatabaseTime())).scalar_one()
    statement = insert_or_update(tx.connection, PUBLISHED, ("asset", "dataset"), ("folder", "run", "act", "published_at"))
    for some in portions(publications):
        tx.connection.execute(statement.values(act=act, published_at=at), [one._asdict() for one in some])
    detail = {"published": {"act": act, "at": text_of(at), "groups": _groups(publications)}}
    tx.record(Act(ActType.PUBLISH, actor, detail=detail, members=len(publications), at=at, id=act))


def _groups(publications: Sequence[Publication]) -> list[dict[str, Any]]:
    """The same, with each dataset named once: most of a run's assets go to one folder for all datasets."""
    if len(alike := {(one.asset, one.run, one.folder) for one in publications}) == 1:
        return [{"assets": sorted(alike), "datasets": sorted({one.dataset for one in publications})}]
    places: defaultdict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for one in publications:
        places[one.dataset].add((one.asset, one.run, one.folder))
    groups: defaultdict[tuple[tuple[str, str, str], ...], list[str]] = defaultdict(list)
    for dataset in sorted(places):
        groups[tuple(sorted(places[dataset]))].append(dataset)
    return [{"assets": assets, "datasets": datasets} for assets, datasets in sorted(groups.items())]

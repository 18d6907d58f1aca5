"""Published asset versions: which folder of the warehouse holds an asset's rows of a dataset.

Belongs here: pointing an asset and a dataset at a folder, and reading where it points.
Does not belong here: the folders themselves. One that nothing points at was left by a crash, and a later run removes it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import select

from retention_assets.ledger.audit.chain import Act, ActType, new_id
from retention_assets.ledger.audit.seals import digest_of
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import PUBLISHED
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.upserts import insert_or_update

_COLUMNS = ("asset", "dataset", "folder", "run")


class Publication(NamedTuple):
    """An asset's rows of some dataset are in a folder, which a run wrote."""

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
        self.database.write(lambda doing: publish(doing, publications, actor))

    def of(self, asset: str, datasets: Iterable[str] | None = None) -> list[Publication]:
        """What is published of an asset, for all datasets or those that are named."""
        query = select(*(PUBLISHED.c[name] for name in _COLUMNS)).where(PUBLISHED.c.asset == asset)
        wanted = None if datasets is None else set(datasets)
        with self.database.reading() as connection:
            found = [Publication(*row) for row in connection.execute(query.order_by(PUBLISHED.c.dataset))]
        return [one for one in found if wanted is None or one.dataset in wanted]

    def datasets(self, asset: str) -> list[str]:
        """The datasets of which something is published of an asset, sorted."""
        query = select(PUBLISHED.c.dataset).where(PUBLISHED.c.asset == asset).order_by(PUBLISHED.c.dataset)
        with self.database.reading() as connection:
            return list(connection.execute(query).scalars())

    def by(self, asset: str, runs: Iterable[str]) -> list[Publication]:
        """What some runs published of an asset, as far as nobody has published it anew since."""
        query = select(*(PUBLISHED.c[name] for name in _COLUMNS)).where(
            PUBLISHED.c.asset == asset, PUBLISHED.c.run.in_(set(runs))
        )
        with self.database.reading() as connection:
            return [Publication(*row) for row in connection.execute(query.order_by(PUBLISHED.c.dataset))]

    def folders(self) -> set[str]:
        """Every folder that something points at."""
        with self.database.reading() as connection:
            return set(connection.execute(select(PUBLISHED.c.folder).distinct()).scalars())


def publish(doing: WriteTransaction, publications: Sequence[Publication], actor: str) -> None:
    """Point at new folders as part of a transaction."""
    if not publications:
        return
    act, members = new_id(), sorted(publications)
    rows = [{"asset": one.asset, "dataset": one.dataset, "folder": one.folder, "run": one.run, "act": act} for one in members]
    statement = insert_or_update(doing.connection, PUBLISHED, ("asset", "dataset"), ("folder", "run", "act", "published_at"))
    doing.connection.execute(statement.values(published_at=DatabaseTime()), rows)
    digest = digest_of(json.dumps([one.asset, one.dataset, one.folder, one.run]) for one in members)
    detail = {"assets": sorted({one.asset for one in members}), "runs": sorted({one.run for one in members})}
    doing.record(Act(ActType.PUBLISH, actor, detail=detail, members=len(members), digest=digest, id=act))

"""Published asset versions: the folder of the warehouse that holds an asset's rows of a dataset."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, or_, select

from retention_assets.ledger.audit.chain import Act, ActType, new_id
from retention_assets.ledger.database import LedgerPart, WriteTransaction
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


class Publications(LedgerPart):
    """The published asset versions of a ledger."""

    def publish(self, publications: Sequence[Publication], actor: str) -> None:
        self.database.write(lambda tx: publish(tx, publications, actor))

    def of(self, asset: str, datasets: Iterable[str] | None = None) -> list[Publication]:
        wanted = None if datasets is None else set(datasets)
        return [one for one in self._of(asset) if wanted is None or one.dataset in wanted]

    def datasets(self, asset: str) -> list[str]:
        query = select(PUBLISHED.c.dataset).where(PUBLISHED.c.asset == asset).order_by(PUBLISHED.c.dataset)
        return [dataset for (dataset,) in self.rows(query)]

    def named(self, name: str) -> dict[str, str]:
        """Newest folder by dataset of an asset of that name, whatever the prefix of its key."""
        last = or_(PUBLISHED.c.asset == name, PUBLISHED.c.asset.endswith(f"/{name}", autoescape=True))
        query = select(PUBLISHED.c.dataset, PUBLISHED.c.folder).where(last).order_by(PUBLISHED.c.published_at)
        return {row.dataset: row.folder for row in self.rows(query)}

    def by(self, asset: str, runs: Iterable[str]) -> list[Publication]:
        """Publications of some runs that no later run replaced."""
        return self._of(asset, PUBLISHED.c.run.in_(set(runs)))

    def folders(self) -> set[str]:
        return {folder for (folder,) in self.rows(select(PUBLISHED.c.folder).distinct())}

    def _of(self, asset: str, *where: ColumnElement[bool]) -> list[Publication]:
        query = select(*(PUBLISHED.c[name] for name in Publication._fields)).where(PUBLISHED.c.asset == asset, *where)
        return [Publication(*row) for row in self.rows(query.order_by(PUBLISHED.c.dataset))]


def publish(tx: WriteTransaction, publications: Sequence[Publication], actor: str) -> None:
    if not publications:
        return
    act, at = new_id(), tx.connection.execute(select(DatabaseTime())).scalar_one()
    statement = insert_or_update(tx.connection, PUBLISHED, ("asset", "dataset"), ("folder", "run", "act", "published_at"))
    for some in portions(publications):
        tx.connection.execute(statement.values(act=act, published_at=at), [one._asdict() for one in some])
    detail = {"published": {"act": act, "at": text_of(at), "groups": _groups(publications)}}
    tx.record(Act(ActType.PUBLISH, actor, detail=detail, members=len(publications), at=at, id=act))


def _groups(publications: Sequence[Publication]) -> list[dict[str, Any]]:
    if len(alike := {(one.asset, one.run, one.folder) for one in publications}) == 1:
        return [{"assets": sorted(alike), "datasets": sorted({one.dataset for one in publications})}]
    places: defaultdict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for one in publications:
        places[one.dataset].add((one.asset, one.run, one.folder))
    groups: defaultdict[tuple[tuple[str, str, str], ...], list[str]] = defaultdict(list)
    for dataset in sorted(places):
        groups[tuple(sorted(places[dataset]))].append(dataset)
    return [{"assets": assets, "datasets": datasets} for assets, datasets in sorted(groups.items())]

"""DataHub's table in SQL: selections and conditions in each database's dialect.

DataHub names the columns: urn, aspect, version, metadata, systemmetadata, createdon.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import (
    ARRAY,
    CHAR,
    BigInteger,
    ColumnElement,
    Connection,
    DateTime,
    Integer,
    LargeBinary,
    Numeric,
    Select,
    String,
    Table,
    Text,
    and_,
    any_,
    case,
    cast,
    extract,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
)

from retention_assets.errors import Refused
from retention_assets.sql.foreign import ForeignDatabase, table_of
from retention_assets.stores.aspects.rows import PREFIX, Key, UrnRows

KEY = ("urn", "aspect", "version")
_NEEDED = (*KEY, "metadata", "createdon")
# above this, one scan of all rows is cheaper than a condition on each
_MOST_ENTITIES = 50
# urns whose versions are read by one statement
_URNS = 1_000
# last day of PostgreSQL whose microseconds surely fit a bigint, and the value for later days
_LAST_DAY = "'290000-01-01'"
_FOREVER = 9_200_000_000_000_000_000


@dataclass(frozen=True)
class AspectsTable:
    """DataHub's table and queries about it."""

    table: Table
    dialect: str

    @classmethod
    def of(cls, database: ForeignDatabase, name: str) -> "AspectsTable":
        """Inspect the table. Raises Refused where it is missing or not DataHub's."""
        table = table_of(database, name)
        if missing := [column for column in _NEEDED if column not in table.c]:
            raise Refused(
                f"The table {name} of the store {database.store} lacks the column {', '.join(missing)} of DataHub's table "
                "of aspects. Check `table` in the settings."
            )
        return cls(table, database.dialect)

    @property
    def urn(self) -> ColumnElement[Any]:
        return self.table.c.urn

    @property
    def aspect(self) -> ColumnElement[Any]:
        return self.table.c.aspect

    @property
    def version(self) -> ColumnElement[Any]:
        """0 is current; 1 and up are its history, from the oldest."""
        return self.table.c.version

    @cached_property
    def entity(self) -> ColumnElement[Any]:
        """Third part of an urn; null for rows of no entity."""
        third: ColumnElement[Any]
        if self.dialect == "postgresql":
            is_urn, third = self.urn.like(f"{PREFIX}%:%"), func.split_part(self.urn, ":", 3)
        elif self.dialect == "sqlite":
            # LIKE would also match urn:LI:
            rest = func.substr(self.urn, len(PREFIX) + 1)
            is_urn = self.urn.op("GLOB")(f"{PREFIX}*:*")
            third = func.substr(rest, 1, func.instr(rest, ":") - 1)
        else:
            is_urn = cast(self.urn, LargeBinary).op("LIKE")(literal(f"{PREFIX}%:%", String))
            third = func.substring_index(func.substring_index(self.urn, ":", 3), ":", -1)
        return case((is_urn, third))

    @cached_property
    def size(self) -> ColumnElement[Any]:
        """Bytes of a row's documents, without reading them where the database can tell."""
        sizes = [self._length(self.table.c[name]) for name in ("metadata", "systemmetadata") if name in self.table.c]
        total = sizes[0]
        for other in sizes[1:]:
            total = total + other
        return cast(total, BigInteger) if self.dialect == "postgresql" else total

    def _length(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        if self.dialect == "sqlite":
            column = cast(column, LargeBinary)
            return func.coalesce(func.length(column, type_=Integer), 0)
        return func.coalesce(func.octet_length(column, type_=Integer), 0)

    @cached_property
    def moment(self) -> ColumnElement[Any]:
        """`createdon` as a value that is equal if and only if the time is: microseconds, or the raw value on SQLite."""
        created = self.table.c.createdon
        if self.dialect == "postgresql":
            # infinity is no bigint, and would fail every statement that meets it
            return case(
                (created >= literal_column(_LAST_DAY), _FOREVER),
                (created > literal_column("'-infinity'"), cast(extract("epoch", created) * 1_000_000, BigInteger)),
                else_=-_FOREVER,
            )
        if self.dialect == "sqlite":
            return created
        return func.timestampdiff(
            literal_column("MICROSECOND"), literal_column("'1970-01-01'", DateTime), created, type_=BigInteger
        )

    @cached_property
    def _created(self) -> ColumnElement[Any]:
        created = self.table.c.createdon
        if self.dialect != "sqlite":
            return created
        # Seconds or milliseconds? A number misread is long ago, and its row goes. So a number becomes a text that is no time.
        kind = func.typeof(created, type_=String)
        shown = func.quote(created, type_=String) + " (" + kind + ")"
        return case((kind == "text", created), (kind != "null", shown))

    @cached_property
    def _created_text(self) -> ColumnElement[Any]:
        # ISO 8601 for times, the raw text for anything else
        created = self.table.c.createdon
        if self.dialect == "postgresql":
            # unlike a cast, independent of the server's DateStyle
            return func.btrim(cast(func.to_json(created), Text), '"', type_=Text)
        return self._created if self.dialect == "sqlite" else cast(created, CHAR)

    @cached_property
    def _fingerprint(self) -> ColumnElement[Any]:
        # differs for different rows, and for one row with another time
        if self.dialect == "postgresql":
            return func.hashtextextended(self.urn, func.hashint8extended(self.version, self._moment_hash))
        if self.dialect == "sqlite":
            return func.retention_print(self.urn, self.version, self.moment)
        text = func.concat_ws("|", self.urn, self.version, self.moment)
        return cast(func.conv(func.left(func.md5(text), 15), 16, 10), Numeric(20))

    @property
    def _moment_hash(self) -> ColumnElement[Any]:
        # ten times faster than `moment`
        created: ColumnElement[Any] = self.table.c.createdon
        has_zone = getattr(created.type, "timezone", None)
        if has_zone is None:
            return self.moment
        return func.coalesce(func.timestamp_hash_extended(func.timezone("UTC", created) if has_zone else created, 0), 0)

    def counts(self) -> Select[Any]:
        """Count the rows by entity and aspect, in one scan of the table or of an index with its key."""
        return select(self.entity, self.aspect, func.count()).group_by(self.entity, self.aspect)

    def fingerprints(self, keys: Collection[Key]) -> Select[Any]:
        """Select entity, aspect and numbers that change whenever a row does, in one scan of these entities."""
        # any time has a text, even an infinite one; on SQLite it may be bytes, which have none
        latest: ColumnElement[Any] = func.max(self.table.c.createdon)
        if self.dialect == "sqlite":
            latest = func.quote(latest)
        numbers = (func.count(), func.sum(self.version), func.max(self.version), func.sum(self._fingerprint), latest)
        texts = [cast(number, String(80)) for number in numbers]
        return select(self.entity, self.aspect, *texts).where(self.among(keys)).group_by(self.entity, self.aspect)

    def rows(self, which: ColumnElement[bool]) -> Select[Any]:
        return select(self.urn, self.aspect, self.version, self._created, self.size).where(which)

    def texts(self, which: ColumnElement[bool]) -> Select[Any]:
        """Select rows with their times as text, impossible ones included."""
        return select(self.urn, self.aspect, self.version, self._created_text, self.size).where(which)

    def of_urns(self, urns: Sequence[str], aspect: str) -> ColumnElement[bool]:
        # one parameter, however many urns, where a database takes an array
        is_of_urns = self.urn == any_(cast(list(urns), ARRAY(Text))) if self.dialect == "postgresql" else self.urn.in_(urns)
        return and_(self.aspect == aspect, is_of_urns)

    def read_versions(self, connection: Connection, urns: Sequence[str], aspect: str) -> dict[str, UrnRows]:
        versions_by_urn: dict[str, dict[int, tuple[int | str, int]]] = {}
        for at in range(0, len(urns), _URNS):
            query = select(self.urn, self.version, self.moment, self.size).where(self.of_urns(urns[at : at + _URNS], aspect))
            # all at once: fetching rows one by one costs as much as deleting them
            for urn, version, moment, size in connection.execute(query).all():
                versions_by_urn.setdefault(urn, {})[version] = (moment, size)
        return {urn: UrnRows(versions) for urn, versions in versions_by_urn.items()}

    def among(self, keys: Iterable[Key]) -> ColumnElement[bool]:
        """Match the rows of these entities and aspects, and perhaps others; by ranges of the key where the database can."""
        aspects: dict[str, list[str]] = {}
        for entity, aspect in keys:
            aspects.setdefault(entity, []).append(aspect)
        if "" in aspects or len(aspects) > _MOST_ENTITIES:
            return self.aspect.in_(sorted({one for names in aspects.values() for one in names})) if aspects else true()
        return or_(
            *(and_(self._of_entity(entity), self.aspect.in_(sorted(names))) for entity, names in sorted(aspects.items()))
        )

    def _of_entity(self, entity: str) -> ColumnElement[bool]:
        first = f"{PREFIX}{entity}:"
        if self.dialect == "sqlite":
            return and_(self.urn >= first, self.urn < f"{PREFIX}{entity};")
        return self.urn.like(first.replace("_", "!_") + "%", escape="!")

"""Settings of an `objects` store under `stores:` in `retention.yaml`, and contradictions among them."""

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from retention_assets.errors import InvalidValue
from retention_assets.policy.durations import Duration, Length, is_always_longer
from retention_assets.policy.keys import tuple_of
from retention_assets.settings.places import mask_text
from retention_assets.stores.objects.source_settings import (
    EdgeSettings,
    ListedColumns,
    Listing,
    ParquetListing,
    PathListing,
    ReferenceSettings,
    SqlListing,
    SqlObjects,
    StoreReferences,
    TableListing,
    one_of,
)
from retention_assets.stores.places import undo_fault_of
from retention_assets.stores.records.settings import ColumnName
from retention_assets.stores.settings import RealmColumn, SettingsPart, StoreSettings, one_group

# Younger objects are never judged, whatever the settings: clocks differ, and writers take time.
FLOOR = Duration(seconds=300)
# keys that affect neither classes nor datasets
_JUDGING_NOTHING = {"name", "kind", "filter", "brakes", "rates", "delete", "rewrites", "rows_up_to", "scans_kept"}
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def placeholders(template: str | None) -> set[str]:
    """Part numbers, `realm` and `kind` that a template uses."""
    return set(PLACEHOLDER.findall(template or ""))


def _template(text: str) -> str:
    rest = PLACEHOLDER.sub("", text)
    are_known = all(name.isdecimal() or name in ("realm", "kind") for name in placeholders(text))
    if not text or "{" in rest or "}" in rest or not are_known:
        raise InvalidValue("is not a template", "text with {0}, {1} … (parts of the key), {realm} or {kind}, such as '{realm}'")
    return text


def _min_age(value: Duration) -> Duration:
    if is_always_longer(FLOOR, value):
        raise InvalidValue(
            "is shorter than the floor of 5m", "5m or longer", "Clocks differ: younger objects are never judged."
        )
    return value


class FromColumn(RealmColumn):
    """A column of the listing."""

    column: ColumnName


class FromPattern(SettingsPart):
    """A regular expression for keys, whose group finds the value; no match, no value."""

    pattern: Annotated[str, AfterValidator(lambda text: one_group(text, meaning="kind"))]


class FingerprintFilter(SettingsPart):
    """64 bits of a keyed hash for each of n references: an unreferenced object is kept by chance, at a rate of n / 2^64."""

    kind: Literal["fingerprints"] = "fingerprints"


class BloomFilter(SettingsPart):
    """A Bloom filter, sized in advance; a scan whose effective rate is above `max_fpp` is refused."""

    kind: Literal["bloom"]
    fpp: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    max_fpp: Annotated[float, Field(gt=0, lt=1)] = 5e-5
    expected: Annotated[int, Field(gt=0)] = 100_000
    growth: Annotated[float, Field(ge=1)] = 1.1

    @model_validator(mode="after")
    def _rates_agree(self) -> Self:
        if self.max_fpp < self.fpp:
            raise InvalidValue("is lower than fpp, so every scan would be refused", f"{self.fpp} or more", key="max_fpp")
        return self


Share = Annotated[float, Field(ge=0, le=1)]


class Brakes(SettingsPart):
    """Limits beyond which a scan marks nothing until a person has looked."""

    references_shrink: Annotated[Share, Field(description="The share by which the number of references may fall.")] = 0.2
    within: Annotated[Length, Field(description="How old the scan with the most references may be.")] = Duration(days=30)
    unreferenced_fraction: Annotated[Share, Field(description="Share of the judged objects, and of their bytes.")] = 0.9
    unresolved_references: Annotated[Share, Field(description="Share of distinct references without a listed object.")] = 0.5
    empty_source: Annotated[Literal["refuse", "allow"], Field(description="A source without references.")] = "refuse"


class Rates(SettingsPart):
    """Requests or rows a second, for the whole store; 0 is no limit."""

    scan: Annotated[int, Field(ge=0, description="Objects listed a second.")] = 0
    references: Annotated[int, Field(ge=0, description="References read a second.")] = 0
    delete: Annotated[int, Field(ge=0, description="Objects deleted a second.")] = 3000


class DeleteSettings(SettingsPart):
    """Condition under which an object is deleted."""

    condition: Annotated[
        Literal["auto", "none"],
        Field(description="auto: version, generation, ETag, or creation and size, as the place has them. none: no condition."),
    ] = "auto"


def _sources(value: object) -> object:
    if value == "none":
        return ()
    if value in ([], ()):
        raise InvalidValue("is empty", "sources, or the word none: nothing refers to the objects, and only age decides")
    return tuple_of(value)


def _filter(value: object) -> object:
    if isinstance(value, str) or (isinstance(value, dict) and value.get("kind") not in ("fingerprints", "bloom")):
        raise InvalidValue("is not a filter", "{kind: fingerprints} or {kind: bloom}")
    return value


Derived = Annotated[FromColumn | FromPattern, BeforeValidator(one_of(column=FromColumn, pattern=FromPattern))]


def _realm(value: object, info: ValidationInfo) -> object:
    if value is None or not isinstance(value, str):
        return value and one_of(column=FromColumn)(value, info)
    if "{realm}" in value or "{kind}" in value:
        raise InvalidValue("names a realm by itself", "text with {0}, {1} … (parts of the key)")
    return _template(value)


def _columns_of(listing: Listing) -> SqlObjects | ListedColumns | None:
    match listing:
        case SqlListing():
            return listing.sql
        case TableListing():
            return listing.table.columns
        case ParquetListing():
            return listing.parquet.columns
    return None


class ObjectsSettings(StoreSettings):
    """Kind `objects`: stored objects, which are deleted when nothing refers to them."""

    has_realm_column: ClassVar[bool] = True
    has_branches: ClassVar[bool | None] = False

    kind: Literal["objects"] = "objects"
    listing: Annotated[Listing, Field(description="The listing of the objects: path, inventory, table, parquet or sql.")]
    dataset: Annotated[
        str | None,
        AfterValidator(lambda text: text and _template(text)),
        Field(description="A dataset's name. By default {realm} if objects have realms, else one dataset for all."),
    ] = None
    realm: Annotated[str | FromColumn | None, BeforeValidator(_realm)] = None
    kind_of: Derived | None = None
    references: Annotated[
        tuple[ReferenceSettings, ...],
        BeforeValidator(_sources, json_schema_input_type=tuple[ReferenceSettings, ...] | Literal["none"]),
        Field(description="The data that refers to objects; none: only age decides."),
    ]
    edges: Annotated[tuple[EdgeSettings, ...], BeforeValidator(tuple_of)] = ()
    known_kinds: Annotated[
        tuple[str, ...] | None, BeforeValidator(tuple_of), Field(description="Objects of other kinds are never marked.")
    ] = None
    min_age: Annotated[Length, AfterValidator(_min_age), Field(description="Younger objects are never judged.")] = Duration(
        seconds=3 * 3600
    )
    rewrites: Annotated[bool, Field(description="Writers reuse existing objects (content addressing).")] = False
    filter: Annotated[
        FingerprintFilter | BloomFilter,
        Field(discriminator="kind", description="How references are kept."),
        BeforeValidator(_filter),
    ] = FingerprintFilter()
    brakes: Brakes = Brakes()
    rates: Rates = Rates()
    delete: DeleteSettings = DeleteSettings()
    rows_up_to: Annotated[int, Field(ge=0, description="Up to this many objects, each object has a row in the log.")] = (
        1_000_000
    )
    scans_kept: Annotated[int, Field(ge=1)] = 50

    @model_validator(mode="after")
    def _columns_are_there(self) -> Self:
        columns = _columns_of(self.listing)
        for key, name, source in (("realm", "realm", self.realm), ("kind_of", "kind", self.kind_of)):
            if isinstance(source, FromColumn) and columns is None:
                raise InvalidValue(
                    "names a column, but a path or an inventory has none", "parts or a pattern of the key", key=key
                )
            if source is not None and (column := getattr(columns, name, None)) is not None:
                raise InvalidValue(
                    f"is given twice: here, and as a column of the listing ({column})", "one of the two", key=key
                )
        return self

    @model_validator(mode="after")
    def _a_dataset_has_one_realm(self) -> Self:
        parts = placeholders(self.dataset)
        of_realm = placeholders(self.realm) if isinstance(self.realm, str) else set[str]()
        if self.has_realms and self.dataset is not None and "realm" not in parts and not (of_realm and of_realm <= parts):
            raise InvalidValue(
                "names no realm, so objects of several realms would be in one dataset", "a template with {realm}",
                "Write {realm} into it, or leave `dataset` out: then each realm is a dataset.", key="dataset",
            )  # fmt: skip
        return self

    @property
    def template(self) -> str | None:
        """Template of the names of datasets; None if there is one dataset for all objects."""
        return self.dataset or ("{realm}" if self.has_realms else None)

    def realm_of(self, dataset: str) -> str | None:  # noqa: ARG002 - its lines name it
        return None

    @property
    def data_root(self) -> str | None:
        """Folder or prefix below which objects are deleted; None for rows of a database, or if unknown."""
        return None if isinstance(self.listing, SqlListing) else self.listing.path

    @property
    def places(self) -> Mapping[str, str]:
        if isinstance(self.listing, SqlListing):
            return {"listing.sql.url": self.listing.sql.url} if self.listing.sql.url.startswith("sqlite") else {}
        return {} if self.data_root is None else {"listing.path": self.data_root}

    @property
    def reach(self) -> tuple[str, ...]:
        return ("listing.path",) if self.data_root is not None else ()

    @property
    def has_realms(self) -> bool:
        """True if objects have realms; otherwise those of references are ignored."""
        return self.realm is not None or getattr(_columns_of(self.listing), "realm", None) is not None

    @property
    def judging(self) -> dict[str, str]:
        """Digest of each key that affects classes or datasets, without passwords."""
        texts = {
            key: mask_text(self.model_dump_json(include={key}))
            for key in type(self).model_fields
            if key not in _JUDGING_NOTHING
        }
        return {key: hashlib.sha256(text.encode()).hexdigest()[:16] for key, text in texts.items()}

    @property
    def refers_to(self) -> tuple[str, ...]:
        return tuple(source.store for source in self.references if isinstance(source, StoreReferences))

    @property
    def needs_grace(self) -> bool:
        """True if writers reuse objects: they find one before they refer to it."""
        return self.rewrites

    def with_others(self, others: Mapping[str, StoreSettings]) -> Self:
        """Fill in the settings of the stores that it refers to."""
        references = [*self.references]
        for number, source in enumerate(self.references):
            if isinstance(source, StoreReferences):
                if source.store not in others or source.store == self.name:
                    known = ", ".join(sorted(others.keys() - {self.name})) or "there is none"
                    raise InvalidValue(
                        f"refers to a store that does not exist: {source.store}", f"another store of this file: {known}",
                        key=("references", number, "store"),
                    )  # fmt: skip
                references[number] = source.model_copy(update={"settings": others[source.store]})
        return self.model_copy(update={"references": tuple(references)})

    @property
    def undo_fault(self) -> str | None:
        return undo_fault_of(self.data_root)

    @property
    def addresses(self) -> tuple[str, ...] | None:
        """Root or database; None if other servers are asked as well."""
        match self.listing:
            case PathListing():
                return (self.listing.path,)
            case SqlListing():
                return (self.listing.sql.url,)
        return None

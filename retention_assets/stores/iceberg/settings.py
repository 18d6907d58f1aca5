"""The settings of an `iceberg` store, checked without importing PyIceberg."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from retention_assets.errors import InvalidValue
from retention_assets.policy.keys import tuple_of
from retention_assets.settings.places import database_url, folder_of, has_scheme, locate
from retention_assets.stores.settings import Properties, StoreSettings


def _catalog(catalog: dict[str, str], info: ValidationInfo) -> dict[str, str]:
    if not catalog:
        raise InvalidValue("is empty", "the properties of a PyIceberg catalog, such as type and uri")
    # relative places exist only with a catalog in a local SQLite file; elsewhere `warehouse` may be a name, not a path
    if not catalog.get("uri", "").startswith("sqlite"):
        return catalog
    try:
        located = {**catalog, "uri": database_url(catalog["uri"], folder_of(info)).exposed}
    except InvalidValue as fault:
        raise InvalidValue(fault.what, fault.expected, fault.remedy, key="uri") from None
    if "warehouse" in catalog:
        located["warehouse"] = locate(catalog["warehouse"], folder_of(info))
    return located


# not in repr: catalog properties hold credentials under many names
CatalogProperties = Annotated[Properties, AfterValidator(_catalog), Field(repr=False, description="PyIceberg's properties.")]


class IcebergSettings(StoreSettings):
    """Kind `iceberg`: the tables of a PyIceberg catalog."""

    mark_cost: ClassVar[int] = 18
    undo_fault: ClassVar[None] = None

    kind: Literal["iceberg"] = "iceberg"
    catalog: CatalogProperties
    namespaces: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(tuple_of), Field(min_length=1, description="Globs.")
    ] = ("*",)
    model: Annotated[
        Literal["states", "deltas"], Field(description="Whether each snapshot is a full state, or what its operation says.")
    ] = "states"

    @property
    def places(self) -> Mapping[str, str]:
        uri, warehouse = self.catalog.get("uri", ""), self.catalog.get("warehouse", "")
        places = {"catalog.uri": uri} if uri.startswith("sqlite") else {}
        return places | ({"catalog.warehouse": warehouse} if warehouse.startswith("/") or has_scheme(warehouse) else {})

    @property
    def reach(self) -> tuple[str, ...]:
        """Return the warehouse; only the catalog tells its tables apart."""
        return tuple({"catalog.warehouse"} & self.places.keys())

    def may_hold(self, other: StoreSettings) -> bool:
        """Stores of one catalog share its warehouse, each with its own namespaces."""
        return isinstance(other, IcebergSettings)

    @property
    def addresses(self) -> tuple[str, ...] | None:
        if "uri" not in self.catalog:
            return None
        named = [self.catalog[key] for key in ("uri", "warehouse", "s3.endpoint") if key in self.catalog]
        if "s3.endpoint" in self.catalog:
            # buckets are where their server is
            named = [address for address in named if not address.lower().startswith(("s3:", "s3a:"))]
        # a server's name for a warehouse is no address; its endpoint is
        return tuple(address for address in named if address.startswith(("/", "sqlite")) or has_scheme(address))

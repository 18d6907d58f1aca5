"""The price table of the settings, and the cost of bytes, requests and early deletion."""

from typing import Annotated

from pydantic import AfterValidator, Field

from retention_assets.errors import InvalidValue
from retention_assets.stores.settings import SettingsPart

GIB = 2**30
# vendors bill months of 30 days
_DAYS_OF_MONTH = 30


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _currency(text: str) -> str:
    if not (len(text) == 3 and text.isascii() and text.isupper()):
        raise InvalidValue("is not the code of a currency", "three capital letters: USD, EUR, GBP …")
    return text


class Price(SettingsPart):
    """What one store, or one class of storage, costs."""

    gib_month: Annotated[Amount, Field(description="What a GiB costs for a month.")]
    thousand_deletes: Annotated[Amount, Field(description="What 1,000 requests that delete cost.")] = 0
    minimum_days: Annotated[
        int, Field(ge=0, description="So many days are billed at least: what is deleted earlier costs the rest of them.")
    ] = 0

    def monthly(self, size: float) -> float:
        return size / GIB * self.gib_month

    def deleting(self, requests: float) -> float:
        return requests / 1_000 * self.thousand_deletes

    def ending_early(self, size: float, age_days: float) -> float:
        """Cost still billed for bytes deleted before the minimum age."""
        return self.monthly(size) * max(0.0, self.minimum_days - age_days) / _DAYS_OF_MONTH


class Prices(SettingsPart):
    """The price table. Of what has no price here nothing is said."""

    currency: Annotated[str, AfterValidator(_currency)] = "USD"
    default: Annotated[Price | None, Field(description="Of every store that is not named.")] = None
    stores: dict[str, Price] = Field(default_factory=dict, description="By the name of a store.")
    classes: dict[str, Price] = Field(
        default_factory=dict, description="By what the attribute storage_class of a transaction says; before its store's."
    )

    @property
    def are_set(self) -> bool:
        return bool(self.default or self.stores or self.classes)

    def of(self, store: str, storage_class: str | None = None) -> Price | None:
        """Price by storage class, store or default; None if there is none."""
        return self.classes.get(storage_class or "") or self.stores.get(store) or self.default

"""What storage costs: the price table of the settings, and what bytes, requests and an early end come to by it.

Belongs here: the keys, which price a transaction has, and the sums. What a store's vendor bills besides is not known here.
Does not belong here: what is going to be deleted (plan, forecast), and how an amount is shown.
"""

from typing import Annotated

from pydantic import AfterValidator, Field

from retention_assets.errors import InvalidValue
from retention_assets.stores.settings import SettingsPart

GIB = 2**30
# A month, as vendors bill parts of one.
DAYS_OF_MONTH = 30


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
        """What some bytes cost for a month, and so what deleting them saves."""
        return size / GIB * self.gib_month

    def deleting(self, requests: float) -> float:
        """What so many requests that delete cost."""
        return requests / 1_000 * self.thousand_deletes

    def ending_early(self, size: float, age_days: float) -> float:
        """What is still billed for bytes that are deleted before they have the least age."""
        return self.monthly(size) * max(0.0, self.minimum_days - age_days) / DAYS_OF_MONTH


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
        """Whether anything has a price."""
        return bool(self.default or self.stores or self.classes)

    def of(self, store: str, storage_class: str | None = None) -> Price | None:
        """The price of what lies in a store; none if nobody has said one."""
        return self.classes.get(storage_class or "") or self.stores.get(store) or self.default

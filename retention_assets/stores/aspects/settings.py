"""The settings of an `aspects` store."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from retention_assets.errors import InvalidValue
from retention_assets.stores.settings import DatabaseSettings

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}", re.ASCII)


def _table_name(name: str) -> str:
    parts = name.split(".")
    if len(parts) > 2 or not all(_IDENTIFIER.fullmatch(part) for part in parts):
        raise InvalidValue("is not a table name", "table or schema.table, of letters, digits and _, not beginning with a digit")
    return name


class AspectsSettings(DatabaseSettings):
    """Kind `aspects`: the table in which DataHub keeps its aspects."""

    kind: Literal["aspects"] = "aspects"
    table: Annotated[str, AfterValidator(_table_name)] = "metadata_aspect_v2"
    current_counts: Annotated[bool, Field(description="Whether maxVersions counts the current row.")] = False
    datahub_policies: Annotated[
        Literal["off", "read"],
        Field(description="Whether retention policies that people made in DataHub apply."),
    ] = "off"

    @property
    def reads_policies(self) -> bool:
        return self.datahub_policies == "read"

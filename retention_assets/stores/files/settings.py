"""The settings of a `files` store, and the checks of its template for folders."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from retention_assets.errors import InvalidValue
from retention_assets.settings.places import Location, folder_of, has_scheme, locate, without_scheme
from retention_assets.stores.places import addresses_of, undo_fault_of
from retention_assets.stores.settings import StoreSettings

_PLACEHOLDER = re.compile(r"\{(dataset|transaction)\}")


def _known_file_system(place: str) -> str:
    # imported for a URI alone: most settings have none, and every command reads settings
    if has_scheme(place):
        from retention_assets.stores.places.file_systems import check_scheme

        check_scheme(place)
    return place


def _data_template(text: str, info: ValidationInfo) -> str:
    # without a folder of its own for each transaction, below a root of its own, a sweep would take a neighbour's data
    example = "data/lake/{dataset}/{transaction}"
    root, *rest = _PLACEHOLDER.split(text)
    if sorted(rest[::2]) != ["dataset", "transaction"] or any(brace in f"{root}{''.join(rest[1::2])}" for brace in "{}"):
        raise InvalidValue("needs {dataset} and {transaction}, once each, and nothing else in braces", example)
    if "/" not in rest[1]:
        raise InvalidValue("joins {dataset} and {transaction} in one folder name", example, "Put a / between them.")
    if ".." in "".join(rest[1::2]).split("/") or (has_scheme(root) and ".." in root.split("/")):
        raise InvalidValue("leads out of its folder by ..", example)
    if not without_scheme(root).rpartition("/")[0].strip("./"):
        raise InvalidValue("has no root folder of its own", example, "Begin with a folder that holds nothing else.")
    place = locate(text, folder_of(info))
    if place.count("{") != 2:
        raise InvalidValue(
            "is relative to a folder with a brace in its name", "a folder without one", f"It is {folder_of(info)}."
        )
    return place


class FilesSettings(StoreSettings):
    """Kind `files`: histories in the exchange format, data as one folder per transaction."""

    has_branches: ClassVar[bool | None] = None

    kind: Literal["files"] = "files"
    log: Annotated[
        Location, AfterValidator(_known_file_system), Field(description="The place of the logs: a file, a folder or a URI.")
    ]
    data: Annotated[
        str, AfterValidator(_data_template), AfterValidator(_known_file_system), Field(description="A transaction's folder.")
    ]
    versions: Annotated[
        Literal["keep", "delete"], Field(description="What happens to old versions in a bucket with versioning.")
    ] = "keep"

    @property
    def data_root(self) -> str:
        return self.data.partition("{")[0].rpartition("/")[0]

    @property
    def places(self) -> Mapping[str, str]:
        return {**super().places, "log": self.log}

    @property
    def deletes_versions(self) -> bool:
        return self.versions == "delete"

    @property
    def undo_fault(self) -> str | None:
        return undo_fault_of(self.data_root)

    @property
    def addresses(self) -> tuple[str, ...]:
        return addresses_of((self.log, self.data_root))

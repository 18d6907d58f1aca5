"""The settings of a `delta` store, and the folder from which on a glob has to be looked up."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr

from retention_assets.errors import InvalidValue
from retention_assets.policy.globs import is_literal
from retention_assets.policy.keys import tuple_of
from retention_assets.settings.places import Location, without_scheme
from retention_assets.stores.places import addresses_of, is_on_disk, is_on_s3, undo_fault_of
from retention_assets.stores.settings import StoreSettings


def _table_glob(text: str) -> str:
    example = "s3://bucket/tables/* or /data/sales"
    if not (is_on_disk(text) or is_on_s3(text)):
        raise InvalidValue("is neither on a disk nor on S3, where commits can be added without replacing any", example)
    folder = without_scheme(fixed_part(text)).strip("/")
    # a bucket may hold tables, and is none
    if not (folder.partition("/")[2] if is_on_s3(text) and is_literal(text) else folder):
        raise InvalidValue("names no folder of tables", example, "Begin with a folder that holds nothing else.")
    return text.rstrip("/")


def fixed_part(glob: str) -> str:
    """Return the longest folder of a glob without glob characters."""
    return "/".join(takewhile(is_literal, glob.rstrip("/").split("/")))


Globs = tuple[Annotated[Location, AfterValidator(_table_glob)], ...]


class DeltaSettings(StoreSettings):
    """Kind `delta`: tables of Delta Lake, on disks and in buckets of S3."""

    mark_cost: ClassVar[int] = 18

    kind: Literal["delta"] = "delta"
    tables: Annotated[
        Globs, BeforeValidator(tuple_of), Field(min_length=1, description="Folders that hold a _delta_log, or globs of them.")
    ]
    also_read: Annotated[
        Globs, BeforeValidator(tuple_of), Field(description="Tables that may refer to files of these, such as shallow clones.")
    ] = ()
    streams: Annotated[
        Globs, BeforeValidator(tuple_of), Field(description="Checkpoint folders of Spark's streams that read these tables.")
    ] = ()
    announce: Annotated[
        Literal["auto", "always", "never"],
        Field(description="Whether a sweep adds commits VACUUM START and END: where no commit can be replaced, always, never."),
    ] = "auto"
    window_below_table: Annotated[
        Literal["spare", "allow"],
        Field(description="Whether versions inside the table's own window (delta.deletedFileRetentionDuration) are spared."),
    ] = "spare"
    times: Annotated[
        Literal["auto", "commit_info"],
        Field(description="Whether the time of a version is the later of its file's and its writer's, or its writer's alone."),
    ] = "auto"

    # globs of the tables of other delta stores of the same settings
    _other_globs: tuple[tuple[str, str], ...] = PrivateAttr(())

    @property
    def other_globs(self) -> tuple[tuple[str, str], ...]:
        """Names of other stores of this kind in the same settings, each with a glob of its tables."""
        return self._other_globs

    @property
    def data_root(self) -> str | None:
        """Return the folder that holds all tables, if there is one above them."""
        fixed = set(map(fixed_part, self.tables))
        return fixed.pop() if len(fixed) == 1 and not any(map(is_literal, self.tables)) else None

    @property
    def places(self) -> Mapping[str, str]:
        globs = {"tables": self.tables, "also_read": self.also_read, "streams": self.streams}
        return {f"{key}[{number}]": fixed_part(glob) for key, own in globs.items() for number, glob in enumerate(own)}

    @property
    def reach(self) -> tuple[str, ...]:
        return tuple(f"tables[{number}]" for number in range(len(self.tables)))

    def may_hold(self, other: StoreSettings) -> bool:
        """Stores of this kind may share folders: a table that two of them name is refused by both."""
        return isinstance(other, DeltaSettings)

    def with_others(self, others: Mapping[str, StoreSettings]) -> "DeltaSettings":
        own = self.model_copy()
        delta = ((name, one) for name, one in sorted(others.items()) if name != self.name and isinstance(one, DeltaSettings))
        own._other_globs = tuple((name, glob) for name, one in delta for glob in one.tables)
        return own

    @property
    def undo_fault(self) -> str | None:
        return next(filter(None, map(undo_fault_of, self.tables)), None)

    @property
    def addresses(self) -> tuple[str, ...]:
        return addresses_of(self.places.values())

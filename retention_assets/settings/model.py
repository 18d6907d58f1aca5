"""`retention.yaml` as typed models: its keys, their defaults and reading it with all faults at once.

Dagster, Spark and databases are not imported, so that commands which only need paths start at once.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from retention_assets.errors import BadInput, InvalidValue, Problem, quote
from retention_assets.policy.durations import Duration, Interval, is_always_longer
from retention_assets.settings.places import DatabaseUrl, LocalPath, Location, folder_of, mask_secrets
from retention_assets.settings.reach import (
    Claim,
    PlaceConflict,
    conflicts_of,
    guarded_places,
    is_confined,
    is_local_master,
    out_of_reach,
)
from retention_assets.settings.secrets import remember_secrets, secrets_in
from retention_assets.settings.sections import (
    AutomationSettings,
    BrakeSettings,
    ClockSettings,
    DagsterSettings,
    RealmSettings,
    SparkSettings,
    listed,
    parse_brake,
)
from retention_assets.settings.yaml import (
    Document,
    Expansion,
    Path_,
    dotted,
    empty_values,
    expand,
    mapping_expected,
    problems_of,
    read_document,
)
from retention_assets.silence import bound_silence
from retention_assets.stores.registry import kind_named, known_kinds
from retention_assets.stores.settings import SettingsPart, StoreSettings

VARIABLE = "RETENTION_CONFIG"
FILE = "retention.yaml"


M = TypeVar("M", bound=BaseModel)


def _introduced(stores: tuple[StoreSettings, ...]) -> tuple[StoreSettings, ...]:
    known = {store.name: store for store in stores}
    introduced = []
    for number, store in enumerate(stores):
        try:
            introduced.append(store.with_others(known))
        except InvalidValue as fault:
            raise InvalidValue(fault.what, fault.expected, fault.remedy, key=(number, *fault.way)) from None
    return tuple(introduced)


class Settings(SettingsPart):
    """All of `retention.yaml`. Places are absolute: nothing of it depends on the working directory any more."""

    ledger: DatabaseUrl = "sqlite:///.retention/ledger.db"
    warehouse: Location = ".retention/warehouse"
    policies: Annotated[tuple[LocalPath, ...], BeforeValidator(listed, str | list[str]), Field(min_length=1)] = (
        Path("policies"),
    )
    spark: SparkSettings = SparkSettings()
    clock: ClockSettings = ClockSettings()
    realms: RealmSettings = RealmSettings()
    # None: switched off.
    brake: Annotated[BrakeSettings | None, BeforeValidator(parse_brake, BrakeSettings | Literal["off"])] = BrakeSettings()
    overwrite_user_policies: bool = False
    partition_by: Literal["dataset", "store"] = "dataset"
    automation: AutomationSettings = AutomationSettings()
    dagster: DagsterSettings = DagsterSettings()
    timeout: Annotated[
        Interval, Field(description="A call to a store, a catalog or a plugin ends after this time without data.")
    ] = Duration(seconds=60)
    stores: Annotated[tuple[SerializeAsAny[StoreSettings], ...], BeforeValidator(listed), AfterValidator(_introduced)] = ()

    @model_validator(mode="after")
    def _names_are_their_own(self) -> Self:
        names = [store.name for store in self.stores]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidValue(f"holds two stores named {', '.join(twice)}", "a name of its own for each store", key="stores")
        return self

    @model_validator(mode="after")
    def _places_are_their_own(self, info: ValidationInfo) -> Self:
        # A store knows only its own log: in a shared folder one store would delete what readers of the other need.
        claims = self._claims((info.context or {}).get("file"))
        if conflict := next(conflicts_of(claims), None):
            key = "stores" if conflict.stores else conflict.outer.key
            raise InvalidValue(conflict.what, "a folder of its own for each", conflict.remedy, key=key)
        for store in self.stores:
            store.guard(guarded_places(store, claims))
        return self

    @model_validator(mode="after")
    def _a_cluster_reaches_everything(self) -> Self:
        # A task on another machine would create a ledger of its own, or take its machine's folder for ours.
        spark = self.spark
        if not is_local_master(spark.master):
            places = [(one.name, mask_secrets("".join(place))) for one in self.stores for place in one.places.values()]
            faults = out_of_reach(mask_secrets(spark.master), self.ledger, self.warehouse, places, spark.shared_disk)
            if fault := next(faults, None):
                raise fault
        return self

    @model_validator(mode="after")
    def _made_up_days_delete_nothing_real(self, info: ValidationInfo) -> Self:
        # With simulated days grace protects nothing, so the environment may reach only its own folder.
        folder = folder_of(info)
        for store in self.stores if self.clock.simulated else ():
            outside = None if store.addresses is None else [one for one in store.addresses if not is_confined(one, folder)]
            if outside is None or outside:
                where = "does not name the place of its data" if outside is None else f"is at {mask_secrets(outside[0])}"
                raise InvalidValue(
                    f"holds the store {store.name}, which {where}: with clock.simulated no store may lie outside of the"
                    " settings' folder",
                    f"places below {folder}, or servers on this machine (localhost, 127.0.0.1)",
                    "Copy the data to a separate folder, with these settings in it, or remove clock.simulated.",
                    key="stores",
                )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _the_loop_keeps_the_clock_known(self) -> Self:
        # If nothing changes for long, the ledger sees the time only in the loop's own runs.
        loop, most = self.automation, self.clock.max_ahead
        if loop.evaluate and not is_always_longer(most, loop.everything, loop.evaluate):
            raise InvalidValue(
                f"judges everything again after {loop.everything.words()}, which with the {loop.evaluate.words()} between "
                f"two looks is not shorter than clock.max_ahead, {most.words()}: in a quiet environment the clock guard "
                "would refuse each of those runs",
                "automation.everything and automation.evaluate that together are shorter than clock.max_ahead",
                "Make automation.everything shorter, or clock.max_ahead longer.", key="automation",
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _policies_come_from_one_store(self) -> Self:
        # A policy in the book is about every store of a kind: people of one store must not delete in another.
        reading = [store for store in self.stores if store.reads_policies]
        if reading and len([store for store in self.stores if store.kind == reading[0].kind]) > 1:
            raise InvalidValue(
                f"reads the policies of the store {reading[0].name}, which do not apply to the other store of its kind",
                f"one store of kind {reading[0].kind} where datahub_policies is read",
                "Give each DataHub its own settings and its own ledger.",
                key="stores",
            )
        return self

    def place_conflicts(self) -> Iterator[PlaceConflict]:
        """Places where somebody else deletes, as the file system has them now: links may have changed since."""
        return conflicts_of(self._claims())

    def _claims(self, file: str | None = None) -> list[Claim]:
        claims = [Claim("warehouse", self.warehouse, deletes=True), Claim("ledger", self.ledger)]
        claims += [Claim(f"policies[{number}]", str(path)) for number, path in enumerate(self.policies)]
        claims += [Claim("settings file", file)] if file else []
        for number, store in enumerate(self.stores):
            claims += [
                Claim(f"stores[{number}].{key}", place, store, key in store.reach) for key, place in store.places.items()
            ]
        return claims

    @property
    def silence(self) -> float:
        """`timeout` in seconds."""
        return self.timeout.length.total_seconds()

    @property
    def hidden_again(self) -> list[str]:
        """Stores that delete every version: what earlier sweeps only hid is marked again."""
        return [store.name for store in self.stores if store.deletes_versions]

    @property
    def needing_grace(self) -> list[str]:
        return [store.name for store in self.stores if store.needs_grace]

    @property
    def undo_faults(self) -> dict[str, str]:
        """Reasons by store why nothing in it can be set aside: a purge deletes there at once, and no policy may have `undo`."""
        return {store.name: fault for store in self.stores if (fault := store.undo_fault)}

    @property
    def branches(self) -> dict[str, bool | None]:
        """By store; None if only its logs tell."""
        return {store.name: store.has_branches for store in self.stores}

    def store(self, name: str) -> StoreSettings | None:
        return next((store for store in self.stores if store.name == name), None)

    def kind_of(self, store_name: str) -> str | None:
        store = self.store(store_name)
        return store.kind if store else None


def load_settings(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Load a file: `path`, RETENTION_CONFIG, ./retention.yaml, or the defaults."""
    named = path or (Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    file = named or Path(FILE)
    if file.exists() and not file.is_dir():
        return settings_of(read_document(file), environ)
    if named is None and not file.exists():
        return Settings.model_validate({}, context={"folder": Path.cwd()})
    what = "is not a file" if file.exists() else "is not there"
    remedy = f"The variable {VARIABLE} names it." if path is None and named else None
    raise BadInput(Problem(what, file=str(file), expected="a settings file", remedy=remedy))


def settings_of(document: Document, environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings of a document. Relative paths start at the folder of its file."""
    return _Reading(document, environ).settings()


class _Reading:
    def __init__(self, document: Document, environ: Mapping[str, str]) -> None:
        self.expansion: Expansion = expand(document, environ)
        # Before any message is built.
        remember_secrets(secrets_in(self.expansion.data, self.expansion.values))
        # Messages quote the file as written, without substituted values and passwords.
        self.document = replace(document, data=_masked(document.data))
        self.folder = Path(document.file).absolute().parent
        self.problems: list[Problem] = [*self.expansion.faulty.values(), *empty_values(document)]
        self.settled = {problem.key for problem in self.problems}

    def settings(self) -> Settings:
        data = self.expansion.data
        if not isinstance(data, dict):
            problem = mapping_expected(self.document, list(Settings.model_fields))
            remedy = "A retention.yaml of DataHub is a policy file: put it into the policies folder."
            raise BadInput(replace(problem, remedy=remedy if isinstance(data, list) else None))
        if "prices" in data:
            self._fault(("prices",), "is not a known key any more", None, remedy="Remove it: nothing has a price any more.")
            data = {key: data[key] for key in data if key != "prices"}
        if isinstance(data.get("stores"), list):
            stores = self._stores(data["stores"])
            # with a store left out, faults between stores would name another line, or a store that is there as missing
            whole = len(stores) == len(data["stores"])
            data = {**data, "stores": stores} if whole else {key: data[key] for key in data if key != "stores"}
        settings = self._valid(Settings, data, ())
        if settings is None or self.problems:
            raise BadInput(sorted(self.problems, key=lambda problem: problem.line or 0))
        bound_silence(settings.silence)
        return settings

    def _stores(self, items: list[Any]) -> list[StoreSettings]:
        taken: set[str] = set()
        stores: list[StoreSettings] = []
        for index, item in enumerate(items):
            store = self._store(item, ("stores", index))
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(name, str) and name in taken:
                self._fault(("stores", index, "name"), "is also the name of another store", "a name of its own")
            elif store is not None:
                stores.append(store)
            if isinstance(name, str):
                taken.add(name)
        return stores

    def _store(self, item: Any, at: Path_) -> StoreSettings | None:
        if not isinstance(item, dict):
            self._fault(at, "has the wrong type", "a mapping with name, kind and the keys of that kind")
            return None
        word = item.get("kind")
        if not isinstance(word, str):
            what = "has the wrong type" if "kind" in item else "is missing"
            self._fault((*at, "kind"), what, f"one of {', '.join(known_kinds())}")
            return None
        try:
            kind = kind_named(word)
        except InvalidValue as fault:
            self._fault((*at, "kind"), fault.what, fault.expected, fault.remedy)
            return None
        return self._valid(kind.settings, item, at)

    def _valid(self, model: type[M], data: object, at: Path_) -> M | None:
        try:
            return model.model_validate(data, context={"folder": self.folder, "file": self.document.file})
        except ValidationError as error:
            for problem in problems_of(error, self.document, model, at=at):
                self._add(replace(problem, key=_joined(dotted(at), problem.key)))
            return None

    def _fault(self, at: Path_, what: str, expected: str | None, remedy: str | None = None) -> None:
        data = self.document.data
        for part in at:
            data = data.get(part) if isinstance(data, dict) else data[part]
        value = None if data is None or isinstance(data, dict | list) else quote(data)
        line = self.document.line(at)
        self._add(Problem(what, self.document.file, line, key=dotted(at), value=value, expected=expected, remedy=remedy))

    def _add(self, problem: Problem) -> None:
        if problem.key in self.settled:
            return
        if problem.what == "has the wrong type" and problem.key in {dotted(path) for path in self.expansion.substituted}:
            problem = replace(problem, remedy="A value from the environment is text; write this one into the file.")
        self.problems.append(problem)


def _joined(at: str, key: str | None) -> str | None:
    return f"{at}{'' if key.startswith('[') else '.'}{key}" if at and key else at or key


def _masked(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _masked(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_masked(value) for value in data]
    return mask_secrets(data) if isinstance(data, str) else data

"""The kinds of stores, and opening a store from its settings.

A kind is imported only when somebody names it, so that a broken one harms nobody who does not use it, and reading settings
needs no driver. A package adds a kind by a line in its pyproject.toml, where `KIND` is a `StoreKind` whose name is the entry
point's; no package can replace a built-in kind:

    [project.entry-points."retention_assets.stores"]
    lance = "retention_lance.store:KIND"
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from traceback import extract_tb
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from retention_assets.errors import InvalidValue, Refused, suggest
from retention_assets.stores.settings import StoreSettings

if TYPE_CHECKING:
    from retention_assets.stores.protocol import Store

GROUP = "retention_assets.stores"

# remedy for a kind with the protocols and `capabilities` of 0.2.0
_PORT = (
    "Derive its class from Store of retention_assets.stores.protocol, as docs/stores/your-own.md says for each protocol and"
    " capability, or install a newer package."
)

# module of each built-in kind; it defines `KIND`
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "files": "retention_assets.stores.files",
        "iceberg": "retention_assets.stores.iceberg",
        "delta": "retention_assets.stores.delta",
        "aspects": "retention_assets.stores.aspects",
        "records": "retention_assets.stores.records",
        "objects": "retention_assets.stores.objects",
    }
)


@dataclass(frozen=True)
class StoreKind:
    """A kind of store: its name in `kind:`, the model of its settings, and how it is opened."""

    name: str
    settings: type[StoreSettings]
    # called with the settings; imports what the kind needs only then
    open: "Callable[[Any], Store]"


def opens(path: str) -> "Callable[[Any], Store]":
    """Open stores by their class, `module:Class`, which is imported only then."""

    def open_settings(settings: StoreSettings) -> "Store":
        module, _, name = path.partition(":")
        store: Store = getattr(import_module(module), name)(settings)
        return store

    return open_settings


def open_store(settings: StoreSettings) -> "Store":
    from retention_assets.stores.protocol import Store

    kind = kind_named(settings.kind)
    try:
        store: object = kind.open(settings)
    except ImportError as fault:
        if (why := _asks_for_old_names(fault)) is None:
            raise
        raise Refused(f"The store {settings.name} can't be opened: its kind {kind.name} {why}. {_PORT}") from fault
    if not isinstance(store, Store):
        made = f"{type(store).__module__}.{type(store).__qualname__}"
        why = f"was written for retention_assets 0.2.0 or earlier: {made} is no subclass of Store"
        raise Refused(f"The store {settings.name} can't be opened: its kind {kind.name} {why}. {_PORT}")
    if settings.realm is not None and store.settings is not settings:
        # the realm of its datasets would be unknown, and so would what a purge covers
        raise Refused(
            f"The settings give the store {settings.name} a realm, but its kind {settings.kind} does not keep its settings "
            "as `settings`, where realms are looked up. Remove `realm`, or ask the author of the kind."
        )
    return store


def kind_named(name: str) -> StoreKind:
    """Return a kind. Raises InvalidValue if there is none of that name, or the package that brings it is broken."""
    if name in BUILT_IN:
        kind: StoreKind = import_module(BUILT_IN[name]).KIND
        return kind
    points = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not points:
        known = known_kinds()
        remedy = suggest(name, known) or "Other kinds come with packages; is one not installed?"
        raise InvalidValue("is not a known kind of store", f"one of {', '.join(known)}", remedy)
    if len(points) > 1:
        raise InvalidValue(
            f"is a kind that several packages provide: {', '.join(sorted(map(_label, points.values())))}",
            "one package per kind", "Uninstall all but one of them.",
        )  # fmt: skip
    return _load(*points.values())


def known_kinds() -> tuple[str, ...]:
    """Names of all kinds: built-in ones, then those of installed packages, none of them imported."""
    return (*BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)} - BUILT_IN.keys()))


def _load(point: EntryPoint) -> StoreKind:
    try:
        kind = point.load()
    # a foreign module may raise anything while it is imported
    except Exception as fault:
        if isinstance(fault, ImportError) and (why := _asks_for_old_names(fault)):
            raise _broken(point, f"which {why}", _PORT) from fault
        raise _broken(point, f"which cannot be loaded: {type(fault).__name__}: {fault}") from fault
    if not isinstance(kind, StoreKind) or not (isinstance(kind.settings, type) and issubclass(kind.settings, StoreSettings)):
        raise _broken(point, "which is no StoreKind")
    if kind.name in BUILT_IN:
        raise _broken(point, f"which calls itself {kind.name}, a built-in kind")
    if kind.name != point.name:
        raise _broken(point, f"which calls itself {kind.name}")
    return kind


def _asks_for_old_names(fault: ImportError) -> str | None:
    # None if the missing name is not this package's
    if not (fault.name or "").startswith("retention_assets."):
        return None
    frame = extract_tb(fault.__traceback__)[-1]
    return f"was written for another version of retention_assets: {frame.filename}:{frame.lineno} has {frame.line!r}"


def _broken(point: EntryPoint, why: str, remedy: str | None = None) -> InvalidValue:
    if remedy is None and point.dist:
        remedy = f"Mend or uninstall the package {point.dist.name}."
    return InvalidValue(f"is brought by {_label(point)}, {why}", f"a StoreKind named {point.name} at {point.value}", remedy)


def _label(point: EntryPoint) -> str:
    return f"{point.dist.name if point.dist else 'unknown package'} ({point.value})"

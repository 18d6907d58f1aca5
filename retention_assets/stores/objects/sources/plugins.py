"""Reference sources of other packages: loads them by name and checks the rows that they yield and the number they return."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import pyarrow as pa

from retention_assets.errors import Refused, nearest, quote
from retention_assets.settings.places import mask_text
from retention_assets.silence import ForeignThread
from retention_assets.stores.objects.sources import ShareEnd, SourceNotWhole, shards_of
from retention_assets.stores.objects.tables import REFERENCES

GROUP = "retention_assets.references"
_BATCH = 50_000
_METHODS = {"shares": "shares(wanted)", "read": "read(share)", "finish": "finish(ends)"}
_EXPECTED = "a generator of references that ends with `return ShareEnd(share, rows)`"


@dataclass(frozen=True)
class PluginSource:
    """A foreign class by its name, and its options. Each process creates its own instance."""

    use: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        # Create it early, so that mistakes in the settings show before anything is read.
        _ = self._plugin

    def __reduce__(self) -> tuple[type["PluginSource"], tuple[str, Mapping[str, Any]]]:
        return type(self), (self.use, self.options)

    @property
    def label(self) -> str:
        return str(getattr(self._plugin, "label", None) or f"use {self.use}")

    @property
    def names_folders(self) -> bool:
        return bool(getattr(self._plugin, "names_folders", False))

    def shares(self, wanted: int) -> Sequence[Any]:
        return self._call("shares", lambda: list(self._plugin.shares(wanted)))

    def shards_of(self, share: Any) -> Sequence[str]:
        return list(shards_of(self._plugin, share))

    def read(self, share: Any) -> Generator[pa.RecordBatch, None, ShareEnd]:
        rows, items = 0, self._thread.call(self.label, lambda: self._plugin.read(share))
        if not isinstance(items, Generator):
            raise SourceNotWhole(f"{self.label} is not whole: its read() gave {type(items).__name__}; expected {_EXPECTED}.")
        items = self._thread.rows(self.label, items)
        waiting, end = list[tuple[Any, ...]](), None
        while True:
            try:
                item = next(items)
            except StopIteration as stop:
                end = stop.value
                break
            # Any exception means that the share was not read to its end.
            except Exception as fault:
                done = f"after {rows:,} rows: {type(fault).__name__}: {mask_text(str(fault))}"
                raise SourceNotWhole(f"{self.label} is not whole: it failed {done}") from fault
            is_batch = isinstance(item, pa.RecordBatch | pa.Table)
            if waiting and (is_batch or len(waiting) >= _BATCH):
                yield self._batch(waiting, rows)
                waiting = []
            if is_batch:
                rows += len(item)
                yield from self._batches(item, rows)
            else:
                rows += 1
                waiting.append(self._row(item, rows))
        if waiting:
            yield self._batch(waiting, rows)
        if not isinstance(end, ShareEnd) or type(end.rows) is not int or end.rows != rows:
            # A share may contain a password, so it is not shown.
            returned = f"ShareEnd(share, {quote(end.rows)})" if isinstance(end, ShareEnd) else quote(end)
            raise SourceNotWhole(
                f"{self.label} is not whole: its read() returned {returned} and yielded {rows:,} rows; expected {_EXPECTED}."
            )
        return ShareEnd(share, rows, proof=end)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[Any]:
        return self._call("finish", lambda: list(self._plugin.finish([end.proof for end in ends])))

    def _call(self, name: str, question: Any) -> list[Any]:
        try:
            answer: list[Any] = self._thread.call(self.label, question)
        except SourceNotWhole:
            raise
        except Exception as fault:
            raise SourceNotWhole(
                f"{self.label} is not whole: its {name}() failed: {type(fault).__name__}: {mask_text(str(fault))}"
            ) from fault
        return answer

    @cached_property
    def _thread(self) -> ForeignThread:
        return ForeignThread()

    @cached_property
    def _plugin(self) -> Any:
        make = load_plugin(self.use)
        try:
            plugin = self._thread.call(f"`use: {self.use}`", lambda: make(**self.options))
        except Exception as fault:
            options = ", ".join(self.options) or "none"
            raise Refused(
                f"`use: {self.use}` in `references` can't be created with its `options` ({options}): "
                f"{type(fault).__name__}: {mask_text(str(fault))}. Mend `options` in the settings."
            ) from fault
        if missing := [text for name, text in _METHODS.items() if not callable(getattr(plugin, name, None))]:
            raise Refused(
                f"`use: {self.use}` in `references` is not a source: it has no {', '.join(missing)}. Implement RowSource of "
                f"retention_assets.stores.objects.references: a class with {', '.join(_METHODS.values())}."
            )
        return plugin

    def _row(self, item: Any, number: int) -> tuple[Any, ...]:
        if isinstance(item, Mapping):
            if unknown := item.keys() - set(REFERENCES.names):
                raise self._fault(number, f"has an unknown key: {quote(min(map(str, unknown)))}")
            row = tuple(item.get(name) for name in REFERENCES.names)
        elif isinstance(item, tuple | list) and 1 <= len(item) <= len(REFERENCES):
            row = (*item, *[None] * (len(REFERENCES) - len(item)))
        else:
            raise self._fault(number, f"is {quote(item)}; expected a mapping or a tuple of {', '.join(REFERENCES.names)}")
        for value, column in zip(row, REFERENCES, strict=True):
            if not isinstance(value, str) and (value is not None or not column.nullable):
                raise self._fault(number, f"has {quote(value)} as {column.name}; expected a text")
        return row

    def _batches(self, given: pa.RecordBatch | pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
        if (
            unknown := sorted(set(given.schema.names) - set(REFERENCES.names))
            or len(set(given.schema.names)) < given.num_columns
        ):
            raise self._fault(rows, f"is of a batch with unknown or repeated columns: {quote(unknown)}")
        if "object" not in given.schema.names or given["object"].null_count:
            raise self._fault(rows, "is of a batch with objects that are null, or without them")
        for column in given.schema:
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
                raise self._fault(rows, f"is of a batch whose column {column.name} is of the type {kind}; expected text")
        try:
            columns = [
                given[name].cast(kind) if name in given.schema.names else pa.nulls(len(given), kind)
                for name, kind in zip(REFERENCES.names, REFERENCES.types, strict=True)
            ]
            table = pa.table(columns, schema=REFERENCES)
            table.validate(full=True)
        except pa.ArrowException as fault:
            raise self._fault(rows, f"is of a batch that can't be read: {str(fault).splitlines()[0]}") from fault
        yield from table.to_batches()

    def _batch(self, rows: list[tuple[Any, ...]], last: int) -> pa.RecordBatch:
        try:
            arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), REFERENCES.types, strict=True)]
        except UnicodeEncodeError as fault:
            raise self._fault(last, f"or an earlier row holds something that is not text: {fault.reason}") from fault
        return pa.record_batch(arrays, schema=REFERENCES)

    def _fault(self, number: int, what: str) -> SourceNotWhole:
        return SourceNotWhole(f"{self.label} is not whole: row {number:,} {what}.")


def load_plugin(use: str) -> Any:
    module, colon, name = use.partition(":")
    if colon:
        try:
            plugin: Any = import_module(module)
            for part in name.split("."):
                plugin = getattr(plugin, part)
        except Exception as fault:
            raise _unknown(use, f"can't be loaded: {type(fault).__name__}: {mask_text(str(fault))}") from fault
    else:
        points = {point.value: point for point in entry_points(group=GROUP, name=use)}
        if len(points) != 1:
            known = sorted({point.name for point in entry_points(group=GROUP)})
            guess = nearest(use, known)
            what = f"is in several packages: {', '.join(sorted(points))}" if points else "is in no package"
            raise _unknown(use, what + (f"; did you mean {guess}?" if guess and not points else ""))
        [point] = points.values()
        try:
            plugin = point.load()
        except Exception as fault:
            text = f"{type(fault).__name__}: {mask_text(str(fault))}"
            raise _unknown(use, f"is {point.value}, which can't be loaded: {text}") from fault
    if not callable(plugin):
        raise _unknown(use, f"is {quote(plugin)}, which is no class")
    return plugin


def _unknown(use: str, what: str) -> Refused:
    return Refused(
        f"`use: {use}` in `references` {what}. Write module:name, or a name of the entry point group {GROUP}, and install the"
        " package where retention runs."
    )

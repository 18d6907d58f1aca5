"""Pages of Dagster: tables as Markdown on a click, tables of a run with typed columns, schemas of assets, plots."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import pyarrow as pa

from retention_assets.render.markdown import listing, with_table
from retention_assets.render.page import MOST_SHOWN, Column, Medium, Page, Table
from retention_assets.render.svg import Plot, data_uri
from retention_assets.render.text import plain_json, visible_line

# entry with all values of a step, for programs
DATA = "data"


def draw_page(page: Page, entries: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Order the metadata of a step: a sentence with a short table, lists on a click, numbers for plots, data for programs.

    A page is narrow, and as wide as its widest table.
    """
    short = page.beside or next((table for table in page.tables if table.rows and table.shown(Medium.SHORT)), None)
    lists = {table.title: dg.MetadataValue.md(listing(table)) for table in page.tables if table.title and table.rows}
    rows = {table.key: table.records(Medium.RUN) for table in page.tables if table.key}
    return {
        "summary": dg.MetadataValue.md(with_table(page.sentence, short) if short else page.sentence),
        **(entries or {}),
        **lists,
        **page.numbers,
        DATA: dg.MetadataValue.json(plain_json({**rows, **page.data})),
    }


def draw_table(table: Table) -> dg.MetadataValue:
    """Columns have their types as Dagster calls them (string, int, …), and a meaning where they need one."""
    columns = table.shown(Medium.RUN)
    kinds = {True: "int", False: "string"}
    schema = [dg.TableColumn(each.field, kinds[each.is_number], description=each.meaning or None) for each in columns]
    records = [
        dg.TableRecord({each.field: _value(each, each.read(row)) for each in columns}) for row in table.rows[:MOST_SHOWN]
    ]
    return dg.MetadataValue.table(records, dg.TableSchema(schema))


def _value(column: Column, value: Any) -> str | int:
    return (value or 0) if column.is_number else column.text(value)


def column_schema(schema: pa.Schema, meanings: Mapping[str, str]) -> dg.TableSchema:
    columns = [dg.TableColumn(field.name, _type_name(field.type), description=meanings[field.name]) for field in schema]
    return dg.TableSchema(columns)


def _type_name(kind: pa.DataType) -> str:
    # The encoding of a type does not matter to readers of the page.
    if pa.types.is_dictionary(kind):
        return _type_name(kind.value_type)
    if pa.types.is_list(kind):
        return f"list<{_type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<{}>".format(", ".join(f"{field.name}: {_type_name(field.type)}" for field in kind))
    return "timestamp" if pa.types.is_timestamp(kind) else str(kind)


def draw_plot(plot: Plot) -> dg.MetadataValue:
    """Plot, shown on a click on [Show Markdown], with its answer for those who can't see it."""
    # Brackets would end the link text too early.
    words = visible_line(plot.title).translate({ord("["): "(", ord("]"): ")"})
    return dg.MetadataValue.md(f"![{words}]({data_uri(plot)})")

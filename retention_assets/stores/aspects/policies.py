"""Reads retention policies that people made in DataHub itself, as entries of the policy book.

An urn `urn:li:dataHubRetention:(entity,aspect)` has an aspect `dataHubRetentionConfig`; its current row, version 0, holds
`{"retention": {…}}` as JSON, in the form of DataHub's YAML file, and the urn of its last author. What DataHub's system user
wrote comes from such files, which stand in the folder of policies here.
"""

import json
import re
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, RowMapping, Select, null, select

from retention_assets.errors import InvalidValue, Refused, quote
from retention_assets.policy.book import as_loaded
from retention_assets.policy.datahub import AspectEntry
from retention_assets.policy.durations import parse_instant
from retention_assets.policy.loading import OutsideEntry
from retention_assets.stores.aspects.table import AspectsTable

ASPECT = "dataHubRetentionConfig"
SYSTEM = "urn:li:corpuser:__datahub_system"
_URN = re.compile(r"urn:li:dataHubRetention:\(([^(),]+),([^(),]+)\)")
_ENTITY = "dataHubRetention"
_NOBODY = "somebody"


def read_policies(connection: Connection, table: AspectsTable, store: str) -> list[OutsideEntry]:
    """Return what people wrote, by name. Raises Refused if an entry can't be read: it could be one that keeps."""
    entries = [_entry(row, store) for row in connection.execute(_rows(table)).mappings() if row["createdby"] != SYSTEM]
    return sorted(entries, key=lambda entry: entry.loaded.name)


def _rows(table: AspectsTable) -> Select[Any]:
    columns = table.table.c
    writer = columns.createdby if "createdby" in columns else null()
    query = select(columns.urn, columns.metadata, columns.createdon, writer.label("createdby"))
    return query.where(table.among([(_ENTITY, ASPECT)]), table.version == 0)


def _entry(row: RowMapping, store: str) -> OutsideEntry:
    try:
        loaded = as_loaded(_value(row["urn"], row["metadata"]))
        return OutsideEntry(loaded, str(row["createdby"] or _NOBODY), _instant(row["createdon"]))
    except (ValidationError, ValueError, TypeError, OverflowError) as fault:
        raise Refused(
            f"The policy {row['urn']}, which {row['createdby'] or _NOBODY} wrote in DataHub, can't be read: "
            f"{_words(fault)}. The store {store} is not judged or swept until that policy is mended or deleted there, "
            "because it could be one that keeps data."
        ) from fault


def _value(urn: str, metadata: str | bytes) -> AspectEntry:
    key = _URN.fullmatch(urn)
    if key is None:
        raise InvalidValue("its urn is not urn:li:dataHubRetention:(entity,aspect)")
    config = json.loads(metadata)
    # DataHub keeps everything where nothing is set
    if config == {"retention": {}}:
        config = {"retention": {"indefinite": {}}}
    return AspectEntry.model_validate({"entity": key[1], "aspect": key[2], "config": config})


def _instant(value: object) -> datetime:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return parse_instant(f"{str(value).replace(' ', 'T')}Z")


def _words(fault: Exception) -> str:
    if isinstance(fault, ValidationError):
        first = fault.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))} {first['msg'].lower()} (found {quote(first['input'])})"
    return str(fault)

"""DataHub's table with DataHub's files, a ledger and settings: what a cycle over aspects needs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from retention_assets.policy.durations import parse_duration
from retention_assets_tests.clocks import CLOCK
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.aspects.environments import Table
from retention_assets_tests.sweep.lakes import Lake


class DataHub(Lake):
    def __init__(self, folder: Path, tables: Mapping[str, Table], ledger_url: str = "", **settings: Mapping[str, Any]) -> None:
        super().__init__(folder, ledger_url, policies="")
        self.tables = tables
        (folder / "policies" / "p.yaml").unlink()
        stores = [
            {
                "name": name,
                "kind": "aspects",
                "url": table.url.replace("$", "$$"),
                "table": table.name,
                **settings.get(name, {}),
            }
            for name, table in tables.items()
        ]
        places = {name: str(folder / name) for name in ("policies", "warehouse")}
        written = {"ledger": self.ledger_url.replace("$", "$$"), **places, "clock": CLOCK, "stores": stores}
        self.settings_file.write_text(json.dumps(written))

    @property
    def settings_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.yaml")

    def retains(self, file: str, entries: Sequence[Mapping[str, Any]]) -> None:
        (self.folder / "policies" / f"{file}.yaml").write_text(json.dumps(list(entries)))


def entry(entity: str, aspect: str, kept: str, **more: Any) -> dict[str, Any]:
    """One entry: `v3` keeps so many versions, `t30d` so long, `v3+t30d` both, `-` everything."""
    retention: dict[str, Any] = {}
    for part in kept.split("+"):
        if part == "-":
            retention["indefinite"] = {}
        elif part[0] == "v":
            retention["version"] = {"maxVersions": int(part[1:])}
        else:
            length = parse_duration(part[1:]).after(AS_OF) - AS_OF
            retention["time"] = {"maxAgeInSeconds": int(length.total_seconds())}
    return {"entity": entity, "aspect": aspect, "config": {"retention": retention}, **more}

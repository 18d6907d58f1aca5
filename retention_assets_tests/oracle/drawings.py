"""Policies and drawings that several tests of the oracle use."""

from typing import Any

from retention_assets.policy import Hold, Policy


def policy(select: Any = "all", name: str = "p", **keys: Any) -> Policy:
    return Policy.model_validate({"name": name, "datasets": {"include": ["*"]}, "select": select, **keys})


def hold(name: str = "h", **keys: Any) -> Hold:
    return Hold.model_validate({"name": name, "datasets": "*", **keys})


DEMONSTRATION = "abc: T1:APPEND@40d - T2:APPEND@38d - T3:SNAPSHOT@36d - T4:APPEND@35d"
FIVE = "main: T1:SNAPSHOT@9d - T2:APPEND@8d - T3:SNAPSHOT@6d - T4:SNAPSHOT@2d"
FORK = "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d - T3:SNAPSHOT@7d | dev: T1 - T4:SNAPSHOT@6d"
DELETED = "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d | -: T1 - X3:SNAPSHOT@7d - X4:APPEND@6d"
FILES = "main: T1:SNAPSHOT@9d[a,b] - T2:UPDATE@8d[a] - T3:DELETE@7d[b] - T4:APPEND@6d[c]"
RECORDS = "-: R1:RECORD@9d{type=PAYMENT} | -: R2:RECORD?@9d{type=PAYMENT} | -: R3:RECORD@9d~8d{type=PAYMENT} | -: R4:RECORD!@1d"

THREE = "main: T1:SNAPSHOT@9d=10 - T2:APPEND@8d=20 - T3:SNAPSHOT@7d - T4:SNAPSHOT@6d=100 | -: T5:SNAPSHOT?@5d"


def answer_of(text: str) -> dict[str, str]:
    return {name: verdict for verdict, *names in map(str.split, text.split(",")) for name in names}

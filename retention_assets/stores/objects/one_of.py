"""Chooses among kinds of settings by their key, so that an error is reported for that kind alone."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationInfo

from retention_assets.errors import InvalidValue


def one_of(kinds: Mapping[str, type[BaseModel]]) -> Callable[[Any, ValidationInfo], Any]:
    expected = f"a mapping with one of {', '.join(kinds)}"

    def read(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, dict):
            raise InvalidValue("has the wrong type", expected)
        kind = next((kinds[key] for key in kinds if key in value), None)
        if kind is None:
            said = ", ".join(map(str, value)) or "nothing"
            raise InvalidValue(f"is of no known kind: it says {said}", expected)
        return kind.model_validate(value, context=info.context)

    return read

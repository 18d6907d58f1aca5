"""`retention.yaml`: what may stand in it, and reading it with every fault found at once.

`load_settings`, `settings_of` and `Settings` are public here. They are loaded when somebody asks: policies and databases build
on `settings.yaml` and `settings.urls` alone, and must not load every kind of store with them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retention_assets.settings.model import Settings as Settings
    from retention_assets.settings.model import load_settings as load_settings
    from retention_assets.settings.model import settings_of as settings_of

_PUBLIC = ("Settings", "load_settings", "settings_of")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from retention_assets.settings import model

        return getattr(model, name)

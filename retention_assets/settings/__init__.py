"""`retention.yaml`: reads and checks it, and reports all faults at once.

`load_settings`, `settings_of` and `Settings` are loaded on first use: policies and databases need only `settings.yaml` and
`settings.places`, without every kind of store.
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

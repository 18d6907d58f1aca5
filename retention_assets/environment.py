"""Environment of a run: open the ledger, the stores and the rules from the settings.

Stores stay open from one task of a run to the next. Nothing is passed as resource configuration: Dagster shows it to
everybody, and settings hold passwords. The ledger is imported when it is opened, for not every command needs it.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from retention_assets.errors import Refused
from retention_assets.policy.durations import minute_in_utc
from retention_assets.settings.model import Settings
from retention_assets.silence import bound_silence
from retention_assets.stores.protocol import Store
from retention_assets.stores.registry import open_store

if TYPE_CHECKING:
    from retention_assets.ledger import Ledger
    from retention_assets.ledger.audit.chain import Act
    from retention_assets.ledger.database import LedgerDatabase
    from retention_assets.pipeline.head_file import HeadFile


# Last run that worked in this process, and the stores that it had opened. At most one.
_KEPT: list[tuple[tuple[str, Settings], dict[str, Store]]] = []


@dataclass(frozen=True)
class Environment:
    """Opens the ledger and the stores that the settings name."""

    settings: Settings
    # An open ledger for many queries in a row: opening costs its database more than most of them.
    opened: "Ledger | None" = field(default=None, repr=False, compare=False)
    # False: a ledger of an earlier release is refused, and not upgraded
    upgrades: bool = field(default=True, repr=False, compare=False)

    def within(self, ledger: "Ledger") -> "Environment":
        """Copy that uses an open ledger instead of opening one, valid while it is open."""
        return replace(self, opened=ledger)

    @contextmanager
    def ledger(self) -> "Iterator[Ledger]":
        """Open the ledger; create it if there is none."""
        if self.opened is not None:
            yield self.opened
            return
        from retention_assets.ledger import open_ledger

        bound_silence(self.settings.silence)
        url, simulated = self.settings.ledger, self.settings.clock.simulated
        with open_ledger(url, tell_witness=self._note_heads, simulated=simulated, upgrades=self.upgrades) as ledger:
            yield ledger

    @property
    def head_file(self) -> "HeadFile":
        """File in the warehouse with the head of the ledger's record."""
        from retention_assets.pipeline.head_file import HeadFile

        return HeadFile(str(self.settings.warehouse))

    def head_files(self) -> "list[HeadFile]":
        """Files with heads: in the warehouse, and beside the data of each store that has it below one root."""
        from retention_assets.pipeline.head_file import StoreHeadFile

        roots = [StoreHeadFile(store.data_root, store.name) for store in self.settings.stores if store.data_root]
        return [self.head_file, *roots]

    def head_faults(self, ledger: "Ledger") -> dict[str, str]:
        """Reasons why the ledger is outdated, by head file: the settings' files, and those that the ledger remembers."""
        from retention_assets.pipeline.head_file import remembered_files

        files = remembered_files(ledger.database, self.head_files())
        return {file.key: fault for file in files if (fault := file.fault(ledger.database))}

    def place_faults(self, ledger: "Ledger", stores: Iterable[Store], actor: str | None = None) -> dict[str, Refused]:
        """Reasons by store why nothing of it may be marked or swept. With an actor, new stores and names of roots are noted."""
        from retention_assets.pipeline.head_file import place_faults

        return place_faults(ledger, stores, actor)

    def _note_heads(self, database: "LedgerDatabase", acts: "Sequence[Act]") -> None:
        from retention_assets.pipeline.head_file import note_heads

        note_heads(self.head_files(), database, acts)

    @contextmanager
    def ledger_if_any(self) -> "Iterator[Ledger | None]":
        """Open the ledger, or yield None: readers create none."""
        from retention_assets.ledger import ledger_is_there

        if not ledger_is_there(self.settings.ledger):
            yield None
            return
        with self.ledger() as ledger:
            yield ledger

    @contextmanager
    def existing_ledger(self) -> "Iterator[Ledger]":
        """Open the ledger for a change; refuse where there is none."""
        with self.ledger_if_any() as ledger:
            if ledger is None:
                raise Refused(self.no_ledger)
            yield ledger

    @property
    def no_ledger(self) -> str:
        return f"no ledger yet at {self.settings.ledger}; nothing is marked"

    def present(self) -> datetime:
        """Present by the ledger's database where that is a server, else by this machine. Opens no ledger."""
        from retention_assets.ledger import ledger_time

        return ledger_time(self.settings.ledger)

    def instant(self, as_of: datetime | None) -> datetime:
        """Instant of a run that marks, sweeps, reports or postpones expiry: `as_of`, or the present.

        Refuses a future instant, by which tags, holds and graces would be over that are not. Where the clock is simulated,
        it is the present. Readers may ask for any instant and do not come here.
        """
        clock = self.settings.clock
        if as_of is not None and clock.simulated:
            return as_of
        present = self.present()
        if as_of is not None and as_of > clock.max_skew.after(present):
            raise Refused(
                f"As of {minute_in_utc(as_of)} is later than now, {minute_in_utc(present)}: a future time can't be marked, "
                "swept or reported. Leave as_of out. `retention plan` and `retention preview` look ahead. Only "
                f"settings with `clock: {{simulated: true}}` let days pass."
            )
        return as_of or present

    def start_spark(self) -> None:
        """Start Spark in the background."""
        from retention_assets.pipeline.spark import do_early, start_early

        start_early(self.settings.spark.master, self.settings.spark.conf, str(self.settings.warehouse))
        from retention_assets.pipeline.read_logs import load_in_tasks

        stores = list(self.stores().values())
        do_early(lambda spark: load_in_tasks(spark, stores))

    def stores(self, names: Iterable[str] | None = None) -> dict[str, Store]:
        bound_silence(self.settings.silence)
        wanted = None if names is None else set(names)
        return {store.name: open_store(store) for store in self.settings.stores if wanted is None or store.name in wanted}

    @contextmanager
    def stores_of_run(self, run: str, names: Iterable[str]) -> Iterator[dict[str, Store]]:
        """Open stores, or reuse those that an earlier task of the run left open in this process. After an error none is kept.

        Their caches (the tables of a catalog, the connections of a server) serve the few tasks that a process works off;
        facts that decide about a deletion are read anew each time.
        """
        key, wanted = (run, self.settings), set(names)
        # Taken out at once, so that tasks that run side by side share nothing.
        kept_key, opened = _KEPT.pop() if _KEPT else (None, {})
        if kept_key != key:
            opened = {}
        opened |= self.stores(wanted - opened.keys())
        yield {name: store for name, store in opened.items() if name in wanted}
        _KEPT[:] = [(key, opened)]

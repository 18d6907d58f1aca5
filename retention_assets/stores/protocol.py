"""The base of stores: their methods with a default for each, the values that go in and out, and the guarantees of each method.

Every store passes one contract test (retention_assets_tests/stores/contract.py). In short: reading never changes anything;
an order deletes only what its targets own, can be killed at any instant and given again, and never raises for a fault of one
target.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import BadInput, Refused
from retention_assets.frames.log import by_dataset
from retention_assets.outcomes import Order, Outcome
from retention_assets.outcomes import SweptTarget as SweptTarget
from retention_assets.policy.durations import Duration
from retention_assets.policy.loading import OutsideEntry
from retention_assets.policy.model import Keeper, Policy
from retention_assets.settings.places import mask_text
from retention_assets.silence import ForeignThread, is_silence, silence_text
from retention_assets.stores.concurrency import DueTransactions as DueTransactions
from retention_assets.stores.concurrency import OpenPlace, Tasks, open_local
from retention_assets.stores.settings import StoreSettings

Answer = TypeVar("Answer")

# attribute of a transaction that names its referrers, one a line, where its store was asked about it alone
WITNESS = "witness"
# tables that a task reads in seconds, one file of metadata each
_SHARE = 64

# Called before each irreversible act: returns if the act may begin now, raises Withheld if it may not. It takes microseconds
# and no round trip, so it can stand before each file, request and commit.
Permit = Callable[[], None]

# returns those of the given transactions that have data
FindData = Callable[[Sequence[str]], list[str]]


def always() -> None:
    """Permit of a caller without a lease."""


def never() -> bool:
    """The default `is_stopped`: nobody asks for an end."""
    return False


class Reads(StrEnum):
    """Part of a dataset that a store has to read for a reliable answer about some transactions."""

    WHOLE = "WHOLE"
    # Much may be due in a dataset, and few rows decide about each transaction: those of the branches that it is on. The store
    # guards its deletions, and nothing of it is ever deleted from a latest view.
    BRANCHES = "BRANCHES"
    SOME = "SOME"


class Remains(StrEnum):
    """State of a target on which a sweep had begun."""

    ALL = "ALL"
    SOME = "SOME"
    NOTHING = "NOTHING"
    # nothing is left, and what was planned to become free is free
    FREED = "FREED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Only:
    """Some transactions, by dataset, with the realms being purged and the holds in force: what is held may keep others."""

    transactions: Mapping[str, Sequence[str]]
    purging: Collection[str] = ()
    holds: Sequence[Keeper] = ()


@dataclass(frozen=True)
class PreparedTarget:
    """Facts about a transaction recorded before anything of it is deleted, so that a killed sweep can be resumed.

    The engine writes them into the plan. `bytes` is what deleting it will free, if the store can tell better than its log.
    """

    transaction: str
    bytes: int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Target:
    """A transaction of a plan to delete now, with the note from `prepare`."""

    transaction: str
    note: str | None = None
    # its policy may select inside a latest view, and did
    in_latest_view: bool = False
    # the plan noted where the data is and the store looks there now: what is not there is gone
    place_known: bool = False
    # ended branches and tags on it that its policy drops together with it
    ended_refs: tuple[str, ...] = ()
    # a sweep of it began and did not finish: what is gone by now was deleted by that sweep
    begun_earlier: bool = False
    # a deletion for good began before and has failed: less of it may be in the trash, and what is not there may have been taken
    has_failed: bool = False
    # it was deleted then, and is there again: what a copy of it keeps is as it was, and nothing was written since
    again: datetime | None = None
    # folder in the trash that belongs to it alone, as plan/mark
    aside: str = ""


@dataclass(frozen=True)
class ExpiryTerms:
    """Days to look ahead for expiring transactions, and the time by which they are postponed."""

    days: int
    length: Duration


@dataclass(frozen=True)
class ExpiryCount:
    """Number of transactions of one type that expire in an interval, and how many of them are not done with."""

    type: str | None
    transactions: int
    unfinished: int
    unarchived: int


class Store(ABC):
    """A place that keeps versioned data. The defaults here are for a kind that can't, does not know, or needs nothing.

    Stores travel to Spark tasks as their settings, and are opened anew there: `__init__` takes the settings alone, and opens
    what it needs only when it is asked.
    """

    settings: StoreSettings

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.settings,)

    @property
    def name(self) -> str:
        """Prefix of the names of its datasets."""
        return self.settings.name

    @property
    def innermost(self) -> "Store":
        """The store itself, behind those that are wrapped around it."""
        return self

    def close(self) -> None:
        """Give back what it keeps open. It can be asked again afterwards."""

    # --- facts about its kind ---

    @property
    def log_is_complete(self) -> bool:
        """True if what the log no longer lists is gone: the log is the data, not a record beside it."""
        return False

    @property
    def reads(self) -> Reads:
        """Part of a dataset that it reads for an answer about some transactions."""
        return Reads.WHOLE

    @property
    def guards(self) -> bool:
        """True if it deletes a target only if it still matches its note, and nothing that happens meanwhile can make it needed
        in another way: the log need not be read again before each batch.
        """
        return False

    @property
    def shares_data(self) -> bool:
        """True if its transactions share data, and its log goes on listing what was swept: it is told what was (`know_swept`).

        Its log says how long each piece of data lives (frames/verdicts/shared_data.py). It is read whole, and one task at a
        time sweeps a dataset. A target loses data only if no other transaction has it but those that lost some before.
        """
        return False

    @property
    def drops_refs(self) -> bool:
        """True if a deletion drops refs that are over (`Target.ended_refs`) together with what only they keep."""
        return False

    @property
    def parts_at(self) -> str | None:
        """Text that bounds the parts of a dataset which several tasks may sweep side by side, each its own transactions.

        Names that are equal up to its first occurrence go to one task (empty: any task). None: one task at a time, as where a
        sweep is one commit.
        """
        return None

    @property
    def expiry(self) -> ExpiryTerms | None:
        """Terms of a store that expires rows by itself once they have a time (`sweep.mode: ttl`); None if it does not."""
        return None

    # --- reading; nothing of it changes anything ---

    @abstractmethod
    def datasets(self) -> list[str]:
        """Names of all datasets, as `store/name`, sorted."""

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """Split the datasets into groups that are best read together, each small enough for one task."""
        return [tuple(datasets[begin : begin + _SHARE]) for begin in range(0, len(datasets), _SHARE)]

    @abstractmethod
    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        """Read the log and the refs of the datasets as they are now: rows of `frames.log.LINES`.

        A dataset that can't be read has one line with the reason in `fault`; one that is not there has none. Raises only if
        none of them can be read.

        A store that reads SOME is also asked for `only` some transactions: those of them that are there now, and one line
        about each dataset. It raises if it can't be sure of any of them, and a plan prepared afterwards is about what was read
        here. One that reads BRANCHES reads the whole branches that they are on; a transaction on no branch comes alone, and a
        dataset need not have a line. Other stores are never asked so.
        """

    @abstractmethod
    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """Return a text for each dataset that is there; it changes whenever its log or refs may have changed. Cheap."""

    def policies(self) -> Sequence[OutsideEntry]:
        """Return policies that people made in the store itself. Raises Refused if one can't be read."""
        return ()

    def present(self) -> datetime | None:
        """Return the time of the server behind it; None where the data is on this machine or nothing can be asked."""
        return None

    def place(self, dataset: str, claim: bool = False) -> str | None:
        """Return a text that differs for every other place of the dataset's data; None if unknown, which counts as not moved.

        Changes nothing without `claim`. With it, the store may leave a file there that identifies the place, if there is any
        sign of the dataset's data.
        """
        return None

    def store_place(self, claim: bool = False) -> str | None:
        """Return the place of all of its data, in the form of `place`; None if unknown. It does not depend on its datasets."""
        return None

    def data_finder(self, dataset: str) -> FindData:
        """List the data of a dataset once. All transactions have data where the log is the data; none where nobody can tell."""
        return list if self.log_is_complete else lambda _: []

    # --- sentences for people ---

    def warnings(self) -> list[str]:
        """Sentences that a person should read before using the store, such as one about a missing index."""
        return []

    def policy_warnings(self, policies: Sequence[Policy]) -> list[str]:
        """Sentences about what policies promise and readers would refuse, or what is kept longer than they ask."""
        return []

    def undo_warnings(self, undo: Duration) -> list[str]:
        """Sentences about what may end the window earlier than policies say, such as a lifecycle rule of the bucket."""
        return []

    def accepted_cascades(self) -> str | None:
        """Describe the foreign keys by which rows go or change with what is swept, or keep it; None if there are none."""
        return None

    def explain_needs(self, dataset: str, transaction: str) -> list[str]:
        """Sentences about which of its data goes with a transaction, and which other transactions need the rest."""
        return []

    # --- what is needed ---

    def know_swept(self, dataset: str, deleted: Collection[str], aside: Collection[str], kept: Collection[str]) -> None:
        """Take the transactions of a dataset that were deleted before, and those that are set aside, instead of earlier ones.

        Only asked of a store that `shares_data`. Later questions and orders about the dataset count as retained: every other
        transaction but their own targets; the `kept`, which are swept, though a hold or a retain rule names them; and swept
        ones whose data is whole again.
        """

    def check_needs(self, dataset: str, going: Sequence[str], retained: Sequence[str]) -> Mapping[str, str]:
        """Return the ones of `going` that would lose nothing, and who needs all of their data, in words that follow "but".

        It reads the log anew, and shares no code with the other methods.
        """
        return {}

    def wanted_again(self, dataset: str, transactions: Collection[str]) -> Mapping[str, str]:
        """Return the set aside transactions that are needed now, each with a sentence that says for what.

        About what the log does not tell: a reference, a reader, a clone. Changes nothing. Asked also once the dataset is gone.
        """
        return {}

    # --- looks: for a store that reads SOME, and must look at a lot before it can answer for any transaction ---

    @property
    def has_looked(self) -> bool:
        """True if it answers from a look."""
        return False

    def look(
        self,
        due: DueTransactions,
        purging: Collection[str],
        last: str | None,
        tasks: Tasks,
        folder: str,
        opened: OpenPlace = open_local,
        is_stopped: Callable[[], bool] = never,
        holds: Sequence[Keeper] = (),
    ) -> object:
        """Look once, for a whole sweep, at everything that decides whether these may go.

        Returns a small value that travels; the results are in a new folder. `last` is the result of the last whole scan, as the
        ledger keeps it.

        A fault that leaves it unsure is raised by `read`, once it is asked about something the fault concerns.
        """
        return None

    def answer_by(self, look: object) -> None:
        """Make `read` answer for some transactions from a look while its folder exists; with None it looks each time."""

    def was_looked_at(self, transactions: pa.Array, purging: Collection[str]) -> pa.Array:
        """Return the transactions that the look can answer for, as a mask. The others became due only later."""
        return pa.repeat(True, len(transactions))

    # --- orders ---

    def among(self, tasks: int) -> "Store":
        """Return the same store with its share of the limit of requests per second for one of `tasks` concurrent tasks."""
        return self

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        """Return what to record before these are deleted, one for each. Changes nothing."""
        return [PreparedTarget(transaction) for transaction in transactions]

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        """State of each target, by transaction; unknown for those that are not named. Changes nothing."""
        return {}

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        """Delete what the targets own and nothing else; return one outcome for each, in any order.

        Data goes before the record that finds it. What is already gone is ALREADY_GONE; what can't be deleted is FAILED and
        keeps no other from being deleted; what turns out to be needed is SPARED and untouched. What is no longer listed, though
        its place keeps readable versions of it, is HIDDEN: it freed nothing.

        `permit` is called before each target, and again before each irreversible act in it: a file, a request, a statement, a
        commit. Once it raises Withheld nothing further is deleted, and what is not done, or not completely, is WITHHELD. Many
        threads may call it at once.
        """
        return self.carry_out(Order.DELETE, dataset, targets, parallelism, permit)

    def undo_fault(self) -> str | None:
        """Say why nothing can be set aside, with the remedy; None if it can. Tries it once in the root, if there is one.

        `settings.undo_fault` says it without a request.
        """
        return self.settings.undo_fault

    def carry_out(
        self, order: Order, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        """Carry out an order about data or the trash; outcomes and permits as in `sweep`.

        Orders about the trash are only given where `settings.undo_fault` is None.

        SET_ASIDE takes targets out of sight, whole; its bytes are those that deleting them will free. RESTORE brings them back:
        RESTORED, also if they are back already; what can't come back whole is FAILED, or SPARED if it has changed, and stays as
        it is; the error names what stands in its place or is missing. DELETE_ASIDE deletes what is in the trash for good, and
        nothing in sight.

        Each can be killed at any instant and given again. A target that was answered for is whole at exactly one of its two
        places. `Target.aside` is the same in all orders about one setting aside.
        """
        return self._fail(targets, f"a store of kind {self.settings.kind} can't carry out the order {order}")

    def expire(
        self, dataset: str, targets: Sequence[Target], at: datetime | None, parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        """Let everything of the targets expire at one instant; None takes the time back.

        An earlier time stays. One outcome for each: EXPIRING when its time is set (or taken back), ALREADY_GONE, FAILED, SPARED
        if it no longer matches its note, or WITHHELD by the permit, as in a sweep.
        """
        return self._fail(targets, f"a store of kind {self.settings.kind} expires nothing by itself")

    def find_postponable(
        self, dataset: str, within: datetime, archived_types: Collection[str], is_held: Callable[[str], bool] | None
    ) -> Iterator[list[Target]]:
        """Yield, in pieces, what would expire by an instant though it is unfinished, held, or of a type yet to be archived.

        Without `is_held` nothing is held, and only what is unfinished or not archived is looked at.
        """
        return iter(())

    def postpone(
        self, dataset: str, targets: Sequence[Target], within: datetime, until: datetime, permit: Permit = always
    ) -> list[SweptTarget]:
        """Postpone their expiry: EXPIRING, or SPARED if they have changed and are looked at again the next time.

        WITHHELD by the permit, as in a sweep.
        """
        return self._fail(targets, f"a store of kind {self.settings.kind} expires nothing by itself")

    def count_expiring(
        self, dataset: str, begin: datetime, end: datetime, archived_types: Collection[str]
    ) -> list[ExpiryCount]:
        """Count what expires in an interval, by type."""
        return []

    @staticmethod
    def _fail(targets: Sequence[Target], why: str) -> list[SweptTarget]:
        return [SweptTarget(target.transaction, Outcome.FAILED, error=why) for target in targets]


def data_finder(store: Store | None, dataset: str) -> FindData:
    """Find data of transactions that a log lists; none where the store is away: reading it reports that."""
    with suppress(StoreFailed):
        if store:
            return call_store(store, lambda: store.data_finder(dataset))
    return lambda _: []


def rows_with_data(rows: pa.Table, finders: Callable[[str], FindData]) -> pa.Table:
    """Rows of those transactions whose data is there, by the finder of each dataset; one dataset after another."""
    found = [rows.slice(0, 0)]
    for name, own in by_dataset(rows).items():
        there = finders(name)(own["transaction"].to_pylist())
        found.append(own.filter(pc.is_in(own["transaction"], pa.array(there, pa.string()))))
    return pa.concat_tables(found)


# separators in the text of a place: before its identity, if it has one, and before the number of its folder
KNOWN_BY = ", known by "
IN_FOLDER = " in folder "


def is_same_place(planned: str, present: str) -> bool:
    """Compare two places. An identity may have been added since the plan, and a folder with its number may have been renamed.

    At one path the identity decides: a backup that was put back has a folder of its own.
    """
    (old_path, _, planned_id), (path, _, present_id) = planned.partition(KNOWN_BY), present.partition(KNOWN_BY)
    if old_path != path:
        return planned_id == present_id and IN_FOLDER in planned_id
    return not planned_id or planned_id.partition(IN_FOLDER)[0] == present_id.partition(IN_FOLDER)[0]


class StoreFailed(Refused):
    """A store could not answer: it may be away or broken. Other stores go on."""


def thread_of(store: Store) -> ForeignThread | None:
    """Return a thread that notices silence of a store of another package; drivers of built-in kinds have time-outs."""
    is_ours = type(store.innermost).__module__.startswith("retention_assets.")
    return None if is_ours else ForeignThread()


def ask_store(store: Store, question: Callable[[], Answer], thread: ForeignThread | None = None) -> Answer:
    """Return the store's answer or raise its exception; Silent, if it does neither."""
    thread = thread or thread_of(store)
    return thread.call(f"the store {store.name}", question) if thread else question()


def call_store(store: Store, question: Callable[[], Answer], thread: ForeignThread | None = None) -> Answer:
    """Return the store's answer or raise StoreFailed: foreign stores may raise anything."""
    try:
        return ask_store(store, question, thread)
    except Exception as fault:
        raise StoreFailed(f"the store {store.name} failed: {error_text(fault)}") from fault


def error_text(fault: Exception) -> str:
    """Format an error as one line, with its class unless it is made for people."""
    text = mask_text(" ".join(str(fault).split()))
    text = text if isinstance(fault, Refused | BadInput) else f"{type(fault).__name__}: {text}"
    return f"{text.rstrip('.')}: {silence_text()}." if is_silence(fault) and silence_text() not in text else text


def outside_times(stores: Iterable[Store]) -> Iterator[datetime]:
    """Return the clocks of the stores' servers. A server that can't be asked is no witness."""
    for store in stores:
        with suppress(StoreFailed):
            if time := call_store(store, store.present):
                yield time

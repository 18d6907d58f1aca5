"""The protocol: what a store is to everything else, and how everything else asks it.

Belongs here: the questions that a store answers, the values that go in and out, and what each store promises by answering.
Does not belong here: any store.

Every store passes one contract test (retention_assets_tests/stores/contract.py). In short: reading never changes anything;
`sweep` deletes only what its targets own, can be killed at any instant and called again, and never raises for what is wrong
with one target.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from retention_assets.errors import BadInput, Refused
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Hold
from retention_assets.settings.urls import mask_text
from retention_assets.silence import ForeignThread, is_silence, silence_text
from retention_assets.stores.tasks import OpenPlace, Tasks, open_local

Answer = TypeVar("Answer")

# The attribute of a transaction that names who refers to it, a line for each, where its store was asked about it alone.
WITNESS = "witness"

# Asked before each irreversible act: comes back if the act may begin now, and raises Withheld if it may not. It costs
# microseconds and no round trip, so that it can stand before each file, each request and each commit.
Permit = Callable[[], None]


def always() -> None:
    """The permit of who calls a store by hand: there is no lease to lose."""


def never() -> bool:
    """Nobody asks whoever began something to end."""
    return False


@dataclass(frozen=True)
class Capabilities:
    """What a store can do beyond the least that all of them can."""

    # Expires rows by itself, once it was given their time (sweep.mode: ttl).
    expiry: bool = False
    # What its log no longer lists is no longer there: the log is the data, not a book beside it.
    log_is_complete: bool = False
    # `sweep` drops refs that are over (Target.ended_refs) together with what they alone keep.
    drops_refs: bool = False
    # `sweep` deletes a target only if it still is what its note says, and nothing that happens meanwhile can make it needed
    # otherwise: the log has not to be read again before each batch.
    guards: bool = False
    # Several tasks may sweep one dataset side by side, each its own transactions; those whose names are the same up to the
    # first of this text come to one task (empty: each may come to any). None: one at a time, as where a sweep is one commit.
    parts_at: str | None = None


@dataclass(frozen=True)
class PreparedTarget:
    """What a sweep has to know of a transaction before anything of it is deleted, so that a killed sweep can be resumed.

    The engine writes it into the plan. `bytes` are those that deleting it will free, if the store can tell better than its log.
    """

    transaction: str
    bytes: int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Target:
    """One transaction of a plan that is to be deleted now, with the note that `prepare` left."""

    transaction: str
    note: str | None = None
    # A policy may select it inside a latest view, and did.
    in_latest_view: bool = False
    # Its plan noted where the data is, and that is where the store looks now: what is not there is gone.
    place_known: bool = False
    # The branches and tags on it that are over, and which its policy drops together with it.
    ended_refs: tuple[str, ...] = ()
    # A sweep had begun on it that did not come to its end: what is gone by now is what it deleted.
    begun_earlier: bool = False


@dataclass(frozen=True)
class SweptTarget:
    """What became of one target, and the bytes that became free. `error` says why it failed, or why it was spared."""

    transaction: str
    outcome: Outcome
    bytes: int = 0
    error: str | None = None
    # Of a HIDDEN one: the bytes that can still be read.
    bytes_hidden: int = 0
    # Files of it that stay, as they are not the dataset's own to delete.
    left: int = 0


@runtime_checkable
class Store(Protocol):
    """A place that keeps versioned data. Values of it travel to Spark tasks, so they are small and can be pickled."""

    @property
    def name(self) -> str:
        """What the names of its datasets begin with."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    def datasets(self) -> list[str]:
        """The names of all datasets, as `store/name`, sorted."""

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """The same datasets in groups, each small enough to be read by one task at a time, and read best together."""

    def read(self, datasets: Sequence[str]) -> pa.Table:
        """The log and the refs of some datasets as they are now: rows of `frames.log.LINES`.

        A dataset that can't be read has one line that says so in `fault`; one that is not there has none. Only what keeps it
        from reading any of them raises.
        """

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """Per dataset a text that is another one whenever its log or its refs may have changed. Cheap; no token: not there."""

    def warnings(self) -> list[str]:
        """What a person should know before it is used: sentences, such as one about an index that is missing."""

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        """What to write down before these are deleted, one for each of them. Changes nothing."""

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        """Delete what the targets own and nothing else; one outcome for each, in any order.

        Data goes before the record that finds it. What is gone already is ALREADY_GONE; what can't be deleted is FAILED and
        keeps no other from being deleted; what turns out to be needed is SPARED and untouched. What is not listed any more,
        though its place keeps versions of it that can be read, is HIDDEN: nothing of it became free.

        `permit` is asked before each target, and again before each act in it that can't be undone: a file, a request, a
        statement, a commit. Once it raises Withheld nothing further is deleted, and what was not done, or not to its end, is
        WITHHELD. Many threads may ask at once.
        """


@runtime_checkable
class SelectiveStore(Store, Protocol):
    """A store that a sweep need not read whole: it answers for some transactions as truly as for all of them."""

    def read_some(
        self, wanted: Mapping[str, Sequence[str]], purging: Collection[str] = (), holds: Sequence[Hold] = ()
    ) -> pa.Table:
        """Of some transactions, by dataset, those that are there now, as `read` has them; and one line about each dataset.

        `purging` are the realms that are being purged, `holds` are in force: what is held may keep others. What keeps it from
        being sure of any of them raises. A plan that is prepared afterwards is about what was read here.
        """


@runtime_checkable
class ChainReadingStore(Store, Protocol):
    """A store of datasets in which much may be due, and of which few rows decide about each transaction.

    Nothing of it is ever deleted from a latest view, and it guards its deletions.
    """

    def read_chains(self, dataset: str, transactions: Sequence[str]) -> pa.Table:
        """Of some transactions the branches that they are on, whole, as `read` has them now; what is on none, by itself.

        What is not there any more has no line, nor need the dataset have one.
        """


class DueTransactions(Protocol):
    """What is due of a store. It travels to tasks, and each part is read where it is needed: there may be millions."""

    @property
    def parts(self) -> int:
        """How many parts it has."""

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        """The transactions of a part, in a column of that name. One may come twice."""


@runtime_checkable
class LookingStore(SelectiveStore, Protocol):
    """A store that has much to look at before it can answer for any transaction: it does so once for a whole sweep."""

    @property
    def has_looked(self) -> bool:
        """Whether it answers by a look that was taken."""

    def look(
        self,
        due: DueTransactions,
        purging: Collection[str],
        last: str | None,
        tasks: Tasks,
        folder: str,
        opened: OpenPlace = open_local,
        is_stopped: Callable[[], bool] = never,
        holds: Sequence[Hold] = (),
    ) -> object:
        """Look at everything on which it depends whether these may go. What comes back is a small value, and travels; what it
        found is in a new folder. `last` is what its last whole scan came to, as the ledger keeps it.

        What keeps it from being sure is raised by `read_some`, once it is asked about what that concerns.
        """

    def answer_by(self, look: object) -> None:
        """Have `read_some` answer by a look, as long as its folder is there; by none: ask anew each time."""

    def was_looked_at(self, transactions: pa.Array, purging: Collection[str]) -> pa.Array:
        """Which transactions the look can answer for. The others became due only later."""


@runtime_checkable
class PacedStore(Store, Protocol):
    """A store whose settings limit what is asked of it in a second."""

    def among(self, tasks: int) -> "PacedStore":
        """The same store, as one of so many who work side by side asks it."""


# From names of transactions to those of which there is data.
FindData = Callable[[Sequence[str]], list[str]]


@runtime_checkable
class ListedStore(Store, Protocol):
    """A store whose log goes on listing what was deleted, and that can list a dataset's data."""

    def data_finder(self, dataset: str) -> FindData:
        """List the data of a dataset once. Changes nothing."""


def data_finder(store: Store, dataset: str) -> FindData:
    """Find data of transactions that a log lists; raises StoreFailed where the store can't say.

    Where the log is the data each has some; where nobody can tell, none has.
    """
    if isinstance(store, ListedStore):
        return call_store(store, lambda: store.data_finder(dataset))
    return list if store.capabilities.log_is_complete else lambda _: []


class Remains(StrEnum):
    """What is left of a target on which a sweep had begun."""

    ALL = "ALL"
    SOME = "SOME"
    NOTHING = "NOTHING"
    # Nothing, and what was planned to become free is.
    FREED = "FREED"
    UNKNOWN = "UNKNOWN"


@runtime_checkable
class LocatedStore(Store, Protocol):
    """A store that can say where its data is, and what of a target is still there. Others are trusted to be where they were."""

    def place(self, dataset: str, claim: bool = False) -> str | None:
        """Where the data of a dataset is, in words that are other ones for every other place; None if that can't be said.

        Changes nothing, unless it is to `claim` the place: then it may leave something there by which it is known again, if
        there is any sign of the dataset's data.
        """

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        """What is left of each target, by its transaction. Changes nothing."""


@runtime_checkable
class PlacedStore(Store, Protocol):
    """A store that can say where all of its data is. Of others the ledger notes no place."""

    def store_place(self, claim: bool = False) -> str | None:
        """The place, as `LocatedStore.place` says that of a dataset; the same, whichever datasets there are."""


@runtime_checkable
class ExpiringStore(Store, Protocol):
    """A store with the capability `expiry`: it deletes by itself what has passed the time that it was given."""

    def expire(
        self, dataset: str, targets: Sequence[Target], at: datetime | None, parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        """Let everything of the targets expire at an instant, the same for all of it; none takes the time back.

        What would expire earlier stays as it is. One outcome for each: EXPIRING when its time is set (or taken back),
        ALREADY_GONE, FAILED, or SPARED where it is no longer what its note says. WITHHELD by the permit, as in a sweep.
        """


@dataclass(frozen=True)
class ExpiryCount:
    """How many transactions of one type expire in an interval; and how many of them though they are not done with."""

    type: str | None
    transactions: int
    unfinished: int
    unarchived: int


@dataclass(frozen=True)
class PostponementTerms:
    """How many days ahead is looked for what would expire, and for how long it is put off."""

    days: int
    length: Duration


@runtime_checkable
class PostponingStore(Store, Protocol):
    """A store that expires rows by a time that they carry. Only asked where it has the capability `expiry`."""

    @property
    def postponement_terms(self) -> PostponementTerms:
        """As its settings say."""

    def find_postponable(
        self, dataset: str, within: datetime, archived_types: Collection[str], is_held: Callable[[str], bool] | None
    ) -> Iterator[list[Target]]:
        """What would expire by an instant though it is unfinished, or not archived and of a type that must be, or held.

        Piece by piece. Without `is_held` nothing is held, and only what is not done with has to be looked at.
        """

    def postpone(
        self, dataset: str, targets: Sequence[Target], within: datetime, until: datetime, permit: Permit = always
    ) -> list[SweptTarget]:
        """Let them expire later: EXPIRING, or SPARED if they have changed and are looked at again the next time.

        WITHHELD by the permit, as in a sweep.
        """

    def count_expiring(
        self, dataset: str, begin: datetime, end: datetime, archived_types: Collection[str]
    ) -> list[ExpiryCount]:
        """What expires in an interval, by type."""


@runtime_checkable
class ServedStore(Store, Protocol):
    """A store behind a server, which has a clock of its own: a witness of what time it is."""

    def present(self) -> datetime | None:
        """What time its server says it is; none where its data is on this machine, or nothing can be asked."""


# What follows in the words for a place by which it is known again, if anything could be left there.
KNOWN_BY = ", known by "


def is_same_place(planned: str, present: str) -> bool:
    """Whether a store is where it was. By what a place is known may have been left there since."""
    return present == planned or present.startswith(f"{planned}{KNOWN_BY}")


@runtime_checkable
class CascadingStore(Store, Protocol):
    """A store whose database may do more than it is told to, where its settings accept that."""

    def accepted_cascades(self) -> str | None:
        """A sentence with every path by which rows go or change with what is swept; None if there is no path."""


class StoreFailed(Refused):
    """A store could not do what it was asked; it may be away, or broken. What others keep goes on."""


def thread_of(store: Store) -> ForeignThread | None:
    """Where a store of another package runs, so that its silence is noticed. Drivers of the built-in kinds notice it."""
    is_ours = type(getattr(store, "store", store)).__module__.startswith("retention_assets.")
    return None if is_ours else ForeignThread()


def ask_store(store: Store, question: Callable[[], Answer], thread: ForeignThread | None = None) -> Answer:
    """Answer of a store, or what it raises; Silent, if it does neither."""
    thread = thread or thread_of(store)
    return thread.call(f"the store {store.name}", question) if thread else question()


def call_store(store: Store, question: Callable[[], Answer], thread: ForeignThread | None = None) -> Answer:
    """What a store answers, or StoreFailed: stores may be anybody's, and so may what they raise."""
    try:
        return ask_store(store, question, thread)
    except Exception as fault:
        raise StoreFailed(f"the store {store.name} failed: {error_text(fault)}") from fault


def error_text(fault: Exception) -> str:
    """An error as one line, with what kind it is where it is not made for people."""
    text = mask_text(" ".join(str(fault).split()))
    text = text if isinstance(fault, Refused | BadInput) else f"{type(fault).__name__}: {text}"
    return f"{text.rstrip('.')}: {silence_text()}." if is_silence(fault) and silence_text() not in text else text


def outside_times(stores: Iterable[Store]) -> Iterator[datetime]:
    """What time it is by the servers of some stores. One that can't be asked is no witness."""
    for store in stores:
        if isinstance(store, ServedStore):
            with suppress(StoreFailed):
                if at := call_store(store, store.present):
                    yield at

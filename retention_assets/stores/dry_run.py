"""The recording store of a dry run: it records what it is told to delete, and deletes nothing.

Each question is passed on by a line of its own: an order never reaches the wrapped store by its name alone, and a default of
the base never answers where the store has an answer of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Self, TypeVar, cast

from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.protocol import Permit, PreparedTarget, Store, SweptTarget, Target, always

Member = TypeVar("Member", bound=Callable[..., Any])


@dataclass(frozen=True)
class RecordedDeletion:
    dataset: str
    transaction: str
    bytes: int | None
    # it would get a time at which the store expires it
    expires: bool = False
    # branches and tags that would be dropped with it
    refs: tuple[str, ...] = ()
    # it is in a latest view, in which its policy may select
    in_latest_view: bool = False
    # it would be set aside, and deleted later
    aside: bool = False
    # it was set aside before, and would be deleted for good
    from_trash: bool = False


def _passed_on(member: Member) -> Member:
    """Pass a fact or a method on to the wrapped store."""
    if isinstance(member, property):
        name = member.fget.__name__
        return cast(Member, property(lambda recording: attrgetter(name)(recording.store)))

    def ask(recording: "RecordingStore", *asked: Any, **named: Any) -> Any:
        return attrgetter(member.__name__)(recording.store)(*asked, **named)

    return cast(Member, ask)


class RecordingStore(Store):
    """Wraps a store: answers as it does, and records instead of deleting."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.settings)
        self.store = store
        self.recorded: list[RecordedDeletion] = []
        self._prepared: dict[tuple[str, str], PreparedTarget] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.store,)

    @property
    def name(self) -> str:
        return self.store.name

    @property
    def innermost(self) -> Store:
        return self.store.innermost

    # facts
    log_is_complete = _passed_on(Store.log_is_complete)
    reads = _passed_on(Store.reads)
    guards = _passed_on(Store.guards)
    shares_data = _passed_on(Store.shares_data)
    drops_refs = _passed_on(Store.drops_refs)
    parts_at = _passed_on(Store.parts_at)
    expiry = _passed_on(Store.expiry)
    has_looked = _passed_on(Store.has_looked)

    # questions, and what the store remembers for them
    close = _passed_on(Store.close)
    datasets = _passed_on(Store.datasets)
    shares = _passed_on(Store.shares)
    read = _passed_on(Store.read)
    tokens = _passed_on(Store.tokens)
    policies = _passed_on(Store.policies)
    present = _passed_on(Store.present)
    data_finder = _passed_on(Store.data_finder)
    warnings = _passed_on(Store.warnings)
    policy_warnings = _passed_on(Store.policy_warnings)
    undo_warnings = _passed_on(Store.undo_warnings)
    undo_fault = _passed_on(Store.undo_fault)
    accepted_cascades = _passed_on(Store.accepted_cascades)
    explain_needs = _passed_on(Store.explain_needs)
    know_swept = _passed_on(Store.know_swept)
    check_needs = _passed_on(Store.check_needs)
    wanted_again = _passed_on(Store.wanted_again)
    look = _passed_on(Store.look)
    answer_by = _passed_on(Store.answer_by)
    was_looked_at = _passed_on(Store.was_looked_at)
    remains = _passed_on(Store.remains)
    find_postponable = _passed_on(Store.find_postponable)
    count_expiring = _passed_on(Store.count_expiring)

    def place(self, dataset: str, claim: bool = False) -> str | None:
        """Return the place; `claim` writes nothing."""
        return self.store.place(dataset)

    def store_place(self, claim: bool = False) -> str | None:
        """Return the place; `claim` writes nothing."""
        return self.store.store_place()

    def among(self, tasks: int) -> Self:
        """Return this one, or a copy that records in the same list."""
        if (store := self.store.among(tasks)) is self.store:
            return self
        copy = object.__new__(type(self))
        vars(copy).update(vars(self), store=store)
        return copy

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        prepared = self.store.prepare(dataset, transactions)
        self._prepared |= {(dataset, target.transaction): target for target in prepared}
        return prepared

    def end_day(self) -> None:
        """Forget what was recorded."""
        self.recorded.clear()

    # --- orders, which are recorded ---

    def carry_out(
        self, order: Order, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        if order is Order.RESTORE:
            return [SweptTarget(target.transaction, order.done) for target in targets]
        deletions = [
            RecordedDeletion(
                dataset,
                target.transaction,
                prepared.bytes,
                refs=tuple(sorted(target.ended_refs)),
                in_latest_view=target.in_latest_view,
                aside=order is Order.SET_ASIDE,
                from_trash=order is Order.DELETE_ASIDE,
            )
            for target, prepared in self._with_prepared(dataset, targets)
        ]
        self.recorded += deletions
        return [SweptTarget(each.transaction, order.done, each.bytes or 0) for each in deletions]

    def expire(
        self, dataset: str, targets: Sequence[Target], at: datetime | None, parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        if at is not None:
            self.recorded += [
                RecordedDeletion(dataset, target.transaction, prepared.bytes, True, in_latest_view=target.in_latest_view)
                for target, prepared in self._with_prepared(dataset, targets)
            ]
        return [SweptTarget(target.transaction, Outcome.EXPIRING) for target in targets]

    def postpone(
        self, dataset: str, targets: Sequence[Target], within: datetime, until: datetime, permit: Permit = always
    ) -> list[SweptTarget]:
        return [SweptTarget(target.transaction, Outcome.EXPIRING) for target in targets]

    def _with_prepared(self, dataset: str, targets: Sequence[Target]) -> Iterator[tuple[Target, PreparedTarget]]:
        for target in targets:
            yield target, self._prepared.get((dataset, target.transaction), PreparedTarget(target.transaction))

"""Housekeeping where a store expires rows by itself: what must not go yet is put off, and what goes tomorrow is told.

Belongs here: which transactions must not expire (unfinished, not archived though a policy asks for it, held), until when they
are put off, and the outlook on the next day.
Does not belong here: giving times to what is swept (sweep), the statements (stores), showing the result (commands).

What a sweep has given its time is never put off: it was judged, waited out its grace and was checked at the door. The dataset's
lease is held meanwhile, so that no sweep begins on what is just being put off.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta

from retention_assets.errors import Refused
from retention_assets.frames.grouping import selects_dataset
from retention_assets.ledger import Ledger
from retention_assets.outcomes import Outcome
from retention_assets.policy.book import item_of
from retention_assets.policy.globs import matches
from retention_assets.policy.model import Hold, Policy
from retention_assets.stores.postponing import ExpiryCount, PostponingStore
from retention_assets.stores.protocol import Store, Target
from retention_assets.sweep.lease import hold_lease
from retention_assets.sweep.read import StoreFailed, call_store, error_text

_DAY = timedelta(days=1)
_MOST_SAID = 5


@dataclass(frozen=True)
class PostponementResult:
    """What housekeeping did for one dataset, or in a rehearsal would do."""

    # Of a store that could not be asked for its datasets, `store/*`.
    dataset: str
    # What would expire by `within` was put off to `until`. Both are the present if nothing could be looked at.
    within: datetime
    until: datetime
    postponed: int = 0
    # Changed while it was looked at, or could not be written: it is looked at again the next time.
    left: int = 0
    errors: tuple[str, ...] = ()
    # What expires on the next day, by type. After what was done; in a rehearsal as it is.
    tomorrow: tuple[ExpiryCount, ...] = ()
    # Why nothing was done, or not all of it.
    refused: str | None = None


def postpone_expiry(
    ledger: Ledger,
    stores: Mapping[str, Store],
    as_of: datetime,
    actor: str = "housekeeping",
    holds: Sequence[Hold] = (),
    dry_run: bool = False,
) -> list[PostponementResult]:
    """Put off what must not expire yet, in every store that expires rows by itself. `holds` are those of policy files.

    A store that is away, or a dataset at which something fails, is told as refused and keeps no other from being looked at:
    what is not put off today may be gone tomorrow.
    """
    return [
        one for name, store in sorted(stores.items()) for one in _of_store(ledger, name, store, as_of, actor, holds, dry_run)
    ]


def troubles(found: Iterable[PostponementResult]) -> list[str]:
    """What a person has to look at: why nothing was done, and what could not be put off."""
    return [f"{one.dataset}: {words}" for one in found for words in (one.refused, *one.errors) if words]


def _of_store(
    ledger: Ledger, name: str, store: Store, as_of: datetime, actor: str, holds: Sequence[Hold], dry_run: bool
) -> Iterator[PostponementResult]:
    """What was done for each dataset of one store, if it expires rows by itself and can be asked."""
    try:
        able = call_store(store, lambda: _able(store))
        datasets = call_store(able, able.datasets) if able else []
    except StoreFailed as fault:
        yield PostponementResult(f"{name}/*", as_of, as_of, refused=str(fault))
        return
    if able:
        for dataset in datasets:
            yield _kept(ledger, able, dataset, as_of, actor, holds, dry_run)


def _able(store: Store) -> PostponingStore | None:
    return store if store.capabilities.expiry and isinstance(store, PostponingStore) else None


def _kept(
    ledger: Ledger, store: PostponingStore, dataset: str, as_of: datetime, actor: str, holds: Sequence[Hold], dry_run: bool
) -> PostponementResult:
    kept = PostponementResult(dataset, as_of, as_of)
    try:
        ahead = store.putting_off
        kept = replace(kept, within=as_of + timedelta(days=ahead.days), until=ahead.length.after(as_of))
        must = _to_be_archived(ledger, dataset)
        tomorrow = datetime.combine(as_of.astimezone(UTC).date() + _DAY, time(), UTC)
        is_held = _is_held((*holds, *ledger.holds.in_force(as_of)), dataset, as_of)
        if dry_run:
            going = ledger.postponements.going(dataset)
            found = _to_put_off(store, kept, must, is_held, going)
            kept = replace(kept, postponed=sum(len(some) for some in found))
        else:
            with hold_lease(ledger, dataset, actor):
                going = ledger.postponements.going(dataset)
                for some in _to_put_off(store, kept, must, is_held, going):
                    kept = _put_off(ledger, store, kept, some, actor)
        return replace(kept, tomorrow=tuple(store.expected(dataset, tomorrow, tomorrow + _DAY, must)))
    except Exception as fault:  # noqa: BLE001 - a store may be anybody's, and one dataset that fails keeps no other
        return replace(kept, refused=error_text(fault))


def _to_put_off(
    store: PostponingStore,
    kept: PostponementResult,
    must: Sequence[str],
    is_held: Callable[[str], bool] | None,
    going: Collection[str],
) -> Iterator[list[Target]]:
    """What must not expire yet, piece by piece, without what a sweep has given its time."""
    for some in store.postponable(kept.dataset, kept.within, must, is_held):
        if mine := [one for one in some if one.transaction not in going]:
            yield mine


def _put_off(
    ledger: Ledger, store: PostponingStore, kept: PostponementResult, targets: list[Target], actor: str
) -> PostponementResult:
    ledger.postponements.record(kept.dataset, [one.transaction for one in targets], kept.within, kept.until, actor)
    swept = store.postpone(kept.dataset, targets, kept.within, kept.until)
    done = sum(one.outcome is Outcome.EXPIRING for one in swept)
    errors = [f"{one.transaction}: {one.error}" for one in swept if one.outcome is Outcome.FAILED]
    return replace(
        kept,
        postponed=kept.postponed + done,
        left=kept.left + len(swept) - done,
        errors=(*kept.errors, *errors)[:_MOST_SAID],
    )


def _to_be_archived(ledger: Ledger, dataset: str) -> tuple[str, ...]:
    """The types that have to be archived before they go, as the policies in force say that are about the dataset."""
    kinds: set[str] = set()
    for stored in ledger.policy_book.in_force():
        item = item_of(stored.name, stored.content)
        if item is None:
            # It could be the one that keeps.
            raise Refused(f"Policy {stored.name} in the policy book was written by another release. Load the files anew.")
        if isinstance(item, Policy) and selects_dataset(item.datasets, dataset, {}):
            kinds.update(item.select.archived_before_purge or ())
    return tuple(sorted(kinds))


def _is_held(holds: Sequence[Hold], dataset: str, as_of: datetime) -> Callable[[str], bool] | None:
    """Whether a transaction is held; none if nothing of the dataset can be."""
    live = [hold for hold in holds if hold.until is None or as_of < hold.until]
    mine = [hold for hold in live if selects_dataset(hold.datasets, dataset, {})]
    if not mine:
        return None
    return lambda name: any(hold.transactions is None or matches(name, hold.transactions) for hold in mine)

"""Postpones expiry: what a store would expire by itself and must not yet (unfinished, not archived, held) gets a later time.

A time that a sweep has set is never postponed: the transaction was judged, waited out its grace and was checked again. The
dataset's lease is held meanwhile, so that no sweep begins on what is being postponed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta

import pyarrow as pa

from retention_assets.errors import Refused
from retention_assets.evaluation.keepers import Keepers
from retention_assets.frames.log import faults_of, keepers_about, selects_dataset
from retention_assets.frames.verdicts.kept_rows import retained_by
from retention_assets.ledger import Ledger
from retention_assets.outcomes import Outcome
from retention_assets.policy.book import item_of
from retention_assets.policy.model import Policy, RetainRule
from retention_assets.policy.realms import REALM
from retention_assets.stores.logs import realm_of
from retention_assets.stores.protocol import ExpiryCount, Permit, Store, StoreFailed, Target, always, call_store, error_text
from retention_assets.sweep.permit import hold_lease
from retention_assets.sweep.read import read_fresh

_DAY = timedelta(days=1)
_MOST_ERRORS = 5
_NOT_DONE = (Outcome.FAILED, Outcome.WITHHELD)


@dataclass(frozen=True)
class PostponementResult:
    """Result for one dataset: what was postponed, or would be."""

    # `store/*` for a store that could not list its datasets
    dataset: str
    # what would expire by `within` was postponed to `until`; both are the present if nothing could be read
    within: datetime
    until: datetime
    postponed: int = 0
    # changed meanwhile or not writable; tried again the next time
    left: int = 0
    errors: tuple[str, ...] = ()
    # what expires on the next day, by type, after postponing if anything was done
    tomorrow: tuple[ExpiryCount, ...] = ()
    # why nothing was done, or not all of it
    refused: str | None = None

    @property
    def troubles(self) -> tuple[str, ...]:
        """Sentences for people: why nothing was done, and what could not be postponed."""
        return tuple(f"{self.dataset}: {sentence}" for sentence in (self.refused, *self.errors) if sentence)


def postpone_expiry(
    ledger: Ledger, stores: Mapping[str, Store], as_of: datetime, keepers: Keepers, actor: str = "housekeeping"
) -> list[PostponementResult]:
    """Postpone what must not expire yet, in every store that expires rows by itself.

    A store that is away, or a dataset at which something fails, has a refused result and keeps no other from its turn: what is
    not postponed today may be gone tomorrow.
    """
    return _Postponing(ledger, as_of, keepers, actor).results(stores)


def postpone_expiry_dry_run(
    ledger: Ledger, stores: Mapping[str, Store], as_of: datetime, keepers: Keepers
) -> list[PostponementResult]:
    """Report what `postpone_expiry` would do now. Neither the ledger nor a store is changed."""
    return _Counting(ledger, as_of, keepers, "").results(stores)


@dataclass(frozen=True)
class _Postponing:
    """Records postponements and orders them from the stores."""

    ledger: Ledger
    as_of: datetime
    keepers: Keepers
    actor: str

    def results(self, stores: Mapping[str, Store]) -> list[PostponementResult]:
        return [result for name, store in sorted(stores.items()) for result in self._of_store(name, store)]

    def _of_store(self, name: str, store: Store) -> Iterator[PostponementResult]:
        try:
            terms = call_store(store, lambda: store.expiry)
            datasets = call_store(store, store.datasets) if terms else []
        except StoreFailed as fault:
            yield PostponementResult(f"{name}/*", self.as_of, self.as_of, refused=str(fault))
            return
        for dataset in datasets:
            yield self._of_dataset(store, dataset)

    def _of_dataset(self, store: Store, dataset: str) -> PostponementResult:
        result = PostponementResult(dataset, self.as_of, self.as_of)
        try:
            if (terms := store.expiry) is None:
                raise Refused(f"The store {store.name} expires nothing by itself any more.")
            result = replace(result, within=self.as_of + timedelta(days=terms.days), until=terms.length.after(self.as_of))
            attributes = {REALM: realm} if (realm := realm_of(store, dataset)) else {}
            archived_types = _to_be_archived(self.ledger, dataset, attributes)
            holds, rules = keepers_about(self.keepers.in_force(self.as_of), dataset, attributes, self.as_of)
            retained = _retained(store, dataset, rules, self.as_of)
            is_held = (lambda name: name in retained or any(hold.covers(name) for hold in holds)) if holds or rules else None
            with self._lease(dataset) as permit:
                # what a sweep has begun on keeps the expiry that the sweep gave it
                swept = frozenset(
                    self.ledger.marks.table([dataset], ["SWEEPING"], columns=("transaction",))["transaction"].to_pylist()
                )
                for targets in store.find_postponable(dataset, result.within, archived_types, is_held):
                    if postponable := [target for target in targets if target.transaction not in swept]:
                        result = self._postpone(store, result, postponable, permit)
            tomorrow = datetime.combine(self.as_of.astimezone(UTC).date() + _DAY, time(), UTC)
            return replace(result, tomorrow=tuple(store.count_expiring(dataset, tomorrow, tomorrow + _DAY, archived_types)))
        except Exception as fault:  # noqa: BLE001 - a store may be anybody's, and one dataset that fails keeps no other
            return replace(result, refused=error_text(fault))

    @contextmanager
    def _lease(self, dataset: str) -> Iterator[Permit]:
        with hold_lease(self.ledger, dataset, self.actor) as (_, permit):
            yield permit

    def _postpone(self, store: Store, result: PostponementResult, targets: list[Target], permit: Permit) -> PostponementResult:
        names = [target.transaction for target in targets]
        permit()
        self.ledger.sweeps.postpone(result.dataset, names, result.within, result.until, self.actor)
        swept = store.postpone(result.dataset, targets, result.within, result.until, permit)
        done = sum(target.outcome is Outcome.EXPIRING for target in swept)
        errors = [f"{target.transaction}: {target.error}" for target in swept if target.outcome in _NOT_DONE]
        return replace(
            result,
            postponed=result.postponed + done,
            left=result.left + len(swept) - done,
            errors=(*result.errors, *errors)[:_MOST_ERRORS],
        )


class _Counting(_Postponing):
    """Dry run: counts, takes no lease and writes nothing."""

    @contextmanager
    def _lease(self, _: str) -> Iterator[Permit]:
        yield always

    def _postpone(self, _: Store, result: PostponementResult, targets: list[Target], __: Permit) -> PostponementResult:
        return replace(result, postponed=result.postponed + len(targets))


def _retained(store: Store, dataset: str, rules: Sequence[RetainRule], as_of: datetime) -> frozenset[str]:
    # Only the log tells what retain rules keep.
    if not rules:
        return frozenset()
    log = read_fresh(store, [dataset]).log
    if faults := faults_of(log.datasets):
        raise Refused(f"Retain rules can't be applied, because the log is not sound: {faults[dataset]}")
    rows = log.transactions["transaction"].filter(pa.array(retained_by(rules, log, as_of)))
    return frozenset(rows.to_pylist())


def _to_be_archived(ledger: Ledger, dataset: str, attributes: Mapping[str, str]) -> tuple[str, ...]:
    kinds: set[str] = set()
    for stored in ledger.policy_book.in_force():
        item = item_of(stored.name, stored.content)
        if item is None:
            # it may demand an archive
            raise Refused(f"Policy {stored.name} in the policy book was written by another release. Load the files again.")
        if isinstance(item, Policy) and selects_dataset(item.datasets, dataset, attributes):
            kinds.update(item.select.archived_before_purge or ())
    return tuple(sorted(kinds))

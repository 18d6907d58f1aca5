"""List the datasets that the stores have, and pick those whose verdicts may have changed since they were last judged."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import pyarrow as pa

from retention_assets.datasets import by_store, store_of
from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.frames.arrays import NEVER, as_micros
from retention_assets.ledger.stores import ScanStatus
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.durations import EPOCH, micros, text_of
from retention_assets.settings.sections import AutomationSettings
from retention_assets.stores.logs import tokens_of
from retention_assets.stores.objects.scan_result import ScanResult
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import Store, ask_store, error_text

# A failed scan is retried after a while: it may take hours, and its source may be broken for days.
_RETRY = timedelta(hours=1)


class ChangeReason(StrEnum):
    NEW = "never looked at"
    UNTOLD = "with no token from its store"
    LOG = "with another log"
    RULES = "with other rules"
    TIME = "with a rule that time changes"
    LONG_AGO = "not judged for long"


@dataclass(frozen=True)
class Listing:
    """Datasets that the stores list, and by store name the error of a store that could not be asked."""

    names: tuple[str, ...]
    away: dict[str, str]
    # by dataset; changes whenever the log of the dataset changes
    tokens: Mapping[str, str] = field(default_factory=dict)
    scanned: frozenset[str] = frozenset()  # stores whose datasets are those of their last scan


def list_datasets(retention: Environment, stores: Collection[str] | None = None, *, with_tokens: bool = False) -> Listing:
    """List the datasets of all stores, or of some. A store that is away hides only its own datasets.

    With `with_tokens` a store that can't give them is away as well, and a failed scan is tried again after a while.
    """
    names, tokens, away = list[str](), dict[str, str](), dict[str, str]()
    for settings in retention.settings.stores:
        if stores is not None and settings.name not in stores:
            continue
        try:
            store = retention.stores([settings.name])[settings.name]
            listed = _names(retention, store, _RETRY if with_tokens else None)
            if with_tokens:
                tokens.update(tokens_of(store, listed))
        except Exception as fault:  # noqa: BLE001 - a store may be anybody's, and so may what it raises
            away[settings.name] = error_text(fault)
        else:
            names += listed
    scanned = frozenset(settings.name for settings in retention.settings.stores if isinstance(settings, ObjectsSettings))
    return Listing(tuple(names), away, tokens, scanned)


def _names(retention: Environment, store: Store, retry: timedelta | None = None) -> Sequence[str]:
    # A scanned store is listed by its newest whole scan, as listing it anew may take hours. Raises where the newest scan
    # failed; with `retry` only while it ended less than that time ago.
    settings = retention.settings.store(store.name)
    with retention.ledger_if_any() if isinstance(settings, ObjectsSettings) else nullcontext() as ledger:
        newest = ledger.scans.newest_ended(store.name) if ledger else None
        if ledger and newest and newest.ended_at:
            if newest.status is ScanStatus.FAILED and (retry is None or retention.present() < newest.ended_at + retry):
                again = f"; the next try is at {text_of(newest.ended_at + retry)} or later" if retry else ""
                raise Refused(f"scan {newest.id} failed: {newest.reason}{again}")
            if (result := ledger.scans.newest_result(store.name)) is not None:
                return sorted(one.name for one in ScanResult.from_json(result).datasets)
    return ask_store(store, store.datasets)


def datasets_to_evaluate(
    present: Listing, rules: Sequence[str], looks: pa.Table, now: datetime, automation: AutomationSettings, max_skew: timedelta
) -> dict[str, ChangeReason]:
    """Pick the datasets to judge now, the one longest unseen first. `rules` are digests of the rules that can reach each.

    A dataset that a rule changes in time waits for the next full `granularity`, so that several are judged together; one that
    somebody asked for does not wait. A look further in the future than `max_skew` is ignored. Scanned datasets are never
    picked because of time: some object turns old enough in every hour, and their daily token picks them anyway.
    """
    names, tokens, digests = (looks[name].to_pylist() for name in ("dataset", "token", "rules"))
    looked_at, next_look = (as_micros(looks[name]).tolist() for name in ("looked_at", "next_look"))
    known = dict(zip(names, zip(tokens, digests, looked_at, next_look, strict=True), strict=True))
    oldest, newest = micros(automation.everything.before(now)), micros(now + max_skew)
    step = micros(automation.granularity.after(EPOCH))
    time, full = micros(now), micros(now) // step * step

    def reason_of(name: str, digest: str) -> ChangeReason | None:
        if name not in known:
            return ChangeReason.NEW
        token, last_digest, looked, next_due = known[name]
        if token is None or name not in present.tokens:
            return ChangeReason.UNTOLD
        if token != present.tokens[name]:
            return ChangeReason.LOG
        if digest != last_digest:
            return ChangeReason.RULES
        is_by_time = next_due > looked  # otherwise somebody asked for it
        is_put_off = is_by_time and store_of(name) in present.scanned
        if NEVER < next_due <= (full if is_by_time else time) and not is_put_off:
            return ChangeReason.TIME
        return None if oldest < looked <= newest else ChangeReason.LONG_AGO

    all_reasons = {name: reason_of(name, digest) for name, digest in zip(present.names, rules, strict=True)}
    reasons = {name: reason for name, reason in all_reasons.items() if reason}
    return dict(sorted(reasons.items(), key=lambda one: known[one[0]][2] if one[0] in known else NEVER))


def as_globs(names: Sequence[str], present: Listing) -> list[str]:
    """Shorten a selection for a run: a whole store becomes one glob, everything becomes `*`."""
    if len(names) == len(present.names) and not present.away:
        return ["*"]
    wanted, listed = by_store(names), by_store(present.names)
    globs: list[str] = []
    for store, chosen in sorted(wanted.items()):
        is_whole = len(chosen) == len(listed[store]) > 1
        globs += [f"{escape_glob(store)}/*"] if is_whole else [escape_glob(name) for name in sorted(chosen)]
    return globs

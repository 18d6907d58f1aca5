"""The re-check right before the sweep: which marks are still justified by the log as it is now.

Each mark is judged under the very version of the policy that made it and, where that version is no longer in force, also under
the policies that are: a mark goes only if it is justified twice. Limits do not count here: they bound what one evaluation
marks, and independent_check.py checks them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.keepers import Keepers
from retention_assets.evaluation.rules_in_force import RulesInForce, drifted_entries, items_of, justifying_rules, rules_for
from retention_assets.frames.arrays import Bools, Ints, flags, join_chunks
from retention_assets.frames.log import TIMES, Log, is_in_log, is_same_again, is_same_life, keepers_about
from retention_assets.frames.verdicts.kept_rows import kept_among
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.shared_data import datasets_sharing
from retention_assets.frames.verdicts.table_windows import ended_refs
from retention_assets.ledger import Ledger
from retention_assets.outcomes import Order
from retention_assets.policy.book import Loaded, Stored, as_loaded, item_of
from retention_assets.policy.datahub import AspectEntry
from retention_assets.policy.durations import Duration, micros
from retention_assets.policy.language import Policies
from retention_assets.policy.model import Datasets, Keeper, Policy, RetainRule, Sweep
from retention_assets.policy.realms import REALM, is_within, purge_of, realm_of
from retention_assets.settings.model import Settings
from retention_assets.stores.protocol import Store
from retention_assets.sweep.shared_marks import KnownMarks, SharedMarks
from retention_assets.sweep.spare_reasons import referrers, sentences_of, with_witnesses
from retention_assets.sweep.verdicts import Fate, JudgedRows, Verdict, Verdicts, marked_elsewhere, rows_with, verdicts_of

Version = tuple[str, int]


# of a replay that goes only if a person says so
NOT_SELECTED = "No policy in force selects it any more."
_USUAL = Sweep()
# selects what is set aside, whatever it is
_EVERYTHING = purge_of("", Duration(), Duration()).model_copy(update={"datasets": Datasets(include=("*",))})
# the same, but for what branches and tags protect
_UNPROTECTED = _EVERYTHING.model_copy(update={"name": "unprotected", "latest_view": None})
_KEEPS_ASIDE = (Reason.HOLD.name, Reason.RETAIN_RULE.name)
_PINS = (Reason.LATEST_VIEW.name, Reason.TAG.name)
_FOREVER = np.iinfo(np.int64).max
_NOT_IN_LOG = "The store's log does not have it any more."
_IN_LATEST = Reason.LATEST_VIEW_ALLOWED.name
_ANOTHER = "It closed after it was marked, so it is another transaction of the same name: its grace has not begun."
_REPLACED = (
    "It is another transaction of the same name: its times or size are not those of the marked one. Its grace has not begun."
)
_TOO_NEW = "It was written so lately that its store does not judge it yet."
_UNKNOWN = "The policy version that marked it is not in the policy book, so there is no reason to delete it."
_LONGER = "The grace of policy '{}', which is in force now, is not over."
_NOT_PURGING = "Its realm is not being purged any more."
_OTHER_REALM = "Its dataset belongs to another realm now."


@dataclass
class Recheck:
    """The re-check of one run: reads each policy version once, and judges an unchanged log once."""

    ledger: Ledger
    settings: Settings
    as_of: datetime
    # asked anew whenever a dataset is checked
    keepers: Keepers
    # what a person has confirmed (dataset, transaction, opened_at, closed_at): nothing else goes; None: nobody was asked
    confirmed: pa.Table | None = None
    # policy files of the run: where they differ from the book, both have to select
    files: Policies = field(default_factory=Policies)
    # policy book to go by in a preview; None: the ledger's
    book: Sequence[Stored] | None = None
    # the real ledger in a rehearsal, which `ledger` copies without what was swept or is not due
    real_ledger: Ledger | None = None
    _versions: dict[Version, Policy | AspectEntry | None] = field(default_factory=dict)
    # entries of the files in comparable form; copies of this share the list
    _loaded: list[Loaded] = field(default_factory=list)
    # rows of the last log, whose marks may come in several slices
    _judged: tuple[Log, JudgedRows] | None = field(default=None, init=False)
    # by mark: the policy in force that justifies it, where that is not the version that made it
    _justified_by: dict[int, Policy] = field(default_factory=dict, init=False)

    def check(self, log: Log, marks: pa.Table, store: Store, wanted: Mapping[tuple[str, str], str] | None = None) -> Verdicts:
        """Check marks (rows of the ledger, of datasets whose logs are sound) against their logs.

        A transaction missing from the log counts as gone only where the log is the data and a sweep had begun on it. Elsewhere
        it is spared, and marked again should it come back. `wanted`: set aside transactions that their store needs, and why.
        """
        with self.ledger.database.one_moment():
            holds, places = self.keepers.in_force(self.as_of), self.ledger.places.all()
        is_aside = pc.equal(marks["status"], "SWEPT")
        aside, marks = marks.filter(is_aside), marks.filter(pc.invert(is_aside))
        replays = marks.filter(pc.equal(marks["order"], Order.REPLAY)) if "order" in marks.column_names else marks.slice(0, 0)
        marks = marks.filter(pc.invert(rows_of_marks(marks, replays["id"].to_pylist())))
        moved = marked_elsewhere(places, marks)
        verdicts = verdicts_of(Fate.SPARED, moved) | self._check_aside(log, aside, wanted or {})
        verdicts |= self._check_replays(log, replays, store) if len(replays) else {}
        marks = marks.filter(pc.invert(rows_of_marks(marks, moved))) if moved else marks
        for version in sorted(set(zip(marks["policy"].to_pylist(), marks["policy_version"].to_pylist(), strict=True))):
            same = pc.and_(pc.equal(marks["policy"], version[0]), pc.equal(marks["policy_version"], version[1]))
            of_version = marks.filter(same)
            if (why := self._why_void(version)) is not None:
                verdicts |= dict.fromkeys(of_version["id"].to_pylist(), Verdict(Fate.SPARED, why))
                continue
            part = self._recheck_version(log, of_version, version, holds, store)
            if realm_of(version[0]) is None and version not in self._in_force:
                part |= self._recheck_in_force(log, of_version, Verdicts(part).go, holds, store)
            verdicts |= part
        if self.confirmed is not None:
            # a person has ordered replays
            shown = [replays, *(rows.filter(pa.array(is_in_log(rows, self.confirmed))) for rows in (marks, aside))]
            if len(aside):
                # what comes back deletes nothing
                shown.append(aside.filter(pc.equal(aside["order"], Order.RESTORE)))
            unseen = Verdicts(verdicts).go.difference(*(rows["id"].to_pylist() for rows in shown))
            verdicts |= dict.fromkeys(unseen, Verdict(Fate.STAYS))
        # a person's order to bring something back takes nothing
        over = aside.filter(pc.not_equal(aside["order"], Order.RESTORE)) if len(aside) else aside
        checked = Verdicts(verdicts)
        return checked | self._check_shared(log, pa.concat_tables([marks, replays, over]), checked, holds)

    def sweeps_of(self, marks: pa.Table) -> dict[int, Sweep]:
        items = self._policies_of(marks)
        return {mark: item.sweep if isinstance(item, Policy) else _USUAL for mark, item in items.items()}

    def untils_of(self, marks: pa.Table, present: datetime) -> dict[int, datetime]:
        """Return the marks that are set aside instead of deleted, and until when each can be restored."""
        policies = {mark: item for mark, item in self._policies_of(marks).items() if isinstance(item, Policy)}
        return {mark: policy.undo.after(present) for mark, policy in policies.items() if policy.undo}

    def _policies_of(self, marks: pa.Table) -> dict[int, Policy | AspectEntry | None]:
        # by which each mark is swept: the policy in force that justifies it, or the version that made it
        versions = [*zip(marks["policy"].to_pylist(), marks["policy_version"].to_pylist(), strict=True)]
        current = {entry.name: (entry.name, entry.version) for entry in self._book}
        items = {version: self._item(current.get(version[0], version)) for version in set(versions)}
        usual = dict(zip(marks["id"].to_pylist(), map(items.__getitem__, versions), strict=True))
        return usual | {mark: policy for mark, policy in self._justified_by.items() if mark in usual}

    def expiring(self, marks: pa.Table) -> set[int]:
        """Return marks whose rows the store may have been told to expire, by the version that made them or the one in force."""
        versions = zip(marks["policy"].to_pylist(), marks["policy_version"].to_pylist(), strict=True)
        made_by = zip(marks["id"].to_pylist(), map(self._item, versions), strict=True)
        own = {mark for mark, item in made_by if isinstance(item, Policy) and item.sweep.mode == "ttl"}
        return own | {mark for mark, how in self.sweeps_of(marks).items() if how.mode == "ttl"}

    @cached_property
    def _book(self) -> list[Stored]:
        return self.ledger.policy_book.in_force() if self.book is None else list(self.book)

    @cached_property
    def _drifted(self) -> frozenset[str]:
        if not self._loaded:
            self._loaded.extend(map(as_loaded, items_of(self.files)))
        return drifted_entries(self._book, self._loaded)

    @cached_property
    def _in_force(self) -> frozenset[Version]:
        return frozenset((entry.name, entry.version) for entry in self._book if entry.name not in self._drifted)

    def _why_void(self, version: Version) -> str | None:
        realm = realm_of(version[0])
        if realm is not None:
            return None if self.ledger.realms.of(realm).status == "PURGING" else _NOT_PURGING
        return _UNKNOWN if self._item(version) is None else None

    def _item(self, version: Version) -> Policy | AspectEntry | None:
        if (realm := realm_of(version[0])) is not None:
            return purge_of(realm, self.ledger.realms.of(realm).grace, self.settings.realms.undo)
        if version not in self._versions:
            versions = (
                *self.ledger.policy_book.versions(version[0]),
                *(entry for entry in self.book or () if entry.name == version[0]),
            )
            stored = {entry.version: entry for entry in versions}.get(version[1])
            item = item_of(stored.name, stored.content) if stored else None
            # only these make marks
            self._versions[version] = item if isinstance(item, Policy | AspectEntry) else None
        return self._versions[version]

    def _recheck_version(
        self, log: Log, marks: pa.Table, version: Version, holds: Sequence[Keeper], store: Store
    ) -> dict[int, Verdict]:
        judged = self._rows_about(log, marks)
        datasets = judged.datasets
        rules = self._rules(version, datasets["dataset"].to_pylist(), holds, store.drops_refs)
        positions = judged.positions(marks)
        missing, marks = marks.filter(pa.array(positions < 0)), marks.filter(pa.array(positions >= 0))
        positions = positions[positions >= 0]
        ids, rows = np.asarray(marks["id"]), judged.rows.select([*TIMES, "bytes"]).take(pa.array(positions))
        verdicts = judged.verdicts(rules, self.as_of).take(pa.array(positions))
        is_selected = flags(pc.equal(join_chunks(verdicts["verdict"]).cast(pa.string()), "mark"))
        # a transaction that closed after the mark was made is another one of that name, even if the mark has no times
        closed_later = flags(pc.greater(rows["closed_at"], marks["marked_at"]))
        is_begun = flags(pc.or_(pc.equal(marks["status"], "SWEEPING"), pc.greater(marks["attempts"], 0)))
        is_resized = flags(pc.not_equal(rows["bytes"], marks["bytes"])) & ~is_begun
        is_replaced = ~is_same_life(marks, rows) | is_resized
        spared = {}
        if not is_selected.all():
            at = positions[~is_selected]
            reasons = with_witnesses(
                judged, rules, at, self.as_of, verdicts["reasons"].filter(pa.array(~is_selected)).to_pylist()
            )
            named = referrers(judged.rows.select(["type", "attributes"]).take(pa.array(at)))
            sentences = [sentences_of(why) + referrer for why, referrer in zip(reasons, named, strict=True)]
            spared = dict(zip(ids[~is_selected].tolist(), sentences, strict=True))
        spared |= dict.fromkeys(ids[is_selected & is_replaced].tolist(), _REPLACED)
        spared |= dict.fromkeys(ids[is_selected & closed_later].tolist(), _ANOTHER)
        spared |= self._missing(missing, datasets, rules.holds, store.log_is_complete)
        ended: dict[int, tuple[str, ...]] = {}
        if any(policy.drops_refs for policy in rules.policies):
            refs = ended_refs(Log(judged.rows, datasets), self.as_of)
            ended = {row["id"]: refs.get((row["dataset"], row["transaction"]), ()) for row in marks.to_pylist()}
        latest = frozenset(ids[rows_with(_IN_LATEST, verdicts["reasons"])].tolist())
        going = {mark: Verdict(Fate.GOES, "", mark in latest, ended.get(mark, ())) for mark in ids.tolist()}
        going |= dict.fromkeys(missing["id"].to_pylist(), Verdict(Fate.GOES))
        return going | verdicts_of(Fate.SPARED, spared)

    def _recheck_in_force(
        self, log: Log, marks: pa.Table, going: Set[int], holds: Sequence[Keeper], store: Store
    ) -> dict[int, Verdict]:
        # of what may go by the version that marked it, only what a policy in force selects as well, once its grace is over
        given_time = self.expiring(marks) if store.expiry else set()
        is_sweeping = pc.equal(marks["status"], "SWEEPING")
        # a deletion that has begun is finished in any case, unless it is only a time to expire
        is_half_deleted = pc.and_(is_sweeping, pc.invert(rows_of_marks(marks, given_time)))
        asked = marks.filter(pc.and_(rows_of_marks(marks, going), pc.invert(is_half_deleted)))
        judged = self._rows_about(log, marks)
        positions = judged.positions(asked)
        asked, positions = asked.filter(pa.array(positions >= 0)), positions[positions >= 0]
        justified = self._justify(judged, asked, positions, holds, store.drops_refs)
        changed, present = Reason.POLICY_CHANGED.text(marks["policy"][0].as_py()), micros(self.as_of)
        verdicts = dict[int, Verdict]()
        for mark, status, justification in zip(asked["id"].to_pylist(), asked["status"].to_pylist(), justified, strict=True):
            if justification is None:
                verdicts[mark] = Verdict(Fate.SPARED, changed)
                continue
            policy, due = justification
            self._justified_by[mark] = policy
            if due > present and status == "SWEEPING":
                # otherwise it would expire before the longer grace is over
                verdicts[mark] = Verdict(Fate.SPARED, _LONGER.format(policy.name))
            elif due > present or not _can_sweep(store, policy):
                verdicts[mark] = Verdict(Fate.STAYS)
        return verdicts

    def _justify(
        self,
        judged: JudgedRows,
        marks: pa.Table,
        positions: Ints,
        holds: Sequence[Keeper],
        drops_refs: bool,
        purges: Iterable[tuple[RulesInForce, ...]] = (),
    ) -> list[tuple[Policy, int] | None]:
        # for each mark, at these positions of the rows: of the policies in force that select it the one whose grace ends first,
        # and when that is; None if no policy selects it
        due, number = np.full(len(marks), _FOREVER), np.full(len(marks), -1)
        policies: list[Policy] = []
        names = judged.datasets["dataset"].to_pylist()
        in_force = justifying_rules(self._book, self.files, self._drifted, holds, names, self.settings)
        for alternative in chain(in_force, purges):
            # all of these have to select
            sets = [RulesInForce(_unlimited(rules.policies, drops_refs), rules.holds) for rules in alternative]
            verdicts = [judged.verdicts(rules, self.as_of).take(pa.array(positions)) for rules in sets]
            selects = np.logical_and.reduce([flags(pc.equal(table["verdict"].cast(pa.string()), "mark")) for table in verdicts])
            credited = join_chunks(verdicts[0]["policy"]).cast(pa.string())
            for name in pc.unique(credited.filter(pa.array(selects))).to_pylist():
                # of several sets the longest grace and undo count
                own = [policy for rules in sets for policy in rules.policies if len(sets) > 1 or policy.name == name]
                ends = _ends(marks["marked_at"], own)
                is_sooner = selects & flags(pc.equal(credited, name)) & (ends < due)
                due[is_sooner], number[is_sooner] = ends[is_sooner], len(policies)
                undos = [policy.undo for policy in own if policy.undo]
                longest = max(undos, key=lambda undo: undo.length, default=None)
                policies.append(next(policy for policy in own if policy.name == name).model_copy(update={"undo": longest}))
        return [(policies[at], end) if at >= 0 else None for at, end in zip(number.tolist(), due.tolist(), strict=True)]

    def _check_aside(self, log: Log, marks: pa.Table, wanted: Mapping[tuple[str, str], str]) -> dict[int, Verdict]:
        # Policies are not asked any more. Holds, retain rules and realms keep what is set aside where it is; protection by a
        # branch, a tag or the store brings it back: it was not there before, or it would not have been set aside.
        if not len(marks):
            return {}
        judged, holds = self._rows_about(log, marks), self.keepers.in_force(self.as_of, in_purged_realms=False)
        attributes = _attributes_of(judged.datasets)
        positions = judged.positions(marks)
        missing, here = marks.filter(pa.array(positions < 0)), marks.filter(pa.array(positions >= 0))
        kept = self._kept_by_newer(missing, judged.datasets) | self._held(missing, judged.datasets, holds)
        back, at = dict[int, str](), pa.array(positions[positions >= 0])
        # their policy was allowed to take them from a latest view
        in_latest = frozenset(marks.filter(pc.equal(marks["reason"], _IN_LATEST))["id"].to_pylist())
        lives = is_same_life(here, judged.rows.select([*TIMES]).take(at)).tolist()
        # of which the log has another life
        others = {mark for mark, is_same in zip(here["id"].to_pylist(), lives, strict=True) if not is_same}
        holding, pinning = (
            judged.verdicts(RulesInForce((policy,), holds), self.as_of)["reasons"].take(at).to_pylist()
            for policy in (_EVERYTHING, _UNPROTECTED)
        )
        for mark, is_same, holders, protectors in zip(here["id"].to_pylist(), lives, holding, pinning, strict=True):
            if by := [reason for reason in holders if reason["code"] in _KEEPS_ASIDE]:
                kept[mark] = sentences_of(by)
            pins = (Reason.TAG.name,) if mark in in_latest else _PINS
            if is_same and (by := [reason for reason in protectors if reason["code"] in pins]):
                back[mark] = sentences_of(by)
        for row in marks.select(["id", "dataset", "transaction", "policy", "reason", "order"]).to_pylist():
            mark, dataset, realm = row["id"], row["dataset"], realm_of(row["policy"])
            if realm is not None:
                # it asks holds, retain rules and its realm alone
                back.pop(mark, None)
                if self.ledger.realms.of(realm).status not in ("PURGING", "PURGED"):
                    kept.setdefault(mark, _NOT_PURGING)
                elif dataset in attributes and not is_within(attributes[dataset].get(REALM, ""), realm):
                    kept.setdefault(mark, _OTHER_REALM)
            elif mark not in others and (why := wanted.get((dataset, row["transaction"]))):
                back.setdefault(mark, why)
            if row["order"] == Order.RESTORE:
                kept.pop(mark, None)
                back.pop(mark, None)
        going = dict.fromkeys(marks["id"].to_pylist(), Verdict(Fate.GOES))
        return going | verdicts_of(Fate.KEPT, kept) | verdicts_of(Fate.COMES_BACK, back)

    def _check_replays(self, log: Log, marks: pa.Table, store: Store) -> dict[int, Verdict]:
        # A mark that no policy in force selects goes with NOT_SELECTED as its reason: whoever ordered the replay decides by it.
        judged, holds = self._rows_about(log, marks), tuple(self.keepers.in_force(self.as_of, in_purged_realms=False))
        positions = judged.positions(marks)
        missing, marks = marks.filter(pa.array(positions < 0)), marks.filter(pa.array(positions >= 0))
        gone = self._missing(missing, judged.datasets, holds, store.log_is_complete)
        verdicts = dict.fromkeys(missing["id"].to_pylist(), Verdict(Fate.GOES)) | verdicts_of(Fate.SPARED, gone)
        at = pa.array(positions := positions[positions >= 0])
        purging = [realm.name for realm in self.ledger.realms.all().values() if realm.status in ("PURGING", "PURGED")]
        purges = RulesInForce(tuple(purge_of(name, Duration(), Duration()) for name in purging), holds)
        before = judged.with_times(marks, positions)
        selected = self._justify(before, marks, positions, holds, store.drops_refs, ((purges,),))
        protection = judged.verdicts(RulesInForce((_UNPROTECTED,), holds), self.as_of).take(at)
        is_free = pc.equal(protection["verdict"].cast(pa.string()), "mark").to_pylist()
        facts = zip(
            is_same_again(marks, judged.rows.take(at)), selected, is_free, protection["reasons"].to_pylist(), strict=True
        )
        refs = ended_refs(Log(judged.rows, judged.datasets), self.as_of)
        for (mark, *key), (same, by, free, reasons) in zip(_rows(marks, "id", "dataset", "transaction"), facts, strict=True):
            codes = {reason["code"] for reason in reasons}
            if not same or Reason.UNFINISHED.name in codes:
                verdicts[mark] = Verdict(Fate.SPARED, _REPLACED if not same else _TOO_NEW)
            elif by and codes.isdisjoint(_KEEPS_ASIDE):
                ended = refs.get((key[0], key[1]), ()) if by[0].drops_refs else ()
                verdicts[mark] = Verdict(Fate.GOES, "", Reason.LATEST_VIEW.name in codes, ended)
            else:
                verdicts[mark] = Verdict(Fate.GOES, NOT_SELECTED) if free else Verdict(Fate.SPARED, sentences_of(reasons))
        return verdicts

    def _check_shared(self, log: Log, marks: pa.Table, checked: Verdicts, holds: Sequence[Keeper]) -> Verdicts:
        # what would lose nothing is spared; what shares all of its data with other marks waits for them, or goes with them
        names = sorted(datasets_sharing(log.datasets).intersection(pc.unique(marks["dataset"]).to_pylist()))
        if not names:
            return Verdicts()
        judged, ledgers = self._rows_about(log, marks), KnownMarks.of(self.ledger, self.real_ledger, names)
        if (shared := ledgers.of_rows(judged.rows, judged.datasets)) is None:
            return Verdicts()
        of_row, has_undo = np.full(len(judged.rows), -1, dtype=np.int64), self.untils_of(marks, self.as_of)
        positions = judged.positions(marks)
        here = positions >= 0
        here[here] = is_same_life(marks.filter(pa.array(here)), judged.rows.take(pa.array(positions[here])))
        of_row[positions[here]] = np.asarray(marks["id"])[here]

        def rows_of(ids: Collection[int]) -> Bools:
            return np.isin(of_row, [*ids])

        protection = judged.verdicts(RulesInForce((_UNPROTECTED,), tuple(holds)), self.as_of)
        of_status = {name: marks.filter(pc.equal(marks["status"], name))["id"].to_pylist() for name in ("SWEPT", "SWEEPING")}
        sharing = SharedMarks(
            replace(shared, marked=shared.marked & ~rows_of(checked.spared)),
            flags(pc.equal(join_chunks(protection["verdict"]).cast(pa.string()), "spare")),
            ledgers.asides_in(judged.rows),
            rows_of(has_undo),
            rows_of(of_status["SWEEPING"]),
            ledgers.dues(),
            join_chunks(judged.rows["dataset"]).cast(pa.string()),
        )
        verdicts, in_trash = dict[int, Verdict](), rows_of(of_status["SWEPT"])
        for is_trash, fate in ((False, Fate.SPARED), (True, Fate.COMES_BACK)):
            going = rows_of(checked.go) & (in_trash if is_trash else ~in_trash)
            fates = sharing.check(going, is_trash)
            verdicts |= {int(of_row[row]): Verdict(fate, Reason.NEEDED.text(why)) for row, why in fates.needed.items()}
            verdicts |= {int(of_row[row]): Verdict(Fate.WAITS, why) for row, why in fates.waits.items()}
            first: dict[int, int] = {}
            for row, group in fates.groups.items():
                mark = int(of_row[row])
                verdicts[mark] = checked.by_mark[mark]._replace(together=first.setdefault(group, mark))
        return Verdicts(verdicts)

    def kept_of(self, log: Log, transactions: Collection[str]) -> list[str]:
        """Return those of some transactions, all of one dataset, that a hold or a retain rule keeps."""
        return kept_among(log, transactions, self.keepers.in_force(self.as_of), self.as_of)

    def _kept_by_newer(self, marks: pa.Table, datasets: pa.Table) -> dict[int, str]:
        # Rules added after the sweep can't be evaluated for rows that left the log: they keep everything of their datasets.
        if not len(marks):
            return {}
        kept, attributes = dict[int, str](), _attributes_of(datasets)
        rules = [row for row in self.ledger.holds.recorded().files if isinstance(row.keeper, RetainRule)]
        for mark, dataset, planned_at in _rows(marks, "id", "dataset", "planned_at"):
            newer = (row.keeper for row in rules if row.since > planned_at)
            if rules_about := keepers_about(newer, dataset, attributes.get(dataset), self.as_of).rules:
                kept[mark] = Reason.RETAIN_RULE.text(rules_about[0].name)
        return kept

    def _held(self, marks: pa.Table, datasets: pa.Table, holds: Sequence[Keeper]) -> dict[int, str]:
        if not len(marks):
            return {}
        kept, attributes = dict[int, str](), _attributes_of(datasets)
        names = pc.unique(marks["dataset"]).to_pylist()
        about = {name: keepers_about(holds, name, attributes.get(name), self.as_of).holds for name in names}
        for mark, dataset, transaction in _rows(marks, "id", "dataset", "transaction"):
            if hold := next((hold for hold in about[dataset] if hold.covers(transaction)), None):
                kept[mark] = Reason.HOLD.text(hold.name or "")
        return kept

    def _missing(self, marks: pa.Table, datasets: pa.Table, holds: Sequence[Keeper], log_is_complete: bool) -> dict[int, str]:
        begun = pc.or_(pc.equal(marks["status"], "SWEEPING"), pc.greater(marks["attempts"], 0))
        unknown = marks.filter(pc.invert(begun)) if log_is_complete else marks
        return dict.fromkeys(unknown["id"].to_pylist(), _NOT_IN_LOG) | self._held(marks, datasets, holds)

    def _rows_about(self, log: Log, marks: pa.Table) -> JudgedRows:
        # cached by identity: a log is immutable
        if self._judged is not None and self._judged[0] is not log:
            self._judged = None
        about = pc.unique(join_chunks(marks["dataset"]))
        is_about = pc.is_in(log.datasets["dataset"], about)
        if not pc.all(is_about).as_py():
            rows = log.transactions.filter(pc.is_in(log.transactions["dataset"].cast(pa.string()), about))
            return JudgedRows(rows, log.datasets.filter(is_about))
        if self._judged is None:
            self._judged = log, JudgedRows(log.transactions, log.datasets)
        return self._judged[1]

    def _rules(self, version: Version, datasets: Sequence[str], holds: Sequence[Keeper], drops_refs: bool) -> RulesInForce:
        item = self._item(version)
        if isinstance(item, AspectEntry):
            return rules_for(Policies((), tuple(holds), (item,)), datasets, self.settings)
        return RulesInForce(() if item is None else _unlimited((item,), drops_refs), tuple(holds))


def _attributes_of(datasets: pa.Table) -> dict[str, dict[str, str]]:
    return {row["dataset"]: dict(row["attributes"] or ()) for row in datasets.select(["dataset", "attributes"]).to_pylist()}


def _can_sweep(store: Store, policy: Policy) -> bool:
    can_expire, can_set_aside = store.expiry is not None, store.settings.undo_fault is None
    return (can_expire or policy.sweep.mode == "delete") and (can_set_aside or not policy.undo)


def _unlimited(policies: Iterable[Policy], drops_refs: bool) -> tuple[Policy, ...]:
    # limits bound what is marked; for a store that can't drop refs, refs that are over still keep
    kept = {} if drops_refs else {"expired_refs": None}
    return tuple(rule.model_copy(update={"limits": None, "select": rule.select.model_copy(update=kept)}) for rule in policies)


def _rows(marks: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(marks[name].to_pylist() for name in names), strict=True)


def rows_of_marks(marks: pa.Table, ids: Collection[int]) -> pa.ChunkedArray:
    return pc.is_in(marks["id"], pa.array(ids, pa.int64()))


def _ends(marked_at: pa.ChunkedArray, policies: Sequence[Policy]) -> Ints:
    # computed once per distinct time
    times = pc.unique(marked_at)
    ends = pa.array([max(micros(policy.grace.after(time)) for policy in policies) for time in times.to_pylist()], pa.int64())
    due: Ints = np.asarray(ends.take(pc.index_in(marked_at, value_set=times)))
    return due

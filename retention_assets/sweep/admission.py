"""The door to deletion: may this sweep begin, for which datasets, and why not. Runs, plans and people's orders ask nothing else
before anything is begun.

Belongs here: what is asked, and which order is asked what. What depends on a lease, a log or a mark is asked by the sweep.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from functools import partial
from itertools import starmap

from retention_assets.datasets import by_store
from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.evaluation.rules_in_force import Rulebook
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.ledger import Ledger, due_mark_faults, invariants, rule_faults
from retention_assets.ledger.invariants import Invariant, SweptInvariant, Violation, check_result
from retention_assets.ledger.marking import PendingSweep
from retention_assets.ledger.reports import Taken
from retention_assets.outcomes import Order
from retention_assets.settings.sections import BrakeSettings
from retention_assets.stores.protocol import Store

MARK_INVARIANTS: Mapping[str, Invariant] = {
    "mark_times_are_monotonic": invariants.mark_times,
    "marks_have_a_policy_and_a_reason": partial(invariants.policies_and_reasons, reasons=frozenset(Reason.__members__)),
}
SWEPT_INVARIANTS: Mapping[str, SweptInvariant] = {
    "nothing_is_swept_before_it_is_due": invariants.swept_before_due,
    "nothing_is_swept_without_a_mark": invariants.swept_without_mark,
}
_DAYS = timedelta(days=30)
# days with deletions that tell what is usual
_KNOWN_DAYS = 7
_ACCEPT_LARGE = (
    "`retention plan --accept-large` shows it. If it is intended, run once with --accept-large, or set `accept_large: "
    "true` in the launchpad. `brake` in the settings sets the limit."
)
_JUDGE_ANEW = "Mend the cause, judge it again (`retention run --mark-only`, or materialize candidate_marks), then sweep."
_MEND_RECORD = (
    "`retention audit verify` names the changes. Take wrong marks back (`retention unmark`). Restore other rows, or accept "
    "them (`retention audit accept --reason …`)."
)


class Question(Enum):
    """Questions about a sweep that has not begun, in their order: the first that refuses a dataset gives the reason."""

    CLOCK = "a time that can't be"
    LEDGER = "an older copy of the ledger, or other policies than those loaded last"
    PLACE = "a store that the settings lack, or that is away, at another place, or another ledger's"
    POLICIES = "policies of a store itself that can't be read, or places in the settings where somebody else deletes"
    OBJECTION = "a check of the evaluation that failed"
    BRAKE = "far more than usual"
    RECORD = "rows that differ from the record"


# A person was shown what she deletes. No brake, objection or broken policy stands between her and what she brings back.
ASKED: Mapping[Order, frozenset[Question]] = {
    # its sweep asks for the time, with the newest time of each log
    Order.DELETE: frozenset(Question) - {Question.CLOCK},
    Order.DELETE_ASIDE: frozenset(Question) - {Question.BRAKE},
    Order.REPLAY: frozenset(Question),
    Order.RESTORE: frozenset({Question.CLOCK, Question.PLACE, Question.RECORD}),
}
# why something may not be swept, with a dataset, all of a store as `store/*`, or everything (None)
Answers = Iterator[tuple[str | None, Refused]]


@dataclass(frozen=True)
class Refusal:
    """Reason why a dataset, all of a store (`store/*`) or everything (None) may not be swept."""

    question: Question
    about: str | None
    fault: Refused
    datasets: Sequence[str] = ()


@dataclass(frozen=True)
class Admission:
    """Answer of the door about the datasets of a sweep. Refusals of waived questions are told and stop nothing."""

    refusals: tuple[Refusal, ...] = ()
    waived: Collection[Question] = ()

    @property
    def _standing(self) -> list[Refusal]:
        return [refusal for refusal in self.refusals if refusal.question not in self.waived]

    @property
    def withheld(self) -> str | None:
        """Reason why nothing at all may be swept."""
        return next((str(refusal.fault) for refusal in self._standing if refusal.about is None), None)

    @property
    def refused(self) -> dict[str, Refused]:
        """By dataset, why nothing of it may be swept."""
        return {name: refusal.fault for refusal in reversed(self._standing) for name in refusal.datasets}

    @property
    def by_subject(self) -> dict[str, Refused]:
        """By dataset or store (`store/*`), the refusals that are the first of one of their datasets."""
        first = self.refused
        return {str(one.about): one.fault for one in self._standing if any(first[name] is one.fault for name in one.datasets)}

    def told(self, question: Question) -> list[str]:
        """Sentences of one question."""
        return sorted({str(refusal.fault) for refusal in self.refusals if refusal.question is question})


@dataclass(frozen=True)
class Door:
    """Things that the questions are about. `as_of` is the instant that somebody gave for the present, if any."""

    environment: Environment
    ledger: Ledger
    rulebook: Rulebook
    stores: Mapping[str, Store]
    # what is due by then is swept
    due_by: datetime
    as_of: datetime | None = None
    # copy of the ledger in which later days were lived through
    rehearsed: Ledger | None = None

    def admit(self, order: Order, work: Sequence[PendingSweep], waived: Collection[Question] = ()) -> Admission:
        """Ask all that the order is asked. Where nothing is due, the sweep only looks what has to come back."""
        rows, admission = {row.dataset: row for row in work if row.is_due}, Admission((), waived)
        names = {f"{store}/*": own for store, own in by_store(rows).items()}
        # only days that are simulated have to go on before something is restored
        unasked = {Question.CLOCK} if order is Order.RESTORE and not self.ledger.clock.simulated else set()
        for question in (each for each in Question if each in ASKED[order] - unasked):
            if question is Question.RECORD:
                if admission.withheld:
                    break
                # only about what would be swept: the fault of a refused dataset stops no other
                refused = admission.refused
                rows = {row.dataset: row for row in work if row.dataset not in refused}
            answers = self._ask(question, rows)
            found = [Refusal(question, about, why, names.get(about, [about]) if about else ()) for about, why in answers]
            admission = Admission((*admission.refusals, *found), waived)
        return admission

    def _ask(self, question: Question, rows: Mapping[str, PendingSweep]) -> Answers:
        names, ledger, rulebook = by_store(rows), self.ledger, self.rulebook
        match question:
            case Question.CLOCK:
                clock = self.environment.settings.clock
                if why := ledger.clock.check(ledger.clock.present(self.as_of), None, clock.max_ahead, clock.max_skew):
                    yield None, Refused(why)
            case Question.LEDGER:
                yield from ((None, Refused(why)) for why in self.environment.head_faults(ledger).values())
                if rulebook.unaccepted:
                    yield None, Refused(rulebook.unaccepted)
            case Question.PLACE:
                for name in names.keys() - self.stores:
                    yield f"{name}/*", Refused(f"The settings have no store named {name}.")
                # once for the whole sweep: its tasks compare the ledger's id alone
                stores = [self.stores[name] for name in names if name in self.stores]
                yield from ((f"{name}/*", why) for name, why in self.environment.place_faults(ledger, stores).items())
            case Question.POLICIES:
                # a policy that can't be read may keep data
                faults = {name: f"nothing of {name} is swept: {why}" for name, why in rulebook.unreadable.items()}
                for name in names:
                    if why := store_fault(rulebook, name) or faults.get(name):
                        yield f"{name}/*", Refused(why)
            case Question.OBJECTION:
                # the latest result of each check counts, whoever sweeps and in which run
                failed: dict[str, list[str]] = {}
                for row in ledger.objections.standing({*rows}):
                    failed.setdefault(row.dataset, []).append(f"{row.check} failed in {row.raised_by}: {row.sentence}.")
                for name, sentences in failed.items():
                    yield name, Refused(f"nothing of {name} is swept: {' '.join(sentences)} {_JUDGE_ANEW}")
            case Question.BRAKE:
                yield from self._ask_brakes(rows)
            case Question.RECORD:
                yield from ((None, Refused(why)) for why in self._record_faults([*rows]))

    def _ask_brakes(self, rows: Mapping[str, PendingSweep]) -> Answers:
        brake, today = self.environment.settings.brake, self.due_by.date()
        if brake is None:
            return
        for name, datasets in by_store(rows).items():
            first, ahead = today - _DAYS, dict[date, Taken]()
            with self.ledger.database.one_moment():
                days = self.ledger.reports.taken_by_day(name, first, today)
                there = self.ledger.evaluations.transactions_of(name)
            if self.rehearsed is not None:
                ahead = self.rehearsed.reports.taken_by_day(name, date.min, today)
                days |= {day: sum_.plus(days.get(day, Taken())) for day, sum_ in ahead.items() if day >= first}
            taken = days.pop(today, Taken())
            for dataset in datasets:
                taken = taken.plus(Taken(rows[dataset].marks, rows[dataset].bytes))
            there -= sum(day.transactions for day in ahead.values())
            if fault := _unusual(taken, days, brake) or _too_large_a_share(there, taken, brake):
                yield f"{name}/*", Refused(f"nothing of {name} is swept: {fault}. {_ACCEPT_LARGE}")

    def _record_faults(self, datasets: Sequence[str]) -> Iterator[str]:
        with self.ledger.database.reading() as connection:
            checks: dict[str, Iterator[Violation]] = {
                **{name: invariant(connection, datasets) for name, invariant in MARK_INVARIANTS.items()},
                **{name: invariant(connection, datasets, None) for name, invariant in SWEPT_INVARIANTS.items()},
                "rules_are_as_recorded": starmap(Violation, rule_faults(connection)),
                "due_marks_are_as_recorded": starmap(Violation, due_mark_faults(connection, datasets, self.due_by)),
            }
            results = ((name, check_result(violations)) for name, violations in checks.items())
            yield from (f"{name} failed. {result.actual} {_MEND_RECORD}" for name, result in results if not result.passed)


def store_fault(rulebook: Rulebook, store: str) -> str | None:
    """Reason why nothing of a store may be deleted: places in the settings conflict, or other policies were loaded last."""
    if rulebook.unaccepted:
        return f"nothing of {store} is swept. {rulebook.unaccepted}"
    fault = next((fault for fault in rulebook.settings.place_conflicts() if store in fault.stores or not fault.stores), None)
    return f"nothing of {store} is swept: the settings file {fault.what}. {fault.remedy}" if fault else None


def _unusual(taken: Taken, days: Mapping[date, Taken], brake: BrakeSettings) -> str | None:
    if len(days) < _KNOWN_DAYS:
        return None
    most = Taken(max(day.transactions for day in days.values()), max(day.bytes for day in days.values()))
    if taken.transactions <= brake.usual * most.transactions and taken.bytes <= brake.usual * most.bytes:
        return None
    return (
        f"it would lose {_amount(taken)} today, more than {brake.usual:g} times the largest day of the last"
        f" {_DAYS.days} ({_amount(most)})"
    )


def _too_large_a_share(there: int, taken: Taken, brake: BrakeSettings) -> str | None:
    if brake.share is None or taken.transactions <= brake.share * there:
        return None
    lost = f"{taken.transactions:,} of the {there:,} transactions that it has"
    return f"it would lose {lost}, more than the share of {brake.share:g}"


def _amount(taken: Taken) -> str:
    return f"{taken.transactions:,} transactions, {taken.bytes:,} bytes"

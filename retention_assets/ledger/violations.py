"""Standing violations of asset checks, in the ledger so that a run on other datasets does not make a check pass."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, text, update

from retention_assets.ledger.audit.state import change_rows, put_rows
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.invariants import Violation
from retention_assets.ledger.schema import STANDING, VIOLATIONS, WHOLE_CHECKS
from retention_assets.sql.transactions import portions

_KEY = ("check_name", "dataset")


@dataclass(frozen=True)
class StandingViolation:
    """A standing violation: check, dataset, problem, number of cases, and since when."""

    check: str
    dataset: str
    what: str
    times: int
    since: datetime


class Violations(LedgerPart):
    """The violations of a ledger."""

    def standing(self, check: str | None = None) -> list[StandingViolation]:
        columns = [VIOLATIONS.c[name] for name in (*_KEY, "what", "times", "since")]
        query = select(*columns).where(text(STANDING)).order_by(*columns[:2])
        if check is not None:
            query = query.where(VIOLATIONS.c.check_name == check)
        return [StandingViolation(*row) for row in self.rows(query)]

    def update(
        self, check: str, found: Mapping[str, Violation], looked_at: Collection[str] | None, at: datetime, actor: str
    ) -> list[StandingViolation]:
        """Record what a check found in `looked_at` (None: all); return what stands. Other datasets stay unchanged."""
        known = {one.dataset: one for one in self.standing(check)}
        new = [one for name, one in found.items() if name not in known]
        other = [
            one
            for name, one in found.items()
            if name in known and (one.what, one.times) != (known[name].what, known[name].times)
        ]
        # Violations without a dataset are checked each time.
        over = [name for name in known if name not in found and (looked_at is None or not name or name in looked_at)]
        if not (new or other or over):
            return list(known.values())
        rows = {"check_name": check, "since": at, "found_by": actor, "over_at": None}

        def write(tx: WriteTransaction) -> None:
            _write(tx, [{**rows, **vars(one)} for one in new], ("what", "times", "since", "found_by", "over_at"))
            _write(tx, [{**rows, **vars(one)} for one in other], ("what", "times", "found_by"))
            _end(tx, check, over, at)

        self.database.write(write)
        return self.standing(check)

    def end(self, check: str, datasets: Iterable[str], at: datetime) -> None:
        mine = sorted(datasets)
        if mine:
            self.database.write(lambda tx: _end(tx, check, mine, at))

    def whole_look(self, check: str) -> datetime | None:
        query = select(WHOLE_CHECKS.c.looked_at).where(WHOLE_CHECKS.c.check_name == check)
        return next((at for (at,) in self.rows(query)), None)

    @audited
    def note_whole_look(self, tx: WriteTransaction, check: str, at: datetime) -> None:
        put_rows(tx.connection, WHOLE_CHECKS, [{"check_name": check, "looked_at": at}], ("looked_at",))


def _write(tx: WriteTransaction, rows: list[dict[str, object]], changed: Collection[str]) -> None:
    if rows:
        put_rows(tx.connection, VIOLATIONS, rows, changed)


def _end(tx: WriteTransaction, check: str, datasets: Collection[str], at: datetime) -> None:
    for some in portions(sorted(datasets)):
        mine = (VIOLATIONS.c.check_name == check) & VIOLATIONS.c.dataset.in_(some)
        change_rows(tx.connection, update(VIOLATIONS).where(mine, text(STANDING)).values(over_at=at), mine)

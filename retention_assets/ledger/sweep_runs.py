"""Sweeps in many tasks: stop requests, progress, abandoned datasets, and paces (earliest start of a policy's next batch).

Nothing here decides what is deleted.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, select, true, update
from sqlalchemy.exc import SQLAlchemyError

from retention_assets.ledger.audit.state import change_rows, put_rows
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.schema import LEASES, PACES, STOPS, TASK_PROGRESS
from retention_assets.ledger.sweeps.leases import SCAN
from retention_assets.sql.columns import DatabaseTime

# seconds; the starter of a run watches hold files for its tasks, so they end if it is silent for longer
SILENCE = 60.0
# Task number under which the starter reports.
_STARTER = -1
# Later paces would exceed the largest instant.
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


class SweepRuns(LedgerPart):
    """Running sweeps, each by the name that holds its leases."""

    @audited
    def stop(self, tx: WriteTransaction, run: str, reason: str) -> None:
        put_rows(tx.connection, STOPS, [{"run": run, "reason": reason, "asked_at": tx.present()}])

    def stop_requested(self, run: str) -> str | None:
        with self.database.reading() as connection:
            return _stop_requested(connection, run)

    @audited
    def beat(self, tx: WriteTransaction, run: str) -> None:
        _tell(tx, run, _STARTER, "")

    def report(self, run: str, task: int, progress: str) -> str | None:
        """Report a task's progress; return why it has to stop. A restarted task replaces its predecessor's row.

        If the ledger does not answer, the leases decide.
        """

        def work(tx: WriteTransaction) -> str | None:
            _tell(tx, run, task, progress)
            return _stop_requested(tx.connection, run)

        try:
            return self.database.write(work)
        except SQLAlchemyError:
            return None

    def progress(self, run: str) -> list[str]:
        mine = (TASK_PROGRESS.c.run == run) & (TASK_PROGRESS.c.task != _STARTER)
        query = select(TASK_PROGRESS.c.progress).where(mine).order_by(TASK_PROGRESS.c.task)
        return [progress for (progress,) in self.rows(query)]

    def abandoned(self, run: str) -> list[str]:
        """Datasets whose lease a run let expire: the task that swept them is gone."""
        expired = ~LEASES.c.given_up & (LEASES.c.expires_at <= DatabaseTime())
        query = select(LEASES.c.dataset).where(LEASES.c.holder == run, expired).order_by(LEASES.c.dataset)
        return [name for (name,) in self.rows(query) if not name.startswith(SCAN)]

    @audited
    def reserve(self, tx: WriteTransaction, takes: Mapping[str, timedelta]) -> timedelta:
        """Reserve the time of a batch for each of its policies; return how long to wait before it starts."""
        names = sorted(takes)
        put_rows(tx.connection, PACES, [{"policy": name, "next_at": tx.present()} for name in names])
        query = select(PACES).where(PACES.c.policy.in_(names)).order_by(PACES.c.policy).with_for_update()
        known: dict[str, datetime] = {row.policy: row.next_at for row in tx.connection.execute(query)}
        begins = {name: max(known[name], tx.present()) for name in names}
        ends = [{"policy": name, "next_at": begins[name] + min(takes[name], _LATEST - begins[name])} for name in names]
        put_rows(tx.connection, PACES, ends, ["next_at"])
        return max(begins.values()) - tx.present()


def clear_paces(tx: WriteTransaction, policy: str | None = None) -> None:
    """Drop the reservations of a changed policy, or of all: the next batch may start at once."""
    mine = true() if policy is None else PACES.c.policy == policy
    cleared = update(PACES).where(mine, PACES.c.next_at > tx.present())
    change_rows(tx.connection, cleared.values(next_at=tx.present()), mine & (PACES.c.next_at == tx.present()))


def _tell(tx: WriteTransaction, run: str, task: int, progress: str) -> None:
    row = {"run": run, "task": task, "progress": progress, "told_at": tx.present()}
    put_rows(tx.connection, TASK_PROGRESS, [row], ["progress", "told_at"])


def _stop_requested(connection: Connection, run: str) -> str | None:
    asked: str | None = connection.execute(select(STOPS.c.reason).where(STOPS.c.run == run)).scalar_one_or_none()
    if asked is not None:
        return asked
    starter = (TASK_PROGRESS.c.run == run) & (TASK_PROGRESS.c.task == _STARTER)
    is_there = select(TASK_PROGRESS.c.run).where(starter, TASK_PROGRESS.c.told_at > DatabaseTime(-SILENCE))
    if connection.execute(is_there).one_or_none() is None:
        return f"{run} was not heard of for {SILENCE:.0f} s, so nobody watches the holds of policy files."
    return None

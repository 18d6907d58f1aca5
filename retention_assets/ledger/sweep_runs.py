"""Sweeps that run in many tasks: the ledger is how whoever started one and its tasks hear of each other.

Belongs here: the word that a run has to stop, that whoever started it is still there, how far each of its tasks is, and which
datasets a task has left that is gone. None of it decides what is deleted, so no act is about it.
Does not belong here: leases (sweeps/leases.py), by which tasks keep out of each other's way, and holds, which tasks read as
everybody does.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from retention_assets.ledger.audit.state import put_rows
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import LEASES, STOPS, TASK_PROGRESS
from retention_assets.ledger.sweeps.leases import SCAN
from retention_assets.sql.columns import DatabaseTime

# Whoever started a run watches files of holds for its tasks. If it is silent for so long, nobody does, and they end.
SILENCE = 60.0
# Under which number it tells that it is there.
_STARTER = -1


@dataclass(frozen=True)
class SweepRuns:
    """The running sweeps of a ledger, each by the name under which it holds its leases."""

    database: LedgerDatabase

    def stop(self, run: str, reason: str) -> None:
        """Have every task of a run end after its batch in flight. The first reason stands."""

        def work(tx: WriteTransaction) -> None:
            put_rows(tx.connection, STOPS, [{"run": run, "reason": reason, "asked_at": tx.present()}])

        self.database.write(work)

    def stop_requested(self, run: str) -> str | None:
        """Why the tasks of a run have to stop, if they have."""
        with self.database.reading() as connection:
            return _stop_requested(connection, run)

    def beat(self, run: str) -> None:
        """Whoever started a run is there, and watches."""
        self.database.write(lambda tx: _tell(tx, run, _STARTER, ""))

    def report(self, run: str, task: int, progress: str) -> str | None:
        """Tell how far a task is, in words that its run understands; why it has to stop, if it has.

        A task that is started once more takes the other's place. If the ledger does not answer, what follows is the leases'.
        """

        def work(tx: WriteTransaction) -> str | None:
            _tell(tx, run, task, progress)
            return _stop_requested(tx.connection, run)

        try:
            return self.database.write(work)
        except SQLAlchemyError:
            return None

    def progress(self, run: str) -> list[str]:
        """What each task of a run has told last."""
        mine = (TASK_PROGRESS.c.run == run) & (TASK_PROGRESS.c.task != _STARTER)
        query = select(TASK_PROGRESS.c.progress).where(mine).order_by(TASK_PROGRESS.c.task)
        with self.database.reading() as connection:
            return list(connection.execute(query).scalars())

    def abandoned(self, run: str) -> list[str]:
        """The datasets whose lease a run had and let expire: the task that swept them is gone."""
        expired = ~LEASES.c.given_up & (LEASES.c.expires_at <= DatabaseTime())
        query = select(LEASES.c.dataset).where(LEASES.c.holder == run, expired).order_by(LEASES.c.dataset)
        with self.database.reading() as connection:
            # What it scanned is no dataset.
            return [name for name in connection.execute(query).scalars() if not name.startswith(SCAN)]


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

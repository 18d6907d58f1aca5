"""The ledger of release 0.2.0 as it is stored in release_0_2_0.sql: marks in every state, holds, reports, and an audit of it all.

`python -m retention_assets_tests.ledger.stored FOLDER` wrote it. It is never written again once 0.2.0 is out: later releases are
tested to bring it up to date.
"""

import sqlite3
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from retention_assets.ledger import AskedBy
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Hold
from retention_assets.stores.files import FilesSettings
from retention_assets.stores.protocol import SweptTarget
from retention_assets_tests.ledger.states import raise_visibility
from retention_assets_tests.sweep.lakes import DUE, FIVE, OLD, Lake
from retention_assets_tests.sweep.marked import begin
from retention_assets_tests.sweep.sharing import SharingFiles, kept

FILE = Path(__file__).with_name("release_0_2_0.sql")
POLICIES = f"{OLD.replace('lake/*', 'lake/[dm]')}, {{name: undo, datasets: {{include: [lake/u]}}, select: {{older_than: 30d}}, undo: 14d}}"
OTHERS = {"S3": Outcome.HIDDEN, "S4": Outcome.FAILED, "S5": Outcome.ALREADY_GONE}
BACK = Hold.model_validate({"name": "back", "datasets": "lake/u", "transactions": ["U2"], "reason": "needed"})


def write(folder: Path) -> str:
    lake = Lake(folder, policies=POLICIES)
    lake.has(FIVE).has("main: " + " - ".join(f"U{day}:SNAPSHOT@{90 - 10 * day}d" for day in range(1, 10)), "lake/u").marks()
    lake.hold("lake/d", "S1", name="ended")
    lake.hold("lake/u", "U5")
    with lake.opened() as ledger:
        ledger.holds.release("ended", "ann", "over")
        ledger.realms.change("acme", "INACTIVE", "ann", "contract over")
        raise_visibility(ledger, "lake/d", DUE - timedelta(days=60))
    (settings,) = lake.settings.stores
    assert isinstance(settings, FilesSettings)
    store, SharingFiles.answers = SharingFiles(settings), {"S2": kept("S2")}
    SharingFiles.answers |= {name: SweptTarget(name, outcome, error="why") for name, outcome in OTHERS.items()}
    lake.sweeps(store=store)
    for order, name, hold in ((Order.RESTORE, "U2", BACK), (Order.DELETE_ASIDE, "U3", None)):
        with lake.opened() as ledger:
            begin(ledger, "lake/u", order, AskedBy("ann", "needed", hold), [name])
        lake.sweeps(only=order, store=store)
    lake.has(FIVE, "lake/m").marks(DUE)
    with lake.opened() as ledger:
        ledger.unmark.transactions("lake/m", ["S2"], "ann", "needed")
    lake.begins("S3", as_of=DUE + timedelta(days=7), dataset="lake/m")
    with lake.opened() as ledger:
        assert ledger.verify_and_record("ann").faults == ()
    with closing(sqlite3.connect(folder / "ledger.db")) as database:
        return "".join(f"{line}\n" for line in database.iterdump())


if __name__ == "__main__":
    FILE.write_text(write(Path(sys.argv[1])))

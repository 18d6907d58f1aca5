"""The ledger: the record of every decision, on SQLite or PostgreSQL. Rows are never removed or changed outside the audit."""

from retention_assets.ledger.audit.before_sweep import due_mark_faults, rule_faults
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.audit.verify import verify
from retention_assets.ledger.audit.walk import ChainHead
from retention_assets.ledger.batches import Plan, Planned, Settlement
from retention_assets.ledger.book import Raise, Realm, raise_by
from retention_assets.ledger.clock_guard import LedgerTimes
from retention_assets.ledger.evaluations import EVALUATION_ROWS, FOUND_ROWS, Publication, VerdictCount, counts_text
from retention_assets.ledger.histories import MarkEvent, TransactionLife, life_of
from retention_assets.ledger.invariants import Invariant, Violation
from retention_assets.ledger.leases import ALL_NAMES, SECONDS, SILENCE, DatasetPart, JoinedPart, Lease, LeaseLost, NameRange
from retention_assets.ledger.ledger import Ledger, NotedPlace, ledger_is_there, ledger_time, open_ledger, remember_places
from retention_assets.ledger.mark_rows import MARK_ROWS, OUTCOMES
from retention_assets.ledger.marking import CANDIDATES, Marks, candidate_table
from retention_assets.ledger.reports import COUNTERS, OpenedReport
from retention_assets.ledger.states import FreedGroup, PendingGroup, SparedGroup, Waiting
from retention_assets.ledger.stores import ScanClosing, ScanEnd, ScanRecord, ScanStatus, scan_lease
from retention_assets.ledger.trash import AskedBy
from retention_assets.ledger.unmarking import KeptMarks

__all__ = [
    "ALL_NAMES", "CANDIDATES", "COUNTERS", "EVALUATION_ROWS", "FOUND_ROWS", "MARK_ROWS", "OUTCOMES", "SECONDS", "SILENCE",
    "Act", "ActType", "AskedBy", "ChainHead", "DatasetPart", "FreedGroup", "Invariant", "JoinedPart", "KeptMarks", "Lease",
    "LeaseLost", "Ledger", "LedgerTimes", "MarkEvent", "Marks", "NameRange", "NotedPlace", "OpenedReport", "PendingGroup",
    "Plan", "Planned", "Publication", "Raise", "Realm", "ScanClosing", "ScanEnd", "ScanRecord", "ScanStatus", "Settlement",
    "SparedGroup", "TransactionLife", "VerdictCount", "Violation", "Waiting", "candidate_table", "counts_text",
    "due_mark_faults", "ledger_is_there", "ledger_time", "life_of", "open_ledger", "raise_by", "remember_places",
    "rule_faults", "scan_lease", "verify",
]  # fmt: skip

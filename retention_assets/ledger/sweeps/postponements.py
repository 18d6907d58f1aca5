"""Postponements: transactions that a store would have expired by itself and that must not go yet. Marks don't change."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.marks.marking import Marks
from retention_assets.policy.durations import text_of


class Postponements(LedgerPart):
    """The postponements of a ledger."""

    def going(self, dataset: str) -> frozenset[str]:
        """Transactions that a sweep has begun on: they keep the expiry that it gave them."""
        return frozenset(Marks(self.database).table([dataset], ["SWEEPING"])["transaction"].to_pylist())

    @audited
    def record(
        self, tx: WriteTransaction, dataset: str, transactions: Sequence[str], within: datetime, until: datetime, actor: str
    ) -> None:
        """Record, before it is done, that transactions that would expire `within` an instant stay `until` another."""
        names = json.dumps(sorted(transactions), ensure_ascii=False).encode(errors="surrogatepass")
        detail = {
            "transactions": len(transactions),
            "digest": hashlib.sha256(names).hexdigest(),
            "within": text_of(within),
            "until": text_of(until),
        }
        act = Act(ActType.POSTPONE, actor, "They are unfinished, not archived, or held.", dataset, detail=detail)
        tx.record(act)

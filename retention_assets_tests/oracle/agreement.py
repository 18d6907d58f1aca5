"""Kernel and oracle asked the same, and where they differ."""

from collections.abc import Collection, Sequence
from datetime import datetime

from retention_assets.frames import Log, candidate_marks, columns_for
from retention_assets.policy import Keeper, Policy
from retention_assets_tests.histories import AS_OF, History, log_of
from retention_assets_tests.oracle.verdicts import Verdict, verdicts
from retention_assets_tests.policies import Known, known_table

Rows = dict[tuple[str, str], dict[str, object]]


def agreed(
    drawn: History, rules: Sequence[Policy], held: Sequence[Keeper] = (), known: Collection[str] = ()
) -> dict[str, Verdict]:
    before = {drawn.dataset: frozenset(known)}
    rows = judged(log_of([drawn]), rules, held, drawn.as_of, before)
    assert (different := disagreement(rows, drawn, rules, held, before)) is None, different
    return verdicts(drawn, rules, held, drawn.as_of, before[drawn.dataset])


def judged(
    log: Log, rules: Sequence[Policy], held: Sequence[Keeper] = (), as_of: datetime = AS_OF, known: Known | None = None
) -> Rows:
    """The verdicts by (dataset, transaction), from just the columns that the policies need, as whoever judges reads them."""
    before = None if known is None else known_table(known)
    marks = candidate_marks(
        log.transactions.select(columns_for(rules, log.datasets, held)), log.datasets, rules, held, as_of, before
    )
    return {(row["dataset"], row["transaction"]): row for row in marks.to_pylist()}


def disagreement(
    rows: Rows, drawn: History, rules: Sequence[Policy], held: Sequence[Keeper], known: Known | None = None
) -> str | None:
    """The first transaction of a history about which kernel and oracle differ, with all that is needed to see why."""
    before = (known or {}).get(drawn.dataset, frozenset())
    for transaction, want in verdicts(drawn, rules, held, drawn.as_of, before).items():
        got = rows[drawn.dataset, transaction]
        reasons = {(reason["code"], reason["witness"]) for reason in got["reasons"]}  # type: ignore[attr-defined]
        spared = reasons if got["verdict"] == "spare" else set()
        same = (got["verdict"], got["policy"], tuple(got["also"])) == (want.verdict, want.policy, want.also)  # type: ignore[arg-type]
        # The kernel names one witness of each kind, the oracle all of them.
        if not same or not spared <= want.spared_by or {code for code, _ in spared} != {code for code, _ in want.spared_by}:
            shown = "\n".join(str(policy.model_dump(mode="json", exclude_defaults=True)) for policy in rules)
            return f"{transaction}: kernel {got}\noracle {want}\n{drawn!r}\n{shown}\n{held}\nknown {sorted(before)}"
    return None

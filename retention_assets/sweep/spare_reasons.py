"""Reasons why a mark is spared, in sentences that name who needs it."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import Ints
from retention_assets.frames.log import attribute_of
from retention_assets.frames.verdicts.reasons import SPARING, Reason
from retention_assets.policy.selection import Selection
from retention_assets.stores.protocol import WITNESS
from retention_assets.sweep.verdicts import JudgedRows


class SpareReason(TypedDict):
    """A reason in the form of verdicts."""

    code: str
    witness: str | None


def with_witnesses(
    judged: JudgedRows, rules: RulesInForce, at: Ints, as_of: datetime, reasons: list[list[SpareReason]]
) -> list[list[SpareReason]]:
    """Reasons that name who needs it now, also where the policy by itself would no longer select it.

    Whoever made a branch on a marked transaction wants to read that the branch saved it, not that a count has changed.
    """
    # refs that have ended for a policy never protect against it
    eager = tuple(
        policy.model_copy(
            update={
                "select": Selection().model_copy(update={"expired_refs": policy.select.expired_refs}),
                "latest_view": None,
            }
        )
        for policy in rules.policies
    )
    verdicts = judged.verdicts(RulesInForce(eager, rules.holds), as_of)
    asked = verdicts["reasons"].take(pa.array(at)).to_pylist()
    needed = [[reason for reason in why if Reason[reason["code"]] in SPARING] for why in asked]
    return [[*(reason for reason in more if reason not in why), *why] for more, why in zip(needed, reasons, strict=True)]


def referrers(rows: pa.Table) -> list[str]:
    is_object = pc.equal(rows["type"].cast(pa.string()), "OBJECT")
    witnesses = pc.if_else(is_object, attribute_of(rows, WITNESS), None).to_pylist()
    return [f" It is referenced by {', '.join(witness.splitlines())}." if witness else "" for witness in witnesses]


def sentences_of(reasons: Iterable[SpareReason]) -> str:
    return " ".join(Reason[reason["code"]].text(reason["witness"]) for reason in reasons)

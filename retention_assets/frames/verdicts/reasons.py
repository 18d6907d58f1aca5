"""Reasons of verdicts: an enum of sentences, each with a code and a witness.

Programs rely on the code, people read the sentence, and the witness is the branch, tag, hold or policy that it is about.
"""

from enum import Enum


class Reason(Enum):
    """A code and its sentence; `{witness}` stands for the name that the reason points at."""

    SELECTED = "Policy {witness} selects it."
    PURGING = "It belongs to a realm that is being purged ({witness})."
    LATEST_VIEW_ALLOWED = "It is in the latest view of branch {witness}; the policy may select there (latest_view: allow)."
    EXPIRED_REF = "Only {witness} keeps it, which is past its max-ref-age; the policy drops it with it (expired_refs: drop)."

    LATEST_VIEW = "It is in the latest view of branch {witness}: readers of that branch need it."
    TAG = "Tag {witness} pins the view that it belongs to."
    HOLD = "Hold {witness} keeps it."
    GC_DISABLED = "Its table lets nobody delete its files: property {witness}."
    REFERRED_TO = "Something retained refers to it, says {witness}."
    LIMIT = "Policy {witness} would take more of this dataset than its limits allow, so it takes nothing here."

    OPEN = "It is still open."
    NO_POLICY = "No policy is about this dataset."
    INDEFINITE = "Entry {witness} keeps every version of it."
    UNREACHABLE = "It is on no live branch, and policy {witness} looks at live branches only."
    REACHABLE = "It is on a live branch, and policy {witness} looks only at what no branch reaches."
    NOT_APPLICABLE = "It lies on no branch, and policy {witness} asks for views or branches, which only branches have."
    OUT_OF_SCOPE = "It is on no branch that policy {witness} looks at."
    OTHER_BRANCH = "The branches that it lies on are not those that policy {witness} asks for."
    STATUS = "Its status is not one that policy {witness} takes."
    TYPE = "Its type is not one that policy {witness} takes."
    UNFINISHED = "It is unfinished, and policy {witness} does not judge unfinished records."
    TOO_YOUNG = "It is younger than policy {witness} asks for."
    NO_TIME = "The time that policy {witness} compares is not known for it, so it is never old enough."
    WITHIN_VIEWS = "It is in one of the newest views, which policy {witness} keeps."
    WITHIN_TRANSACTIONS = "It is among the newest transactions, which policy {witness} keeps."
    NO_OWN_RETENTION = "Its dataset says nothing readable about its own retention, which policy {witness} asks for."
    CURRENT_AT_CUT_OFF = (
        "Its view was still current at the cut-off of policy {witness}, which keeps every instant after it readable."
    )
    IN_NO_VIEW = "It is in no view, and policy {witness} selects by views."
    VIEW_TOO_YOUNG = "A view that holds it closed more recently than policy {witness} asks for."
    OPEN_AFTER = "An open transaction follows its view, so policy {witness} leaves it."
    NOT_SUPERSEDED = "Some of its files are still current on a branch, and policy {witness} takes only what was replaced."
    NOT_ARCHIVED = "It was not archived yet, which policy {witness} asks for its type."
    REFERENCED = "Something retained may refer to it; policy {witness} takes only what nothing refers to."
    POLICY_CHANGED = "Policy {witness} marked it, and no policy in force selects it any more."
    CONDITION = "The condition (where) of policy {witness} does not hold for it."
    FORMAT_V3 = "Its table has {witness}, and PyIceberg can't commit to such a table in this catalog; by a REST catalog it can."

    @property
    def number(self) -> int:
        """Place in the enum, from 1: the form of a reason in frames."""
        return _NUMBERS[self]

    def text(self, witness: str | None) -> str:
        return self.value.replace("{witness}", f"'{witness}'")


_NUMBERS = {reason: number for number, reason in enumerate(Reason, 1)}
REASONS = (None, *Reason)
SPARING = frozenset(
    {Reason.LATEST_VIEW, Reason.TAG, Reason.HOLD, Reason.GC_DISABLED, Reason.FORMAT_V3, Reason.REFERRED_TO, Reason.LIMIT}
)

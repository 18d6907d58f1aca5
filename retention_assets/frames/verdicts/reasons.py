"""Reasons of verdicts: an enum of sentences, each with a code and a witness.

Programs rely on the code, people read the sentence, and the witness is the branch, tag, hold or policy that it is about.
"""

from enum import Enum


class Reason(Enum):
    """A code and its sentence; `{witness}` stands for the name that the reason points at."""

    SELECTED = "Policy {witness} selects it."
    PURGING = "It belongs to a realm that is being purged ({witness})."
    LATEST_VIEW_ALLOWED = "It is in the latest view of branch {witness}, where the policy may select (latest_view: allow)."
    EXPIRED_REF = "Only {witness} keeps it. That ref is past its max-ref-age, so the policy drops both (expired_refs: drop)."

    LATEST_VIEW = "It is in the latest view of branch {witness}: readers of that branch need it."
    TAG = "It belongs to a view that tag {witness} pins."
    HOLD = "Hold {witness} keeps it."
    RETAIN_RULE = "Retain rule {witness} keeps it."
    GC_DISABLED = "Its table forbids deleting its files: property {witness}."
    REFERRED_TO = "Retained data refers to it, according to {witness}."
    NEEDED = "Nothing would go with it: {sentence}."
    TABLE_WINDOW = "It is inside the window of its table ({witness}), in which readers may still need its files."
    LIMIT = "Policy {witness} would mark more of this dataset than its limits allow, so it marks nothing here."

    OPEN = "It is still open."
    NO_POLICY = "No policy matches this dataset."
    INDEFINITE = "Entry {witness} keeps every version of it."
    UNREACHABLE = "It is on no live branch, and policy {witness} selects on live branches only."
    REACHABLE = "It is on a live branch, and policy {witness} selects only what no branch reaches."
    NOT_APPLICABLE = "It is on no branch, and policy {witness} selects by views or branches."
    OUT_OF_SCOPE = "It is on no branch in the scope of policy {witness}."
    OTHER_BRANCH = "It is not on the branches that policy {witness} requires."
    STATUS = "Policy {witness} does not select its status."
    TYPE = "Policy {witness} does not select its type."
    UNFINISHED = "It is unfinished, and policy {witness} does not judge unfinished records."
    TOO_YOUNG = "It is younger than policy {witness} requires."
    TIME_MISSING = "It has no readable instant in the attribute that policy {witness} compares, so it is never old enough."
    NO_TIME = "It lacks the time that policy {witness} compares, so it is never old enough."
    TIMES_COPIED = (
        "Its table was copied, so the times of its versions are not known, and policy {witness} compares times. "
        "Set `times: commit_info` on the store to use the times that writers noted."
    )
    WITHIN_VIEWS = "It is in one of the newest views, which policy {witness} keeps."
    WITHIN_TRANSACTIONS = "It is among the newest transactions, which policy {witness} keeps."
    WITHIN_BYTES = "It is among the newest that fit the size that policy {witness} keeps."
    WITHIN_PERIODS = "It is the newest of a period that policy {witness} keeps, or part of that state."
    NO_OWN_RETENTION = "Its dataset has no readable retention of its own, which policy {witness} requires."
    CURRENT_AT_CUT_OFF = (
        "Its view was still current at the cut-off of policy {witness}, which keeps every instant after it readable."
    )
    IN_NO_VIEW = "It is in no view, and policy {witness} selects by views."
    VIEW_TOO_YOUNG = "A view that holds it closed more recently than policy {witness} requires."
    OPEN_AFTER = "An open transaction follows its view, so policy {witness} does not select it."
    NOT_SUPERSEDED = "Some of its files are still current on a branch, and policy {witness} selects only replaced files."
    NOT_ARCHIVED = "It is not archived yet, which policy {witness} requires for its type."
    REFERENCED = "Retained data may refer to it, and policy {witness} selects only unreferenced objects."
    POLICY_CHANGED = "Policy {witness} marked it, but no policy in force selects it any more."
    CONDITION = "The condition (where) of policy {witness} does not hold for it."
    NO_FILES = "It neither adds nor removes a file, so it goes with the version before it."
    FORMAT_V3 = "Its table has {witness}. PyIceberg can't commit to such a table in this catalog; with a REST catalog it can."

    @property
    def number(self) -> int:
        """Place in the enum, from 1: the form of a reason in frames."""
        return _NUMBERS[self]

    def text(self, witness: str | None) -> str:
        return self.value.replace("{witness}", f"'{witness}'").replace("{sentence}", witness or "")


_NUMBERS = {reason: number for number, reason in enumerate(Reason, 1)}
REASONS = (None, *Reason)
SPARING = frozenset(
    {
        Reason.LATEST_VIEW,
        Reason.TAG,
        Reason.HOLD,
        Reason.RETAIN_RULE,
        Reason.GC_DISABLED,
        Reason.FORMAT_V3,
        Reason.REFERRED_TO,
        Reason.TABLE_WINDOW,
        Reason.NEEDED,
        Reason.LIMIT,
    }
)

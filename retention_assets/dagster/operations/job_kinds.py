"""Kinds of jobs: those that look, that change the record, or that delete data."""

from enum import Enum

KIND_TAG = "retention/kind"


class JobKind(Enum):
    """What a person has to know of a job before launching it."""

    LOOK = "look"
    ACT = "act"
    DELETE = "delete"

    @property
    def tags(self) -> dict[str, str]:
        """The tag of the job, which its runs have as well."""
        return {KIND_TAG: self.value}

    def describe(self, text: str) -> str:
        """The description of a job of this kind."""
        return f"{_BEGINNINGS[self]} {text}"


_BEGINNINGS = {
    JobKind.LOOK: "Looks, and changes nothing.",
    JobKind.ACT: "Changes the record, and deletes nothing.",
    JobKind.DELETE: "DELETES DATA.",
}

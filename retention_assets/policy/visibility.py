"""Visibility entries of policy files: for how long the history of datasets stays readable."""

from typing import Annotated

from pydantic import Field

from retention_assets.policy.fields import Age
from retention_assets.policy.model import Datasets, Value

VISIBILITY_PREFIX = "visibility:"


class VisibilityRule(Value):
    """For how long the history of some datasets stays readable. Of several that are about a dataset the longest counts."""

    datasets: Datasets
    retention: Annotated[Age, Field(description="How long history stays readable, counted back from each evaluation.")]
    force_overwrite: Annotated[bool, Field(description="Replace a stored entry that a user wrote last.")] = False

    @property
    def name(self) -> str:
        """Named by its datasets: the same datasets with another retention are the next version of one entry."""
        text = ", ".join(sorted(set(self.datasets.include)))
        if self.datasets.exclude:
            text += f" without {', '.join(sorted(set(self.datasets.exclude)))}"
        if self.datasets.with_:
            text += f" with {', '.join(f'{key}={value}' for key, value in sorted(self.datasets.with_.items()))}"
        return f"{VISIBILITY_PREFIX}{text}"


def visibility_sentence(rule: VisibilityRule) -> str:
    return (
        f"Keeps the last {rule.retention.words()} of the history of {rule.name.removeprefix(VISIBILITY_PREFIX)} readable: each"
        " evaluation raises the visibility mark of these datasets to that age, and never past what is current."
    )

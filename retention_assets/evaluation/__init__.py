"""Judging without Dagster: which rules are in force, what changed since the last evaluation, previews and explanations."""

from retention_assets.evaluation.keepers import Keepers

__all__ = ["Keepers"]

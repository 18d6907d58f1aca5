"""Verdicts: from a history and policies to a verdict for every transaction, its reasons, and when to judge again."""

"""Pure functions from columns to columns and from tables to tables, in Arrow and NumPy.

Nothing here does I/O, reads a clock, or knows Dagster, the ledger or a store.
"""

from retention_assets.frames.log import DATASETS, INSTANT, LINES, LOG, TIMES, Log, selects_dataset
from retention_assets.frames.soundness import sound_log
from retention_assets.frames.statistics import LARGEST
from retention_assets.frames.verdicts.candidate_marks import candidate_marks, columns_for, verdicts_and_reevaluation
from retention_assets.frames.verdicts.decisions import CANDIDATE_MARKS, new_marks
from retention_assets.frames.verdicts.kept_rows import retained_by
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.retained_marks import RetainedMarks, retained_marks
from retention_assets.frames.verdicts.table_windows import ended_refs
from retention_assets.frames.verdicts.where_condition import evaluate
from retention_assets.frames.views.branch_views import BRANCH_VIEWS, branch_views, branch_views_and_ends, view_ends
from retention_assets.frames.views.history import History
from retention_assets.frames.views.latest_views import needed_marks, rows_in_views, without_ended

__all__ = [
    "BRANCH_VIEWS", "CANDIDATE_MARKS", "DATASETS", "INSTANT", "LARGEST", "LINES", "LOG", "TIMES", "History",
    "Log", "Reason", "RetainedMarks", "branch_views", "branch_views_and_ends", "candidate_marks", "columns_for",
    "ended_refs", "evaluate", "needed_marks", "new_marks", "retained_by", "retained_marks", "rows_in_views",
    "selects_dataset", "sound_log",
    "verdicts_and_reevaluation", "view_ends", "without_ended",
]  # fmt: skip

"""The keys of the exchange format, which lines and columns have in common.

Belongs here: their names. Does not belong here: reading either form.
"""

KEYS = (
    "dataset", "transaction", "parent", "type", "status", "opened_at", "closed_at", "archived_at", "bytes", "files",
    "attributes", "branch", "tag", "head", "expires_at", "realm",
)  # fmt: skip
# Those whose values are instants.
TIMES = ("opened_at", "closed_at", "archived_at", "expires_at")

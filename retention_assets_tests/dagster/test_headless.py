"""What `retention run` says went wrong: everything, also what a table that was cut no longer shows."""

import pytest

from retention_assets.dagster.headless import _troubles


def row(dataset: str, refused: str = "", failed: int = 0) -> dict[str, object]:
    return {"dataset": dataset, "refused": refused, "failed": failed, "errors": "disk on fire" if failed else ""}


@pytest.mark.parametrize(
    ("swept", "said"),
    [
        ({"by_dataset": [row("lake/d")], "refused": 0, "failed": 0}, []),
        (
            {"by_dataset": [row("lake/d", "held by another")], "refused": 1, "failed": 0},
            ["lake/d was not swept: held by another"],
        ),
        (
            {"by_dataset": [row("lake/d", failed=2)], "refused": 0, "failed": 2},
            ["lake/d: 2 could not be deleted and are tried again by the next run: disk on fire"],
        ),
        (
            {"by_dataset": [row("lake/d", "no")], "refused": 7, "failed": 3},
            [
                "lake/d was not swept: no",
                "… and 6 more datasets were not swept.",
                "… and 3 more transactions could not be deleted.",
            ],
        ),
        ({"by_dataset": [], "stopped": True}, ["The sweep was stopped before its end; the next run goes on."]),
    ],
)
def test_nothing_that_went_wrong_is_left_unsaid(swept: dict[str, object], said: list[str]) -> None:
    assert list(_troubles({"swept_transactions": swept})) == said

"""How much the laws try: so many random cases and points of death in the suite, and as many times that as a campaign wants.

RETENTION_ROUNDS=20 python -m pytest retention_assets_tests/policy/where
"""

import os

_TIMES = float(os.environ.get("RETENTION_ROUNDS", "1"))


def rounds(number: int) -> int:
    return max(1, round(number * _TIMES))


def every(number: int) -> int:
    return max(1, round(number / _TIMES))

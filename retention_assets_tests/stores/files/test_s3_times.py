"""Times of S3 are read quickly, and as the driver itself reads them."""

from datetime import UTC

import pytest
from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

from retention_assets.stores.places.file_systems import open_file_system, parse_time
from retention_assets_tests.stores.files.environments import S3


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-20T01:02:03.456Z", "2026-11-20T01:02:03Z", "2026-11-20T01:02:03.456789012Z", "2026-11-20T01:02:03+02:00",
        "Fri, 20 Nov 2026 01:02:03 GMT", "Friday, 20-Nov-26 01:02:03 GMT", "20261120T010203Z", "1763600523", 1763600523,
        "1763600523.5",
    ],
)  # fmt: skip
def test_a_time_is_that_which_the_driver_reads(value: object) -> None:
    assert parse_time(value) == parse_timestamp(value)
    assert parse_time(value).utcoffset() == parse_timestamp(value).utcoffset()


def test_the_driver_reads_times_so(s3: S3) -> None:
    """Its own way gives zones of another kind."""
    s3.put("a", b"x")
    fs, _ = open_file_system(f"s3://{s3.bucket}/")
    [one] = fs.call_s3("list_objects_v2", Bucket=s3.bucket)["Contents"]
    assert one["LastModified"].tzinfo is UTC
    assert fs.call_s3("head_object", Bucket=s3.bucket, Key="a")["LastModified"].tzinfo is UTC

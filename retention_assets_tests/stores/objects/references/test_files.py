"""Files of references, whatever they hold: all are there and read to their end as they are by then, or nothing is whole."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.stores.objects.references import RowSource, SourceNotWhole
from retention_assets.stores.objects.sources import files
from retention_assets.stores.objects.tables import REFERENCES
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.objects.environments import write_lines
from retention_assets_tests.stores.objects.references.sources import ends_of, objects_of, rows_of, source


def write_parquet(file: Path, *rows: dict[str, str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), file, compression="none", use_dictionary=False)
    return file


@dataclass(frozen=True)
class Format:
    name: str
    write: Callable[..., Path]

    def put(self, folder: Path, *names: str) -> None:
        """A file for each name, which refers to an object of that name."""
        for name in names:
            self.write(folder / "refs" / name, {"object": name})

    def source(self, folder: Path, glob: str = "refs/*") -> RowSource:
        return source(folder, {self.name: glob})


@pytest.fixture(params=[Format("lines", write_lines), Format("parquet", write_parquet)], ids=lambda one: str(one.name))
def form(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


def test_a_glob_that_matches_nothing_is_an_error(tmp_path: Path, form: Format) -> None:
    with pytest.raises(SourceNotWhole, match=r"No file matches .*/refs/\*"):
        rows_of(form.source(tmp_path))


def test_a_file_whose_name_is_the_glob_is_meant(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path, "1", "[1]")
    given = form.source(tmp_path, "refs/[1]")
    assert objects_of(given) == ["1", "[1]"]
    assert next(given.read(given.shares(1)[0])).schema == REFERENCES


def test_new_and_changed_files_are_read_again_and_one_that_vanishes_fails(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path, "1", "2")
    given, two = form.source(tmp_path), tmp_path / "refs" / "2"
    ends = ends_of(given, given.shares(1))
    assert given.finish(ends) == []
    form.write(tmp_path / "refs" / "1", {"object": "changed"})
    form.put(tmp_path, "3")
    again = given.finish(ends)
    assert sorted(Path(share.file.path).name for share in again) == ["1", "3"]
    ends += ends_of(given, again)
    assert given.finish(ends) == []
    # A copy that looks as old and is as large.
    before = two.stat()
    form.write(two, {"object": "4"})
    os.utime(two, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [Path(share.file.path).name for share in given.finish(ends)] == ["2"]
    two.rename(tmp_path / "2")
    with pytest.raises(SourceNotWhole, match="refs/2 is gone"):
        given.finish(ends)


def test_a_file_that_was_in_the_middle_of_being_written_is_read_again(
    tmp_path: Path, form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    form.put(tmp_path, "1")
    file, given = tmp_path / "refs" / "1", form.source(tmp_path)
    [share], content = given.shares(1), file.read_bytes()
    file.write_bytes(content[:-10])
    ends = ends_of(given, [share])
    # What is known of it comes back: only what was read to its end counts.
    monkeypatch.setattr(files, "files_matching", lambda _: (share.file,))
    file.write_bytes(content)
    assert given.finish(ends) == [share]
    assert [end.rows for end in ends_of(given, [share])] == [1]
    assert given.finish([*ends, *ends_of(given, [share])]) == []


def test_a_file_that_vanishes_before_it_is_read_fails(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path, "1", "2")
    given = form.source(tmp_path)
    shares = given.shares(1)
    assert list(given.finish(ends_of(given, shares[:1]))) == list(shares[1:])
    (tmp_path / "refs" / "1").rename(tmp_path / "gone")
    with pytest.raises(SourceNotWhole, match="refs/1 is gone"):
        given.finish(ends_of(given, shares))


def test_files_in_a_bucket_are_read_and_seen_to_change(tmp_path: Path, form: Format, s3: S3) -> None:
    s3.put("refs/1", form.write(tmp_path / "1", {"object": "a"}).read_bytes())
    given = form.source(tmp_path, f"s3://{s3.bucket}/refs/*")
    assert objects_of(given) == ["a"]
    ends = ends_of(given, given.shares(1))
    s3.put("refs/1", form.write(tmp_path / "1", {"object": "b"}).read_bytes())
    s3.put("refs/2", b"{}")
    changed, new = given.finish(ends)
    assert ends_of(given, [changed])[0].rows == 1
    with pytest.raises(SourceNotWhole, match=rf"s3://{s3.bucket}/refs/2 "):
        ends_of(given, [new])

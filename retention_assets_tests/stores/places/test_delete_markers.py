"""Setting aside in buckets that keep versions, on an imitation of S3 and on a Ceph: behind delete markers."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from s3fs import S3FileSystem  # type: ignore[import-untyped]

from retention_assets.errors import Refused, Withheld
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import parse_duration
from retention_assets.stores.places import DeletionPace, DueObject, FolderChanged, FolderNote, open_place
from retention_assets.stores.protocol import Permit, always
from retention_assets_tests.ceph import forget_connections
from retention_assets_tests.rounds import every
from retention_assets_tests.stores.files.environments import S3, error
from retention_assets_tests.stores.places.roots import accepts

NUMBERS = itertools.count()
FOLDER, ASIDE = ("a", "T1"), "7/12"
X = "a/T1/x"
T1 = [X, "a/T1/", "a/T1/é 'q\"&<+%01", "a/T1//deep/../x"]
BESIDE = {("a/T10", b"x"), ("z", b"x")}
# behind the markers that stay
OLDER = {(key, content) for key in (X, T1[2]) for content in (b"older", None)}
SIZES = "retention_assets.stores.places.{}".format
DONE = {Order.SET_ASIDE: Outcome.SET_ASIDE, Order.RESTORE: Outcome.RESTORED, Order.DELETE_ASIDE: Outcome.DELETED}


@cache
def client_of(endpoint: str) -> Any:
    return boto3.Session().client("s3", endpoint_url=endpoint)


class Bucket:
    """A transaction's folder in a bucket, or its objects one by one; two of them were written before, and one deleted then."""

    def __init__(self, endpoint: str, tree: bool) -> None:
        self.client, self.name, self.tree = client_of(endpoint), f"aside{next(NUMBERS)}", tree
        self.read = cache(
            lambda key, version: self.client.get_object(Bucket=self.name, Key=key, VersionId=version)["Body"].read()
        )
        self.client.create_bucket(Bucket=self.name)
        # its version is named "null"
        self.client.put_object(Bucket=self.name, Key=f"root/{T1[1]}", Body=b"x")
        self.client.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": "Enabled"})
        self.place: Any = open_place(f"s3://{self.name}/root")
        self.put(X, b"older")
        self.delete(X)
        self.put(T1[2], b"older")
        for key in (X, *T1[2:], "a/T10", "z"):
            self.put(key)
        self.before = self.kept()
        latest = {key: version for key, version, _, is_latest in self.before if is_latest}
        self.due = [DueObject(key, latest[key], aside=ASIDE) for key in T1]

    def put(self, key: str, content: bytes = b"x") -> str:
        return str(self.client.put_object(Bucket=self.name, Key=f"root/{key}", Body=content)["VersionId"])

    def delete(self, key: str, **version: str) -> str:
        return str(self.client.delete_object(Bucket=self.name, Key=f"root/{key}", **version).get("VersionId"))

    def kept(self) -> set[tuple[str, str, bytes | None, bool]]:
        """Key, version, content and whether it is the newest; a delete marker has no content."""
        kept: set[tuple[str, str, bytes | None, bool]] = set()
        for page in self.client.get_paginator("list_object_versions").paginate(Bucket=self.name):
            for item in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
                content = self.read(item["Key"], item["VersionId"]) if "Size" in item else None
                kept.add((item["Key"].removeprefix("root/"), item["VersionId"], content, item["IsLatest"]))
        return kept

    def contents(self) -> set[tuple[str, bytes | None]]:
        return {(key, content) for key, _, content, _ in self.kept()}

    def versions(self) -> set[str]:
        return {version for _, version, *_ in self.kept()}

    def in_sight(self) -> set[str]:
        return {key for key, _, content, is_latest in self.kept() if is_latest and content and not key.startswith(".")}

    def markers(self) -> int:
        return sum(content is None for _, _, content, _ in self.kept() - self.before)

    def order(
        self, act: Order, permit: Permit = always, check: Callable[[FolderNote], None] = accepts
    ) -> tuple[Outcome, int, str]:
        """Outcome, bytes and error of the folder, or of the first object where the others are done."""
        if not self.tree:
            swept = self.place.carry_out(act, self.due, lambda _: None, permit, DeletionPace(0), 2)
            results = {result.transaction: (result.outcome, result.bytes, result.error or "") for result in swept}
            assert len(results) == len(self.due)
            x = results.pop(X)
            assert {outcome for outcome, *_ in results.values()} <= {DONE[act], Outcome.ALREADY_GONE, Outcome.WITHHELD}
            return x
        try:
            removed = self.place.carry_out_tree(act, FOLDER, ASIDE, permit, check)
        except (Withheld, FolderChanged, OSError, Refused) as fault:
            outcomes: dict[type[Exception], Outcome] = {Withheld: Outcome.WITHHELD, FolderChanged: Outcome.SPARED}
            return outcomes.get(type(fault), Outcome.FAILED), 0, str(fault)
        return (DONE[act], removed.freed, "") if removed else (Outcome.ALREADY_GONE, 0, "")

    def does(self, act: Order) -> None:
        size = 0 if act is Order.RESTORE else len(T1) if self.tree else 1
        assert self.order(act) == (DONE[act], size, "")


@pytest.fixture
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    server, tree = request.param
    environment = request.getfixturevalue("s3").environment
    # several pages and requests each
    for name, value in (("s3_bucket.PAGE", 2), ("delete_s3.KEYS_PER_REQUEST", 3)):
        monkeypatch.setattr(SIZES(name), value)
    if server == "ceph":
        environment = request.getfixturevalue("ceph")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        forget_connections()
    yield Bucket(environment["AWS_ENDPOINT_URL"], tree)
    if server == "ceph":
        forget_connections()


IMITATIONS = [("imitation", False), ("imitation", True)]
everywhere = pytest.mark.parametrize(
    "bucket", [*IMITATIONS, pytest.param(("ceph", True), marks=pytest.mark.cluster)], indirect=True
)
both = pytest.mark.parametrize("bucket", IMITATIONS, indirect=True)
only_a_folder = pytest.mark.parametrize("bucket", IMITATIONS[1:], indirect=True)


@everywhere
def test_all_is_out_of_sight_and_comes_back_as_it_was_or_goes_with_nothing_else(bucket: Bucket) -> None:
    for _ in range(2):
        bucket.does(Order.SET_ASIDE)
        placed = {row[2:] for row in bucket.kept() - bucket.before if not row[0].startswith(".")}
        assert placed == {(None, True), (b"x", False)}
    listed = [entry.key for share in bucket.place.shares(3) for entry in bucket.place.entries(share)]
    assert (sorted(listed), sorted(bucket.place.names_in())) == (["a/T10", "z"], ["a/", "z"])
    assert list(bucket.place.find([*T1, f".retention-trash/{ASIDE}.json"])) == []
    for _ in range(2):
        bucket.does(Order.RESTORE)
        assert bucket.kept() == bucket.before
    bucket.does(Order.SET_ASIDE)
    bucket.does(Order.DELETE_ASIDE)
    for _ in range(2):
        assert bucket.contents() == BESIDE | OLDER
        assert bucket.in_sight() == {"a/T10", "z"}
        assert bucket.order(Order.DELETE_ASIDE)[:2] == (Outcome.ALREADY_GONE, 0)
    if bucket.tree:
        outcome, _, text = bucket.order(Order.RESTORE)
        assert (outcome, "the trash has no .retention-trash/7/12.json" in text) == (Outcome.FAILED, True)


@only_a_folder
@pytest.mark.parametrize("versions", [False, True])
def test_a_folder_goes_with_every_version_if_its_store_deletes_these(bucket: Bucket, versions: bool) -> None:
    bucket.place = open_place(bucket.place.location, delete_versions=versions)
    before, size = bucket.place.measure(FOLDER), len(T1) + 2 * len("older") * versions

    def check(note: FolderNote) -> None:
        raise FolderChanged(note.text)

    # before anything is hidden
    assert bucket.order(Order.SET_ASIDE, check=check) == (Outcome.SPARED, 0, before.text)
    assert bucket.kept() == bucket.before
    assert bucket.order(Order.SET_ASIDE) == (Outcome.SET_ASIDE, size, "")
    bucket.does(Order.RESTORE)
    assert bucket.place.measure(FOLDER) == before
    bucket.order(Order.SET_ASIDE)
    assert bucket.order(Order.DELETE_ASIDE) == (Outcome.DELETED, size, "")
    assert bucket.contents() == (BESIDE if versions else BESIDE | OLDER)


@both
def test_without_a_permit_nothing_changes(bucket: Bucket) -> None:
    def never() -> None:
        raise Withheld("no more")

    for act in DONE:
        kept = bucket.kept()
        assert bucket.order(act, never) == (Outcome.WITHHELD, 0, "no more")
        assert bucket.kept() == kept
        if act is Order.SET_ASIDE:
            bucket.does(act)


class Killed(BaseException):
    pass


def kills(bucket: Bucket, act: Order) -> Iterator[int]:
    """Kill an order before some of its requests, until it makes no more; the first ones change nothing."""
    call = S3FileSystem.call_s3
    for number in itertools.count(every(3), every(9)):
        left = iter(range(number))

        def deadly(self: Any, *facts: Any, left: Iterator[int] = left, **more: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            return call(self, *facts, **more)

        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            patch.setattr(S3FileSystem, "call_s3", deadly)
            bucket.order(act)
            return
        yield number


@both
def test_killed_at_any_request_all_is_whole_at_one_place_after_the_next_order(bucket: Bucket) -> None:
    for number in kills(bucket, Order.SET_ASIDE):
        if number % 2:
            bucket.does(Order.SET_ASIDE)
            # and no marker twice
            assert bucket.markers() == len(T1)
        bucket.does(Order.RESTORE)
        assert bucket.kept() == bucket.before
    bucket.does(Order.SET_ASIDE)
    for _ in kills(bucket, Order.RESTORE):
        bucket.does(Order.RESTORE)
        assert bucket.kept() == bucket.before
        bucket.does(Order.SET_ASIDE)
    bucket.does(Order.SET_ASIDE)
    assert len(list(kills(bucket, Order.DELETE_ASIDE))) > 1
    # markers over nothing may stay of objects
    assert {row for row in bucket.contents() if bucket.tree or row[1] is not None} | OLDER == BESIDE | OLDER
    assert bucket.in_sight() == {"a/T10", "z"}


def show(bucket: Bucket) -> str:
    [marker] = [version for key, version, content, is_latest in bucket.kept() if key == X and is_latest and content is None]
    return bucket.delete(X, VersionId=marker)


SPARED, GONE, DELETED = ((Order.DELETE_ASIDE, outcome) for outcome in (Outcome.SPARED, Outcome.ALREADY_GONE, Outcome.DELETED))
RESTORED, REFUSED = ((Order.RESTORE, outcome) for outcome in (Outcome.RESTORED, Outcome.FAILED))


@pytest.mark.parametrize(
    ("bucket", "meanwhile", "steps"),
    [
        (("imitation", tree), meanwhile, steps)
        for meanwhile, of_objects, of_folder in [
            (lambda bucket: bucket.put(X, b"newer"), [REFUSED, DELETED], [REFUSED, DELETED]),
            (lambda bucket: bucket.delete(X), [REFUSED, DELETED], [REFUSED, DELETED]),
            # the rest of the folder goes
            (lambda bucket: bucket.delete(X, VersionId=bucket.due[0].version), [REFUSED, GONE], [REFUSED, DELETED]),
            (show, [SPARED, RESTORED], [SPARED, RESTORED]),
            (lambda bucket: bucket.put("a/T1/new") and "a/T1/new", [RESTORED], [REFUSED, DELETED]),
            # that of an object is not noted
            (lambda bucket: show(bucket) and bucket.delete(X), [], [REFUSED, DELETED]),
            (lambda bucket: bucket.delete(f".retention-trash/{ASIDE}.json") and "", [], [RESTORED]),
        ]
        for tree, steps in enumerate((of_objects, of_folder))
        if steps
    ],
    indirect=["bucket"],
)
def test_what_was_done_meanwhile_stays_and_is_named(
    bucket: Bucket, meanwhile: Callable[[Bucket], str], steps: list[tuple[Order, Outcome]]
) -> None:
    bucket.does(Order.SET_ASIDE)
    ours = bucket.versions()
    bucket.due = bucket.due[: len(T1) if bucket.tree else 1]
    name = meanwhile(bucket)
    theirs = bucket.versions() - ours if name else set()
    for act, outcome in steps:
        between = bucket.kept()
        result, _, text = bucket.order(act)
        assert result is outcome
        assert theirs <= bucket.versions()
        if outcome is Outcome.FAILED:
            assert name in text
        if outcome in (Outcome.FAILED, Outcome.SPARED) and bucket.tree:
            assert bucket.kept() == between
        if outcome is Outcome.SPARED:
            assert (X, bucket.due[0].version, b"x", True) in bucket.kept()
        if outcome is Outcome.DELETED:
            assert not bucket.versions() & {due.version for due in bucket.due}


@everywhere
@pytest.mark.parametrize(("written", "name"), [(X, "another object now"), ("a/T1/new", "a/T1/new' was written since")])
def test_what_is_written_between_the_look_and_the_marker_stays_in_sight(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, written: str, name: str
) -> None:
    call, newer, first = S3FileSystem.call_s3, list[str](), iter([True])

    def raced(self: Any, method: str, **facts: Any) -> Any:
        if method == "delete_objects" and next(first, False):
            newer.append(bucket.put(written, b"newer"))
        return call(self, method, **facts)

    monkeypatch.setattr(S3FileSystem, "call_s3", raced)
    outcome, _, text = bucket.order(Order.SET_ASIDE)
    assert outcome is (Outcome.SPARED if bucket.tree or written == X else Outcome.SET_ASIDE)
    assert outcome is Outcome.SET_ASIDE or name in text
    assert (written, newer[0], b"newer", True) in bucket.kept()
    if not bucket.tree:
        bucket.place.carry_out(Order.RESTORE, bucket.due, lambda _: None, always, DeletionPace(0), 1)
    assert {row[:3] for row in bucket.kept()} - {row[:3] for row in bucket.before} == {(written, newer[0], b"newer")}


@both
@pytest.mark.parametrize("is_blind", [False, True])
def test_where_an_answer_is_lost_no_second_marker_is_placed_and_nothing_is_said_that_nobody_saw(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, is_blind: bool
) -> None:
    monkeypatch.setattr(SIZES("delete_s3.KEYS_PER_REQUEST"), len(T1))
    call, methods = S3FileSystem.call_s3, list[str]()

    def lossy(self: Any, method: str, **facts: Any) -> Any:
        answer = call(self, method, **facts)
        methods.append(method)
        if is_blind and method == "list_object_versions" and "delete_objects" in methods:
            raise PermissionError
        if not is_blind and methods.count("delete_objects") == 1 and method == "delete_objects":
            raise ConnectionResetError
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(S3FileSystem, "call_s3", lossy)
        if is_blind:
            assert bucket.order(Order.SET_ASIDE)[0] is Outcome.WITHHELD
        else:
            bucket.does(Order.SET_ASIDE)
    bucket.does(Order.SET_ASIDE)
    assert bucket.markers() == len(T1)


@only_a_folder
def test_a_failure_half_way_is_rolled_back_or_withheld(bucket: Bucket, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SIZES("delete_s3.KEYS_PER_REQUEST"), 1)

    def denying(act: Order, *texts: bytes) -> tuple[Outcome, str]:
        def denied(method: str, _: str, body: bytes) -> tuple[str, str] | None:
            return error("403 Forbidden", "AccessDenied") if method == "POST" and any(text in body for text in texts) else None

        s3.faults.append(denied)
        outcome, _, text = bucket.order(act)
        s3.faults.clear()
        return outcome, text

    last = b"<Key>root/a/T1/x"
    assert denying(Order.SET_ASIDE, last)[0] is Outcome.FAILED
    assert bucket.kept() == bucket.before
    outcome, text = denying(Order.SET_ASIDE, last, b"<VersionId>")
    assert (outcome, "stays hidden for now" in text) == (Outcome.WITHHELD, True)
    bucket.does(Order.SET_ASIDE)
    outcome, text = denying(Order.RESTORE, last)
    assert (outcome, "part of it is back" in text) == (Outcome.WITHHELD, True)
    bucket.does(Order.RESTORE)
    assert bucket.kept() == bucket.before
    bucket.does(Order.SET_ASIDE)
    assert denying(Order.DELETE_ASIDE, f"<VersionId>{bucket.due[3].version}".encode())[0] is Outcome.FAILED
    assert bucket.in_sight() == {"a/T10", "z"}
    assert bucket.order(Order.DELETE_ASIDE) == (Outcome.DELETED, 1, "")


@only_a_folder
@pytest.mark.parametrize(("status", "state"), [("Suspended", "suspended"), ("", "off"), ("denied", "unknown")])
def test_without_versions_nothing_is_set_aside(bucket: Bucket, s3: S3, status: str, state: str) -> None:
    answer = f"<VersioningConfiguration>{f'<Status>{status}</Status>' * bool(status)}</VersioningConfiguration>"
    told = error("403 Forbidden", "AccessDenied") if status == "denied" else ("200 OK", answer)
    s3.faults.append(lambda _, place, __: told if "versioning" in place else None)
    assert f"is {state}" in bucket.place.undo_fault()
    with pytest.raises(Refused, match="Turn on versioning, or leave `undo` out"):
        bucket.place.carry_out(Order.SET_ASIDE, bucket.due, lambda _: None, always, DeletionPace(0), 1)
    assert bucket.order(Order.SET_ASIDE)[0] is Outcome.FAILED
    assert bucket.kept() == bucket.before


@only_a_folder
def test_rules_that_are_shorter_than_undo_are_named(bucket: Bucket, s3: S3) -> None:
    def rule(days: int, **more: Any) -> dict[str, Any]:
        return {"Status": "Enabled", "NoncurrentVersionExpiration": {"NoncurrentDays": days}, **more}

    rules = [
        rule(13, ID="all", Filter={"Prefix": ""}), rule(14, ID="long enough", Filter={"Prefix": ""}),
        rule(3, ID="below", Prefix="root/a"), rule(3, ID="beside", Filter={"Prefix": "rooted"}),
        rule(3, ID="above", Filter={"And": {"Prefix": "ro", "Tags": [{"Key": "k", "Value": "v"}]}}),
        rule(3, ID="disabled", Filter={"Prefix": ""}, Status="Disabled"),
        # removes only markers over nothing
        {"Status": "Enabled", "ID": "markers", "Filter": {"Prefix": ""}, "Expiration": {"ExpiredObjectDeleteMarker": True}},
    ]  # fmt: skip
    undo = parse_duration("14d")
    assert bucket.place.lifecycle_warnings(undo) == []
    bucket.client.put_bucket_lifecycle_configuration(Bucket=bucket.name, LifecycleConfiguration={"Rules": rules})
    texts = bucket.place.lifecycle_warnings(undo)
    assert [text.split()[3] for text in texts] == ["all", "below", "above"]
    assert "after 13 days, sooner than `undo: 2w`" in texts[0]
    s3.faults.append(lambda _, place, __: error("403 Forbidden", "AccessDenied") if "lifecycle" in place else None)
    [text] = bucket.place.lifecycle_warnings(undo)
    assert "can't be read" in text


@only_a_folder
@pytest.mark.parametrize("versions", [False, True])
def test_without_a_list_nothing_counts_as_set_aside_though_somebody_has_hidden_it(bucket: Bucket, versions: bool) -> None:
    bucket.place = open_place(bucket.place.location, delete_versions=versions)
    for hidden in ([], T1):
        for key in hidden:
            bucket.delete(key)
        kept = bucket.kept()
        assert bucket.order(Order.DELETE_ASIDE) == (Outcome.ALREADY_GONE, 0, "")
        assert bucket.kept() == kept


@only_a_folder
def test_where_its_folder_has_another_name_by_now_it_goes_for_good_but_does_not_come_back(bucket: Bucket) -> None:
    bucket.does(Order.SET_ASIDE)
    kept = bucket.kept()
    with pytest.raises(Refused, match=r"It was set aside from 'a/T1', and its place is 'b/T1' now"):
        bucket.place.carry_out_tree(Order.RESTORE, ("b", "T1"), ASIDE, always, accepts)
    assert bucket.kept() == kept
    removed = bucket.place.carry_out_tree(Order.DELETE_ASIDE, ("b", "T1"), ASIDE, always, accepts)
    assert removed == (len(T1), None)
    assert bucket.contents() == BESIDE | OLDER


@only_a_folder
def test_the_list_of_an_earlier_release_names_no_folder(bucket: Bucket) -> None:
    manifest = {"Bucket": bucket.name, "Key": f"root/.retention-trash/{ASIDE}.json"}
    for act in (Order.RESTORE, Order.DELETE_ASIDE):
        bucket.does(Order.SET_ASIDE)
        *earlier, folder = json.loads(bucket.client.get_object(**manifest)["Body"].read())
        assert folder == list(FOLDER)
        bucket.client.put_object(**manifest, Body=json.dumps(earlier).encode())
        bucket.does(act)


@both
def test_what_is_gone_although_the_answer_was_lost_was_deleted(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.does(Order.SET_ASIDE)
    call, lost = S3FileSystem.call_s3, iter([True])

    def lossy(self: Any, method: str, **facts: Any) -> Any:
        answer = call(self, method, **facts)
        versions = {item.get("VersionId") for item in facts.get("Delete", {}).get("Objects", ())}
        if bucket.due[0].version in versions and next(lost, False):
            raise ConnectionResetError
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(S3FileSystem, "call_s3", lossy)
        bucket.does(Order.DELETE_ASIDE)
    assert next(lost, None) is None

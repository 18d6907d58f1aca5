"""YAML, read safely: plain data with its lines, or BadInput with a place; nothing else, whatever the text.

Belongs here: `settings/yaml.py`. Hostile files are of the kind that a size alone does not stop: bombs of aliases, depth, half
characters. Time is bounded by construction (bytes, depth, values), so a test asks for the bound and not for the time.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retention_assets.errors import BadInput, Problem
from retention_assets.settings.yaml import (
    DEEPEST,
    LARGEST_BYTES,
    MOST_NODES,
    Document,
    dotted,
    parse_document,
    read_document,
    without_value,
    yaml_files,
)
from retention_assets_tests.rounds import examples


def data(text: str) -> Any:
    return parse_document(text, "f.yaml").data


def refusal(text: str) -> Problem:
    with pytest.raises(BadInput) as caught:
        parse_document(text, "f.yaml")
    [problem] = caught.value.problems
    assert problem.file == "f.yaml"
    return problem


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None),
        ("0", 0), ("-7", -7), ("+7", 7), ("007", 7), ("0o17", 15), ("0x1F", 31),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0),
        (".inf", math.inf), ("-.inf", -math.inf), ("1e9999", math.inf),
        # What YAML 1.1 makes of these has cost people more than it ever saved them.
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"), ("1_000", "1_000"), ("0b1", "0b1"), ("017d", "017d"), ("0x", "0x"),
        ("tRue", "tRue"), ("1e", "1e"), ("--1", "--1"), ("١", "١"),
        ("'7'", "7"), ('"true"', "true"), ("'~'", "~"), ("''", ""), ("|\n  7\n", "7\n"), (">-\n  a\n  b\n", "a b"),
        ('"\\u00e9"', "é"),
    ],
)  # fmt: skip
def test_a_scalar_is_what_the_core_schema_says(text: str, meaning: object) -> None:
    found = data(f"k: {text}")["k"]
    assert found == meaning
    assert type(found) is type(meaning)


def test_not_a_number_is_a_number_to_yaml() -> None:
    assert math.isnan(data("k: .nan")["k"])


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a: [1, {b: c}]", {"a": [1, {"b": "c"}]}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        ("&k a: b\nc: *k", {"a": "b", "c": "a"}),
        ("&k a: b\n*k : c", None),
        ("%YAML 1.2\n---\na: b", {"a": "b"}),
        ("--- # words\na: b\n...\n", {"a": "b"}),
        ("? a\n: b", {"a": "b"}),
        ("{a, b: c}", {"a": None, "b": "c"}),
        ("'<<': a", None),
        ("'7': a", {"7": "a"}),
    ],
)
def test_collections_and_aliases_are_plain_data(text: str, meaning: object) -> None:
    if meaning is None:
        refusal(text)
    else:
        assert data(text) == meaning


def test_every_key_and_entry_knows_its_line() -> None:
    document = parse_document("# words\na:\n  b: 1\n\n  c: [x,\n    y]\nd:\n- e: &f {g: h}\n- *f\n", "f.yaml")
    expected = {
        (): 2, ("a",): 2, ("a", "b"): 3, ("a", "c"): 5, ("a", "c", 0): 5, ("a", "c", 1): 6, ("d",): 7, ("d", 0): 8,
        ("d", 0, "e"): 8, ("d", 0, "e", "g"): 8, ("d", 1): 9,
        # What is not in the text has the line of the nearest thing around it that is.
        ("d", 1, "g"): 9, ("a", "z"): 2, ("nowhere", 5): 2,
    }  # fmt: skip
    assert {path: document.line(path) for path in expected} == expected


@pytest.mark.parametrize(
    ("path", "text"),
    [((), ""), (("a",), "a"), (("a", "b"), "a.b"), (("a", 2, "b"), "a[2].b"), ((1, "a"), "[1].a"), (("a", 0, 1), "a[0][1]")],
)
def test_a_path_is_written_as_people_write_it(path: tuple[str | int, ...], text: str) -> None:
    assert dotted(path) == text


def test_keys_without_a_value_are_found_at_any_depth() -> None:
    found = list(without_value(data("a:\nb: {c: ~, d: [x, null, {e: }]}\nf: ''\ng: 0\nh: false\ni: []")))
    assert found == [("a",), ("b", "c"), ("b", "d", 1), ("b", "d", 2, "e")]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: !!str b", 1, "plain YAML without tags"),
        ("!!python/object/new:os.system [echo]", 1, "plain YAML without tags"),
        ("a: ! b", 1, "plain YAML without tags"),
        ("a: 1\nb: 2\na: 3", 3, "each key once"),
        ("x: &x {a: 1}\ny:\n  <<: *x", 3, "every key written out"),
        ("a: 1\n---\nb: 2", 2, "one document in a file"),
        ("a: *b", 1, "an anchor that is complete"),
        ("a: &a [*a]", 1, "an anchor that is complete"),
        ("b: *a\na: &a 1", 1, "an anchor that is complete"),
        ("1: a", 1, "a string as a key"),
        ("[a]: b", 1, "a string as a key"),
        ("x: &x [1]\n*x : b", 2, "a string as a key"),
        ("a: 'b", 1, "is not valid YAML"),
        ("a:\n\t- b", 2, "is not valid YAML"),
        ("a: b: c", 1, "is not valid YAML"),
        ("%YAML 3.0\n---\na: b", 1, "is not valid YAML"),
        ("a: \x07", None, "a character that YAML does not allow"),
        ("a: \ud800", None, "half character"),
        ("", None, "is empty"),
        ("# words\n", None, "is empty"),
    ],
)
def test_what_is_careless_or_hostile_is_refused_with_its_line(text: str, line: int | None, words: str) -> None:
    problem = refusal(text)
    assert words in str(problem)
    assert problem.line == line


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + closing * depth


@pytest.mark.parametrize(
    "text",
    [
        nested(DEEPEST + 1),
        nested(100_000),
        "[" * 1_000_000,
        "{a: " * 100_000,
        "- " * 100_000 + "x",
        "? " * 100_000,
        "a:\n" + "".join(" " * n + "- \n" for n in range(1, 60)),
    ],
    ids=["51", "100000", "never-closed", "mappings", "dashes", "questions", "block"],
)
def test_depth_is_a_number_and_not_a_stack(text: str) -> None:
    assert refusal(text).line is not None


def test_fifty_levels_are_read() -> None:
    found = data(nested(DEEPEST))
    for _ in range(DEEPEST - 1):
        [found] = found
    assert found == []


def test_aliases_do_not_nest_deeper_than_text_may() -> None:
    # A hundred anchors of forty levels, each within the one before: 4,000 levels for whoever walks the result.
    levels = "\n".join(f"- &a{n} {'[' * 40}{f'*a{n - 1}' if n else 'x'}{']' * 40}" for n in range(100))
    problem = refusal(levels)
    assert problem.what == "is nested too deeply"
    assert problem.line == 2


def test_an_alias_within_the_bounds_is_read_as_deep_as_the_text_that_it_stands_for() -> None:
    half = DEEPEST // 2 - 1
    text = f"a: &a {nested(half)}\nb: {'[' * half}*a{']' * half}"
    assert list(without_value(data(text))) == []


@pytest.mark.parametrize("wide", [10, 100])
def test_a_bomb_of_aliases_is_refused_by_what_it_would_expand_to(wide: int) -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * wide)}]" for n in range(1, 10))]
    problem = refusal("\n".join(lines))
    assert problem.what == "expands to too many values"
    assert str(MOST_NODES) in (problem.expected or "")


def test_the_most_values_are_read_and_one_more_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention_assets.settings.yaml.MOST_NODES", 1000)
    # The list itself counts as one.
    assert len(data(f"[{'x,' * 999}]")) == 999
    assert refusal(f"[{'x,' * 1000}]").what == "expands to too many values"


def test_a_number_of_many_digits_never_becomes_an_integer() -> None:
    # Python refuses to make one of more than 4,300 digits, since that takes quadratic time.
    assert data(f"a: {'9' * 100_000}")["a"] == math.inf
    assert data(f"a: {'9' * 30}")["a"] == 10**30 - 1


def test_messages_show_hostile_text_cut_and_quoted() -> None:
    assert len(str(refusal(f"a: !{'x' * 100_000} b"))) < 300
    assert len(str(refusal(f"{'a' * 1000}: 1\n{'a' * 1000}: 2"))) < 3000
    assert "\x1b" not in str(refusal('a: !"\x1b[31m" b'.replace("\x1b", "x")))


def test_a_file_is_read_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    for raw in (b"a: \xc3\xa9", b"\xef\xbb\xbfa: \xc3\xa9", b"a: \xc3\xa9\r\n"):
        file.write_bytes(raw)
        assert read_document(file).data == {"a": "é"}


@pytest.mark.parametrize("raw", [b"a: \xe9", b"\xff\xfea\x00", b"a: b\n\xc3"])
def test_a_file_that_is_not_utf_8_is_refused_with_the_line(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(raw)
    with pytest.raises(BadInput, match="is not text") as caught:
        read_document(tmp_path / "f.yaml")
    assert caught.value.problems[0].line == raw.count(b"\n") + 1


def test_no_more_than_the_largest_size_is_ever_read(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    with file.open("wb") as stream:
        # A hole of a terabyte: whoever reads it all does not come back.
        stream.truncate(2**40)
    with pytest.raises(BadInput, match="is too large"):
        read_document(file)
    assert LARGEST_BYTES == 2 * 1024 * 1024


@pytest.mark.parametrize("what", ["nothing", "folder"])
def test_what_cannot_be_opened_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path if what == "folder" else tmp_path / "f.yaml"
    with pytest.raises(BadInput, match="cannot be read"):
        read_document(path)


def test_the_yaml_files_of_a_folder_are_those_directly_in_it_by_name(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "C.YAML", ".hidden.yaml", "d.txt", "e.yaml~", "sub/f.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in yaml_files(tmp_path)] == ["C.YAML", "a.yml", "b.yaml"]
    assert yaml_files(tmp_path / "d.txt") == [tmp_path / "d.txt"]


SIGNS = st.sampled_from(
    ["a", "b", ": ", "- ", "? ", "[", "]", "{", "}", ", ", "&x ", "*x", "!t ", "<<", "\n", "\n  ", "\t", "'", '"', "|\n", ">", "#",
     "~",
     "---\n", "...\n", "%YAML 1.2\n", "1", ".", "\\", "\x85", "\u2028", "\ufeff", "é", "😀", "\x7f", "\x01"]
)  # fmt: skip


@settings(max_examples=examples(20), deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(SIGNS, max_size=40).map("".join)))
@example("a: &x [*x]")
@example("? - a\n: b")
def test_any_text_is_read_or_refused_and_nothing_else_happens(text: str) -> None:
    try:
        found = parse_document(text, "f.yaml")
    except BadInput:
        return
    _walk(found)


@settings(max_examples=examples(20), deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_and_nothing_else_happens(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(raw)
    try:
        found = read_document(file)
    except BadInput:
        return
    _walk(found)


def _walk(found: Document) -> None:
    """What every reader of a document does: ask for keys without a value, and for lines of paths that need not be there."""
    for path in without_value(found.data):
        assert dotted(path) is not None
        assert found.line(path) is None or found.line(path) >= 1  # type: ignore[operator]


# Without line ends and controls, which YAML folds or refuses where JSON does not.
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cn", "Co")), max_size=8)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


@given(plain)
def test_json_is_yaml_and_is_read_as_it_is(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    if "<<" in text:
        return
    assert data(text) == value

"""Markdown: names of others stand in it as they are, whatever they are made of."""

from datetime import date

import pytest

from retention_assets.render import (
    ALL,
    MOST_INLINE,
    Answer,
    Column,
    Count,
    Day,
    Name,
    Prose,
    Table,
    code,
    markdown_table,
    plain,
    with_table,
)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("lake/raw.events", "`lake/raw.events`"),
        ("a`b", r"a\`b"),
        ("a|b", r"a\|b"),
        ("a\nb", r"`a\nb`"),
        ("\u202egnp.x", "`\\u202egnp.x`"),
        (" ", " "),
    ],
)
def test_a_name_stands_between_backticks_where_it_can(name: str, shown: str) -> None:
    assert code(name) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("*bold* _it_ ~~no~~", r"\*bold\* \_it\_ \~\~no\~\~"),
        ("[x](javascript:y)", r"\[x\](javascript:y)"),
        ("<img src=x>&lt;", r"\<img src=x\>\&lt;"),
        ("# a", r"\# a"),
        ("1 (40 B)", "1 (40 B)"),
    ],
)
def test_no_text_is_an_order(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_an_answer_begins_with_its_sentence_and_leaves_out_what_is_empty() -> None:
    table = markdown_table(Table("", ("a", Count("b")), [{"a": "x", "b": 2}]))
    assert table == "| a | b |\n| --- | --- |\n| x | 2 |"
    assert Answer("One_ thing.", ("", table, markdown_table(Table("", ["a"], [])))).markdown == f"**One\\_ thing.**\n\n{table}"


def test_a_table_beside_a_sentence_is_short_and_narrow() -> None:
    columns = (Column("dataset", media=ALL), Day("day", media=ALL), Count("deleted"))
    rows = [{"dataset": f"lake/{'x' * 40} {number}", "day": date(2026, 6, 14), "deleted": 1} for number in range(30)]
    shown = with_table("**Much.**", Table("", columns, rows))
    assert len(shown) < MOST_INLINE
    assert shown.count("| lake/xxxxxxxxxxxxxx… ") == 8
    assert shown.count("| 14\u00a0June\u00a02026 |\n") == 8
    assert shown.endswith("… and 22 more rows in the list below.")


def test_names_are_code_and_texts_of_others_are_escaped_in_a_table() -> None:
    table = Table("", (Name("id"), Prose("why")), [{"id": "a*b", "why": "*no* | order"}])
    assert markdown_table(table).splitlines()[2] == r"| `a*b` | \*no\* \| order |"

"""Markdown: names of others stand in it as they are, whatever they are made of."""

import pytest

from retention_assets.render.markdown import Answer, code, markdown_table, plain


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
    table = markdown_table(("a", "b"), [("1", "2")])
    assert table == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert Answer("One_ thing.", ("", table, markdown_table(("a",), []))).markdown == f"**One\\_ thing.**\n\n{table}"

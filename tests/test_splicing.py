from __future__ import annotations

import pytest

from fsdp_migrate.source import Replacement, Span
from fsdp_migrate.splicing import RewriteError, reindent, splice, with_newlines


def test_replacements_are_carried_out_in_any_order() -> None:
    made = [Replacement(Span(0, 1), "é"), Replacement(Span(4, 6), ""), Replacement(Span(3, 3), "+")]
    assert splice(b"abcdef", made) == "ébc+d".encode()
    assert splice(b"abcdef", reversed(made)) == "ébc+d".encode()


def test_an_insertion_comes_before_the_text_at_its_place_and_after_one_of_lower_rank() -> None:
    made = [
        Replacement(Span(2, 2), "2", 1),
        Replacement(Span(2, 4), "X"),
        Replacement(Span(2, 2), "1"),
        Replacement(Span(0, 2), "Y"),
    ]
    assert splice(b"abcd", made) == b"Y12X"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Span(0, 3), Span(2, 4)),
        (Span(0, 3), Span(0, 3)),
        (Span(0, 4), Span(2, 2)),
        (Span(2, 2), Span(2, 2)),
    ],
)
def test_overlaps_are_errors(one: Span, two: Span) -> None:
    with pytest.raises(RewriteError, match="overlap"):
        splice(b"abcd", [Replacement(one, "1"), Replacement(two, "2")])


def test_bare_line_feeds_become_the_newline_of_the_file() -> None:
    assert with_newlines("a\nb\r\nc", "\r\n") == "a\r\nb\r\nc"
    assert with_newlines("a\nb", "\r") == "a\rb"
    assert with_newlines("a\nb", "\n") == "a\nb"


def test_lines_get_another_indentation_except_blank_ones_and_the_inside_of_strings() -> None:
    code = "f(\n  a,\n\n  \n  '''b\n  c''', d,\n e)"
    assert reindent(code, "  ", "\t\t") == "f(\n\t\ta,\n\n  \n\t\t'''b\n  c''', d,\n e)"
    assert reindent(code, "  ", "  ") == code


def test_code_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(RewriteError, match="cannot read"):
        reindent("f(\n  a", "", "  ")

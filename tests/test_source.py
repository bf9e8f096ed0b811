from __future__ import annotations

import ast
import codecs
import contextlib
import encodings.aliases
import pkgutil

import pytest

from fsdp_migrate.source import Position, Source, SourceError, Span


def test_positions_count_code_points_and_spans_count_bytes() -> None:
    source = Source("é = 'ü'; x = f(1)\n".encode())
    call = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    span = source.span(call)
    assert source.segment(call) == "f(1)"
    assert source.data[span.start : span.end] == b"f(1)"
    assert source.position(span.start) == Position(1, 14)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_newline_of_python_ends_a_line(newline: str) -> None:
    source = Source(newline.join(["a = 1", "b = 2", "c = 3"]).encode())
    assert source.newline == newline
    assert [source.segment(node) for node in source.tree.body] == ["a = 1", "b = 2", "c = 3"]


def test_a_new_line_ends_as_the_one_there_or_the_last_that_has_an_end() -> None:
    source = Source(b"a\r\nb\nc\rd")
    assert [source.newline_at(offset) for offset in (0, 1, 3, 4, 5, 7, 8)] == ["\r\n", "\r\n", *"\n\n\r\r\r"]
    assert Source(b"a\r\nb").newline_at(4) == "\r\n"
    assert Source(b"a").newline_at(1) == "\n"


def test_form_feeds_and_unicode_separators_end_no_line() -> None:
    source = Source("a = '\u2028'\n\x0cb = 2\n".encode())
    assert len(source.line_starts) == 3
    assert source.segment(source.tree.body[1]) == "b = 2"


def test_another_encoding_and_the_byte_order_mark_come_back() -> None:
    latin = "# coding: latin-1\nx = 'é'\n".encode("latin-1")
    source = Source(latin)
    assert source.encode(source.data) == latin
    assert source.encode(source.data + b"y = 1\n") == latin + b"y = 1\n"
    marked = codecs.BOM_UTF8 + b"x = 1\n"
    assert Source(marked).data == b"x = 1\n"
    assert Source(marked).encode(Source(marked).data) == marked


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"# coding: nonsense\n", "unknown encoding"),
        (b"x = '\xff'\n", "encoding declaration"),
        (b"\n" * 3 + b"x = '\xff'\n", "not valid utf-8"),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", "encoding"),
    ],
)
def test_bytes_that_are_no_text_are_one_line_of_error(raw: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        Source(raw)
    assert "\n" not in str(caught.value)


def test_null_bytes_and_deep_nesting_are_syntax_errors() -> None:
    for raw in (b"x = 1\x00\n", b"x = " + b"(" * 5000 + b")" * 5000):
        with pytest.raises(SyntaxError):
            Source(raw).tree  # noqa: B018


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_comments_are_found_behind_any_newline(newline: str) -> None:
    text = "if x:\n    y = 1 + \\\n  2  # one\n\n    z = (  # two\n  0  # three\n  )\nz  # four"
    source = Source(text.replace("\n", newline).encode())
    assert [source.segment(span) for span, _ in source.comments] == ["# one", "# two", "# three", "# four"]


def test_a_null_byte_is_told_with_its_place() -> None:
    for newline in (b"\n", b"\r\n", b"\r"):
        with pytest.raises(SyntaxError) as caught:
            Source(b"x = 1" + newline + "\u00e9 = '".encode() + b"\x00'" + newline).tree  # noqa: B018
        assert (caught.value.msg, caught.value.lineno, caught.value.offset) == ("a null byte", 2, 6)


def test_whatever_encoding_is_declared_a_text_is_read_or_refused_and_nothing_else_happens() -> None:
    names = {module.name for module in pkgutil.iter_modules(encodings.__path__)} | set(encodings.aliases.aliases)
    read = set()
    for name in sorted(names):
        for rest in (b"x = 1\n", b"# \xff\xfe +2ADcAA- \\ud800 \\N{BULLET}\n", b"# " + b"-" * 100 + b"\n"):
            with contextlib.suppress(SourceError):
                source = Source(b"# coding: " + name.encode() + b"\n" + rest)
                assert source.encode(source.data).endswith(rest)
                read.add(source.encoding)
    assert {"utf-8", "iso-8859-1", "cp1252", "shift_jis", "gb18030"} <= read
    assert {"undefined", "rot_13", "utf_16"}.isdisjoint(read)


def test_comments_are_found_with_their_spans() -> None:
    source = Source("x = '# no'  # één\r\n\x0c# two\r\n".encode())
    assert [text for _, text in source.comments] == ["# één", "# two"]
    assert [source.segment(span) for span, _ in source.comments] == ["# één", "# two"]
    assert source.has_comment(Span(0, 14))
    assert not source.has_comment(Span(0, 5))

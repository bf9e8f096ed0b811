from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from fsdp_migrate.scan.comments import comment_places
from fsdp_migrate.source import Source, SourceError

STRINGS = [
    "'#'",
    '"#"',
    r"'\'#'",
    r"'\\'",
    r"r'\'#'",
    r"b'\\\'#'",
    "'''#'''",
    '"""a"#"b"""',
    '"""#""" \'#\'',
    r"""'''\'''#'''""",
    "''''#'''",
    '""',
    '"" "#"',
    "'''\n#\n'''",
    "'a \\\n # b'",
    "'a \\\r\n # b'",
    "f'{x}#'",
    "f'{{#'",
    "f'{{{x}}}#'",
    "rf'{x!r:>{y}}#'",
    "Fr'''{x\n}#'''",
    "f\"{x['a']}#\"",
    "f'''{x['a']}#'''",
    "f'{x:#x}'",
]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("string", STRINGS)
def test_comments_are_told_from_strings(string: str, newline: str) -> None:
    source = Source(f"x = ({string} # '''é\n)#\n".replace("\r\n", "\n").replace("\n", newline).encode())
    assert source.tree
    places = comment_places(source.data)
    assert [text for _, text in source.comments] == ["# '''é", "#"]
    assert places is None or [source.data[start:end].decode() for start, end in places] == ["# '''é", "#"]


@pytest.mark.parametrize("string", ["f'{x['#']}'", "f'{f'{'#'}'}'", "f'''{\nx # in\n}'''", "f'{x:{y:{z}}}#'"])
def test_strings_with_tokens_inside_are_left_to_the_tokens(string: str) -> None:
    source = Source(f"{string} # out\n".encode())
    try:
        source.tree  # noqa: B018
    except SyntaxError:
        pytest.skip("a text of Python 3.12")
    assert [text for _, text in source.comments if text != "# in"] == ["# out"]


@pytest.mark.parametrize("text", ["x = '", 'x = """#', "x = 'a\n#'\n"])
def test_what_does_not_parse_is_left_to_the_tokens(text: str) -> None:
    assert comment_places(f"# one\n{text}".encode()) is None


def test_a_text_without_the_sign_has_none() -> None:
    assert Source(b"x = f'{a['b']}'\n").comments == []


def test_in_the_standard_library_they_are_where_the_tokens_are() -> None:
    compared = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[::5]:
        try:
            source = Source(path.read_bytes())
        except SourceError:
            continue
        places = comment_places(source.data)
        if places is not None:
            compared += 1
            assert places == [tuple(span) for span, _ in source._tokenized()], path
    assert compared > 10

"""Edits of cells, made up at random: the text says what they say, and nothing else of the file changes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from fsdp_migrate.source import Replacement, Span
from fsdp_migrate.splicing import RewriteError
from fsdp_migrate.workspace.notebook import Notebook
from fsdp_migrate.workspace.notebook.document import read_cells
from fsdp_migrate.workspace.notebook.placed_json import load
from fsdp_migrate.workspace.notebook.splicing import CellEdit, CellSource

from .build import code, document

WORDS = ["x", " ", "=", "\u00e9", "\U0001f600", "\ud83d", '"', "\\", "/", "<", "\t", "\u2028", "#", "word"]
NEWLINES = ["\n", "\n", "\n", "\r\n", "\r"]


def _text(dice: random.Random, most: int) -> str:
    return "".join(dice.choice(WORDS + NEWLINES) for _ in range(dice.randrange(most)))


def _source(dice: random.Random, text: str) -> str | list[str]:
    """A source that reads `text`: one string, lines as Jupyter cuts them, or strings cut anywhere."""
    kind = dice.randrange(3)
    if kind == 0:
        return text
    if kind == 1:
        return [line for line in text.replace("\n", "\n\0").split("\0") if line]
    cuts = sorted(dice.choices(range(len(text) + 1), k=dice.randrange(4)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)])]


def _written(dice: random.Random, value: Any) -> str:
    written = json.dumps(value, indent=dice.choice([None, 1, 4, "\t"]), ensure_ascii=dice.random() < 0.5)
    for char, escaped in (("/", "\\/"), ("<", "\\u003c"), ("\u00e9", "\\u00E9")):
        written = written.replace(char, escaped) if dice.random() < 0.3 else written
    # What has no UTF-8 can only be escaped.
    return "".join(f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in written)


def _changes(dice: random.Random, length: int) -> list[CellEdit]:
    places = sorted(dice.sample(range(length + 1), k=min(length + 1, 2 * dice.randrange(1, 4))))
    return [CellEdit(start, end, _text(dice, 8)) for start, end in zip(places[::2], places[1::2])]


def _applied(text: str, changes: list[CellEdit]) -> str:
    for change in reversed(changes):
        text = text[: change.start] + change.text + text[change.end :]
    return text


@pytest.mark.parametrize("seed", range(120))
def test_edits_of_one_cell_are_edits_of_its_strings(seed: int) -> None:
    dice = random.Random(seed)
    texts = [_text(dice, 30) for _ in range(3)]
    whole = document(*(code(_source(dice, text)) for text in texts))
    before = _written(dice, whole)
    cell = read_cells(before)[1]
    source = CellSource(before, cell.source)
    assert source.text == texts[1]
    changes = _changes(dice, len(texts[1]))
    after = before
    for edit in reversed(source.edited(changes)):
        assert cell.source.start <= edit.start <= edit.end <= cell.source.end
        after = after[: edit.start] + edit.text + after[edit.end :]
    found, expected = json.loads(after), json.loads(before)
    now, then = found["cells"][1].pop("source"), expected["cells"][1].pop("source")
    assert found == expected
    assert type(now) is type(then)
    assert "".join(now) == _applied(texts[1], changes)


def test_lines_that_stay_keep_their_spelling() -> None:
    raw = '{"cells": [{"cell_type": "code", "source": ["\\u0061 # /\\n",   "b\\n"\n,"# \\/\\u00E9\\n"]}]}'
    change = Replacement(Span(6, 7), "c\n#/")
    after = raw.replace('"b\\n"', '"c\\n",   "#/\\n"')
    assert Notebook(raw.encode()).encode(b"", [change]).decode() == after


@pytest.mark.parametrize(
    ("source", "other", "spelled"),
    [
        ('"a"', '"\\u00e9"', "\\u00fc"),  # the file has escapes, and nothing but ASCII
        ('"a"', '"\u00e9"', "\u00fc"),
        ('"a"', '"b"', "\u00fc"),  # nothing tells how it would be spelled
        ('"a\\u00e9"', '"\u00e9"', "\\u00fc"),  # the cell itself decides
        ('"a\u00e9"', '"\\u00e9"', "\u00fc"),
    ],
)
def test_a_new_character_is_spelled_as_the_cell_or_the_file_spells_such(source: str, other: str, spelled: str) -> None:
    raw = f'{{"cells": [{{"cell_type": "code", "source": [{source}]}}], "metadata": {{"x": {other}}}}}'
    after = Notebook(raw.encode()).encode(b"", [Replacement(Span(0, 1), "\u00fc")]).decode()
    assert after == raw.replace(source, source.replace("a", spelled))


def test_an_edit_of_more_than_one_cell_or_of_a_magic_is_refused() -> None:
    notebook = Notebook(json.dumps(document("a", "!ls", "b")).encode())
    for span in (Span(0, 3), Span(2, 4), Span(3, 4)):
        with pytest.raises(RewriteError):
            notebook.encode(b"", [Replacement(span, "c")])


def test_edits_that_overlap_are_refused() -> None:
    notebook = Notebook(json.dumps(document("abc")).encode())
    with pytest.raises(RewriteError, match="overlap"):
        notebook.encode(b"", [Replacement(Span(0, 2), "x"), Replacement(Span(1, 3), "y")])


def test_strings_and_lists_know_their_places() -> None:
    text = ' {"k": [ "a", ["\\u00e9\\n"], 12e3 ], "s": "x" } '
    value = load(text)
    assert value == {"k": ["a", ["\u00e9\n"], "12e3"], "s": "x"}
    assert text[value["k"].start : value["k"].end] == '[ "a", ["\\u00e9\\n"], 12e3 ]'
    assert text[value["k"][1][0].start : value["k"][1][0].end] == '"\\u00e9\\n"'
    assert text[value["s"].start : value["s"].end] == '"x"'

"""JSON read by the standard library, with the places of strings and arrays: `load(text)` finds, splicing edits."""

from __future__ import annotations

from json.decoder import JSONArray, JSONDecoder, scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any


class Literal(str):
    """A string, and the place of its literal in the text, quotes included."""

    start: int
    end: int


class Array(list[Any]):
    """A list, and the place of its array in the text, brackets included."""

    start: int
    end: int


class _PlacedDecoder(JSONDecoder):
    """The decoder of the standard library, which also notes places. Keys of objects stay plain strings."""

    def __init__(self) -> None:
        # Numbers stay text: only whether they can be read matters, and a long one would be an error.
        super().__init__(parse_int=str, parse_float=str, parse_constant=str)
        self.parse_string = _placed_string
        self.parse_array = _placed_array
        self.scan_once = py_make_scanner(self)


def load(text: str) -> Any:
    """The value of `text`: strings as `Literal`, lists as `Array`, numbers as they are written.

    If an object has a key twice, the last value counts, as for all readers of notebooks.

    Raises:
        JSONDecodeError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    return _PlacedDecoder().decode(text)


def _placed_string(text: str, begin: int, strict: bool) -> tuple[Literal, int]:
    value, end = scanstring(text, begin, strict)
    literal = Literal(value)
    literal.start, literal.end = begin - 1, end
    return literal, end


def _placed_array(text_and_begin: tuple[str, int], *how: Any) -> tuple[Array, int]:
    values, end = JSONArray(text_and_begin, *how)
    array = Array(values)
    array.start, array.end = text_and_begin[1] - 1, end
    return array, end

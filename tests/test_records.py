"""Records do what classes of `typing.NamedTuple` do."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest

from fsdp_migrate.records import NamedTuple


class Place(NamedTuple):
    """A place."""

    line: int
    column: int = 1
    cls: str = "a field may have any name"

    @property
    def after(self) -> Place:
        """The place one column further."""
        return self._replace(column=self.column + 1)


class Reference(typing.NamedTuple):
    line: int
    column: int = 1
    cls: str = "a field may have any name"


class Shown(NamedTuple):
    name: str

    def __repr__(self) -> str:
        return self.name


WAYS: list[Callable[[Any], object]] = [
    lambda kind: tuple(kind(3)),
    lambda kind: tuple(kind(line=3, column=4)),
    lambda kind: repr(kind(3, 4)).partition("(")[2],
    lambda kind: kind(3)._asdict(),
    lambda kind: tuple(kind(3)._replace(column=7)),
    lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__),
    lambda kind: (hash(kind(3)), kind(3) == (3, *kind(3)[1:]), kind(3) < kind(4)),
]


@pytest.mark.parametrize("way", WAYS)
def test_a_record_is_a_named_tuple(way: Callable[[Any], object]) -> None:
    assert way(Place) == way(Reference)


@pytest.mark.parametrize(
    "wrong",
    [lambda kind: kind(), lambda kind: kind(1, 2, "", 4), lambda kind: kind(1, row=2), lambda kind: kind(1, line=2)],
)
def test_wrong_fields_are_errors(wrong: Callable[[Any], object]) -> None:
    for kind in (Place, Reference):
        with pytest.raises(TypeError):
            wrong(kind)


def test_an_unknown_field_is_not_replaced() -> None:
    with pytest.raises(TypeError):
        Place(1)._replace(row=2)  # type: ignore[call-arg]


def test_a_record_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Place(1).line = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Place(1).row = 2  # type: ignore[attr-defined]


def test_the_class_body_counts() -> None:
    assert Place(1).after == Place(1, 2)
    assert Place.__doc__ == "A place."
    assert repr(Shown("x")) == "x"
    assert (Place.__module__, Place.__qualname__) == (__name__, "Place")


def test_a_record_is_copied_and_pickled() -> None:
    place = Place(3, 4)
    for other in (copy.copy(place), copy.deepcopy(place), pickle.loads(pickle.dumps(place))):
        assert other == place
        assert type(other) is Place

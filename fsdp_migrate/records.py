"""`typing.NamedTuple` at a tenth of its cost: `lint` of a short file makes a hundred such classes.

What is spared: annotations are not compiled, and a constructor is compiled only for a class that gets an instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import _tuplegetter

    def _first(cls, *values, **named):
        """Make the constructor of `cls`, and the first instance with it."""
        listed = "".join(f"{field}, " for field in cls._fields)
        cls.__new__ = eval(f"lambda _cls, {listed}: _new(_cls, ({listed}))", {"_new": tuple.__new__})
        cls.__new__.__defaults__ = tuple(cls._field_defaults.values())
        return cls.__new__(cls, *values, **named)

    def _asdict(self):
        return dict(zip(self._fields, self))

    def _repr(self):
        return f"{type(self).__name__}({', '.join(f'{field}={value!r}' for field, value in self._asdict().items())})"

    _SHARED = {
        "__slots__": (),
        "__new__": _first,
        "__getnewargs__": lambda self: tuple(self),
        "__repr__": _repr,
        "_asdict": _asdict,
        "_replace": lambda self, **changes: type(self)(**{**self._asdict(), **changes}),
    }

    class _Maker(type):
        """Makes a class of tuples of what a class body annotates."""

        def __new__(cls, name, bases, body):
            fields = tuple(body["__annotations__"])
            given = {field: body[field] for field in fields if field in body}
            about = {"_fields": fields, "_field_defaults": given, "__match_args__": fields}
            getters = {field: _tuplegetter(index, None) for index, field in enumerate(fields)}
            return type(name, (tuple, *bases[1:]), {**_SHARED, **body, **about, **getters})

    NamedTuple = type.__new__(_Maker, "NamedTuple", (), {})

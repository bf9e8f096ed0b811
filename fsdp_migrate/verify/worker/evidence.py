"""Seeing what a program used: its warnings, and the functions called from its file and the modules beside it."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from .protocol import Look

_DEPRECATION = re.compile(r"deprecat|removed (in|after)|instead", re.IGNORECASE)
# The new recipe itself warns since torch 2.4; that is no sign of the old API.
_NEW_RECIPE = "FSDP.state_dict_type() and FSDP.set_state_dict_type()"
_WRAPPER_FILES = ("contextlib.py", "_contextlib.py", "functools.py", "torch/nn/utils/clip_grad.py")


class Watch:
    """What one program showed of a list of looks."""

    def __init__(self, looks: tuple[Look, ...], path: str) -> None:
        self._looks = looks
        self._path = path
        self._called: set[int] = set()
        self._caught: list[warnings.WarningMessage] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Watch what runs inside."""
        calls = {number: look for number, look in enumerate(self._looks) if look.kind == "call"}
        with warnings.catch_warnings(record=True) as self._caught:
            warnings.simplefilter("always")
            if calls:
                sys.setprofile(_Profile(calls, self._path, self._called))
            try:
                yield
            finally:
                if calls:
                    sys.setprofile(None)

    def seen(self, failed: bool) -> tuple[bool, ...]:
        """Which looks were seen, in order; `failed` says whether the program raised."""
        messages = [str(caught.message) for caught in self._caught]
        return tuple(self._is_seen(number, look, messages, failed) for number, look in enumerate(self._looks))

    def _is_seen(self, number: int, look: Look, messages: list[str], failed: bool) -> bool:
        if look.kind == "raises":
            return failed
        if look.kind == "warning":
            return any(look.text in message for message in messages)
        if look.kind == "deprecation":
            return bool(self.deprecations())
        return number in self._called

    def deprecations(self) -> tuple[str, ...]:
        """The distinct deprecation messages, those of the new recipe left out."""
        found = dict.fromkeys(
            str(caught.message)
            for caught in self._caught
            if (issubclass(caught.category, (FutureWarning, DeprecationWarning)) or _is_torch(caught))
            and _DEPRECATION.search(str(caught.message))
        )
        return tuple(message[:200] for message in found if not message.startswith(_NEW_RECIPE))


def _is_torch(caught: warnings.WarningMessage) -> bool:
    # Until torch 2.3 the legacy methods warn with UserWarning, attributed to torch's own file.
    return "/torch/" in caught.filename.replace("\\", "/")


class _Profile:
    """A profile function that notes calls of some functions from one file and the modules beside it.

    Nothing is patched: a program that took a reference to the function before, or compares it, sees no difference.
    """

    def __init__(self, looks: dict[int, Look], path: str, called: set[int]) -> None:
        self._folder = os.path.join(os.path.dirname(path), "")
        self._called = called
        self._python: dict[CodeType, list[tuple[int, Look]]] = {}
        self._native: dict[int, int] = {}
        for number, look in looks.items():
            for target in _targets(look.text):
                if isinstance(target, CodeType):
                    self._python.setdefault(target, []).append((number, look))
                else:
                    self._native[id(target)] = number

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in self._python:
            if self._is_own(_caller(frame)):
                self._called.update(number for number, look in self._python[frame.f_code] if _fits(frame, look))
        elif event == "c_call" and id(argument) in self._native and self._is_own(frame.f_code.co_filename):
            self._called.add(self._native[id(argument)])

    def _is_own(self, path: str) -> bool:
        """Whether a file is of the program; an environment in its folder is not."""
        return path.startswith(self._folder) and "site-packages" not in path[len(self._folder) :]


def _caller(frame: FrameType) -> str:
    """The file that called, past the wrappers that decorators and context managers put in between."""
    back = frame.f_back
    while back is not None and back.f_code.co_filename.endswith(_WRAPPER_FILES):
        back = back.f_back
    return back.f_code.co_filename if back is not None else ""


def _fits(frame: FrameType, look: Look) -> bool:
    return look.argument is None or (frame.f_locals.get(look.argument) is not None) == look.given


def _targets(name: str) -> list[Any]:
    """The code objects (or native functions) behind a qualified name; a class stands for its constructor."""
    target = _resolve(name)
    if inspect.isclass(target):
        found = [getattr(target, method) for method in ("__init__", "__new__")]
        return [code for method in found if (code := _code(method)) is not None]
    code = _code(target)
    return [target if code is None else code]


def _code(function: Any) -> CodeType | None:
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _resolve(name: str) -> Any:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        if found is not None:
            return found
    builtin = vars(importlib.import_module("builtins")).get(name)
    if builtin is None:
        raise LookupError(f"no function {name} in this torch; correct '# evidence: call'")
    return builtin

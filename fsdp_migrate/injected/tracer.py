"""Notes which calls of some functions of torch a program makes, by which of its lines, with arguments of which types.

The plan that `install` reads says which functions, where the project is and in which folder the notes go: a file for
each process that imports torch, a JSON object a line, each written at once. No value of the program is noted.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from .after_import import after_import
from .places import Places
from .watching import Unseen, watching

STARTED = "started"
# A place that has been seen so often is only counted.
_OFTEN = 64
_SECONDS = 1.0
# The function that `contextlib.contextmanager` makes, and what it calls the one that it is made of.
_MANAGER, _MANAGED = "helper", "func"


def install(plan: str) -> None:
    """Follow the plan in a file."""
    with open(plan, encoding="utf-8") as stream:
        asked = json.load(stream)
    with contextlib.suppress(OSError), open(os.path.join(asked["folder"], STARTED), "a", encoding="utf-8"):
        pass
    Tracer(asked["folder"], asked["root"], asked["apis"]).start()


class Tracer:
    """The notes of one process."""

    def __init__(self, folder: str, root: str, apis: dict[str, list[list[str | None]]]) -> None:
        """`root` is the folder of the project.

        `apis` are full names; calls are noted that give the first or leave out the second parameter of one of the pairs
        beside it, where they are not None.
        """
        self._folder = folder
        self._apis = apis
        self._places = Places(root)
        self._watching = watching(self._guarded(self._called))
        self._watched: dict[CodeType, list[_Api]] = {}
        self._left = set(apis)
        self._seen: dict[Any, list[int]] = {}
        self._known: dict[str, int] = {}
        self._counts: list[int] = []
        self._files: set[str] = set()
        self._lines: dict[str, list[int]] = {}
        self._flushed = 0.0
        self._notes: str | None = None
        self._torch = ""
        self._sees_lines = False

    def start(self) -> None:
        """Wait for the modules."""
        self._sees_lines = self._watching.see_lines(self._places.is_own, self._guarded(self._ran))
        after_import("torch", self._guarded(self._use))
        for name in self._apis:
            for prefix in _prefixes(name):
                after_import(prefix, self._guarded(partial(self._find, name, prefix)))
        os.register_at_fork(after_in_child=self._guarded(self._forked))
        atexit.register(self._guarded(self._end))

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """The function; what goes wrong in it is noted, and does not reach the program."""

        def run(*arguments: Any) -> None:
            try:
                function(*arguments)
            except Exception as error:  # the program is the user's
                with contextlib.suppress(Exception):
                    self._note("fault", what=type(error).__name__, where=_line_of(error))

        return run

    def _use(self, torch: ModuleType) -> None:
        """Begin the notes: the process uses torch."""
        self._torch = str(getattr(torch, "__version__", "unknown"))
        self._note("start", **self._versions())

    def _versions(self) -> dict[str, Any]:
        return {"python": sys.version.split()[0], "torch": self._torch, "lines": self._sees_lines}

    def _forked(self) -> None:
        """Begin anew in a child, with its first note."""
        self._notes = None
        self._seen, self._known, self._counts, self._files, self._lines = {}, {}, [], set(), {}

    def _note(self, event: str, **content: Any) -> None:
        """Write a line. The file is not kept open: the program may close or reuse what it does not know."""
        if not self._torch:
            return
        if self._notes is None:
            self._notes = os.path.join(self._folder, f"{os.getpid()}-{time.time_ns()}.jsonl")
            if event != "start":
                self._note("start", **self._versions())
        with open(self._notes, "ab", buffering=0) as stream:
            stream.write(json.dumps({"e": event, **content}, separators=(",", ":")).encode() + b"\n")

    def _end(self) -> None:
        if self._notes is not None:
            self._flush()
            for number, count in enumerate(self._counts):
                self._note("count", id=number, count=count)
            self._note("end")

    def _find(self, name: str, prefix: str, module: ModuleType) -> None:
        """Watch a function, if `module` leads to it."""
        found = _member(module, name[len(prefix) + 1 :].split(".")) if name in self._left else None
        if found is None:
            return
        self._left.discard(name)
        try:
            seen, function, wrappers = _unwrapped(found)
            # Under another name it may be watched already.
            if all(api.function is not function for several in self._watched.values() for api in several):
                api = _Api(name, self._apis[name], function, wrappers)
                self._watched.setdefault(self._watching.see_calls(seen), []).append(api)
        except Unseen as reason:
            self._note("unwatched", api=name, why=str(reason))

    def _called(self, code: CodeType, frame: FrameType) -> None:
        several = self._watched.get(code, ())
        # All context managers have the same code, which holds the function that it is for.
        made_for = frame.f_locals.get(_MANAGED) if code.co_name == _MANAGER else None
        api = next((one for one in several if made_for in (None, one.function)), None)
        if api is None or not api.concerns(frame):
            return
        caller = self._places.caller(frame, api.wrappers)
        if caller is None:
            return
        place = api.name, caller.f_code, caller.f_lasti
        known = self._seen.setdefault(place, [0, 0])
        known[0] += 1
        if known[0] <= _OFTEN:
            known[1] = self._noted(api, frame, caller)
        number = known[1]
        count = self._counts[number] = self._counts[number] + 1
        if count & (count - 1) == 0:  # whoever is killed leaves half of the count at least
            self._note("count", id=number, count=count)

    def _noted(self, api: _Api, frame: FrameType, caller: FrameType) -> int:
        """The number of a call by what is noted of it."""
        given = {name: type_name(value) for name, value in api.given(frame)}
        place, by = self._places.of(caller)
        call: dict[str, Any] = {"api": api.name, "place": place, "by": by, "given": given, "rank": _rank()}
        if place is not None and by is None and api.lacks_optimizer(frame):
            call["optimizers"] = []
            with contextlib.suppress(Exception):  # from the user's own `parameters`
                call["optimizers"] += _optimizers(frame.f_locals["model"], caller)
        key = json.dumps(call, sort_keys=True)
        if key not in self._known:
            if place is not None:
                self._note_file(place["path"])
            self._known[key] = len(self._counts)
            self._counts.append(0)
            self._note("call", id=self._known[key], **call)
        return self._known[key]

    def _note_file(self, path: str) -> None:
        """Note what a file contains now, by a digest."""
        if path not in self._files:
            from hashlib import blake2b  # most processes note nothing

            self._files.add(path)
            with open(os.path.join(self._places.root, path), "rb") as stream:
                self._note("file", path=path, digest=blake2b(stream.read(), digest_size=16).hexdigest())

    def _ran(self, file: str, line: int) -> None:
        path = self._places.own(file)
        if path is not None:
            self._lines.setdefault(path, []).append(line)
            if time.monotonic() - self._flushed > _SECONDS:
                self._flush()

    def _flush(self) -> None:
        if not self._torch:
            return
        self._flushed = time.monotonic()
        lines, self._lines = self._lines, {}
        for path, numbers in lines.items():
            self._note_file(path)
            self._note("lines", path=path, lines=numbers)


class _Api:
    """A function that is watched; `wrappers` are the codes of the decorators around it."""

    def __init__(
        self, name: str, wanted: list[list[str | None]], function: FunctionType, wrappers: frozenset[CodeType]
    ) -> None:
        self.name = name
        self.function = function
        self._wanted = [] if [None, None] in wanted else wanted
        self.wrappers = wrappers
        code = function.__code__
        positional = code.co_varnames[: code.co_argcount]
        others = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        defaults = function.__defaults__ or ()
        self._parameters = (*positional, *others)
        self._defaults = dict(zip(positional[len(positional) - len(defaults) :], defaults))
        self._defaults.update(function.__kwdefaults__ or {})

    def concerns(self, frame: FrameType) -> bool:
        """Whether a call is one that is asked for."""
        if not self._wanted:
            return True
        given = {name for name, _ in self.given(frame)}
        return any((one is None or one in given) and missing not in given for one, missing in self._wanted)

    def given(self, frame: FrameType) -> Iterator[tuple[str, object]]:
        """The arguments that are not their defaults."""
        held = self._arguments(frame)
        for name in self._parameters:
            if name in held and not (name in self._defaults and held[name] is self._defaults[name]):
                yield name, held[name]

    def _arguments(self, frame: FrameType) -> Mapping[str, object]:
        if frame.f_code.co_name != _MANAGER:
            return frame.f_locals
        return {**dict(zip(self._parameters, frame.f_locals["args"])), **frame.f_locals["kwds"]}

    def lacks_optimizer(self, frame: FrameType) -> bool:
        """Whether the function takes an optimizer, and got none."""
        return {"model", "optim"} <= set(self._parameters) and frame.f_locals.get("optim") is None


def _prefixes(name: str) -> Iterator[str]:
    """The names of modules that may lead to a function."""
    parts = name.split(".")
    yield from (".".join(parts[:n]) for n in range(1 if len(parts) == 2 else 2, len(parts)))


def _member(module: ModuleType, names: list[str]) -> object | None:
    """What lies below a module, without running anything for it."""
    held: object = module
    for name in names:
        owners = held.__mro__ if isinstance(held, type) else (held,)
        found = next((vars(owner)[name] for owner in owners if name in getattr(owner, "__dict__", ())), None)
        if found is None:
            return None
        held = found
    return None if isinstance(held, ModuleType) else held


def _unwrapped(found: object) -> tuple[FunctionType, FunctionType, frozenset[CodeType]]:
    """The function whose calls are to be seen, the one that is called in the end, and the codes of what is between.

    They are the same, but for context managers: the function runs only once their block begins, elsewhere maybe.

    Raises:
        Unseen: it is no function of Python.
    """
    if isinstance(found, type):
        found = vars(found).get("__init__")
        if found is None:
            raise Unseen("the class has no `__init__` of its own")
    wrappers: set[CodeType] = set()
    seen: FunctionType | None = None
    while True:
        inner = getattr(found, "__func__", None) or getattr(found, "__wrapped__", None)
        if inner is None:
            break
        if isinstance(found, FunctionType):
            wrappers.add(found.__code__)
            if found.__code__.co_name == _MANAGER and found.__code__.co_filename == contextlib.__file__:
                seen = found
        found = inner
    if not isinstance(found, FunctionType):
        raise Unseen("it is not written in Python")
    return seen or found, found, frozenset(wrappers)


def type_name(value: object) -> str:
    """The full name of a value's type."""
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _line_of(error: Exception) -> str:
    """Where an error was raised: the file's name and the line."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _rank() -> int | None:
    """The rank of the process, as far as it is known."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdigit() else None


def _optimizers(model: Any, caller: FrameType) -> Iterator[dict[str, Any]]:
    """The optimizers of a model that the caller has names for: their names there, and their types."""
    own = {id(parameter) for parameter in model.parameters()}
    named = dict(caller.f_globals) | dict(caller.f_locals)
    for holder in ("self", "cls"):
        named |= {f"{holder}.{name}": value for name, value in getattr(named.get(holder), "__dict__", {}).items()}
    cls = sys.modules["torch"].optim.Optimizer
    found: dict[int, tuple[Any, list[str]]] = {}
    for name, value in named.items():
        if isinstance(value, cls) and any(id(p) in own for group in value.param_groups for p in group["params"]):
            found.setdefault(id(value), (value, []))[1].append(name)
    for value, names in found.values():
        yield {"names": names, "type": type_name(value)}

"""What a program may change in its process, put back: the next program must find it as the first one did."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import random
import signal
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

SEED = 20230315
# Where programs replace functions and register hooks: these packages with all that is in them, and these modules.
_PACKAGES = tuple(f"torch.{name}" for name in "autograd distributed nn optim random serialization".split())
_MODULES = ("torch", "builtins", "warnings", "time", "os")
_SIGNALS = (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGPIPE)


class CleanState:
    """The state of this process before any program ran in it; what is printed goes to `output`, stacks to `stacks`."""

    def __init__(self, output: Path, stacks: Any) -> None:
        self._stacks = stacks
        self._output = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._nothing = os.open(os.devnull, os.O_RDONLY)
        self._environment = dict(os.environ)
        self._arguments, self._path = list(sys.argv), list(sys.path)
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._handlers = {number: handler for number, handler in handlers.items() if handler is not None}
        self._limit = sys.getrecursionlimit()
        self._torch = [(put, get()) for get, put in _torch_settings()]
        self._names = [(vars(owner), owner, name, value) for owner in _owners() for name, value in _callables(owner)]
        classes = [owner for owner in _owners() if isinstance(owner, type)]
        self._classes = [(vars(owner), owner, frozenset(vars(owner))) for owner in classes]
        self._hooks = {id(hooks): (hooks, dict(hooks)) for hooks in _hooks()}

    def restore(self) -> None:
        """Put everything back, and start all random numbers anew."""
        self._restore_process()
        self._restore_patches()
        for put, value in self._torch:
            put(value)
        for hooks, known in self._hooks.values():
            hooks.clear()
            hooks.update(known)
        random.seed(SEED)
        torch.manual_seed(SEED)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(SEED % 2**32)

    def _restore_process(self) -> None:
        for source, stream in ((self._nothing, 0), (self._output, 1), (self._output, 2)):
            os.dup2(source, stream)
        # A program may close these; the files below them stay open.
        sys.stdin = sys.__stdin__ = _stream(0, "r")  # type: ignore[misc]
        sys.stdout = sys.__stdout__ = _stream(1, "w")  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = _stream(2, "w")  # type: ignore[misc]
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        sys.argv[:], sys.path[:] = self._arguments, self._path
        sys.excepthook, sys.displayhook = sys.__excepthook__, sys.__displayhook__
        sys.setrecursionlimit(self._limit)
        sys.settrace(None)
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        # What tells of a hanging or dying rank: its stacks, on the way out.
        faulthandler.unregister(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        faulthandler.enable(file=self._stacks, all_threads=True)
        faulthandler.register(signal.SIGTERM, file=self._stacks, all_threads=True, chain=True)
        _reset_logging()

    def _restore_patches(self) -> None:
        for names, owner, name, value in self._names:
            if names.get(name) is not value:
                setattr(owner, name, value)
        for names, owner, known in self._classes:
            # What was added may hide what the class inherits.
            for name in names.keys() - known if len(names) != len(known) else ():
                delattr(owner, name)


def _stream(number: int, mode: str) -> Any:
    return open(number, mode, encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def _owners() -> Iterable[Any]:
    """The modules in which programs replace functions, and the classes of those modules."""
    yield torch.Tensor
    for name, module in list(sys.modules.items()):
        if name in _MODULES:
            yield module
        elif name.startswith(_PACKAGES):
            yield module
            for value in list(vars(module).values()):
                if issubclass(type(value), type) and value.__module__ == name:
                    yield value


def _callables(owner: Any) -> Iterable[tuple[str, Any]]:
    # By type(): torch.distributed.reduce_op warns when it is asked for its class.
    kinds = (types.FunctionType, types.BuiltinFunctionType, type, classmethod, staticmethod, property)
    for name, value in list(vars(owner).items()):
        if issubclass(type(value), kinds) and (name == "__init__" or not name.startswith("__")):
            yield name, value


def _hooks() -> Iterable[dict[Any, Any]]:
    """What modules and optimizers of every kind call."""
    for module in ("torch.nn.modules.module", "torch.optim.optimizer"):
        for name, value in vars(sys.modules[module]).items():
            if name.startswith("_global_") and isinstance(value, dict):
                yield value


def _reset_logging() -> None:
    logging.disable(logging.NOTSET)
    logging.root.setLevel(logging.WARNING)
    for handler in list(logging.root.handlers):
        logging.root.removeHandler(handler)


def _torch_settings() -> Iterable[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Each setting of torch that programs change: how it is read, and how it is set."""
    backends = torch.backends
    return (
        (torch.get_default_dtype, torch.set_default_dtype),
        (lambda: None, torch.set_default_device),
        (torch.is_grad_enabled, _set_grad),
        (torch.is_anomaly_enabled, _set_anomaly),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (lambda: False, torch.set_flush_denormal),
        (lambda: "default", _set_printing),
        (lambda: backends.cudnn.benchmark, _setter(backends.cudnn, "benchmark")),
        (lambda: backends.cudnn.deterministic, _setter(backends.cudnn, "deterministic")),
        (lambda: backends.cudnn.allow_tf32, _setter(backends.cudnn, "allow_tf32")),
        (lambda: backends.cuda.matmul.allow_tf32, _setter(backends.cuda.matmul, "allow_tf32")),
    )


def _setter(owner: Any, name: str) -> Callable[[Any], None]:
    return lambda value: setattr(owner, name, value)


def _set_printing(profile: str) -> None:
    torch.set_printoptions(profile=profile)  # type: ignore[no-untyped-call]


def _set_grad(enabled: bool) -> None:
    torch.set_grad_enabled(enabled)


def _set_anomaly(enabled: bool) -> None:
    torch.autograd.set_detect_anomaly(enabled)

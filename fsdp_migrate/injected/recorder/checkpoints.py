"""What a program saves, and what loading gives it."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from ..after_import import after_import
from .journal import Journal
from .trees import Trees

_SAVER = "torch.distributed.checkpoint.state_dict_saver"
_LOADER = "torch.distributed.checkpoint.state_dict_loader"


def install(journal: Journal, trees: Trees) -> None:
    """Record the calls of `torch.save` and `torch.load`, of distributed checkpointing and of safetensors."""
    record = Recording(journal, trees)
    torch.save = torch.serialization.save = record.saving("torch.save", torch.save, "obj", "f")
    torch.load = torch.serialization.load = record.loading("torch.load", torch.load, "f")
    after_import("safetensors.torch", record.safetensors)
    after_import(_SAVER, record.saver)
    after_import(_LOADER, record.loader)


class Recording:
    """Puts functions that record around those that save and load."""

    def __init__(self, journal: Journal, trees: Trees) -> None:
        self._journal = journal
        self._trees = trees
        self._call = threading.local()
        self._record = journal.guarded("checkpoints")(self._note)

    def _note(self, kind: str, api: str, value: Any, path: Any) -> None:
        self._journal.event(kind, api=api, tree=self._trees.node(value), **self._told(path))

    def _told(self, path: Any) -> dict[str, Any]:
        """The name of a file, and where it is if that is the same for every copy of the project."""
        path = getattr(path, "path", getattr(path, "name", path))  # a storage writer, or an open file
        if not isinstance(path, (str, os.PathLike)):
            return {"path": None}
        text = os.fspath(path)
        own = os.path.join(os.path.dirname(self._journal.plan.copy), "")
        outside = os.path.isabs(text) and not os.path.realpath(text).startswith(own)
        return {"path": os.path.basename(text), **({"outside": text} if outside else {})}

    def saving(self, api: str, original: Callable[..., Any], value: str, path: str) -> Callable[..., Any]:
        """A function that saves what its parameter `value` has."""
        parameters = list(inspect.signature(original).parameters)

        @functools.wraps(original)
        def save(*arguments: Any, **named: Any) -> Any:
            if not _is_internal():
                given = {**dict(zip(parameters, arguments)), **named}
                self._record("save", api, given.get(value), given.get(path))
            return original(*arguments, **named)

        return save

    def loading(self, api: str, original: Callable[..., Any], path: str) -> Callable[..., Any]:
        """A function that returns what it loads."""
        parameters = list(inspect.signature(original).parameters)

        @functools.wraps(original)
        def load(*arguments: Any, **named: Any) -> Any:
            found = original(*arguments, **named)
            if not _is_internal():
                self._record("load", api, found, {**dict(zip(parameters, arguments)), **named}.get(path))
            return found

        return load

    def safetensors(self, module: Any) -> None:
        """Record the files of safetensors."""
        module.save_file = self.saving("safetensors.save_file", module.save_file, "tensors", "filename")
        module.load_file = self.loading("safetensors.load_file", module.load_file, "filename")

    def saver(self, module: Any) -> None:
        """Record what distributed checkpointing saves: with the state dicts in place of the objects that have one."""
        for name in ("save", "async_save", "save_state_dict"):
            if hasattr(module, name):
                setattr(module, name, self._around_saving(getattr(module, name)))
        if hasattr(module, "_stateful_to_state_dict"):
            module._stateful_to_state_dict = self._seen(module._stateful_to_state_dict)

    def _around_saving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(original).parameters)

        @functools.wraps(original)
        def save(*arguments: Any, **named: Any) -> Any:
            if _is_internal():
                return original(*arguments, **named)
            given = {**dict(zip(parameters, arguments)), **named}
            self._call.path = given.get("checkpoint_id") or given.get("storage_writer")
            if original.__name__ == "save_state_dict":
                self._saved(given.get("state_dict"))
            try:
                return original(*arguments, **named)
            finally:
                if "path" in vars(self._call):  # it failed before, or this torch has no such function
                    self._saved(given.get("state_dict"))

        return save

    def _seen(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def state_dicts(*arguments: Any, **named: Any) -> Any:
            found = original(*arguments, **named)
            if "path" in vars(self._call):
                self._saved(found)
            return found

        return state_dicts

    def _saved(self, state_dict: Any) -> None:
        self._record("save", "dcp.save", state_dict, vars(self._call).pop("path"))

    def loader(self, module: Any) -> None:
        """Record what distributed checkpointing puts into a state dict."""
        name = "_load_state_dict" if hasattr(module, "_load_state_dict") else "load_state_dict"
        original = getattr(module, name)
        parameters = list(inspect.signature(original).parameters)

        @functools.wraps(original)
        def load(*arguments: Any, **named: Any) -> Any:
            done = original(*arguments, **named)
            given = {**dict(zip(parameters, arguments)), **named}
            self._record("load", "dcp.load", given.get("state_dict"), given.get("storage_reader"))
            return done

        setattr(module, name, load)


def _is_internal() -> bool:
    """Whether torch itself makes the call that is two frames above."""
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("torch.")

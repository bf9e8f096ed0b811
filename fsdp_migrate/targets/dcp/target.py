"""The target `dcp` beyond single files: functions that give a context with a type to callers in other modules."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from fsdp_migrate.code.state_dicts.context_functions import context_function, of_function
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.source import NOTEBOOK_SUFFIX
from fsdp_migrate.targets.dcp.state_dict_type import RULE, told
from fsdp_migrate.transactions import Transaction
from fsdp_migrate.workspace.filesystem import FileError, SourceFile, printable
from fsdp_migrate.workspace.settings import Settings
from fsdp_migrate.workspace.workspace import Workspace

NAME = "dcp"
# What a function that gives a context has: the setting returned or named, or a decorator.
_GIVING = re.compile(rb"(?:return|=)[ (\\\r\n]*[\w.]+\.state_dict_type\(|contextmanager")
_SETTING = b".state_dict_type("


class ToDcp:
    """State dicts without `FSDP.state_dict_type`."""

    name = NAME

    def transactions(self, workspace: Workspace) -> Iterator[Transaction]:
        """One for each function that has callers in other files and that can go, or lose them."""
        shown = {os.path.abspath(file.path): file.shown for file in workspace.files}
        with workspace.modules.pinned():
            for file, settings in _asked_for(workspace):
                facts = workspace.modules.facts(os.path.abspath(file.path), settings.torch)
                if facts is not None:
                    yield from _of_module(facts, shown)


def concerns(workspace: Workspace) -> bool:
    """Whether a file may have such a function."""
    return next(_asked_for(workspace), None) is not None


def _asked_for(workspace: Workspace) -> Iterator[tuple[SourceFile, Settings]]:
    for file in workspace.code:
        if file.shown.endswith(NOTEBOOK_SUFFIX):
            continue
        try:
            raw = workspace.read(file)
        except FileError:
            continue  # which is told when it is planned
        if _SETTING in raw and _GIVING.search(raw):
            settings = workspace.settings(file, used=False)
            if settings.target == NAME:
                yield file, settings


def _of_module(facts: ModuleFacts, shown: Mapping[str, str]) -> Iterator[Transaction]:
    for setting in facts.fsdp.settings("state_dict_type"):
        function = context_function(facts, setting)
        new = None if function is None or not facts.reached(setting.call) else of_function(function)
        if new is None or isinstance(new, str) or len(new.fixes) < 2:
            continue
        found = told(facts, RULE.card, setting, new.verdict(facts.path), new.floor, new.functions)
        names = {path: shown.get(path) or printable(os.path.relpath(path)) for path in new.fixes}
        fixes = {names[path]: fix for path, fix in new.fixes.items()} if found.fix is not None else {}
        yield Transaction(found._replace(path=names[facts.path]), fixes)

"""Rewriting by a function that gives the whole report of a text, as a linter of a test's own or the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fsdp_migrate.findings import FileReport
from fsdp_migrate.planning import passes as engine
from fsdp_migrate.source import Source
from fsdp_migrate.workspace.settings import Settings

Lint = Callable[[bytes, str, Settings], FileReport]


class Whole(NamedTuple):
    """What such a function gave, all of it at once."""

    found: FileReport
    source: Source | None = None

    def fixable(self) -> FileReport:
        return self.found

    def report(self) -> FileReport:
        return self.found

    def close(self) -> None:
        pass


def rewrite(raw: bytes, path: str, settings: Settings, lint: Lint) -> engine.RewriteResult:
    """Rewrite one file by what `lint` finds."""
    return engine.rewrite(raw, path, settings, lambda text, source: Whole(lint(text, path, settings), source))

"""A target that gives a word another name in all files that have it, in one transaction for each word."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fsdp_migrate import runner
from fsdp_migrate.edits import Replace
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.report import Plan
from fsdp_migrate.source import Source, Span
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.transactions import CreatedFile, Transaction
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.filesystem import SourceFile
from fsdp_migrate.workspace.settings import Layer
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.nearest import ConfigFiles
from fsdp_migrate.workspace.workspace import Workspace


class Renaming:
    """New texts by old word; `grade` and `brings` are those of its transactions, which also create files."""

    name = "renaming"

    def __init__(
        self,
        words: Mapping[str, str],
        grade: Applicability = Applicability.SAFE,
        brings: frozenset[str] = frozenset(),
        creates: Mapping[str, str] | None = None,
    ) -> None:
        self.words = words
        self.grade = grade
        self.brings = brings
        self.creates = tuple(CreatedFile(SourceFile(path, path), text) for path, text in (creates or {}).items())

    def transactions(self, workspace: Workspace) -> Iterator[Transaction]:
        texts = {file.shown: Source(workspace.read(file)) for file in workspace.files}
        for word, new in self.words.items():
            found = {path: _places(source, word) for path, source in texts.items()}
            fixes = {path: Fix(tuple(Replace(span, new) for span in spans)) for path, spans in found.items() if spans}
            if fixes:
                first = next(iter(fixes))
                place = found[first][0]
                finding = _finding(first, texts[first], place, word, self.grade)
                yield Transaction(finding, fixes, (), self.brings, self.creates)


def _places(source: Source, word: str) -> list[Span]:
    found = re.finditer(rf"(?<!\w){word}(?!\w)".encode(), source.data)
    return [Span(match.start(), match.end()) for match in found]


def _finding(path: str, source: Source, span: Span, word: str, grade: Applicability) -> Finding:
    start, end = source.position(span.start), source.position(span.end)
    reason = "it is called otherwise" if grade is Applicability.UNSAFE else None
    place = (start.line, start.column, end.line, end.column)
    return Finding(
        "FSDP990", "renaming", f"`{word}` is old", Severity.DEPRECATED, grade, reason, path, span, span, *place
    )


def configuration(**options: object) -> Configuration:
    return Configuration(Layer(torch=TorchRange.parse(">=2.1"), **options), ConfigFiles(isolated=True))  # type: ignore[arg-type]


def rewrite(target: Renaming, tell: Callable[[str], None] = lambda line: None, **options: object) -> Plan:
    """Rewrite the current folder."""
    return runner.rewrite(filesystem.discover(["."]), configuration(**options), write=True, target=target, tell=tell)


def main() -> None:
    """Rewrite the current folder, `old` to `new`, and do as the arguments say when the second file is renamed."""
    import os
    import signal

    from fsdp_migrate.replacing import NewFile
    from fsdp_migrate.runner.writing import Interrupted

    number, place = getattr(signal, sys.argv[1]), int(sys.argv[2])
    creates = dict.fromkeys(sys.argv[3:], "made = True\n")
    real = NewFile.take_place_of
    calls: list[str] = []

    def take_place_of(self: NewFile, target: str) -> None:
        if Path(target).suffix == ".py":
            calls.append(target)
            if len(calls) == place:
                os.kill(os.getpid(), number)
        real(self, target)

    NewFile.take_place_of = take_place_of  # type: ignore[method-assign]
    try:
        rewrite(Renaming({"old": "new"}, creates=creates), lambda line: print(line, flush=True))
    except Interrupted as stop:
        print("written:", *stop.written)
        sys.exit(130)


if __name__ == "__main__":
    main()

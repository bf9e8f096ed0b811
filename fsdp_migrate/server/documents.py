"""What there is to say of the text of one file as an editor holds it. Nothing here knows of the protocol."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdp_migrate.findings import UNPARSABLE, Finding
from fsdp_migrate.planning.noqa import insertions
from fsdp_migrate.planning.passes import texts_of
from fsdp_migrate.planning.planner import Planner
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.runner.gathering import Gathered
from fsdp_migrate.source import Replacement, Source, SourceError, Span, declared_encoding, is_beside
from fsdp_migrate.transactions import Transaction
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.filesystem import Discovery, SourceFile
from fsdp_migrate.workspace.reading import read_source
from fsdp_migrate.workspace.settings import Layer
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.nearest import ConfigFiles
from fsdp_migrate.workspace.workspace import Workspace

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts


class Checked(NamedTuple):
    """A text with its findings; `error` tells why there are none, in one line."""

    source: Source
    findings: tuple[Finding, ...] = ()
    error: str | None = None


class Documents:
    """Checks texts that need not be saved. Settings are read anew each time, and so are the modules on disk."""

    def __init__(self, options: Layer, config_file: str | None = None, *, isolated: bool = False) -> None:
        """`options` are those of the command line."""
        self.options = options
        self._config_file = config_file
        self._isolated = isolated
        self.texts: dict[str, bytes] = {}

    def open(self, path: str, text: str) -> None:
        """Hold the text of a file, for itself and for those that import it."""
        try:
            self.texts[path] = text.encode("utf-8" if is_beside(path) else declared_encoding(text))
        except (UnicodeError, SourceError):
            # Half of a surrogate pair has no bytes that can be read: the check says so.
            self.texts[path] = text.encode(errors="surrogatepass")

    def close(self, path: str) -> None:
        """From now on the text on the disk counts."""
        self.texts.pop(path, None)

    def check(self, path: str) -> Checked:
        """The findings of a text, without hints that nobody wants and without what a baseline knows.

        Raises:
            ConfigFileError: a configuration file cannot be used.
            FileOptionError: a baseline cannot be read.
        """
        workspace, file = self._workspace(path)
        source = read_source(workspace.read(file), path)
        if filesystem.left_out(path, workspace.configuration.choice):
            return Checked(source)
        gathered = Gathered(workspace, [])
        for part in Planner(workspace, rewriting=False, files=[file]).parts():
            gathered.take(part)
        plan = gathered.plan()
        # While somebody types a text often does not parse, and the editor says so itself.
        findings = tuple(finding for finding in plan.findings if finding.code != UNPARSABLE)
        return Checked(source, findings, plan.failures[0].message if plan.failures and not plan.findings else None)

    def fix(self, finding: Finding, source: Source) -> list[Replacement]:
        """The changes that fix one finding; none if it has no fix, or one that changes other files too."""
        made = texts_of(Transaction.of(finding), lambda _: source)
        return [] if made is None else list(made[finding.path].replacements)

    def fixes(self, path: str, code: str | None = None) -> list[Replacement]:
        """The changes of all safe fixes in a text, or of those of one rule."""
        workspace, file = self._workspace(path)
        settings = workspace.settings(file)._replace(unsafe_fixes=False)
        if code is not None:
            settings = settings._replace(select=(code,), hints=True)
        raw = workspace.read(file)
        new = rewrite_bytes(raw, path, settings, workspace.view(file, settings)).raw
        return difference(read_source(raw, path), read_source(new, path))

    def silence(self, finding: Finding, source: Source) -> list[Replacement]:
        """The comment that silences a finding; none if no comment can."""
        return insertions(source, [finding])

    def name_at(self, path: str, offset: int) -> str | None:
        """The name of torch that the name, chain or import at a byte offset stands for, None if there is none."""
        workspace, file = self._workspace(path)
        facts = None if is_beside(path) else workspace.modules.facts(path, workspace.settings(file).torch)
        if facts is None:
            return None
        around: list[tuple[int, str]] = []
        for node in ast.walk(facts.source.tree):
            for place, name in _named(node, facts):
                span = facts.source.span(place)
                if span.start <= offset <= span.end:
                    around.append((span.end - span.start, name))
        name = min(around)[1] if around else ""
        return name if name.partition(".")[0] == "torch" else None

    def _workspace(self, path: str) -> tuple[Workspace, SourceFile]:
        configuration = Configuration(self.options, ConfigFiles(self._config_file, isolated=self._isolated))
        file = SourceFile(path, path)
        return Workspace(Discovery((file,)), configuration, self.texts), file


def _named(node: ast.AST, facts: ModuleFacts) -> Iterator[tuple[ast.AST, str]]:
    """The names that a node of the tree writes, and where."""
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from ((alias, f"{node.module}.{alias.name}") for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from ((alias, alias.name) for alias in node.names)
    elif isinstance(node, (ast.Name, ast.Attribute)) and (name := facts.names.qualified(node)) is not None:
        yield node, name


def difference(old: Source, new: Source) -> list[Replacement]:
    """What makes one text of another, line by line."""
    lines, others = ([line.encode() for line in source.text_lines] for source in (old, new))
    starts = [*old.line_starts[: len(lines)], len(old.data)]
    blocks = difflib.SequenceMatcher(None, lines, others, autojunk=False).get_opcodes()
    return [
        Replacement(Span(starts[first], starts[last]), b"".join(others[start:end]).decode())
        for kind, first, last, start, end in blocks
        if kind != "equal"
    ]

"""What has to hold for every text that is rewritten, checked by means that are not the program's own where there are any."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from pyflakes.checker import Checker
from pyflakes.messages import UndefinedLocal, UndefinedName, UnusedImport

from fsdp_migrate.edits import touched
from fsdp_migrate.facts.scopes import TRIES
from fsdp_migrate.findings import Applicability, FileReport, Finding, Severity
from fsdp_migrate.lint import FileCheck, lint_bytes
from fsdp_migrate.planning.parts import RewriteResult
from fsdp_migrate.planning.passes import rewrite
from fsdp_migrate.source import Source, Span
from fsdp_migrate.suppressions import is_silencing
from fsdp_migrate.workspace.notebook import Notebook
from fsdp_migrate.workspace.reading import read_source
from fsdp_migrate.workspace.settings import Settings
from tests import looks

PATH, NOTEBOOK = "fuzzed.py", "fuzzed.ipynb"

# Of what pyflakes says, only this can be a rewrite's doing: the rest is about the program as it was written.
BLAMED = frozenset(
    ["ImportShadowedByLoopVar", "LateFutureImport", "RedefinedWhileUnused", "UndefinedExport", "UnusedVariable"]
)  # fmt: skip
TWICE = "RedefinedWhileUnused"
SHADOWED = "ImportShadowedByLoopVar"
DEAD_GATE = "FSDP690"
_SUPPRESSION = re.compile(r"noqa|fsdp-migrate", re.IGNORECASE)
SUPPRESSES_NOTHING = "FSDP002"


def check(raw: bytes, settings: Settings, file: str = PATH) -> RewriteResult:
    """Rewrite `raw` and raise AssertionError where anything is lost, broken, or left in silence."""
    seen: list[tuple[bytes, FileReport]] = []

    class Watched(FileCheck):
        def __init__(self, text: bytes, source: Source | None) -> None:
            super().__init__(text, file, settings, source=source)
            self.text = text

        def close(self) -> None:
            seen.append((self.text, self.report()))
            super().close()

    result = rewrite(raw, file, settings, Watched)
    assert result == looks.rewrite(raw, file, settings, lint_bytes), "asking all rules each time gives something else"
    assert "internal" not in (result.error or ""), result.error
    assert not [finding for finding in result.left if "internal:" in (finding.reason or "")], result.left
    _check_places(raw, file, seen[0][1].findings)
    _check_remainder(result, settings, file)
    if result.raw == raw:
        return result
    for (before, report), (after, _) in pairwise(seen):
        _check_untouched(read_source(before, file), report, read_source(after, file))
    for old, new in zip(read_source(raw, file).modules, read_source(result.raw, file).modules, strict=True):
        _check_text(old.text, new.text, result)
    again = looks.rewrite(result.raw, file, settings, lint_bytes)
    assert again.raw == result.raw, "a second run changes the text again"
    return result


def _check_places(raw: bytes, file: str, findings: tuple[Finding, ...]) -> None:
    """Findings lie inside the text, and say what they are."""
    if not findings:
        return
    source = read_source(raw, file)
    for finding in findings:
        assert 0 <= finding.span.start <= finding.span.end <= len(source.data), finding
        # The last line may be one with nothing on it.
        lines = [*source.lines(finding.cell), ""]
        assert 1 <= finding.line <= finding.end_line <= len(lines), finding
        assert 1 <= finding.column <= len(lines[finding.line - 1]) + 1, finding
        assert (finding.reason is None) == (finding.applicability is Applicability.SAFE), finding
        assert (finding.fix is None) == (finding.applicability is Applicability.MANUAL), finding


def _check_remainder(result: RewriteResult, settings: Settings, file: str) -> None:
    """What a lint of the new text finds is what was declared left, and none of it could have been fixed."""
    report = lint_bytes(result.raw, file, settings)
    assert [_told(finding) for finding in report.findings] == [_told(finding) for finding in result.left]
    if report.error is not None or report.failed:
        return
    fixable = {Applicability.SAFE, Applicability.UNSAFE} if settings.unsafe_fixes else {Applicability.SAFE}
    shown = (f for f in result.left if settings.hints or f.severity is not Severity.HINT)
    assert not [finding for finding in shown if finding.applicability in fixable]


def _told(finding: Finding) -> tuple[str, int, int, str]:
    return finding.code, finding.span.start, finding.span.end, finding.message


def _check_untouched(source: Source, report: FileReport, after: Source) -> None:
    """The lines that no fix of a pass speaks of are there afterwards, byte for byte and in order.

    Blank lines apart: with an import that goes those below it give way to those above. And comments between two
    statements that come to share a block go along with them.
    """
    rows = _rows(source, [span for finding in report.findings for span in _claimed(finding)])
    blank = {number for number, line in enumerate(source.text_lines) if not line.strip()}
    comments = {number for number, line in enumerate(source.text_lines) if line.strip().startswith("#")}
    for number in sorted(comments):
        around = (range(number - 1, -1, -1), range(number + 1, len(source.text_lines)))
        if all(next((row in rows for row in way if row not in blank | comments), False) for way in around):
            rows.add(number)
    kept = [line for number, line in enumerate(source.text_lines) if number not in rows | blank]
    found, in_cells = iter(after.text_lines), isinstance(after, Notebook)
    for line in kept:
        assert any(_is_same(line, other, in_cells) for other in found), f"the line {line!r} was touched"


def _is_same(line: str, other: str, in_cells: bool) -> bool:
    """Whether two lines are the same; the last one of a text or cell has no newline of its own, and others come to be it."""
    if line.rstrip("\r\n") != other.rstrip("\r\n"):
        return False
    is_last = not all(text.endswith(("\r", "\n")) for text in (line, other))
    met = line.endswith("\r") and other.endswith("\r\n")  # the newline of a blank line below, once nothing is between
    return line == other or is_last or in_cells or met


def _claimed(finding: Finding) -> Iterator[Span]:
    """What the fix of a finding may change."""
    if finding.fix is None:
        return
    for edit in finding.fix.edits:
        yield from touched(edit)
    yield from (use.binding.statement for use in finding.fix.removed_uses)
    yield from (statement for statement, _ in finding.fix.moves)


def _rows(source: Source, spans: list[Span]) -> set[int]:
    """The lines, from 0, that `spans` touch."""
    rows: set[int] = set()
    for span in spans:
        rows.update(range(source.position(span.start).line - 1, source.position(span.end).line))
    return rows


def _check_text(before: str, after: str, result: RewriteResult) -> None:
    """The new text is a program where the old one was, with its comments, and without names that nobody defines."""
    assert _compiles(after) or not _compiles(before), "the new text does not compile"
    _check_comments(_comments(before) - _gone_with_names(before, after), _comments(after), result)
    staying = _mentioned(before)
    old, new = _complaints(before), _complaints(after, staying)
    if not old.undefined.isdisjoint(old.imported):
        return  # something runs before its import: that was no program
    assert new.undefined <= old.undefined, f"nobody defines {new.undefined - old.undefined}"
    # A gate says on its card that imports stay; one that stays for a comment is told of once that is taken away.
    if not any(finding.code in (DEAD_GATE, SUPPRESSES_NOTHING) for finding in result.fixed):
        assert new.unused <= old.unused, f"{new.unused - old.unused} more imports are unused"
    # What joins an import is told of as that is: there twice, or in a loop.
    joined = {kind for kind, _ in old.others if kind in (TWICE, SHADOWED)}
    for told in [told for told in new.others if told[0] in joined or (told[0] == TWICE and told[1] in staying)]:
        del new.others[told]
    fresh = new.others - old.others
    assert not fresh, f"pyflakes says of the new text: {dict(fresh)}"


def _compiles(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, PATH, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _check_comments(before: Counter[str], after: Counter[str], result: RewriteResult) -> None:
    """All comments are there, apart from suppressions that were taken away, of which the rest of their text stays."""
    if any(finding.code == SUPPRESSES_NOTHING for finding in result.fixed):
        before = Counter({text: count for text, count in before.items() if not _SUPPRESSION.search(text)})
        after &= before
    # Where an import is split, each part needs what silences a tool.
    doubled = {text for text in after - before if not is_silencing(text)}
    faulty = doubled.union(before - after)
    assert not faulty, f"comments were lost or doubled: {faulty}"


def _comments(text: str) -> Counter[str]:
    return Counter(text for _, text in _placed_comments(text))


def _placed_comments(text: str) -> Iterator[tuple[int, str]]:
    # Universal newlines make all of Python's line ends the one that tokenize knows.
    lines = io.StringIO(text, newline=None).readline
    tokens = tokenize.generate_tokens(lines)
    yield from ((token.start[0], token.string.rstrip()) for token in tokens if token.type == tokenize.COMMENT)


def _gone_with_names(before: str, after: str) -> Counter[str]:
    """The comments behind names, in imports over several lines, that the new text imports no more."""
    old, new = (
        {alias for alias in ast.walk(ast.parse(text)) if isinstance(alias, ast.alias)} for text in (before, after)
    )
    kept = {alias.asname or alias.name for alias in new}
    rows = {alias.lineno for alias in old if (alias.asname or alias.name) not in kept}
    return Counter(text for row, text in _placed_comments(before) if row in rows)


@dataclass
class _Complaints:
    """What pyflakes says about a text."""

    imported: set[str]
    undefined: set[str] = field(default_factory=set)
    unused: int = 0
    others: Counter[tuple[str, str]] = field(default_factory=Counter)


def _complaints(text: str, mentioned: frozenset[str] = frozenset()) -> _Complaints:
    """What pyflakes says, apart from imports that stay on purpose: of names that are `mentioned`, or guarded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
        messages = Checker(tree, PATH).messages
    staying = _guarded_imports(tree) | _commented_imports(tree, text)
    aliases = (node for node in ast.walk(tree) if isinstance(node, ast.alias))
    found = _Complaints({alias.asname or alias.name.partition(".")[0] for alias in aliases})
    for message in messages:
        subject = str(message.message_args[0]) if message.message_args else ""
        if isinstance(message, UnusedImport):
            # Counted only: an import that nothing used before may have another name or place now.
            bound = re.split(r"[ .]", subject)[-1]
            found.unused += message.lineno not in staying and not {bound, subject} & mentioned
        elif isinstance(message, (UndefinedLocal, UndefinedName)):
            found.undefined.add(subject)
        elif (kind := type(message).__name__) in BLAMED:
            found.others[kind, subject] += 1
    return found


def _mentioned(text: str) -> frozenset[str]:
    """Names whose imports stay: the words in strings and comments, what is imported as itself or twice, `import a.b`, `global a`."""
    words: set[str] = set()
    for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
        if token.type == tokenize.COMMENT or tokenize.tok_name[token.type] in ("STRING", "FSTRING_MIDDLE"):
            words.update(re.findall(r"\w+", token.string))
    nodes = list(ast.walk(ast.parse(text)))
    words.update(name for node in nodes if isinstance(node, ast.Global) for name in node.names)
    aliases = [node for node in nodes if isinstance(node, ast.alias)]
    times = Counter(alias.asname or alias.name for alias in aliases)
    words.update(name for name, count in times.items() if count > 1)
    words.update(alias.name for alias in aliases if alias.asname in (alias.name, None) and "." in alias.name)
    return frozenset(words | {alias.name for alias in aliases if alias.name == alias.asname})


def _commented_imports(tree: ast.Module, text: str) -> set[int]:
    """The first lines of imports with a comment in or behind them: it would be lost with them."""
    tokens = tokenize.generate_tokens(io.StringIO(text, newline=None).readline)
    lines = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    imports = (node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
    return {node.lineno for node in imports if not lines.isdisjoint(range(node.lineno, (node.end_lineno or 0) + 1))}


def _guarded_imports(tree: ast.Module) -> set[int]:
    """The lines of imports that something decides on: those stay even if nothing uses them."""
    deciding = (ast.If, *TRIES, ast.With, ast.For, ast.While, ast.Match)
    inside = (node for block in ast.walk(tree) if isinstance(block, deciding) for node in ast.walk(block))
    return {node.lineno for node in inside if isinstance(node, (ast.Import, ast.ImportFrom))}

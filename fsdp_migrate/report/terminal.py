"""Findings on a terminal: the line of code with a caret under it, in colour where the terminal has any."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from fsdp_migrate.findings import Applicability, Finding, Severity
from fsdp_migrate.report import Run, plain
from fsdp_migrate.source import Source, SourceError, read_source

_TAB = 4

_SEVERITY_STYLE = {
    Severity.BREAKS: "bold red",
    Severity.CHANGES: "bold red",
    Severity.DEPRECATED: "bold yellow",
    Severity.HINT: "bold cyan",
}

_REMEDY_STYLE = {Applicability.SAFE: "green", Applicability.UNSAFE: "yellow", Applicability.MANUAL: "magenta"}


def console() -> Console:
    """A console on stdout that prints text as it is given (NO_COLOR is honoured by rich)."""
    # Colours of the terminal's own palette only: they can be read on any background.
    theme = Theme({"markdown.code": "cyan"})
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, theme=theme)


def print_findings(to: Console, run: Run) -> None:
    """Print each finding with its frame."""
    _print_framed(to, run.findings, _by_path(run))


def print_rewrite(to: Console, run: Run, *, quiet: bool) -> None:
    """Print file by file one line for what was fixed (unless `quiet`) and a frame for what is left."""
    sources = _by_path(run)
    for fixed, left in run.by_file():
        if fixed and not quiet:
            for finding in fixed:
                to.print(_head(finding).append(" [fixed]", "green"))
            to.print()
        _print_framed(to, left, sources)


def print_diff(to: Console, diff: bytes) -> None:
    """Print a unified diff in the usual colours."""
    styles = {"---": "bold", "+++": "bold", "@@": "cyan", "-": "red", "+": "green"}
    for line in diff.decode("utf-8", "replace").split("\n")[:-1]:
        style = next((style for start, style in styles.items() if line.startswith(start)), "")
        to.print(Text(_visible(line.removesuffix("\r")), style))


def _print_framed(to: Console, findings: Iterable[Finding], sources: dict[str, Source]) -> None:
    for finding in findings:
        to.print(_head(finding))
        lines = sources[finding.path].lines(finding.cell) if finding.path in sources else []
        gutter = " " * len(str(finding.line))
        if finding.line <= len(lines):
            to.print(_frame(finding, lines[finding.line - 1].rstrip("\r\n"), gutter, to.width))
        remedy = Text.assemble((f"{gutter} = ", "blue"), (plain.remedy(finding), _REMEDY_STYLE[finding.applicability]))
        to.print(remedy, end="\n\n")


def _head(finding: Finding) -> Text:
    style = _SEVERITY_STYLE[finding.severity]
    return Text.assemble((plain.place(finding), "bold"), ": ", (finding.code, style), f" {finding.message}")


def _frame(finding: Finding, line: str, gutter: str, width: int) -> Text:
    """The finding's first line, cut to `width` around its start, with carets under what is meant."""
    line = _visible(line)
    last = finding.end_column - 1 if finding.end_line == finding.line else len(line.rstrip())
    start = cell_len(line[: finding.column - 1].expandtabs(_TAB))
    length = max(1, cell_len(line[:last].expandtabs(_TAB)) - start)
    text, cut = _window(line.expandtabs(_TAB), start, max(20, width - len(gutter) - 3))
    carets = "^" * min(length, max(1, cell_len(text) - (start - cut)))
    return Text.assemble(
        (f"{gutter} |\n{finding.line} | ", "blue"),
        f"{text}\n",
        (f"{gutter} | ", "blue"),
        (" " * (start - cut) + carets, _SEVERITY_STYLE[finding.severity]),
    )


def _window(text: str, start: int, width: int) -> tuple[str, int]:
    """At most `width` cells of `text` such that cell `start` is among them, and how many cells were cut in front."""
    cut = 0
    if start > width * 2 // 3:
        index = 0
        while cut < start - width // 3:
            cut += cell_len(text[index])
            index += 1
        # The mark of the cut stands in the place of the last character taken away, which may be two cells wide.
        mark = set_cell_size("<", cell_len(text[index - 1]))
        cut -= cell_len(mark)
        text = mark + text[index:]
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + ">"
    return text, cut


def _by_path(run: Run) -> dict[str, Source]:
    sources = {}
    for path, raw in run.sources.items():
        with contextlib.suppress(SourceError):
            sources[path] = read_source(raw, path)
    return sources


def _visible(text: str) -> str:
    """`text` without what would move the cursor or colour the terminal."""
    return "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in text)

"""Findings on a terminal: the line of code with a caret below it, in colour if the terminal has any."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from fsdp_migrate.findings import Applicability, Finding, Severity
from fsdp_migrate.report import Plan, plain
from fsdp_migrate.workspace.filesystem import printable

_TAB = 4

_SEVERITY_STYLE = {
    Severity.BREAKS: "bold red",
    Severity.CHANGES: "bold red",
    Severity.DEPRECATED: "bold yellow",
    Severity.HINT: "bold cyan",
}

_REMEDY_STYLE = {Applicability.SAFE: "green", Applicability.UNSAFE: "yellow", Applicability.MANUAL: "magenta"}


def console() -> Console:
    """A console on stdout that prints text as it is (rich honours NO_COLOR)."""
    # Colours of the terminal's own palette only: they can be read on any background.
    theme = Theme({"markdown.code": "cyan"})
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, theme=theme)


def print_findings(to: Console, plan: Plan) -> None:
    """Print each finding with its frame."""
    _print_framed(to, plan.findings, plan)


def print_rewrite(to: Console, plan: Plan, *, quiet: bool, frames: bool = True) -> None:
    """Print file by file a line for what was fixed (unless `quiet`), and a frame or a line for what is left."""
    for fixed, left in plan.by_file():
        if fixed and not quiet:
            for finding in fixed:
                to.print(_head(finding).append(" [fixed]", "green"))
            if frames:
                to.print()
        if frames:
            _print_framed(to, left, plan)
        else:
            _print_lines(to, left)


def print_diff(to: Console, diff: bytes) -> None:
    """Print a unified diff in the usual colours."""
    styles = {"---": "bold", "+++": "bold", "@@": "cyan", "-": "red", "+": "green"}
    for line in diff.decode("utf-8", "replace").split("\n")[:-1]:
        style = next((style for start, style in styles.items() if line.startswith(start)), "")
        to.print(Text(_visible(line.removesuffix("\r")), style))


def print_lines(to: Console, plan: Plan) -> None:
    """Print each finding on a line of its own."""
    _print_lines(to, plan.findings)


def _print_lines(to: Console, findings: Iterable[Finding]) -> None:
    for finding in findings:
        to.print(_head(finding).append(" [").append_text(_remedy(finding)).append("]"))


def _print_framed(to: Console, findings: Iterable[Finding], plan: Plan) -> None:
    for path, members in groupby(findings, lambda finding: finding.path):
        source = plan.source(path)
        for finding in members:
            lines = [] if source is None else source.lines(finding.cell)
            to.print(_head(finding))
            gutter = " " * len(str(finding.line))
            if finding.line <= len(lines):
                to.print(_frame(finding, lines[finding.line - 1].rstrip("\r\n"), gutter, to.width))
            to.print(Text.assemble((f"{gutter} = ", "blue"), _remedy(finding)), end="\n\n")


def _head(finding: Finding) -> Text:
    style = _SEVERITY_STYLE[finding.severity]
    return Text.assemble(
        (plain.shown_place(finding), "bold"), ": ", (finding.code, style), f" {printable(finding.message)}"
    )


def _remedy(finding: Finding) -> Text:
    return Text(plain.remedy(finding), _REMEDY_STYLE[finding.applicability])


def _frame(finding: Finding, line: str, gutter: str, width: int) -> Text:
    """The finding's first line, cut to `width` around its start, with carets below the place."""
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
    """At most `width` cells of `text` around the cell `start`, and how many cells before them are cut off."""
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


def _visible(text: str) -> str:
    """`text` without characters that move the cursor or set colours."""
    return "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in text)

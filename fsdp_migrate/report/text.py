"""The report for people: framed code on a terminal, plain lines elsewhere. rich is only loaded for the former."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fsdp_migrate.findings import UNPARSABLE, Applicability, Severity
from fsdp_migrate.report import Plan, plain

if TYPE_CHECKING:
    from fsdp_migrate.findings import Severity
    from fsdp_migrate.rules.card import RuleCard


def drawn() -> bool:
    """Whether to print for a terminal: stdout is one, or FORCE_COLOR is set."""
    return sys.stdout.isatty() or os.environ.get("FORCE_COLOR", "") != ""


def print_lint(plan: Plan, *, quiet: bool, statistics: bool, frames: bool) -> None:
    """Print the findings, or only how many of each rule; then the closing sentence unless `quiet`.

    On a terminal each finding gets the frame of its code, if `frames` are wanted.
    """
    if statistics:
        _print(plain.statistics(plan))
        print_unparsable(plan)
    elif plan.findings and drawn():
        from fsdp_migrate.report import terminal

        show = terminal.print_findings if frames else terminal.print_lines
        show(terminal.console(), plan)
    else:
        _print(plain.finding_line(finding) for finding in plan.findings)
    print_closing(plan, plain.lint_summary(plan), quiet=quiet)


def print_rewrite(plan: Plan, *, quiet: bool, frames: bool) -> None:
    """Print file by file what was fixed (unless `quiet`) and what is left; then the closing sentence unless `quiet`.

    On a terminal each finding that is left gets the frame of its code, if `frames` are wanted.
    """
    if (plan.findings or (plan.fixed and not quiet)) and drawn():
        from fsdp_migrate.report import terminal

        terminal.print_rewrite(terminal.console(), plan, quiet=quiet, frames=frames)
    else:
        _print(plain.rewrite_lines(plan, quiet=quiet))
    print_closing(plan, plain.rewrite_summary(plan, done=True), quiet=quiet)


def print_closing(plan: Plan, summary: Iterable[str], *, quiet: bool) -> None:
    """Print what comes after the findings: failures, and unless `quiet` warnings and the closing sentence."""
    print_failures(plan)
    if not quiet:
        print_warnings(plan)
        print_gone(plan)
        _print(summary)


def print_suppressed(findings: int, files: int) -> None:
    """Print what `--add-noqa` did, and to stderr the setting that ruff needs."""
    _print([plain.suppressed_line(findings, files)])
    if files:
        _print([plain.RUFF_NOTE], error=True)


def print_interrupted(written: Sequence[str], files: int) -> None:
    """Print to stderr what a run that was interrupted wrote."""
    if sys.stderr.isatty():
        _print([""], error=True)  # the terminal shows ^C on the line
    _print(plain.interrupted_lines(written, files), error=True)


def print_left(plan: Plan) -> None:
    """Print to stderr what a rewrite leaves, for runs that print the new text to stdout."""
    _print((plain.finding_line(finding) for finding in plan.findings), error=True)
    print_failures(plan)


def print_failures(plan: Plan) -> None:
    """Print to stderr which files failed and why."""
    _print((plain.failure_line(failure) for failure in plan.failures), error=True)


def print_warnings(plan: Plan) -> None:
    """Print to stderr which project files were not understood."""
    _print(plain.warning_lines(plan), error=True)


def print_notices(lines: Iterable[str]) -> None:
    """Print lines to stderr that are not part of the report."""
    _print(lines, error=True)


def print_notice(line: str) -> None:
    """Print a line to stderr that is not part of the report."""
    print_notices([line])


def print_gone(plan: Plan) -> None:
    """Print to stderr which entries of the baseline no longer occur."""
    _print(plain.gone_lines(plan), error=True)


def print_ranges(plan: Plan) -> None:
    """Print the torch range of each project and where it comes from."""
    print_failures(plan)
    print_warnings(plan)
    _print(plain.range_lines(plan))


def print_unparsable(plan: Plan) -> None:
    """Print to stderr which files do not parse, for runs that list no findings."""
    lines = (plain.finding_line(finding) for finding in plan.findings if finding.code == UNPARSABLE)
    _print(lines, error=True)


def print_preview_summary(plan: Plan) -> None:
    """Print to stderr what a rewrite would do, and why not more, for runs that print a diff to stdout."""
    print_warnings(plan)
    unsafe = (f for f in plan.findings if f.applicability is Applicability.UNSAFE and f.severity is not Severity.HINT)
    _print(map(plain.finding_line, unsafe), error=True)
    _print(plain.rewrite_summary(plan, done=False), error=True)


def print_diff(diff: bytes) -> None:
    """Print a unified diff: in its exact bytes to a pipe, even with FORCE_COLOR, and in colour on a terminal."""
    if diff and sys.stdout.isatty():
        from fsdp_migrate.report import terminal

        terminal.print_diff(terminal.console(), diff)
    else:
        write_bytes(diff)


def print_card(card: RuleCard, severity: Severity) -> None:
    """Print a rule's card, for a torch range on which it has this severity."""
    from fsdp_migrate.report import cards

    if drawn():
        from fsdp_migrate.report import terminal

        cards.print_card(terminal.console(), card, severity)
    else:
        _print([cards.card_text(card, severity)])


def print_rules(known: Iterable[RuleCard]) -> None:
    """Print the table of rules."""
    from fsdp_migrate.report import cards

    if drawn():
        from fsdp_migrate.report import terminal

        cards.print_table(terminal.console(), known)
    else:
        _print([cards.table_text(known)])


def print_document(document: str) -> None:
    """Print a whole document, such as JSON."""
    _print([document])


def write_bytes(raw: bytes) -> None:
    """Put `raw` on stdout as it is, without translating newlines or encodings."""
    sys.stdout.flush()
    sys.stdout.buffer.write(raw)
    sys.stdout.buffer.flush()


def _print(lines: Iterable[str], *, error: bool = False) -> None:
    sys.stdout.flush()
    stream = sys.stderr if error else sys.stdout
    for line in lines:
        stream.write(line + "\n")
    stream.flush()

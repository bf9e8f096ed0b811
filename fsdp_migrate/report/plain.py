"""Text for pipes and logs: one line per finding, and a closing sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fsdp_migrate.findings import Applicability, Finding, Severity
from fsdp_migrate.report import Plan
from fsdp_migrate.workspace.filesystem import Failure, printable

MOST_NOTES = 4
# Without it ruff takes the comments away that `--add-noqa` writes.
RUFF_NOTE = (
    'note: if you use ruff too, put external = ["FSDP"] under [tool.ruff.lint]: it removes codes it does not know'
)


def finding_line(finding: Finding) -> str:
    """`path:line:column: CODE message [severity, what can be done]`."""
    return f"{shown_place(finding)}: {finding.code} {printable(finding.message)} [{remedy(finding)}]"


def fixed_line(finding: Finding) -> str:
    """The line of a finding that a rewrite fixed."""
    return f"{shown_place(finding)}: {finding.code} {printable(finding.message)} [fixed]"


def failure_line(failure: Failure) -> str:
    """`error: path: what went wrong`."""
    return f"error: {failure.path}: {printable(failure.message)}"


def shown_place(finding: Finding) -> str:
    """`path:line:column`, as terminals and editors link it; in a notebook `path:cell N:line:column`."""
    cell = "" if finding.cell is None else f"cell {finding.cell}:"
    return f"{finding.path}:{cell}{finding.line}:{finding.column}"


def remedy(finding: Finding) -> str:
    """The severity of a finding and what can be done about it, with the reason unless the fix is safe."""
    kinds = {Applicability.SAFE: "fixable", Applicability.UNSAFE: "unsafe fix", Applicability.MANUAL: "manual"}
    words = [finding.severity.value, kinds[finding.applicability]]
    if finding.severity is Severity.HINT and finding.applicability is Applicability.MANUAL:
        del words[1]
    if finding.ran is not None:
        words.append("ran" if finding.ran else "did not run")
    told = ", ".join(words)
    return f"{told}: {printable(finding.reason)}" if finding.reason else told


def rewrite_lines(plan: Plan, *, quiet: bool) -> Iterator[str]:
    """The findings that were fixed (unless `quiet`) and those left, a line each, file by file."""
    for fixed, left in plan.by_file():
        if not quiet:
            yield from map(fixed_line, fixed)
        yield from map(finding_line, left)


def gone_lines(plan: Plan) -> list[str]:
    """One line for each entry of the baseline that no longer occurs."""
    return [f"{known.path}: no longer in the code: {entry}" for known in plan.known for entry in known.gone]


def statistics(plan: Plan) -> Iterator[str]:
    """One line per rule, the most frequent first: count, code, name, and how many can be fixed."""
    counts = Counter((finding.code, finding.name) for finding in plan.findings)
    width = len(str(max(counts.values(), default=0)))
    for (code, name), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        kinds = _kinds(finding for finding in plan.findings if finding.code == code)
        yield f"{count:>{width}}  {code}  {name} ({kinds})"


def lint_summary(plan: Plan) -> list[str]:
    """The closing lines of `lint`: how much was found, what was left out, and what to run next."""
    if not plan.files_checked and not plan.failures:
        return ["No Python files to check."]
    tally = plan.tally
    if tally.findings:
        among = {finding.path for finding in plan.findings if finding.severity is not Severity.HINT}
        where = _of_files(len(among), plan.files_checked)
        head = f"Found {counted(tally.findings, 'finding')} in {where}: {_by_kind(plan)}"
    elif any(map(plan.fails, plan.findings)):
        where = _of_files(len({finding.path for finding in plan.findings}), plan.files_checked)
        return [_sentence(f"Found {counted(tally.hints, 'hint')} in {where}", plan, hints=False), *notes(plan)]
    else:
        what = "No new findings" if any(known.findings for known in plan.known) else "No findings"
        head = f"{what} in {counted(plan.files_checked, 'file')}"
    lines = [_sentence(head, plan)]
    if tally.safe or tally.unsafe:
        lines.append(_advice(plan))
    return [*lines, *notes(plan)]


def _trace_lines(plan: Plan) -> list[str]:
    """What became of the trace."""
    traced = plan.traced
    if traced is None:
        return []
    parts = [f"The trace has calls at {counted(traced.places, 'place')}"]
    shown = sum(finding.by_run for finding in plan.findings)
    if shown:
        parts.append(f"{counted(shown, 'finding')} only it shows")
    ran = sum(finding.ran is True for finding in plan.findings)
    parts.append(f"the code of {ran} of {counted(len(plan.findings), 'finding')} ran")
    if traced.elsewhere:
        parts.append(f"{counted(traced.elsewhere, 'place')} outside of these files")
    if traced.changed:
        files = counted(len(traced.changed), "file")
        parts.append(f"{files} changed since, so that {counted(traced.left_out, 'place')} more did not count")
    return ["; ".join(parts) + "."]


def rewrite_summary(plan: Plan, *, done: bool) -> list[str]:
    """The closing lines of `rewrite`; `done` says that the files were written."""
    if not plan.files_checked and not plan.failures:
        return ["No Python files to rewrite."]
    if plan.fixed or plan.changed:
        verb = "Fixed" if done else "Would fix"
        head = f"{verb} {counted(len(plan.fixed), 'finding')} in {_of_files(len(plan.changed), plan.files_checked)}"
    else:
        head = f"Nothing to rewrite in {counted(plan.files_checked, 'file')}"
    tally = plan.tally
    if tally.findings:
        head += f"; {counted(tally.findings, 'finding')} left: {_by_kind(plan)}"
    lines = [_sentence(head, plan)]
    if tally.unsafe:
        lines.append(f"{_unsafe_advice(plan, tally.unsafe)} more.")
    return [*lines, *notes(plan)]


def suppressed_line(findings: int, files: int) -> str:
    """What `--add-noqa` did."""
    return f"Suppressed {counted(findings, 'finding')} in {counted(files, 'file')}."


def interrupted_lines(written: Sequence[str], files: int) -> list[str]:
    """The files that an interrupted run wrote, one per line, and that there are no others."""
    if not written:
        return ["Interrupted: no file was written."]
    told = f"Interrupted: {len(written)} of {counted(files, 'file')} written, each as a whole"
    return [*(f"written: {path}" for path in written), f"{told}; the others did not change. Run again for the rest."]


def baseline_summary(plan: Plan) -> list[str]:
    """The closing line of a run that wrote a baseline."""
    head = "; ".join(f"Wrote {known.path} with {counted(known.findings, 'finding')}" for known in plan.known)
    return [_sentence(head, plan._replace(known=(), without_hints=False))]


def notes(plan: Plan) -> list[str]:
    """Notes on the torch ranges that were used, at most `MOST_NOTES` lines of a kind."""
    traced = _trace_lines(plan)
    floors = _few([f"{floor}." for floor in plan.floors], "--output-format json")
    return traced + floors + _few([f"{p.note}." for p in plan.projects if p.note is not None], "--show-torch-range")


def _few(lines: list[str], lister: str) -> list[str]:
    """At most `MOST_NOTES` of lines that say the same about projects."""
    if len(lines) <= MOST_NOTES:
        return lines
    more = counted(len(lines) - MOST_NOTES + 1, "project")
    return [*lines[: MOST_NOTES - 1], f"{more} more have the same reason; {lister} lists them."]


def warning_lines(plan: Plan) -> list[str]:
    """`warning: what was not understood, and in which file`."""
    return [f"warning: {printable(warning)}" for warning in plan.warnings]


def range_lines(plan: Plan) -> list[str]:
    """`project: torch range (where it comes from)`."""
    if not plan.projects:
        return [f"all files: torch{plan.torch}"]
    return [f"{project.root}: torch{project.torch} ({project.source})" for project in plan.projects]


def _advice(plan: Plan) -> str:
    tally, agreed = plan.tally, plan.agreed_unsafe
    fixed, on_request = tally.safe + agreed, tally.unsafe - agreed
    if not fixed:
        return f"{_unsafe_advice(plan, on_request)}."
    more = f", with --unsafe-fixes {on_request} more" if on_request else ""
    return f"`fsdp-migrate rewrite{_target(plan)}` fixes {fixed}{more}; add --diff for a preview."


def _unsafe_advice(plan: Plan, number: int) -> str:
    command = f"fsdp-migrate rewrite{_target(plan)} --unsafe-fixes"
    return f"Read the reasons of the unsafe fixes; `{command}` fixes {number}"


def _target(plan: Plan) -> str:
    return "" if plan.target is None else f" --target {plan.target}"


def _by_kind(plan: Plan) -> str:
    return _kinds(finding for finding in plan.findings if finding.severity is not Severity.HINT)


def _kinds(findings: Iterable[Finding]) -> str:
    names = {Applicability.SAFE: "fixable", Applicability.UNSAFE: "unsafe to fix", Applicability.MANUAL: "manual"}
    kinds = Counter("hint" if f.severity is Severity.HINT else names[f.applicability] for f in findings)
    return ", ".join(f"{kinds[name]} {name}" for name in (*names.values(), "hint") if kinds[name])


def _sentence(head: str, plan: Plan, *, hints: bool = True) -> str:
    """`head` and what the findings do not show: suppressed findings, `hints`, failed files."""
    parts = [head]
    parts += [f"{known.findings} known from {known.path}" for known in plan.known if known.findings]
    if plan.suppressed:
        parts.append(f"{plan.suppressed} suppressed by comments")
    if hints and plan.tally.hints:
        parts.append(counted(plan.tally.hints, "hint"))
    if plan.without_hints:
        parts.append("hints were not looked for (--hints)")
    failed = len({failure.path for failure in plan.failures})
    if failed:
        parts.append(f"{counted(failed, 'file')} failed")
    return "; ".join(parts) + "."


def _of_files(some: int, every: int) -> str:
    return f"{some} of {counted(every, 'file')}"


def counted(number: int, noun: str) -> str:
    """A number of things: "1 file", "2 files"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

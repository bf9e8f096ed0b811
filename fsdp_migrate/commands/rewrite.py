"""The command `rewrite`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fsdp_migrate import runner
from fsdp_migrate.commands.effort import EXIT_CODES, with_effort
from fsdp_migrate.commands.options import Request, interrupts, report_format, shared, usage_errors, watched
from fsdp_migrate.planning.planner import Effort
from fsdp_migrate.report import plain, text
from fsdp_migrate.report.output import REWRITE_FORMATS

if TYPE_CHECKING:
    from fsdp_migrate.planning.choosing import Chooser


@click.command(
    short_help="Fix what can be fixed, and list what is left.",
    epilog=f"""\b
Examples:
  fsdp-migrate rewrite --diff src/
  fsdp-migrate rewrite --diff --output-file fsdp.patch src/
  fsdp-migrate rewrite src/
  fsdp-migrate rewrite --interactive src/
  fsdp-migrate rewrite --unsafe-fixes --select FSDP201 src/train.py

{EXIT_CODES}
With --diff or --check, 1 means that a file would change.""",
)
@shared
@report_format(REWRITE_FORMATS)
@click.option("--diff", is_flag=True, help="Print a unified diff for `git apply`; change no file.")
@click.option("--check", is_flag=True, help="Write and print nothing; the exit code says whether a file would change.")
@click.option(
    "--unsafe-fixes/--no-unsafe-fixes",
    default=None,
    help="Also apply fixes with an observable effect.",
)
@click.option("-i", "--interactive", is_flag=True, help="Ask about each fix, on a terminal.")
@with_effort
def rewrite(request: Request, effort: Effort, diff: bool, check: bool, interactive: bool) -> None:
    """Fix the files in PATHS (default: the current folder) in place, and list the remaining findings.

    '-' reads stdin and prints the new text.
    """
    output = request.output
    takes_diffs = output.for_people or output.format == "json"
    if (not output.for_people or output.file is not None) and not (diff and takes_diffs and not check):
        what = f"--output-format {output.format}" if not output.for_people else "--output-file"
        if diff or check or request.stdin is not None:
            other = "--check or '-'" if takes_diffs else "--diff, --check or '-'"
            raise click.UsageError(f"{what} cannot be combined with {other}")
    preview = diff or check
    write = not (preview or request.stdin is not None)
    chooser = _asking(alone=write and output.for_people and output.file is None) if interactive else None
    if interactive and not output.quiet:
        text.print_notice(f"Looking for fixes in {plain.counted(len(request.discovery.files), 'file')}...")
    with usage_errors(), interrupts(), watched(output, quiet=interactive) as follow:
        plan = runner.rewrite(
            request.discovery,
            request.configuration,
            write=write,
            effort=effort,
            follow=follow,
            tell=text.print_notice,
            chooser=chooser,
            observed=request.observed,
        )
    if preview:
        with usage_errors():
            output.preview(plan, diff=diff)
        request.exit(3 if plan.failed else int(bool(plan.changes)))
    if request.stdin is not None:
        # Whatever happens the text comes out again, so that an editor that pipes through here never loses its buffer.
        text.write_bytes(plan.changes[0].after if plan.changes else request.stdin)
        text.print_left(plan)
    elif interactive:  # what is left was shown, or takes no answer: `lint` lists it
        text.print_unparsable(plan)
        text.print_closing(plan, plain.rewrite_summary(plan, done=True), quiet=output.quiet)
    else:
        with usage_errors():
            output.rewrite(plan)
    request.exit(plan.exit_code)


def _asking(*, alone: bool) -> Chooser:
    from fsdp_migrate.commands import interactive

    if not alone:
        raise click.UsageError(
            "--interactive cannot be combined with --diff, --check, '-', --output-format or --output-file"
        )
    if not interactive.is_terminal():
        raise click.UsageError("--interactive asks on a terminal, and stdin or stdout is none")
    return interactive.Asking()

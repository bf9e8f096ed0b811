"""The command `lint`."""

from __future__ import annotations

from typing import NoReturn

import click

from fsdp_migrate import runner
from fsdp_migrate.commands.effort import EXIT_CODES, with_effort
from fsdp_migrate.commands.options import Request, interrupts, report_format, shared, usage_errors, watched
from fsdp_migrate.planning.planner import Effort
from fsdp_migrate.report import Plan, plain, text
from fsdp_migrate.report.output import LINT_FORMATS


@click.command(
    short_help="Report what is deprecated, breaks or changes.",
    epilog=f"""\b
Examples:
  fsdp-migrate lint src/ scripts/train.py
  fsdp-migrate lint --torch '>=2.4' --select FSDP1 .
  fsdp-migrate lint --write-baseline known.json src/
  fsdp-migrate lint --baseline known.json --output-format github src/
  cat train.py | fsdp-migrate lint --stdin-filename train.py -

{EXIT_CODES}""",
)
@shared
@report_format(LINT_FORMATS)
@click.option("--statistics", is_flag=True, help="Count the findings of each rule instead of listing them.")
@click.option(
    "--add-noqa", is_flag=True, help="Add a '# noqa' comment for every finding, so that only new ones are reported."
)
@click.option(
    "--write-baseline",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write all findings to this file, for --baseline; entries that no longer occur are removed.",
)
@click.option(
    "--min-torch",
    is_flag=True,
    help="Print only the lowest torch that the code needs, and the places that decide it.",
)
@with_effort
def lint(
    request: Request,
    effort: Effort,
    statistics: bool,
    add_noqa: bool,
    write_baseline: str | None,
    min_torch: bool,
) -> None:
    """Report FSDP code in PATHS (default: the current folder) that is deprecated, breaks or changes.

    In folders it checks .py, .pyi and .ipynb files, except the paths in .gitignore. '-' reads stdin.
    """
    if statistics and request.output.format not in ("text", "concise", "json"):
        raise click.UsageError("--statistics counts in text or json")
    if min_torch:
        _answer_min_torch(request, more=statistics or add_noqa or write_baseline is not None)
    if write_baseline is not None:
        _write_baseline(request, write_baseline, more=statistics or add_noqa)
    with usage_errors():
        plan = _with_noqa(request) if add_noqa else _linted(request, effort)
        request.output.lint(plan, statistics=statistics)
    request.exit(plan.exit_code)


def _answer_min_torch(request: Request, *, more: bool) -> NoReturn:
    from fsdp_migrate.runner import min_torch

    if more or request.output.format not in ("text", "json") or request.output.file is not None:
        raise click.UsageError("--min-torch prints text or json, to stdout, and does nothing else")
    found, failures = min_torch.answers(request.discovery, request.configuration)
    as_json = request.output.format == "json"
    text.print_document(min_torch.document(found, failures) if as_json else "\n".join(min_torch.lines(found)))
    if not as_json:
        text.print_notices(plain.failure_line(failure) for failure in failures)
    request.exit(3 if failures else 0)


def _linted(request: Request, effort: Effort) -> Plan:
    effort = effort._replace(fixes=request.output.format == "sarif")
    with watched(request.output) as follow:
        return runner.lint(
            request.discovery, request.configuration, effort=effort, follow=follow, observed=request.observed
        )


def _with_noqa(request: Request) -> Plan:
    if request.stdin is not None or not request.output.for_people or request.output.file is not None:
        raise click.UsageError("--add-noqa cannot be combined with '-', --output-format or --output-file")
    with interrupts(), watched(request.output) as follow:
        done = runner.add_noqa(request.discovery, request.configuration, follow)
    if not request.output.quiet:
        text.print_suppressed(done.findings, done.files)
    return done.plan


def _write_baseline(request: Request, file: str, *, more: bool) -> NoReturn:
    output = request.output
    if request.configuration.options.baseline or more or output.format != "text" or output.file is not None:
        raise click.UsageError(
            "--write-baseline reports no findings: "
            "give no --baseline, --add-noqa, --statistics, --output-format or --output-file"
        )
    from pathlib import Path  # not needed by other runs

    with usage_errors(), watched(output) as follow:
        plan = runner.renew_baseline(Path(file).absolute(), request.discovery, request.configuration, follow)
    text.print_unparsable(plan)
    text.print_closing(plan, plain.baseline_summary(plan), quiet=output.quiet)
    request.exit(3 if plan.failed else 0)

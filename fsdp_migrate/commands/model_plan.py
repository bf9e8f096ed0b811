"""`fsdp-migrate plan`: what a target takes, model by model."""

from __future__ import annotations

from dataclasses import replace

import click

from fsdp_migrate import runner
from fsdp_migrate.commands.options import Request, report_format, shared, usage_errors, watched
from fsdp_migrate.report import plain, text
from fsdp_migrate.report.output import write_text
from fsdp_migrate.workspace.settings.configuration import Configuration

_TARGET = "fsdp2"


@click.command(
    short_help="Tell what moving to FSDP2 takes, model by model.",
    epilog="""\b
Examples:
  fsdp-migrate plan --target fsdp2 src/
  fsdp-migrate plan --target fsdp2 --torch '>=2.13' --output-format json . > plan.json

\b
Exit codes: 0 no model of FSDP1 is left, 1 there is one, 2 bad usage,
3 a file could not be read or parsed.""",
)
@shared
@report_format(["text", "json"])
def plan(request: Request) -> None:
    """Tell which models of FSDP1 in PATHS can be converted whole, and what stops the others.

    The steps of each model are in an order in which every one leaves a program that works. Nothing is written.
    """
    from fsdp_migrate.report import fsdp2_plan

    if request.configuration.options.target not in (None, _TARGET):
        raise click.UsageError(f"a plan is for --target {_TARGET}")
    if request.stdin is not None:
        raise click.UsageError("a plan is about a project: name files or folders instead of '-'")
    with usage_errors(), watched(request.output) as follow:
        found = runner.models(request.discovery, _with_target(request.configuration), follow)
        as_json = request.output.format == "json"
        document = fsdp2_plan.document(found) if as_json else "\n".join(fsdp2_plan.lines(found))
        if request.output.file is None:
            text.print_document(document)
        else:
            write_text(request.output.file, document)
    if not as_json:
        text.print_notices(plain.failure_line(failure) for failure in found.failures)
    request.exit(3 if found.failures else int(bool(found.models or found.switches)))


def _with_target(configuration: Configuration) -> Configuration:
    return Configuration(replace(configuration.options, target=_TARGET), configuration.files)

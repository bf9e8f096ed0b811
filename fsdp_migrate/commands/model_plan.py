"""`fsdp-migrate plan`: what a target takes, model by model."""

from __future__ import annotations

import click
from click.core import ParameterSource

from fsdp_migrate import runner
from fsdp_migrate.commands.options import Request, report_format, shared, usage_errors, watched
from fsdp_migrate.report import plain, text
from fsdp_migrate.report.output import write_text
from fsdp_migrate.workspace.settings.configuration import Configuration

_TARGET = "fsdp2"
# Shared options about findings, of which a plan has none.
_OF_FINDINGS = ("select", "ignore", "hints", "baseline", "fail_on", "stdin_filename")


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

    The steps of each model are in order, with the one who does them, [you] or [fsdp-migrate]. Each leaves a program
    that works. Nothing is written.
    """
    from fsdp_migrate.report import fsdp2_plan

    if request.configuration.options.target not in (None, _TARGET):
        raise click.UsageError(f"a plan is for --target {_TARGET}")
    if request.stdin is not None:
        raise click.UsageError("a plan is about a project: name files or folders instead of '-'")
    _check_options(click.get_current_context())
    with usage_errors(), watched(request.output) as follow:
        found = runner.models(request.discovery, _with_target(request.configuration), follow)
        as_json = request.output.format == "json"
        given = request.configuration.options
        document = fsdp2_plan.document(found, given) if as_json else "\n".join(fsdp2_plan.lines(found, given))
        if request.output.file is None:
            text.print_document(document)
        else:
            write_text(request.output.file, document)
    if not as_json:
        text.print_notices(plain.failure_line(failure) for failure in found.failures)
    request.exit(3 if found.failures else int(bool(found.models or found.switches)))


for _parameter in plan.params:
    if isinstance(_parameter, click.Option) and _parameter.name in _OF_FINDINGS:
        _parameter.hidden = True


def _check_options(context: click.Context) -> None:
    for name in _OF_FINDINGS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} is for findings, and a plan has none: use it with `lint --target {_TARGET}`"
            )


def _with_target(configuration: Configuration) -> Configuration:
    return Configuration(configuration.options._replace(target=_TARGET), configuration.files)

"""`fsdp-migrate plan`: where a code base stands, and what to do in which order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fsdp_migrate.commands.effort import with_effort
from fsdp_migrate.commands.options import Request, shared, usage_errors, watched
from fsdp_migrate.planning.planner import Effort
from fsdp_migrate.report import plain, text
from fsdp_migrate.report.output import Output, check_place, write_text

if TYPE_CHECKING:
    from fsdp_migrate.migration.model import Migration

_FORMATS = {"text": (".txt",), "markdown": (".md",), "json": (".json",), "html": (".html", ".htm")}
# Shared options about findings; a plan has all of them.
_OF_FINDINGS = ("select", "ignore", "hints", "baseline", "fail_on", "stdin_filename", "trace")
# Options that the commands of a plan repeat, as far as they were given.
_REPEATED = ("torch", "exclude", "config_file", "isolated")


@click.command(
    short_help="Tell where the code stands, and what to do in which order.",
    epilog="""\b
Examples:
  fsdp-migrate plan src/
  fsdp-migrate plan --target fsdp2 --torch '>=2.6' src/
  fsdp-migrate plan --target fsdp2 -o plan.html src/
  fsdp-migrate plan --target dcp -o plan.json src/
  fsdp-migrate plan --target dcp --since plan.json src/

\b
Exit codes: 0 nothing is left, 1 something is, 2 bad usage,
3 a file could not be read or parsed.""",
)
@shared
@click.option(
    "--output-format",
    type=click.Choice(list(_FORMATS)),
    help="Format of the plan.  [default: by the suffix of the file, else text]",
)
@click.option("--since", metavar="FILE", type=click.Path(dir_okay=False), help="Compare with this plan, as JSON.")
@click.option(
    "--prove",
    "proofs",
    multiple=True,
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Show what `prove --output-format json` wrote; may be repeated.",
)
@with_effort
def plan(request: Request, effort: Effort, since: str | None, proofs: tuple[str, ...]) -> None:
    """Tell where the code in PATHS stands, and what to do in which order, so that each step leaves a working tree.

    Without --target that is what a newer torch takes. Each step says who does it, [you] or [fsdp-migrate], why, where,
    with which command, and which command checks it. Nothing is written but the plan.
    """
    from fsdp_migrate.migration.making import Wanted, migration

    context = click.get_current_context()
    if request.stdin is not None:
        raise click.UsageError("a plan is about a project: name files or folders instead of '-'")
    _check_options(context)
    paths = context.params["paths"] or (os.curdir,)
    wanted = Wanted(paths, _repeated(context), since, proofs)
    with usage_errors(), watched(request.output) as follow:
        name = _format(request.output)
        made = migration(request.discovery, request.configuration, wanted, effort, follow)
        _write(made, request.output.file, name)
    request.exit(made.exit_code)


for _parameter in plan.params:
    if isinstance(_parameter, click.Option) and _parameter.name in _OF_FINDINGS:
        _parameter.hidden = True


def _format(output: Output) -> str:
    """The format of the plan; what is wrong with its file is told before the plan is made."""
    name = output.format or _by_suffix(output.file)
    if output.file is not None:
        check_place(output.file)
    elif name == "html":
        raise click.UsageError("a page goes into a file: give one with -o")
    return name


def _write(made: Migration, file: str | None, name: str) -> None:
    if name == "html":
        from fsdp_migrate.migration.reports.page import pages

        assert file is not None
        for path, page in reversed(pages(made, file).items()):
            write_text(path, page)
    elif file is None:
        text.print_document(_report(made, name))
    else:
        write_text(file, _report(made, name))
    if name != "json":
        text.print_notices(plain.failure_line(failure) for failure in made.failures)


def _report(made: Migration, name: str) -> str:
    if name == "json":
        from fsdp_migrate.migration.reports.document import document

        return document(made)
    if name == "markdown":
        from fsdp_migrate.migration.reports import markdown

        return markdown.document(made)
    from fsdp_migrate.migration.reports.text import lines

    return "\n".join(lines(made))


def _by_suffix(file: str | None) -> str:
    if file is None:
        return "text"
    suffix = os.path.splitext(file)[1]
    found = next((name for name, suffixes in _FORMATS.items() if suffix in suffixes), None)
    if found is None:
        known = ", ".join(suffix for suffixes in _FORMATS.values() for suffix in suffixes)
        raise click.UsageError(f"the suffix of {file} is no format: use one of {known}, or give --output-format")
    return found


def _check_options(context: click.Context) -> None:
    for name in _OF_FINDINGS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} is for findings, and a plan has all of them: use it with `lint`")


def _repeated(context: click.Context) -> tuple[str, ...]:
    words: list[str] = []
    for name in _REPEATED:
        value = context.params[name]
        option = "--config" if name == "config_file" else f"--{name}"
        if isinstance(value, bool):
            words += [option] * value
        elif value is not None:
            words += [f"{option}={one}" for one in (value if isinstance(value, tuple) else (value,))]
    return tuple(words)

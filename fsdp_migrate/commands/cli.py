"""The command line: options in, calls, exit codes out."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from fsdp_migrate import runner
from fsdp_migrate._version import __version__
from fsdp_migrate.commands.checkpoint import checkpoint
from fsdp_migrate.commands.model_plan import plan
from fsdp_migrate.commands.options import (
    CONFIG_FILE,
    SELECT,
    TEXT_OR_JSON,
    Request,
    UnusableConfig,
    interrupts,
    parse_torch,
    report_format,
    selected,
    shared,
    usage_errors,
    watched,
)
from fsdp_migrate.commands.verify import verify
from fsdp_migrate.planning.parts import CacheError
from fsdp_migrate.planning.planner import Effort
from fsdp_migrate.report import Plan, plain, text
from fsdp_migrate.report.output import LINT_FORMATS, REWRITE_FORMATS
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.settings import ConfigFileError
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.nearest import ConfigFiles

if TYPE_CHECKING:
    from fsdp_migrate.planning.choosing import Chooser

CACHE_VARIABLE = "FSDP_MIGRATE_CACHE_DIR"
EXIT_CODES = (
    "\b\nExit codes: 0 nothing to report, 1 findings, 2 bad usage or stdout cannot be\n"
    "written, 3 a file could not be read, parsed or written."
)


def main() -> NoReturn:
    """Run the command line; an interrupt ends it without a message."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except click.Abort:
        status = 130
    sys.exit(status)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  fsdp-migrate lint src/
  fsdp-migrate rewrite --diff src/
  fsdp-migrate explain FSDP104""",
)
@click.version_option(__version__, "--version", prog_name="fsdp-migrate", message="%(prog)s %(version)s")
def cli() -> None:
    """Find PyTorch FSDP code that a newer torch deprecates, breaks or silently changes, and rewrite it.

    A rewrite keeps the behaviour of the program, unless you pass --unsafe-fixes. Code that cannot be rewritten is
    reported with the reason.
    """


def _effort(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that make it faster, as one `Effort`."""

    @functools.wraps(command)
    def read_options(request: Request, *, cache: bool, cache_dir: str | None, jobs: int | None, **options: Any) -> None:
        try:
            command(request, effort=Effort(jobs, cache, cache_dir), **options)
        except CacheError as error:
            given = click.get_current_context().get_parameter_source("cache_dir")
            hint = CACHE_VARIABLE if given is ParameterSource.ENVIRONMENT else "--cache-dir"
            raise click.BadParameter(str(error), param_hint=hint) from None

    for option in (
        click.option(
            "-j",
            "--jobs",
            metavar="N",
            type=click.IntRange(min=1),
            help="The number of processes.  [default: by the size of the run]",
        ),
        click.option(
            "--cache-dir",
            metavar="FOLDER",
            type=click.Path(file_okay=False),
            envvar=CACHE_VARIABLE,
            help="The folder of the cache.  [default: the user's cache folder]",
        ),
        click.option(
            "--cache/--no-cache",
            default=True,
            show_default=True,
            help="Check only files that changed since the last run.",
        ),
    ):
        read_options = option(read_options)
    return read_options


@cli.command(
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
@_effort
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
        return runner.lint(request.discovery, request.configuration, effort=effort, follow=follow)


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


@cli.command(
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
@_effort
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
    with usage_errors(), interrupts(), watched(output, quiet=interactive) as follow:
        plan = runner.rewrite(
            request.discovery,
            request.configuration,
            write=write,
            effort=effort,
            follow=follow,
            tell=text.print_notice,
            chooser=chooser,
        )
    if preview:
        with usage_errors():
            output.preview(plan, diff=diff)
        request.exit(3 if plan.failed else int(bool(plan.changes)))
    if request.stdin is not None:
        # Whatever happens the text comes out again, so that an editor that pipes through here never loses its buffer.
        text.write_bytes(plan.changes[0].after if plan.changes else request.stdin)
        text.print_left(plan)
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


@cli.command(
    short_help="Explain a rule, with examples.",
    epilog="""\b
Examples:
  fsdp-migrate explain FSDP104
  fsdp-migrate explain isinstance-flat-parameter
  fsdp-migrate explain FSDP1
  fsdp-migrate explain clip""",
)
@click.argument("rule", metavar="RULE")
def explain(rule: str) -> None:
    """Explain a rule: what changed since which torch, and what the fix does, with examples.

    RULE is the code or the name of a rule. A prefix of a code, or a word, lists the rules that match.
    """
    from fsdp_migrate.report.cards import contract
    from fsdp_migrate.rules import find, fitting
    from fsdp_migrate.rules.index import ENTRIES
    from fsdp_migrate.spelling import closest_rule
    from fsdp_migrate.verify import proofs

    card = find(rule)
    fit = [card] if card is not None else fitting(rule)
    if not fit:
        near = closest_rule(rule, {entry.code: entry.name for entry in ENTRIES})
        raise click.UsageError(f"no rule is called {rule!r}{near}; `fsdp-migrate rules` lists them")
    if len(fit) > 1:
        text.print_rules(fit)
        return
    (card,) = fit
    text.print_card(card, card.severity_on(TorchRange.default()))
    promise = contract(card)
    if promise is not None:
        text.print_document(f"\n{promise}")
    cases = proofs(card.code)
    if cases:
        text.print_document(f"\nProven by `fsdp-migrate verify -k {card.code}`:\n  " + "\n  ".join(cases))


@cli.command(
    epilog="""\b
Examples:
  fsdp-migrate rules
  fsdp-migrate rules --select FSDP1,FSDP503
  fsdp-migrate rules --output-format json""",
)
@SELECT
@TEXT_OR_JSON
def rules(select: tuple[str, ...], output_format: str) -> None:
    """List the rules."""
    from fsdp_migrate.rules import RULES

    chosen = selected(select)
    cards = [rule.card for rule in RULES if not select or rule.card.code.startswith(chosen)]
    if output_format == "json":
        from fsdp_migrate.report import json_format
        from fsdp_migrate.rules.catalogue import CHANGES

        codes = {card.code for card in cards}
        changes = [change for change in CHANGES if not select or codes.intersection(change.codes)]
        text.print_document(json_format.rules_report(cards, changes))
    else:
        text.print_rules(cards)


@cli.command(
    "config",
    short_help="Show the settings that hold for a path.",
    epilog="""\b
Examples:
  fsdp-migrate config
  fsdp-migrate config src/train.py
  fsdp-migrate config --schema > fsdp-migrate.schema.json""",
)
@click.argument("path", default=".", type=click.Path(exists=True))
@click.option("--schema", is_flag=True, help="Print the JSON schema of the settings instead.")
@CONFIG_FILE
@TEXT_OR_JSON
def show_config(path: str, schema: bool, config_file: str | None, output_format: str) -> None:
    """Print the settings for PATH (default: the current folder) and the source of each.

    They are under [tool.fsdp-migrate] in the nearest pyproject.toml above a file, or in a fsdp-migrate.toml.
    """
    from fsdp_migrate.commands import config_answer

    if schema:
        text.print_document(config_answer.SCHEMA.read_text(encoding="utf-8").rstrip("\n"))
        return
    try:
        configured = ConfigFiles(config_file)
        found = config_answer.effective(path, configured)
        excluded = filesystem.left_out(path, Configuration(files=configured).choice)
    except ConfigFileError as error:
        raise UnusableConfig(f"{error.path}: {error}") from None
    text.print_notices(f"warning: {filesystem.printable(warning)}" for warning in configured.warnings)
    if output_format == "json":
        text.print_document(config_answer.document(path, found, excluded=excluded))
    else:
        if excluded:
            text.print_document(f"# {filesystem.printable(path)} is skipped in folders (exclude)")
        text.print_document("\n".join(config_answer.lines(found)))


@cli.command(
    short_help="Look up a name of torch, release by release.",
    epilog="""\b
Examples:
  fsdp-migrate api optim_state_dict_to_load
  fsdp-migrate api FSDP.full_optim_state_dict --torch '>=2.1,<2.5'""",
)
@click.argument("name")
@click.option("--torch", metavar="RANGE", callback=parse_torch, help="Only these torch releases.")
@TEXT_OR_JSON
def api(name: str, torch: TorchRange | None, output_format: str) -> None:
    """Print since which torch NAME exists, its parameters, its deprecations and its modules.

    NAME is a name of torch with any part of its path.
    """
    from fsdp_migrate.commands import api_answer

    try:
        found = api_answer.answers(name, torch)
    except api_answer.UnknownName as error:
        raise click.UsageError(str(error)) from None
    text.print_document(api_answer.document(found) if output_format == "json" else "\n".join(api_answer.lines(found)))


cli.add_command(verify)
cli.add_command(checkpoint)
cli.add_command(plan)

"""The options that `lint` and `rewrite` share, and what they ask for."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from fsdp_migrate import runner
from fsdp_migrate.findings import Severity
from fsdp_migrate.planning.planner import Follow, unfollowed
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.report import text
from fsdp_migrate.report.output import FileOptionError, Output
from fsdp_migrate.torch_api import DEFAULT_RANGE, RangeError, TorchRange
from fsdp_migrate.workspace import filesystem, settings
from fsdp_migrate.workspace.filesystem import Discovery, Failure, SourceFile
from fsdp_migrate.workspace.settings import CHECKPOINTS, HELPERS, TARGETS, ConfigError, ConfigFileError, Layer
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.nearest import ConfigFiles

if TYPE_CHECKING:
    from pathlib import Path

    from fsdp_migrate.trace.seen import Observed

STDIN = "-"


class Request(NamedTuple):
    """What the options shared by `lint` and `rewrite` ask for."""

    discovery: Discovery
    configuration: Configuration
    stdin: bytes | None
    output: Output
    exit_zero: bool
    observed: Observed | None = None

    def exit(self, code: int) -> NoReturn:
        """End the command; `--exit-zero` forgives findings, never failures."""
        click.get_current_context().exit(0 if code == 1 and self.exit_zero else code)


class UnusableConfig(click.ClickException):
    """A configuration file that cannot be used."""

    exit_code = 2


def parse_torch(_context: click.Context, _parameter: click.Parameter, value: str | None) -> TorchRange | None:
    """The range that an option states, for click.

    Raises:
        click.BadParameter: it is no range of known releases.
    """
    try:
        return None if value is None else TorchRange.parse(value)
    except RangeError as error:
        raise click.BadParameter(str(error)) from None


TEXT_OR_JSON = click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people or for programs.",
)

CONFIG_FILE = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Use this configuration file for all files, instead of the nearest one above each.",
)

SELECT = click.option(
    "--select",
    metavar="RULES",
    multiple=True,
    help="Only these rules: codes, prefixes of codes (FSDP1) or names, separated by commas.",
)

Option = Callable[[Callable[..., None]], Callable[..., None]]

# How the target fsdp2 converts.
FSDP2_OPTIONS: tuple[Option, ...] = (
    click.option(
        "--fsdp2-helper",
        type=click.Choice(HELPERS),
        show_default=HELPERS[0],
        help="With --target fsdp2: whether a generated module does what a program decides at run time.",
    ),
    click.option(
        "--checkpoints",
        type=click.Choice(CHECKPOINTS),
        show_default=CHECKPOINTS[0],
        help="With --target fsdp2: whether files of FSDP1 have to stay readable.",
    ),
    click.option(
        "--all-parameters-used",
        is_flag=True,
        default=None,
        help="With --target fsdp2: every trainable parameter gets a gradient on every rank in every step.",
    ),
)

SHARED_OPTIONS: tuple[Option, ...] = (
    click.argument("paths", nargs=-1, type=click.Path(exists=True, readable=False, allow_dash=True)),
    click.option(
        "--torch",
        metavar="RANGE",
        show_default=f"read from the project's files, else {DEFAULT_RANGE}",
        callback=parse_torch,
        help="The torch releases that the code has to run on; a version alone means that one and newer.",
    ),
    click.option(
        "--show-torch-range",
        is_flag=True,
        help="Print the torch range of each project and its source; check nothing.",
    ),
    click.option(
        "--target",
        type=click.Choice(list(TARGETS)),
        help="What to move to beyond a newer torch; dcp: state dicts without FSDP.state_dict_type; "
        "fsdp2: models from FSDP1 to fully_shard.",
    ),
    *FSDP2_OPTIONS,
    SELECT,
    click.option(
        "--ignore",
        metavar="RULES",
        multiple=True,
        help="Turn these rules off; if both --select and --ignore match, the longer prefix wins.",
    ),
    click.option(
        "--hints/--no-hints", default=None, help="Also report hints: code that works on all supported releases."
    ),
    click.option(
        "--exclude",
        metavar="PATTERN",
        multiple=True,
        help="Skip paths in folders that match this pattern, as in a .gitignore.",
    ),
    click.option("--force-exclude", is_flag=True, help="Skip excluded files even if they are named in PATHS."),
    CONFIG_FILE,
    click.option("--isolated", is_flag=True, help="Read no configuration files."),
    click.option(
        "-o",
        "--output-file",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Write the report to this file instead of stdout.",
    ),
    click.option(
        "--baseline",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Report only findings that are not in this file, written by `lint --write-baseline`.",
    ),
    click.option(
        "--trace",
        metavar="FILE",
        multiple=True,
        type=click.Path(dir_okay=False),
        help="What a run of the program called, written by `trace`; may be repeated.",
    ),
    click.option(
        "--stdin-filename",
        metavar="FILE",
        help="The path of the text from stdin (with '-'), for its settings and the modules that it imports.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print findings and errors only."),
    click.option(
        "--fail-on",
        type=click.Choice([severity.value for severity in Severity]),
        show_default=Severity.DEPRECATED.value,
        help="Exit with 1 only for findings of at least this severity; 'hint' implies --hints.",
    ),
    click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings."),
)


def shared(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options, as one `Request`."""

    @functools.wraps(command)
    def read_options(**options: Any) -> None:
        take = options.pop
        show_ranges, unnamed = take("show_torch_range"), options["stdin_filename"] is None
        rewriting = "unsafe_fixes" in options
        configuration = _configuration(take, options.pop("unsafe_fixes", None), rewriting=rewriting)
        stdin, discovery = _discovery(take, configuration)
        request = Request(
            discovery=discovery,
            configuration=configuration,
            stdin=stdin,
            output=Output(take("output_format"), take("output_file"), take("quiet")),
            exit_zero=take("exit_zero"),
            observed=_observed(take("trace")),
        )
        if stdin is not None and unnamed and not request.output.quiet:
            _tell_what_is_not_followed(stdin)
        if show_ranges:
            _show_torch_ranges(request)
        else:
            command(request, **options)

    return _with(SHARED_OPTIONS, read_options)


def with_fsdp2_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how the target fsdp2 converts."""
    return _with(FSDP2_OPTIONS, command)


def _with(options: Sequence[Option], command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


def report_format(formats: Sequence[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option that chooses the format of the report."""
    return click.option(
        "--output-format",
        type=click.Choice(formats),
        default="text",
        show_default=True,
        help="Format of the report: text and concise for people, the others for programs and CI.",
    )


def _show_torch_ranges(request: Request) -> None:
    if request.output.format not in ("text", "json") or request.output.file is not None:
        raise click.UsageError("--show-torch-range prints text or json, to stdout")
    plan = runner.torch_ranges(request.discovery, request.configuration)
    if request.output.format == "json":
        from fsdp_migrate.report import json_format

        text.print_document(json_format.ranges_report(plan))
    else:
        text.print_ranges(plan)
    request.exit(3 if plan.failed else 0)


def selected(values: tuple[str, ...]) -> tuple[str, ...]:
    """The starts of codes that the values of an option mean."""
    if not values:
        return ()
    from fsdp_migrate.rules.index import ENTRIES

    try:
        return settings.selectors(values, {entry.code: entry.name for entry in ENTRIES})
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def _configuration(take: Callable[[str], Any], unsafe_fixes: bool | None, *, rewriting: bool) -> Configuration:
    select, ignore, fail_on = selected(take("select")), selected(take("ignore")), take("fail_on")
    only, isolated = take("config_file"), take("isolated")
    if only is not None and isolated:
        raise click.UsageError("give --config or --isolated, not both")
    try:
        options = Layer(
            torch=take("torch"),
            target=take("target"),
            fsdp2_helper=take("fsdp2_helper"),
            checkpoints=take("checkpoints"),
            all_parameters_used=take("all_parameters_used"),
            select=select or None,
            ignore=ignore or None,
            unsafe_fixes=unsafe_fixes,
            hints=take("hints"),
            fail_on=None if fail_on is None else Severity(fail_on),
            exclude=take("exclude") or None,
            baseline=_whole(take("baseline")),
        )
        return Configuration(options, ConfigFiles(only, isolated=isolated), rewriting=rewriting)
    except ConfigFileError as error:
        raise UnusableConfig(f"{error.path}: {error}") from None
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def _observed(files: tuple[str, ...]) -> Observed | None:
    """What the traces say."""
    if not files:
        return None
    import os

    from fsdp_migrate.trace.records import TraceError
    from fsdp_migrate.trace.seen import Observed

    try:
        return Observed(files, os.getcwd())
    except TraceError as error:
        raise click.UsageError(str(error)) from None


def _whole(file: str | None) -> Path | None:
    if file is None:
        return None
    from pathlib import Path

    return Path(file).absolute()


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Tell what is wrong with a file that an option names in one line, with exit code 2."""
    try:
        yield
    except FileOptionError as error:
        raise click.UsageError(str(error)) from None


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Say of a run that is interrupted which files it wrote."""
    from fsdp_migrate.runner.writing import Interrupted  # not needed by other runs

    try:
        yield
    except Interrupted as stop:
        text.print_interrupted(stop.written, stop.files)
        raise click.Abort from None


@contextlib.contextmanager
def watched(output: Output, *, quiet: bool = False) -> Iterator[Follow]:
    """What shows how far a run is, where somebody waits for it and it is not to be `quiet`."""
    if quiet or output.quiet or not sys.stderr.isatty():
        yield unfollowed
        return
    from fsdp_migrate.report.progress import Progress, wanted

    with Progress() as progress:
        yield progress.follow if wanted() else unfollowed


def _discovery(take: Callable[[str], Any], configuration: Configuration) -> tuple[bytes | None, Discovery]:
    """The text from stdin, if it is asked for, and the files to look at."""
    paths, name, force_exclude = take("paths"), take("stdin_filename"), take("force_exclude")
    try:
        if STDIN not in paths:
            if name is not None:
                raise click.UsageError("--stdin-filename names the text from stdin: give '-' as the path")
            raw, found = None, filesystem.discover(paths or (".",), configuration.choice, force_exclude=force_exclude)
        else:
            if len(paths) > 1:
                raise click.UsageError("'-' (stdin) cannot be combined with other paths")
            raw = sys.stdin.buffer.read()
            if name is None and _is_notebook(raw):
                told = "this is a notebook: give its name with --stdin-filename NAME.ipynb"
                return raw, Discovery((), failures=(Failure("<stdin>", told),))
            if name is not None and (language := filesystem.other_language(name, raw)) is not None:
                return raw, Discovery((), failures=(Failure(filesystem.printable(name), language),))
            left_out = force_exclude and name is not None and filesystem.left_out(name, configuration.choice)
            found = Discovery(() if left_out else (SourceFile(STDIN, filesystem.printable(name or "<stdin>"), raw),))
        configuration.check(found.files)
    except ConfigFileError as error:
        raise UnusableConfig(f"{error.path}: {error}") from None
    return raw, found


def _is_notebook(raw: bytes) -> bool:
    from fsdp_migrate.workspace.reading import is_unnamed_notebook  # not needed where files are named

    return is_unnamed_notebook(raw)


def _tell_what_is_not_followed(unnamed: bytes) -> None:
    """Say on stderr that without a name the modules that a text from stdin imports cannot be found."""
    from fsdp_migrate.workspace.reading import imports_relatively

    if imports_relatively(unnamed):
        told = "modules of the project, which the text imports, are followed only with --stdin-filename"
        text.print_notices([f"note: {told}"])

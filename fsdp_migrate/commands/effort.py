"""The options that make a run faster, and exit codes: what `lint` and `rewrite` have beside the shared options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from fsdp_migrate.commands.options import Request
from fsdp_migrate.planning.parts import CacheError
from fsdp_migrate.planning.planner import Effort

CACHE_VARIABLE = "FSDP_MIGRATE_CACHE_DIR"
EXIT_CODES = (
    "\b\nExit codes: 0 nothing to report, 1 findings, 2 bad usage or stdout cannot be\n"
    "written, 3 a file could not be read, parsed or written."
)


def with_effort(command: Callable[..., None]) -> Callable[..., None]:
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

"""The command line: options in, calls, exit codes out."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import NoReturn

import click

from fsdp_migrate._version import __version__

# Each command: its module beside this one, and its name there.
_HOMES = {
    "api": ("questions", "api"),
    "checkpoint": ("checkpoint", "checkpoint"),
    "config": ("questions", "show_config"),
    "explain": ("questions", "explain"),
    "lint": ("lint", "lint"),
    "plan": ("plan", "plan"),
    "prove": ("prove", "prove"),
    "rewrite": ("rewrite", "rewrite"),
    "rules": ("questions", "rules"),
    "server": ("server", "server"),
    "trace": ("trace", "trace"),
    "verify": ("verify", "verify"),
}


class _Commands(Mapping[str, click.Command]):
    """The commands by name. A run loads the module of its own one only."""

    def __getitem__(self, name: str) -> click.Command:
        module, attribute = _HOMES[name]
        command: click.Command = getattr(import_module(f"fsdp_migrate.commands.{module}"), attribute)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


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
    commands=_Commands(),
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

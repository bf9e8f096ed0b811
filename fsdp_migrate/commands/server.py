"""The command `server`."""

from __future__ import annotations

import os

import click

from fsdp_migrate.commands.options import CONFIG_FILE, parse_torch
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import TARGETS, Layer


@click.command(
    short_help="Start the language server for editors.",
    epilog="""\b
Example, as the command of a language client:
  fsdp-migrate server --target dcp

docs/editors.md has the lines for VS Code, Neovim, Helix, Zed and PyCharm.""",
)
@click.option("--torch", metavar="RANGE", callback=parse_torch, help="The torch releases that the code has to run on.")
@click.option("--target", type=click.Choice(list(TARGETS)), help="What to move to beyond a newer torch.")
@click.option("--hints/--no-hints", default=None, help="Also show code that works on all supported releases.")
@CONFIG_FILE
@click.option("--isolated", is_flag=True, help="Read no configuration files.")
def server(
    torch: TorchRange | None, target: str | None, hints: bool | None, config_file: str | None, isolated: bool
) -> None:
    """Speak the Language Server Protocol on stdin and stdout.

    Settings come from the configuration files of a project, as for `lint`; options override them.
    """
    try:
        from fsdp_migrate.server.server import made
    except ImportError as error:
        raise click.ClickException(
            f"the language server needs pygls ({error}): pip install 'fsdp-migrate[server]'"
        ) from None
    from fsdp_migrate.server.documents import Documents

    options = Layer(torch=torch, target=target, hints=hints)
    # The server closes what it speaks on, and stdout is flushed behind it.
    with open(os.dup(0), "rb") as stdin, open(os.dup(1), "wb") as stdout:
        made(Documents(options, config_file, isolated=isolated)).start_io(stdin, stdout)

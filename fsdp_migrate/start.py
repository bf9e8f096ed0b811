"""What the command starts with."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line."""
    # Loading modules leaves no garbage, and what is loaded stays: looking through it takes a seventh of a short run.
    gc.disable()
    _open_streams()
    from fsdp_migrate import cli

    gc.freeze()
    gc.enable()
    cli.main()


def _open_streams() -> None:
    """Give a stream that was closed before the start a place to go, before another file takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it stays open

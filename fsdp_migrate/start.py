"""What the command starts with."""

from __future__ import annotations

import gc
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line."""
    # Loading modules leaves no garbage, and a look for it at every turn takes a twentieth of a short run.
    gc.disable()
    from fsdp_migrate import cli

    gc.enable()
    cli.main()

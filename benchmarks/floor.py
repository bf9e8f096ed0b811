"""The floor of a lint: read every file, look at its bytes, and parse and walk those that pass.

python benchmarks/floor.py FOLDER
"""

from __future__ import annotations

import gc
import sys

from fsdp_migrate.facts.walk import build
from fsdp_migrate.lint import worth_linting
from fsdp_migrate.source import Source, SourceError
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.filesystem import discover, read
from fsdp_migrate.workspace.settings import Settings


def main(folder: str) -> None:
    """Do what any lint with the same rules has to do, and nothing else."""
    gc.disable()
    settings = Settings(TorchRange.default())
    for file in discover([folder]).files:
        raw = read(file)
        if worth_linting(raw, file.shown, settings):
            try:
                build(Source(raw).tree)
            except (SourceError, SyntaxError):
                continue


if __name__ == "__main__":
    main(sys.argv[1])

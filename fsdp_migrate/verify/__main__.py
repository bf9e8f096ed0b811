"""`python -m fsdp_migrate.verify`: the harness alone, for developing fixtures."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fsdp_migrate.verify import RunSettings, run


def main() -> int:
    """Parse the options, run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fsdp_migrate.verify", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="cases or folders of cases (default: the bundled ones)")
    parser.add_argument("-k", dest="keyword", help="part of a fixture's name, a pattern with *, or a rule code")
    parser.add_argument("--nproc", type=int, help="number of ranks")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--timeout", type=float, default=RunSettings.timeout, help="seconds per scenario")
    parser.add_argument("--full", action="store_true", help="all strategies and optimizers")
    parser.add_argument("--torch", action="append", default=[], help="another interpreter that has torch")
    parser.add_argument("--output-format", choices=("text", "json", "markdown"), default="text")
    given = parser.parse_args()
    settings = RunSettings(
        nproc=given.nproc,
        device=given.device,
        timeout=given.timeout,
        full=given.full,
        pythons=tuple(given.torch),
    )
    return run(settings, paths=given.paths, keyword=given.keyword, output_format=given.output_format)


if __name__ == "__main__":
    sys.exit(main())

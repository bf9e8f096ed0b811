"""Write tests/torch_api/warning_sites.tsv: every place around FSDP at which a torch release warns of a deprecation.

    python -m tools.sweep_deprecations [--sources FOLDER]

Downloads one wheel for each release since torch 2.1 as `tools.build_torch_api` does, and reads its files without
importing them. A line has the place, the releases that warn there, and the text. What is new in it needs an answer in
`tests/torch_api/warning_answers.toml`: the rule that covers it with a program that the rule finds, or the reason why
none does. `tests/torch_api/test_warning_sites.py` compares the two.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from packaging.version import Version

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from fsdp_migrate.torch_api import RELEASES
from tools.wheel_api.warning_sites import Site, warning_sites
from tools.wheel_api.wheels import WheelError, sources

TARGET = Path(__file__).parent.parent / "tests" / "torch_api" / "warning_sites.tsv"
OLDEST = Version("2.1")


def main(arguments: list[str] | None = None) -> int:
    """Sweep the releases and write what was found."""
    parser = argparse.ArgumentParser(description="List the places at which torch warns of deprecations.")
    parser.add_argument("--sources", type=Path, metavar="FOLDER", help="keep the Python files of the wheels here")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.sources or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        found, swept = _swept([str(release) for release in RELEASES if release >= OLDEST], folder)
    lines = (f"{site.place}\t{_ranges(swept, found[site])}\t{site.text}\n" for site in sorted(found))
    TARGET.write_text(f"# torch {' '.join(swept)}\n{''.join(lines)}")
    print(f"{TARGET.name}: {len(found)} places")
    return 0 if swept else 1


def _swept(releases: Iterable[str], folder: Path) -> tuple[dict[Site, list[str]], list[str]]:
    """The releases that warn at each place, and those that could be read."""
    found: dict[Site, list[str]] = {}
    swept = []
    for release in releases:
        try:
            sites = warning_sites(sources(release, folder))
        except WheelError as error:
            print(f"skipped: {error}", file=sys.stderr)
            continue
        swept.append(release)
        for site in sites:
            found.setdefault(site, []).append(release)
        print(f"torch {release}: {len(sites)} places")
    return found, swept


def _ranges(releases: list[str], having: list[str]) -> str:
    """The runs of releases: `2.4.1-2.6.0,2.8.0-`, open up to the newest."""
    numbers = [releases.index(release) for release in having]
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    last = len(releases) - 1
    return ",".join(f"{releases[s]}-{'' if e == last else releases[e]}" for s, e in zip(starts, ends))


if __name__ == "__main__":
    sys.exit(main())

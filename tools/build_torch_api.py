"""Write fsdp_migrate/torch_api/*.json.gz: what each torch release offers, read from the wheels on PyPI.

    python -m tools.build_torch_api [--sources FOLDER]

Downloads one wheel (40 to 140 MB) for each release in `fsdp_migrate.torch_api.PUBLISHED`, keeps its Python files in
FOLDER (a temporary folder unless told), deletes it, and reads the files without importing them. For a new release, add
it to `RELEASES` and run this, then `tools.build_changed_names`. The files hold one name a line; what changed between
two builds shows

    diff <(git show HEAD:fsdp_migrate/torch_api/fsdp.json.gz | zcat) <(zcat fsdp_migrate/torch_api/fsdp.json.gz)
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from fsdp_migrate.torch_api import PUBLISHED
from fsdp_migrate.torch_api.data import AREAS, area_of
from tools.wheel_api.facts import Fact, facts
from tools.wheel_api.release import Release
from tools.wheel_api.table import Table, merged, write
from tools.wheel_api.wheels import WheelError, sources

TARGET = Path(__file__).parent.parent / "fsdp_migrate" / "torch_api"


def main(arguments: list[str] | None = None) -> int:
    """Read the releases and write the data."""
    parser = argparse.ArgumentParser(description="Read the API of the torch releases from their wheels.")
    parser.add_argument("--sources", type=Path, metavar="FOLDER", help="keep the Python files of the wheels here")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.sources or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            build(folder, TARGET)
        except WheelError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


def build(folder: Path, target: Path) -> None:
    """Read every release's files from `folder`, downloading what is missing, and write the data to `target`.

    Raises:
        WheelError: a release cannot be downloaded.
    """
    releases = [str(release) for release in PUBLISHED]
    found: dict[str, dict[str, Fact]] = {}
    for release in releases:
        found[release] = facts(Release(release, sources(release, folder)))
        print(f"torch {release}: {len(found[release])} names")
    tables: dict[str, Table] = {area: {} for area in AREAS.values()}
    for name, row in merged(releases, found).items():
        tables[area_of(name) or "torch"][name] = row
    for area, table in tables.items():
        path = target / f"{area}.json.gz"
        write(path, releases, table)
        print(f"{path.name}: {len(table)} names, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    sys.exit(main())

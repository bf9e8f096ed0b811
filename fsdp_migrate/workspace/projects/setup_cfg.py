"""setup.cfg of setuptools."""

from __future__ import annotations

import os

from fsdp_migrate.workspace.project_files import FileFault
from fsdp_migrate.workspace.projects import requirement_lists
from fsdp_migrate.workspace.projects.mentions import Mentions, read_lines


def read(path: str, root: str) -> Mentions:
    """The requirements on torch in a setup.cfg; a file for tools alone describes no package.

    Raises:
        FileFault: it cannot be read.
    """
    import configparser  # slow to load, and few projects have this file

    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string("\n".join(read_lines(path)))
    except configparser.Error as error:
        raise FileFault(" ".join(str(error).split())) from None
    mentions = Mentions(package=parser.has_section("metadata") or parser.has_section("options"))
    _add(mentions, path, root, parser.get("options", "install_requires", fallback=None), main=True)
    if parser.has_section("options.extras_require"):
        for _, value in parser.items("options.extras_require"):
            _add(mentions, path, root, value, main=False)
    return mentions


def _add(mentions: Mentions, path: str, root: str, value: str | None, *, main: bool) -> None:
    value = value or ""
    if value.startswith("file:"):
        for name in value.removeprefix("file:").replace("\n", ",").split(","):
            if name.strip():
                requirement_lists.include(mentions, os.path.join(root, name.strip()), root, main=main)
    else:
        # As setuptools splits it: a semicolon parts requirements only where all stand on one line.
        mentions.add_pip(path, value.split("\n" if "\n" in value else ";"), main=main)

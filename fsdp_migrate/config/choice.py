"""Which files to take where folders are searched: `include` and `exclude`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fsdp_migrate import gitignore
from fsdp_migrate.files import SUFFIXES
from fsdp_migrate.gitignore import GitIgnore, Pattern


class Choice:
    """What the patterns of one configuration say about absolute paths; that of a folder ends in a separator."""

    def __init__(self, include: GitIgnore | None, exclude: GitIgnore | None) -> None:
        self.include = include
        self.exclude = exclude

    def leaves_out(self, path: str) -> bool:
        """Whether `exclude` names the file or folder itself."""
        exclude = self.exclude
        return exclude is not None and path.startswith(exclude.base) and gitignore.ignored([exclude], path)

    def takes(self, path: str) -> bool:
        """Whether a file is one of those to take, if nothing leaves it out."""
        if self.include is None:
            return path.endswith(SUFFIXES)
        inside = path[len(self.include.base) :].replace(os.sep, "/")
        verdicts = (_verdict(pattern, inside) for pattern in self.include.patterns)
        return next((verdict for verdict in verdicts if verdict is not None), False)


def spec(folder: str, lines: Sequence[str]) -> GitIgnore:
    """Patterns that start from `folder`."""
    return GitIgnore(os.path.join(folder, ""), gitignore.patterns(lines))


def _verdict(pattern: Pattern, path: str) -> bool | None:
    """What one pattern of `include` says about a file: of whole folders it means only the Python files."""
    reach = pattern.reach(path)
    if reach is None:
        return None
    if (reach < len(path) or pattern.any_name) and not path.endswith(SUFFIXES):
        return None
    return pattern.include

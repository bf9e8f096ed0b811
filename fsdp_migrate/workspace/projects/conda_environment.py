"""Conda environments: the list under `dependencies:` of an environment.yml, read line by line.

A YAML parser would be a dependency for one list of plain strings. A list in another form is not read, and the user is
told.
"""

from __future__ import annotations

import re

from fsdp_migrate.workspace.project_files import display
from fsdp_migrate.workspace.projects.mentions import Mentions, read_lines
from fsdp_migrate.workspace.projects.requirement import Requirement, conda_requirement, pip_requirement

_KEY = re.compile(r"(['\"]?)(\w+)\1\s*:\s*(.*)")
_ITEM = re.compile(r"\s*-\s+(.*)")
_COMMENT = re.compile(r"(?:^|\s)#.*$")


def read(path: str, _root: str) -> Mentions:
    """The requirements on PyTorch in an environment, its pip section included.

    Raises:
        FileFault: it cannot be read.
    """
    mentions = Mentions()
    within = False
    for line in (_COMMENT.sub("", line).rstrip() for line in read_lines(path)):
        key, item = _KEY.match(line), _ITEM.match(line)
        if key:
            within = key[2] == "dependencies"
            if within and "torch" in key[3]:
                mentions.warnings.append(
                    f"{display(path)}: its dependencies are not a list with one entry per line, and are ignored"
                )
        elif within and item:
            mentions.add(path, item[1].strip("'\" "), _requirement)
    return mentions


def _requirement(text: str) -> Requirement | None:
    """An entry on PyTorch, which is pytorch in conda and torch in pip."""
    return pip_requirement(text) or conda_requirement(text)

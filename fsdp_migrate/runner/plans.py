"""The plan of a rewrite, for Python."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fsdp_migrate import runner
from fsdp_migrate.report import Plan
from fsdp_migrate.source import declared_encoding
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.settings import Layer, selectors
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.workspace import Workspace

if TYPE_CHECKING:
    from fsdp_migrate.planning.across import Target

Path = str | os.PathLike[str]


def plan(
    paths: Path | Iterable[Path] = ".",
    torch: str | TorchRange | None = None,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    unsafe_fixes: bool | None = None,
    hints: bool | None = None,
    overlay: Mapping[Path, str | bytes] | None = None,
    target: Target | str | None = None,
) -> Plan:
    """What `rewrite` would do to files and folders, and what it would leave; nothing is written.

    The settings are those of the command line: what is not given comes from the configuration files of the project.
    `target` is the name of a target, as on the command line, or one of your own. `overlay` has texts that count instead
    of those on the disk, such as what an editor has not saved. The plan has the findings that would be `fixed`
    (positions in the texts as they are), the `findings` that are left (positions in the new texts), the `transactions`
    that solve them, the new texts in `changes`, and `failures`.

    Raises:
        RangeError: `torch` is not a range of known releases.
        ConfigError: a selector fits no rule.
        ConfigFileError: a configuration file cannot be used.
        FileOptionError: a baseline that one names cannot be read.
        UnicodeError: a text does not fit the encoding that it declares.
    """
    from fsdp_migrate.rules.index import ENTRIES

    known = {entry.code: entry.name for entry in ENTRIES}
    options = Layer(
        torch=TorchRange.parse(torch) if isinstance(torch, str) else torch,
        select=selectors(select, known) or None,
        ignore=selectors(ignore, known) or None,
        unsafe_fixes=unsafe_fixes,
        hints=hints,
        target=target if isinstance(target, str) else None,
    )
    configuration = Configuration(options)
    named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    discovery = filesystem.discover([os.fspath(path) for path in named], configuration.choice)
    configuration.check(discovery.files)
    texts = {os.path.abspath(path): _bytes(text) for path, text in (overlay or {}).items()}
    across = None if isinstance(target, str) else target
    return runner.planned(Workspace(discovery, configuration, texts), target=across)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode(declared_encoding(text))

"""The warnings of a program, each once, with the line of the project that led to it."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from typing import Any

from .journal import Journal

LONGEST = 300  # characters of a warning's text


def install(journal: Journal) -> None:
    """Record what is given to `warnings.warn`, whether a filter hides it or not."""
    original = warnings.warn
    seen: set[tuple[Any, ...]] = set()
    # Paths in the folders of this run are other ones in each run.
    own = [os.path.join(folder, "") for folder in (journal.plan.copy, os.environ.get("TMPDIR")) if folder]

    @journal.guarded("warnings")
    def record(message: Any, category: Any) -> None:
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        at, text = journal.place(), str(message)
        for folder in own:
            text = text.replace(folder, "")
        text = text[:LONGEST]
        key = (kind.__name__, text, *(at or ()))
        if key not in seen:
            seen.add(key)
            journal.event("warning", at=at, category=kind.__name__, text=text)

    @functools.wraps(original)
    def warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **named: Any) -> None:
        record(message, category)
        if named.get("skip_file_prefixes") and sys.version_info >= (3, 12):
            named["skip_file_prefixes"] = (*named["skip_file_prefixes"], __file__)
            return original(message, category, stacklevel, source, **named)
        return original(message, category, stacklevel + 1, source, **named)

    warnings.warn = warn

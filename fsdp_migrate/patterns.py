"""Regular expressions of modules, each compiled when it is first used: a run uses few of those that it loads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

__all__ = ["pattern"]

if TYPE_CHECKING:
    from re import compile as pattern
else:

    class _Pattern:
        """What `re.compile` returns, later; each method is taken from there once."""

        def __init__(self, *given):
            self._given = given

        def __getattr__(self, name):
            found = getattr(re.compile(*self._given), name)
            setattr(self, name, found)
            return found

    pattern = _Pattern

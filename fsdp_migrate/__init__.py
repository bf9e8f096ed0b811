"""Find and rewrite PyTorch FSDP code that a newer torch deprecates, breaks or silently changes.

`lint_source`, `rewrite_source` and `plan` are the Python interface; each is loaded when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fsdp_migrate._version import __version__

if TYPE_CHECKING:
    from fsdp_migrate.lint import lint_source
    from fsdp_migrate.planning.rewriting import rewrite_source
    from fsdp_migrate.runner.plans import plan

__all__ = ["__version__", "lint_source", "plan", "rewrite_source"]

_HOMES = {"lint_source": "lint", "plan": "runner.plans", "rewrite_source": "planning.rewriting"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

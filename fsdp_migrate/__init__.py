"""Find and rewrite PyTorch FSDP code that a newer torch deprecates, breaks or silently changes.

`lint_source` and `rewrite_source` are the Python interface; both are loaded when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsdp_migrate.lint import lint_source
    from fsdp_migrate.rewrite import rewrite_source

__version__ = "0.1.0"
__all__ = ["__version__", "lint_source", "rewrite_source"]


def __getattr__(name: str) -> Any:
    if name == "lint_source":
        from fsdp_migrate.lint import lint_source

        return lint_source
    if name == "rewrite_source":
        from fsdp_migrate.rewrite import rewrite_source

        return rewrite_source
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

"""Whether a module uses torch.distributed or FSDP at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts

DISTRIBUTED = "torch.distributed"
LAUNCHER = b"torch.distributed.launch"
_FSDP = ("fsdp", "fullyshardeddataparallel")


def uses_distributed(facts: ModuleFacts) -> bool:
    """Whether the module imports or names torch.distributed, or imports something with FSDP in its name."""
    return facts.memo(uses_distributed, lambda: _uses_distributed(facts))


def _uses_distributed(facts: ModuleFacts) -> bool:
    if any(_is_distributed(name) for statement in facts.structure.imports for name in _imported(statement)):
        return True
    if DISTRIBUTED in facts.names.direct_imports:
        return True
    chains = (node for node in facts.structure.attributes if node.attr == "distributed")
    return any(facts.names.qualified(node) == DISTRIBUTED for node in chains)


def _imported(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    module = f"{statement.module or ''}." if isinstance(statement, ast.ImportFrom) else ""
    return (module + alias.name for alias in statement.names)


def _is_distributed(name: str) -> bool:
    return f"{name}.".startswith(f"{DISTRIBUTED}.") or any(word in name.lower() for word in _FSDP)

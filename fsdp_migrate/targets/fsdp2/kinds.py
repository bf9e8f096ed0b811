"""What a module that is used may be."""

from __future__ import annotations

from fsdp_migrate.facts.calls import BindingError
from fsdp_migrate.facts.project_code import Origin
from fsdp_migrate.targets.fsdp2.arguments import written_out
from fsdp_migrate.targets.fsdp2.policies import AtRunTime
from fsdp_migrate.targets.fsdp2.use import Use


def kinds_of(use: Use) -> tuple[Origin, ...]:
    """What a module may be: for a model, what its constructions wrap."""
    if use.kinds is not None:
        return use.kinds
    found: dict[Origin, None] = {}
    for one in use.closure.constructions:
        try:
            module = written_out(one.facts, one.call).module
        except (AtRunTime, BindingError):
            continue
        found.update(dict.fromkeys(use.conversion.code.origins(one.facts, module)))
    return tuple(found)

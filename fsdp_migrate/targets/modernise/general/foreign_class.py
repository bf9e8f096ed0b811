"""FSDP003: FSDP taken from a library, which is not followed: whether it is torch's class is not known."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_CLASS = "FullyShardedDataParallel"
_CLASSES = ("FSDP", _CLASS)
# The libraries with a class of this name that is not torch's.
_OTHERS = ("fairscale", "megatron", "torch_xla")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the first place that takes the class from a library, if any does."""
    found = [(place, name) for place, name in _taken(facts) if facts.reached(place) and _is_foreign(facts, name)]
    if not found:
        return
    place, statement = found[0][0], facts.statement(found[0][0])
    names = list(dict.fromkeys(name for _, name in found))
    listed = " and ".join(f"`{name}`" for name in names)
    be = "are" if len(names) > 1 else "is"
    message = f"{listed} {be} not part of the project: the use of FSDP is not checked here"
    verdict = manual(f"if it is torch's class, import `{_CLASS}` from `torch.distributed.fsdp`")
    yield finding(facts, card, place, statement, message, verdict, Severity.HINT)


def _taken(facts: ModuleFacts) -> Iterator[tuple[ast.AST, str]]:
    """Places that take something called like the class from a module, with its full name."""
    for statement in facts.structure.imports:
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            for alias in statement.names:
                if alias.name in _CLASSES:
                    yield alias, f"{statement.module}.{alias.name}"
    for node in facts.structure.attributes:
        if node.attr == _CLASS or (node.attr in _CLASSES and _is_called(facts, node)):
            name = facts.names.qualified(node)
            # Of what begins with a capital it is a member, as of an enum.
            if name is not None and "." in name and name.split(".")[-2][0].islower():
                yield node, name


def _is_called(facts: ModuleFacts, node: ast.Attribute) -> bool:
    parent = facts.structure.parents[node]
    return isinstance(parent, ast.Call) and parent.func is node


def _is_foreign(facts: ModuleFacts, name: str) -> bool:
    root, project = name.split(".")[0], facts.project
    return root not in ("torch", "builtins", *_OTHERS) and not (project is not None and project.is_own(name))


RULE = Rule(
    RuleCard(
        code="FSDP003",
        name="fsdp-from-a-library",
        summary="FSDP imported from a library outside the project",
        explanation="""\
Names are followed through the modules of the project, but not through installed libraries. After `from theirlib import
FSDP` the class may be torch's or the library's own, so its methods, arguments and models are not checked in this file.
One hint per file says so. Rules that do not need the class (imports, `torch.load`, collectives) still apply.

fairscale, megatron and torch_xla have their own classes of this name. Imports from them are not reported.""",
        applicability="manual",
        severity=Severity.HINT,
        flags=(
            Example(
                """\
from theirlib.distributed import FSDP

def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)
"""
            ),
        ),
        leaves=(
            """\
from fairscale.nn import FullyShardedDataParallel as FSDP

def state(model):
    return FSDP.state_dict(model)
""",
        ),
    ),
    words=(),
    check=check,
    scope="everywhere",
)

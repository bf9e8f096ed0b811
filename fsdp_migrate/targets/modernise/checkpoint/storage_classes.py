"""FSDP701: storage of distributed checkpoints without the methods that newer releases ask for.

Source: catalogue dcp-storage-abstract (2.3.1 checkpoint/storage.py; run with 2.13).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from packaging.version import Version

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.class_members import all_members, members
from fsdp_migrate.facts.names import LOCAL
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual
from fsdp_migrate.source import Span

_MODULES = (
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.storage",
    "torch.distributed._shard.checkpoint",
    "torch.distributed._shard.checkpoint.storage",
)
_CLASSES = ("StorageWriter", "StorageReader")
_TORCH = {f"{module}.{name}": name for module in _MODULES for name in _CLASSES}
SINCE = Version("2.3")
# The methods that are abstract since then, each with how its definition begins.
METHODS: Mapping[str, str] = {
    "reset": "def reset(self, checkpoint_id=None)",
    "validate_checkpoint_id": "@classmethod def validate_checkpoint_id(cls, checkpoint_id)",
}
_HARMLESS = frozenset({"builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol"})


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find classes of their own storage that cannot be made any more."""
    for cls in facts.memo(_classes, lambda: _classes(facts)):
        bases = _bases(facts, cls, set())
        if not bases or _is_made_to_derive_from(facts, cls):
            continue
        given = _given(facts, cls, set())
        missing = [name for name in METHODS if name not in given]
        if not missing or _is_completed_elsewhere(facts, cls, missing):
            continue
        if any(release >= SINCE for release in facts.gates.alive(cls)):
            listed = " and ".join(f"`{name}`" for name in missing)
            message = (
                f"`{bases[0]}` requires {listed} since torch 2.3, and `{cls.name}` does not define it: creating "
                "one raises TypeError"
            )
            stubs = " and ".join(f"`{METHODS[name]}`" for name in missing)
            verdict = manual(f"add {stubs}; older releases do not call them")
            yield finding(facts, card, _name_of(facts, cls), cls, message, verdict)


def _name_of(facts: ModuleFacts, cls: ast.ClassDef) -> Span:
    """Where the name of a class stands: that a base is missing in some release is for other rules to tell there."""
    keyword = facts.source.span(cls).start
    start = facts.source.data.find(cls.name.encode(), keyword + len("class"))
    # Letters may be written otherwise than they are read.
    return Span(start, start + len(cls.name.encode())) if start >= 0 else Span(keyword, keyword + len("class"))


def _classes(facts: ModuleFacts) -> list[ast.ClassDef]:
    bound = (b for scope in facts.structure.module.nested() for found in scope.bindings.values() for b in found)
    found = [b.node for b in bound if b.kind is Kind.DEFINITION and isinstance(b.node, ast.ClassDef)]
    return sorted(found, key=lambda cls: (cls.lineno, cls.col_offset))


def _bases(facts: ModuleFacts, cls: ast.ClassDef, seen: set[ast.ClassDef]) -> list[str] | None:
    """The storage classes of torch that a class derives from; None where a base may bring any method."""
    found: list[str] = []
    if any(isinstance(base, ast.Starred) for base in cls.bases):
        return None
    if cls in seen:
        return found
    seen.add(cls)
    for base in cls.bases:
        for meaning in facts.names.meanings(base.value if isinstance(base, ast.Subscript) else base):
            own = meaning.binding.node if meaning.binding is not None else None
            if isinstance(own, ast.ClassDef):
                inherited = _bases(facts, own, seen)
                if inherited is None:
                    return None
                found += inherited
            elif meaning.qualified in _TORCH:
                found.append(_TORCH[meaning.qualified])
            elif not _is_known(facts, meaning.qualified):
                return None
    return found


def _given(facts: ModuleFacts, cls: ast.ClassDef, seen: set[ast.ClassDef]) -> set[str]:
    """What a class has of its own and from bases that come before torch's class in the order of methods."""
    found, reached = {*members(cls)}, False
    if cls in seen:
        return found
    seen.add(cls)
    for base in cls.bases:
        for meaning in facts.names.meanings(base.value if isinstance(base, ast.Subscript) else base):
            own = meaning.binding.node if meaning.binding is not None else None
            if isinstance(own, ast.ClassDef):
                derives = bool(_bases(facts, own, set()))
                found |= _given(facts, own, seen) if derives or not reached else set()
                reached = reached or derives
            elif meaning.qualified in _TORCH:
                reached = True
            elif not reached and meaning.qualified is not None and facts.project is not None:
                found |= facts.project.members(meaning.qualified)
    return found


def _is_completed_elsewhere(facts: ModuleFacts, cls: ast.ClassDef, missing: Sequence[str]) -> bool:
    """Whether a class of another module derives from this one and has what it lacks."""
    project = facts.project
    if project is None or not facts.scope(cls).is_module:
        return False
    parents = ((use, use.facts.structure.parents[use.node]) for use in project.uses(cls.name) or ())
    return any(
        isinstance(derived, ast.ClassDef)
        and use.node in derived.bases
        and {*missing} <= all_members(derived, use.facts.names)
        for use, derived in parents
    )


def _is_known(facts: ModuleFacts, qualified: str | None) -> bool:
    """Whether it can be seen what a base has: it is of the project, or has nothing of the kind."""
    if qualified is None or qualified.startswith(LOCAL):
        return False
    project = facts.project
    return qualified in _HARMLESS or (project is not None and bool(project.members(qualified)))


def _is_made_to_derive_from(facts: ModuleFacts, cls: ast.ClassDef) -> bool:
    """Whether a class leaves methods to others: it has abstract ones, or the file derives from it."""
    functions = [part for part in cls.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
    decorators = [decorator for function in functions for decorator in function.decorator_list]
    if any("abstract" in getattr(one, "attr", getattr(one, "id", "")) for one in decorators):
        return True
    bases = (base for other in facts.memo(_classes, lambda: _classes(facts)) for base in other.bases)
    return any(m.binding is not None and m.binding.node is cls for base in bases for m in facts.names.meanings(base))


_WRITER = """\
from torch.distributed.checkpoint import StorageWriter

class {name}(StorageWriter):
    def set_up_storage_writer(self, is_coordinator): ...

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def write_data(self, plan, planner): ...

    def finish(self, metadata, results): ...
"""
_NEW = """\

    def reset(self, checkpoint_id=None): ...

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True
"""

RULE = Rule(
    RuleCard(
        code="FSDP701",
        name="storage-without-new-methods",
        summary="a `StorageWriter` or `StorageReader` without the methods that torch 2.3 requires",
        explanation="""\
torch 2.3 added two abstract methods to `StorageWriter` and `StorageReader`: `reset` and `validate_checkpoint_id`. A
class written for 2.0 to 2.2 raises "TypeError: Can't instantiate abstract class". Older releases do not call the two
methods, so a class that defines them works on all releases.

Not reported: classes with abstract methods of their own, classes that are subclassed (in another module: by one with
the methods), and classes with a base that is not visible and may define the methods.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(Example(before=_WRITER.format(name="BucketWriter")),),
        leaves=(
            _WRITER.format(name="BucketWriter") + _NEW,
            "from torch.distributed.checkpoint import FileSystemWriter\n\nclass Mine(FileSystemWriter): ...\n",
        ),
        url="https://pytorch.org/docs/stable/distributed.checkpoint.html",
    ),
    scope="near",
    words=_CLASSES,
    check=check,
)

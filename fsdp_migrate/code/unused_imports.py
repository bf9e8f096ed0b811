"""Which imports a fix leaves unused: the uses of imported names that it takes away."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Container, Iterator

from fsdp_migrate.edits import ImportBinding, RemovedUse
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.evaluation import calls_in
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.facts.looked_up_names import look_up
from fsdp_migrate.facts.names import is_in_package
from fsdp_migrate.facts.scopes import TRIES, Binding, Kind

_WORD = re.compile(r"\w+")
_SAYING = frozenset("warn filterwarnings simplefilter print debug info warning error exception critical log".split())
_MAKING = frozenset(
    "functools.partial torch.device builtins.dict builtins.set builtins.frozenset builtins.tuple builtins.list".split()
)
_TYPE_COMMENT = re.compile(r"#\s*type:\s*(?!ignore\b)")


def removed_use(facts: ModuleFacts, node: ast.expr) -> tuple[RemovedUse, ...]:
    """The release of the imported name that the name or attribute chain `node` starts with, empty for others."""
    found = look_up(node)
    node = node if found is None else found.owner
    while isinstance(node, ast.Attribute):
        node = node.value
    if not isinstance(node, ast.Name):
        return ()
    bindings = facts.names.bindings(node)
    if len(bindings) != 1 or not _is_import(bindings[0]):
        return ()
    return (RemovedUse(facts.source.span(node), import_binding(facts, bindings[0])),)


def removed_value(facts: ModuleFacts, node: ast.Name, kept: Container[ast.AST] = ()) -> tuple[RemovedUse, ...]:
    """The release of a name that was given a value without effect, empty for others; the assignment goes with the last.

    What is `kept` in the value is still used elsewhere.
    """
    bindings = facts.names.bindings(node)
    binding = bindings[0] if len(bindings) == 1 else None
    if binding is None or binding.kind is not Kind.ASSIGNMENT or not _may_go(facts, binding):
        return ()
    statement = facts.statement(binding.node)
    inside = [one for one in ast.walk(binding.value or statement) if isinstance(one, ast.Name) and one not in kept]
    then = tuple(each for one in inside for each in (*removed_use(facts, one), *removed_value(facts, one, kept)))
    uses = tuple(sorted(facts.source.span(use) for use in uses_of(binding)))
    return (
        RemovedUse(
            facts.source.span(node), ImportBinding(facts.source.span(statement), binding.name, uses, True, then)
        ),
    )


def _may_go(facts: ModuleFacts, binding: Binding) -> bool:
    """Whether an assignment binds one name that only its own module can read, to a value without effect."""
    statement, home, value = facts.structure.parents.get(binding.node), binding.scope, binding.value
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or value is None:
        return False
    if len(getattr(statement, "targets", "1")) != 1 or len(home.bindings[binding.name]) != 1 or home.is_class:
        return False
    made = (one for one in calls_in(value) if not isinstance(one, ast.Call) or not _makes_only(facts, one))
    if next(made, None) is not None or any(True for _ in strings_naming(facts, binding.name)):
        return False
    return not (home.is_module and facts.project is not None and facts.project.is_imported(binding.name))


def _makes_only(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a call does no more than make an object."""
    name = facts.names.qualified(call.func) or ""
    return name in _MAKING or (is_in_package(name) and name.rpartition(".")[2][:1].isupper() and name != FSDP)


def import_binding(facts: ModuleFacts, binding: Binding) -> ImportBinding:
    """A name that an import binds, with all its uses."""
    return facts.memo((import_binding, binding), lambda: _import_binding(facts, binding))


def _import_binding(facts: ModuleFacts, binding: Binding) -> ImportBinding:
    uses = tuple(sorted(facts.source.span(use) for use in uses_of(binding)))
    return ImportBinding(facts.source.span(binding.node), binding.name, uses, _is_removable(facts, binding))


def uses_of(binding: Binding) -> Iterator[ast.Name]:
    """Where the name of a binding is read, in its scope and those inside."""
    for scope in binding.scope.module.users.get(binding.name, ()):
        if scope.lookup(binding.name) is binding.scope:
            yield from scope.uses[binding.name]


def _is_import(binding: Binding) -> bool:
    """Whether an import binds the name, and does no more: `import a.b` also loads `b`, for all who have `a`."""
    if binding.kind is not Kind.IMPORT or not isinstance(binding.node, (ast.Import, ast.ImportFrom)):
        return False
    plain = isinstance(binding.node, ast.Import)
    return not (plain and any("." in alias.name and not alias.asname for alias in binding.node.names))


def _is_removable(facts: ModuleFacts, binding: Binding) -> bool:
    scope = binding.scope
    if len(scope.bindings[binding.name]) != 1 or scope.is_class or is_guarded(facts, binding):
        return False
    # The other modules are asked last: to answer, all files of the project are read.
    return not _is_named_in_text(facts, binding.name) and not is_exported(facts, binding)


def is_exported(facts: ModuleFacts, binding: Binding) -> bool:
    """Whether other modules take an imported name from this one, or are meant to; `__all__` apart."""
    scope = binding.scope
    if scope.is_module and (os.path.basename(facts.path) == "__init__.py" or _is_explicit_export(binding)):
        return True
    project = facts.project
    return project is not None and scope.is_module and project.is_imported(binding.name)


def is_guarded(facts: ModuleFacts, binding: Binding) -> bool:
    """Whether the import stands in a `try`, or at module level under an `if`: others may rely on the name."""
    node = binding.node
    while node is not binding.scope.node:
        node = facts.structure.parents[node]
        if isinstance(node, TRIES) or (isinstance(node, ast.If) and binding.scope.is_module):
            return True
    return False


def _is_explicit_export(binding: Binding) -> bool:
    """Whether the name is imported as itself, which marks it as meant for others."""
    assert isinstance(binding.node, (ast.Import, ast.ImportFrom))
    return any(alias.asname == alias.name == binding.name for alias in binding.node.names)


def _is_named_in_text(facts: ModuleFacts, name: str) -> bool:
    """Whether a string (`__all__`, a quoted annotation, `getattr`) or a type comment may refer to the name."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    if any(True for _ in strings_naming(facts, name)):
        return True
    return any(_TYPE_COMMENT.match(comment) and word.search(comment) for _, comment in facts.source.comments)


def strings_naming(facts: ModuleFacts, name: str) -> Iterator[ast.Constant]:
    """The strings that may refer to a name: `__all__`, quoted annotations, what is given to `getattr` or patched.

    A text for people is none, and `torch.cuda.amp.GradScaler` is a name of torch.
    """
    word = re.compile(rf"\b{re.escape(name)}\b")
    for constant in facts.structure.strings:
        text = constant.value
        if isinstance(text, str) and word.search(text) and name in _names_read(text) and not _is_prose(facts, constant):
            yield constant


def _is_prose(facts: ModuleFacts, constant: ast.Constant) -> bool:
    """Whether a string is the text of a warning, a message of a log or an error, or what it is compared with."""
    parent: ast.AST = facts.structure.parents[constant]
    if isinstance(parent, ast.keyword):
        parent = facts.structure.parents[parent]
    if isinstance(parent, ast.Call):
        name = getattr(parent.func, "attr", getattr(parent.func, "id", ""))
        return name in _SAYING or isinstance(facts.structure.parents[parent], ast.Raise)
    return isinstance(parent, ast.Compare) and isinstance(parent.ops[0], (ast.Eq, ast.NotEq))


def _names_read(text: str) -> frozenset[str]:
    """The names that a text reads if it is an expression, those behind its dots included where it may be a path."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return frozenset()
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    # Texts in texts are those of `Literal` and the like.
    names |= {word for node in nodes if isinstance(node, ast.Constant) for word in _WORD.findall(str(node.value))}
    if "torch" not in names:
        names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return frozenset(names)

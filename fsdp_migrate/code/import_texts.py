"""The spelling of names in rewritten code, and the imports that it needs."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Container, Iterable, Iterator
from functools import cache

from packaging.version import Version

from fsdp_migrate.edits import EditImport, ImportBehind
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.fsdp import Receiver
from fsdp_migrate.facts.names import PACKAGE, Meaning
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.facts.scopes import TRIES, Binding, Kind, Scope
from fsdp_migrate.rules.supported_releases import older
from fsdp_migrate.source import Span
from fsdp_migrate.torch_api.data import exists


class CannotSupply(Exception):
    """No import can provide a name here. The message is a reason for the user."""


class Supply:
    """The spelling of each symbol at one place, with the import edits or statements that make it valid."""

    def __init__(self) -> None:
        self.spelling: dict[str, str] = {}
        self.edits: list[EditImport | ImportBehind] = []
        self.prologue: tuple[str, ...] = ()


def supply(facts: ModuleFacts, symbols: Iterable[str], at: ast.AST, receiver: Receiver, floor: str) -> Supply:
    """Spell `symbols` of torch.distributed.fsdp at `at`, in the style of `receiver`.

    A name that is visible there is used, and an attribute chain gives chains. Otherwise the names join the import of
    FSDP, under an alias if the plain name is taken. They are imported directly before the statement in three cases:
    FSDP is reached through an instance and no import of it is visible; releases older than `floor`, which do not reach
    `at`, run that import, too; the module with the import continues without it.

    Raises:
        CannotSupply: no import that runs can bring the names.
    """
    result = Supply()
    missing = []
    for symbol in symbols:
        spelling = spelled(facts, symbol, at, receiver)
        if spelling is None:
            missing.append(symbol)
        else:
            result.spelling[symbol] = spelling
    origins = origins_of(facts, at, receiver)
    unseen = not origins and not receiver.meanings
    here = unseen or _is_shared_with_older(facts, origins, at, Version(floor))
    if missing and (here or _is_optional(facts, origins, at, receiver)):
        result.prologue = (_local_import(facts, missing, at, result.spelling),)
        return result
    for symbol in missing:
        spelling, edits = _imported(facts, symbol, at, origins)
        result.spelling[symbol] = spelling
        result.edits.extend(edits)
    return result


def _is_shared_with_older(facts: ModuleFacts, origins: list[Binding], at: ast.AST, floor: Version) -> bool:
    """Whether releases before `floor` run one of the imports, and none of them gets to `at`."""
    return not older(facts, floor, at) and any(older(facts, floor, origin.node) for origin in origins)


def _is_optional(facts: ModuleFacts, origins: list[Binding], at: ast.AST, receiver: Receiver) -> bool:
    """Whether FSDP comes from a module of the project that binds something else (None) without torch."""
    project, rest = facts.project, ""
    if receiver.meanings and isinstance(receiver.node, ast.Attribute):  # a module is what is imported
        rest = "." + ast.unparse(receiver.node).partition(".")[2]
    names = [f"{one.target}{rest}" for one in origins if not _takes_from_torch(_joined(facts, one.node, at))]
    return project is not None and any(project.is_optional(name) for name in names)


def spelled(facts: ModuleFacts, symbol: str, at: ast.AST, receiver: Receiver) -> str | None:
    """The spelling of `symbol` at `at` without a new import, None if there is none."""
    return _visible(facts, symbol, at, receiver) or _chained(facts, symbol, at, receiver)


def _local_import(facts: ModuleFacts, symbols: list[str], at: ast.AST, spelling: dict[str, str]) -> str:
    """An import of `symbols` before the statement of `at`; the names are noted in `spelling`."""
    scope = facts.scope(facts.statement(at))
    added = []
    for symbol in sorted(symbols):
        spelling[symbol] = free_name(facts, symbol, [scope], facts.scope(at))
        added.append(symbol if spelling[symbol] == symbol else f"{symbol} as {spelling[symbol]}")
    return f"from {PACKAGE} import {', '.join(added)}"


def fresh_name(scope: Scope, stem: str, given: Container[str]) -> str:
    """`stem`, `stem_2` and so on: a name that is not in `given`, and that no scope around uses or binds."""
    number = 1
    while (name := stem if number == 1 else f"{stem}_{number}") in given or _taken(scope, name):
        number += 1
    return name


def _taken(scope: Scope, name: str) -> bool:
    home = next(outer for outer in scope.enclosing() if outer.is_function or outer.is_module or outer.is_class)
    inside = any(name in inner.bindings or name in inner.uses for inner in home.nested())
    return inside or any(name in outer.bindings for outer in scope.enclosing())


def _visible(facts: ModuleFacts, symbol: str, at: ast.AST, receiver: Receiver) -> str | None:
    scope = facts.scope(at)
    wanted = f"{PACKAGE}.{symbol}"
    for outer in scope.enclosing():
        for name, imports in bringing(facts, outer, wanted):
            if scope.lookup(name) is not outer or not certainly_ran(facts, imports, outer, at, receiver):
                continue
            if len(imports) == len(outer.bindings[name]) or all(_is_kept(facts, one.node, at) for one in imports):
                return name
    return symbol if facts.names.stars(scope, symbol) == wanted else None


def bringing(facts: ModuleFacts, scope: Scope, symbol: str) -> list[tuple[str, list[Binding]]]:
    """The names in `scope` that imports of `symbol` bind, and otherwise only stand-ins for a missing one."""

    def found() -> list[tuple[str, list[Binding]]]:
        result = []
        for name, bindings in scope.bindings.items():
            imports = [one for one in bindings if facts.names.brings(one, symbol)]
            if imports and all(one in imports or _stands_in(facts, one, imports) for one in bindings):
                result.append((name, imports))
        return result

    return facts.memo((bringing, scope, symbol), found)


def _stands_in(facts: ModuleFacts, binding: Binding, imports: list[Binding]) -> bool:
    """Whether the handler of the `try` around all `imports` of a name binds it: `except ...: NAME = None`."""
    handler = facts.structure.parents.get(facts.statement(binding.node))
    block = facts.structure.parents.get(handler) if isinstance(handler, ast.ExceptHandler) else None
    return block is not None and all(_arm(facts, one.node) == (block, "body") for one in imports)


def _is_kept(facts: ModuleFacts, imported: ast.AST, at: ast.AST) -> bool:
    """Whether nothing after an import in its `try` fails on a release that reaches `at` and binds the stand-in."""
    block = facts.structure.parents[imported]
    if not isinstance(block, ast.Try) or imported not in block.body:
        return False
    place, releases = block.body.index(imported), facts.gates.alive(at)
    needs = (need for need in facts.gates.attempt(block).needs if need.index >= place)
    imports_only = all(isinstance(one, (ast.Import, ast.ImportFrom)) for one in block.body[place:])
    return imports_only and all(need.absent(release) is False for need in needs for release in releases)


def certainly_ran(facts: ModuleFacts, imports: list[Binding], home: Scope, at: ast.AST, receiver: Receiver) -> bool:
    """Whether one of `imports` of a name in `home` has run when control reaches `at` with an FSDP object."""
    usable = [
        binding
        for binding in imports
        if not for_type_checking(facts, binding.node) and (home.is_module or binding.position < place_of(at))
    ]
    if any(not binding.conditional for binding in usable):
        return True
    if home.is_module and any(_is_chosen(facts, binding, at) for binding in usable):
        return True
    arms = {_arm(facts, binding.node) for binding in usable}
    if arms & {_arm(facts, node) for node in (at, *_ancestors(facts, at)) if node in facts.structure.parents}:
        return True
    origins = [meaning.binding for meaning in receiver.meanings if meaning.binding is not None]
    return bool(origins) and all(_arm(facts, origin.node) in arms for origin in origins)


def _is_chosen(facts: ModuleFacts, binding: Binding, at: ast.AST) -> bool:
    """Whether only the version of torch decides on an import, and all releases that reach `at` run it."""
    child = binding.node
    for around in _ancestors(facts, child):
        if not isinstance(around, (ast.If, ast.Module, *TRIES)) or not _follows_imports(around, child):
            return False
        child = around
    surely = facts.gates.flags.surely
    return all(surely(binding.node, one) and exists(binding.target or "", one) for one in facts.gates.alive(at))


def _follows_imports(around: ast.AST, child: ast.AST) -> bool:
    """Whether only imports are before `child` in a body that may be left early."""
    if not isinstance(around, TRIES):
        return True
    before = itertools.takewhile(lambda statement: statement is not child, around.body)
    return child in around.body and all(isinstance(one, (ast.Import, ast.ImportFrom)) for one in before)


def _arm(facts: ModuleFacts, node: ast.AST) -> tuple[ast.AST, str]:
    """The block that a node stands in directly: its parent and the name of the parent's list."""
    parent = facts.structure.parents[node]
    for field_name, value in ast.iter_fields(parent):
        if value is node or (isinstance(value, list) and node in value):
            return parent, field_name
    return parent, ""


def _ancestors(facts: ModuleFacts, node: ast.AST) -> Iterator[ast.AST]:
    while node in facts.structure.parents:
        node = facts.structure.parents[node]
        yield node


def for_type_checking(facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether `node` is under `if TYPE_CHECKING:`, which never runs."""
    child = node
    for parent in _ancestors(facts, node):
        if isinstance(parent, ast.If) and child in parent.body and _is_type_checking(parent.test):
            return True
        child = parent
    return False


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else None
    return name == "TYPE_CHECKING"


def _chained(facts: ModuleFacts, symbol: str, at: ast.AST, receiver: Receiver) -> str | None:
    scope = facts.scope(at)
    for meaning in receiver.meanings or _visible_modules(facts, scope):
        if meaning.chain is None or meaning.binding is None or meaning.qualified is None:
            continue
        home = scope.lookup(meaning.chain.split(".")[0])
        if home is None or meaning.binding not in home.bindings[meaning.binding.name]:
            continue
        module = meaning.qualified.rpartition(".")[0]
        if _offers(facts, module, symbol, at):
            return f"{meaning.chain}.{symbol}"
    return None


def _visible_modules(facts: ModuleFacts, scope: Scope) -> Iterator[Meaning]:
    """Imports of the package as a module, for code that only reaches FSDP through an instance."""
    if facts.fsdp.imports(scope):
        return
    for outer in scope.enclosing():
        for bindings in outer.bindings.values():
            for binding in bindings:
                if binding.target == PACKAGE and binding.kind is Kind.IMPORT and not binding.conditional:
                    yield Meaning(f"{PACKAGE}.FullyShardedDataParallel", binding, ast.Name(binding.name))


def _offers(facts: ModuleFacts, module: str, symbol: str, at: ast.AST) -> bool:
    """Whether `module` has `symbol` in every supported release that reaches `at`, from the first that has it.

    Older ones are below the floor of the fix, which says so.
    """
    return _in_all(f"{module}.{symbol}", facts.gates.alive(at))


@cache
def _in_all(path: str, releases: frozenset[Version]) -> bool:
    having = {release for release in releases if exists(path, release)}
    return bool(having) and having.issuperset(release for release in releases if release >= min(having))


def origins_of(facts: ModuleFacts, at: ast.AST, receiver: Receiver) -> list[Binding]:
    """The imports that provide the receiver's class at run time, on a release that reaches `at`."""
    bindings = [m.binding for m in receiver.meanings if m.binding is not None] or facts.fsdp.imports(facts.scope(at))
    found = [_import_of(facts, binding) for binding in bindings]
    brought = (b for b in found if b is not None and not for_type_checking(facts, b.node))
    return [b for b in brought if facts.gates.alive(b.node) & facts.gates.alive(at)]


def _imported(
    facts: ModuleFacts, symbol: str, at: ast.AST, origins: list[Binding]
) -> tuple[str, list[EditImport | ImportBehind]]:
    if not origins:
        raise CannotSupply(f"the imports of FSDP here cannot bring in `{symbol}`: import it")
    for binding in origins:
        if binding.scope is not facts.scope(binding.node):
            raise CannotSupply(f"`{binding.name}` is imported under `global` or `nonlocal`: import `{symbol}` as well")
        _check_origin(facts, symbol, _joined(facts, binding.node, at))
    name = free_name(facts, symbol, [binding.scope for binding in origins], facts.scope(at))
    added = symbol if name == symbol else f"{symbol} as {name}"
    return name, [_import_edit(facts, _joined(facts, binding.node, at), added) for binding in origins]


def _joined(facts: ModuleFacts, origin: ast.AST, at: ast.AST) -> ast.AST:
    """The import that takes what `origin`, which brings FSDP, cannot: one of the package that surely runs before `at`.

    That is `origin` itself, to be followed by a new one, where the two do not both stand at the top of the module.
    """
    top = facts.structure.module.node
    if _takes_from_torch(origin) or facts.structure.parents[origin] is not top:
        return origin
    alive = facts.gates.alive(origin)
    for node in facts.structure.imports:
        from_package = isinstance(node, ast.ImportFrom) and node.module == PACKAGE and not node.level
        first = from_package and facts.structure.parents[node] is top and place_of(node) < place_of(at)
        if first and all(alias.name != "*" for alias in node.names) and facts.gates.alive(node) == alive:
            return node
    return origin


def _check_origin(facts: ModuleFacts, symbol: str, statement: ast.AST) -> None:
    """Make sure that `symbol` can be imported where `statement` brings FSDP: by it, or behind it.

    Raises:
        CannotSupply: it cannot.
    """
    if _takes_from_torch(statement):
        module = getattr(statement, "module", "")
        if not _offers(facts, module, symbol, statement):
            raise CannotSupply(f"`{symbol}` cannot be imported from `{module}`: import it from another place")
    elif not _offers(facts, PACKAGE, symbol, statement):
        raise CannotSupply(f"`{symbol}` cannot be imported from `{PACKAGE}` on every supported torch")
    elif not is_alone(facts, statement):
        text = " ".join(facts.source.segment(statement).split())
        raise CannotSupply(f"`{text}` shares its line: put it on its own line, or import `{symbol}`")


def _takes_from_torch(statement: ast.AST) -> bool:
    is_from = isinstance(statement, ast.ImportFrom) and not statement.level
    return is_from and f"{getattr(statement, 'module', '')}.".startswith("torch.")


def _import_edit(facts: ModuleFacts, statement: ast.AST, added: str) -> EditImport | ImportBehind:
    span, unit = facts.source.span(statement), facts.indent_unit
    if _takes_from_torch(statement):
        return EditImport(span, add=(added,), unit=unit)
    assert isinstance(statement, ast.stmt)
    return ImportBehind(span, PACKAGE, (added,), facts.indentation(statement), unit)


def is_alone(facts: ModuleFacts, statement: ast.AST) -> bool:
    """Whether the lines of a statement contain nothing else but a comment."""
    source, span = facts.source, facts.source.span(statement)
    before = source.data[source.line_start(span.start) : span.start]
    behind = re.split(r"[\r\n]", source.segment(Span(span.end, len(source.data))), maxsplit=1)[0].strip(" \t\f")
    return not before.strip(b" \t\f") and (not behind or behind.startswith("#"))


def free_name(facts: ModuleFacts, symbol: str, homes: list[Scope], at: Scope) -> str:
    """`symbol`, or an alias for it that is free in all `homes` and visible at `at`."""
    prefixes = ("", "FSDP", "Torch", "_") if symbol[0].isupper() else ("", "torch_", "dcp_", "_")
    for candidate in (f"{prefix}{symbol}" for prefix in prefixes):
        if not any(_collides(facts, home, at, candidate) for home in homes):
            return candidate
    raise CannotSupply(f"the name `{symbol}` is already used here: import it under another name")


def _import_of(facts: ModuleFacts, binding: Binding) -> Binding | None:
    """The `from ... import` of a binding: itself, or the one that provides the base class of a subclass."""
    if isinstance(binding.node, ast.ClassDef):
        for base in binding.node.bases:
            for meaning in facts.names.meanings(base):
                if meaning.binding is not None and meaning.binding is not binding:
                    return _import_of(facts, meaning.binding)
        return None
    if isinstance(binding.node, ast.Import):
        # `import torch...` is spelled as a chain; of a module of the project nothing of torch is to be expected.
        return binding if (binding.target or "").split(".")[0] != "torch" else None
    return binding if isinstance(binding.node, ast.ImportFrom) else None


def _collides(facts: ModuleFacts, home: Scope, at: Scope, name: str) -> bool:
    """Whether binding `name` in `home` would change the meaning of a name, or would not be visible at `at`."""
    if name in home.bindings or any(name in outer.bindings for outer in at.enclosing() if outer is not home):
        return True
    return facts.memo((_collides, home, name), lambda: _is_used_inside(home, name))


def _is_used_inside(home: Scope, name: str) -> bool:
    """Whether a binding of `name` in `home` would capture a use of a name that is bound nowhere around."""
    return any(name in inner.uses and inner.lookup(name) is None for inner in home.nested())

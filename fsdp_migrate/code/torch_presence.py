"""On which supported releases a place runs, what is missing there, and whether the file has seen to it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from packaging.version import Version

from fsdp_migrate.code.import_texts import for_type_checking
from fsdp_migrate.code.torch_names import Quoted, imports
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.distributed import DISTRIBUTED, uses_distributed
from fsdp_migrate.facts.releases.attempts import attempts_around, expecting, names_of_exceptions
from fsdp_migrate.findings import Severity
from fsdp_migrate.torch_api import PUBLISHED
from fsdp_migrate.torch_api.data import exists
from fsdp_migrate.torch_api.words import since, span_of

_BROAD = frozenset({"Exception", "BaseException"})
IMPORTING = frozenset({"ImportError", "ModuleNotFoundError", *_BROAD})
READING = frozenset({"AttributeError", *_BROAD})
TAKING = frozenset({"KeyError", "LookupError", *_BROAD})
# A handler of every error behind more statements is there for what the program does, not for what torch lacks.
_MOST_TRIED = 3
CALLING = frozenset({"TypeError", "Exception", "BaseException"})
# Parts of the names of decorators that keep a function from running where it cannot.
_CHOOSY = ("skip", "require", "runif", "run_if", "xfail")
_BODIES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
# Context managers in which an error is expected or passed over.


def concerned(facts: ModuleFacts, path: str) -> bool:
    """Whether the general rules judge a name here: it is in torch.distributed, or the file uses that."""
    return path.startswith(f"{DISTRIBUTED}.") or uses_distributed(facts)


@cache
def having(path: str) -> tuple[Version, ...]:
    """The known releases that have a name, oldest first."""
    return tuple(release for release in PUBLISHED if exists(path, release))


def lacking(path: str, releases: Iterable[Version]) -> tuple[Version, ...]:
    """Those of the releases that certainly do not have the name, oldest first."""
    if not _absent(path):
        return ()
    return tuple(release for release in sorted(releases) if exists(path, release) is False)


@cache
def _absent(path: str) -> frozenset[Version]:
    """The known releases that certainly do not have a name; every other release counts as one of them."""
    return frozenset(release for release in PUBLISHED if exists(path, release) is False)


def presence(path: str, missing: Sequence[Version]) -> str:
    """In words, for a message, where a name is not that the releases `missing` lack."""
    there = having(path)
    before = [release for release in missing if release < there[0]]
    after = [release for release in missing if release > there[-1]]
    if before and after:
        return f"available in torch {span_of(there)} only"
    if before:
        return f"new in torch {since(there[0])}"
    return gone(path) if after else f"not available in torch {span_of(missing)}"


def gone(path: str) -> str:
    """In words, since when there is no such name any more."""
    final = having(path)[-1]
    return f"removed in torch {since(next(release for release in PUBLISHED if release > final))}"


def running(facts: ModuleFacts, node: ast.AST) -> frozenset[Version]:
    """The supported releases on which control can reach `node`, as far as the imports in front of it let it come.

    An import without a fallback that a release is too old for ends what runs on it. One that a release is too new for
    does not: the import is to be fixed, and then the rest has to run.
    """
    alive = facts.gates.alive(node)
    position = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
    floors = [
        needed for block in _bodies_around(facts, node) for place, needed in _floors(facts, block) if place < position
    ]
    return _from(alive, max(floors)) if floors else alive


@cache
def _from(releases: frozenset[Version], floor: Version) -> frozenset[Version]:
    return frozenset(release for release in releases if release >= floor)


def _bodies_around(facts: ModuleFacts, node: ast.AST) -> Iterator[ast.AST]:
    """The functions around a node, and the module."""
    current: ast.AST | None = facts.structure.parents.get(node)
    while current is not None:
        if isinstance(current, _BODIES):
            yield current
        current = facts.structure.parents.get(current)


def _floors(facts: ModuleFacts, body: ast.AST) -> tuple[tuple[tuple[int, int], Version], ...]:
    """The imports that surely run in a function or module and need a certain release: their places and the release."""
    return facts.memo(_floors, lambda: _find_floors(facts)).get(body, ())


def _find_floors(facts: ModuleFacts) -> dict[ast.AST, tuple[tuple[tuple[int, int], Version], ...]]:
    newest, oldest = facts.torch.newest, facts.torch.oldest
    found: dict[ast.AST, tuple[tuple[tuple[int, int], Version], ...]] = {}
    for taken in imports(facts):
        statement, body = taken.statement, facts.structure.parents[taken.statement]
        if not isinstance(body, _BODIES) or not exists(taken.path, newest):
            continue
        needed = having(taken.path)[0]
        if needed > oldest:
            found[body] = (*found.get(body, ()), ((statement.lineno, statement.col_offset), needed))
    return found


def excused(facts: ModuleFacts, node: ast.AST, errors: frozenset[str], *, too_new: bool) -> bool:
    """Whether the file expects that `node` fails with one of `errors`: something catches them there.

    A handler that only raises again tells that torch is too old; it excuses names that are too new, no others.
    """
    for attempt in attempts_around(node, facts.structure.parents):
        caught = errors if len(attempt.body) <= _MOST_TRIED else errors - _BROAD
        for handler in attempt.handlers:
            if names_of_exceptions(handler.type) & caught and (too_new or not isinstance(handler.body[-1], ast.Raise)):
                return True
    return any(True for _ in expecting(node, errors, facts.structure.parents))


def errors_of(one: Quoted) -> frozenset[str]:
    """What looking a string up fails with where torch has no such name."""
    if one.reader is None:
        return IMPORTING | READING
    return TAKING if isinstance(one.reader, ast.Subscript) else READING


def severity(facts: ModuleFacts, node: ast.AST, missing: Sequence[Version], releases: Iterable[Version]) -> Severity:
    """What it means that some of the `releases` that reach `node` lack what it needs.

    What the newest of them lacks breaks with the next torch. What only older ones lack breaks where it runs as soon as
    the module is imported, or whenever its function is called; under a condition, in a function with an import of
    its own, in a string or behind a decorator that skips, it may well never run there, which makes it a hint. So does
    a range that nobody stated.
    """
    if _never_runs(facts, node):
        return Severity.HINT
    if max(releases) in missing:
        return Severity.BREAKS
    if facts.torch.assumed or _undecided(facts, node, missing):
        return Severity.HINT
    if runs_on_import(facts, node):
        return Severity.BREAKS
    lazy = isinstance(node, (ast.Import, ast.ImportFrom, ast.Constant)) or any(
        _floors(facts, body) for body in _bodies_around(facts, node) if not isinstance(body, ast.Module)
    )
    return Severity.HINT if lazy else Severity.BREAKS


def _never_runs(facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether only type checkers see the node."""
    if for_type_checking(facts, node):
        return True
    if not any(taken.module == "__future__" and taken.names[0].name == "annotations" for taken in _from_imports(facts)):
        return False
    child = node
    while (parent := facts.structure.parents.get(child)) is not None:
        if child in (getattr(parent, "annotation", None), getattr(parent, "returns", None)):
            return True
        child = parent
    return False


def _from_imports(facts: ModuleFacts) -> Iterator[ast.ImportFrom]:
    return (statement for statement in facts.structure.imports if isinstance(statement, ast.ImportFrom))


def runs_on_import(facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether a node is evaluated when the module is imported, in no function of it."""
    return not any(scope.is_function for scope in facts.scope(node).enclosing())


def _undecided(facts: ModuleFacts, node: ast.AST, missing: Iterable[Version]) -> bool:
    """Whether it takes more than the torch version to know that `node` runs once its function or module does."""
    child = node
    while (parent := facts.structure.parents.get(child)) is not None:
        for test in _conditions(parent, child):
            if not _is_main(test) and any(facts.gates.truth(test, release) is None for release in missing):
                return True
        if isinstance(parent, (ast.ExceptHandler, ast.match_case)) and facts.reached(parent):
            return True
        if _is_choosy(facts, parent):
            return True
        child = parent
    return False


def _conditions(parent: ast.AST, child: ast.AST) -> Sequence[ast.expr]:
    """The conditions of `parent` that decide whether `child` runs."""
    if isinstance(parent, (ast.If, ast.IfExp, ast.While)):
        return () if child is parent.test else (parent.test,)
    if isinstance(parent, ast.BoolOp) and child in parent.values:
        return parent.values[: parent.values.index(child)]
    if isinstance(parent, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return [test for generator in parent.generators if child is not generator for test in generator.ifs]
    return ()


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _is_choosy(facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether a function, class or test module is skipped where a decorator or mark says so."""
    if isinstance(node, ast.Module):
        return "pytestmark" in facts.structure.module.bindings
    decorators = getattr(node, "decorator_list", ())
    return any(word in ast.unparse(decorator).lower() for decorator in decorators for word in _CHOOSY)

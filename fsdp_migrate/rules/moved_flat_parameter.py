"""FSDP303: FlatParameter and its companions where they no longer are, or not yet.

`flatten_params_wrapper` is gone since torch 2.0, `flat_param` since 2.2, which has `_flat_param` instead; the package
itself offers FlatParameter from 1.12 to 2.15, and nothing else of it (catalogue flat-import).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from packaging.version import Version

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.moved_modules import (
    FLAT_PARAMETER,
    HOMES,
    Home,
    bound,
    companion_modules,
    home_of,
    import_trouble,
    lacking,
    move,
)
from fsdp_migrate.rules.releases import import_binding, uses_of
from fsdp_migrate.source import Span

_PATH = re.compile(rf"{re.escape(PACKAGE)}\.({'|'.join(HOMES)})((?:\.\w+)*)")


class _Problem(NamedTuple):
    """Names that a module lacks in some supported release, or that have a better home."""

    home: Home
    names: tuple[str, ...]
    missing: tuple[Version, ...]

    @property
    def message(self) -> str:
        path, listed = self.home.path, ", ".join(f"`{name}`" for name in self.names)
        if not self.missing:
            return f"`{path}` is private: {listed} is public in `{PACKAGE}`"
        if not lacking(self.home, (), self.missing):
            return f"`{path}` has no {listed} in torch {self.missing[0]}"
        if self.names == (FLAT_PARAMETER,):
            return f"`{path}` is {self.home.presence}: import {listed} from `{PACKAGE}`"
        return f"`{path}` is {self.home.presence}: {self.home.replacement}"

    @property
    def severity(self) -> Severity:
        return Severity.BREAKS if self.missing else Severity.HINT


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find imports, attribute chains and strings that name a place where FlatParameter or a companion is not."""
    for statement in facts.structure.imports:
        if facts.reached(statement) and not facts.gates.guarded_import(statement):
            for place, problem, verdict in _import_problems(facts, statement):
                yield finding(facts, card, place, statement, problem.message, verdict, problem.severity)
    yield from _chains(facts, card)
    yield from _strings(facts, card)


_Found = tuple[ast.AST | Span, _Problem, Verdict]


def _problem(facts: ModuleFacts, node: ast.AST, home: Home, names: tuple[str, ...]) -> _Problem | None:
    """What is wrong with taking `names` from the module at `node`, None when nothing is."""
    alive = facts.gates.alive(node)
    problem = _Problem(home, names, tuple(lacking(home, names, alive)))
    # One arm of several may be as private as it likes.
    improvable = names == (FLAT_PARAMETER,) and alive.issuperset(facts.torch.releases)
    return problem if problem.missing or improvable else None


def _import_problems(facts: ModuleFacts, statement: ast.Import | ast.ImportFrom) -> Iterator[_Found]:
    if isinstance(statement, ast.ImportFrom):
        return _from_imports(facts, statement)
    return _imports(facts, statement)


def _from_imports(facts: ModuleFacts, statement: ast.ImportFrom) -> Iterator[_Found]:
    if statement.level:
        return
    home = home_of(statement.module)
    if home is not None:
        yield from _names(facts, statement, home)
    elif statement.module == PACKAGE:
        for alias in statement.names:
            home = HOMES.get(alias.name)
            problem = None if home is None else _problem(facts, statement, home, ())
            if problem is not None:
                yield alias, problem, _module_from_package(facts, statement, alias)


def _names(facts: ModuleFacts, statement: ast.ImportFrom, home: Home) -> Iterator[_Found]:
    flat = [alias for alias in statement.names if alias.name == FLAT_PARAMETER]
    others = [alias for alias in statement.names if alias.name != FLAT_PARAMETER]
    if flat:
        problem = _problem(facts, statement, home, (FLAT_PARAMETER,))
        if problem is not None:
            place = statement if others else flat[0]
            yield place, problem, _public(facts, statement, flat, others)
    # What else is in a module that FlatParameter only passes through is no companion of it.
    companions = others if home.holds_companions else []
    missing = [alias for alias in companions if _problem(facts, statement, home, (alias.name,))]
    problem = _problem(facts, statement, home, tuple(alias.name for alias in missing)) if missing else None
    if problem is not None:
        place = statement if flat else missing[0]
        yield place, problem, _companions(facts, statement, others)


def _public(
    facts: ModuleFacts, statement: ast.ImportFrom, flat: Sequence[ast.alias], others: Sequence[ast.alias]
) -> Verdict:
    """FlatParameter from the package; the other names stay where they are, for the next pass."""
    moves = tuple(import_binding(facts, binding) for alias in flat for binding in _bindings(facts, statement, alias))
    trouble = import_trouble(facts, statement) if others else None
    if trouble is not None:
        return manual(trouble)
    return Verdict(Fix(tuple(move(facts, statement, bound(alias), PACKAGE) for alias in flat), moves=moves))


def _companions(facts: ModuleFacts, statement: ast.ImportFrom, others: Sequence[ast.alias]) -> Verdict:
    """The other names from whichever module has them."""
    names = [alias.name for alias in others]
    if names == ["*"]:
        return manual("a star import: name what is needed from it")
    releases = facts.gates.alive(statement)
    modules = companion_modules(names, releases)
    if modules is None:
        lost = next((name for name in names if companion_modules([name], releases) is None), names[0])
        return manual(f"`{lost}` is in no module of every supported release (torch{facts.torch}): do without it")
    trouble = import_trouble(facts, statement)
    if trouble is not None:
        return manual(trouble)
    first, *second = (f"{PACKAGE}.{module}" for module in modules)
    moves = (move(facts, statement, bound(alias), first) for alias in others)
    return Verdict(Fix(tuple(one._replace(fallback=second[0] if second else None) for one in moves)))


def _bindings(facts: ModuleFacts, statement: ast.stmt, alias: ast.alias) -> list[Binding]:
    bindings = facts.scope(statement).bindings.get(bound(alias), [])
    return [binding for binding in bindings if binding.node is statement]


def _module_from_package(facts: ModuleFacts, statement: ast.ImportFrom, alias: ast.alias) -> Verdict:
    """`from torch.distributed.fsdp import flat_param`: the package under that name, if only FlatParameter is used."""
    bindings = _bindings(facts, statement, alias)
    other = _other_use(facts, bindings)
    if other is not None:
        return manual(other)
    if len(statement.names) > 1 or import_trouble(facts, statement) is not None:
        return manual(f"import `{FLAT_PARAMETER}` from `{PACKAGE}` in place of the module")
    parent, _, package = PACKAGE.rpartition(".")
    edit = move(facts, statement, bound(alias), parent, f"{package} as {bound(alias)}")
    moves = tuple(import_binding(facts, binding) for binding in bindings)
    return Verdict(Fix((edit,), moves=moves))


def _imports(facts: ModuleFacts, statement: ast.Import) -> Iterator[_Found]:
    for alias in statement.names:
        home = home_of(alias.name)
        problem = None if home is None else _problem(facts, statement, home, ())
        if home is None or problem is None:
            continue
        other = (
            _other_use(facts, _bindings(facts, statement, alias))
            if alias.asname is not None
            else _other_chain(facts, home)
        )
        span = facts.source.span(alias)
        if other is None and facts.source.segment(alias).startswith(alias.name):
            edit = Replace(Span(span.start, span.start + len(alias.name.encode())), PACKAGE)
            yield alias, problem, Verdict(Fix((edit,)))
        else:
            yield alias, problem, manual(other or f"import `{FLAT_PARAMETER}` from `{PACKAGE}`")


def _other_use(facts: ModuleFacts, bindings: Sequence[Binding]) -> str | None:
    """What else than FlatParameter a module is used for under the name it is bound to, None when nothing is."""
    for binding in bindings:
        if len(binding.scope.bindings[binding.name]) != 1:
            return f"`{binding.name}` is bound more than once: import `{FLAT_PARAMETER}` from `{PACKAGE}`"
        for use in uses_of(binding):
            parent = facts.structure.parents[use]
            if not isinstance(parent, ast.Attribute):
                return f"`{binding.name}` is used as a module: import what is needed from it by name"
            if parent.attr != FLAT_PARAMETER:
                return f"`{binding.name}.{parent.attr}` is used too: import the names that are needed"
    return None


def _other_chain(facts: ModuleFacts, home: Home) -> str | None:
    """What else than FlatParameter the file takes from a module by its full name, None when nothing is."""
    for node, _ in _chained(facts, home):
        if node.attr != FLAT_PARAMETER:
            return f"`{ast.unparse(node)}` is used too: import the names that are needed"
    return None


def _chained(facts: ModuleFacts, home: Home) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """The attributes `<package>.<module>.X` of the file, each with the expression for the package."""
    for node in facts.structure.attributes:
        module = node.value
        if not isinstance(module, ast.Attribute) or module.attr != home.module:
            continue
        if any(meaning.qualified == PACKAGE for meaning in facts.names.meanings(module.value)):
            yield node, module.value


def _chains(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    for home in HOMES.values():
        for node, package in _chained(facts, home):
            concerned = home.holds_companions or node.attr == FLAT_PARAMETER
            problem = _problem(facts, node, home, (node.attr,)) if concerned else None
            if problem is not None and facts.reached(node):
                place = facts.template_around(node) or node
                verdict = _chain_verdict(facts, node, package)
                yield finding(facts, card, place, facts.statement(node), problem.message, verdict, problem.severity)


def _chain_verdict(facts: ModuleFacts, node: ast.Attribute, package: ast.expr) -> Verdict:
    if facts.template_around(node) is not None:
        return manual("the name stands in an f-string: take it out")
    text = facts.source.segment(package)
    if node.attr == FLAT_PARAMETER:
        new = f"{text}.{FLAT_PARAMETER}"
    else:
        modules = companion_modules([node.attr], facts.gates.alive(node))
        if modules is None or len(modules) > 1:
            return manual(f"only an import can try both modules: import `{node.attr}` by name")
        new = f"{text}.{modules[0]}.{node.attr}"
    if facts.source.has_comment(facts.source.span(node)):
        return manual("a comment stands in the name: move it out")
    return Verdict(Fix((Replace(facts.source.span(node), new),)))


def _strings(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find strings for `mock.patch`, `import_module` and the like."""
    for constant in facts.structure.strings:
        match = _PATH.fullmatch(constant.value) if isinstance(constant.value, str) else None
        if match is None or not facts.reached(constant):
            continue
        home = HOMES[match[1]]
        names = tuple(match[2].split(".")[1:2])
        problem = _problem(facts, constant, home, names) if home.holds_companions else None
        if problem is not None and problem.missing:
            verdict = manual("a name in a string is not rewritten: it has to follow what the code imports")
            yield finding(facts, card, constant, facts.statement(constant), problem.message, verdict, problem.severity)


RULE = Rule(
    RuleCard(
        code="FSDP303",
        name="moved-flat-parameter",
        summary="FlatParameter or a companion imported from a module that some supported torch lacks",
        explanation="""\
FlatParameter has lived in `flatten_params_wrapper` (torch 1.12), `flat_param` (1.13 to 2.1) and `_flat_param` (since
2.2); the old modules are gone, so the import fails. The package itself, `torch.distributed.fsdp`, has offered it all
the time, and that is where the rewritten import takes it from. If FSDP301 takes the last use of the name away, the
import goes instead.

Companions such as `FlatParamHandle` and `HandleShardingStrategy` have no public home. They are imported from
`_flat_param`, and while the supported range includes torch 2.1 from `flat_param` where that fails. Imports that
already try both are left alone.

Where every supported release has the private module, taking FlatParameter from it is a hint.""",
        applicability="safe or manual",
        removed="2.2",
        floor="1.12",
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp.flat_param import FlatParameter

def size(param: FlatParameter) -> int:
    return param.numel()
""",
                after="""\
from torch.distributed.fsdp import FlatParameter

def size(param: FlatParameter) -> int:
    return param.numel()
""",
            ),
            Example(
                before="""\
from torch.distributed.fsdp.flat_param import FlatParamHandle

def is_handle(value):
    return isinstance(value, FlatParamHandle)
""",
                after="""\
try:
    from torch.distributed.fsdp._flat_param import FlatParamHandle
except ImportError:
    from torch.distributed.fsdp.flat_param import FlatParamHandle

def is_handle(value):
    return isinstance(value, FlatParamHandle)
""",
            ),
            Example(
                before="""\
from unittest import mock

def patched():
    return mock.patch("torch.distributed.fsdp.flat_param.FlatParamHandle")
""",
                note="a name in a string",
            ),
        ),
        leaves=(
            """\
from torch.distributed.fsdp import FlatParameter

def size(param: FlatParameter) -> int:
    return param.numel()
""",
            """\
try:
    from torch.distributed.fsdp._flat_param import FlatParamHandle
except ImportError:
    from torch.distributed.fsdp.flat_param import FlatParamHandle
""",
            """\
from fairscale.nn.misc.flatten_params_wrapper import FlatParameter
""",
        ),
        url="https://github.com/pytorch/pytorch/blob/v2.2.2/torch/distributed/fsdp/_flat_param.py",
    ),
    needles=("FlatParameter", "flat_param", "flatten_params_wrapper"),
    marks=("FlatParameter", *HOMES),
    check=check,
)

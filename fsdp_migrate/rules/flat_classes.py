"""FlatParameter among the classes of a test, under all its spellings, and the test that takes its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from fsdp_migrate.edits import Release
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.names import PACKAGE, Meaning
from fsdp_migrate.rules.releases import release

FLAT_PARAMETER = f"{PACKAGE}.FlatParameter"
ATTRIBUTE = "_fsdp_flattened"
_TEMPLATES = ("JoinedStr", "TemplateStr")


@dataclass
class Classes:
    """The classes that a test names: those that are FlatParameter, and the others.

    `union` if they are joined by `|`; `trouble` says why FlatParameter cannot be taken out, None when it can.
    """

    flat: list[ast.expr] = field(default_factory=list)
    others: list[ast.expr] = field(default_factory=list)
    union: bool = False
    trouble: str | None = None

    @property
    def concerned(self) -> bool:
        """Whether FlatParameter is among the classes, visibly or not."""
        return bool(self.flat) or self.trouble is not None


def classes_of(facts: ModuleFacts, node: ast.expr) -> Classes:
    """The classes in a class, tuple, list, set or union."""
    result = Classes(union=_is_union(node))
    for leaf in _leaves(node):
        meanings = flat_meanings(facts, leaf)
        if not meanings:
            result.others.append(leaf)
            result.trouble = result.trouble or _hidden(facts, leaf)
        else:
            result.flat.append(leaf)
            result.trouble = result.trouble or _doubt(leaf, meanings)
    if not result.concerned:
        return result
    if not all(_is_plain(leaf) for leaf in result.others):
        result.trouble = result.trouble or "the other classes are not plain names: name them first"
    if any(is_literal(leaf, None) for leaf in result.others):
        result.trouble = result.trouble or "`None` stands among the classes: test for it separately"
    return result


def _is_plain(node: ast.expr) -> bool:
    inner = node.value if isinstance(node, ast.Starred) else node
    return pure(inner) or isinstance(inner, ast.Constant) or ast.unparse(inner) == "type(None)"


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for element in node.elts:
            yield from _leaves(element)
    elif _is_union(node):
        yield from _leaves(node.left)  # type: ignore[attr-defined]
        yield from _leaves(node.right)  # type: ignore[attr-defined]
    else:
        yield node


def _is_union(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)


def flat_meanings(facts: ModuleFacts, node: ast.expr) -> tuple[Meaning, ...]:
    """What `node` may be on the supported releases, empty unless torch's FlatParameter is among it."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return ()
    meanings = facts.names.meanings(node)
    if not any(meaning.symbol == FLAT_PARAMETER for meaning in meanings):
        return ()
    return tuple(m for m in meanings if m.binding is None or facts.reached(m.binding.node))


def _doubt(node: ast.expr, meanings: tuple[Meaning, ...]) -> str | None:
    others = sorted({m.qualified or "something else" for m in meanings if m.symbol != FLAT_PARAMETER})
    if not others:
        return None
    return f"`{ast.unparse(node)}` may also be {others[0]} here: only torch's FlatParameter has the attribute"


def _hidden(facts: ModuleFacts, node: ast.expr) -> str | None:
    """Why FlatParameter is behind `node` without being written there, None when it is not."""
    if isinstance(node, ast.Starred):
        node = node.value
    if isinstance(node, ast.Name):
        values = [binding.value for binding in facts.names.bindings(node) if binding.value is not None]
        if any(_mentions_flat(facts, value) for value in values):
            return f"`{node.id}` stands for several classes: test the attribute `{ATTRIBUTE}` beside them"
    elif isinstance(node, (ast.Subscript, ast.Call, ast.IfExp, ast.BinOp)) and _mentions_flat(facts, node):
        return f"`{ast.unparse(node)}` is more than a class: write the classes as a tuple"
    return None


def _mentions_flat(facts: ModuleFacts, value: ast.expr) -> bool:
    if isinstance(value, (ast.Name, ast.Attribute)):
        return False
    return any(flat_meanings(facts, part) for part in ast.walk(value) if isinstance(part, (ast.Name, ast.Attribute)))


def attribute_test(facts: ModuleFacts, subject: ast.expr) -> str:
    """The text of the test whether FSDP manages `subject`."""
    text = facts.source.segment(subject)
    if isinstance(subject, (ast.Yield, ast.YieldFrom)):
        text = f"({text})"
    return f'getattr({text}, "{ATTRIBUTE}", False)'


def releases(facts: ModuleFacts, classes: Classes) -> tuple[Release, ...]:
    """The uses of imported names that go with FlatParameter."""
    return tuple(one for node in classes.flat for one in release(facts, node))


def template_around(facts: ModuleFacts, node: ast.expr) -> ast.expr | None:
    """The f-string or t-string that `node` stands in, None when it stands in none."""
    current: ast.AST = node
    while not isinstance(current, ast.stmt):
        if type(current).__name__ in _TEMPLATES:
            return current  # type: ignore[return-value]
        current = facts.structure.parents[current]
    return None


def stands_alone(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether `node` is a whole condition or returned value, which needs no parentheses."""
    parent = facts.structure.parents[node]
    if isinstance(parent, ast.comprehension):
        return node in parent.ifs
    return isinstance(parent, (ast.If, ast.While, ast.Assert, ast.Return))

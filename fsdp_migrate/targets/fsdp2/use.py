"""One use of a model: what stands around a reference to it, and how its text is changed piece by piece.

All edits of a closure are made in one step. Those of a use therefore claim only what stands between the reference and
the end of what is done with it: the reference itself, and arguments, may have edits of their own.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fsdp_migrate.code.import_texts import CannotSupply
from fsdp_migrate.code.new_names import spell
from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.objects import Reference
from fsdp_migrate.source import Span
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion, Options

PACKAGE = "torch.distributed.fsdp"
ALONE = "put it on a line of its own without comments inside"


@dataclass(frozen=True)
class Use:
    """A reference to a model of a closure, with all that its conversion needs."""

    conversion: Conversion
    closure: Closure
    reference: Reference
    options: Options

    @property
    def facts(self) -> ModuleFacts:
        """The module in which the model is used."""
        return self.reference.facts

    @property
    def node(self) -> ast.expr:
        """The expression for the model."""
        return self.reference.node

    @property
    def parent(self) -> ast.AST:
        """What is done with it."""
        return self.facts.structure.parents[self.node]

    @cached_property
    def text(self) -> str:
        """How a message calls the model."""
        return ast.unparse(self.node)

    def of(self, node: ast.expr) -> Use:
        """The same for another expression of this module that stands for the model, or for a part of it."""
        return Use(self.conversion, self.closure, Reference(self.facts, node, self.reference.others), self.options)

    def wall(self, reason: str, step: str, at: ast.AST | None = None) -> None:
        """This use stops the conversion."""
        self.conversion.wall(self.facts, self.node if at is None else at, reason, step)

    def differs(self, what: str, at: ast.AST | None = None) -> None:
        """This use does something else afterwards."""
        self.conversion.differs(self.facts, self.node if at is None else at, what)

    def replace(self, start: int, end: int, text: str) -> None:
        """Put a text in the place of another."""
        if start < end or text:
            self.conversion.edit(self.facts, [Replace(Span(start, end), text)])

    def has_others_inside(self, whole: ast.expr) -> bool:
        """Whether an expression around the model holds other references to models of the closure."""
        span = self.facts.source.span(whole)
        own = (one.node for one in self.closure.references if one.facts is self.facts and one.node is not self.node)
        return any(span.contains(self.facts.source.span(node)) for node in own)

    def spelled(self, path: str, at: ast.AST | None = None) -> str | None:
        """A full name as this file writes it; there is a wall, and None, where it cannot be had."""
        try:
            spelled = spell(self.facts, path, self.node if at is None else at)
        except CannotSupply as error:
            self.wall(f"`{path}` is needed here", str(error))
            return None
        self.conversion.edit(self.facts, spelled.edits)
        return spelled.text


class Member(NamedTuple):
    """`model.name` as it stands in the text, with the call of it if there is one.

    `start` is where the expression begins, `end` where the model's own text ends (parentheses included), `dot` the dot.
    """

    node: ast.Attribute
    call: ast.Call | None
    start: int
    end: int
    dot: int

    @property
    def whole(self) -> ast.expr:
        """The call, or the attribute where it is not called."""
        return self.node if self.call is None else self.call


def member_of(use: Use) -> Member | None:
    """The member that is read of a model; None, and a wall, where a comment stands in front of its name."""
    facts, attribute = use.facts, use.parent
    assert isinstance(attribute, ast.Attribute)
    span, inner = facts.source.span(attribute), facts.source.span(attribute.value)
    if facts.source.has_comment(Span(inner.end, span.end)):
        use.wall(f"a comment stands inside `{use.text}.{attribute.attr}`", ALONE)
        return None
    dot = facts.source.data.rindex(b".", inner.end, span.end)
    end = inner.end + len(facts.source.data[inner.end : dot].rstrip(b" \t\f\r\n\\"))
    outer = facts.structure.parents[attribute]
    call = outer if isinstance(outer, ast.Call) and outer.func is attribute else None
    return Member(attribute, call, span.start, end, dot)


def opening(use: Use, member: Member) -> int | None:
    """The offset behind the parenthesis that opens the arguments of a member's call; None, and a wall, if hidden."""
    assert member.call is not None
    source = use.facts.source
    behind = source.span(member.node).end
    between = source.data[behind : source.span(member.call).end]
    blank = len(between) - len(between.lstrip(b" \t\f\r\n\\"))
    if between[blank : blank + 1] != b"(":
        use.wall(f"`{ast.unparse(member.node)}` stands in parentheses of its own", "take them away")
        return None
    return behind + blank + 1


def as_argument(use: Use, member: Member, function: str, behind: str = "") -> None:
    """Make `function(model, ...)` of `model.member(...)`; `behind` follows the model's text in the arguments."""
    assert member.call is not None
    start = opening(use, member)
    if start is None:
        return
    data = use.facts.source.data
    has_more = bool(member.call.args or member.call.keywords)
    space = " " if has_more and data[start : start + 1] not in (b" ", b"\n", b"\r", b"\t") else ""
    use.replace(member.start, member.start, f"{function}(")
    use.replace(member.end, start, f"{behind}{',' if has_more else ''}{space}")


def is_result_used(use: Use, call: ast.expr) -> bool:
    """Whether something is done with what a call returns."""
    return not isinstance(use.facts.structure.parents[call], ast.Expr)

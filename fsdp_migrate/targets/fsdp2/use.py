"""One use of a model: what stands around a reference to it, and how its text is changed piece by piece.

All edits of a closure are made in one step. Those of a use therefore claim only what stands between the reference and
the end of what is done with it: the reference itself, and arguments, may have edits of their own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from fsdp_migrate.code.import_texts import CannotSupply
from fsdp_migrate.code.new_names import spell
from fsdp_migrate.edits import Replace, touched
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.objects import Escape, Followed, Nature, Path, Reference, Value, follow
from fsdp_migrate.facts.project_code import Function, Origin
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Span
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion, Options

PACKAGE = "torch.distributed.fsdp"
COMPILED = "_orig_mod"  # the model in a compiled one
ALONE = "put it on a line of its own without comments inside"


# Methods of modules that return the module.
PART = Nature(methods=frozenset("train eval to cuda requires_grad_".split()))


@dataclass(frozen=True)
class Use:
    """A reference to a model of a closure, or to a module in one, with all that its conversion needs.

    `whole` is the reference that the project's flow gave, where this is a part of it. `see` converts another use. `new`
    is the text for the model where that is another one afterwards. `kinds` are what it may be, None for the model
    itself. `method` is the method of a module that the use stands in, which may run for modules that are not sharded.
    One that is `inside` is of the module that FSDP1 wraps, under a name of its own, and not of the wrapper.
    """

    conversion: Conversion
    closure: Closure
    reference: Reference
    options: Options
    whole: ast.expr | None = None
    see: Callable[[Use], None] = lambda _use: None
    new: str | None = None
    kinds: tuple[Origin, ...] | None = None
    method: Function | None = None
    inside: bool = False

    @property
    def facts(self) -> ModuleFacts:
        """The module in which the model is used."""
        return self.reference.facts

    @property
    def node(self) -> ast.expr:
        """The expression for the model."""
        return self.reference.node

    @property
    def root(self) -> ast.expr:
        """The expression for the model that this is, or is in."""
        return self.node if self.whole is None else self.whole

    @property
    def parent(self) -> ast.AST:
        """What is done with it."""
        return self.facts.structure.parents[self.node]

    @cached_property
    def text(self) -> str:
        """How a message calls the model."""
        return ast.unparse(self.node)

    @property
    def written(self) -> str:
        """The text for the model in new code."""
        return self.facts.source.segment(self.node) if self.new is None else self.new

    def of(self, node: ast.expr, new: str | None = None) -> Use:
        """The same for another expression of this module that stands for the model, or for a part of it."""
        return replace(self, reference=self.reference._replace(node=node), whole=self.root, new=new)

    def at(self, one: Reference) -> Use:
        """The same for a part of the model where that has got to."""
        others = (*self.reference.others, *one.others)
        return replace(self, reference=Reference(one.facts, one.node, others), whole=self.root, new=None)

    def follow(self, node: ast.expr, path: Path = ()) -> Followed:
        """Where something goes that an expression of this module gives; `path` leads to it."""
        known = self.conversion.followed
        if (node, path) not in known:
            seeds = [Value(self.facts, node)]
            known[node, path] = follow(seeds, nature=PART, code=self.conversion.code, path=path, others=False)
        return known[node, path]

    def lose(self, what: str, escapes: Iterable[Escape]) -> None:
        """There is a wall at each place where something is lost sight of."""
        for one in escapes:
            step = "do in one place what is done with it, or keep it in a variable of a function"
            self.conversion.wall(one.facts, one.node, f"{what} cannot be followed: {one.reason}", step)

    def wall(self, reason: str, step: str, at: ast.AST | None = None) -> None:
        """This use stops the conversion."""
        self.conversion.wall(self.facts, self.node if at is None else at, reason, step)

    def differs(self, what: str, at: ast.AST | None = None) -> None:
        """This use does something else afterwards."""
        self.conversion.differs(self.facts, self.node if at is None else at, what)

    def is_claimed(self, span: Span) -> bool:
        """Whether an edit changes what stands at `span` already."""
        edits = self.conversion.edits.get(self.facts.path, ())
        return any(claimed.overlaps(span) for edit in edits for claimed in touched(edit))

    def put(self, start: int, end: int, text: str) -> None:
        """Put a text in the place of another; not in a method, which may run for a module that is not sharded."""
        if self.method is not None:
            name = getattr(self.method.node, "name", "")
            self.wall(f"`{name}` uses `{self.text}` as a sharded module", "do that where the model is wrapped")
        elif start < end or text:
            self.conversion.edit(self.facts, [Replace(Span(start, end), text)])

    def has_others_inside(self, whole: ast.expr) -> bool:
        """Whether an expression around the model holds other references to models of the closure."""
        span = self.facts.source.span(whole)
        own = (one.node for one in self.closure.references if one.facts is self.facts and one.node is not self.node)
        return any(span.contains(self.facts.source.span(node)) for node in own)

    def has_builtin(self, name: str, at: ast.AST | None = None) -> bool:
        """Whether new code may call a function that Python has built in; there is a wall where it is hidden."""
        is_hidden = self.facts.names.hides_builtin(self.facts.scope(self.node if at is None else at), name)
        if is_hidden:
            self.wall(f"`{name}` is needed here, and is not Python's own", f"give your `{name}` another name", at)
        return not is_hidden

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
        use.wall(f"a comment is inside `{use.text}.{attribute.attr}`", ALONE)
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
        use.wall(f"`{ast.unparse(member.node)}` is in its own parentheses", "remove them")
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
    use.put(member.start, member.start, f"{function}(")
    use.put(member.end, start, f"{behind}{',' if has_more else ''}{space}")


def is_result_used(use: Use, call: ast.expr) -> bool:
    """Whether something is done with what a call returns."""
    return not isinstance(use.facts.structure.parents[call], ast.Expr)

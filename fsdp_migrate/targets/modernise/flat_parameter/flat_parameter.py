"""FSDP301 and FSDP302: asking whether a parameter is a FlatParameter, by `isinstance` or by its type.

With `use_orig_params=True` (torch 2.0 on) `parameters()` yields the original parameters, none of which is a
FlatParameter; all that FSDP manages carry the attribute `_fsdp_flattened` in either mode (torch 1.13 to 2.15; RUNTIME
table 1f, catalogue flat-isinstance and flat-fsdp-flattened-attr). Since torch 2.1 `FlatParameter(...)` makes a plain
Parameter with a mark that a metaclass reads for `isinstance` (2.1.2 to 2.15.0, `_flat_param.py`), and the type of no
object is FlatParameter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.unused_imports import removed_use
from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.class_members import instance_of_class
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.fsdp import OTHER_PACKAGES
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual

ATTRIBUTE = "_fsdp_flattened"
_NAME = "FlatParameter"
_CLASS = f"{PACKAGE}.{_NAME}"
_QUESTIONS, _COUNT = ("builtins.any", "builtins.all"), "builtins.sum"
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
# Attributes that only a FlatParameter has (torch 2.0 to 2.15, `_flat_param.py`).
_OF_FLAT_PARAMETERS = frozenset(
    """
    _fqns _param_infos _shared_param_infos _shard_param_infos _shapes _numels _numels_with_padding _param_extensions
    _local_shard _sharded_size _shard_numel_padded _unpadded_unsharded_size _padded_unsharded_size _full_param_padded
    _full_prec_full_param_padded _mp_shard _cpu_grad _saved_grad_shard _tensors _is_grad_none_mask _is_padding_mask
    """.split()
)
_MANUAL = (
    "decide which test you need: for FlatParameter, or for all parameters that FSDP manages (`getattr(..., "
    f'"{ATTRIBUTE}", False)`)'
)
_UNSAFE = (
    "with `use_orig_params=True` the old test is always False, and the new one is True for all parameters that "
    "FSDP manages: {}"
)
_FILTERS = _UNSAFE.format("the filter selects other parameters")
_RAISES = _UNSAFE.format("an error is raised where none was")
_OUTCOMES = {
    ast.comprehension: _FILTERS,
    ast.If: _UNSAFE.format("the other branch runs"),
    ast.IfExp: _UNSAFE.format("the other value is used"),
    ast.Assert: _UNSAFE.format("the assertion has the opposite outcome"),
    ast.Return: _UNSAFE.format("callers get another result"),
}
_WAKES = "since torch 2.1 the test has always had the same result: the fix makes code run that has not run since"


class _Test(NamedTuple):
    """A test whether `subject` is of one of `classes`; `by_type` where its type itself is compared with them."""

    node: ast.expr
    subject: ast.expr
    classes: ast.expr
    by_type: bool = False
    negated: bool = False


def check_instances(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find `isinstance` tests and class patterns for FlatParameter."""
    message = (
        "`isinstance(x, FlatParameter)` is always False with `use_orig_params=True` (since torch 2.0): "
        f"test `{ATTRIBUTE}`, which FSDP sets on its parameters"
    )
    for call in facts.structure.calls:
        if len(call.args) == 2 and not call.keywords and facts.names.qualified(call.func) == "builtins.isinstance":
            yield from _findings(facts, card, _Test(call, call.args[0], call.args[1]), message, Version("2.0"))
    uses = [use for scope in facts.structure.module.nested() for uses in scope.uses.values() for use in uses]
    for node in (*uses, *facts.structure.attributes):
        pattern = facts.structure.parents[node]
        if isinstance(pattern, ast.MatchClass):
            yield from _findings(facts, card, _Test(node, node, node), message, Version("2.0"))


def check_types(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find comparisons of the type of a parameter with FlatParameter, or with its name."""
    message = (
        f"a test of the type for FlatParameter is always False since torch 2.1: test `{ATTRIBUTE}`, which FSDP "
        "sets on its parameters"
    )
    for node in (*facts.structure.calls, *facts.structure.attributes):
        subject = instance_of_class(node)
        test = None if subject is None else _type_test(facts, node, subject)
        if test is not None:
            yield from _findings(facts, card, test, message, Version("2.1"))


def _type_test(facts: ModuleFacts, holder: ast.expr, subject: ast.expr) -> _Test | None:
    """The test that compares `holder`, the type of `subject`, or the name of that type."""
    if isinstance(holder, ast.Call) and facts.names.qualified(holder.func) != "builtins.type":
        return None
    parent = facts.structure.parents[holder]
    if isinstance(parent, ast.Attribute) and parent.attr in ("__name__", "__qualname__"):
        holder, parent = parent, facts.structure.parents[parent]
    if isinstance(parent, ast.Compare):
        others = [part for part in (parent.left, *parent.comparators) if part is not holder]
        classes = others[0] if len(others) == 1 else ast.Tuple(others)
        return _Test(parent, subject, classes, True, isinstance(parent.ops[0], (ast.IsNot, ast.NotEq, ast.NotIn)))
    if not isinstance(parent, ast.Call) or len(parent.args) != 2 or parent.args[0] is not holder:
        return None
    is_test = facts.names.qualified(parent.func) == "builtins.issubclass"
    return _Test(parent, subject, parent.args[1], by_type=True) if is_test else None


def _findings(facts: ModuleFacts, card: RuleCard, test: _Test, message: str, since: Version) -> Iterator[Finding]:
    """The finding about a test, if FlatParameter is among its classes where a release gets to it that answers wrong."""
    classes = list(_leaves(test.classes))
    if any(_hides_flat(facts, one) for one in classes) and any(r >= since for r in facts.gates.alive(test.node)):
        place = facts.template_around(test.node) or test.node
        yield finding(facts, card, place, facts.statement(test.node), message, _verdict(facts, test, classes))


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for element in node.elts:
            yield from _leaves(element)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _leaves(node.left)
        yield from _leaves(node.right)
    else:
        yield node


def _is_flat(facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether `node` is torch's FlatParameter, or its name as a string where no other such class is known."""
    if isinstance(node, ast.Constant) and node.value == _NAME:
        bindings = [b for scope in facts.structure.module.nested() for b in scope.bindings.get(_NAME, ())]
        others = any(name.split(".")[0] in OTHER_PACKAGES for name in facts.fsdp.imported)
        return not others and all(facts.names.brings(binding, _CLASS) for binding in bindings)
    return isinstance(node, (ast.Name, ast.Attribute)) and _CLASS in facts.names.symbols(node)


def _hides_flat(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether a class expression is FlatParameter, or stands for classes with FlatParameter among them."""
    inner = node.value if isinstance(node, ast.Starred) else node
    value = facts.names.value(inner) if isinstance(inner, ast.Name) else None
    return any(_is_flat(facts, part) for one in (inner, value) if one is not None for part in ast.walk(one))


def _verdict(facts: ModuleFacts, test: _Test, classes: list[ast.expr]) -> Verdict:
    flat = [one for one in classes if _is_flat(facts, one)]
    others = [one for one in classes if one not in flat]
    trouble = _trouble(facts, test, flat, others)
    difference = _difference(facts, test)
    if trouble is not None or difference is None:
        return manual(trouble or _MANUAL)
    edit = Replace(facts.source.span(test.node), _new_text(facts, test, others))
    removed_uses = tuple(one for node in flat for one in removed_use(facts, node))
    return Verdict(Fix((edit,), removed_uses), unsafe=_WAKES if test.by_type else difference or None)


def _trouble(facts: ModuleFacts, test: _Test, flat: list[ast.expr], others: list[ast.expr]) -> str | None:
    """Why the text of the test cannot be replaced, None when it can."""
    if isinstance(facts.structure.parents[test.node], ast.MatchClass):
        return f'a class pattern cannot test an attribute: use a guard with `getattr(..., "{ATTRIBUTE}", False)`'
    if isinstance(test.node, ast.Compare) and len(test.node.ops) != 1:
        return "the test is a chained comparison: split it"
    if any(isinstance(one, ast.Starred) for one in getattr(test.node, "args", ())):
        return "the call passes `*args`: write out the arguments"
    if not flat or (others and test.by_type) or not all(pure(one) for one in others):
        return f"the test has other classes besides FlatParameter: test the attribute `{ATTRIBUTE}` separately"
    meanings = [meaning for one in flat for meaning in facts.names.meanings(one) if meaning.symbol != _CLASS]
    live = [one for one in meanings if one.binding is None or facts.reached(one.binding.node)]
    if live and not isinstance(flat[0], ast.Constant):
        other = live[0].qualified or "something else"
        return (
            f"`{ast.unparse(flat[0])}` may also be {other} here, which does not set the attribute: test each "
            "class separately"
        )
    if others and not pure(test.subject):
        return f"`{ast.unparse(test.subject)}` would be evaluated twice: assign it to a variable first"
    if facts.template_around(test.node) is not None:
        return (
            "the test is inside an f-string, and the quotes of the new test may not fit: assign it to a variable first"
        )
    if facts.source.has_comment(facts.source.span(test.node)):
        return "a comment is inside the test: move the comment"
    for attribute in facts.structure.attributes:
        if attribute.attr in _OF_FLAT_PARAMETERS:
            return f"`{ast.unparse(attribute)}` needs a FlatParameter: read it only where `use_orig_params=False`"
    return None


def _difference(facts: ModuleFacts, test: _Test) -> str | None:
    """What the new test changes: nothing ("") in a question about many parameters, None where that is not plain."""
    parents = facts.structure.parents
    node, positive = _condition(facts, test.node, not test.negated)
    parent = parents[node]
    around = parents[parent] if isinstance(parent, ast.expr) else None
    if isinstance(around, ast.Call) and parent in around.args:
        name = facts.names.qualified(around.func)
        if isinstance(parent, _COMPREHENSIONS) and (name in _QUESTIONS or (name == _COUNT and node is test.node)):
            return _difference_of_answer(facts, around, positive)
        if isinstance(parent, ast.Lambda) and name == "builtins.filter":
            return _FILTERS
    return _OUTCOMES.get(type(parent))


def _condition(facts: ModuleFacts, node: ast.expr, positive: bool) -> tuple[ast.expr, bool]:
    """The whole condition that a truth value is a part of, and whether that holds if the value does."""
    while True:
        parent = facts.structure.parents[node]
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            positive = not positive
        elif isinstance(parent, ast.Compare) and [getattr(one, "value", None) for one in parent.comparators] == [0]:
            positive = positive is isinstance(parent.ops[0], (ast.Gt, ast.NotEq, ast.IsNot))
        elif not isinstance(parent, ast.BoolOp):
            return node, positive
        node = parent


def _difference_of_answer(facts: ModuleFacts, answer: ast.expr, positive: bool) -> str | None:
    """The same for what `any`, `all` or a count says: it is right from now on, unless it filters or raises."""
    waiting, seen = [(answer, positive)], set[ast.expr]()
    while waiting:
        node, positive = _condition(facts, *waiting.pop())
        parent = facts.structure.parents[node]
        if isinstance(parent, (ast.Compare, ast.BinOp)):
            return None
        then, other = (parent.body, parent.orelse) if isinstance(parent, ast.If) else ([], [])
        if not positive:
            then, other = other, then
        if _refuses(then) or (isinstance(parent, ast.Assert) and not positive):
            return _RAISES
        is_turn = isinstance(parent, ast.If) and any(isinstance(one, _LOOPS) for one in facts.blocks_around(parent))
        if isinstance(parent, (ast.comprehension, ast.Lambda)) or (is_turn and not _refuses(other)):
            return _FILTERS
        if node not in seen:
            seen.add(node)
            waiting += [(use, positive) for use in _uses(facts, parent)]
    return ""


def _refuses(block: list[ast.stmt]) -> bool:
    """Whether a block raises an error or ends the program."""
    parts = (part for statement in block for part in ast.walk(statement))
    return any(
        isinstance(part, ast.Raise) or getattr(part, "attr", getattr(part, "id", "")) == "exit" for part in parts
    )


def _uses(facts: ModuleFacts, statement: ast.AST) -> Iterator[ast.expr]:
    """Where the file reads what `statement` assigns, or calls the function that returns it; told by their names."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    if isinstance(statement, ast.Return):
        targets = [facts.function(statement)]
    found = (getattr(one, "id", getattr(one, "attr", getattr(one, "name", None))) for one in targets)
    names = {name for name in found if isinstance(name, str)}
    scopes = facts.structure.module.nested()
    reads = [use for scope in scopes for name in names & scope.uses.keys() for use in scope.uses[name]]
    for read in (*reads, *(one for one in facts.structure.attributes if one.attr in names)):
        parent = facts.structure.parents[read]
        yield parent if isinstance(parent, ast.Call) and parent.func is read else read


def attribute_test(facts: ModuleFacts, subject: ast.expr) -> str:
    """The text of the test whether FSDP manages `subject`."""
    text = facts.source.segment(subject)
    text = f"({text})" if isinstance(subject, (ast.Yield, ast.YieldFrom)) else text
    return f'getattr({text}, "{ATTRIBUTE}", False)'


def _new_text(facts: ModuleFacts, test: _Test, others: list[ast.expr]) -> str:
    text = attribute_test(facts, test.subject)
    if not others:
        return f"not {text}" if test.negated else text
    texts = [facts.source.segment(other) for other in others]
    rest = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    text = f"{text} or isinstance({facts.source.segment(test.subject)}, {rest})"
    parent = facts.structure.parents[test.node]
    alone = isinstance(parent, (ast.If, ast.While, ast.Assert, ast.Return, ast.comprehension))
    return text if alone else f"({text})"


INSTANCE = Rule(
    RuleCard(
        code="FSDP301",
        name="isinstance-flat-parameter",
        summary="`isinstance(x, FlatParameter)`, always False with `use_orig_params=True`",
        explanation="""\
FSDP stores the parameters of a wrapped module in one FlatParameter. With `use_orig_params=True` (since torch 2.0),
`model.parameters()` and the optimizer hold the original parameters instead, and `isinstance(p, FlatParameter)` is
always False. FSDP sets the attribute `_fsdp_flattened` on all parameters that it manages, in both modes. Without
original parameters the new test gives the same answer as the old one.

The fix is **safe** if the test asks whether a model or an optimizer holds FSDP's parameters (`any`, `all`, a
count). With original parameters the old answer was wrong, and checks such as "build the optimizer from the wrapped
model" failed without reason.

It is **unsafe** if the test filters or guards one parameter (a condition, a filter, an assertion, a returned
value), or if an error is raised when there are any: with original parameters the new test filters or rejects
parameters that the old one let through.

It is **manual** everywhere else, and in a file that reads attributes of FlatParameters.""",
        applicability="safe, unsafe or manual",
        floor="1.13",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp import FlatParameter

def has_flat(optimizer):
    return any(isinstance(p, FlatParameter) for group in optimizer.param_groups for p in group["params"])
""",
                after=f"""\
def has_flat(optimizer):
    return any(getattr(p, "{ATTRIBUTE}", False) for group in optimizer.param_groups for p in group["params"])
""",
            ),
            Example(
                before="""\
from torch.distributed.fsdp import FlatParameter
from torch.distributed.tensor import DTensor

def sharded(params):
    return [p for p in params if isinstance(p, (FlatParameter, DTensor))]
""",
                after=f"""\
from torch.distributed.tensor import DTensor

def sharded(params):
    return [p for p in params if getattr(p, "{ATTRIBUTE}", False) or isinstance(p, DTensor)]
""",
                note="a filter gives other parameters under `use_orig_params=True`",
                applicability=Applicability.UNSAFE,
            ),
            Example(
                before="""\
from torch.distributed.fsdp import FlatParameter

def names(params):
    return [name for p in params if isinstance(p, FlatParameter) for name in p._fqns]
""",
                note="only a FlatParameter has `_fqns`",
            ),
        ),
        leaves=(
            """\
from fairscale.nn.misc import FlatParameter

def has_flat(params):
    return any(isinstance(p, FlatParameter) for p in params)
""",
            """\
from packaging.version import parse
import torch

def has_flat(params):
    if parse(torch.__version__) >= parse("2.0"):
        return any(getattr(p, "_fsdp_flattened", False) for p in params)
    from torch.distributed.fsdp import FlatParameter
    return any(isinstance(p, FlatParameter) for p in params)
""",
        ),
        url="https://github.com/Lightning-AI/pytorch-lightning/issues/16732",
    ),
    words=(_NAME,),
    check=check_instances,
)
TYPE = Rule(
    RuleCard(
        code="FSDP302",
        name="type-is-flat-parameter",
        summary="a comparison of the type with FlatParameter, always False since torch 2.1",
        explanation="""\
Since torch 2.1 constructing a FlatParameter gives a plain `Parameter` with a mark, which only `isinstance` reads.
`type(p) is FlatParameter`, `p.__class__ == FlatParameter`, a comparison of `__name__` and `issubclass(type(p),
FlatParameter)` are always False. The code that depends on them has not run since.

The fix tests the attribute `_fsdp_flattened`, as in FSDP301. It is **unsafe** everywhere, because that code runs
again. It is **manual** if the fix of FSDP301 would be, and if the test has other classes.""",
        applicability="unsafe or manual",
        removed="2.1",
        floor="1.13",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp import FlatParameter

def sharded(params):
    return [p for p in params if type(p) is FlatParameter]
""",
                after=f"""\
def sharded(params):
    return [p for p in params if getattr(p, "{ATTRIBUTE}", False)]
""",
                applicability=Applicability.UNSAFE,
            ),
            Example(
                before="""\
def others(params):
    return [p for p in params if type(p).__name__ != "FlatParameter"]
""",
                after=f"""\
def others(params):
    return [p for p in params if not getattr(p, "{ATTRIBUTE}", False)]
""",
                applicability=Applicability.UNSAFE,
            ),
        ),
        leaves=(
            """\
from fairscale.nn.misc import FlatParameter

def sharded(params):
    return [p for p in params if type(p) is FlatParameter]
""",
        ),
        url="https://github.com/pytorch/pytorch/pull/85038",
    ),
    words=(_NAME,),
    check=check_types,
)

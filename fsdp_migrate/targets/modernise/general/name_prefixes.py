"""FSDP606 and FSDP608: the parts that wrappers add to the names of parameters, as they were before torch 2.0.

Up to 1.13 FSDP put a second wrapper around a module, `_fpw_module` (catalogue priv-prefix-strings and
priv-module-attr), and the prefix of activation checkpointing had no dot at its end (priv-checkpoint-prefix).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from packaging.version import Version

from fsdp_migrate.code.torch_names import torch_path
from fsdp_migrate.code.torch_presence import READING, excused
from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.distributed import uses_distributed
from fsdp_migrate.facts.scopes import Scope
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.source import Span

_CHANGED = Version("2.0")
_OUTER, _INNER = "_fsdp_wrapped_module", "_fpw_module"
_COMBINED = f"{_OUTER}.{_INNER}"
_TAKING = ("replace", "removeprefix", "startswith", "split", "partition")
_FLAT = "flat_param"
_OTHERS = ("fairscale", "torch_xla")
_PREFIX = "_CHECKPOINT_PREFIX"
_PREFIX_PATH = f"torch.distributed.algorithms._checkpoint.checkpoint_wrapper.{_PREFIX}"


def check_wrappers(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find strings and attributes that go through both wrappers of torch 1.x."""
    if _is_about_another_fsdp(facts):
        return
    if not _strips_each(facts):
        yield from _strings(facts, card)
        yield from _whole_names(facts, card)
    yield from _flat_keys(facts, card)
    yield from _doubled_modules(facts, card)
    for node in facts.structure.attributes:
        through_both = node.attr == _INNER and isinstance(node.value, ast.Attribute) and node.value.attr == _OUTER
        chosen = through_both and (excused(facts, node, READING, too_new=False) or _is_asked_for(facts, _INNER))
        if through_both and not chosen and _runs_on_new(facts, node):
            message = f"`{_INNER}` was removed in torch 2.0: use `.module`"
            verdict = _attribute_verdict(facts, node)
            yield finding(facts, card, node, facts.statement(node), message, verdict, Severity.BREAKS)


def _is_asked_for(facts: ModuleFacts, name: str) -> bool:
    """Whether the file asks an object for an attribute before it reads it: `hasattr(module, "name")`."""
    calls = (call for call in facts.structure.calls if getattr(call.func, "id", None) == "hasattr")
    return any(isinstance(one, ast.Constant) and one.value == name for call in calls for one in call.args[1:])


def _is_about_another_fsdp(facts: ModuleFacts) -> bool:
    """Whether the file uses an FSDP that still has both wrappers."""
    modules = [
        name
        for statement in facts.structure.imports
        for name in (
            [statement.module or ""] if isinstance(statement, ast.ImportFrom) else [a.name for a in statement.names]
        )
    ]
    return any(module.split(".")[0] in _OTHERS for module in modules)


def _runs_on_new(facts: ModuleFacts, node: ast.AST) -> bool:
    return any(release >= _CHANGED for release in facts.gates.alive(node))


def _strips_each(facts: ModuleFacts) -> bool:
    """Whether the file has the outer prefix alone too, and so knows both forms."""
    texts = (node.value for node in facts.structure.strings if isinstance(node.value, str))
    return any(_OUTER in text and _INNER not in text for text in texts)


def _strings(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    for node in facts.structure.strings:
        is_text = isinstance(node.value, str) and (_COMBINED in node.value or _is_taken_away(facts, node))
        if is_text and not isinstance(facts.structure.parents[node], ast.Expr) and _runs_on_new(facts, node):
            written = _COMBINED if _COMBINED in str(node.value) else _INNER
            message = f"parameter names have no `{written}...` since torch 2.0, so this never matches"
            place = facts.template_around(node) or node
            yield finding(facts, card, place, facts.statement(node), message, _string_verdict(facts, node))


def _is_taken_away(facts: ModuleFacts, node: ast.Constant) -> bool:
    """Whether the inner prefix alone is taken out of a name, or looked for in one."""
    parent = facts.structure.parents[node]
    if f"{_INNER}." not in str(node.value):
        return False
    if isinstance(parent, ast.Compare):
        return parent.left is node and isinstance(parent.ops[0], (ast.In, ast.NotIn))
    method = parent.func.attr if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) else None
    return method in _TAKING and isinstance(parent, ast.Call) and parent.args[:1] == [node]


def _whole_names(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find tests whether a module, or a part of a name, is called like the inner wrapper, where the file has none."""
    if any(store.attr == _INNER for store in facts.structure.stores):
        return
    for node in facts.structure.strings:
        if node.value == _INNER and _is_part(facts, node) and _runs_on_new(facts, node):
            message = f"no module is called `{_INNER}` since torch 2.0, so this test always has the same result"
            verdict = manual(f"test for `{_OUTER}`, the only wrapper since torch 2.0, or remove the test")
            yield finding(facts, card, node, facts.statement(node), message, verdict)


def _is_part(facts: ModuleFacts, node: ast.Constant) -> bool:
    """Whether a string is compared as a whole, with a name or with the parts of one."""
    parent = facts.structure.parents[node]
    if not isinstance(parent, ast.Compare) or len(parent.ops) > 1:
        return False
    if isinstance(parent.ops[0], (ast.Eq, ast.NotEq)):
        return True
    parts = parent.comparators[0]
    parts = (facts.names.value(parts) if isinstance(parts, ast.Name) else None) or parts
    splits = isinstance(parts, ast.Call) and isinstance(parts.func, ast.Attribute) and parts.func.attr == "split"
    return splits and isinstance(parent.ops[0], (ast.In, ast.NotIn))


def _string_verdict(facts: ModuleFacts, node: ast.Constant) -> Verdict:
    call = facts.structure.parents[node]
    text = facts.source.segment(node)
    replaces = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "replace"
    if not replaces or node.value != f"{_COMBINED}." or text[1:-1] != node.value or not _removes(call, node):
        return manual(f'remove "{_OUTER}." and, if torch 1.x is supported, then "{_INNER}."')
    if facts.template_around(node) is not None:
        return manual("the name is inside an f-string: assign it to a variable first")
    end = facts.source.span(call).end
    quote = text[0]
    first = Replace(facts.source.span(node), f"{quote}{_OUTER}.{quote}")
    second = Replace(Span(end, end), f".replace({quote}{_INNER}.{quote}, {quote}{quote})")
    return Verdict(Fix((first, second)))


def _removes(call: ast.AST, node: ast.Constant) -> bool:
    """Whether `call` is `text.replace(node, "")`."""
    assert isinstance(call, ast.Call)
    values = [argument.value for argument in call.args[1:] if isinstance(argument, ast.Constant)]
    return call.args[:1] == [node] and len(call.args) == 2 and values == [""] and not call.keywords


def _attribute_verdict(facts: ModuleFacts, node: ast.Attribute) -> Verdict:
    outer = node.value
    assert isinstance(outer, ast.Attribute)
    if not isinstance(node.ctx, ast.Load):
        return manual("the inner module of FSDP cannot be assigned: build the model again")
    span = Span(facts.source.span(outer.value).end, facts.source.span(node).end)
    if facts.template_around(node) is not None or facts.source.segment(span) != f".{_OUTER}.{_INNER}":
        return manual("the name is not written as a plain chain: write `.module`")
    return Verdict(Fix((Replace(span, ".module"),)))


def _flat_keys(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find tests for the name that the flat parameter had, where the file does not know the one that it has."""
    texts = [node for node in facts.structure.strings if isinstance(node.value, str) and _FLAT in node.value]
    if not uses_distributed(facts) or any(f"_{_FLAT}" in str(node.value) for node in texts):
        return
    for node in texts:
        if node.value in (_FLAT, f".{_FLAT}") and _is_tested(facts, node) and _runs_on_new(facts, node):
            message = f"the flat parameter was renamed to `_{_FLAT}` in torch 2.0, so this test is never true"
            verdict = manual(
                f"test for `_{_FLAT}`; checkpoint keys of torch 1.x have the old name: test for both there"
            )
            yield finding(facts, card, node, facts.statement(node), message, verdict)


def _is_tested(facts: ModuleFacts, node: ast.Constant) -> bool:
    """Whether a string is compared as a whole, or as the beginning or the end of another one."""
    parent = facts.structure.parents[node]
    if isinstance(parent, ast.Compare):
        return all(isinstance(operator, (ast.Eq, ast.NotEq)) for operator in parent.ops)
    method = parent.func.attr if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) else None
    return method == "startswith" or (method == "endswith" and str(node.value).startswith("."))


def _doubled_modules(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the module of the module of an FSDP model, which up to torch 1.12 was the user's."""
    for node in facts.structure.attributes:
        inner = node.value
        if node.attr != "module" or not isinstance(inner, ast.Attribute) or inner.attr not in ("module", _OUTER):
            continue
        if facts.fsdp.is_instance(inner.value) and _runs_on_new(facts, node):
            text = facts.source.segment(inner.value)
            message = f"`{text}.{inner.attr}` is the user's module since torch 1.13, not a wrapper"
            verdict = manual(f"write `{text}.module`, unless the user's module has an attribute `module`")
            yield finding(facts, card, node, facts.statement(node), message, verdict, Severity.HINT)


def check_checkpoint_prefix(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find a dot put behind the prefix of activation checkpointing, which ends with one."""
    named: list[ast.expr] = [node for node in facts.structure.attributes if node.attr == _PREFIX]
    for node in (*named, *_names(facts)):
        if torch_path(facts, node) != _PREFIX_PATH or not _runs_on_new(facts, node):
            continue
        place, verdict = _dotted(facts, node)
        if place is not None and not _asks_for_dot(facts, node):
            message = f"`{_PREFIX}` ends with a dot since torch 2.0, so a second dot never matches"
            yield finding(facts, card, place, facts.statement(node), message, verdict)


def _asks_for_dot(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether `node` stands under a condition that the prefix ends with something."""
    tests = (block.test for block in facts.blocks_around(node) if isinstance(block, (ast.If, ast.IfExp)))
    methods = (part for test in tests for part in ast.walk(test) if isinstance(part, ast.Attribute))
    return any(part.attr == "endswith" and torch_path(facts, part.value) == _PREFIX_PATH for part in methods)


def _names(facts: ModuleFacts) -> Iterator[ast.Name]:
    for scope in facts.structure.module.nested():
        for name, uses in scope.uses.items():
            home = scope.lookup(name)
            if home is not None and facts.memo((_is_prefix, home, name), partial(_is_prefix, facts, home, name)):
                yield from uses


def _is_prefix(facts: ModuleFacts, home: Scope, name: str) -> bool:
    """Whether an import of the name may bring the prefix."""
    targets = (target for binding in home.bindings[name] for target in facts.names.targets(binding))
    return any((target or "").endswith(f".{_PREFIX}") for target in targets)


def _dotted(facts: ModuleFacts, node: ast.expr) -> tuple[ast.expr | None, Verdict]:
    """The expression that puts text with a dot behind `node`, None if there is none, and how to fix it."""
    child: ast.AST = node
    parent = facts.structure.parents[node]
    if isinstance(parent, ast.BinOp) and parent.right is node:
        child, parent = parent, facts.structure.parents[parent]
    is_sum = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add) and parent.left is child
    if isinstance(parent, ast.BinOp) and is_sum and _starts_with_dot(parent.right):
        return parent, _sum_verdict(facts, parent)
    template = facts.template_around(node)
    if isinstance(template, ast.JoinedStr) and isinstance(parent, ast.FormattedValue):
        following = template.values[template.values.index(parent) + 1 :]
        if following and _starts_with_dot(following[0]):
            return template, manual("the name is inside an f-string: remove the dot after it")
    return None, manual("")


def _starts_with_dot(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(".")


def _sum_verdict(facts: ModuleFacts, node: ast.BinOp) -> Verdict:
    span = Span(facts.source.span(node.left).end, facts.source.span(node).end)
    between = facts.source.segment(Span(span.start, facts.source.span(node.right).start)).strip()
    is_dot = isinstance(node.right, ast.Constant) and node.right.value == "."
    if not is_dot or between != "+" or facts.source.has_comment(span) or facts.template_around(node) is not None:
        return manual("remove the dot after the prefix")
    return Verdict(Fix((Replace(span, ""),)))


WRAPPERS = Rule(
    RuleCard(
        code="FSDP606",
        name="flatten-wrapper-prefix",
        summary="a name that goes through `_fpw_module`, the second wrapper of torch 1.x",
        explanation="""\
Up to torch 1.13 FSDP wrapped a module twice, and parameter names began with `_fsdp_wrapped_module._fpw_module.`.
Since 2.0 the prefix is `_fsdp_wrapped_module.`. Code that removes the old prefix finds nothing, without an error,
and state-dict keys no longer match.

The fix turns `name.replace("_fsdp_wrapped_module._fpw_module.", "")` into two replacements, which work on every
release. `_fpw_module` as an attribute of a wrapped module is an error since 2.0, and `.module` is the user's module
on all releases. A file that also has the prefix `_fsdp_wrapped_module.` alone is left alone. A test whether a name
equals `_fpw_module` is reported.

The flat parameter was renamed from `flat_param` to `_flat_param` in 2.0: tests for the old name are reported.
`model.module.module`, which reached the user's module up to 1.12, is a hint.""",
        applicability="safe or manual",
        removed="2.0",
        floor="1.13",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=f"""\
def clean(name):
    return name.replace("{_COMBINED}.", "")
""",
                after=f"""\
def clean(name):
    return name.replace("{_OUTER}.", "").replace("{_INNER}.", "")
""",
            ),
            Example(
                before=f"""\
def inner(fsdp_model):
    return fsdp_model.{_COMBINED}
""",
                after="""\
def inner(fsdp_model):
    return fsdp_model.module
""",
            ),
            Example(
                before=f"""\
def is_wrapped(name):
    return name.startswith("{_COMBINED}")
""",
                note="more than a replacement",
            ),
            Example(
                before=f"""\
import torch.distributed

def is_flat(name):
    return name.endswith(".{_FLAT}")
""",
                note="the name of torch 1.x",
            ),
        ),
        leaves=(
            f"""\
def clean(name):
    return name.replace("{_OUTER}.", "").replace("{_INNER}.", "")
""",
        ),
        url="https://github.com/pytorch/pytorch/blob/v2.0.0/torch/distributed/fsdp/_common_utils.py",
    ),
    words=(_INNER, _FLAT, ".module.module", f"{_OUTER}.module"),
    check=check_wrappers,
)

_IMPORT = f"from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import {_PREFIX}\n\n"

CHECKPOINT = Rule(
    RuleCard(
        code="FSDP608",
        name="checkpoint-prefix-dot",
        summary=f"a dot behind `{_PREFIX}`, which ends with one since torch 2.0",
        explanation="""\
`_CHECKPOINT_PREFIX` is the part that activation checkpointing adds to parameter names. It was
`_checkpoint_wrapped_module` in torch 1.13 and is `_checkpoint_wrapped_module.`, with a dot, since 2.0. A second dot
never matches, without an error. The fix removes the second dot. `_CHECKPOINT_WRAPPED_MODULE`, new in 2.0, is the
name without a dot.""",
        applicability="safe or manual",
        floor="2.0",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT + f'def clean(name):\n    return name.replace({_PREFIX} + ".", "")\n',
                after=_IMPORT + f'def clean(name):\n    return name.replace({_PREFIX}, "")\n',
            ),
            Example(
                before=_IMPORT + f'def clean(name):\n    return name.replace(f"{{{_PREFIX}}}.", "")\n',
                note="in an f-string",
            ),
        ),
        leaves=(_IMPORT + f'def clean(name):\n    return name.replace({_PREFIX}, "")\n',),
        url="https://github.com/pytorch/pytorch/blob/v2.0.0/torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py",
    ),
    words=(_PREFIX,),
    check=check_checkpoint_prefix,
)

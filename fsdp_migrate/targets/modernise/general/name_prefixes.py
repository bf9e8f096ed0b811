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
from fsdp_migrate.facts.looked_up_names import look_up
from fsdp_migrate.facts.scopes import Scope
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.source import Span

_CHANGED = Version("2.0")
_OUTER, _INNER = "_fsdp_wrapped_module", "_fpw_module"
_COMBINED = f"{_OUTER}.{_INNER}"
_OWNER_AND_NAME = 2
_TAKING = ("replace", "removeprefix", "startswith", "split", "partition")
_FLAT = "flat_param"
# What tests for these names of torch 1.x have to ask for now.
_RENAMED = {_INNER: _OUTER, _FLAT: f"_{_FLAT}", f".{_FLAT}": f"_{_FLAT}"}
_OTHERS = ("fairscale", "torch_xla")
_PREFIX = "_CHECKPOINT_PREFIX"
_PREFIX_PATH = f"torch.distributed.algorithms._checkpoint.checkpoint_wrapper.{_PREFIX}"


def check_wrappers(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find strings and attributes that go through both wrappers of torch 1.x."""
    if _is_about_another_fsdp(facts):
        return
    if not _strips_each(facts):
        yield from _strings(facts, card)
    yield from _old_names(facts, card)
    for node, owner in _reads(facts):
        wrapped = (isinstance(owner, ast.Attribute) and owner.attr == _OUTER) or facts.fsdp.is_instance(owner)
        chosen = wrapped and (excused(facts, node, READING, too_new=False) or _is_asked_for(facts, _INNER))
        if wrapped and not chosen and _runs_on_new(facts, node):
            message = f"`{_INNER}` was removed in torch 2.0: use `.module`"
            verdict = _attribute_verdict(facts, node)
            yield finding(facts, card, node, facts.statement(node), message, verdict, Severity.BREAKS)


def _reads(facts: ModuleFacts) -> Iterator[tuple[ast.Attribute | ast.Call, ast.expr]]:
    """Where the inner wrapper is read as an attribute or by `getattr` without a default, and off what."""
    yield from ((node, node.value) for node in facts.structure.attributes if node.attr == _INNER)
    for call in facts.structure.calls:
        found = look_up(call) if len(call.args) == _OWNER_AND_NAME else None
        if found is not None and found.name == _INNER and facts.names.qualified(call.func) == "builtins.getattr":
            yield call, found.owner


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


def _old_names(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find tests for names that torch 1.x had, in files that do not know those that came after."""
    texts = {node: node.value for node in facts.structure.strings if isinstance(node.value, str)}
    for node, old in texts.items():
        new = _RENAMED.get(old)
        if new is None or any(new in text for text in texts.values()) or not _is_tested(facts, node):
            continue
        # A class of the file may have an inner wrapper of its own; anything else may be called `flat_param`.
        is_own = old in {store.attr for store in facts.structure.stores}
        if not is_own and (old == _INNER or uses_distributed(facts)) and _runs_on_new(facts, node):
            message = f"nothing in FSDP is called `{old}` since torch 2.0, so this test always has the same result"
            verdict = manual(f"test for `{new}`; checkpoint keys of torch 1.x have the old name: test for both there")
            yield finding(facts, card, node, facts.statement(node), message, verdict)


def _is_tested(facts: ModuleFacts, node: ast.Constant) -> bool:
    """Whether a string is compared with a name, the parts of one, its beginning or its end."""
    parent = facts.structure.parents[node]
    if isinstance(parent, ast.Compare):
        methods = [getattr(getattr(side, "func", None), "attr", None) for side in parent.comparators]
        return all(isinstance(op, (ast.Eq, ast.NotEq)) for op in parent.ops) or methods == ["split"]
    method = parent.func.attr if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) else None
    return method == "startswith" or (method == "endswith" and str(node.value).startswith("."))


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


def _attribute_verdict(facts: ModuleFacts, node: ast.Attribute | ast.Call) -> Verdict:
    if isinstance(node, ast.Call):
        return manual("a name in a string is not rewritten: write `.module`")
    if not isinstance(node.ctx, ast.Load):
        return manual("the inner module of FSDP cannot be assigned: build the model again")
    outer = node.value.value if isinstance(node.value, ast.Attribute) and node.value.attr == _OUTER else node.value
    span = Span(facts.source.span(outer).end, facts.source.span(node).end)
    written = f".{_INNER}" if outer is node.value else f".{_OUTER}.{_INNER}"
    if facts.template_around(node) is not None or facts.source.segment(span) != written:
        return manual("the name is not written as a plain chain: write `.module`")
    return Verdict(Fix((Replace(span, ".module"),)))


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
on all releases. A file that also has the prefix `_fsdp_wrapped_module.` alone is left alone.

The flat parameter was renamed from `flat_param` to `_flat_param` in 2.0. A test whether a name equals `flat_param` or
`_fpw_module` is reported.""",
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
    words=(_INNER, _FLAT),
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

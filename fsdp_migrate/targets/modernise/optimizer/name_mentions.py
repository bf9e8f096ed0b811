"""What names a legacy method without using it: comments, texts, and names that are put together at run time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fsdp_migrate.code.legacy_methods import METHODS
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.distributed import uses_distributed
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import RuleCard, finding, manual

# The rule of this one speaks of names that may be any of them; what they have in common is in `KIND`.
FIRST, KIND = "full_optim_state_dict", "_optim_state_dict"
_LOOKING_UP = ("getattr", "hasattr", "setattr", "delattr", "methodcaller", "attrgetter")
_TEXT = manual("text is not rewritten: update it, unless it describes the past")
_BUILT = manual("the method is only known at run time: write out the calls")


def residue(facts: ModuleFacts, card: RuleCard, method: str, told: frozenset[ast.Constant]) -> Iterator[Finding]:
    """Hints at what still names `method` where the file has to do with FSDP; `told` are strings spoken of already."""
    word = re.compile(rf"(?<!\w){method}(?!\w)")
    if method.encode() in facts.source.data and uses_distributed(facts):
        for span, text in facts.source.comments:
            if word.search(text):
                message = f"this comment names `{method}`, which is deprecated since torch {card.deprecated}"
                found = finding(facts, card, span, facts.source.tree.body[0], message, _TEXT, Severity.HINT)
                yield found._replace(statement=span)
        for constant in facts.structure.strings:
            if constant not in told and word.search(_text(constant)):
                message = f"this text names `{method}`, which is deprecated since torch {card.deprecated}"
                yield finding(facts, card, constant, facts.statement(constant), message, _TEXT, Severity.HINT)
    yield from _put_together(facts, card, method)


def _text(constant: ast.Constant) -> str:
    """The text that somebody wrote, empty for code that an f-string prints with its value (`{x=}`)."""
    text = constant.value if isinstance(constant.value, str) else ""
    return "" if text.rstrip().endswith("=") else text


def _put_together(facts: ModuleFacts, card: RuleCard, method: str) -> Iterator[Finding]:
    """Names for `getattr(FSDP, ...)` that may come out as a legacy method, said by the rule of the first of them."""
    if method != FIRST:
        return
    for call in facts.structure.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in _LOOKING_UP or len(call.args) < 2 or not facts.fsdp.is_class(call.args[0]):
            continue
        ends = _ends(call.args[1])
        fitting = [name for name in METHODS if ends is not None and name.startswith(ends[0]) and name.endswith(ends[1])]
        if fitting and facts.reached(call):
            message = f"this method name is built at run time and may be `{fitting[0]}`, which is deprecated"
            yield finding(facts, card, call.args[1], facts.statement(call), message, _BUILT, Severity.HINT)


def _ends(node: ast.expr) -> tuple[str, str] | None:
    """The constant start and end of a text that is put together, None when it has neither."""
    if isinstance(node, ast.JoinedStr):
        parts: list[ast.expr] = node.values
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    else:
        return None
    start, end = _constant(parts[0]), _constant(parts[-1])
    return (start, end) if (start or end) and len(parts) > 1 else None


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

"""FSDP301: asking whether a parameter is a FlatParameter.

With `use_orig_params=True` (torch 2.0 on) `parameters()` yields the original parameters, none of which is a
FlatParameter; all that FSDP manages carry the attribute `_fsdp_flattened` in either mode (torch 1.13 to 2.15; RUNTIME
table 1f, catalogue flat-isinstance and flat-fsdp-flattened-attr).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.truth import Role, standing
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.flat_classes import (
    ATTRIBUTE,
    Classes,
    attribute_test,
    classes_of,
    flat_meanings,
    releases,
    stands_alone,
    template_around,
)
from fsdp_migrate.rules.flat_uses import special_use

ORIGINAL_PARAMETERS_SINCE = Version("2.0")
_MESSAGE = (
    "no parameter is a FlatParameter under `use_orig_params=True`, and this test is always False there; "
    f"`{ATTRIBUTE}` tells whether FSDP manages it"
)
_FLIPS = "for parameters that FSDP manages under `use_orig_params=True`"
_UNSAFE = {
    Role.NEGATED: f"the test is negated: it was always True and becomes False {_FLIPS}",
    Role.ASSERTED: f"the assertion now sees True where it saw False {_FLIPS}",
    Role.COMPARED: f"the result is compared, and becomes True {_FLIPS}",
    Role.PASSED_ON: f"the result is stored or passed on, and becomes True {_FLIPS}",
}


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find `isinstance` tests and class patterns for FlatParameter."""
    for call in facts.structure.calls:
        if len(call.args) != 2 or call.keywords or facts.names.qualified(call.func) != "builtins.isinstance":
            continue
        classes = classes_of(facts, call.args[1])
        if classes.concerned and _has_original_parameters(facts, call):
            place = template_around(facts, call) or call
            yield finding(facts, card, place, facts.statement(call), _MESSAGE, _verdict(facts, call, classes))
    yield from _patterns(facts, card)


def _has_original_parameters(facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether a release that gets to `node` knows `use_orig_params`."""
    return any(release >= ORIGINAL_PARAMETERS_SINCE for release in facts.gates.alive(node))


def _patterns(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find `case FlatParameter():`."""
    uses = (use for scope in facts.structure.module.nested() for uses in scope.uses.values() for use in uses)
    for node in (*uses, *facts.structure.attributes):
        pattern = facts.structure.parents[node]
        if (
            isinstance(pattern, ast.MatchClass)
            and flat_meanings(facts, node)
            and _has_original_parameters(facts, pattern)
        ):
            verdict = manual(
                f'a class pattern cannot test an attribute: use a guard with `getattr(..., "{ATTRIBUTE}", False)`'
            )
            yield finding(facts, card, pattern, facts.statement(pattern), _MESSAGE, verdict)


def _verdict(facts: ModuleFacts, call: ast.Call, classes: Classes) -> Verdict:
    subject = call.args[0]
    trouble = classes.trouble or text_trouble(facts, call)
    if trouble is None and classes.others and not pure(subject):
        trouble = f"`{ast.unparse(subject)}` would be evaluated twice: name it first"
    trouble = trouble or special_use(facts, call, subject)
    if trouble is not None:
        return manual(trouble)
    edit = Replace(facts.source.span(call), _new_text(facts, call, classes))
    return Verdict(Fix((edit,), releases(facts, classes)), unsafe=_UNSAFE.get(standing(facts, call).role))


def text_trouble(facts: ModuleFacts, node: ast.expr) -> str | None:
    """Why the text of `node` cannot be replaced, None when it can."""
    if template_around(facts, node) is not None:
        return "the test stands in an f-string, whose quotes the new one may not fit: take it out"
    if facts.source.has_comment(facts.source.span(node)):
        return "a comment stands in the test: move it out"
    if any(isinstance(part, ast.Starred) for part in getattr(node, "args", ())):
        return "the call passes `*args`: name the arguments"
    return None


def _new_text(facts: ModuleFacts, call: ast.Call, classes: Classes) -> str:
    subject = call.args[0]
    test = attribute_test(facts, subject)
    if not classes.others:
        return test
    texts = [facts.source.segment(other) for other in classes.others]
    if classes.union:
        rest = " | ".join(texts)
    elif len(texts) == 1 and not isinstance(classes.others[0], ast.Starred):
        rest = texts[0]
    else:
        rest = f"({', '.join(texts)})" if len(texts) > 1 else f"({texts[0]},)"
    text = f"{test} or {facts.source.segment(call.func)}({facts.source.segment(subject)}, {rest})"
    return text if stands_alone(facts, call) else f"({text})"


RULE = Rule(
    RuleCard(
        code="FSDP301",
        name="isinstance-flat-parameter",
        summary="`isinstance(x, FlatParameter)`, which is never true under `use_orig_params=True`",
        explanation=f"""\
FSDP keeps the parameters of a wrapped module in one FlatParameter. With `use_orig_params=True`, possible since torch
2.0, `model.parameters()` and the optimizer hold the original parameters all the same, and `isinstance(p,
FlatParameter)` is False for every one of them: checks such as "was this optimizer built from the wrapped model?" fail
without need. The attribute `{ATTRIBUTE}` is set on all parameters that FSDP manages, in both modes.

The fix is **safe** where a positive test decides something (a condition, `any`, `all`, a filter, the result of a
function): the question "does FSDP manage this parameter?" keeps its answer without original parameters and gets the
right one with them. It is **unsafe** under `not`, in assertions, and where the result is stored or passed on: there
code that relies on today's answer may be waiting. It is **manual** where FlatParameters themselves are meant: they are
counted, or one of their private attributes is used.""",
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
            ),
            Example(
                before="""\
from torch.distributed.fsdp import FlatParameter

def check(param):
    if not isinstance(param, FlatParameter):
        raise ValueError("wrap the model first")
""",
                after=f"""\
def check(param):
    if not getattr(param, "{ATTRIBUTE}", False):
        raise ValueError("wrap the model first")
""",
                note="the negated test turns over under `use_orig_params=True`",
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
            f"""\
def has_flat(params):
    return any(getattr(p, "{ATTRIBUTE}", False) for p in params)
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
    needles=("FlatParameter",),
    check=check,
)

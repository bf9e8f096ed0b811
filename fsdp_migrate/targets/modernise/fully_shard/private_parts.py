"""FSDP513: private parts of FSDP2 that have another form.

Sources: catalogue fs2-param-group-private (2.12.0 _fsdp_state.py:80) and fs2-args-by-version (2.6.0 _fully_shard.py:
`UnshardHandle` is an interface without arguments).
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.instance_members import is_given
from fsdp_migrate.code.torch_names import imports, torch_path
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_GROUP, _HANDLE = "_fsdp_param_group", "UnshardHandle"
_SEVERAL, _INTERFACE = Version("2.12"), Version("2.6")
_PLACES = ("torch.distributed._composable.fsdp", "torch.distributed.fsdp")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the one parameter group of a state, and handles that are built by hand."""
    yield from _groups(facts, card)
    for call in facts.structure.calls:
        path = torch_path(facts, call.func) or ""
        is_handle = path.startswith(_PLACES) and path.endswith(f".{_HANDLE}") and (call.args or call.keywords)
        if is_handle and any(release >= _INTERFACE for release in facts.gates.alive(call)):
            message = f"`{_HANDLE}` takes no arguments since torch 2.6: it is only the type that `unshard` returns"
            verdict = manual("call `module.unshard(async_op=True)`, which returns a handle")
            yield finding(facts, card, call.func, facts.statement(call), message, verdict)


def _groups(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    if is_given(facts, f"{_GROUP}s") or is_given(facts, _GROUP):
        return
    if not any(taken.path.startswith(_PLACES) for taken in imports(facts)):
        return
    for node in facts.structure.attributes:
        # One of FSDP2's modules has this name too.
        if node.attr != _GROUP or torch_path(facts, node) is not None:
            continue
        if any(release >= _SEVERAL for release in facts.gates.alive(node)):
            message = f"`{_GROUP}` fails since torch 2.12 if a module has several groups in `{_GROUP}s`"
            verdict = manual(f"use `{_GROUP}s` if it exists")
            yield finding(facts, card, node, facts.statement(node), message, verdict, Severity.HINT)


_IMPORT = "from torch.distributed.fsdp import UnshardHandle, fully_shard\n\n"

RULE = Rule(
    RuleCard(
        code="FSDP513",
        name="fully-shard-internals",
        summary=f"`{_GROUP}` of a module's state, or an `{_HANDLE}` built by hand",
        explanation="""\
A module of FSDP2 can have several parameter groups since torch 2.12. They are in `_fsdp_param_groups`, and the old
`_fsdp_param_group` asserts that there is only one. That is a hint, because there are several only if several meshes
are used.

`UnshardHandle` is the type of the result of `unshard(async_op=True)`. torch 2.4 and 2.5 allowed building one from a
parameter group. Since 2.6 it takes no arguments.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(
            Example(before=_IMPORT + f"group = fully_shard.state(model).{_GROUP}\n", torch=">=2.6"),
            Example(before=_IMPORT + f"handle = {_HANDLE}(group)\n", torch=">=2.6"),
        ),
        leaves=(
            _IMPORT + f"state = fully_shard.state(model)\ngroups = getattr(state, '{_GROUP}s', None)\n",
            _IMPORT + f"handle: {_HANDLE} = model.unshard(async_op=True)\n",
        ),
        url="https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
    words=(_HANDLE,),
    hinted=(f".{_GROUP}",),
    check=check,
)

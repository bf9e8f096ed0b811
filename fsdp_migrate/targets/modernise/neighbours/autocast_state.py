"""FSDP805: functions of torch that read or set autocast's state of one device, which take the device since torch 2.4.

Sources: torch 2.3.1 and 2.4.1, libtorch_python (no warning, and a DeprecationWarning in each of them);
torch/_C/__init__.pyi of 2.4.1 (the functions that take the device).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.fallback_arms import is_old_arm
from fsdp_migrate.code.torch_names import bindings_of, chains, imports, last_words, may_end_in, torch_path
from fsdp_migrate.code.unused_imports import uses_of
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_written_out
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual

_SINCE = "2.4"
_DEVICES = {"gpu": "cuda", "cpu": "cpu", "xla": "xla", "ipu": "ipu"}


class _Function(NamedTuple):
    """What takes the place of a function, and the device to give to it."""

    new: str
    device: str
    takes: int


def _functions() -> Iterator[tuple[str, _Function]]:
    for word, device in _DEVICES.items():
        yield f"torch.get_autocast_{word}_dtype", _Function("get_autocast_dtype", device, 0)
        yield f"torch.set_autocast_{word}_dtype", _Function("set_autocast_dtype", device, 1)
        if word != "gpu":  # for which the two functions without a device are right
            yield f"torch.is_autocast_{word}_enabled", _Function("is_autocast_enabled", device, 0)
            yield f"torch.set_autocast_{word}_enabled", _Function("set_autocast_enabled", device, 1)


FUNCTIONS = dict(_functions())
_WORDS = last_words(FUNCTIONS)


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the functions where they are called, imported or passed on."""
    for node in (*facts.structure.attributes, *_imported(facts)):
        path = (torch_path(facts, node) or "") if may_end_in(facts, node, _WORDS) else ""
        function = FUNCTIONS.get(path)
        if function is None or not any(release >= Version(_SINCE) for release in facts.gates.alive(node)):
            continue
        if is_old_arm(facts, node, function.new):
            continue
        given = f'"{function.device}"' + ", ..." * function.takes
        message = f"`{path}` is deprecated since torch {_SINCE}: use `torch.{function.new}({given})`"
        yield finding(facts, card, node, facts.statement(node), message, _verdict(facts, node, function))


def _imported(facts: ModuleFacts) -> Iterator[ast.expr]:
    """The uses of the functions that are imported by name."""
    for taken in imports(facts):
        if taken.path in FUNCTIONS:
            yield from (use for binding in bindings_of(facts, taken) for use in uses_of(binding))


def _verdict(facts: ModuleFacts, node: ast.expr, function: _Function) -> Verdict:
    call = facts.structure.parents[node]
    if not isinstance(call, ast.Call) or call.func is not node:
        return manual("only a call can be rewritten: call the new function here")
    if not isinstance(node, ast.Attribute):
        return manual(f"import `{function.new}`, and pass the device")
    if not is_written_out(call) or call.keywords or len(call.args) != function.takes:
        return manual("the call does not write out its arguments: change it by hand")
    kept = (Argument(None, index) for index in range(function.takes))
    if function.new == "is_autocast_enabled" and _uses_scripts(facts):
        return manual(
            "keep the call: this file uses TorchScript, which compiles the new function only without a device"
        )
    arguments = (Argument(None, text=f'"{function.device}"'), *kept)
    return Verdict(Fix((RewriteCall(facts.source.span(call), function.new, arguments),)))


def _uses_scripts(facts: ModuleFacts) -> bool:
    paths = (*(taken.path for taken in imports(facts)), *(chain.path for chain in chains(facts)))
    return any(f"{path}.".startswith("torch.jit.") for path in paths)


_IMPORT = "import torch\nimport torch.distributed as dist\n\n"

RULE = Rule(
    RuleCard(
        code="FSDP805",
        name="device-autocast-state",
        summary="`torch.get_autocast_gpu_dtype` and related functions of one device, deprecated since torch 2.4",
        explanation="""\
The functions of one device (`gpu`, `cpu`, `xla`, `ipu`) that read or set the dtype of autocast, or whether it is
enabled, are deprecated since torch 2.4. It added `torch.get_autocast_dtype`, `set_autocast_dtype` and a device for
`is_autocast_enabled` and `set_autocast_enabled`. The last two mean CUDA without a device, which is not deprecated.

In a file that uses `torch.jit` a test whether autocast is enabled is left alone: TorchScript has
`torch.is_autocast_cpu_enabled()`, but no `torch.is_autocast_enabled("cpu")` (seen with torch 2.13).""",
        applicability="safe or manual",
        deprecated=_SINCE,
        floor=_SINCE,
        flags=(
            Example(
                before=_IMPORT + "dtype = torch.get_autocast_gpu_dtype()\n",
                after=_IMPORT + 'dtype = torch.get_autocast_dtype("cuda")\n',
                torch=">=2.4",
            ),
            Example(
                before=_IMPORT + "torch.set_autocast_cpu_enabled(enabled)\n",
                after=_IMPORT + 'torch.set_autocast_enabled("cpu", enabled)\n',
                torch=">=2.4",
            ),
            Example(before=_IMPORT + "dtype = torch.get_autocast_gpu_dtype()\n", note="torch 2.1 is supported"),
        ),
        leaves=(
            _IMPORT + "enabled = torch.is_autocast_enabled()\n",
            _IMPORT + 'dtype = torch.get_autocast_dtype("cuda")\n',
        ),
        url="https://pytorch.org/docs/stable/amp.html",
    ),
    words=(),
    names=lambda: FUNCTIONS,
    check=check,
    scope="distributed",
)

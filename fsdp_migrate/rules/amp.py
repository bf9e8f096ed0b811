"""FSDP801-803: what torch.cuda.amp and torch.cpu.amp still offer beside torch.amp.

Sources: catalogue amp-autocast, amp-gradscaler, amp-custom-fwd (torch 2.4 cuda/amp/*.py, cpu/amp/*.py: FutureWarning;
the defaults of both spellings in torch/amp/autocast_mode.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.edits import Argument, Release, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind, ordered_arguments
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.rules.amp_names import DEPRECATED, NO_TORCH, Place, places, text_trouble, torch_spelling
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.releases import release

_AUTOCAST = "autocast"
_PARAMETERS = ("enabled", "dtype", "cache_enabled")
_DTYPE = {"cuda": "float16", "cpu": "bfloat16"}
_SCALER = "GradScaler"
_CUSTOM = ("custom_fwd", "custom_bwd")
_ASSERTIONS = ("assertIsInstance", "assertNotIsInstance")
_URL = "https://pytorch.org/docs/stable/amp.html"


def check_autocast(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find uses of the autocast of one device, its type tests and annotations apart."""
    for place in places(facts, (_AUTOCAST,)):
        call = _call(facts, place)
        if call is None and _is_type(facts, place.node):
            continue
        if call is None:
            verdict = manual(f'only a call can be rewritten: use `{place.new}` with "{place.device}" first')
        else:
            verdict = _autocast(facts, place, call)
        yield _finding(facts, card, place, verdict)


def _autocast(facts: ModuleFacts, place: Place, call: ast.Call) -> Verdict:
    try:
        bound = bind(call, _PARAMETERS, 0)
    except BindingError as error:
        return manual(f'the call {error}: `{place.new}` takes "{place.device}" first, and dtype before enabled')
    torch = torch_spelling(facts, place)
    arguments = [Argument(None, text=f'"{place.device}"')]
    if "dtype" not in bound:
        arguments.append(Argument("dtype", text=f"{torch}.{_DTYPE[place.device]}"))
    ordered = sorted((argument.index, name) for name, argument in bound.items())
    arguments += [Argument(name, index) for index, name in ordered]
    if "cache_enabled" not in bound:
        arguments.append(Argument("cache_enabled", text="True"))
    return _rewritten(facts, place, call, tuple(arguments))


def check_scaler(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the GradScaler of one device, built, tested for or named as a type."""
    for place in places(facts, (_SCALER,)):
        call = _call(facts, place)
        if call is not None:
            device = Argument(None, text=f'"{place.device}"')
            verdict = _rewritten(facts, place, call, (device, *_kept(call)))
        elif isinstance(facts.structure.parents[place.node], ast.ClassDef):
            verdict = manual(f'derive from `{place.new}` and give "{place.device}" to `super().__init__` first')
        elif _is_type(facts, place.node):
            verdict = _renamed(facts, place)
        else:
            verdict = manual(f'only a call can be rewritten: use `{place.new}` with "{place.device}" first')
        yield _finding(facts, card, place, verdict)


def check_custom(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the decorators of autograd functions under autocast."""
    for place in places(facts, _CUSTOM):
        call = _call(facts, place)
        device = Argument("device_type", text=f'"{place.device}"')
        if call is not None:
            kept = _kept(call)
            positional = sum(1 for argument in kept if argument.keyword is None)
            arguments = (*kept[:positional], device, *kept[positional:])
            verdict = _rewritten(facts, place, call, arguments)
        elif place.node in getattr(facts.structure.parents[place.node], "decorator_list", ()):
            verdict = _renamed(facts, place, f'({device.keyword}="{place.device}")')
        else:
            verdict = manual(f'only a decorator or a call can be rewritten: `{place.new}` needs `device_type="cuda"`')
        yield _finding(facts, card, place, verdict)


def _released(facts: ModuleFacts, place: Place, torch: str | None) -> tuple[Release, ...]:
    """The use of an imported name that goes with the old one; the name of torch itself is used again."""
    return () if ast.unparse(place.node).split(".")[0] == torch else release(facts, place.node)


def _call(facts: ModuleFacts, place: Place) -> ast.Call | None:
    """The call of which a place is the callee."""
    parent = facts.structure.parents[place.node]
    return parent if isinstance(parent, ast.Call) and parent.func is place.node else None


def _kept(call: ast.Call) -> tuple[Argument, ...]:
    return tuple(
        Argument(argument.arg if isinstance(argument, ast.keyword) else None, index)
        for index, argument in enumerate(ordered_arguments(call))
    )


def _is_type(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether a class is named as a type only: in an annotation, or as what `isinstance` tests for."""
    child: ast.AST = node
    parent = facts.structure.parents[child]
    while isinstance(parent, (ast.Subscript, ast.Tuple, ast.BinOp)):
        child, parent = parent, facts.structure.parents[parent]
    if isinstance(parent, ast.Call):
        asserted = getattr(parent.func, "attr", None) in _ASSERTIONS
        tested = asserted or facts.names.qualified(parent.func) in ("builtins.isinstance", "builtins.issubclass")
        return tested and child in parent.args[1:]
    return child in (getattr(parent, "annotation", None), getattr(parent, "returns", None))


def _trouble(facts: ModuleFacts, place: Place) -> str | None:
    return place.doubt or text_trouble(facts, place.node)


def _rewritten(facts: ModuleFacts, place: Place, call: ast.Call, arguments: tuple[Argument, ...]) -> Verdict:
    """The call of the new name with `arguments`."""
    torch = torch_spelling(facts, place)
    trouble = _trouble(facts, place) or (NO_TORCH if torch is None else None)
    if trouble is not None:
        return manual(trouble)
    edit = RewriteCall(facts.source.span(call), None, arguments, callee=f"{torch}.amp.{place.name}")
    return Verdict(Fix((edit,), _released(facts, place, torch)))


def _renamed(facts: ModuleFacts, place: Place, behind: str = "") -> Verdict:
    """The new name in the place of the old one, with some text `behind` it."""
    torch = torch_spelling(facts, place)
    trouble = _trouble(facts, place) or (NO_TORCH if torch is None else None)
    if trouble is not None:
        return manual(trouble)
    edit = Replace(facts.source.span(place.node), f"{torch}.amp.{place.name}{behind}")
    return Verdict(Fix((edit,), _released(facts, place, torch)))


def _finding(facts: ModuleFacts, card: RuleCard, place: Place, verdict: Verdict) -> Finding:
    message = f"`{place.old}` is deprecated since torch {DEPRECATED}: `{place.new}` takes the device"
    return finding(facts, card, place.node, facts.statement(place.node), message, verdict)


_IMPORT = "import torch\nimport torch.distributed as dist\n"

AUTOCAST = Rule(
    RuleCard(
        code="FSDP801",
        name="device-autocast",
        summary="`torch.cuda.amp.autocast` or `torch.cpu.amp.autocast` instead of `torch.amp.autocast`",
        explanation="""\
Both warn since torch 2.4. The text of the warning, `torch.amp.autocast('cuda', args...)`, is wrong for positions: the
second one of the new class is `dtype`, so that `autocast(False)` would stay enabled. Its defaults differ too: without
`dtype` and `cache_enabled` a nested region takes over those of the region around it, where the old classes
always meant float16 (bfloat16 on CPU) and True. The fix writes both out and uses keywords, which is exactly what the
old call did; shorten it by hand where no region is nested.

In force in files that use torch.distributed or FSDP, and everywhere with `--select FSDP8`.""",
        applicability="safe or manual",
        deprecated=DEPRECATED,
        floor="1.12",
        flags=(
            Example(
                before=_IMPORT + "\nwith torch.cuda.amp.autocast():\n    pass\n",
                after=_IMPORT
                + '\nwith torch.amp.autocast("cuda", dtype=torch.float16, cache_enabled=True):\n    pass\n',
            ),
            Example(
                before=_IMPORT
                + "from torch.cuda.amp import autocast\n\n@autocast(False, torch.bfloat16)\ndef f(x):\n    return x\n",
                after=_IMPORT
                + '\n@torch.amp.autocast("cuda", enabled=False, dtype=torch.bfloat16, cache_enabled=True)\n'
                "def f(x):\n    return x\n",
                note="positions become keywords",
            ),
            Example(
                before=_IMPORT + "\ndef region(**options):\n    return torch.cuda.amp.autocast(**options)\n",
                note="the options are not known",
            ),
        ),
        leaves=(
            _IMPORT + '\nwith torch.amp.autocast("cuda"):\n    pass\n',
            _IMPORT + "\ndef is_region(x):\n    return isinstance(x, torch.cuda.amp.autocast)\n",
        ),
        url=_URL,
    ),
    needles=(_AUTOCAST,),
    check=check_autocast,
    neighbour=True,
)

SCALER = Rule(
    RuleCard(
        code="FSDP802",
        name="device-grad-scaler",
        summary="`torch.cuda.amp.GradScaler` instead of `torch.amp.GradScaler`",
        explanation="""\
`torch.cuda.amp.GradScaler` warns since torch 2.4; `torch.amp.GradScaler` is there since 2.3 and takes the device
first. Since 2.3 the old class, like `ShardedGradScaler`, is a subclass of the new one: tests with `isinstance` and
annotations have to name the new class, and do after the fix. Tests in files that do not use torch.distributed are
reached with `--select FSDP8`. A subclass is reported: its `super().__init__` needs the device.""",
        applicability="safe or manual",
        deprecated=DEPRECATED,
        floor="2.3",
        flags=(
            Example(
                before=_IMPORT + "\nscaler = torch.cuda.amp.GradScaler(1024.0, enabled=True)\n",
                after=_IMPORT + '\nscaler = torch.amp.GradScaler("cuda", 1024.0, enabled=True)\n',
                torch=">=2.3",
            ),
            Example(
                before=_IMPORT + "\nscaler = torch.cuda.amp.GradScaler()\n",
                note="with torch 2.1 and 2.2 in the supported range, which do not have the new class",
            ),
            Example(
                before=_IMPORT + "\nclass Scaler(torch.cuda.amp.GradScaler):\n    pass\n",
                note="a subclass",
                torch=">=2.3",
            ),
        ),
        leaves=(_IMPORT + '\nscaler = torch.amp.GradScaler("cuda")\n',),
        url=_URL,
    ),
    needles=(_SCALER,),
    check=check_scaler,
    neighbour=True,
)

CUSTOM = Rule(
    RuleCard(
        code="FSDP803",
        name="device-custom-fwd",
        summary="`torch.cuda.amp.custom_fwd` or `custom_bwd` instead of those of `torch.amp`",
        explanation="""\
Both warn since torch 2.4, which brought `torch.amp.custom_fwd` and `custom_bwd`. Those need `device_type=`, and a bare
decorator has to become a call: without one they raise TypeError.""",
        applicability="safe or manual",
        deprecated=DEPRECATED,
        floor="2.4",
        flags=(
            Example(
                before=_IMPORT + "\n\nclass Linear(torch.autograd.Function):\n"
                "    @staticmethod\n    @torch.cuda.amp.custom_bwd\n"
                "    def backward(ctx, grad):\n        return grad\n",
                after=_IMPORT + "\n\nclass Linear(torch.autograd.Function):\n"
                '    @staticmethod\n    @torch.amp.custom_bwd(device_type="cuda")\n'
                "    def backward(ctx, grad):\n        return grad\n",
                torch=">=2.4",
            ),
        ),
        leaves=(_IMPORT + '\nforward = torch.amp.custom_fwd(device_type="cuda")\n',),
        url=_URL,
    ),
    needles=_CUSTOM,
    check=check_custom,
    neighbour=True,
)

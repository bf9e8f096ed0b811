"""FSDP801-803: what torch.cuda.amp and torch.cpu.amp still offer beside torch.amp.

Sources: catalogue amp-autocast, amp-gradscaler, amp-custom-fwd (torch 2.4 cuda/amp/*.py, cpu/amp/*.py: FutureWarning;
the defaults of both spellings in torch/amp/autocast_mode.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import partial

from fsdp_migrate.edits import Argument, Release, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.rules.amp_guards import decorators_verdict, scaler_verdict
from fsdp_migrate.rules.amp_imports import CallEdits, imported, moved, with_torch
from fsdp_migrate.rules.amp_names import (
    DEPRECATED,
    NEW_MODULE,
    NO_TORCH,
    Place,
    call_of,
    is_type,
    kept,
    places,
    takes_keywords,
    text_trouble,
    told_apart,
    torch_spelling,
)
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, below_floor, finding, manual
from fsdp_migrate.rules.floors import supported
from fsdp_migrate.rules.releases import release
from fsdp_migrate.source import Span

_AUTOCAST = "autocast"
_PARAMETERS = ("enabled", "dtype", "cache_enabled")
_DTYPE = {"cuda": "float16", "cpu": "bfloat16"}
_SCALER = "GradScaler"
_CUSTOM = ("custom_fwd", "custom_bwd")
_URL = "https://pytorch.org/docs/stable/amp.html"


def check_autocast(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find uses of the autocast of one device, its type tests and annotations apart."""
    found = list(places(facts, (_AUTOCAST,)))
    for binding, here in imported(facts, found).items():
        verdict = moved(facts, binding, here, partial(_autocast_follows, facts))
        if verdict is not None and any(_wants_torch(facts, place) for place in here):
            verdict = with_torch(facts, binding, verdict)
        if verdict is not None and any(call_of(facts, place) for place in here):
            yield _import_finding(facts, card, binding, here[0], verdict)
            found = [place for place in found if place not in here]
    for place in found:
        call = call_of(facts, place)
        if call is None and is_type(facts, place.node):
            continue
        if call is None:
            verdict = manual(f'only a call can be rewritten: use `{place.new}` with "{place.device}" first')
        else:
            verdict = _autocast(facts, place, call)
        yield _finding(facts, card, place, verdict)


def _autocast(facts: ModuleFacts, place: Place, call: ast.Call) -> Verdict:
    try:
        return _rewritten(facts, place, call, _autocast_arguments(facts, place, call))
    except BindingError as error:
        return manual(f'the call {error}: `{place.new}` takes "{place.device}" first, and dtype before enabled')


def _autocast_arguments(facts: ModuleFacts, place: Place, call: ast.Call) -> tuple[Argument, ...]:
    bound = bind(call, _PARAMETERS, 0)
    torch = torch_spelling(facts, place) or "torch"
    arguments = [Argument(None, text=f'"{place.device}"')]
    if "dtype" not in bound:
        arguments.append(Argument("dtype", text=f"{torch}.{_DTYPE[place.device]}"))
    ordered = sorted((argument.index, name) for name, argument in bound.items())
    arguments += [Argument(name, index) for index, name in ordered]
    if "cache_enabled" not in bound:
        arguments.append(Argument("cache_enabled", text="True"))
    return tuple(arguments)


def _autocast_follows(facts: ModuleFacts, place: Place) -> CallEdits | None:
    call = call_of(facts, place)
    if call is None:
        return () if is_type(facts, place.node) else None
    try:
        return (RewriteCall(facts.source.span(call), None, _autocast_arguments(facts, place, call)),)
    except BindingError:
        return None


def _wants_torch(facts: ModuleFacts, place: Place) -> bool:
    """Whether the new call needs a dtype of torch, which is not imported."""
    call = call_of(facts, place)
    return call is not None and torch_spelling(facts, place) is None and "dtype" not in bind(call, _PARAMETERS, 0)


def check_scaler(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the GradScaler of one device, built, tested for or named as a type."""
    found = list(places(facts, (_SCALER,)))
    for binding, here in imported(facts, found).items():
        if not below_floor(card, facts, binding.node, *(place.node for place in here)):
            verdict = moved(facts, binding, here, partial(_scaler_follows, facts))
        else:
            verdict = scaler_verdict(facts, binding, here) if here[0].device == "cuda" else None
        if verdict is not None:
            yield _import_finding(facts, card, binding, here[0], told_apart(facts, here, verdict))
            found = [place for place in found if place not in here]
    for place in found:
        call = call_of(facts, place)
        if call is not None:
            verdict = _rewritten(facts, place, call, _scaler_arguments(place, call))
        elif isinstance(facts.structure.parents[place.node], ast.ClassDef):
            verdict = manual(f'derive from `{place.new}` and give "{place.device}" to `super().__init__` first')
        elif is_type(facts, place.node):
            verdict = told_apart(facts, [place], _renamed(facts, place))
        else:
            verdict = manual(f'only a call can be rewritten: use `{place.new}` with "{place.device}" first')
        yield _finding(facts, card, place, verdict)


def _scaler_arguments(place: Place, call: ast.Call) -> tuple[Argument, ...]:
    return (Argument(None, text=f'"{place.device}"'), *kept(call))


def _scaler_follows(facts: ModuleFacts, place: Place) -> CallEdits | None:
    parent = facts.structure.parents[place.node]
    if (call := call_of(facts, place)) is not None:
        return (RewriteCall(facts.source.span(call), None, _scaler_arguments(place, call)),)
    if isinstance(parent, ast.ClassDef):
        return () if place.device == "cuda" and takes_keywords(facts, parent) else None
    return () if is_type(facts, place.node) else None


def check_custom(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the decorators of autograd functions under autocast."""
    found = list(places(facts, _CUSTOM))
    by_import: dict[ast.AST, dict[Binding, str]] = {}
    for binding, here in imported(facts, found).items():
        if below_floor(card, facts, binding.node, *(place.node for place in here)):
            by_import.setdefault(binding.node, {})[binding] = here[0].name
        elif (verdict := moved(facts, binding, here, partial(_custom_follows, facts))) is not None:
            yield _import_finding(facts, card, binding, here[0], verdict)
        else:
            continue
        found = [place for place in found if place not in here]
    for statement, names in by_import.items():
        yield _decorators_finding(facts, card, statement, dict(sorted(names.items(), key=_written_at)))
    for place in found:
        call = call_of(facts, place)
        if call is not None:
            verdict = _rewritten(facts, place, call, _custom_arguments(place, call))
        elif _decorates(facts, place):
            verdict = _renamed(facts, place, f'(device_type="{place.device}")')
        else:
            verdict = manual(f'only a decorator or a call can be rewritten: `{place.new}` needs `device_type="cuda"`')
        yield _finding(facts, card, place, verdict)


def _custom_arguments(place: Place, call: ast.Call) -> tuple[Argument, ...]:
    arguments = kept(call)
    positional = sum(1 for argument in arguments if argument.keyword is None)
    device = Argument("device_type", text=f'"{place.device}"')
    return (*arguments[:positional], device, *arguments[positional:])


def _custom_follows(facts: ModuleFacts, place: Place) -> CallEdits | None:
    call = call_of(facts, place)
    if call is not None:
        return (RewriteCall(facts.source.span(call), None, _custom_arguments(place, call)),)
    if not _decorates(facts, place):
        return None
    end = facts.source.span(place.node).end
    return (Replace(Span(end, end), f'(device_type="{place.device}")'),)


def _decorates(facts: ModuleFacts, place: Place) -> bool:
    """Whether a place is a bare decorator."""
    return place.node in getattr(facts.structure.parents[place.node], "decorator_list", ())


def _released(facts: ModuleFacts, place: Place, torch: str | None) -> tuple[Release, ...]:
    """The use of an imported name that goes with the old one; the name of torch itself is used again."""
    return () if ast.unparse(place.node).split(".")[0] == torch else release(facts, place.node)


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
    if (trouble := _trouble(facts, place) or (NO_TORCH if torch is None else None)) is not None:
        return manual(trouble)
    edit = Replace(facts.source.span(place.node), f"{torch}.amp.{place.name}{behind}")
    return Verdict(Fix((edit,), _released(facts, place, torch)))


def _message(place: Place) -> str:
    return f"`{place.old}` is deprecated since torch {DEPRECATED}: `{place.new}` takes the device"


def _finding(facts: ModuleFacts, card: RuleCard, place: Place, verdict: Verdict) -> Finding:
    may_import = isinstance(place.node, ast.Attribute) and place.device == "cuda" and place.name != _AUTOCAST
    if may_import and below_floor(card, facts, place.node):
        reason = (
            f"`{place.new}` needs torch>={card.floor}, and {supported(facts)}: import `{place.name}` from "
            "`torch.cuda.amp` by name, and the import can be made to try both places"
        )
        verdict = Verdict(manual=reason, below_floor=True)
    return finding(facts, card, place.node, facts.statement(place.node), _message(place), verdict)


def _written_at(item: tuple[Binding, str]) -> int:
    """The place of an imported name in its import."""
    statement = item[0].node
    assert isinstance(statement, ast.ImportFrom)
    return [alias.asname or alias.name for alias in statement.names].index(item[0].name)


def _decorators_finding(
    facts: ModuleFacts, card: RuleCard, statement: ast.AST, names: Mapping[Binding, str]
) -> Finding:
    assert isinstance(statement, ast.ImportFrom)
    listed = " and ".join(f"`torch.cuda.amp.{name}`" for name in names.values())
    verb = "are" if len(names) > 1 else "is"
    message = f"{listed} {verb} deprecated since torch {DEPRECATED}: those of `{NEW_MODULE}` take the device"
    return finding(facts, card, statement, statement, message, decorators_verdict(facts, names))


def _import_finding(facts: ModuleFacts, card: RuleCard, binding: Binding, place: Place, verdict: Verdict) -> Finding:
    """What is wrong with all uses of an imported name, told where it is imported."""
    assert isinstance(binding.node, ast.ImportFrom)
    alias = next(one for one in binding.node.names if (one.asname or one.name) == binding.name)
    return finding(facts, card, alias, binding.node, _message(place), verdict)


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
old call did; shorten it by hand where no region is nested.""",
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
                after=_IMPORT + "from torch.amp import autocast\n\n"
                '@autocast("cuda", enabled=False, dtype=torch.bfloat16, cache_enabled=True)\n'
                "def f(x):\n    return x\n",
                note="an imported name comes from the new module, and positions become keywords",
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
annotations have to name the new class, and do after the fix (unsafe where a `ShardedGradScaler` is told apart). Tests
in files that do not use torch.distributed are reached with `--select FSDP8`. A subclass follows where its base is seen
to get keywords only; otherwise it is reported, since a position would be taken for the device.

Where torch 2.1 or 2.2 is supported too, a class that is imported by name comes from either place: the import tries the
new one first (or asks for the version as the file does), and positions become keywords, which both take.""",
        applicability="safe, unsafe or manual",
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
                before="import torch.distributed\n"
                "from torch.cuda.amp import GradScaler\n\nscaler = GradScaler(1024.0)\n",
                after="import torch.distributed\n"
                'from torch.amp import GradScaler\n\nscaler = GradScaler("cuda", 1024.0)\n',
                note="imported by name",
                torch=">=2.3",
            ),
            Example(
                before="import torch.distributed\n"
                "from torch.cuda.amp import GradScaler\n\nscaler = GradScaler(1024.0)\n",
                after="import torch.distributed\n"
                "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n"
                "    from torch.cuda.amp import GradScaler\n\nscaler = GradScaler(init_scale=1024.0)\n",
                note="with torch 2.1 and 2.2, the import can try both",
            ),
            Example(
                before=_IMPORT + "\nclass Scaler(torch.cuda.amp.GradScaler):\n    pass\n",
                note="a subclass that is not imported by name",
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
decorator has to become a call: without one they raise TypeError.

Where older releases are supported too, decorators that are imported by name come from either place, and a `partial`
tells the new ones the device.""",
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
            Example(
                before="import torch.distributed\n"
                "from torch.cuda.amp import custom_fwd\n\nforward = custom_fwd(double)\n",
                after="import torch.distributed\n"
                "try:\n    from torch.amp import custom_fwd\n"
                "except ImportError:\n    from torch.cuda.amp import custom_fwd\n"
                "else:\n    from functools import partial\n"
                '    custom_fwd = partial(custom_fwd, device_type="cuda")\n\nforward = custom_fwd(double)\n',
                note="with torch 2.1 to 2.3 in the supported range",
            ),
        ),
        leaves=(_IMPORT + '\nforward = torch.amp.custom_fwd(device_type="cuda")\n',),
        url=_URL,
    ),
    needles=_CUSTOM,
    check=check_custom,
    neighbour=True,
)

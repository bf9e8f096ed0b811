"""FSDP841: `torch.load` of what torch 2.6 refuses.

Source: catalogue load-weights-only (2.6.0 serialization.py:101,1378: `weights_only=None` means True, unless a
`pickle_module` is passed).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_LOAD = "torch.load"
_SAVE = ("torch.save", "torch.serialization.save")
_STRICT_SINCE = "2.6"
_DECIDES = ("weights_only", "pickle_module", None)
_PARSES = ("parse_args", "parse_known_args", "parse_args_into_dataclasses")
_LONGEST_PATH = 60
_SHARDED = ("SHARDED_STATE_DICT", "LOCAL_STATE_DICT")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find loads that leave it to torch whether anything but tensors and plain values may come out."""
    for call in facts.structure.calls:
        if getattr(call.func, "attr", getattr(call.func, "id", None)) != "load":
            continue
        if facts.names.qualified(call.func) != _LOAD or any(k.arg in _DECIDES for k in call.keywords):
            continue
        if not any(release >= Version(_STRICT_SINCE) for release in facts.gates.alive(call)):
            continue
        path = _argument(call, 0, "f")
        refused = facts.memo(_refused, lambda: _refused(facts)).get(_file(facts, path)) if path is not None else None
        message = f"`{_LOAD}`{_of(path)} accepts only tensors and plain values since torch {_STRICT_SINCE}"
        if refused is not None:
            message = (
                f"`{_LOAD}`{_of(path)} fails since torch {_STRICT_SINCE}, where `weights_only` is True by "
                f"default: {refused}"
            )
        verdict = manual("pass `weights_only=False` if you trust the file; otherwise save plain values")
        severity = Severity.BREAKS if refused is not None else Severity.HINT
        yield finding(facts, card, call.func, facts.statement(call), message, verdict, severity)


def _refused(facts: ModuleFacts) -> dict[object, str]:
    """Which line saves what a load refuses to a file, by what tells the file from others."""
    found: dict[object, str] = {}
    for call in facts.structure.calls:
        saved, path = _argument(call, 0, "obj"), _argument(call, 1, "f")
        if saved is None or path is None or facts.names.qualified(call.func) not in _SAVE:
            continue
        place = facts.source.location(facts.source.span(call).start)
        line = f"line {place.line}" if place.cell is None else f"line {place.line} of cell {place.cell}"
        if _in_sharded_context(facts, call):
            found[_file(facts, path)] = f"{line} saves a sharded state dict to it"
        elif any(_is_namespace(facts, value) for value in _parts(facts, saved)):
            found[_file(facts, path)] = f"{line} saves an `argparse.Namespace` to it"
    return found


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    given = [*call.args[position : position + 1], *(keyword.value for keyword in call.keywords if keyword.arg == name)]
    return given[0] if given else None


def _of(path: ast.expr | None) -> str:
    """How a message names the file of a call."""
    written = "" if path is None else ast.unparse(path)
    return f" of `{written}`" if 0 < len(written) <= _LONGEST_PATH else ""


def _file(facts: ModuleFacts, path: ast.expr) -> object:
    """What tells a file from others: the strings in its path, or else its text and the scopes of its names."""
    parts = list(ast.walk(path))
    strings = tuple(part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))
    homes = tuple(facts.scope(part).lookup(part.id) for part in parts if isinstance(part, ast.Name))
    return strings or (ast.unparse(path), homes)


def _parts(facts: ModuleFacts, saved: ast.expr) -> list[ast.expr]:
    """What a saved value is, or consists of."""
    value = facts.names.value(saved) if isinstance(saved, ast.Name) else saved
    if isinstance(value, ast.Dict):
        return value.values
    if isinstance(value, ast.Call) and facts.names.qualified(value.func) == "builtins.dict":
        return [keyword.value for keyword in value.keywords]
    return [saved]


def _is_namespace(facts: ModuleFacts, value: ast.expr) -> bool:
    """Whether a name stands for what an argparse parser returned."""
    bound = facts.names.value(value) if isinstance(value, ast.Name) else None
    if not isinstance(bound, ast.Call) or not isinstance(bound.func, ast.Attribute) or bound.func.attr not in _PARSES:
        return False
    parser = bound.func.value
    made = facts.names.value(parser) if isinstance(parser, ast.Name) else parser
    return isinstance(made, ast.Call) and facts.names.qualified(made.func) == "argparse.ArgumentParser"


def _in_sharded_context(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether the state dict that is saved was, by the looks of it, taken under a type that shards it."""
    takes = any(getattr(getattr(part, "func", None), "attr", None) == "state_dict" for part in ast.walk(call))
    if not takes:
        return False
    withs = (block for block in facts.blocks_around(call) if isinstance(block, ast.With))
    settings = (facts.fsdp.setting(item.context_expr) for block in withs for item in block.items)
    innermost = next((setting for setting in settings if setting is not None), None)
    return innermost is not None and innermost.type_name in _SHARDED


_IMPORT = "import torch\nimport torch.distributed as dist\n"

RULE = Rule(
    RuleCard(
        code="FSDP841",
        name="load-weights-only",
        summary="`torch.load` without `weights_only`, which torch 2.6 turned on",
        explanation="""\
Since torch 2.6 `torch.load` accepts only tensors, numbers, strings and containers of them. It raises UnpicklingError
for anything else: `ShardedTensor` (sharded and local state dicts), `argparse.Namespace`, NumPy scalars, configuration
objects. Full state dicts load as before. `weights_only=False` restores the old behaviour. A pickle can run any code,
so the tool never writes it for you.

The finding breaks if the same program saves such an object to the same file: a sharded or local state dict by
`torch.save`, or the result of `ArgumentParser.parse_args`. Otherwise the contents of the file are unknown, and it is a
hint.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(
            Example(before=_IMPORT + "\ndef load(path):\n    return torch.load(path)\n", note="a hint"),
            Example(
                before="import argparse\n"
                + _IMPORT
                + "\nparser = argparse.ArgumentParser()\nargs = parser.parse_args()\n"
                + "torch.save({'model': model.state_dict(), 'args': args}, path)\nstate = torch.load(path)\n",
            ),
        ),
        leaves=(
            _IMPORT + "\ndef load(path):\n    return torch.load(path, weights_only=True)\n",
            _IMPORT + "\ndef load(path, **options):\n    return torch.load(path, **options)\n",
        ),
        url="https://pytorch.org/docs/stable/generated/torch.load.html",
    ),
    words=((_LOAD, "save"),),
    hinted=(_LOAD,),
    check=check,
    scope="distributed",
)

"""Texts that mutations start from: the rules' own examples, the fixtures, and files of the standard library."""

from __future__ import annotations

import ast
import functools
import sysconfig
import warnings
from pathlib import Path

from fsdp_migrate.rules import RULES
from fsdp_migrate.verify import find_fixtures

MOST_BYTES = 20_000


@functools.cache
def examples() -> tuple[str, ...]:
    """Every program that stands on a rule's card, flagged or left alone."""
    flagged = (example.before for rule in RULES for example in rule.card.flags)
    return tuple(dict.fromkeys([*flagged, *(code for rule in RULES for code in rule.card.leaves)]))


@functools.cache
def fixtures() -> tuple[str, ...]:
    """The programs before rewriting of all fixtures."""
    return tuple(fixture.before.read_text() for fixture in find_fixtures())


@functools.cache
def library() -> tuple[Path, ...]:
    """Files of the standard library that are short enough to be rewritten many times."""
    root = Path(sysconfig.get_path("stdlib"))
    folders = [
        root,
        *(root / name for name in ("asyncio", "concurrent/futures", "email", "importlib", "json", "unittest")),
    ]
    found = (path for folder in folders if folder.is_dir() for path in folder.glob("*.py"))
    return tuple(sorted(path for path in found if 200 < path.stat().st_size < MOST_BYTES))


def parse(text: str) -> ast.Module | None:
    """The tree of `text`, None if it is no program."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@functools.cache
def expressions() -> tuple[str, ...]:
    """Expressions to put in the place of others: odd ones, and those of the examples."""
    odd = [
        "x", "None", "...", "lambda: x", "lambda m, *a, **k: m", "(yield)", "await x", "[x for x in y]",
        "{**a}", "{k: v for k, v in z}", "(w := x)", "x if y else z", "not x", "x or y", "x and y", "f'{x}'",
        "f'{x!r:>{y}}'", "'''a\n  b'''", "b'\\x00'", "-1", "x[0]", "x[1:2, ::3]", "x.y.z", "*x", "x, y", "(x)",
        "'\u00e9\U0001f600'", "super()", "self.model", "self.optimizers[0]", "FSDP", "FSDP(model)", "getattr(FSDP, 'x')",
        "[FSDP(m) for m in ms]", "model.module", "f(FSDP.optim_state_dict(model, optim))", "print", "type(x)",
        "__name__", "0x_ff", "1e3j", "a < b < c", "a @ b", "x\\\n.y", "(x  # c\n)", "[  # c\nx]", "(yield from x)",
    ]  # fmt: skip
    found = dict.fromkeys(odd)
    for text in examples():
        tree = parse(text)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.expr):
                segment = ast.get_source_segment(text, node)
                if segment and len(segment) < 200:
                    found[segment] = None
    return tuple(found)


@functools.cache
def statements() -> tuple[str, ...]:
    """Statements to put among others: imports of all kinds, and those of the examples."""
    odd = [
        "import torch", "import torch.distributed.fsdp", "import torch.distributed.fsdp as FSDP", "import torch as FSDP",
        "from torch.distributed import fsdp", "from torch.distributed.fsdp import *", "from torch import distributed as dist",
        "from torch.distributed.fsdp import (\n    FullyShardedDataParallel as FSDP,  # c\n    StateDictType,\n)",
        "from torch.distributed.fsdp import StateDictType as FSDP", "from torch.distributed.fsdp import FlatParameter",
        "from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel, OptimStateKeyType",
        "from fairscale.nn import FullyShardedDataParallel as FSDP", "from .mine import FSDP, StateDictType",
        "try:\n    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nexcept ImportError:\n    FSDP = None",
        "from torch.distributed.fsdp import StateDictType; import os", "__all__ = ['FSDP']", "del FSDP", "FSDP = object",
        "global FSDP", "global model", "nonlocal model", "pass", "return", "return FSDP.full_optim_state_dict(model, optim)",
        "break", "continue", "raise", "yield", "FSDP: type", "model: FSDP = FSDP(model)", "model = FSDP(model)", "x: int",
        "optim = torch.optim.Adam(model.parameters())", "optim.load_state_dict(osd)", "assert FSDP", "model, optim = x",
        "osd = FSDP.full_optim_state_dict(model, optim)", "osd = FSDP.scatter_full_optim_state_dict(osd, model, optim=optim)",
        "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT): pass", "class FSDP(FSDP): pass",
        "def FSDP(*a, **k): return a", "async def f(): await x", "@FSDP\ndef f(): pass", "if x: pass\nelif y: pass\nelse: pass",
        "for FSDP in x: pass", "while FSDP.full_optim_state_dict(model, optim): pass", "x += FSDP.full_optim_state_dict(model, optim)",
        "import torch.distributed.fsdp._runtime_utils", "from torch.distributed._tensor import DTensor, Shard",
        "import torch.distributed as dist\ngetattr(dist, '_all_gather_base')(a, b)", "op = getattr(torch.distributed, 'reduce_op').SUM",
        "type X = int", "match x:\n    case FSDP.y: pass\n    case {'a': b, **c}: pass", "print(f'{FSDP.full_optim_state_dict(model, optim)}')",
    ]  # fmt: skip
    found = dict.fromkeys(odd)
    for text in examples():
        tree = parse(text)
        for node in tree.body if tree else ():
            if segment := ast.get_source_segment(text, node):
                found[segment] = None
    return tuple(found)

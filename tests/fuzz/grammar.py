"""Whole programs with FSDP in them, from a grammar: how the class is imported, what it is called with, and where."""

from __future__ import annotations

import textwrap

from hypothesis import strategies as st

FSDP = "FullyShardedDataParallel"
PLACE = "torch.distributed.fsdp"
DEEP = f"{PLACE}.fully_sharded_data_parallel"

# How the class gets into a module, and what it is called there.
IMPORTS = (
    (f"from {PLACE} import {FSDP} as FSDP", "FSDP"),
    (f"from {PLACE} import {FSDP}", FSDP),
    (f"from {DEEP} import {FSDP} as F", "F"),
    (f"import {PLACE} as fsdp", f"fsdp.{FSDP}"),
    (f"import {PLACE}", f"{PLACE}.{FSDP}"),
    (f"import {DEEP} as deep", f"deep.{FSDP}"),
    ("import torch", f"torch.distributed.fsdp.{FSDP}"),
    ("import torch as T", f"T.distributed.fsdp.{FSDP}"),
    ("from torch.distributed import fsdp as f", f"f.{FSDP}"),
    (
        f"from {PLACE} import (\n    {FSDP} as FSDP,  # the wrapper\n    StateDictType,\n    FullStateDictConfig,\n)",
        "FSDP",
    ),
    (f"from {PLACE} import {FSDP} as FSDP, StateDictType, MixedPrecision as MP", "FSDP"),
    (f"from {PLACE} import *", FSDP),
    (f"from {PLACE} import {FSDP}\nFSDP = {FSDP}", "FSDP"),
    (f"try:\n    from {PLACE} import {FSDP} as FSDP\nexcept ImportError:\n    FSDP = None", "FSDP"),
    (f"if TYPE_CHECKING:\n    from {PLACE} import {FSDP} as FSDP", "FSDP"),
    (f"from {PLACE} import {FSDP} as FSDP; import os, sys", "FSDP"),
    (f"from {PLACE} import {FSDP} as FSDP\n\n\nclass Mine(FSDP):\n    pass", "Mine"),
    (f"from fairscale.nn import {FSDP} as FSDP", "FSDP"),
)

LEGACY = ("full_optim_state_dict", "sharded_optim_state_dict", "shard_full_optim_state_dict", "scatter_full_optim_state_dict",
          "flatten_sharded_optim_state_dict", "optim_state_dict", "optim_state_dict_to_load", "rekey_optim_state_dict",
          "summon_full_params", "clip_grad_norm_", "set_state_dict_type", "state_dict_type", "no_sync")  # fmt: skip

NAMES = (
    "model",
    "optim",
    "osd",
    "self.model",
    "self.optimizer",
    "group",
    "state['optim']",
    "None",
    "model.module",
    "optims[0]",
)
KEYWORDS = ("optim", "optim_input", "model", "optim_state_dict", "rank0_only", "group", "use_dtensor", "sharded_optim_state_dict",
            "full_optim_state_dict", "state_dict_type", "recurse", "writeback")  # fmt: skip


def programs() -> st.SearchStrategy[str]:
    """Programs that mostly parse."""
    return st.sampled_from(IMPORTS).flatmap(lambda pair: st.builds(_program, st.just(pair[0]), _bodies(pair[1])))


def _program(imports: str, body: str) -> str:
    return f"import torch\n{imports}\n\n\n{body}\n"


def _bodies(name: str) -> st.SearchStrategy[str]:
    simple = _simple_statements(name)
    blocks = st.recursive(simple, lambda inner: _compound(inner, name), max_leaves=8)
    return st.lists(blocks, min_size=1, max_size=4).map("\n".join)


def _gap() -> st.SearchStrategy[str]:
    """What stands between two arguments."""
    plain = st.sampled_from(["", " "])
    return st.one_of(
        plain, plain, st.sampled_from(["\n        ", "  # why\n    ", "\n    # own line\n    ", " \\\n  "])
    )


def _argument(value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    keyword = st.builds("{}={}".format, st.sampled_from(KEYWORDS), value)
    return st.one_of(value, value, keyword, value.map("*{}".format), value.map("**{}".format))


@st.composite
def _calls(draw: st.DrawFn, name: str, values: st.SearchStrategy[str]) -> str:
    receiver = draw(st.sampled_from([name, name, name, "model", "self.model", "type(model)", f"{name}(model)"]))
    arguments = draw(st.lists(_argument(values), max_size=4))
    text = "".join(f"{draw(_gap())}{argument}{draw(_gap())}," for argument in arguments)
    if text and draw(st.booleans()):
        text = text[:-1]
    return f"{receiver}.{draw(st.sampled_from(LEGACY))}({text}{draw(_gap())})"


def _expressions(name: str) -> st.SearchStrategy[str]:
    plain = st.sampled_from(NAMES)
    calls = st.recursive(plain, lambda inner: _calls(name, inner), max_leaves=3)
    around = st.sampled_from(["{}", "{}", "{}", "({})", "f({})", "[{}]", "{{'optim': {}}}", "{} or None", "x if {} else y", "lambda: {}",
                              "[{} for m in models]", "await {}", "(y := {})", "f'{{{}}}'", "{}['state']", "not {}", "(yield {})"])  # fmt: skip
    return st.builds(lambda frame, inner: frame.format(inner), around, st.one_of(_calls(name, plain), calls))


def _simple_statements(name: str) -> st.SearchStrategy[str]:
    frames = st.sampled_from(["{}", "osd = {}", "self.osd = {}", "return {}", "a = b = {}", "osd: dict = {}", "osd += {}", "a, b = {}",
                              "optim.load_state_dict({})", "torch.save({}, path)", "assert {}", "del x; osd = {}; y = 1", "raise E({})",
                              "with {} as c: pass", "for k in {}: pass", "if {}: pass", "model = FSDP({})", "print({})  # said"])  # fmt: skip
    return st.builds(lambda frame, inner: frame.format(inner), frames, _expressions(name))


def _compound(inner: st.SearchStrategy[str], name: str) -> st.SearchStrategy[str]:
    heads = st.sampled_from(
        [
            "if rank == 0:",
            "for epoch in range(2):",
            "while True:",
            "with torch.no_grad():",
            "def save(model, optim, path):",
            "async def load(self, model):",
            "class Trainer:",
            f"with {name}.state_dict_type(model, StateDictType.FULL_STATE_DICT):",
            "if torch.__version__ >= '2.1':",
            f"if isinstance(model, {name}):",
            "if TYPE_CHECKING:",
        ]
    )
    block = st.lists(inner, min_size=1, max_size=3).map("\n".join)
    plain = st.builds(lambda head, body: f"{head}\n{_in(body)}", heads, block)
    tried = st.builds(
        lambda body, other, what: f"try:\n{_in(body)}\nexcept {what}:\n{_in(other)}",
        block, inner, st.sampled_from(["Exception", "ImportError", "AttributeError as e"]),
    )  # fmt: skip
    either = st.builds(
        lambda body, other: f"if flag:  # why\n{_in(body)}\nelse:\n    # not\n{_in(other)}", block, inner
    )
    return st.one_of(plain, plain, tried, either)


def _in(body: str) -> str:
    return textwrap.indent(body, "    ")

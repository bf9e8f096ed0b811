"""Programs about any name that some torch has, from the data about the releases: imported, called, derived from, looked up."""

from __future__ import annotations

import functools
import keyword

from hypothesis import strategies as st

from fsdp_migrate.torch_api import data

CLASS = f"{data.PACKAGE}.fully_sharded_data_parallel.FullyShardedDataParallel"

# `{path}` is a name, `{module}` and `{last}` its parts, `{other}` another name of the module, `{member}` one of FSDP.
_FORMS = (
    "from {module} import {last}\nx = {last}({arguments})\nprint({last})",
    "from {module} import (\n    {last},\n    {other},\n)\n{last}({other}, {arguments})",
    "from {module} import {last} as z\nfrom {module} import *\nwith z({arguments}) as q, {last}:\n    q.foo = z\ndel z",
    "import {module}\n{path}\nr = {path}({arguments})\nclass S({path}):\n    pass",
    "import {module} as m\nf = partial(m.{last}, {arguments})\nisinstance(v, (m.{last}, m.{other}))",
    "from {path} import {other}\nfrom {path}.nothing import Other\n{other}({arguments})",
    "try:\n    from {module} import {last}\nexcept ImportError:\n    {last} = None\n@{last}\ndef f(x: {last}): pass",
    "import torch\nif hasattr({module}, '{last}'):\n    getattr({module}, '{last}')({arguments})",
    "from {module} import {last}, {other}\n__all__ = ['{last}']",
    "model = FSDP(net, {arguments})\nself.model.{member}({arguments})\nx = FSDP.{member}(model, {arguments})",
    "with model.{member}({arguments}):\n    y = getattr(model, '{member}')",
)
_ARGUMENTS = (
    "",
    "a",
    "a, b, group=g",
    "model, optim",
    "*a, **k",
    "model, optim=self.optim,  # said\n",
    "None, True, rank0_only=False",
    "f(x), dtype=torch.float16, enabled=True",
)

_HEAD = f"""\
import torch
import torch.distributed as dist
from functools import partial
from {data.PACKAGE} import FullyShardedDataParallel as FSDP"""


@functools.cache
def _paths() -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """Every full name, and the last names by module."""
    paths = tuple(path for path in data.names() if "." in path and not any(map(keyword.iskeyword, path.split("."))))
    by_module: dict[str, list[str]] = {}
    for path in paths:
        module, _, last = path.rpartition(".")
        by_module.setdefault(module, []).append(last)
    return paths, by_module


@st.composite
def programs(draw: st.DrawFn) -> str:
    """One to three pieces of code, each about a name of torch, after the imports that most files have."""
    paths, by_module = _paths()
    pieces = [_HEAD]
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths))
        module, _, last = path.rpartition(".")
        pieces.append(
            draw(st.sampled_from(_FORMS)).format(
                path=path,
                module=module,
                last=last,
                other=draw(st.sampled_from(by_module[module])),
                member=draw(st.sampled_from(by_module[CLASS])),
                arguments=draw(st.sampled_from(_ARGUMENTS)),
            )
        )
    return "\n".join(pieces) + "\n"

"""Calls through `partial` and with dicts, and names that come through the project or a star import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.checks import check_manual, check_noop, check_transformed
from tests.workspace.modules.trees import findings_of, grow

PARTIAL = "from functools import partial\n"
DDP = "from torch.nn.parallel import DistributedDataParallel as DDP\n"
SAVE = "import torch.distributed.checkpoint as dcp\n"
SCALER = "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n"
PLAN = "from torch.distributed.tensor.parallel import parallelize_module\n"


@pytest.mark.parametrize(
    ("code", "head", "before", "after"),
    [
        (
            "FSDP702",
            SAVE,
            "s = partial(dcp.save, state, writer)",
            "s = partial(dcp.save, state, storage_writer=writer)",
        ),
        ("FSDP815", DDP, "w = partial(DDP, check_reduction=True)", "w = partial(DDP)"),
        ("FSDP815", DDP, "w = partial(DDP, check_reduction=True, device_ids=d)", "w = partial(DDP, device_ids=d)"),
        (
            "FSDP702",
            SAVE,
            "dcp.save(state, writer, **{'planner': p})",
            "dcp.save(state, storage_writer=writer, **{'planner': p})",
        ),
    ],
)
def test_a_partial_is_rewritten_as_its_call_is(code: str, head: str, before: str, after: str) -> None:
    check_transformed(f"{PARTIAL}{head}{before}\n", f"{PARTIAL}{head}{after}\n", code, torch=">=2.3")


@pytest.mark.parametrize(
    ("code", "head", "line", "reason"),
    [
        ("FSDP804", SCALER, "s = partial(ShardedGradScaler, 1.0)", "may pass more positions"),
        ("FSDP815", DDP, "m = DDP(net, **{'check_reduction': True})", "drop it there"),
        ("FSDP815", DDP, "o = dict(check_reduction=True)\nm = DDP(net, **o)", "drop it there"),
        ("FSDP500", PLAN, "p = partial(parallelize_module, tp_mesh_dim=1)", "change the call for torch"),
        ("FSDP500", PLAN, "parallelize_module(m, mesh, plan, **{'tp_mesh_dim': 1})", "change the call for torch"),
        (
            "FSDP500",
            PLAN,
            "o = {'tp_mesh_dim': 1}\nparallelize_module(m, mesh, plan, **o)",
            "change the call for torch",
        ),
    ],
)
def test_what_a_dict_or_partial_brings_is_manual(code: str, head: str, line: str, reason: str) -> None:
    check_manual(f"{PARTIAL}{head}{line}\n", code, reason, torch=">=2.1")


@pytest.mark.parametrize(
    ("code", "head", "line"),
    [
        ("FSDP500", PLAN, "p = partial(parallelize_module)"),
        ("FSDP500", PLAN, "o = load()\nparallelize_module(m, mesh, plan, tp_mesh_dim=1, **o)"),
        ("FSDP500", PLAN, "o = {key: 1}\nparallelize_module(m, mesh, plan, **o)"),
        ("FSDP500", PLAN, "partial = mine\npartial(parallelize_module, tp_mesh_dim=1)"),
        ("FSDP702", SAVE, "dcp.save(state, writer, **options)"),
        ("FSDP815", DDP, "m = DDP(net, **{'device_ids': [0]})"),
    ],
)
def test_what_cannot_be_read_is_left_alone(code: str, head: str, line: str) -> None:
    check_noop(f"{'' if 'mine' in line else PARTIAL}{head}{line}\n", code)


FACADE = """\
from torch.distributed import all_gather_coalesced
from torch.distributed.checkpoint import save
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.tensor.parallel import parallelize_module
from torch.cuda.amp import GradScaler, autocast
"""
USES = {
    "all_gather_coalesced(a, b)": "FSDP610",
    "save(a, b)": "FSDP702",
    "ShardedGradScaler(1.0)": "FSDP804",
    "DistributedDataParallel(a, check_reduction=True)": "FSDP815",
    "parallelize_module(a, b, c, tp_mesh_dim=1)": "FSDP500",
    "GradScaler()": "FSDP802",
    "autocast()": "FSDP801",
}


@pytest.mark.parametrize(("use", "code"), USES.items())
@pytest.mark.parametrize(
    ("head", "owner"),
    [
        ("from facade import *\n", ""),
        ("import facade as f\n", "f."),
        ("from facade import {}\n", ""),
        ("from package import *\n", ""),
    ],
)
def test_names_come_through_the_project(use: str, code: str, head: str, owner: str, tmp_path: Path) -> None:
    grow(tmp_path, {"facade.py": FACADE, "package/__init__.py": "from facade import *\n"})
    grow(tmp_path, {"train.py": f"import torch.distributed\n{head.format(use.split('(')[0])}\n\n{owner}{use}\n"})
    assert [one.code for one in findings_of(tmp_path, "train.py", ">=2.2")] == [code]


STARS = "".join(f"from {line.split()[1]} import *\n" for line in FACADE.splitlines())


@pytest.mark.parametrize(("use", "code"), USES.items())
def test_names_come_from_a_star_import_of_torch(use: str, code: str, tmp_path: Path) -> None:
    grow(tmp_path, {"train.py": f"import torch.distributed\n{STARS}\n\n{use}\n"})
    assert [one.code for one in findings_of(tmp_path, "train.py", ">=2.2")] == [code]
    grow(
        tmp_path,
        {"train.py": f"import torch.distributed\n{STARS}\n\ndef {use.split('(')[0]}(*a, **k): ...\n\n\n{use}\n"},
    )
    assert findings_of(tmp_path, "train.py", ">=2.2") == ()


def test_a_star_import_does_not_bring_what_is_private_or_gone_from_a_release() -> None:
    check_noop("from torch.distributed import *\n\n_all_gather_base(a, b)\n", "FSDP811")
    check_noop("from torch.distributed import *\n\nreduce(all, min)\n", "FSDP8")
    check_manual(
        "from torch.distributed.tensor.parallel import *\n\nPairwiseParallel()\n", "FSDP609", "give each linear layer"
    )
    check_manual("from torch.distributed.checkpoint import *\n\nasync_save(a)\n", "FSDP600", "check that it exists")

"""FSDP811-814: old names of torch.distributed itself.

Sources: catalogue c10d-gather-base, c10d-reduce-op, c10d-get-rank, c10d-misc (1.13 and 2.4 distributed_c10d.py, and
2.2, which has no `*_multigpu` any more).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual
from fsdp_migrate.rules.floors import only_older
from fsdp_migrate.rules.renames import Rename, check_renames, uses
from fsdp_migrate.rules.torch_places import reads
from fsdp_migrate.rules.torch_presence import READING, excused

_DIST = "torch.distributed"
MODULES = (_DIST, f"{_DIST}.distributed_c10d")
_URL = "https://pytorch.org/docs/stable/distributed.html"


_BASES = (
    Rename(MODULES, "_all_gather_base", "all_gather_into_tensor", "1.13"),
    Rename(MODULES, "_reduce_scatter_base", "reduce_scatter_tensor", "1.13"),
)
_OPS = (Rename(MODULES, "reduce_op", "ReduceOp", "1.11", members=True),)
_RANKS = (
    Rename(MODULES, "_get_global_rank", "get_global_rank", "1.13", {"rank": "group_rank"}),
    Rename(MODULES, "_get_group_rank", "get_group_rank", "1.13", {"rank": "global_rank"}, gone=True),
)
_MULTIGPU = {
    f"{name}_multigpu": new
    for name, new in (
        ("broadcast", "broadcast"),
        ("all_reduce", "all_reduce"),
        ("reduce", "reduce"),
        ("all_gather", "all_gather"),
        ("reduce_scatter", "reduce_scatter"),
    )
}
_MULTIGPU_REMOVED = "2.2"


def check_multigpu(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the collectives over several GPUs of one process."""
    for name, new in _MULTIGPU.items():
        targets = {f"{module}.{name}" for module in MODULES}
        names = (one.node for one, _ in reads(facts) if one.path in targets)
        for node in (*uses(facts, name, targets), *names):
            expected = excused(facts, node, READING, too_new=False)
            if not expected and not only_older(facts, node, _MULTIGPU_REMOVED):
                message = f"`{_DIST}.{name}` is gone since torch {_MULTIGPU_REMOVED}"
                verdict = manual(f"run one process per GPU, and call `{new}` with its tensor")
                yield finding(facts, card, node, facts.statement(node), message, verdict)


_IMPORT = "import torch.distributed as dist\n\n"


def _renaming(renames: tuple[Rename, ...]) -> Callable[[ModuleFacts, RuleCard], Iterator[Finding]]:
    return partial(check_renames, renames=renames)


BASES = Rule(
    RuleCard(
        code="FSDP811",
        name="gather-base",
        summary="`_all_gather_base` and `_reduce_scatter_base` of torch.distributed",
        explanation="""\
Both warn since torch 1.13, where `all_gather_into_tensor` and `reduce_scatter_tensor` came with the same arguments.
Those are right on every release: only torch 2.13 and 2.14 point from them to `all_gather_single` and
`reduce_scatter_single`, 2.15 has taken that back, and they are never reported.""",
        applicability="safe or manual",
        deprecated="1.13",
        floor="1.13",
        flags=(
            Example(
                before=_IMPORT + "dist._all_gather_base(whole, part, group=group)\n",
                after=_IMPORT + "dist.all_gather_into_tensor(whole, part, group=group)\n",
            ),
        ),
        leaves=(
            _IMPORT + "dist.all_gather_into_tensor(whole, part)\n",
            _IMPORT + "gather = (\n    dist.all_gather_into_tensor\n    if hasattr(dist, 'all_gather_into_tensor')\n"
            "    else dist._all_gather_base\n)\n",
        ),
        url=_URL,
    ),
    needles=tuple(rename.old for rename in _BASES),
    check=_renaming(_BASES),
    neighbour=True,
)

OPS = Rule(
    RuleCard(
        code="FSDP812",
        name="reduce-op",
        summary="`torch.distributed.reduce_op`, the old `ReduceOp`",
        explanation="""\
Every attribute of `reduce_op` warns; `ReduceOp` has the same ones, in all releases.""",
        applicability="safe or manual",
        deprecated="1.11",
        flags=(
            Example(
                before=_IMPORT + "dist.all_reduce(loss, op=dist.reduce_op.SUM)\n",
                after=_IMPORT + "dist.all_reduce(loss, op=dist.ReduceOp.SUM)\n",
            ),
            Example(before=_IMPORT + "ops = vars(dist.reduce_op)\n", note="not one of its attributes"),
        ),
        leaves=(_IMPORT + "dist.all_reduce(loss, op=dist.ReduceOp.SUM)\n",),
        url=_URL,
    ),
    needles=("reduce_op",),
    check=_renaming(_OPS),
    neighbour=True,
)

RANKS = Rule(
    RuleCard(
        code="FSDP813",
        name="get-rank",
        summary="`_get_global_rank` and `_get_group_rank` of torch.distributed",
        explanation="""\
Torch 1.13 made `get_global_rank` and `get_group_rank` public. The private `_get_global_rank` warns since then,
`_get_group_rank` is gone. The keyword `rank=` is `group_rank=` and `global_rank=` now.""",
        applicability="safe or manual",
        deprecated="1.13",
        floor="1.13",
        flags=(
            Example(
                before="from torch.distributed import distributed_c10d\n\n"
                "source = distributed_c10d._get_global_rank(group, rank=0)\n",
                after="from torch.distributed import distributed_c10d\n\n"
                "source = distributed_c10d.get_global_rank(group, group_rank=0)\n",
            ),
        ),
        leaves=(_IMPORT + "source = dist.get_global_rank(group, 0)\n", "def f(self):\n    self._get_global_rank()\n"),
        url=_URL,
    ),
    needles=tuple(rename.old for rename in _RANKS),
    check=_renaming(_RANKS),
    neighbour=True,
)

MULTIGPU = Rule(
    RuleCard(
        code="FSDP814",
        name="multigpu-collective",
        summary="collectives over several GPUs of one process, such as `all_reduce_multigpu`",
        explanation="""\
Deprecated in torch 1.13 and removed in 2.2. A process drives one GPU, and calls the collective with one tensor.""",
        applicability="manual",
        deprecated="1.13",
        removed=_MULTIGPU_REMOVED,
        flags=(Example(before=_IMPORT + "dist.all_reduce_multigpu([one, two])\n"),),
        leaves=(_IMPORT + "dist.all_reduce(one)\n",),
        url=_URL,
    ),
    needles=tuple(_MULTIGPU),
    check=check_multigpu,
    neighbour=True,
)
RULES = (BASES, OPS, RANKS, MULTIGPU)

"""FSDP811-814: old names of torch.distributed itself.

Sources: catalogue c10d-gather-base, c10d-reduce-op, c10d-get-rank, c10d-misc (1.13 and 2.4 distributed_c10d.py, and
2.2, which has no `*_multigpu` any more).
"""

from __future__ import annotations

from functools import partial

from fsdp_migrate.rules.card import Example, Rule, RuleCard
from fsdp_migrate.targets.modernise.moved.planner import check
from fsdp_migrate.targets.modernise.moved.rows import GATHERS, MULTIGPU, OPERATIONS, RANKS
from fsdp_migrate.targets.modernise.moved.table import old_names, traced

_URL = "https://pytorch.org/docs/stable/distributed.html"
_IMPORT = "import torch.distributed as dist\n\n"

_CARDS = (
    RuleCard(
        code=GATHERS,
        name="gather-base",
        summary="`_all_gather_base` or `_reduce_scatter_base`, deprecated since torch 1.13",
        explanation="""\
Both are deprecated since torch 1.13, which added `all_gather_into_tensor` and `reduce_scatter_tensor` with the same
arguments. The new names are right on every release. torch 2.13 and 2.14 deprecate them in favour of
`all_gather_single` and `reduce_scatter_single`, and 2.15 took that back, so they are never reported.""",
        applicability="safe or manual",
        deprecated="1.13",
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
    RuleCard(
        code=OPERATIONS,
        name="reduce-op",
        summary="`torch.distributed.reduce_op`, a deprecated alias of `ReduceOp`",
        explanation="""\
Every attribute of `reduce_op` gives a warning. `ReduceOp` has the same attributes, on all releases.""",
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
    RuleCard(
        code=RANKS,
        name="get-rank",
        summary="`_get_global_rank` or `_get_group_rank`, public since torch 1.13",
        explanation="""\
torch 1.13 made `get_global_rank` and `get_group_rank` public. The private `_get_global_rank` is deprecated since then,
and `_get_group_rank` was removed. The keyword `rank=` was renamed to `group_rank=` and `global_rank=`.""",
        applicability="safe or manual",
        deprecated="1.13",
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
    RuleCard(
        code=MULTIGPU,
        name="multigpu-collective",
        summary="collectives over several GPUs of one process, such as `all_reduce_multigpu`",
        explanation="""\
Deprecated since torch 1.13 and removed in 2.2. Run one process per GPU, and call the collective with one tensor.""",
        applicability="manual",
        deprecated="1.13",
        removed="2.2",
        flags=(Example(before=_IMPORT + "dist.all_reduce_multigpu([one, two])\n"),),
        leaves=(_IMPORT + "dist.all_reduce(one)\n",),
        url=_URL,
    ),
)

RULES = tuple(
    Rule(
        card,
        (),
        check,
        names=partial(old_names, card.code),
        scope="distributed",
        calls=partial(traced, card.code),
    )
    for card in _CARDS
)

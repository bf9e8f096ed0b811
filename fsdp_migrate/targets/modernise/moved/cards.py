"""The cards of the rules whose names stand in the table of moves."""

from __future__ import annotations

from functools import partial

from fsdp_migrate.rules.card import Example, Rule, RuleCard
from fsdp_migrate.targets.modernise.moved.planner import check
from fsdp_migrate.targets.modernise.moved.rows import (
    COMPOSABLE,
    DEVICE_MESH,
    DTENSOR,
    FLAT_PARAMETER,
    FLATTENED,
    FULLY_SHARD,
    PRIVATE,
    SHARD_PACKAGES,
    TENSOR_PARALLEL,
)
from fsdp_migrate.targets.modernise.moved.table import all_names, traced

_HINT = """

It is a hint if the old place still works on every supported release: it gives no warning, but torch is going to remove
it. `--hints` applies the fix if every supported release has the new place."""
_BOTH = """

If some supported releases have only the old place and others only the new one, the import tries both: `try` the new
place, `except ImportError` the old one. Imports that already do so are left alone."""
_SOURCE = "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/"

_CARDS = (
    RuleCard(
        code=FLAT_PARAMETER,
        name="moved-flat-parameter",
        summary="FlatParameter or a related name imported from a module that some supported torch lacks",
        explanation="""\
FlatParameter was in `flatten_params_wrapper` (torch 1.12) and `flat_param` (1.13 to 2.1), and is in `_flat_param`
since 2.2. The old modules were removed, so the import fails. `torch.distributed.fsdp` has always exported
FlatParameter, and the fix imports it from there. If FSDP301 removes the last use of the name, it removes the import as
well.

`FlatParamHandle`, `HandleShardingStrategy` and other related names have no public place. They are imported from
`_flat_param`, with a fallback to `flat_param` while torch 2.1 is supported. Imports that already try both are left
alone.

It is a hint if every supported release has the private module.""",
        applicability="safe or manual",
        removed="2.2",
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp.flat_param import FlatParameter

def size(param: FlatParameter) -> int:
    return param.numel()
""",
                after="""\
from torch.distributed.fsdp import FlatParameter

def size(param: FlatParameter) -> int:
    return param.numel()
""",
            ),
            Example(
                before="""\
from torch.distributed.fsdp.flat_param import FlatParamHandle

def is_handle(value):
    return isinstance(value, FlatParamHandle)
""",
                after="""\
try:
    from torch.distributed.fsdp._flat_param import FlatParamHandle
except ImportError:
    from torch.distributed.fsdp.flat_param import FlatParamHandle

def is_handle(value):
    return isinstance(value, FlatParamHandle)
""",
            ),
            Example(
                before="""\
from unittest import mock

def patched():
    return mock.patch("torch.distributed.fsdp.flat_param.FlatParamHandle")
""",
                note="a name in a string",
            ),
        ),
        leaves=(
            """\
from torch.distributed.fsdp import FlatParameter

def size(param: FlatParameter) -> int:
    return param.numel()
""",
            """\
try:
    from torch.distributed.fsdp._flat_param import FlatParamHandle
except ImportError:
    from torch.distributed.fsdp.flat_param import FlatParamHandle
""",
            """\
from fairscale.nn.misc.flatten_params_wrapper import FlatParameter
""",
        ),
        url="https://github.com/pytorch/pytorch/blob/v2.2.2/torch/distributed/fsdp/_flat_param.py",
    ),
    RuleCard(
        code=FLATTENED,
        name="moved-fsdp-flattened",
        summary="`_is_fsdp_flattened` or a related name imported from a module that no longer has it",
        explanation="""\
torch 1.13 had `_is_fsdp_flattened`, `_set_fsdp_flattened` and `FSDP_FLATTENED` in `torch.distributed.fsdp._utils`, and
`fully_sharded_data_parallel` imported the first. Since torch 2.0 they are in `_common_utils`. Imports from there are
not reported.""",
        applicability="safe or manual",
        removed="2.0",
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp._utils import _is_fsdp_flattened

def managed(params):
    return [p for p in params if not _is_fsdp_flattened(p)]
""",
                after="""\
from torch.distributed.fsdp._common_utils import _is_fsdp_flattened

def managed(params):
    return [p for p in params if not _is_fsdp_flattened(p)]
""",
            ),
            Example(
                before="""\
from torch.distributed.fsdp._utils import FSDP_FLATTENED, _is_fsdp_flattened

def managed(params):
    return list(filter(_is_fsdp_flattened, params)), FSDP_FLATTENED
""",
                after="""\
from torch.distributed.fsdp._common_utils import FSDP_FLATTENED, _is_fsdp_flattened

def managed(params):
    return list(filter(_is_fsdp_flattened, params)), FSDP_FLATTENED
""",
            ),
        ),
        leaves=(
            """\
from torch.distributed.fsdp._common_utils import _is_fsdp_flattened

def managed(params):
    return [p for p in params if _is_fsdp_flattened(p)]
""",
        ),
        url="https://github.com/pytorch/pytorch/blob/v2.0.0/torch/distributed/fsdp/_common_utils.py",
    ),
    RuleCard(
        code=DTENSOR,
        name="moved-dtensor",
        summary="DTensor and related names imported from `torch.distributed._tensor`, renamed to "
        "`torch.distributed.tensor` in torch 2.5",
        explanation="""\
`torch.distributed._tensor` was renamed to `torch.distributed.tensor` in torch 2.5. The old package still re-exports
its public names and some of its modules. `debug`, `ops`, `random`, `dispatch`, `op_schema`, `redistribute`,
`sharding_prop` and others were removed from it, and so was `placement_types._Partial`. It was renamed to `Partial`,
which takes the name of the reduction instead of a `ReduceOp`."""
        + _BOTH
        + _HINT,
        applicability="safe, unsafe or manual",
        brings=("FSDP600",),  # the old place, now behind `except`, is no longer a special case
        flags=(
            Example(
                before="from torch.distributed._tensor.debug import CommDebugMode\n",
                after="from torch.distributed.tensor.debug import CommDebugMode\n",
                note="on torch>=2.5",
                torch=">=2.5",
            ),
            Example(
                before="""\
from torch.distributed._tensor.placement_types import _Partial

placements = [_Partial()]
""",
                after="""\
try:
    from torch.distributed.tensor import Partial as _Partial
except ImportError:
    from torch.distributed._tensor.placement_types import _Partial

placements = [_Partial()]
""",
            ),
            Example(
                before="from torch.distributed._tensor import DTensor, Shard, distribute_tensor\n",
                after="from torch.distributed.tensor import DTensor, Shard, distribute_tensor\n",
                note="a hint on torch>=2.5",
                torch=">=2.5",
            ),
        ),
        leaves=(
            """\
try:
    from torch.distributed.tensor import DTensor
except ImportError:
    from torch.distributed._tensor import DTensor
""",
        ),
        url=_SOURCE + "_tensor/__init__.py",
    ),
    RuleCard(
        code=FULLY_SHARD,
        name="moved-fully-shard",
        summary="FSDP2 imported from `torch.distributed._composable.fsdp`",
        explanation="""\
`fully_shard`, `FSDPModule` and the policies of FSDP2 were in `torch.distributed._composable.fsdp` from torch 2.3 to
2.5, and are public in `torch.distributed.fsdp` since 2.6. The old package re-exports the public names. Its private
modules were removed, and the class `FSDP` of torch 2.3 was renamed to `FSDPModule`."""
        + _BOTH
        + _HINT,
        applicability="safe, unsafe or manual",
        brings=("FSDP600",),  # the old place, now behind `except`, is no longer a special case
        flags=(
            Example(
                before="from torch.distributed._composable.fsdp._fsdp_api import MixedPrecisionPolicy\n",
                after="""\
try:
    from torch.distributed.fsdp import MixedPrecisionPolicy
except ImportError:
    from torch.distributed._composable.fsdp._fsdp_api import MixedPrecisionPolicy
""",
            ),
            Example(
                before="from torch.distributed._composable.fsdp import fully_shard, MixedPrecisionPolicy\n",
                after="from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy\n",
                note="a hint on torch>=2.6",
                torch=">=2.6",
            ),
            Example(
                before="""\
from torch.distributed._composable.fsdp import FSDP

def is_sharded(module):
    return isinstance(module, FSDP)
""",
                after="""\
from torch.distributed.fsdp import FSDPModule

def is_sharded(module):
    return isinstance(module, FSDPModule)
""",
                torch=">=2.6",
            ),
        ),
        leaves=("from torch.distributed.fsdp import fully_shard\n",),
        url=_SOURCE + "_composable/fsdp/__init__.py",
    ),
    RuleCard(
        code=DEVICE_MESH,
        name="moved-device-mesh",
        summary="`DeviceMesh` and `init_device_mesh` imported from `torch.distributed._tensor`",
        explanation="""\
`DeviceMesh` and `init_device_mesh` are public in `torch.distributed.device_mesh` since torch 2.2. Their former module,
`torch.distributed._tensor.device_mesh`, re-exports them."""
        + _BOTH
        + _HINT,
        applicability="safe, unsafe or manual",
        flags=(
            Example(
                before="from torch.distributed._tensor.device_mesh import DeviceMesh, init_device_mesh\n",
                after="from torch.distributed.device_mesh import DeviceMesh, init_device_mesh\n",
                note="a hint on torch>=2.2",
                torch=">=2.2",
            ),
            Example(
                before="from torch.distributed._tensor.device_mesh import mesh_resources\n",
                note="what the new object is called and can do differs",
            ),
        ),
        leaves=("from torch.distributed import device_mesh\n",),
        url=_SOURCE + "device_mesh.py",
    ),
    RuleCard(
        code=PRIVATE,
        name="renamed-private-name",
        summary="a private name of `torch.distributed.fsdp` that was renamed or moved",
        explanation="""\
torch 2.0 and 2.1 split FSDP into private modules. `clean_tensor_name`, `_get_param_to_unflat_param_names`,
`TrainingState_`, the modules `fsdp.utils` and `fsdp._utils` and other private names moved. A name whose successor does
the same is imported from the new place. For the others the reason names the replacement. Any release may change a
private name again."""
        + _BOTH,
        applicability="safe, unsafe or manual",
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp.fully_sharded_data_parallel import (
    FullyShardedDataParallel as FSDP,
    _get_param_to_unflat_param_names,
)

def names(model: FSDP):
    return _get_param_to_unflat_param_names(model)
""",
                after="""\
from torch.distributed.fsdp._common_utils import _get_param_to_fqns
from torch.distributed.fsdp.fully_sharded_data_parallel import (
    FullyShardedDataParallel as FSDP,
)

def names(model: FSDP):
    return _get_param_to_fqns(model)
""",
            ),
            Example(
                before="from torch.distributed.fsdp._utils import _contains_batchnorm\n",
                note="gone without a successor",
            ),
        ),
        leaves=("from torch.distributed.fsdp._common_utils import clean_tensor_name\n",),
        url=_SOURCE + "fsdp/_common_utils.py",
    ),
    RuleCard(
        code=SHARD_PACKAGES,
        name="moved-shard-package",
        summary="distributed checkpointing imported from `torch.distributed._shard.checkpoint`, renamed to "
        "`torch.distributed.checkpoint` in torch 2.0",
        explanation="""\
`torch.distributed._shard.checkpoint` was renamed to `torch.distributed.checkpoint` in torch 2.0. Importing the old
package gives a DeprecationWarning, which Python hides by default. A module of the old package is a second copy: its
`FileSystemWriter` is not the class of `torch.distributed.checkpoint`, so `isinstance` tests fail. The new import fixes
that, too. `torch.distributed._sharded_tensor` and `_sharding_spec` moved to `torch.distributed._shard`."""
        + _BOTH,
        applicability="safe, unsafe or manual",
        deprecated="2.0",
        flags=(
            Example(
                before="""\
import torch.distributed._shard.checkpoint as dist_cp

def writer(path):
    return dist_cp.FileSystemWriter(path)
""",
                after="""\
import torch.distributed.checkpoint as dist_cp

def writer(path):
    return dist_cp.FileSystemWriter(path)
""",
            ),
            Example(
                before="from torch.distributed._shard.checkpoint.filesystem import FileSystemReader\n",
                after="from torch.distributed.checkpoint.filesystem import FileSystemReader\n",
            ),
        ),
        leaves=("from torch.distributed._shard.sharded_tensor import ShardedTensor\n",),
        url=_SOURCE + "_shard/checkpoint/__init__.py",
    ),
    RuleCard(
        code=COMPOSABLE,
        name="composable-fully-shard",
        summary="`torch.distributed._composable.fully_shard`, the FSDP1 function that torch 2.6 removed",
        explanation="""\
Two functions have the name `fully_shard`. `torch.distributed._composable.fully_shard` applied FSDP1 to a module
without wrapping it. It took a `policy` and a `strategy`, is deprecated since torch 2.3 and was removed in 2.6.
`torch.distributed.fsdp.fully_shard` (until 2.5 in `torch.distributed._composable.fsdp`) is FSDP2: it has other
arguments and shards only the module that it is called on.

Importing one instead of the other may run and shard nothing below the root, so it is not rewritten.
`FullyShardedDataParallel` with the policy as `auto_wrap_policy` and `use_orig_params=True` shards in the same way, but
wraps the module: its class and its parameter names change.""",
        applicability="manual",
        deprecated="2.3",
        removed="2.6",
        flags=(
            Example(
                before="""\
from torch.distributed._composable import fully_shard

def shard(model, policy):
    return fully_shard(model, policy=policy)
""",
                note="another function of the same name",
            ),
        ),
        leaves=(
            "from torch.distributed.fsdp import fully_shard\n",
            "from torch.distributed._composable import replicate\n",
        ),
        url="https://github.com/pytorch/pytorch/pull/141875",
    ),
    RuleCard(
        code=TENSOR_PARALLEL,
        name="removed-tensor-parallel",
        summary="a name of `torch.distributed.tensor.parallel` that torch 2.2 removed",
        explanation="""\
`PairwiseParallel`, the functions `make_input_...` and `make_output_...`, `enable_2d_with_fsdp` and
`TensorParallelMultiheadAttention` belong to the first version of tensor parallelism. Since torch 2.2 a plan assigns
each module a `ColwiseParallel` or a `RowwiseParallel` with its layouts, and FSDP is combined with it through a mesh of
two dimensions.""",
        applicability="manual",
        removed="2.2",
        flags=(
            Example(
                before="from torch.distributed.tensor.parallel import PairwiseParallel, parallelize_module\n",
                note="the plan has to name the layers",
            ),
        ),
        leaves=("from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module\n",),
        url=_SOURCE + "tensor/parallel/style.py",
    ),
)

RULES = tuple(
    Rule(card, (), check, names=partial(all_names, card.code), calls=partial(traced, card.code)) for card in _CARDS
)

"""Programs with one change of torch each, by the entry and the code that tells it, and their torch range."""

from __future__ import annotations

DEFAULT = ">=2.1"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n"
MODEL = FSDP + "model = FSDP(net)\n"
CLASS = "from torch.distributed.fsdp.fully_sharded_data_parallel import "
WRAP = "import functools\nfrom torch.distributed.fsdp.wrap import "
DIST = "import torch.distributed as dist\n"
C10D = "from torch.distributed import distributed_c10d as c10d\n"
STATE_DICT = (
    "import torch\nimport torch.distributed.checkpoint as dcp\nimport torch.distributed.checkpoint.state_dict as sd\n"
)
AMP = "import torch, torch.distributed\n"
CHECKPOINT = "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
FSDP2 = "from torch.distributed.fsdp import UnshardHandle, fully_shard\n"
MESH = "from torch.distributed._tensor import DeviceMesh\nmesh = DeviceMesh('cuda', ranks)\n"

PROGRAMS: dict[tuple[str, str], tuple[str, str]] = {
    # Private names
    ("priv-prefix-strings", "FSDP606"): (DEFAULT, "n = n.replace('_fsdp_wrapped_module._fpw_module.', '')\n"),
    ("priv-prefix-strings", "FSDP604"): (DEFAULT, CLASS + "FPW_MODULE\n"),
    ("priv-clean-tensor-name", "FSDP604"): (DEFAULT, CLASS + "clean_tensor_name\n"),
    ("priv-checkpoint-prefix", "FSDP608"): (
        DEFAULT,
        CHECKPOINT + "_CHECKPOINT_PREFIX\nn = n.replace(_CHECKPOINT_PREFIX + '.', '')\n",
    ),
    ("priv-checkpoint-prefix", "FSDP604"): (DEFAULT, CLASS + "_CHECKPOINT_PREFIX\n"),
    ("priv-module-attr", "FSDP606"): (DEFAULT, MODEL + "x = model._fsdp_wrapped_module._fpw_module\n"),
    ("priv-handles", "FSDP611"): (DEFAULT, MODEL + "for handle in model._handles:\n    pass\n"),
    ("priv-handles", "FSDP604"): (DEFAULT, "from torch.distributed.fsdp._common_utils import _module_handles\n"),
    ("priv-lazy-init", "FSDP611"): (DEFAULT, MODEL + "model._lazy_init()\n"),
    ("priv-training-state", "FSDP604"): (DEFAULT, CLASS + "TrainingState_\nx = TrainingState_.IDLE\n"),
    ("priv-param-names", "FSDP604"): (DEFAULT, CLASS + "_get_param_to_unflat_param_names\n"),
    ("priv-methods-removed-2.0", "FSDP611"): (DEFAULT, MODEL + "model._summon_full_params()\n"),
    ("priv-methods-removed-2.0", "FSDP600"): (DEFAULT, MODEL + "model._write_back_current_shard()\n"),
    ("priv-utils-modules", "FSDP604"): (DEFAULT, "from torch.distributed.fsdp._utils import p_assert\n"),
    ("priv-utils-modules", "FSDP600"): (DEFAULT, "import torch.distributed.fsdp._symbolic_trace as trace\n"),
    ("priv-sync-module-states", "FSDP604"): (
        DEFAULT,
        "from torch.distributed.fsdp._init_utils import _sync_module_states\n",
    ),
    # Wrapping
    ("wrap-policy-param-name", "FSDP401"): (
        DEFAULT,
        FSDP + "def policy(module, recurse, unwrapped_params):\n    return True\nFSDP(m, auto_wrap_policy=policy)\n",
    ),
    ("wrap-default-policy", "FSDP402"): (DEFAULT, WRAP + "default_auto_wrap_policy as policy\n"),
    ("wrap-fsdp-auto-wrap-policy-arg", "FSDP501"): (DEFAULT, FSDP + "FSDP(m, fsdp_auto_wrap_policy=policy)\n"),
    ("wrap-recursive-wrap", "FSDP405"): (DEFAULT, WRAP + "_recursive_wrap\n_recursive_wrap(m, policy, cls)\n"),
    ("wrap-recursive-wrap", "FSDP604"): (DEFAULT, CLASS + "_recursive_wrap\n"),
    ("wrap-or-policy", "FSDP406"): (DEFAULT, CLASS + "_or_policy\n"),
    ("wrap-or-policy", "FSDP407"): (
        DEFAULT,
        WRAP + "ModuleWrapPolicy, _or_policy\nfunctools.partial(_or_policy, policies=[ModuleWrapPolicy({A}), f])\n",
    ),
    ("wrap-or-policy", "FSDP401"): (
        DEFAULT,
        WRAP + "_or_policy\n_or_policy(m, True, unwrapped_params=1, policies=p)\n",
    ),
    ("wrap-policy-classes", "FSDP403"): (DEFAULT, WRAP + "_FSDPPolicy\nclass Mine(_FSDPPolicy):\n    pass\n"),
    ("wrap-policy-classes", "FSDP600"): (">=2.0", WRAP + "CustomPolicy\n"),
    ("wrap-param-exec-order", "FSDP404"): (
        DEFAULT,
        "from torch.distributed.fsdp import ParamExecOrderWrapPolicy as Policy\nPolicy(init_policy=policy)\n",
    ),
    ("wrap-param-exec-order", "FSDP604"): (
        DEFAULT,
        "from torch.distributed.fsdp._symbolic_trace import TracingConfig\n",
    ),
    ("wrap-batchnorm", "FSDP604"): (DEFAULT, WRAP + "_wrap_batchnorm_individually\n"),
    ("wrap-ConfigAutoWrap", "FSDP604"): (DEFAULT, WRAP + "ConfigAutoWrap\n"),
    # The constructor
    ("ctor-positional", "FSDP504"): (
        DEFAULT,
        FSDP + "from torch.distributed.fsdp import CPUOffload\nFSDP(m, group, CPUOffload(True))\n",
    ),
    ("ctor-ignored-parameters", "FSDP502"): (DEFAULT, FSDP + "FSDP(m, ignored_parameters=ps)\n"),
    ("ctor-backward-prefetch-default", "FSDP507"): (">=1.13,<2.1", MODEL),
    ("ctor-limit-all-gathers-default", "FSDP507"): (">=2.0", MODEL),
    ("ctor-no-sharding", "FSDP506"): (DEFAULT, FSDP + "FSDP(m, sharding_strategy=ShardingStrategy.NO_SHARD)\n"),
    ("ctor-hsdp-sync", "FSDP508"): (
        DEFAULT,
        FSDP + "FSDP(m, sharding_strategy=ShardingStrategy.HYBRID_SHARD, sync_module_states=True)\n",
    ),
    ("ctor-device-id", "FSDP500"): (DEFAULT, FSDP + "FSDP(m, device_mesh=mesh)\n"),
    ("mp-fields", "FSDP500"): (
        ">=2.0",
        "from torch.distributed.fsdp import MixedPrecision\nMixedPrecision(_module_classes_to_ignore=())\n",
    ),
    # Methods
    ("clip-grad-norm", "FSDP503"): (
        DEFAULT,
        MODEL + "import torch\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    ),
    ("clip-grad-norm", "FSDP509"): (">=1.12", MODEL + "norm = model.clip_grad_norm_(1.0)\n"),
    ("clip-grad-norm", "FSDP600"): (">=1.11", MODEL + "model.clip_grad_norm_(1.0)\n"),
    ("summon-full-params", "FSDP505"): (DEFAULT, MODEL + "with model.summon_full_params():\n    pass\n"),
    ("summon-full-params", "FSDP500"): (">=1.13", FSDP + "FSDP.summon_full_params(m, with_grads=True)\n"),
    ("comm-hook", "FSDP600"): (">=1.12", MODEL + "model.register_comm_hook(state, hook)\n"),
    ("comm-hook", "FSDP611"): (DEFAULT, MODEL + "hook = model._communication_hook\n"),
    ("named-parameters-names", "FSDP606"): (
        DEFAULT,
        MODEL + "ns = [n.replace('_fsdp_wrapped_module._fpw_module.', '') for n, _ in model.named_parameters()]\n",
    ),
    ("no-sync", "FSDP600"): (">=1.11", MODEL + "with model.no_sync():\n    pass\n"),
    # FSDP2
    ("fs2-import", "FSDP602"): (">=2.6", "from torch.distributed._composable.fsdp import fully_shard\n"),
    ("fs2-import", "FSDP600"): (">=2.5", "from torch.distributed import fsdp\nfsdp.fully_shard(m)\n"),
    ("fs2-FSDP-class", "FSDP602"): (">=2.4", "from torch.distributed._composable.fsdp import FSDP\n"),
    ("fs2-setter-recurse", "FSDP511"): (">=2.6", FSDP2 + "m.set_requires_gradient_sync(True, False)\n"),
    ("fs2-divide-factor", "FSDP510"): (">=2.8", FSDP2 + "m.set_reduce_scatter_divide_factor(2.0)\n"),
    ("fs2-reshard-default", "FSDP512"): (
        ">=2.6",
        FSDP2 + "for layer in m:\n    fully_shard(layer)\nfully_shard(m, reshard_after_forward=True)\n",
    ),
    ("fs2-args-by-version", "FSDP500"): (">=2.6", FSDP2 + "fully_shard(m, ignored_params=ps)\n"),
    ("fs2-args-by-version", "FSDP600"): (">=2.6", FSDP2 + "m.set_all_reduce_hook(hook)\n"),
    ("fs2-args-by-version", "FSDP513"): (">=2.6", FSDP2 + "UnshardHandle(group)\n"),
    ("fs2-param-group-private", "FSDP513"): (">=2.6", FSDP2 + "g = fully_shard.state(m)._fsdp_param_group\n"),
    # The old composable functions
    ("comp-fully-shard", "FSDP607"): (DEFAULT, "from torch.distributed._composable import fully_shard\n"),
    ("comp-replicate", "FSDP500"): (
        ">=2.9",
        "from torch.distributed._composable.replicate_with_fsdp import replicate\nreplicate(m, device_id=0)\n",
    ),
    ("comp-replicate", "FSDP600"): (
        ">=2.6",
        "from torch.distributed._composable.replicate_with_fsdp import replicate\n",
    ),
    ("comp-checkpoint", "FSDP835"): (
        DEFAULT,
        "from torch.distributed._composable import checkpoint\ncheckpoint(m, use_reentrant=False)\n",
    ),
    ("pkg-nightly", "FSDP615"): (DEFAULT, "from torch.distributed._fsdp import FullyShardedDataParallel as FSDP\n"),
    # DTensor
    ("dt-tensor-move", "FSDP601"): (">=2.5", "from torch.distributed._tensor import DTensor\n"),
    ("dt-tensor-move", "FSDP600"): (">=2.4", "import torch.distributed as dist\nx = dist.tensor.DTensor\n"),
    ("dt-partial", "FSDP601"): (">=2.5", "from torch.distributed._tensor.placement_types import _Partial\n"),
    ("dt-partial", "FSDP612"): (
        ">=2.5",
        DIST + "from torch.distributed.tensor import Partial\nPartial(dist.ReduceOp.MAX)\n",
    ),
    ("dt-device-mesh", "FSDP603"): (">=2.2", "from torch.distributed._tensor.device_mesh import DeviceMesh\n"),
    ("dt-device-mesh", "FSDP600"): (">=2.2", MESH + "mesh.get_coordinate_on_dim(0)\n"),
    ("dt-device-mesh", "FSDP614"): (">=2.2", MESH + "mesh.get_dim_groups()\n"),
    ("dt-device-mesh", "FSDP500"): (">=2.2", MESH + "mesh.size(dim=0)\n"),
    ("dt-device-mesh", "FSDP610"): (
        ">=2.5",
        "from torch.distributed.device_mesh import _mesh_resources\n_mesh_resources.get_root_mesh(mesh)\n",
    ),
    ("dt-distribute-module-fns", "FSDP613"): (
        ">=2.5",
        "from torch.distributed.tensor import distribute_module\ndistribute_module(m, d, None, lambda i, d: i)\n",
    ),
    ("tp-styles", "FSDP609"): (DEFAULT, "from torch.distributed.tensor.parallel import PairwiseParallel\n"),
    ("tp-styles", "FSDP600"): (">=2.2", "from torch.distributed.tensor.parallel import SequenceParallel\n"),
    ("tp-styles", "FSDP500"): (
        ">=2.2",
        "from torch.distributed.tensor.parallel import parallelize_module as apply\napply(m, d, p, tp_mesh_dim=1)\n",
    ),
    # Checkpointing
    ("dcp-save-load", "FSDP702"): (
        ">=2.2",
        "import torch.distributed.checkpoint as dcp\ndcp.save(state, writer)\n",
    ),
    ("dcp-save-load", "FSDP703"): (
        ">=2.2",
        "import torch.distributed.checkpoint as dcp\ndcp.save_state_dict(state, writer)\n",
    ),
    ("dcp-storage-abstract", "FSDP701"): (
        DEFAULT,
        "from torch.distributed.checkpoint import StorageReader\nclass Reader(StorageReader): ...\n",
    ),
    ("dcp-shard-checkpoint", "FSDP605"): (
        DEFAULT,
        "from torch.distributed._shard.checkpoint import FileSystemReader\n",
    ),
    ("ckptw-module", "FSDP833"): (
        DEFAULT,
        "from torch.distributed.algorithms._checkpoint._checkpoint_wrapper import checkpoint_wrapper\n",
    ),
    ("ckptw-offload", "FSDP831"): (
        DEFAULT,
        CHECKPOINT + "checkpoint_wrapper\ncheckpoint_wrapper(m, offload_to_cpu=True)\n",
    ),
    ("ckptw-impl-default", "FSDP836"): (DEFAULT, CHECKPOINT + "checkpoint_wrapper\ncheckpoint_wrapper(m)\n"),
    ("ckptw-apply", "FSDP832"): (
        DEFAULT,
        CHECKPOINT + "apply_activation_checkpointing_wrapper as apply\napply(m, checkpoint_wrapper_fn=f)\n",
    ),
    ("ckpt-use-reentrant", "FSDP834"): (
        DEFAULT,
        DIST + "from torch.utils.checkpoint import checkpoint\ncheckpoint(f, x)\n",
    ),
    # Collectives
    ("c10d-gather-base", "FSDP811"): (DEFAULT, DIST + "dist._all_gather_base(a, b)\n"),
    ("c10d-into-tensor", "FSDP610"): (">=2.13,<2.15", DIST + "dist.all_gather_into_tensor(a, b)\n"),
    ("c10d-reduce-op", "FSDP812"): (DEFAULT, DIST + "x = dist.reduce_op.SUM\n"),
    ("c10d-get-rank", "FSDP813"): (DEFAULT, C10D + "c10d._get_global_rank(g, 0)\n"),
    ("c10d-misc", "FSDP520"): (
        DEFAULT,
        "import torch.distributed._functional_collectives as funcol\nfuncol.all_reduce(x, 'sum', group=list(ranks))\n",
    ),
    ("dcp-state-dict-parts", "FSDP520"): (
        DEFAULT,
        "from torch.distributed.checkpoint.state_dict import get_model_state_dict as get\nget(m, submodules={m.a})\n",
    ),
    ("c10d-misc", "FSDP814"): (DEFAULT, DIST + "dist.all_reduce_multigpu([t])\n"),
    ("c10d-misc", "FSDP815"): (
        DEFAULT,
        DIST + "from torch.nn.parallel import DistributedDataParallel as DDP\nDDP(m, check_reduction=True)\n",
    ),
    ("c10d-misc", "FSDP610"): (">=2.3", C10D + "c10d._set_pg_timeout(t)\n"),
    ("c10d-misc", "FSDP600"): (DEFAULT, C10D + "c10d._check_for_nccl_backend(g)\n"),
    ("dsd-full-load-missing-keys", "FSDP711"): (
        DEFAULT,
        STATE_DICT + "sd.set_model_state_dict(m, full, options=sd.StateDictOptions(full_state_dict=True))\n",
    ),
    ("dcp-async-stager", "FSDP716"): (
        DEFAULT,
        STATE_DICT + MODEL + "dcp.async_save({'m': sd.get_model_state_dict(model)}, checkpoint_id='f')\n",
    ),
    ("dcp-save-load", "FSDP718"): (
        DEFAULT,
        STATE_DICT + "s = torch.optim.lr_scheduler.StepLR(o, 1)\ndcp.save({'s': s}, storage_writer=w)\n"
        "dcp.load_state_dict({'s': s}, r)\n",
    ),
    ("dcp-adamw-groups", "FSDP715"): (
        DEFAULT,
        STATE_DICT
        + "o = torch.optim.AdamW(ps)\ndcp.load({'o': sd.get_optimizer_state_dict(m, o)}, checkpoint_id='f')\n",
    ),
    ("fs2-reduce-dtype", "FSDP907"): (
        DEFAULT,
        "from torch.distributed.fsdp import MixedPrecisionPolicy\nMixedPrecisionPolicy(param_dtype=d)\n",
    ),
    # Launching
    ("launch-module", "FSDP822"): (DEFAULT, "import torch.distributed.launch as launch\n"),
    ("launch-local-rank", "FSDP821"): (
        DEFAULT,
        DIST + "import argparse\np = argparse.ArgumentParser()\np.add_argument('--local_rank', type=int)\n",
    ),
    # Precision
    ("amp-autocast", "FSDP801"): (DEFAULT, AMP + "with torch.cuda.amp.autocast():\n    pass\n"),
    ("amp-gradscaler", "FSDP802"): (DEFAULT, AMP + "scaler = torch.cuda.amp.GradScaler()\n"),
    ("amp-autocast-state", "FSDP805"): (DEFAULT, AMP + "x = torch.get_autocast_gpu_dtype()\n"),
    ("amp-custom-fwd", "FSDP803"): (DEFAULT, AMP + "@torch.cuda.amp.custom_fwd\ndef f(ctx):\n    pass\n"),
    ("amp-custom-fwd", "FSDP610"): (DEFAULT, AMP + "torch.cuda.amp.autocast_mode._cast(x, d)\n"),
    ("amp-sharded-scaler", "FSDP804"): (
        DEFAULT,
        "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\nShardedGradScaler(1024.0)\n",
    ),
    ("amp-sharded-scaler", "FSDP802"): (DEFAULT, AMP + "x = isinstance(s, torch.cuda.amp.GradScaler)\n"),
    # Loading
    ("load-weights-only", "FSDP841"): (DEFAULT, FSDP + "import torch\ntorch.load('f')\n"),
    ("optim-scripted", "FSDP610"): (
        DEFAULT,
        "from torch.distributed.optim import _FunctionalAdam\n_FunctionalAdam(ps)\n",
    ),
    ("optim-scripted", "FSDP600"): (DEFAULT, "from torch.distributed.optim.optimizer import _ScriptLocalOptimizer\n"),
}

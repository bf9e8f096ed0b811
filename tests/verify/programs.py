"""Pairs of programs that the harness must not let pass, and what it has to say about each."""

from __future__ import annotations

from dataclasses import dataclass

IMPORTS = """
import os, signal, sys, time
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""

TRAINED = """
    model = trial.model()
    optim = trial.optimizer(model)
    trial.train(model, optim, 2)
"""

RANK0 = """FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    )"""

SAVE_OLD = TRAINED + "    trial.observe('osd', FSDP.full_optim_state_dict(model, optim))\n"
SAVE_NEW = TRAINED + f"    with {RANK0}:\n        trial.observe('osd', FSDP.optim_state_dict(model, optim))\n"

LOAD = TRAINED + (
    f"    with {RANK0}:\n        osd = FSDP.optim_state_dict(model, optim)\n"
    "    resumed = trial.model()\n    fresh = trial.optimizer(resumed)\n"
)
LOADED = "    fresh.load_state_dict(loadable)\n    trial.train(resumed, fresh, 3)\n"
LOAD_OLD = LOAD + "    loadable = FSDP.scatter_full_optim_state_dict(osd, resumed, optim=fresh)\n" + LOADED

# Sharded state under the current API on both sides, beside a legacy call that is migrated.
SHARDED_NEW = (
    "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
    "        sharded = FSDP.optim_state_dict(model, optim)\n"
)
TRAINED_ON_MESH = """
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh(trial.device.type, (trial.world_size,))
    model = trial.model(device_mesh=mesh)
    optim = trial.optimizer(model)
    trial.train(model, optim, 2)
"""
DOUBLED = "    for s in sharded['state'].values(): local(s['exp_avg']).mul_(2)\n"
SHARDED_LOCAL = "    local = lambda value: value.local_shards()[0].tensor if value.local_shards() else torch.zeros(1)\n"
MESH_LOCAL = "    local = lambda value: value.to_local()\n"
SEEN_SHARDED = "    trial.observe('sharded', sharded)\n"

WARNS = "    FSDP.full_optim_state_dict(model, optim)\n"
PLAIN_OLD = TRAINED + WARNS


@dataclass(frozen=True)
class Caught:
    """A pair, the verdict it has to get, and a pattern that the detail has to match."""

    name: str
    before: str
    after: str
    verdict: str
    message: str
    expect: str = "same"
    evidence: str = 'warning "full_optim_state_dict"'

    def files(self) -> dict[str, str]:
        """The two programs as files."""
        header = f"# fixture: FSDP101\n# expect: {self.expect}\n# evidence: {self.evidence}\n"
        return {
            f"{side}.py": f"{header}{IMPORTS}\ndef scenario(trial):{body}"
            for side, body in (("before", self.before), ("after", self.after))
        }


DIFFERENT = [
    Caught(
        "bare-rename",
        SAVE_OLD,
        TRAINED + "    trial.observe('osd', FSDP.optim_state_dict(model, optim))\n",
        "DIFFERS",
        r"rank 1, osd: \{\} -> dict with keys 'state', 'param_groups'",
    ),
    Caught(
        "model-config-only",
        SAVE_OLD,
        TRAINED
        + "    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)\n"
        + "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):\n"
        + "        trial.observe('osd', FSDP.optim_state_dict(model, optim))\n",
        "DIFFERS",
        r"rank 1, osd: \{\} -> dict with keys",
    ),
    Caught(
        "sharded-context-leaks-in",
        TRAINED
        + "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        + "        trial.observe('osd', FSDP.full_optim_state_dict(model, optim, rank0_only=False))\n",
        TRAINED
        + "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        + "        trial.observe('osd', FSDP.optim_state_dict(model, optim))\n",
        "DIFFERS",
        r"osd\['state'\]\['embed.weight'\]\['exp_avg'\]: Tensor float32\[13, 7\] -> ShardedTensor",
    ),
    Caught(
        "offload-dropped",
        SAVE_OLD,
        SAVE_NEW.replace("offload_to_cpu=True", "offload_to_cpu=False"),
        "DIFFERS",
        r"what torch was asked for: .*cpu_offload=True.* -> .*cpu_offload=False",
    ),
    Caught(
        "order-of-keys",
        PLAIN_OLD + "    trial.observe('config', {'a': 1, 'b': 2})\n",
        TRAINED + "    trial.observe('config', {'b': 2, 'a': 1})\n",
        "DIFFERS",
        r"order of keys of config: 'a', 'b' -> 'b', 'a'",
    ),
    Caught(
        "not-observed",
        PLAIN_OLD + "    trial.observe('step', 2)\n",
        TRAINED,
        "DIFFERS",
        r"step: 2 -> \(not observed\)",
    ),
    Caught(
        "state-aliased-after-the-snapshot",
        PLAIN_OLD + "    x = torch.zeros(3)\n    trial.observe('x', x)\n    x += 1\n",
        TRAINED + "    trial.observe('x', torch.ones(3))\n",
        "DIFFERS",
        r"x element 0: 0\.0 -> 1\.0",
    ),
    Caught(
        "last-bit",
        PLAIN_OLD + "    trial.observe('x', torch.tensor([0.0, 1.0]))\n",
        TRAINED + "    trial.observe('x', torch.tensor([-0.0, 1.0]))\n",
        "DIFFERS",
        r"x element 0: 0\.0 -> -0\.0",
    ),
    Caught(
        "both-wrong",
        LOAD_OLD.replace(
            "    fresh.load", "    for s in loadable['state'].values(): s['exp_avg'].mul_(0.5)\n    fresh.load"
        ),
        LOAD
        + f"    with {RANK0.replace('model,', 'resumed,')}:\n"
        + "        loadable = FSDP.optim_state_dict_to_load(model=resumed, optim=fresh, optim_state_dict=osd)\n"
        + "    for s in loadable['state'].values(): s['exp_avg'].mul_(0.5)\n"
        + LOADED,
        "DIFFERS",
        r"after.py, rank \d: optimizer state before train 2 differs by .* from every state of the single-process run",
    ),
    Caught(
        "no-legacy-api",
        SAVE_NEW,
        SAVE_NEW,
        "NO EVIDENCE",
        r'before.py never showed a warning with "full_optim_state_dict"; it gave no deprecation warning',
    ),
    Caught(
        "no-legacy-call",
        SAVE_NEW,
        SAVE_NEW,
        "NO EVIDENCE",
        r"never showed a call of torch.distributed.fsdp.FullyShardedDataParallel.full_optim_state_dict",
        evidence="call torch.distributed.fsdp.FullyShardedDataParallel.full_optim_state_dict",
    ),
    Caught(
        "still-legacy",
        SAVE_OLD,
        SAVE_OLD,
        "STILL LEGACY",
        r'after.py still shows a warning with "full_optim_state_dict"',
    ),
    Caught(
        "declared-but-the-same",
        SAVE_OLD,
        SAVE_NEW,
        "NOT AS DECLARED",
        r"rank 0: 'osd' should differ here, but does not",
        expect="differs osd",
    ),
    Caught(
        "differs-elsewhere-too",
        SAVE_OLD + "    trial.observe('step', 2)\n",
        SAVE_NEW + "    trial.observe('step', 3)\n",
        "DIFFERS",
        r"step: 2 -> 3",
        expect="differs osd when rank=7",
    ),
    Caught(
        "fails-otherwise",
        TRAINED + "    raise KeyError('x')\n",
        SAVE_NEW,
        "NOT AS DECLARED",
        r"before.py should raise TypeError, but rank \d raised KeyError: 'x'",
        expect="before-fails TypeError",
        evidence="raises",
    ),
    Caught(
        "does-not-fail",
        SAVE_NEW,
        SAVE_NEW,
        "NOT AS DECLARED",
        r"before.py should raise TypeError, but did not on rank 0",
        expect="before-fails TypeError",
        evidence="raises",
    ),
]

FAILING = [
    Caught(
        "order-of-2-0",
        LOAD_OLD,
        LOAD + "    loadable = FSDP.optim_state_dict_to_load(osd, resumed, fresh)\n" + LOADED,
        "ERROR",
        r"after.py: every rank raised TypeError: unhashable type",
    ),
    Caught(
        "empty-on-other-ranks",
        LOAD_OLD,
        LOAD
        + "    loadable = FSDP.optim_state_dict_to_load(model=resumed, optim=fresh, optim_state_dict=osd)\n"
        + LOADED,
        "DESYNC",
        r'after.py: rank 1 raised ValueError: .*must have the keys "state"',
    ),
    Caught(
        "one-rank-raises",
        SAVE_OLD,
        TRAINED + "    if trial.rank == 1: raise ValueError('boom')\n    dist.barrier()\n",
        "DESYNC",
        r"after.py: rank 1 raised ValueError: boom; rank 0 raised",
    ),
    Caught(
        "one-rank-raises-at-the-end",
        SAVE_OLD,
        SAVE_NEW + "    if trial.rank == 1: raise ValueError('boom')\n",
        "DESYNC",
        r"after.py: rank 1 raised ValueError: boom; rank 0 succeeded",
    ),
    Caught(
        "segfault",
        SAVE_OLD,
        TRAINED + "    if trial.rank == 1: os.kill(os.getpid(), signal.SIGSEGV)\n    dist.barrier()\n",
        "CRASH",
        r"after.py: rank 1 was ended by SIGSEGV",
    ),
    Caught(
        "ends-the-process",
        SAVE_OLD,
        TRAINED + "    if trial.rank == 0: os._exit(0)\n    dist.barrier()\n",
        "CRASH",
        r"after.py: rank 0 ended its process with exit code 0",
    ),
    Caught(
        "exits",
        SAVE_OLD,
        TRAINED + "    sys.exit(0)\n",
        "ERROR",
        r"after.py: every rank raised SystemExit: 0",
    ),
    Caught(
        "no-scenario",
        SAVE_OLD,
        TRAINED + "\ndel scenario\n",
        "ERROR",
        r"after.py: every rank raised AttributeError: .*after.py has no function scenario\(trial\)",
    ),
]

# These wait for a timeout, so they get a short one.
HANGING = [
    Caught(
        "mismatched-collectives",
        SAVE_OLD,
        TRAINED
        + "    x = torch.ones(3)\n"
        + "    dist.all_reduce(x) if trial.rank else dist.all_gather([x.clone(), x.clone()], x)\n",
        "ERROR",
        r"Detected mismatch between collectives",
    ),
    Caught(
        "never-joins",
        SAVE_OLD,
        TRAINED + "    if trial.rank == 1: time.sleep(1000)\n    dist.barrier()\n",
        "HANG",
        r'(?s)after.py: rank 1 did not finish; rank 0 raised .*rank 1:\n.*after.py", line \d+ in scenario',
    ),
    Caught(
        "leaves-early",
        SAVE_OLD,
        TRAINED + "    if trial.rank == 0: dist.barrier()\n",
        "DESYNC",
        r"after.py: rank 0 raised .*; rank 1 succeeded",
    ),
    Caught(
        "every-rank-sleeps",
        SAVE_OLD,
        TRAINED + "    time.sleep(1000)\n",
        "HANG",
        r"(?s)after.py: rank 0, 1 did not finish\n.*in scenario",
    ),
]


def _sharded(trained: str, wrong: str) -> tuple[str, str]:
    rest = SHARDED_NEW + wrong + SEEN_SHARDED
    return tuple(save.replace(TRAINED, trained) + rest for save in (SAVE_OLD, SAVE_NEW))  # type: ignore[return-value]


DIFFERENT += [
    Caught(
        name,
        *_sharded(trained, local + DOUBLED),
        "DIFFERS",
        r"after.py, rank \d: sharded differs by .* from every state of the single-process run",
    )
    for name, trained, local in (
        ("both-wrong-sharded", TRAINED, SHARDED_LOCAL),
        ("both-wrong-on-a-mesh", TRAINED_ON_MESH, MESH_LOCAL),
    )
]

ALIKE = [
    Caught("right-sharded", *_sharded(TRAINED, ""), "SAME", r"^$"),
    Caught("right-on-a-mesh", *_sharded(TRAINED_ON_MESH, ""), "SAME", r"^$"),
]

# The last of every launch: what came before it must not have taken it along.
FINE = Caught("zz-fine", SAVE_OLD, SAVE_NEW, "SAME", r"^$")

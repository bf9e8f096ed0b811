"""Calls of FSDP1's class that are written out become calls of `fully_shard`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.targets.fsdp2.conversion import Options
from tests.targets.fsdp2.building import FILE, converted, facts_of, project_of, rewritten, texts

IMPORTS = """\
import functools
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy, _or_policy
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy, transformer_auto_wrap_policy


"""
LOOP = "for module in reversed(list(model.modules())):  # children before their parents\n"
UNUSED = Options(all_parameters_used=True)
DEFAULT = Options()
NEVER = Options(helper="never", all_parameters_used=True)


def body(text: str) -> str:
    """What is left of a program behind its imports and the two empty lines."""
    return text.partition("\n\n\n")[2]


def new(text: str, torch: str = ">=2.6", options: Options = UNUSED) -> str:
    """What becomes of statements."""
    return body(rewritten(IMPORTS + text, torch, options))


def only_wall(text: str, torch: str = ">=2.6", options: Options = NEVER) -> tuple[str, str]:
    """Why some statements are not converted, and what to do."""
    (wall,) = converted({FILE: facts_of(IMPORTS + text, torch)}, options).walls
    return wall.reason, wall.step


def only_walls(text: str) -> list[tuple[str, str]]:
    """Why the constructions of a program are not converted."""
    return [(wall.reason, wall.step) for wall in converted({FILE: facts_of(IMPORTS + text)}).walls]


def differences(text: str, torch: str = ">=2.6", options: Options = DEFAULT) -> list[str]:
    """What differs."""
    conversion = converted({FILE: facts_of(IMPORTS + text, torch)}, options)
    assert conversion.walls == []
    return [one.what for one in conversion.differences]


# --- where the call stands


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model = FSDP(model)\n", "fully_shard(model)\n"),
        ("model = FSDP(module=model)\n", "fully_shard(model)\n"),
        ("model: FSDP = FSDP(model)\n", "fully_shard(model)\n"),
        ("FSDP(model)\n", "fully_shard(model)\n"),
        ("net = FSDP(model)\n", "fully_shard(model)\nnet = model\n"),
        ("self.net = FSDP(self.plain)\n", "fully_shard(self.plain)\nself.net = self.plain\n"),
        ("model = FSDP(Net(4))\n", "model = Net(4)\nfully_shard(model)\n"),
        ("self.net = FSDP(Net(4))\n", "self.net = Net(4)\nfully_shard(self.net)\n"),
        ("model = FSDP(model).cuda()\n", "fully_shard(model)\nmodel = model.cuda()\n"),
        ("model = FSDP(Net()).cuda()\n", "model_2 = Net()\nfully_shard(model_2)\nmodel = model_2.cuda()\n"),
        ("if on: model = FSDP(model)\n", "if on:\n    fully_shard(model)\n"),
        ("a = 1; model = FSDP(model)\n", "a = 1\nfully_shard(model)\n"),
        ("run(model=FSDP(model))\n", "fully_shard(model)\nrun(model=model)\n"),
        ("model = FSDP(model) if on else model\n", "model = fully_shard(model) if on else model\n"),
        ("parts = [FSDP(one) for one in parts]\n", "parts = [fully_shard(one) for one in parts]\n"),
        ("one, two = FSDP(a), FSDP(b)\n", "fully_shard(a)\none, two = a, fully_shard(b)\n"),
        ("wrap = lambda m: FSDP(m)\n", "wrap = lambda m: fully_shard(m)\n"),
        ("def f(m):\n    return FSDP(m)\n", "def f(m):\n    fully_shard(m)\n    return m\n"),
        (
            "def f():\n    return FSDP(Net())\n",
            "def f():\n    model = Net()\n    fully_shard(model)\n    return model\n",
        ),
        (
            "for i, layer in enumerate(model.layers):\n    model.layers[i] = FSDP(layer)\n",
            "for i, layer in enumerate(model.layers):\n    fully_shard(layer)\n",
        ),
        (
            "for i, layer in enumerate(model.layers):\n    model.others[i] = FSDP(layer)\n",
            "for i, layer in enumerate(model.layers):\n    fully_shard(layer)\n    model.others[i] = layer\n",
        ),
    ],
)
def test_a_model_is_sharded_in_place_before_its_statement(before: str, after: str) -> None:
    assert new(before) == after


def test_what_is_made_in_the_call_moves_to_the_left() -> None:
    text = "model = FSDP(\n    Stack(\n        4,\n    ),\n    use_orig_params=True,\n)\n"
    assert new(text) == "model = Stack(\n    4,\n)\nfully_shard(model)\n"


def test_what_needs_the_brackets_of_the_call_keeps_some() -> None:
    text = "model = FSDP(\n    Stack()\n    .cuda(),\n    use_orig_params=True,\n)\n"
    assert new(text) == "model = (Stack()\n    .cuda())\nfully_shard(model)\n"


def test_a_class_of_its_own_is_a_wall() -> None:
    reason, _ = only_wall("class Mine(FSDP):\n    pass\n\n\nmodel = Mine(model)\n", options=Options())
    assert reason == "`Mine` is not FSDP's class itself"


def test_comments_in_the_call_stay_in_front() -> None:
    text = "model = FSDP(  # sharded\n    model,\n    use_orig_params=True,  # for compile\n)  # done\n"
    assert new(text) == "# sharded\n# for compile\nfully_shard(model)  # done\n"


def test_inner_calls_are_made_first() -> None:
    assert (
        new("model.head = FSDP(model.head)\nmodel = FSDP(model)\n") == "fully_shard(model.head)\nfully_shard(model)\n"
    )


def test_a_call_inside_another_is_a_wall() -> None:
    conversion = converted({FILE: facts_of(IMPORTS + "model = FSDP(Net(FSDP(head)))\n")})
    assert conversion.walls[0].reason == "it is built inside another call of FSDP"


# --- what is wrapped


@pytest.mark.parametrize(
    ("policy", "test"),
    [
        ("ModuleWrapPolicy({A})", "isinstance(module, A)"),
        ("ModuleWrapPolicy([A, nn.Linear])", "isinstance(module, (A, nn.Linear))"),
        ("ModuleWrapPolicy(module_classes={module.A})", "isinstance(submodule, module.A)"),
        (
            "functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={A, B})",
            "isinstance(module, (A, B))",
        ),
        ("CustomPolicy(lambda m: isinstance(m, A) and m.big > 3)", "isinstance(module, A) and module.big > 3"),
        ("CustomPolicy(lambda m: m is head or m is tail)", "(module is head or module is tail)"),
        ("functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in parts)", "module in parts"),
        ("functools.partial(lambda_auto_wrap_policy, lambda_fn=chosen)", "chosen(module)"),
        (
            "functools.partial(_or_policy, policies=[ModuleWrapPolicy({A}), CustomPolicy(lambda m: m.big > 3)])",
            "(isinstance(module, A) or module.big > 3)",
        ),
    ],
)
def test_a_policy_becomes_the_test_of_a_loop(policy: str, test: str) -> None:
    loop = f"{LOOP}    if module is not model and {test}:\n        fully_shard(module)\nfully_shard(model)\n"
    if "submodule" in test:  # the name is taken
        loop = loop.replace("for module", "for submodule").replace("if module", "if submodule")
        loop = loop.replace("shard(module", "shard(submodule")
    assert new(f"model = FSDP(model, auto_wrap_policy={policy})\n") == loop
    assert new(f"policy = {policy}\nmodel = FSDP(model, auto_wrap_policy=policy)\n") == loop


def test_a_policy_that_something_else_reads_stays() -> None:
    text = new("policy = ModuleWrapPolicy({A})\nprint(policy)\nmodel = FSDP(model, auto_wrap_policy=policy)\n")
    assert text.startswith("policy = ModuleWrapPolicy({A})\nprint(policy)\nfor module in")


def test_a_policy_may_ask_for_parts_of_the_model() -> None:
    text = "policy = CustomPolicy(lambda m: m in list(model.layers))\nmodel = FSDP(model, auto_wrap_policy=policy)\n"
    test = "if module is not model and module in list(model.layers):"
    assert new(f"model = Net()\n{text}").splitlines()[2].strip() == test


def test_imports_go_with_what_needed_them() -> None:
    text = rewritten(IMPORTS + "policy = ModuleWrapPolicy({A})\nmodel = FSDP(model, auto_wrap_policy=policy)\n")
    assert "ModuleWrapPolicy" not in text
    assert "FullyShardedDataParallel" not in text
    assert "lambda_auto_wrap_policy" in text  # which nothing uses, as before


@pytest.mark.parametrize(
    "policy",
    [
        "CustomPolicy(lambda m: {'sharding_strategy': x} if m is head else False)",
        "CustomPolicy(chosen)",
        "functools.partial(size_based_auto_wrap_policy, min_num_params=100)",
        "make_policy()",
        "ModuleWrapPolicy(find_classes(model))",
        "ModuleWrapPolicy(classes)",
        "ModuleWrapPolicy({A, nn.ModuleList})",
        "policies[name]",
    ],
)
def test_other_policies_are_for_the_generated_module(policy: str) -> None:
    line = f"model = FSDP(model, auto_wrap_policy={policy})\n"
    assert new(line) == line.replace("FSDP", "shard")
    assert "is only known at run time" in only_wall(line)[0]


def test_a_name_that_is_bound_anew_in_between_is_not_followed() -> None:
    text = "kind = A\npolicy = ModuleWrapPolicy({kind})\nkind = B\nmodel = FSDP(model, auto_wrap_policy=policy)\n"
    assert "shard(model, auto_wrap_policy=policy)" in new(text)


# --- strategies, meshes, devices


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ("", ""),
        ("sharding_strategy=None", ""),
        ("sharding_strategy=ShardingStrategy.FULL_SHARD", ""),
        ("sharding_strategy=ShardingStrategy['FULL_SHARD']", ""),
        ("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", "reshard_after_forward=False"),
        ("device_mesh=mesh", "mesh=mesh"),
        ("device_mesh=mesh['dp']", "mesh=mesh['dp']"),
        ("process_group=None, ignored_modules=None, ignored_states=None, param_init_fn=None", ""),
        ("cpu_offload=None", ""),
        ("cpu_offload=CPUOffload(offload_params=False)", ""),
        ("cpu_offload=CPUOffload()", ""),
        ("sync_module_states=False", ""),
        ("mixed_precision=None", ""),
        ("backward_prefetch=BackwardPrefetch.BACKWARD_POST, forward_prefetch=True", ""),
        ("limit_all_gathers=flag, use_orig_params=flag", ""),
        ("device_id=torch.cuda.current_device()", ""),
        ("device_id=torch.device('cuda', torch.cuda.current_device())", ""),
        ("device_id=torch.device('cuda')", ""),
        ("device_id=torch.cuda.current_device() if gpu else torch.device('cpu')", ""),
        ("None, ShardingStrategy.SHARD_GRAD_OP", "reshard_after_forward=False"),
    ],
)
def test_arguments(arguments: str, keywords: str) -> None:
    expected = ", ".join(["model", *([keywords] if keywords else [])])
    assert new(f"model = FSDP(model, {arguments})\n") == f"fully_shard({expected})\n"


MESH = "mesh = init_device_mesh('cuda', (2, 4), mesh_dim_names=('replicate', 'shard'))\n"


@pytest.mark.parametrize(
    ("strategy", "keywords"),
    [("HYBRID_SHARD", "mesh=mesh"), ("_HYBRID_SHARD_ZERO2", "mesh=mesh, reshard_after_forward=False")],
)
def test_hybrid_strategies_on_a_mesh_with_names(strategy: str, keywords: str) -> None:
    program = "from torch.distributed.device_mesh import init_device_mesh\n" + IMPORTS
    call = f"model = FSDP(model, device_mesh=mesh, sharding_strategy=ShardingStrategy.{strategy})\n"
    assert body(rewritten(program + MESH + call)) == f"{MESH}fully_shard(model, {keywords})\n"
    unnamed = MESH.replace(", mesh_dim_names=('replicate', 'shard')", "")
    assert body(rewritten(program + unnamed + call)) == unnamed + call.replace("FSDP", "shard")


@pytest.mark.parametrize(
    "argument",
    [
        "sharding_strategy=ShardingStrategy.NO_SHARD",
        "sharding_strategy=ShardingStrategy.HYBRID_SHARD",
        "sharding_strategy=strategies[name]",
        "process_group=group",
        "sync_module_states=True",
        "param_init_fn=init",
        "device_id=rank",
        "device_mesh=make_mesh()",
        "mixed_precision=precisions.get(name)",
    ],
)
def test_what_takes_more_than_arguments_goes_to_the_generated_module(argument: str) -> None:
    line = f"model = FSDP(model, {argument})\n"
    assert new(line) == line.replace("FSDP", "shard")
    reason, step = only_wall(line)
    assert reason.endswith("is only known at run time")
    assert step == "write it out in the call, or allow `--fsdp2-helper auto`"


def test_the_device_goes_where_it_is_set_before() -> None:
    for before in ("torch.cuda.set_device(rank)\n", "if torch.cuda.is_available():\n    torch.cuda.set_device(rank)\n"):
        assert new(f"{before}model = FSDP(model, device_id=rank)\n") == f"{before}fully_shard(model)\n"
    late = "model = FSDP(model, device_id=rank)\ntorch.cuda.set_device(rank)\n"
    assert new(late).startswith("model = shard(model, device_id=rank)\n")


def test_the_device_may_be_set_by_a_caller() -> None:
    text = (
        "def build(model, rank):\n    model = FSDP(model, device_id=rank)\n    return model\n\n\n"
        "def setup(rank):\n    dist.init_process_group()\n    torch.cuda.set_device(rank)\n\n\n"
        "def main(rank):\n    setup(rank)\n    build(Net(), rank)\n"
    )
    assert new(text).startswith("def build(model, rank):\n    fully_shard(model)\n")
    other = "\n\ndef debug():\n    build(Net(), 0)\n"
    assert new(text + other).startswith("def build(model, rank):\n    model = shard(model, device_id=rank)\n")


def test_on_the_cpu_the_mesh_says_so() -> None:
    text = rewritten(f"{IMPORTS}model = FSDP(model, device_id=torch.device('cpu'))\n")
    assert body(text) == 'mesh = init_device_mesh("cpu", (get_world_size(),))\nfully_shard(model, mesh=mesh)\n'
    assert "from torch.distributed.device_mesh import init_device_mesh\n" in text


def test_offloading_differs() -> None:
    text = "model = FSDP(model, cpu_offload=CPUOffload(offload_params=True))\n"
    modules = {FILE: facts_of(IMPORTS + text)}
    conversion = converted(modules)
    assert [one.what for one in conversion.differences] == [
        "parameters on the CPU: gradients are clipped there, and buffers stay on the device"
    ]
    assert body(texts(modules, conversion)[FILE]) == "fully_shard(model, offload_policy=CPUOffloadPolicy())\n"


def test_an_argument_with_an_effect_is_not_dropped() -> None:
    assert new("model = FSDP(model, use_orig_params=ask())\n") == "model = shard(model, use_orig_params=ask())\n"


@pytest.mark.parametrize("meta", ["with torch.device('meta'):\n    model = Net()\n", 'model = Net(device="meta")\n'])
def test_a_model_that_may_be_without_values_is_for_the_generated_module(meta: str) -> None:
    assert new(f"{meta}model = FSDP(model)\n") == f"{meta}model = shard(model)\n"


def test_a_dict_that_is_written_for_the_call_is_read() -> None:
    for made in ("{'use_orig_params': True, 'device_mesh': mesh}", "dict(use_orig_params=True, device_mesh=mesh)"):
        text = f"options = {made}\nmodel = FSDP(model, **options)\n"
        assert new(text) == "fully_shard(model, mesh=mesh)\n"
        changed = IMPORTS + text.replace("model =", "options['device_id'] = rank\nmodel =")
        changed = changed.replace("BackwardPrefetch, CPUOffload, ", "")
        assert rewritten(changed).endswith("model = shard(model, **options)\n")


def test_what_a_hidden_dict_offloads_differs() -> None:
    assert differences("model = FSDP(model, **options)\n", options=UNUSED) == [
        "parameters on the CPU: gradients are clipped there, and buffers stay on the device"
    ]


# --- precision

BF16 = "param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16"


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ("param_dtype=torch.bfloat16", BF16),
        ("torch.bfloat16", BF16),
        ("param_dtype=torch.bfloat16, reduce_dtype=None", BF16),
        ("param_dtype=dtype", "param_dtype=dtype, reduce_dtype=dtype"),
        ("param_dtype=dtype, reduce_dtype=other", "param_dtype=dtype, reduce_dtype=other or dtype"),
        ("param_dtype=dtype, reduce_dtype=torch.float32", "param_dtype=dtype, reduce_dtype=torch.float32"),
        ("reduce_dtype=torch.bfloat16", "reduce_dtype=torch.bfloat16"),
        ("torch.bfloat16, cast_root_forward_inputs=False", f"{BF16}, cast_forward_inputs=False"),
        ("torch.bfloat16, cast_forward_inputs=True, cast_root_forward_inputs=False", BF16),
    ],
)
def test_precision_at_the_root(fields: str, policy: str) -> None:
    call = f"fully_shard(model, mp_policy=MixedPrecisionPolicy({policy}))\n"
    assert new(f"model = FSDP(model, mixed_precision=MixedPrecision({fields}))\n") == call
    named = f"mp = MixedPrecision({fields})\nmodel = FSDP(model, mixed_precision=mp)\n"
    assert new(named) == f"mp = MixedPrecisionPolicy({policy})\nfully_shard(model, mp_policy=mp)\n"


NET = "class A(nn.Module):\n    pass\n\n\nmodel = A()\n"
SHARDS = f"{LOOP}    if module is not model and isinstance(module, A):\n        fully_shard(module, mp_policy=%s)\n"


def test_precision_below_the_root_casts_no_inputs() -> None:
    arguments = "auto_wrap_policy=ModuleWrapPolicy({A}), mixed_precision=MixedPrecision(torch.bfloat16)"
    assert new(f"{NET}model = FSDP(model, {arguments})\n") == (
        f"{NET}mp_policy = MixedPrecisionPolicy(\n    {BF16}\n)\n"
        "# FSDP1 casts the inputs of the root only\n"
        f"inner_mp_policy = MixedPrecisionPolicy(\n    {BF16}, cast_forward_inputs=False\n)\n"
        f"{SHARDS % 'inner_mp_policy'}fully_shard(model, mp_policy=mp_policy)\n"
    )


def test_one_policy_does_where_all_units_cast() -> None:
    mp = "MixedPrecision(torch.float16, cast_forward_inputs=True)"
    fields = "param_dtype=torch.float16, reduce_dtype=torch.float16"
    assert new(
        f"{NET}mp = {mp}\nmodel = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({{A}}), mixed_precision=mp)\n"
    ) == (f"{NET}mp = MixedPrecisionPolicy({fields})\n{SHARDS % 'mp'}fully_shard(model, mp_policy=mp)\n")


def test_batch_normalisation_stays_in_float32() -> None:
    net = NET.replace("    pass", "    def __init__(self):\n        self.norm = nn.BatchNorm1d(4)")
    arguments = "auto_wrap_policy=ModuleWrapPolicy({A}), mixed_precision=mp"
    text = new(f"{net}mp = MixedPrecision(torch.bfloat16)\nmodel = FSDP(model, {arguments})\n")
    assert text.endswith(
        "norm_mp_policy = MixedPrecisionPolicy(\n"
        "    param_dtype=torch.float32, reduce_dtype=torch.float32, output_dtype=mp.param_dtype\n)\n"
        f"{LOOP}"
        "    if isinstance(module, nn.modules.batchnorm._BatchNorm):  # FSDP1 keeps them in float32\n"
        "        fully_shard(module, mp_policy=norm_mp_policy)\n"
        "    elif module is not model and isinstance(module, A):\n"
        "        fully_shard(module, mp_policy=inner_mp_policy)\n"
        "fully_shard(model, mp_policy=mp)\n"
    )


def test_a_model_of_unknown_origin_may_have_batch_normalisation() -> None:
    arguments = "auto_wrap_policy=ModuleWrapPolicy({A}), mixed_precision=MixedPrecision(torch.bfloat16)"
    assert "_BatchNorm" in new(f"def f(model):\n    model = FSDP(model, {arguments})\n    return model\n")


def test_the_dtype_of_buffers_is_for_the_generated_module() -> None:
    line = "model = FSDP(model, mixed_precision=MixedPrecision(buffer_dtype=torch.bfloat16))\n"
    assert new(line) == line.replace("FSDP", "shard")
    assert new(line.replace("torch.bfloat16", "None")) == "fully_shard(model, mp_policy=MixedPrecisionPolicy())\n"


def test_gradients_in_low_precision_are_a_wall() -> None:
    reason, _ = only_wall("model = FSDP(model, mixed_precision=MixedPrecision(keep_low_precision_grads=True))\n")
    assert "`keep_low_precision_grads`" in reason


def test_a_part_casts_inputs_only_where_it_is_told_to() -> None:
    mp = "mixed_precision=MixedPrecision(torch.bfloat16)"
    text = new(f"model.head = FSDP(model.head, {mp})\nmodel = FSDP(model, {mp})\n")
    assert text == (
        f"fully_shard(model.head, mp_policy=MixedPrecisionPolicy({BF16}, cast_forward_inputs=False))\n"
        f"fully_shard(model, mp_policy=MixedPrecisionPolicy({BF16}))\n"
    )


def test_two_models_of_an_object_are_no_parts_of_it() -> None:
    mp = "mixed_precision=MixedPrecision(torch.bfloat16)"
    text = (
        "class Base:\n    pass\n\n\nclass Trainer(Base):\n    def __init__(self, policy, reference):\n"
        f"        self.policy = FSDP(policy, {mp})\n        self.reference = FSDP(reference, {mp})\n"
    )
    assert "cast_forward_inputs" not in new(text)
    reason, _ = only_walls(text.replace("class Base:", "class Base(nn.Module):"))[0]
    assert reason.startswith("it is not visible whether another call of FSDP wraps the result")


def test_the_generated_module_is_told_what_is_a_part() -> None:
    always = Options(helper="always", all_parameters_used=True)
    text = "model.head = FSDP(model.head, use_orig_params=True)\nmodel = FSDP(model, mixed_precision=mp)\n"
    assert new(text, options=always) == (
        "model.head = shard(model.head, outermost=False)\nmodel = shard(model, mixed_precision=mp)\n"
    )


def test_positions_become_names_for_the_generated_module() -> None:
    text = "model = FSDP(model, group, ShardingStrategy.NO_SHARD, None, rule)\n"
    expected = (
        "process_group=group, sharding_strategy=ShardingStrategy.NO_SHARD, cpu_offload=None, auto_wrap_policy=rule"
    )
    assert new(text) == f"model = shard(model, {expected})\n"
    assert (
        new("model = FSDP(process_group=group, module=model)\n") == "model = shard(process_group=group, module=model)\n"
    )


def test_a_comment_at_an_argument_without_meaning_keeps_it() -> None:
    text = "model = FSDP(\n    model,\n    process_group=group,\n    limit_all_gathers=True,  # saves memory\n)\n"
    assert new(text) == text.replace("FSDP", "shard")


def test_a_precision_for_the_root_and_parts_takes_to_see_which_is_which() -> None:
    text = (
        "def wrap(m):\n    return FSDP(m, mixed_precision=MixedPrecision(torch.bfloat16))\n\n\n"
        "model.head = wrap(model.head)\nmodel = wrap(model)\n"
    )
    reason, _ = only_wall(text, options=Options())
    assert (
        reason
        == "it is not visible whether another call of FSDP wraps the result, and only the outermost one casts inputs"
    )
    casts = text.replace("bfloat16)", "bfloat16, cast_forward_inputs=True)")
    assert "fully_shard(m, mp_policy=" in new(casts)


def test_a_precision_of_another_module_is_rewritten_there(tmp_path: Path) -> None:
    train = "from precisions import HALF\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
    precisions = (
        "import torch\nfrom torch.distributed.fsdp import MixedPrecision\n\nHALF = MixedPrecision(torch.float16)\n"
    )
    modules = project_of(
        tmp_path,
        {"train.py": f"{train}model = FSDP(model, mixed_precision=HALF)\n", "precisions.py": precisions},
    )
    conversion = converted(modules, Options(all_parameters_used=True))
    assert conversion.walls == []
    found = texts(modules, conversion)
    assert found["train.py"].endswith("fully_shard(model, mp_policy=HALF)\n")
    assert found["precisions.py"] == (
        "import torch\nfrom torch.distributed.fsdp import MixedPrecisionPolicy\n\n"
        "HALF = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16)\n"
    )


@pytest.mark.parametrize("use", ["print(HALF)", "HALF.buffer_dtype", "other(HALF)"])
def test_a_precision_that_others_use_is_passed_on(tmp_path: Path, use: str) -> None:
    train = "from precisions import HALF\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
    precisions = (
        "import torch\nfrom torch.distributed.fsdp import MixedPrecision\n\nHALF = MixedPrecision(torch.float16)\n"
    )
    files = {
        "train.py": f"{train}model = FSDP(model, mixed_precision=HALF)\n",
        "precisions.py": precisions,
        "other.py": f"from precisions import HALF\n\n{use}\n",
    }
    modules = project_of(tmp_path, files)
    found = texts(modules, converted(modules, Options(all_parameters_used=True)))
    assert found.keys() == {"train.py"}
    assert found["train.py"].endswith("model = shard(model, mixed_precision=HALF)\n")


# --- releases


def test_no_gradient_counts_as_zero_where_torch_can_be_told() -> None:
    text = "model.head = FSDP(model.head)\nmodel = FSDP(model)\n"
    assert new(text, ">=2.13", Options()) == (
        "fully_shard(model.head)\n"
        "fully_shard(model)\n"
        "model.set_reduce_scatter_unused_params(True)  # as in FSDP1, no gradient counts as zero\n"
    )
    assert differences(text, ">=2.6") == [
        "before torch 2.13 a parameter without a gradient is not updated; FSDP1 used a zero gradient "
        "(--torch '>=2.13' or --all-parameters-used avoids it)"
    ]
    assert differences(text, ">=2.6", Options(all_parameters_used=True)) == []


def test_a_floor_that_is_too_low_is_a_wall() -> None:
    assert only_wall("model = FSDP(model)\n", ">=2.4") == (
        "`torch.distributed.fsdp.fully_shard` came with torch 2.6, but torch>=2.4 is supported",
        "require torch>=2.6",
    )
    reason, _ = only_wall("model = FSDP(model, ignored_modules=[model.head])\n", ">=2.6", Options())
    assert reason == "its argument `ignored_params` came with torch 2.7, but torch>=2.6 is supported"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("FSDP()", "the call lacks `module`"),
        ("FSDP(model, fsdp_auto_wrap_policy=policy)", "the call passes `fsdp_auto_wrap_policy`"),
        ("FSDP(*parts)", "`*parts` is unpacked into positional arguments"),
    ],
)
def test_calls_that_fit_no_signature(call: str, reason: str) -> None:
    assert only_wall(f"model = {call}\n", options=Options())[0].startswith(reason)


# --- enable_wrap

WRAP = "from torch.distributed.fsdp.wrap import enable_wrap, wrap\n" + IMPORTS
NESTED = """\
class Net(nn.Module):
    def __init__(self):
        with enable_wrap(wrapper_cls=FSDP, {arguments}):  # in parts
            self.layers = nn.ModuleList(wrap(nn.Linear(4, 4)) for _ in range(3))
            self.head = wrap(nn.Linear(4, 4))
        self.tail = nn.Linear(4, 2)


model = FSDP(Net())
"""


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ("use_orig_params=True", ""),
        ("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", ", reshard_after_forward=False"),
        (
            "mixed_precision=MixedPrecision(torch.bfloat16)",
            f", mp_policy=MixedPrecisionPolicy({BF16}, cast_forward_inputs=False)",
        ),
    ],
)
def test_parts_that_are_wrapped_where_they_are_made(arguments: str, keywords: str) -> None:
    assert body(rewritten(WRAP + NESTED.format(arguments=arguments))) == (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        # in parts\n"
        f"        self.layers = nn.ModuleList(fully_shard(nn.Linear(4, 4){keywords}) for _ in range(3))\n"
        f"        self.head = fully_shard(nn.Linear(4, 4){keywords})\n"
        "        self.tail = nn.Linear(4, 2)\n\n\n"
        "model = Net()\n"
        "fully_shard(model)\n"
    )


@pytest.mark.parametrize(
    ("old", "wrong", "reason"),
    [
        (
            "wrap(nn.Linear(4, 4))\n",
            "wrap(nn.Linear(4, 4), device_id=3)\n",
            "this part is wrapped with arguments of its own",
        ),
        ("wrap(nn.Linear(4, 4))\n", "build(4)\n", "`build` may wrap parts too inside `enable_wrap`"),
        ("nn.Linear(4, 2)", "wrap(nn.Linear(4, 2))", "an `enable_wrap` that is not visible decides how `wrap` wraps"),
        ("{arguments}", "**options", "the arguments of `enable_wrap` are not written out"),
        ("{arguments}", "auto_wrap_policy=policy", "`enable_wrap` gets a policy"),
        ("{arguments}", "process_group=group", "`process_group` is only known at run time"),
    ],
)
def test_parts_that_cannot_be_converted(old: str, wrong: str, reason: str) -> None:
    text = NESTED.replace(old, wrong).replace("{arguments}", "use_orig_params=True")
    walls = converted({FILE: facts_of(WRAP + text)}).walls
    assert [wall.reason for wall in walls] == [reason]


@pytest.mark.parametrize("name", ["list", "reversed", "isinstance"])
@pytest.mark.parametrize("how", ["def {}(x): ...", "from tools import {}", "{} = print"])
def test_a_loop_needs_what_python_has_built_in(name: str, how: str) -> None:
    line = "model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))\n"
    assert "shard(model, auto_wrap_policy=ModuleWrapPolicy({Block}))" in new(f"{how.format(name)}\n{line}")
    reason, _ = only_wall(f"{how.format(name)}\n{line}")
    assert reason.startswith(f"what `{name}` does, which is not Python's own here")
    assert "reversed(list(" in new(f"def other({name}): ...\n{line}")


@pytest.mark.parametrize(
    ("arguments", "notes"),
    [
        ("backward_prefetch=BackwardPrefetch.BACKWARD_PRE, forward_prefetch=False, limit_all_gathers=True", []),
        ("backward_prefetch=BackwardPrefetch.BACKWARD_POST", ["BACKWARD_PRE"]),
        ("backward_prefetch=None", ["BACKWARD_PRE"]),
        ("backward_prefetch=choice, forward_prefetch=choice", ["BACKWARD_PRE", "forward_prefetch"]),
        ("forward_prefetch=True", ["forward_prefetch"]),
        ("process_group=group, forward_prefetch=True", ["forward_prefetch"]),
        ("None, None, None, None, BackwardPrefetch.BACKWARD_POST", ["BACKWARD_PRE"]),
    ],
)
def test_prefetching_is_noted_where_it_changes(arguments: str, notes: list[str]) -> None:
    found = converted({FILE: facts_of(IMPORTS + f"model = FSDP(model, {arguments})\n")}, UNUSED)
    assert (found.walls, found.differences) == ([], [])
    assert [
        next(word for word in ("BACKWARD_PRE", "forward_prefetch") if word in one.what) for one in found.notes
    ] == notes

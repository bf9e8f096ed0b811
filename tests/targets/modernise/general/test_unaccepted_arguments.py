from __future__ import annotations

import ast

import pytest

from fsdp_migrate.findings import Severity
from fsdp_migrate.lint import lint_source
from fsdp_migrate.targets.modernise.general.unaccepted_arguments import misfit_of
from fsdp_migrate.torch_api import RELEASES, TorchRange
from fsdp_migrate.torch_api.data import Parameter, ParameterKind, signature
from tests.rules.checks import check_noop, lint

FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
PARALLEL = "from torch.distributed.tensor.parallel import parallelize_module\n"
DCP = "import torch.distributed.checkpoint as dcp\n"


def found(text: str, torch: str = ">=2.1") -> list[tuple[str, str]]:
    return [(finding.severity.value, finding.message) for finding in lint(text, "FSDP500", torch)]


@pytest.mark.parametrize(
    ("text", "message", "reason"),
    [
        (
            f"{FSDP}def f(m, mesh):\n    return FSDP(m, device_mesh=mesh)\n",
            "`FullyShardedDataParallel` of torch 2.1 has no parameter `device_mesh`",
            "check the version, or require torch>=2.2",
        ),
        (
            f"{PARALLEL}def f(*a):\n    return parallelize_module(m, mesh, plan, tp_mesh_dim=1)\n",
            "`parallelize_module` of torch 2.3 to 2.15 has no parameter `tp_mesh_dim`",
            "it accepts `module`, `device_mesh`, `parallelize_plan`, `src_data_rank`: change the call for torch 2.15",
        ),
        (
            f"{PARALLEL}def f(*a):\n    return parallelize_module(m, mesh, plan, 1)\n",
            "`parallelize_module` of torch 2.3 to 2.15 accepts 3 positional arguments, not 4",
            "change the call for torch 2.15",
        ),
        (
            "from torch.distributed.distributed_c10d import _object_to_tensor\ndef f(x):\n    _object_to_tensor(x)\n",
            "`_object_to_tensor` of torch 2.1 to 2.15 requires `device`",
            "it accepts `obj`, `device`, `group`, `weights_only`: change the call for torch 2.15",
        ),
    ],
)
def test_a_call_that_some_release_rejects_is_reported_with_what_it_takes(text: str, message: str, reason: str) -> None:
    assert found(text) == [("breaks", message)]
    assert all(reason in (finding.reason or "") for finding in lint(text, "FSDP500"))


def test_the_place_is_the_argument_or_the_callee_for_a_missing_one() -> None:
    (keyword,) = lint(f"{FSDP}x = FSDP(m, device_mesh=mesh)\n", "FSDP500")
    assert (keyword.line, keyword.column, keyword.end_column) == (2, 13, 29)
    (position,) = lint(f"{PARALLEL}x = parallelize_module(m, mesh, plan, 1)\n", "FSDP500")
    assert (position.column, position.end_column) == (39, 40)
    text = "import torch.distributed.distributed_c10d as c\nx = c._object_to_tensor(x)\n"
    (missing,) = lint(text, "FSDP500")
    assert (missing.column, missing.end_column) == (5, 24)


@pytest.mark.parametrize(
    "text",
    [
        f"{FSDP}x = FSDP(m, *rest, device_mesh=mesh)\n",
        f"{FSDP}x = FSDP(m, device_mesh=mesh, **rest)\n",
        f"{FSDP}x = FSDP(m, use_orig_params=True)\n",
        f"{FSDP}x = FSDP(m, made_up=1)\n",
        f"{FSDP}try:\n    x = FSDP(m, device_mesh=mesh)\nexcept TypeError:\n    x = FSDP(m)\n",
        "import torch\nfrom packaging.version import Version\n"
        f"{FSDP}x = FSDP(m, device_mesh=d) if Version(torch.__version__) >= Version('2.2') else FSDP(m)\n",
        "from fairscale.nn import FullyShardedDataParallel as FSDP\nx = FSDP(m, device_mesh=mesh)\n",
        f"{FSDP}class F(FSDP): ...\nx = F(m, device_mesh=mesh)\n",
        f"{FSDP}model.FSDP(m, device_mesh=mesh)\n",
        f"{FSDP}FSDP.clip_grad_norm_(model, 1.0)\n",
        "from torch.distributed.fsdp import StateDictType\nStateDictType(1)\nStateDictType['FULL_STATE_DICT']\n",
        "from torch.distributed.fsdp import FullStateDictConfig\nFullStateDictConfig(True, True)\n",
        "from torch.distributed.fsdp import MixedPrecision\nMixedPrecision(param_dtype=x, cast_forward_inputs=True)\n",
        "from torch.distributed._tensor import DTensor, Shard\n"
        "DTensor.from_local(t, mesh, [Shard(0)], run_check=False)\n",
        "import torch.distributed as d\nd.init_process_group('nccl', timeout=t)\nd.barrier()\n"
        "d.new_group([0], backend='gloo')\n",
        f"{DCP}from torch.distributed.checkpoint import FileSystemReader\n"
        f"dcp.load_state_dict(sd, FileSystemReader(p))\n",
    ],
)
def test_what_every_release_accepts_or_nobody_can_tell_is_left_alone(text: str) -> None:
    check_noop(text, "FSDP500")


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (f"{FSDP}def f(m):\n    return FSDP(m, device_mesh=x)\n", Severity.BREAKS),
        (f"{FSDP}def f(m):\n    if x:\n        return FSDP(m, device_mesh=x)\n", Severity.HINT),
        (
            f"{PARALLEL}def f(m):\n    if x:\n        return parallelize_module(m, d, p, tp_mesh_dim=1)\n",
            Severity.BREAKS,
        ),
        (
            f"{DCP}def f(sd):\n"
            f"    from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict as s, StateDictOptions\n"
            "    s(m, o, sd, options=StateDictOptions(broadcast_from_rank0=True))\n",
            Severity.HINT,
        ),
    ],
)
def test_the_severity_says_how_surely_an_older_torch_comes_there(text: str, severity: Severity) -> None:
    assert {finding.severity for finding in lint(text, "FSDP500")} == {severity}


def test_on_a_range_that_nobody_stated_only_what_the_newest_rejects_breaks() -> None:
    new = f"{FSDP}x = FSDP(m, device_mesh=mesh)\n"
    old = f"{PARALLEL}x = parallelize_module(m, mesh, plan, tp_mesh_dim=1)\n"
    findings = lint_source(new + old, torch=TorchRange.default(), hints=True)
    general = [finding for finding in findings if finding.code == "FSDP500"]
    assert [finding.severity for finding in general] == [Severity.HINT, Severity.BREAKS]


def test_after_an_import_that_needs_a_release_calls_are_judged_from_there_on() -> None:
    text = f"from torch.distributed.device_mesh import DeviceMesh\n{FSDP}x = FSDP(m, device_mesh=mesh)\n"
    check_noop(text, "FSDP500")


def test_a_callee_that_is_missing_is_the_other_rules_matter() -> None:
    text = f"{DCP}def f(sd):\n    dcp.save(sd, checkpoint_id='x')\n"
    assert [finding.code for finding in lint(text, "FSDP600")] == ["FSDP600"]
    check_noop(text, "FSDP500")


@pytest.mark.parametrize(
    "text",
    [
        f"{FSDP}x = FSDP(m, fsdp_auto_wrap_policy=p)\n",
        f"{FSDP}x = FSDP.sharded_optim_state_dict(m, o, None, g)\n",
        f"{FSDP}x = FSDP.scatter_full_optim_state_dict(osd, m, optim_input=[], bogus=1)\n",
    ],
)
def test_where_a_rule_of_its_own_speaks_it_is_silent(text: str) -> None:
    check_noop(text, "FSDP500")
    assert lint_source(text, torch=">=2.1")


NAMES = tuple(
    Parameter(name, default, kind)
    for name, default, kind in (
        ("a", False, ParameterKind.POSITIONAL_ONLY),
        ("b", True, ParameterKind.POSITIONAL_OR_KEYWORD),
        ("c", False, ParameterKind.KEYWORD_ONLY),
    )
)
VARIABLE = (
    *NAMES,
    Parameter("args", False, ParameterKind.VAR_POSITIONAL),
    Parameter("kwargs", False, ParameterKind.VAR_KEYWORD),
)


@pytest.mark.parametrize(
    ("call", "parameters", "text"),
    [
        ("f(1, c=2)", NAMES, None),
        ("f(1, 2, c=3)", NAMES, None),
        ("f(1, b=2, c=3)", NAMES, None),
        ("f(1, 2, 3, c=3)", NAMES, "accepts 2 positional arguments, not 3"),
        ("f(1, 2, b=2, c=3)", NAMES, "gets `b` by position and by keyword"),
        ("f(1)", NAMES, "requires `c`"),
        ("f(c=1)", NAMES, "requires `a`"),
        ("f(1, c=1, d=2)", NAMES, "has no parameter `d`"),
        ("f(1, 2, 3, c=1, d=2)", VARIABLE, None),
        ("f()", (), None),
        ("f(1)", (), "accepts 0 positional arguments, not 1"),
        ("f(1, 2)", NAMES[1:2], "accepts 1 positional argument, not 2"),
    ],
)
def test_arguments_are_bound_as_python_binds_them(
    call: str, parameters: tuple[Parameter, ...], text: str | None
) -> None:
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    misfit = misfit_of(node, parameters)
    assert (None if misfit is None else misfit.text) == text


def test_the_constructor_of_a_class_is_what_its_call_is_bound_to() -> None:
    parameters = signature("torch.distributed.fsdp.FullyShardedDataParallel", RELEASES[-1])
    assert parameters is not None
    assert parameters[0].name == "module"


MESH = "from torch.distributed.device_mesh import DeviceMesh, init_device_mesh\n"


@pytest.mark.parametrize(
    "text",
    [
        "mesh = init_device_mesh('cuda', (2,))\nmesh.size(dim=0)\n",
        "def f(mesh: DeviceMesh):\n    return mesh.size(dim=0)\n",
        "DeviceMesh('cuda', [0, 1]).size(dim=0)\n",
    ],
)
def test_a_method_of_a_mesh_is_judged_without_its_object(text: str) -> None:
    assert [finding.message for finding in lint(MESH + text, "FSDP500", ">=2.2")] == [
        "`size` of torch 2.2 to 2.15 has no parameter `dim`"
    ]
    check_noop(MESH + text.replace("dim=0", "0"), "FSDP500", torch=">=2.2")


def test_methods_of_what_may_be_anything_are_not_judged() -> None:
    check_noop(MESH + "def f(mesh):\n    return mesh.size(dim=0)\n", "FSDP500", torch=">=2.2")
    check_noop(MESH + "mesh = init_device_mesh(a, b) if x else torch.ones(2)\nmesh.size(dim=0)\n", "FSDP500")


def test_a_method_called_through_the_class_is_not_judged() -> None:
    check_noop(f"{FSDP}FSDP.clip_grad_norm_(model, 1.0)\n", "FSDP500")

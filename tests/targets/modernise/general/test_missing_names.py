from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from fsdp_migrate.lint import lint_source
from fsdp_migrate.torch_api import TorchRange
from tests.rules.checks import check_manual, check_noop, lint

NEW = "from torch.distributed.fsdp import fully_shard"
GONE = "from torch.distributed.fsdp._runtime_utils import _clear_grads_if_needed"
GATE = "import torch\nfrom packaging.version import Version\nNEW = Version(torch.__version__) >= Version('2.6')\n"


def found(text: str, torch: str = ">=2.1") -> list[tuple[str, str]]:
    return [(finding.severity.value, finding.message) for finding in lint(text, "FSDP600", torch)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NEW, "`torch.distributed.fsdp.fully_shard` is new in torch 2.6"),
        (GONE, "`torch.distributed.fsdp._runtime_utils._clear_grads_if_needed` is removed in torch 2.1"),
        ("import torch.distributed.device_mesh as m", "`torch.distributed.device_mesh` is new in torch 2.2"),
        ("import torch.distributed.device_mesh", "`torch.distributed.device_mesh` is new in torch 2.2"),
        (
            "from torch.distributed.tensor.parallel import SequenceParallel",
            "`torch.distributed.tensor.parallel.SequenceParallel` is not available in torch 2.2",
        ),
        (
            "from torch.distributed.fsdp import fully_shard, FSDPModule",
            "`fully_shard`, `FSDPModule` of `torch.distributed.fsdp` are new in torch 2.6",
        ),
        (
            "from torch.distributed.checkpoint._hf_storage import _HuggingFaceStorageReader",
            "`torch.distributed.checkpoint._hf_storage` is available in torch 2.7 only",
        ),
        (
            "import torch.distributed as dist\nx = dist._composable.contract.Nothing, dist.init_device_mesh",
            "`torch.distributed.init_device_mesh` is new in torch 2.4",
        ),
        (
            "from torch.distributed import fsdp\nx = fsdp._optim_utils._all_gather_optim_state",
            "`torch.distributed.fsdp._optim_utils._all_gather_optim_state` is removed in torch 2.2",
        ),
        (
            "from importlib import import_module\nimport_module('torch.distributed.fsdp._symbolic_trace')",
            "`torch.distributed.fsdp._symbolic_trace` is removed in torch 2.0",
        ),
    ],
)
def test_a_name_that_some_release_lacks_is_reported_with_the_releases(text: str, message: str) -> None:
    assert found(text) == [("breaks", message)]


@pytest.mark.parametrize(
    "text",
    [
        "import torch.distributed as dist\nd = dist\nd.fsdp.fully_shard(m)\n",
        "import torch\nd = torch.distributed\ne = d\ne.fsdp.fully_shard(m)\n",
        "from torch import distributed\ndef f():\n    d = distributed.fsdp\n    return d.fully_shard(m)\n",
    ],
)
def test_a_name_that_stands_for_a_module_is_followed(text: str) -> None:
    assert found(text) == [("breaks", "`torch.distributed.fsdp.fully_shard` is new in torch 2.6")]
    assert found(text.replace("= dist\n", "= other\n").replace("distributed", "other")) == []


def test_the_place_is_the_name_or_the_whole_import_for_several() -> None:
    (one,) = lint(f"import os\n{NEW}, MixedPrecision\n", "FSDP600")
    assert (one.line, one.column, one.end_column) == (2, 36, 47)
    (several,) = lint("from torch.distributed.fsdp import fully_shard, FSDPModule\n", "FSDP600")
    assert (several.line, several.column) == (1, 1)
    (chain,) = lint("import torch\nx = torch.distributed.init_device_mesh('cpu')\n", "FSDP600")
    assert (chain.line, chain.column, chain.end_column) == (2, 5, 39)


def test_the_reason_says_from_where_on_it_works_or_what_else_there_is() -> None:
    (new,) = lint(NEW, "FSDP600")
    assert new.reason == "check that it exists before using it, or require torch>=2.6"
    (gone,) = lint(GONE, "FSDP600")
    assert gone.reason == "torch 2.15 has nothing of this name: remove the use"
    (elsewhere,) = lint(
        "from torch.cuda.amp.grad_scaler import _refresh_per_optimizer_state\n" + NEW, "FSDP600", ">=2.6"
    )
    assert "`torch.amp.grad_scaler._refresh_per_optimizer_state`" not in (elsewhere.reason or "")
    assert "torch 2.15 has `torch.distributed." in (elsewhere.reason or "")


@pytest.mark.parametrize(
    "text",
    [
        f"try:\n    {NEW}\nexcept ImportError:\n    fully_shard = None\n",
        f"try:\n    {NEW}\nexcept ImportError:\n    pass\n",
        f"try:\n    {NEW}\nexcept Exception as e:\n    log(e)\n",
        f"try:\n    {NEW}\nexcept ImportError as e:\n    raise RuntimeError('needs torch 2.6') from e\n",
        f"try:\n    {GONE}\nexcept (ImportError, AttributeError):\n    _clear_grads_if_needed = None\n",
        f"from contextlib import suppress\nwith suppress(ImportError):\n    {NEW}\n",
        f"import pytest\nwith pytest.raises(ImportError):\n    {GONE}\n",
        f"{GATE}if NEW:\n    {NEW}\n",
        f"{GATE}if not NEW:\n    raise SystemExit\n{NEW}\n",
        f"{GATE}import torch.distributed as d\ndef f():\n    return d.fsdp.fully_shard if NEW else None\n",
        "import torch.distributed as d\nif hasattr(d, 'init_device_mesh'):\n    d.init_device_mesh('cpu', (1,))\n",
        "import torch.distributed as d\nHAS = hasattr(d, 'init_device_mesh')\ndef f():\n"
        "    d.init_device_mesh('cpu', (1,))\n",
        "import torch.distributed as d\nx = getattr(d, 'init_device_mesh', None)\ndef f():\n"
        "    d.init_device_mesh('cpu', (1,))\n",
        "import torch.distributed as d\ntry:\n    d.init_device_mesh\nexcept AttributeError:\n    pass\n",
        "import torch.distributed.fsdp as fsdp\nfsdp.fully_shard = print\nfsdp.fully_shard(1)\n",
        "import torch.distributed.fsdp as fsdp\nsetattr(fsdp, 'fully_shard', print)\nfsdp.fully_shard(1)\n",
        "from torch.distributed.fsdp import never_heard_of\n",
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nFSDP.my_own_attribute\n",
        "from torch.distributed.nowhere import X\nimport torch.distributed as d\nd.nothing.fully_shard\n",
        "from torch.nn.parallel import DistributedDataParallel\n",
        "from mine.torch.distributed.fsdp import fully_shard\nfrom .torch.distributed.fsdp import FSDPModule\n",
        "x = model.fsdp.fully_shard\n",
        "import torch.distributed as d\nd.group.WORLD, d.GroupMember.WORLD, d.ReduceOp.SUM, d.Backend.NCCL\n",
    ],
)
def test_what_the_file_has_seen_to_or_the_data_does_not_know_is_left_alone(text: str) -> None:
    check_noop(text, "FSDP600")


def test_a_handler_that_only_raises_does_not_excuse_what_is_gone() -> None:
    text = f"try:\n    {GONE}\nexcept ImportError as e:\n    raise RuntimeError('install torch') from e\n"
    assert [severity for severity, _ in found(text)] == ["breaks"]


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (NEW, Severity.BREAKS),
        (f"def f():\n    {NEW}\n", Severity.HINT),
        (f"def f():\n    {GONE}\n", Severity.BREAKS),
        (f"if flag:\n    {NEW}\n", Severity.HINT),
        (f"if flag:\n    {GONE}\n", Severity.BREAKS),
        (f"if __name__ == '__main__':\n    {NEW}\n", Severity.BREAKS),
        (f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {NEW}\n", Severity.HINT),
        (f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {GONE}\n", Severity.HINT),
        ("import torch.distributed as d\ndef f():\n    d.init_device_mesh()\n", Severity.BREAKS),
        ("import torch.distributed as d\ndef f(x):\n    if x:\n        d.init_device_mesh()\n", Severity.HINT),
        ("import torch.distributed as d\ndef f(x):\n    return x and d.init_device_mesh()\n", Severity.HINT),
        ("import torch.distributed as d\n@needs.skipif(x)\ndef f():\n    d.init_device_mesh()\n", Severity.HINT),
        ("import torch.distributed as d\n@lru_cache\ndef f():\n    d.init_device_mesh()\n", Severity.BREAKS),
        ("import torch.distributed as d\npytestmark = x\ndef f():\n    d.init_device_mesh()\n", Severity.HINT),
        ("import torch.distributed as d\ndef f(x: d.DeviceMesh): ...\n", Severity.BREAKS),
        (
            "from __future__ import annotations\nimport torch.distributed as d\ndef f(x: d.DeviceMesh): ...\n",
            Severity.HINT,
        ),
        ("from unittest import mock\n@mock.patch('torch.distributed.DeviceMesh')\ndef f(): ...\n", Severity.BREAKS),
        ("from unittest import mock\ndef f():\n    mock.patch('torch.distributed.DeviceMesh')\n", Severity.HINT),
        (
            "from unittest import mock\nimport torch.distributed.fsdp._runtime_utils as r\ndef f():\n"
            "    mock.patch.object(r, '_clear_grads_if_needed')\n",
            Severity.BREAKS,
        ),
    ],
)
def test_the_severity_says_how_surely_an_older_torch_comes_there(text: str, severity: Severity) -> None:
    assert [finding.severity for finding in lint(text, "FSDP600")] == [severity]


def test_on_a_range_that_nobody_stated_only_what_is_gone_breaks() -> None:
    text = f"{NEW}\n{GONE}\n"
    assumed = lint_source(text, torch=TorchRange.default(), hints=True)
    stated = lint_source(text, torch=TorchRange.parse(">=2.1"), hints=True)
    assert [finding.severity for finding in assumed] == [Severity.HINT, Severity.BREAKS]
    assert [finding.severity for finding in stated] == [Severity.BREAKS, Severity.BREAKS]


def test_after_an_import_that_needs_a_release_the_file_is_judged_from_there_on() -> None:
    text = (
        f"{NEW}\nfrom torch.distributed.device_mesh import DeviceMesh\n"
        "import torch.distributed as dist\ndef f():\n    dist.get_node_local_rank(), dist.set_timeout()\n"
    )
    assert found(text) == [
        ("breaks", "`torch.distributed.fsdp.fully_shard` is new in torch 2.6"),
        ("breaks", "`torch.distributed.set_timeout` is new in torch 2.14"),
    ]
    inside = f"import torch.distributed as dist\ndef f():\n    {NEW}\n    dist.get_node_local_rank()\n"
    assert [message for _, message in found(inside)] == ["`torch.distributed.fsdp.fully_shard` is new in torch 2.6"]
    before = f"import torch.distributed as dist\ndef f():\n    dist.get_node_local_rank()\n    {NEW}\n"
    assert len(found(before)) == 2


def test_what_fails_on_import_is_said_once() -> None:
    text = "import torch.distributed as d\ndef f(x: d.DeviceMesh): ...\ndef g(x: d.DeviceMesh): ...\n"
    assert len(found(text)) == 1


def test_a_release_that_does_not_get_past_the_import_is_not_asked_about_its_attributes() -> None:
    text = (
        "try:\n    import torch.distributed.device_mesh as m\nexcept ImportError:\n    m = None\n"
        "def f():\n    return m.init_device_mesh\n"
    )
    check_noop(text, "FSDP600")


def test_a_chain_through_an_imported_module_that_is_missing_is_the_imports_matter() -> None:
    text = "import torch.distributed.fsdp._symbolic_trace\nx = torch.distributed.fsdp._symbolic_trace.TracingConfig\n"
    assert [finding.line for finding in lint(text, "FSDP600")] == [1]


@pytest.mark.parametrize(
    "text",
    [
        "from torch.distributed.fsdp.flat_param import FlatParamHandle\n",
        "from torch.distributed._tensor.debug import CommDebugMode\n",
        "from torch.distributed.fsdp.wrap import default_auto_wrap_policy\n",
        "from torch.distributed._composable import fully_shard\n",
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nhook = FSDP.optim_state_dict_post_hook\n",
    ],
)
def test_where_a_rule_of_its_own_speaks_it_is_silent(text: str) -> None:
    check_noop(text, "FSDP600")
    assert [f for f in lint_source(text, torch=">=2.1") if f.code != "FSDP600"]


def test_neighbours_count_only_in_files_about_torch_distributed() -> None:
    text = "import torch\nx = torch.amp.is_autocast_available('cpu')  # not distributed\n"
    check_noop(text, "FSDP600")
    assert [severity for severity, _ in found("import torch.distributed\n" + text)] == ["breaks"]


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        (">=1.13,<2.0", ["fsdp.fully_shard", "device_mesh", "fsdp._debug_utils"]),
        (">=2.2", ["fsdp.fully_shard"]),
        (">=2.6", []),
    ],
)
def test_the_range_decides(torch: str, expected: list[str]) -> None:
    text = (
        "import torch.distributed as d\nx = d.fsdp.fully_shard\ny = d.device_mesh.DeviceMesh\nz = d.fsdp._debug_utils\n"
    )
    messages = [message for _, message in found(text, torch)]
    assert [message.split("`")[1].removeprefix("torch.distributed.") for message in messages] == expected


def test_members_of_a_mesh_are_told_with_their_successors() -> None:
    text = "from torch.distributed._tensor import DeviceMesh\nmesh = DeviceMesh('cuda', ranks)\nmesh.{0}\n"
    for member, reason in (
        ("get_coordinate_on_dim(0)", "use `get_local_rank(mesh_dim)`, the rank along one dimension"),
        ("all_reduce(x)", "call `dist.all_reduce` with `group=mesh.get_group(mesh_dim)`"),
    ):
        (finding,) = lint(text.format(member), "FSDP600")
        assert (finding.severity, finding.reason) == (Severity.BREAKS, reason)
    check_noop(text.format("get_group(0)"), "FSDP600", torch=">=2.2")


def test_members_of_the_registry_of_meshes_are_told_with_their_successors() -> None:
    text = "from torch.distributed.device_mesh import _mesh_resources\nroot = _mesh_resources.get_parent_mesh(mesh)\n"
    (finding,) = lint(text, "FSDP600", ">=2.2")
    assert finding.message.endswith("._MeshEnv.get_parent_mesh` is removed in torch 2.5")
    assert "get_root_mesh" in (finding.reason or "")
    warned = lint(text.replace("get_parent_mesh", "get_root_mesh"), "FSDP610", ">=2.5")
    assert [one.line for one in warned] == [2]


def test_a_member_that_came_with_the_place_of_the_mesh_is_not_told_beside_that() -> None:
    text = "import torch.distributed as dist\nmesh = dist.device_mesh.init_device_mesh('cpu', (2,))\nmesh.get_group()\n"
    assert [finding.line for finding in lint(text, "FSDP600")] == [2]
    assert [finding.line for finding in lint(text.replace("get_group", "_flatten"), "FSDP600")] == [2, 3]
    old = "from torch.distributed._tensor import DeviceMesh\nmesh = DeviceMesh('cpu', ranks)\nmesh.get_group()\n"
    assert [finding.line for finding in lint(old, "FSDP600")] == [3]


@pytest.mark.parametrize("member", ["mesh", "mesh_dim_names", "device_type"])
def test_an_attribute_that_became_a_property_is_not_judged(member: str) -> None:
    text = "from torch.distributed._tensor import DeviceMesh\n\ndef f(mesh: DeviceMesh):\n    return mesh.{}\n"
    check_noop(text.format(member), "FSDP600", torch=">=2.0")


def test_a_name_that_getattr_reads_is_as_good_as_an_attribute() -> None:
    head = "from torch.distributed import fsdp\n"
    message = "`torch.distributed.fsdp._symbolic_trace` is removed in torch 2.0"
    assert found(head + "m = getattr(fsdp, '_symbolic_trace')\n") == [("breaks", message)]
    check_noop(head + "m = getattr(fsdp, '_symbolic_trace', None)\n", "FSDP600")
    check_noop(head + "m = getattr(fsdp, '_symbolic_trace') if hasattr(fsdp, '_symbolic_trace') else None\n", "FSDP600")
    check_noop(
        head + "try:\n    m = getattr(fsdp, '_symbolic_trace')\nexcept AttributeError:\n    m = None\n", "FSDP600"
    )


@pytest.mark.parametrize("read", ["vars(fsdp)['_symbolic_trace']", "fsdp.__dict__['_symbolic_trace']"])
def test_an_item_of_a_namespace_is_as_good_as_an_attribute(read: str) -> None:
    check_manual(f"import torch.distributed.fsdp as fsdp\nm = {read}\n", "FSDP600", "", torch=">=2.1")
    check_noop(f"import torch.distributed.fsdp as fsdp\nm = {read}\n", "FSDP600", torch=">=1.13,<2.0")


def test_a_member_of_an_enum_may_be_new() -> None:
    text = "from torch.distributed.fsdp import ShardingStrategy as S\ns = S['HYBRID_SHARD']\n"
    check_manual(text, "FSDP600", "require torch>=2.0", torch=">=1.13")
    check_noop(text, "FSDP600", torch=">=2.0")
    caught = text.replace("s = ", "try:\n    s = ") + "except {}:\n    s = None\n"
    check_noop(caught.format("KeyError"), "FSDP600", torch=">=1.13")
    check_manual(caught.format("AttributeError"), "FSDP600", "require torch>=2.0", torch=">=1.13")


def test_what_getattr_reads_off_a_module_that_is_gone_is_told_of_the_module_alone() -> None:
    text = "from torch.distributed.fsdp import flat_param as m\nf = getattr(m, 'FlatParamHandle')\n"
    assert [(one.code, one.line) for one in lint(text, "FSDP")] == [("FSDP303", 1)]


def test_names_of_one_import_are_told_together_only_where_the_same_became_of_them() -> None:
    text = "from torch.distributed.distributed_c10d import _set_pg_timeout, _check_for_nccl_backend\n"
    messages = [found.message for found in lint(text, "FSDP600", ">=2.1,<2.2")]
    assert messages == [
        "`torch.distributed.distributed_c10d._set_pg_timeout` is new in torch 2.3",
        "`torch.distributed.distributed_c10d._check_for_nccl_backend` is removed in torch 2.1",
    ]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("import torch.distributed.checkpoint as dcp\ndcp.save(s, dcp.FileSystemWriter(f))\n", [(1, 8), (2, 1)]),
        (
            "from torch.distributed.fsdp import FlatParameter\nfrom torch.distributed.tensor import DTensor\n"
            "found = [p for p in m.parameters() if isinstance(p, (FlatParameter, DTensor))]\n",
            [(2, 38)],
        ),
    ],
)
def test_a_finding_about_an_expression_does_not_speak_for_the_names_in_it(
    text: str, places: list[tuple[int, int]]
) -> None:
    assert [(one.line, one.column) for one in lint(text, "FSDP600", ">=1.13")] == places


@pytest.mark.parametrize("name", ["save", "async_save", "FsspecWriter"])
def test_what_a_torch_lacks_is_missing_under_the_old_name_of_the_package_too(name: str) -> None:
    text = f"import torch.distributed._shard.checkpoint as dist_cp\n\ndef f(x):\n    dist_cp.{name}(x)\n"
    check_manual(text, "FSDP600", "check that it exists before using it")
    check_noop(text.replace(f".{name}(", ".FileSystemWriter("), "FSDP600")


def test_what_a_rule_says_of_one_name_of_an_import_is_not_said_of_the_others() -> None:
    text = "from torch.distributed.fsdp.flat_param import HandleConfig, FlatParameter\n"
    assert [finding.code for finding in lint_source(text, torch=">=2.2")] == ["FSDP600", "FSDP303"]
    assert found(text, ">=2.2") == [("breaks", "`torch.distributed.fsdp.flat_param` is removed in torch 2.2")]


def test_a_place_to_import_from_is_a_module() -> None:
    text = "from torch.distributed.device_mesh import DeviceMesh\n"
    check_manual(text, "FSDP600", "import it from `torch.distributed._tensor`, where")  # not from a class that has one

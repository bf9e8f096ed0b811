from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

CODE = "FSDP614"
IMPORT = "from torch.distributed.device_mesh import DeviceMesh, init_device_mesh\n"
OLD = "from torch.distributed._tensor import DeviceMesh\n"


@pytest.mark.parametrize(
    "built",
    [
        "init_device_mesh('cuda', (2, 4))",
        "init_device_mesh('cuda', mesh_shape=(2, 4), mesh_dim_names=('dp', 'tp'))",
        "init_device_mesh('cuda', shape, mesh_dim_names=('dp', 'tp'))",
        "DeviceMesh('cuda', [[0, 1], [2, 3]])",
        "DeviceMesh('cuda', torch.arange(8).view(2, 4))",
        "DeviceMesh('cuda', mesh=torch.arange(8).reshape(2, 4))",
    ],
)
def test_a_mesh_that_is_built_with_several_dimensions_gives_all_groups_by_name(built: str) -> None:
    text = f"{IMPORT}mesh = {built}\ngroups = mesh.{{}}()\n"
    check_transformed(text.format("get_group"), text.format("get_all_groups"), CODE, torch=">=2.4")
    check_manual(text.format("get_group"), CODE, "needs torch>=2.4", torch=">=2.2")
    check_noop(text.format("get_group"), CODE, torch=">=2.2,<2.4")
    assert lint(text.format("get_group"), CODE, ">=2.2")[0].severity is Severity.BREAKS


@pytest.mark.parametrize("annotation", ["DeviceMesh", "Optional[DeviceMesh]", "DeviceMesh | None", "'DeviceMesh'"])
@pytest.mark.parametrize(
    "use", ["dp, tp = {}", "print({}[0])", "for group in {}:\n        print(group)", "[g for g in {}]", "print(*{})"]
)
def test_a_result_that_is_taken_for_a_list_is_one_of_several_groups(annotation: str, use: str) -> None:
    text = f"{IMPORT}def f(mesh: {annotation}):\n    {use}\n"
    call = "mesh.{}(mesh_dim=None)".format
    check_transformed(text.format(call("get_group")), text.format("mesh.get_all_groups()"), CODE, torch=">=2.4")


@pytest.mark.parametrize(
    "text",
    [
        "mesh = init_device_mesh('cuda', (8,))\nmesh.get_group()\n",
        "mesh = init_device_mesh('cuda', (2, 4))\nmesh.get_group(0)\nmesh.get_group(mesh_dim='dp')\n",
        "mesh = init_device_mesh('cuda', (2, 4))\nmesh['dp'].get_group()\n",
        "def f(mesh: DeviceMesh):\n    return mesh.get_group()\n",
        "def f(mesh: 'Mesh', other):\n    dp, tp = mesh.get_group()\n    a, b = other.get_group()\n",
        "mesh = init_device_mesh('cuda', (2, 4)) if x else other\ndp, tp = mesh.get_group()\n",
        "mesh = init_device_mesh('cuda', (2, 4))\n"
        "gs = mesh.get_all_groups() if hasattr(mesh, 'get_all_groups') else mesh.get_group()\n",
    ],
)
def test_one_group_and_other_objects_are_left_alone(text: str) -> None:
    check_noop(IMPORT + text, CODE, torch=">=2.2")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("get_dim_groups(0)", "get_group(0)"),
        ("get_dim_groups(mesh_dim=dim)", "get_group(mesh_dim=dim)"),
        ("get_dim_groups()", "get_all_groups()"),
        ("get_dim_groups(None)", "get_all_groups()"),
    ],
)
@pytest.mark.parametrize(
    "annotation",
    [
        "DeviceMesh",
        "Optional[DeviceMesh]",
        "typing.Optional[DeviceMesh]",
        "Union[None, DeviceMesh]",
        "DeviceMesh | None",
        "'DeviceMesh'",
        "'Optional[DeviceMesh]'",
        "Optional['DeviceMesh']",
        "'tensor.DeviceMesh | None'",
    ],
)
def test_the_old_method_is_one_group_or_all(before: str, after: str, annotation: str) -> None:
    head = f"from torch.distributed import _tensor as tensor\n{OLD}def f(mesh: {annotation}, dim):\n    return mesh."
    check_transformed(f"{head}{before}\n", f"{head}{after}\n", CODE, torch=">=2.4")


def test_the_old_method_of_one_dimension_goes_on_from_torch_2_2_on() -> None:
    text = f"{OLD}def f(mesh: DeviceMesh, dim):\n    return mesh.{{}}({{}})\n"
    check_transformed(text.format("get_dim_groups", 0), text.format("get_group", 0), CODE, torch=">=2.2")
    check_manual(text.format("get_dim_groups", 0), CODE, "needs torch>=2.2", torch=">=2.1")
    check_manual(text.format("get_dim_groups", ""), CODE, "needs torch>=2.4", torch=">=2.3")
    assert [one.severity for one in lint(text.format("get_dim_groups", 0), CODE, ">=2.1,<2.4")] == [Severity.BREAKS]
    check_noop(text.format("get_dim_groups", 0), CODE, torch=">=2.0,<2.2")


@pytest.mark.parametrize("mesh", ["mesh", "args.mesh", "self.mesh", "build(args)", "meshes[0]"])
def test_the_old_method_of_an_object_of_unknown_class_is_unsafe(mesh: str) -> None:
    text = f"{OLD}def f(self, mesh, args, meshes):\n    return {mesh}.{{}}(0)\n"
    before, after = text.format("get_dim_groups"), text.format("get_group")
    check_transformed(before, after, CODE, unsafe=True, torch=">=2.2")
    (found,) = lint(before, CODE, ">=2.2")
    assert found.reason == f"nothing in this file says that `{mesh}` is a `DeviceMesh`"
    check_manual(f"{OLD}def f(self, mesh, args, meshes):\n    return {mesh}._dim_group_infos\n", CODE, "group_name")


@pytest.mark.parametrize("head", ["def f(mesh: Topology):\n", "def f():\n    mesh = Topology()\n"])
def test_the_old_name_of_another_class_is_left_alone(head: str) -> None:
    check_noop(f"{OLD}from topology import Topology\n{head}    return mesh.get_dim_groups(0)\n", CODE, torch=">=2.2")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def f(mesh: DeviceMesh, dim=None):\n    return mesh.get_dim_groups(dim)\n", "if this is None"),
        ("def f(mesh: DeviceMesh):\n    return mesh.get_dim_groups\n", "the list of all"),
        ("def f(mesh: DeviceMesh, dims):\n    return mesh.get_dim_groups(*dims)\n", "the list of all"),
        ("def f(mesh: DeviceMesh):\n    return mesh.get_dim_groups(  # all\n    )\n", "a comment is inside the call"),
    ],
)
def test_what_may_be_either_is_manual(text: str, reason: str) -> None:
    check_manual(OLD + text, CODE, reason, torch=">=2.4")


def test_it_speaks_for_the_general_rule() -> None:
    text = f"{OLD}def f(mesh: DeviceMesh):\n    return mesh.get_dim_groups(0)\n"
    assert [one.code for one in lint(text, "FSDP", ">=2.5") if one.line == 3] == [CODE]
    attribute = (
        f"{OLD}class A:\n    def f(self):\n        self.m = DeviceMesh('cuda', r)\n        self.m.get_dim_groups(0)\n"
    )
    assert [one.line for one in lint(attribute, CODE, ">=2.5")] == [5]


@pytest.mark.parametrize("annotation", ["Optional[DeviceMesh]", "DeviceMesh | None", "'DeviceMesh'"])
def test_other_members_are_seen_through_such_annotations_too(annotation: str) -> None:
    text = f"{OLD}def f(mesh: {annotation}):\n    return mesh.get_coordinate_on_dim(0)\n"
    assert [one.line for one in lint(text, "FSDP600", ">=2.2")] == [3]


@pytest.mark.parametrize(
    "bound",
    [
        "self.mesh = mesh",
        "self.mesh = init_device_mesh('cuda', (2, 4))",
        "self.mesh: DeviceMesh = build()",
        "self.mesh = None\n        self.mesh = mesh",
    ],
)
def test_an_attribute_holds_the_mesh_that_it_is_given(bound: str) -> None:
    text = (
        f"{IMPORT}class A:\n    def __init__(self, mesh: DeviceMesh):\n        {bound}\n\n"
        "    def f(self):\n        dp, tp = self.mesh.{}()\n"
    )
    check_transformed(text.format("get_group"), text.format("get_all_groups"), CODE, torch=">=2.4")
    other = text.replace("dp, tp", "self.mesh = other\n        dp, tp").format("get_group")
    assert lint(other, CODE, ">=2.4") == ()


def test_a_name_is_a_mesh_by_its_annotation() -> None:
    text = f"{IMPORT}mesh: DeviceMesh = build()\ndp, tp = mesh.{{}}()\n"
    check_transformed(text.format("get_group"), text.format("get_all_groups"), CODE, torch=">=2.4")


@pytest.mark.parametrize("text", ["a = b\nb = a\n", "a = a\n", "a: 'DeviceMesh |' = a\n", "import a\n", "a.b = a.b\n"])
def test_names_that_are_bound_to_each_other_are_no_mesh(text: str) -> None:
    check_noop(f"{IMPORT}{text}x, y = a.get_group()\nx, y = a.b.get_group()\n", CODE, torch=">=2.4")


def test_the_private_tuples_of_groups_are_gone() -> None:
    text = f"{IMPORT}mesh = init_device_mesh('cuda', (8,))\ntag, ranks, name = mesh._dim_group_infos[0]\n"
    check_manual(text, CODE, "`group_name`", torch=">=2.3")
    assert lint(text, CODE, ">=2.3")[0].severity is Severity.BREAKS
    check_noop(text, CODE, torch=">=2.3,<2.8")
    check_noop(f"{IMPORT}def f(mesh: DeviceMesh):\n    return mesh.get_group(0) or mesh._dim_group_names\n", CODE)
    check_noop(f"{IMPORT}def f(mesh: Mesh):\n    return mesh._dim_group_infos\n", CODE)


def test_dimensions_of_a_mesh_are_a_mesh() -> None:
    text = "from torch.distributed.device_mesh import init_device_mesh\nmesh = init_device_mesh('cpu', (2, 2))\n"
    check_transformed(text + "mesh['dp'].get_dim_groups(0)\n", text + "mesh['dp'].get_group(0)\n", CODE, torch=">=2.4")

from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability, Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

TENSOR = "torch.distributed.tensor"
OLD_TENSOR = "torch.distributed._tensor"
COMPOSABLE = "torch.distributed._composable.fsdp"
FSDP = "torch.distributed.fsdp"
GUARDED = """\
try:
    from torch.distributed.tensor.debug import CommDebugMode
except ImportError:
    from torch.distributed._tensor.debug import CommDebugMode
"""


def severities(text: str, select: str = "FSDP6", torch: str = ">=2.1") -> list[tuple[str, str]]:
    return [(finding.code, finding.severity.value) for finding in lint(text, select, torch)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"from {OLD_TENSOR}.debug import CommDebugMode\n", f"from {TENSOR}.debug import CommDebugMode\n"),
        (f"from {OLD_TENSOR}.debug import CommDebugMode as C\n", f"from {TENSOR}.debug import CommDebugMode as C\n"),
        (
            f"from {OLD_TENSOR}.debug import (\n    CommDebugMode,  # counts\n)\n",
            f"from {TENSOR}.debug import (\n    CommDebugMode,  # counts\n)\n",
        ),
        (
            f"def f():\n\tfrom {OLD_TENSOR}.debug import CommDebugMode; return CommDebugMode\n",
            f"def f():\n\tfrom {TENSOR}.debug import CommDebugMode; return CommDebugMode\n",
        ),
        (
            f"from {OLD_TENSOR} import debug\nx = debug.CommDebugMode\n",
            f"from {TENSOR} import debug\nx = debug.CommDebugMode\n",
        ),
        (
            f"import {OLD_TENSOR}.debug as d\nx = d.CommDebugMode\n",
            f"import {TENSOR}.debug as d\nx = d.CommDebugMode\n",
        ),
        (
            f"import {OLD_TENSOR}.debug\nx = {OLD_TENSOR}.debug.CommDebugMode\n",
            f"import {TENSOR}.debug\nx = {TENSOR}.debug.CommDebugMode\n",
        ),
        (
            "import torch.distributed as dist\n\ndef f():\n    return dist._tensor.debug.CommDebugMode()\n",
            "import torch.distributed as dist\n\ndef f():\n    return dist.tensor.debug.CommDebugMode()\n",
        ),
        (
            f"from {OLD_TENSOR}.api import Shard, DTensor\n",
            f"from {TENSOR} import Shard, DTensor\n",
        ),
        (f"from {OLD_TENSOR}.random import manual_seed\n", f"from {TENSOR}._random import manual_seed\n"),
    ],
)
def test_a_name_that_is_gone_is_taken_from_its_new_place(before: str, after: str) -> None:
    check_transformed(before, after, "FSDP601", torch=">=2.5")
    assert [(f.severity, f.applicability) for f in lint(before, "FSDP601", ">=2.5")] == [
        (Severity.BREAKS, Applicability.SAFE)
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"from {OLD_TENSOR}.debug import CommDebugMode\n", GUARDED),
        (
            f"class C:\n\tdef f(self):\n\t\tfrom {OLD_TENSOR}.debug import CommDebugMode as M\n\t\treturn M\n",
            f"class C:\n\tdef f(self):\n\t\ttry:\n\t\t\tfrom {TENSOR}.debug import CommDebugMode as M\n"
            f"\t\texcept ImportError:\n\t\t\tfrom {OLD_TENSOR}.debug import CommDebugMode as M\n\t\treturn M\n",
        ),
        (
            f"import {OLD_TENSOR}.debug as d\nx = d.CommDebugMode\n",
            f"try:\n    import {TENSOR}.debug as d\nexcept ImportError:\n    import {OLD_TENSOR}.debug as d\n"
            "x = d.CommDebugMode\n",
        ),
        (
            f"from {OLD_TENSOR}.placement_types import Shard, _Partial\np = [_Partial()]\n",
            f"try:\n    from {TENSOR} import Shard, Partial as _Partial\nexcept ImportError:\n"
            f"    from {OLD_TENSOR}.placement_types import Shard, _Partial\np = [_Partial()]\n",
        ),
        (
            f"from {OLD_TENSOR}.placement_types import (\n    Shard,\n    _Partial,\n)\n",
            f"try:\n    from {TENSOR} import (\n        Shard,\n        Partial as _Partial,\n    )\n"
            f"except ImportError:\n    from {OLD_TENSOR}.placement_types import (\n        Shard,\n"
            f"        _Partial,\n    )\n",
        ),
    ],
)
def test_where_the_range_needs_both_places_the_import_tries_both(before: str, after: str) -> None:
    check_transformed(before, after, "FSDP601")


def test_what_is_nowhere_in_the_range_any_more_needs_no_guard() -> None:
    check_transformed(
        f"from {FSDP}._utils import _apply_to_tensors\n",
        "from torch.distributed.utils import _apply_to_tensors\n",
        "FSDP604",
    )
    check_transformed(
        f"from {FSDP}._utils import _apply_to_tensors\n",
        "try:\n    from torch.distributed.utils import _apply_to_tensors\n"
        f"except ImportError:\n    from {FSDP}._utils import _apply_to_tensors\n",
        "FSDP604",
        torch=">=2.0",
    )


@pytest.mark.parametrize(
    "text",
    [
        GUARDED,
        f"try:\n    from {OLD_TENSOR}.debug import CommDebugMode\nexcept ImportError:\n    CommDebugMode = None\n",
        f"try:\n    from {OLD_TENSOR}.debug import CommDebugMode\nexcept Exception:\n    pass\n",
        f"import contextlib\nwith contextlib.suppress(ImportError):\n"
        f"    from {OLD_TENSOR}.debug import CommDebugMode\n",
        "import torch\nfrom packaging.version import Version\nif Version(torch.__version__) < Version('2.5'):\n"
        f"    from {OLD_TENSOR}.debug import CommDebugMode\nelse:\n    from {TENSOR}.debug import CommDebugMode\n",
        "from ._tensor import DTensor\nfrom mine.torch.distributed._tensor import Shard\n",
        "x._tensor.DTensor\n",
        "from torch.distributed._composable import replicate\n",
        f"from {COMPOSABLE} import fully_shard\n",
    ],
)
def test_what_is_guarded_or_right_or_something_else_is_left_alone(text: str) -> None:
    for code in ("FSDP601", "FSDP602", "FSDP603", "FSDP604", "FSDP605", "FSDP607"):
        check_noop(text, code)


def test_a_handler_that_only_raises_is_no_fallback_for_what_is_gone() -> None:
    text = (
        f"try:\n    from {OLD_TENSOR}.debug import CommDebugMode\nexcept ImportError as e:\n"
        f"    raise RuntimeError from e\n"
    )
    assert severities(text, "FSDP601") == [("FSDP601", "breaks")]


def test_while_the_old_place_works_everywhere_it_is_a_hint() -> None:
    text = f"from {OLD_TENSOR} import DTensor, Shard\nx = DTensor, Shard\n"
    (finding,) = lint(text, "FSDP601", ">=2.5")
    assert (finding.severity, finding.applicability) == (Severity.HINT, Applicability.SAFE)
    assert "`DTensor`, `Shard`" in finding.message
    check_transformed(text, text.replace("_tensor", "tensor"), "FSDP601", torch=">=2.5")
    check_manual(text, "FSDP601", "torch 2.4 does not have the new one yet", torch=">=2.1")


def test_a_hint_is_given_for_code_that_every_release_runs_only() -> None:
    text = f"try:\n    from {TENSOR} import DTensor\nexcept ImportError:\n    from {OLD_TENSOR} import DTensor\n"
    assert lint(text, "FSDP601") == ()


def test_names_with_several_new_places_are_taken_from_each() -> None:
    check_transformed(
        f"from {OLD_TENSOR} import DeviceMesh, DTensor, init_device_mesh\n",
        f"from torch.distributed.device_mesh import DeviceMesh, init_device_mesh\nfrom {TENSOR} import DTensor\n",
        "FSDP60",
        torch=">=2.5",
    )


def test_only_what_has_moved_leaves_a_mixed_import() -> None:
    check_transformed(
        f"from {FSDP}.fully_sharded_data_parallel import FullyShardedDataParallel, clean_tensor_name\n",
        f"from {FSDP}._common_utils import clean_tensor_name\n"
        f"from {FSDP}.fully_sharded_data_parallel import FullyShardedDataParallel\n",
        "FSDP604",
    )


def test_a_new_name_is_used_everywhere_if_nothing_else_has_it() -> None:
    before = f"from {COMPOSABLE} import FSDP\n\ndef f(m):\n    return isinstance(m, (FSDP, int)), [FSDP for _ in m]\n"
    after = (
        f"from {FSDP} import FSDPModule\n\ndef f(m):\n"
        f"    return isinstance(m, (FSDPModule, int)), [FSDPModule for _ in m]\n"
    )
    check_transformed(before, after, "FSDP602", torch=">=2.6")


@pytest.mark.parametrize(
    "rest",
    [
        "\ndef f(m, FSDPModule):\n    return FSDP\n",
        "\n__all__ = ['FSDP']\n",
        "\nx = 1\n",
        "\nFSDPModule = 1\nx = FSDP\n",
        "\nx = f'{FSDP}'\n",
        "\ndef f(m: 'FSDP'): ...\n",
    ],
)
def test_where_the_new_name_may_clash_the_old_one_stays_as_an_alias(rest: str) -> None:
    check_transformed(
        f"from {COMPOSABLE} import FSDP\n{rest}",
        f"from {FSDP} import FSDPModule as FSDP\n{rest}",
        "FSDP602",
        torch=">=2.6",
    )


def test_the_place_in_between_is_taken_where_more_releases_have_it() -> None:
    check_transformed(
        f"from {COMPOSABLE} import FSDP as F\n",
        f"try:\n    from {COMPOSABLE} import FSDPModule as F\nexcept ImportError:\n"
        f"    from {COMPOSABLE} import FSDP as F\n",
        "FSDP602",
        torch=">=2.3",
    )


@pytest.mark.parametrize(
    ("text", "reason", "torch"),
    [
        (f"from {OLD_TENSOR} import debug\nf(debug)\n", "used as a module", ">=2.5"),
        (f"from {OLD_TENSOR}.debug import *\n", "a star import", ">=2.5"),
        (f"import {OLD_TENSOR}.debug\n", "import the names that you use", ">=2.1"),
        (
            "import torch.distributed as d\nx = d._tensor.debug.CommDebugMode\n",
            "so that the import can try both places",
            ">=2.1",
        ),
        (
            "import torch.distributed as d\nx = f'{d._tensor.debug.CommDebugMode}'\n",
            "inside an f-string",
            ">=2.5",
        ),
        (
            f"import {FSDP} as f\nx = f._utils._apply_to_tensors\n",
            "`torch.distributed.utils._apply_to_tensors` cannot be reached through",
            ">=2.1",
        ),
        (f"import os; from {OLD_TENSOR}.debug import CommDebugMode\n", "shares its line", ">=2.1"),
        (f"from unittest import mock\nmock.patch('{OLD_TENSOR}.debug.CommDebugMode')\n", "a name in a string", ">=2.1"),
        (
            f"from torch.distributed import ReduceOp\nfrom {OLD_TENSOR}.placement_types import _Partial\n"
            "x = _Partial(ReduceOp.SUM)\n",
            "takes the name of the reduction",
            ">=2.1",
        ),
        (
            f"from {OLD_TENSOR}.placement_types import _Partial\ndef f(op):\n    return _Partial(op)\n",
            "takes the name of the reduction",
            ">=2.5",
        ),
        (f"from {FSDP}._utils import _alloc_storage\nif _alloc_storage(t, s): ...\n", "returns nothing", ">=2.1"),
        (f"from {FSDP}._utils import _same_storage\n", "torch 2.1 and 2.2 have no such function", ">=2.1"),
        (
            f"from {FSDP}.fully_sharded_data_parallel import TrainingState_\nx = TrainingState_.FORWARD\n",
            "FORWARD_BACKWARD",
            ">=2.1",
        ),
        ("from torch.distributed._composable import fully_shard\n", "another function", ">=2.1"),
        ("from torch.distributed.tensor.parallel.fsdp import enable_2d_with_fsdp\n", "mesh['dp']", ">=2.1"),
        (f"import {COMPOSABLE}.fully_shard as f\nf(model)\n", "is not a module", ">=2.6"),
        (f"import {OLD_TENSOR}.experimental.local_map as f\nf(model)\n", "is not a module", ">=2.6"),
    ],
)
def test_what_cannot_be_rewritten_is_reported_with_the_reason(text: str, reason: str, torch: str) -> None:
    check_manual(text, "FSDP60", reason, torch)


def test_a_function_whose_result_changed_moves_where_the_result_is_not_used() -> None:
    check_transformed(
        f"from {FSDP}._utils import _alloc_storage\n_alloc_storage(t, s)\n",
        "from torch.distributed.utils import _alloc_storage\n_alloc_storage(t, s)\n",
        "FSDP604",
    )


def test_an_enumeration_moves_where_only_common_members_are_used() -> None:
    check_transformed(
        f"from {FSDP}.fully_sharded_data_parallel import TrainingState_\nx = TrainingState_.IDLE\n",
        f"from {FSDP}._common_utils import TrainingState\nx = TrainingState.IDLE\n",
        "FSDP604",
    )


def test_a_placement_gets_the_name_of_its_reduction() -> None:
    text = "from {} import {}\nx = [{}({}), {}(reduce_op={}), {}()]\n"
    check_transformed(
        "import torch.distributed as dist\n"
        + text.format(
            f"{OLD_TENSOR}.placement_types",
            "_Partial",
            "_Partial",
            "dist.ReduceOp.AVG",
            "_Partial",
            "dist.ReduceOp.MAX",
            "_Partial",
        ),
        text.format(TENSOR, "Partial", "Partial", '"avg"', "Partial", '"max"', "Partial"),
        "FSDP601",
        torch=">=2.5",
    )


def test_a_name_whose_parameters_changed_is_moved_on_request_only() -> None:
    text = f"from {COMPOSABLE}._fsdp_param import FSDPParam\n"
    (finding,) = lint(text, "FSDP602", ">=2.6")
    assert finding.applicability is Applicability.UNSAFE
    assert "has other parameters" in (finding.reason or "")
    check_transformed(
        text, f"from {FSDP}._fully_shard._fsdp_param import FSDPParam\n", "FSDP602", unsafe=True, torch=">=2.6"
    )


def test_the_deprecated_package_and_its_chains_move_together() -> None:
    old, new = "torch.distributed._shard.checkpoint", "torch.distributed.checkpoint"
    text = "import {0}\n\ndef save(sd):\n    {0}.save_state_dict(sd, {0}.FileSystemWriter('x'))\n"
    check_transformed(text.format(old), text.format(new), "FSDP605")
    assert severities(text.format(old)) == [("FSDP605", "deprecated")]


def test_modules_of_a_deprecated_package_are_deprecated_too() -> None:
    text = "from torch.distributed._shard.checkpoint.filesystem import FileSystemWriter\n"
    assert severities(text) == [("FSDP605", "deprecated")]
    check_transformed(text, text.replace("_shard.", ""), "FSDP605")
    check_transformed(
        text,
        "try:\n    from torch.distributed.checkpoint.filesystem import FileSystemWriter\nexcept ImportError:\n    "
        + text,
        "FSDP605",
        torch=">=1.13",
    )


@pytest.mark.parametrize(
    ("text", "torch", "severity"),
    [
        ("from torch.distributed._composable import fully_shard\n", ">=2.1", "breaks"),
        ("from torch.distributed._composable.fully_shard import fully_shard\n", ">=2.1", "breaks"),
        ("import torch.distributed._composable.fully_shard\n", ">=2.1", "breaks"),
        ("import torch\nx = torch.distributed._composable.fully_shard\n", ">=2.1", "breaks"),
        ("from torch.distributed._composable import fully_shard\n", ">=2.1,<2.6", "deprecated"),
        ("from torch.distributed._composable import fully_shard\n", ">=2.0,<2.3", None),
    ],
)
def test_the_first_fully_shard_is_never_taken_for_the_second(text: str, torch: str, severity: str | None) -> None:
    assert severities(text, "FSDP607", torch) == ([("FSDP607", severity)] if severity else [])
    assert lint(text, "FSDP602", torch) == ()
    assert lint(f"from {COMPOSABLE} import fully_shard\n", "FSDP607", torch) == ()


def test_only_type_checkers_see_it_is_a_hint_without_a_guard() -> None:
    text = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {OLD_TENSOR}.debug import CommDebugMode\n"
    assert severities(text, "FSDP601") == [("FSDP601", "hint")]
    check_manual(text, "FSDP601", "for type checkers only")
    check_transformed(text, text.replace("_tensor", "tensor"), "FSDP601", torch=">=2.5")


def test_where_the_new_place_is_not_there_yet_the_old_one_is_right() -> None:
    check_noop("from torch.distributed._shard.checkpoint import FileSystemReader\n", "FSDP605", torch=">=1.13,<2.0")
    check_noop(f"from {OLD_TENSOR} import DTensor\n", "FSDP601", torch=">=2.1,<2.5")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "if x: from torch.distributed._tensor.debug import CommDebugMode\n",
            "if x: from torch.distributed.tensor.debug import CommDebugMode\n",
        ),
        (
            "class A:\n    from torch.distributed._tensor.debug import CommDebugMode\n    mode = CommDebugMode\n",
            "class A:\n    from torch.distributed.tensor.debug import CommDebugMode\n    mode = CommDebugMode\n",
        ),
        (
            "try:\n    from torch.distributed._tensor.debug import CommDebugMode\nfinally:\n    x = 1\n",
            "try:\n    from torch.distributed.tensor.debug import CommDebugMode\nfinally:\n    x = 1\n",
        ),
        (
            "from torch.distributed._tensor.debug \\\n    import CommDebugMode\n",
            "from torch.distributed.tensor.debug import CommDebugMode\n",
        ),
        (
            "from torch.distributed._tensor.debug import CommDebugMode\r\nx = 1\r\n",
            "from torch.distributed.tensor.debug import CommDebugMode\r\nx = 1\r\n",
        ),
    ],
)
def test_the_layout_of_an_import_stays(before: str, after: str) -> None:
    check_transformed(before, after, "FSDP601", torch=">=2.5")


def test_a_guard_takes_the_newlines_of_the_file() -> None:
    text = "from torch.distributed._tensor.debug import CommDebugMode\r\nx = 1\r\n"
    check_transformed(text, GUARDED.replace("\n", "\r\n") + "x = 1\r\n", "FSDP601")


def test_what_is_too_new_for_the_range_is_not_this_tables_matter() -> None:
    assert severities(f"from {COMPOSABLE} import fully_shard\n", "FSDP602", ">=2.1") == []
    assert severities(f"from {COMPOSABLE} import fully_shard\n", "FSDP6", ">=2.1") == [("FSDP600", "breaks")]


def test_a_name_that_is_newer_than_the_whole_range_is_not_said_to_have_moved() -> None:
    text = "from torch.distributed._composable.fsdp import FSDP\nisinstance(module, FSDP)\n"
    assert [finding.code for finding in lint(text, "FSDP6", torch=">=1.13,<2.2")] == ["FSDP600"]


def test_what_no_release_ever_had_is_not_said_to_have_moved() -> None:
    text = "from torch.distributed._tensor.ops._einsum_strategy import EinsumDims\n"
    assert severities(text, "FSDP6", ">=2.2") == [("FSDP600", "breaks")]


def test_an_import_from_a_class_that_moved_is_left_as_wrong_as_it_is() -> None:
    text = "from torch.distributed._shard.checkpoint.storage.StorageReader import read_metadata as read\n"
    check_noop(text, "FSDP605", torch=">=2.6")


PARTIAL = "from torch.distributed._tensor.placement_types import _Partial"


def test_an_import_goes_that_only_an_argument_of_the_old_form_used() -> None:
    for import_, operation in (
        ("import torch.distributed as dist", "dist.ReduceOp"),
        ("from torch.distributed import ReduceOp", "ReduceOp"),
    ):
        check_transformed(
            f"{import_}\n{PARTIAL}\nx = _Partial({operation}.MAX)\n",
            'from torch.distributed.tensor import Partial\nx = Partial("max")\n',
            "FSDP601",
            torch=">=2.6",
        )


def test_a_moved_name_that_getattr_reads_is_told_at_its_string() -> None:
    head = "from torch.distributed.fsdp import fully_sharded_data_parallel as m\n"
    name = "_get_param_to_unflat_param_names"
    check_manual(f"{head}f = getattr(m, '{name}')\n", "FSDP604", "a name in a string is not rewritten")
    check_noop(f"{head}f = getattr(m, '{name}', None)\n", "FSDP604")
    # What it is read off has moved as a whole, which is told where that is imported.
    text = "from torch.distributed import _tensor\nshard = getattr(_tensor, 'Shard')\n"
    assert [(one.code, one.line) for one in lint(text, "FSDP6")] == [("FSDP601", 1)]


def test_a_stand_in_that_others_may_take_from_here_stays() -> None:
    text = f"import {OLD_TENSOR} as dt\n"
    check_manual(text, "FSDP601", "this file does not use `dt`", ">=2.1")
    check_transformed(
        f"def f():\n    {text}", f"def f():\n    import {TENSOR} as dt\n", "FSDP601", torch=">=2.5"
    )  # nobody takes it from there
    check_manual(f"def f():\n    global dt\n    {text}", "FSDP601", "this file does not use `dt`", ">=2.1")
    check_transformed(f"{text}dt.DTensor\n", f"import {TENSOR} as dt\ndt.DTensor\n", "FSDP601", torch=">=2.5")


@pytest.mark.parametrize("change", ["_init_default_fully_shard_mesh.__code__ = f.__code__", "DeviceMesh.x += 1"])
def test_what_a_chain_is_given_an_attribute_of_moves_as_what_is_read(change: str) -> None:
    before = f"import torch\n\ndef patch(f):\n    torch.distributed._composable.fsdp._fsdp_init.{change}\n"
    after = f"import torch\n\ndef patch(f):\n    torch.distributed.fsdp._fully_shard._fsdp_init.{change}\n"
    check_transformed(before, after, "FSDP602", torch=">=2.6")


def test_a_plain_import_moves_with_the_chains_that_only_patch_something() -> None:
    old, new = f"{COMPOSABLE}._fsdp_init", f"{FSDP}._fully_shard._fsdp_init"
    text = "import {0}\n\n{0}._init_default_fully_shard_mesh.__code__ = print\n"
    check_transformed(text.format(old), text.format(new), "FSDP602", torch=">=2.6")


@pytest.mark.parametrize(
    "text",
    [
        "import torch.distributed._sharded_tensor\n\ntorch.distributed._sharded_tensor.empty = print\n",
        "import torch.distributed as dist\n\ndist._sharded_tensor.empty = print\n",
        "import torch.distributed as dist\n\ndel dist._sharded_tensor.empty\n",
    ],
)
def test_a_module_that_the_file_patches_stays(text: str) -> None:
    check_manual(
        text, "FSDP605", "the file replaces an attribute of `torch.distributed._sharded_tensor`", torch=">=2.2"
    )


@pytest.mark.parametrize("head", [f"import {OLD_TENSOR}\n", "import torch\n"])
def test_a_chain_that_ends_at_a_module_stays_since_anything_of_it_may_be_used(head: str) -> None:
    check_manual(f"{head}mod = {OLD_TENSOR}\n", "FSDP601", "is used as a module", ">=2.5")
    check_transformed(
        f"{head}x = {OLD_TENSOR}.DTensor\n", f"{head.replace('_', '')}x = {TENSOR}.DTensor\n", "FSDP601", torch=">=2.5"
    )

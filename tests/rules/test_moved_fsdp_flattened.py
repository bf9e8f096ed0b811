from __future__ import annotations

import pytest
from packaging.version import Version

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.rules.moved_fsdp_flattened import HOME, NAMES
from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.torch_api.data import exists
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

OLD = "from torch.distributed.fsdp._utils import"
NEW = "from torch.distributed.fsdp._common_utils import"
TEST = 'getattr(p, "_fsdp_flattened", False)'


@pytest.mark.parametrize("name", NAMES)
def test_the_new_home_has_the_names_since_2_0(name: str) -> None:
    for release in RELEASES:
        assert exists(f"{HOME}.{name}", release) is (release >= Version("2.0"))
        old = exists(f"torch.distributed.fsdp._utils.{name}", release)
        assert old is (release.release[:2] == (1, 13))


@pytest.mark.parametrize("module", ["_utils", "fully_sharded_data_parallel", "_wrap_utils"])
def test_calls_become_the_attribute_test_and_the_import_goes(module: str) -> None:
    before = (
        f"from torch.distributed.fsdp.{module} import _is_fsdp_flattened\n\n\ndef f(p, q):\n    return not {{}}, {{}}\n"
    )
    after = "def f(p, q):\n    return not {}, {}\n"
    other = TEST.replace("(p", "(q")
    check_transformed(
        before.format("_is_fsdp_flattened(p)", "_is_fsdp_flattened(tensor=q)"), after.format(TEST, other), "FSDP304"
    )
    (finding,) = lint(before.format("_is_fsdp_flattened(p)", ""), "FSDP304")
    assert (finding.severity, finding.applicability) == (Severity.BREAKS, Applicability.SAFE)
    assert f"`torch.distributed.fsdp.{module}` has no `_is_fsdp_flattened` since torch 2.0" in finding.message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            f"{OLD} FSDP_FLATTENED\nx = hasattr(p, FSDP_FLATTENED)\n",
            f"{NEW} FSDP_FLATTENED\nx = hasattr(p, FSDP_FLATTENED)\n",
        ),
        (f"{OLD} _set_fsdp_flattened as mark\nmark(p)\n", f"{NEW} _set_fsdp_flattened as mark\nmark(p)\n"),
        (
            f"{OLD} _is_fsdp_flattened\nx = list(filter(_is_fsdp_flattened, ps)), _is_fsdp_flattened(p)\n",
            f"{NEW} _is_fsdp_flattened\nx = list(filter(_is_fsdp_flattened, ps)), {TEST}\n",
        ),
        (
            f"{OLD} FSDP_FLATTENED, _is_fsdp_flattened\nx = FSDP_FLATTENED, _is_fsdp_flattened(p)\n",
            f"{NEW} FSDP_FLATTENED\nx = FSDP_FLATTENED, {TEST}\n",
        ),
        (
            f"{OLD} _apply_to_tensors, _is_fsdp_flattened\nx = _apply_to_tensors, _is_fsdp_flattened(p)\n",
            f"{OLD} _apply_to_tensors\nx = _apply_to_tensors, {TEST}\n",
        ),
        (
            f"def f(p):\n    {OLD} _apply_to_tensors, FSDP_FLATTENED\n    return _apply_to_tensors, FSDP_FLATTENED\n",
            f"def f(p):\n    {NEW} FSDP_FLATTENED\n    {OLD} _apply_to_tensors\n"
            "    return _apply_to_tensors, FSDP_FLATTENED\n",
        ),
        (
            f"{OLD} _is_fsdp_flattened\nx = f'{{_is_fsdp_flattened(p)}}'\n",
            f"{NEW} _is_fsdp_flattened\nx = f'{{_is_fsdp_flattened(p)}}'\n",
        ),
        (
            f"try:\n    {OLD} _is_fsdp_flattened\nexcept ImportError:\n    pass\nx = _is_fsdp_flattened(p)\n",
            f"try:\n    {NEW} _is_fsdp_flattened\nexcept ImportError:\n    pass\nx = {TEST}\n",
        ),
    ],
)
def test_what_is_used_as_a_value_keeps_an_import(before: str, after: str) -> None:
    check_transformed(before, after, "FSDP304")


@pytest.mark.parametrize(
    "text",
    [
        f"{NEW} _is_fsdp_flattened\nx = _is_fsdp_flattened(p)\n",
        "from torch.distributed.fsdp._init_utils import _is_fsdp_flattened\n",
        "from .._utils import _is_fsdp_flattened\n",
        "from mylib._utils import _is_fsdp_flattened\n",
        f"try:\n    {NEW} _is_fsdp_flattened\nexcept ImportError:\n    {OLD} _is_fsdp_flattened\n",
        f"try:\n    {OLD} _is_fsdp_flattened\nexcept ImportError:\n    {NEW} _is_fsdp_flattened\n",
        "x = getattr(p, '_fsdp_flattened', False)\n",
    ],
)
def test_the_right_place_is_left_alone(text: str) -> None:
    check_noop(text, "FSDP304")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "from torch.distributed.fsdp import fully_sharded_data_parallel as f\nx = f._is_fsdp_flattened(p)\n",
            "or import the name from `torch.distributed.fsdp._common_utils`",
        ),
        (f"import os; {OLD} _apply_to_tensors, FSDP_FLATTENED\nx = FSDP_FLATTENED\n", "shares its line"),
    ],
)
def test_what_cannot_be_written_is_manual(text: str, reason: str) -> None:
    check_manual(text, "FSDP304", reason)


def test_on_torch_1_13_alone_nothing_is_wrong() -> None:
    check_noop(f"{OLD} _is_fsdp_flattened\n", "FSDP304", torch=">=1.13,<2.0")
    check_manual(f"{OLD} _is_fsdp_flattened\nx = _is_fsdp_flattened(p)\n", "FSDP304", "torch>=2.0", torch=">=1.13")

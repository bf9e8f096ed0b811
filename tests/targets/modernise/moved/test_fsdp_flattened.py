from __future__ import annotations

import pytest
from packaging.version import Version

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.torch_api.data import exists
from tests.rules.checks import check_noop, check_transformed, lint

HOME = "torch.distributed.fsdp._common_utils"
OLD = "from torch.distributed.fsdp._utils import"
NEW = f"from {HOME} import"


@pytest.mark.parametrize("name", ["_is_fsdp_flattened", "_set_fsdp_flattened", "FSDP_FLATTENED"])
def test_the_new_home_has_the_names_since_2_0(name: str) -> None:
    for release in RELEASES:
        assert exists(f"{HOME}.{name}", release) is (release >= Version("2.0"))
        old = exists(f"torch.distributed.fsdp._utils.{name}", release)
        assert old is (release.release[:2] == (1, 13))


@pytest.mark.parametrize("module", ["_utils", "fully_sharded_data_parallel"])
def test_the_names_come_from_where_they_are(module: str) -> None:
    text = "from torch.distributed.fsdp.{} import _is_fsdp_flattened as flat\n\nx = filter(flat, ps), flat(p)\n"
    check_transformed(text.format(module), text.format("_common_utils"), "FSDP304")
    (finding,) = lint(text.format(module), "FSDP304")
    assert (finding.severity, finding.applicability) == (Severity.BREAKS, Applicability.SAFE)
    assert "is removed in torch 2.0" in finding.message


def test_names_of_other_rules_stay_in_the_import() -> None:
    check_transformed(
        f"def f(p):\n    {OLD} _apply_to_tensors, FSDP_FLATTENED\n    return _apply_to_tensors, FSDP_FLATTENED\n",
        f"def f(p):\n    {NEW} FSDP_FLATTENED\n    {OLD} _apply_to_tensors\n"
        "    return _apply_to_tensors, FSDP_FLATTENED\n",
        "FSDP304",
    )


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


def test_with_torch_1_13_the_import_tries_both() -> None:
    check_noop(f"{OLD} _is_fsdp_flattened\n", "FSDP304", torch=">=1.13,<2.0")
    check_transformed(
        f"{OLD} _is_fsdp_flattened\n",
        f"try:\n    {NEW} _is_fsdp_flattened\nexcept ImportError:\n    {OLD} _is_fsdp_flattened\n",
        "FSDP304",
        torch=">=1.13",
    )

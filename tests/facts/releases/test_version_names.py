from __future__ import annotations

import pytest
from packaging.version import Version

from fsdp_migrate.facts.releases import named_tests


@pytest.mark.parametrize(
    ("name", "operator", "version"),
    [
        ("_TORCH_GREATER_EQUAL_2_1", ">=", (2, 1)),
        ("_TORCH_GREATER_EQUAL_1_13", ">=", (1, 13)),
        ("_TORCH_GTE_2_1", ">=", (2, 1)),
        ("_TORCH_GREATER_2_1", ">", (2, 1)),
        ("_TORCH_LESSER_THAN_2_0", "<", (2, 0)),
        ("_TORCH_LESS_EQUAL_2_6", "<=", (2, 6)),
        ("_TORCH_LESSER_EQUAL_1_10_2", "<=", (1, 10, 2)),
        ("_TORCH_EQUAL_2_4_0", "==", (2, 4, 0)),
        ("TORCH_VERSION_GEQ_2_5_0", ">=", (2, 5, 0)),
        ("TORCH_2_1_AVAILABLE", ">=", (2, 1)),
        ("is_pytorch_2_0_or_later", ">=", (2, 0)),
        ("TORCH_1_13_OR_EARLIER", "<=", (1, 13)),
        ("HAS_TORCH_2_1", ">=", (2, 1)),
        ("using_torch_2", ">=", (2,)),
        ("is_torch2_available", ">=", (2,)),
        ("is_torch_greater_or_equal_than_2_1", ">=", (2, 1)),
        ("is_torch_greater_2_0", ">", (2, 0)),
        ("IS_TORCH_2", None, (2,)),
        ("TORCH_GE_113", ">=", (1, 13)),
        ("_IS_TORCH_GE_20", ">=", (2, 0)),
    ],
)
def test_constants_that_spell_out_a_version_test(name: str, operator: str | None, version: tuple[int, ...]) -> None:
    assert named_tests.constant(name) == named_tests.NamedTest(operator, version)


@pytest.mark.parametrize(
    "name",
    [
        "TORCH_2_1",
        "TORCH2",
        "TORCH_VERSION",
        "is_torch_available",
        "_XLA_GREATER_EQUAL_2_1",
        "_TORCHVISION_GREATER_EQUAL_0_14",
        "_TORCHMETRICS_GREATER_EQUAL_1_0_0",
        "_TORCH_XLA_AVAILABLE",
        "PYTHON_GREATER_EQUAL_3_10",
        "_LIGHTNING_GREATER_EQUAL_2_1",
    ],
)
def test_constants_that_do_not(name: str) -> None:
    assert named_tests.constant(name) is None


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("is_torch_greater_or_equal", ">="),
        ("is_torch_greater_or_equal_than", ">="),
        ("is_torch_version_geq", ">="),
        ("is_torch_min_version", ">="),
        ("torch_version_ge", ">="),
        ("is_torch_version_greater_than", ">"),
        ("is_torch_less_than", "<"),
        ("is_torch_less_or_equal", "<="),
        ("is_torch_version", None),
        ("is_torch_available", None),
        ("is_transformers_greater_or_equal", None),
    ],
)
def test_functions_that_compare_with_their_argument(name: str, operator: str | None) -> None:
    assert named_tests.function(name) == operator


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("torch_version", True),
        ("_torch_version", True),
        ("TORCH_VERSION", True),
        ("get_torch_version", True),
        ("torch_ver", True),
        ("get_torch_version_info", False),
        ("torchvision_version", False),
        ("version", False),
    ],
)
def test_names_that_hold_the_version(name: str, found: bool) -> None:
    assert named_tests.is_version(name) is found


def test_an_open_test_holds_only_where_every_reading_agrees() -> None:
    test = named_tests.NamedTest(None, (2, 1))
    assert [test.holds(Version(r)) for r in ("2.0.1", "2.1.2", "2.2.2")] == [False, True, None]

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fsdp_migrate.verify.worker.compare import compare  # noqa: E402
from fsdp_migrate.verify.worker.snapshot import take  # noqa: E402


def differences(before: Any, after: Any) -> list[tuple[str, str, str]]:
    found = compare([("x", take(before))], [("x", take(after))])
    return [(d.where, d.before, d.after) for d in found]


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([float("nan"), -0.0]),
        torch.zeros(0, 3),
        torch.tensor(3.0, dtype=torch.bfloat16),
        {"a": [1, (2.5, None)], "b": {3, 4}},
        {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1}]},
        object(),
    ],
)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert differences(value, value) == []


def test_a_snapshot_does_not_follow_the_value() -> None:
    live = {"state": torch.zeros(2)}
    frozen = take(live)
    live["state"] += 1
    assert [d.where for d in compare([("x", frozen)], [("x", take(live))])] == ["x['state'] element 0"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64), ("dtype of x", "torch.float32", "torch.float64")),
        (torch.zeros(2), torch.zeros(1, 2), ("shape of x", "(2,)", "(1, 2)")),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), ("x element 1", "2.0", "2.5")),
        (torch.tensor([0.0]), torch.tensor([-0.0]), ("x element 0", "0.0", "-0.0")),
        (
            torch.zeros(1),
            torch.nn.Parameter(torch.zeros(1)),
            ("x", "Tensor float32[1] [0.0]", "Parameter float32[1] [0.0]"),
        ),
        ({"a": 1}, {}, ("x", "dict with keys 'a'", "{}")),
        ({"a": 1, "b": 1}, {"a": 1, "c": 1}, ("keys of x", "only here: 'b'", "only here: 'c'")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ("order of keys of x", "'a', 'b'", "'b', 'a'")),
        ({1: 0}, {"1": 0}, ("keys of x", "only here: 1", "only here: '1'")),
        ([1], (1,), ("x", "list of 1: 1", "tuple of 1: 1")),
        ([1, 2], [1], ("x", "list of 2: 1, 2", "list of 1: 1")),
        ({"a": [1, 2]}, {"a": [1, 3]}, ("x['a'][1]", "2", "3")),
        (1, 1.0, ("x", "1", "1.0")),
        (True, 1, ("x", "True", "1")),
    ],
)
def test_each_kind_of_difference_is_told_with_its_place(before: Any, after: Any, told: tuple[str, str, str]) -> None:
    assert differences(before, after) == [told]


def test_order_counts_nowhere_inside_a_parameter_group_and_everywhere_else() -> None:
    def state(*keys: str) -> dict[str, Any]:
        return {"param_groups": [dict.fromkeys(keys, 1)], "state": {}}

    assert differences(state("lr", "eps"), state("eps", "lr")) == []
    assert differences({"g": [{"lr": 1, "eps": 1}]}, {"g": [{"eps": 1, "lr": 1}]}) == [
        ("order of keys of x['g'][0]", "'lr', 'eps'", "'eps', 'lr'")
    ]


def test_an_observation_of_one_side_only_and_another_order_are_differences() -> None:
    one, two = ("one", take(1)), ("two", take(2))
    assert [(d.name, d.before, d.after) for d in compare([one, two], [one])] == [("two", "2", "(not observed)")]
    assert [(d.name, d.before, d.after) for d in compare([one], [one, two])] == [("two", "(not observed)", "2")]
    assert [(d.before, d.after) for d in compare([one, two], [two, one])] == [("one, two", "two, one")]


def test_values_are_shortened_and_differences_are_limited() -> None:
    long = compare([("x", take("a" * 500))], [("x", take("b" * 500))])
    assert len(long[0].before) == 90
    assert len(compare([("x", take([0] * 50))], [("x", take([1] * 50))])) == 8

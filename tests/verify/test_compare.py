from __future__ import annotations

import array
import collections
import io
import threading
import types
import warnings
from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

from fsdp_migrate.verify.worker.compare import compare  # noqa: E402
from fsdp_migrate.verify.worker.snapshot import Unobservable, take  # noqa: E402

Holder = make_dataclass("Holder", ["held"])


class Silent:
    """An object that tells nothing of what it holds, and fails when asked."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __repr__(self) -> str:
        raise ValueError("no repr")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no eq")

    def __hash__(self) -> int:
        return 1


def quietly(make: Callable[..., Any], *arguments: Any) -> Any:
    """What `make` gives, without the warnings that torch has for kinds of tensors that it plans to change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*arguments)


def cycle() -> dict[str, Any]:
    made: dict[str, Any] = {"a": 1}
    made["self"] = [made]
    return made


def long(place: int | None = None) -> Any:
    """A tensor whose repr leaves out the element that may differ."""
    made = torch.arange(5000.0)
    if place is not None:
        made[place] = -1
    return made


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
        cycle(),
        Silent([1]),
        {(1, None): {None: 2}, Silent(1): 3, torch.ones(2): 4},
        torch.empty(2, device="meta"),
        quietly(torch.quantize_per_tensor, torch.ones(3), 0.1, 0, torch.quint8),
        quietly(torch.quantize_per_channel, torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.quint8),
        torch.eye(3).to_sparse(),
        quietly(torch.eye(3).to_sparse_csr),
        quietly(torch.eye(3).to_sparse_csc),
        quietly(torch.nested.nested_tensor, [torch.ones(2), torch.ones(3)]),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(2, dtype=torch.complex64).conj().imag,
        torch.ones(4).to(torch.float8_e4m3fn),
        torch.ones(3, 4).t(),
        numpy.array(["a", None], dtype=object),
        torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), 2),
        iter([1, 2]),
        torch.float32,
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
        ("a" * 200 + "b", "a" * 200 + "c", ("x", "..." + "a" * 10 + "b'", "..." + "a" * 10 + "c'")),
        (Holder(long()), Holder(long(9)), ("x['held'] element 9", "9.0", "-1.0")),
        (Silent(long()), Silent(long(9)), ("x['held'] element 9", "9.0", "-1.0")),
        (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2), ("x['a']", "1", "2")),
        (collections.deque([long()]), collections.deque([long(9)]), ("x[items][0] element 9", "9.0", "-1.0")),
        (
            collections.UserDict(a=long()),
            collections.UserDict(a=long(9)),
            ("x['data']['a'] element 9", "9.0", "-1.0"),
        ),
        (long().numpy(), long(9).numpy(), ("x element 9", "9.0", "-1.0")),
        (numpy.ones(1), numpy.ones(1) + 1e-12, ("x element 0", "1.0", "1.000000000001")),
        (memoryview(b"a"), memoryview(b"b"), ("x", "b'a'", "b'b'")),
        ({1: 2}.items(), {1: 3}.items(), ("x[0][1]", "2", "3")),
        ({"a": {long(): 1}}, {"a": {long(9): 1}}, ("x['a'][Tensor 0][0] element 9", "9.0", "-1.0")),
        (torch.nn.Linear(1, 1, bias=False).bfloat16(), torch.nn.Linear(1, 1, bias=False), None),
        (torch.optim.SGD([long()], lr=0.1), torch.optim.SGD([long(9)], lr=0.1), None),
        (array.array("d", [1.0]), array.array("d", [2.0]), None),
        (io.BytesIO(b"a"), io.BytesIO(b"b"), None),
        (Holder(1), make_dataclass("Holder", ["held"], namespace={"__module__": "elsewhere"})(1), None),
        (torch.ones(2), torch.ones(2).requires_grad_(), ("requires_grad of x", "False", "True")),
        (torch.eye(3).to_sparse(), 2 * torch.eye(3).to_sparse(), ("x[values] element 0", "1.0", "2.0")),
        (
            quietly(torch.quantize_per_tensor, torch.ones(3), 0.1, 0, torch.quint8),
            quietly(torch.quantize_per_tensor, torch.ones(3) * 2, 0.2, 0, torch.quint8),
            ("x[scheme][1]", "0.1", "0.2"),
        ),
    ],
)
def test_each_kind_of_difference_is_told_with_its_place(
    before: Any, after: Any, told: tuple[str, str, str] | None
) -> None:
    assert differences(before, after)[:1] == [told] if told else differences(before, after)


@pytest.mark.parametrize("value", [(part for part in [1]), [{"a": lambda: 1}], threading.Lock()])
def test_what_has_no_exact_copy_is_refused(value: Any) -> None:
    with pytest.raises(Unobservable, match="cannot be compared"):
        take(value)


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

"""What counts as a difference, and what only looks like one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

from fsdp_migrate.prove import differences, numbers, telling
from fsdp_migrate.prove.differences import Difference
from fsdp_migrate.prove.pairs import pairs
from fsdp_migrate.prove.records import Run
from tests.prove.made import Recorder, mapping, value

Tree = dict[str, Any]
EYE = numpy.arange(8, dtype="float32").reshape(4, 2)


def saved(folder: Path, *trees: Any, api: str = "torch.save", path: str = "a.pt", kind: str = "save") -> Run:
    """A run in which each rank saves a tree, which it gets from a function of the recorder."""
    recorder = Recorder(folder, len(trees))
    for rank, tree in enumerate(trees):
        recorder.add(rank, kind, 1, api=api, path=path, tree=tree(recorder))
    return recorder.end()


def found(before: Run, after: Run) -> list[Difference]:
    return [difference.measured() for difference in differences.find(pairs(before, after))]


def told(before: Run, after: Run) -> list[str]:
    return [telling.line(difference).partition(": ")[2] for difference in found(before, after)]


def array(of: Any, **more: Any) -> Any:
    return lambda recorder: mapping({"w": recorder.tensor(of, **more)})


def plain(tree: Tree) -> Any:
    return lambda _: tree


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (array([1, 2]), array([1, 2.5]), "w, largest difference 0.5"),
        (array(2), array(5), "w, largest difference 3"),
        (array([1, 2]), array([1, 2, 3]), "shape of w, [2] -> [3]"),
        (array([1, 2]), array(numpy.array([1, 2], "float16"), dtype="float16"), "dtype of w, float32 -> float16"),
        (array([1]), array([1], device="cuda:0"), "device of w, cpu -> cuda:0"),
        (array([1]), array([1], kind="DTensor"), "kind of tensor of w, Tensor -> DTensor"),
        (array(2), plain(mapping({"w": value(2.0)})), "type of w, float32[] -> 2.0"),
        (plain(mapping({"a": value(1)})), plain(mapping({"a": value("1")})), "type of a, int 1 -> str 1"),
        (plain(mapping({"a": {"t": "list", "k": []}})), plain(mapping({"a": mapping({})})),
         "type of a, an empty list -> an empty dict"),
        (plain(mapping({"a": {"t": "list", "k": []}})), plain(mapping({"a": {"t": "list", "k": [["0", value(1)]]}})),
         "length of a, 0 -> 1"),
        (array([float("nan")]), array([1]), "w, largest difference inf"),
    ],
)  # fmt: skip
def test_a_difference_in_a_tree_is_told_by_its_path(before: Any, after: Any, line: str, tmp_path: Path) -> None:
    assert told(saved(tmp_path / "1", before), saved(tmp_path / "2", after)) == [line]


def test_the_order_of_keys_and_of_named_parameters_does_not_count(tmp_path: Path) -> None:
    def tree(*names: str) -> Tree:
        params = {"t": "list", "k": [[str(index), value(name)] for index, name in enumerate(names)]}
        groups = {"t": "list", "k": [["0", mapping({"params": params})]]}
        return mapping({"param_groups": groups, **{name: value(name) for name in names}})

    one, other = saved(tmp_path / "1", plain(tree("a", "b"))), saved(tmp_path / "2", plain(tree("b", "a")))
    assert not found(one, other)


def test_a_list_that_names_nothing_is_compared_in_its_order(tmp_path: Path) -> None:
    def tree(*numbers: int) -> Tree:
        return {"t": "list", "k": [[str(index), value(number)] for index, number in enumerate(numbers)]}

    lines = told(saved(tmp_path / "1", plain(tree(1, 2))), saved(tmp_path / "2", plain(tree(2, 1))))
    assert lines == ["0, 1 -> 2, difference 1", "1, 2 -> 1, difference 1"]


def test_a_file_of_another_name_or_format_is_compared_with_the_one_in_its_place(tmp_path: Path) -> None:
    before = saved(tmp_path / "1", array([1]))
    after = saved(tmp_path / "2", array([2]), path="b.pt", api="dcp.save")
    assert told(before, after) == [
        "name, a.pt -> b.pt",
        "written or read by, torch.save -> dcp.save",
        "w, largest difference 1",
    ]


def test_a_file_that_only_one_version_saves_is_told_once(tmp_path: Path) -> None:
    before = saved(tmp_path / "1", array([1]))
    assert told(before, saved(tmp_path / "2", array([1]), kind="load")) == ["only before", "only after"]


def rows(*parts: tuple[int, int], kind: str = "DTensor", of: Any = EYE) -> Any:
    return lambda recorder: mapping({"w": recorder.shards(of, *parts, kind=kind)})


def test_sharded_tensors_are_put_together_whatever_the_cut_and_the_wrapper(tmp_path: Path) -> None:
    one = saved(tmp_path / "1", rows((0, 2)), rows((2, 4)), api="dcp.save")
    other = saved(tmp_path / "2", rows((0, 3), kind="ShardedTensor"), rows((3, 4)), api="dcp.save")
    assert [difference.deviation for difference in found(one, other)] == [numbers.Deviation(0.0, 7.0, 0.0)] * 2
    whole = saved(tmp_path / "3", array(EYE), array(EYE), api="dcp.save")
    assert [difference.deviation for difference in found(one, whole)] == [numbers.Deviation(0.0, 7.0, 0.0)] * 2
    moved = saved(tmp_path / "4", rows((0, 2), of=EYE + 1), rows((2, 4)), api="dcp.save")
    (difference,) = found(one, moved)
    assert (difference.rank, difference.trait, difference.deviation) == (0, "value", numbers.Deviation(1.0, 7.0, 1.0))


def test_pieces_that_are_missing_leave_the_values_unknown(tmp_path: Path) -> None:
    one = saved(tmp_path / "1", rows((0, 2)), rows((2, 3)), api="dcp.save")
    other = saved(tmp_path / "2", rows((0, 3)), rows((3, 4)), api="dcp.save")
    assert [difference.deviation for difference in found(one, other)] == [None, None]
    assert telling.line(found(one, other)[0]).endswith("w, DTensor float32[4, 2], values not kept")


def test_bfloat16_is_compared_by_its_numbers(tmp_path: Path) -> None:
    def half(number: float) -> Any:
        bits = (numpy.array([number], "float32").view("uint32") >> 16).astype("uint16")
        return array(bits, dtype="bfloat16")

    (difference,) = found(saved(tmp_path / "1", half(1.0)), saved(tmp_path / "2", half(1.0078125)))
    assert difference.deviation == numbers.Deviation(2**-7, 1.0, 2**-7)


def test_types_without_numbers_differ_by_an_unknown_amount(tmp_path: Path) -> None:
    bits = numpy.array([1], "uint8")
    one = saved(tmp_path / "1", array(bits, dtype="float8_e4m3fn"))
    (difference,) = found(one, saved(tmp_path / "2", array(bits + 1, dtype="float8_e4m3fn")))
    assert difference.deviation is None


def test_steps_are_counted_from_one_and_what_is_saved_comes_after_them(tmp_path: Path) -> None:
    def run(name: str, loss: float, saved: int) -> Run:
        recorder = Recorder(tmp_path / name, 1)
        recorder.add(0, "loss", 2, value=loss.hex(), dtype="float32")
        recorder.add(0, "save", 3, api="torch.save", path="a.pt", tree=mapping({"a": value(saved)}))
        return recorder.end()

    assert [difference.when for difference in found(run("1", 1.0, 1), run("2", 2.0, 2))] == ["step 3", "after step 3"]


def test_a_loss_of_several_elements_is_compared_by_its_digest(tmp_path: Path) -> None:
    def run(name: str, digest: str) -> Run:
        recorder = Recorder(tmp_path / name, 1)
        recorder.add(0, "loss", value={"digest": digest, "shape": [2]}, dtype="float32")
        return recorder.end()

    assert told(run("1", "ab"), run("2", "cd")) == ["[2] with digest ab -> [2] with digest cd"]
    assert not found(run("3", "ab"), run("4", "ab"))


def test_a_loss_that_is_no_number_agrees_with_one_that_is_none_either(tmp_path: Path) -> None:
    def run(name: str, loss: float) -> Run:
        recorder = Recorder(tmp_path / name, 1)
        recorder.add(0, "loss", value=loss.hex(), dtype="float32")
        return recorder.end()

    nan = run("1", float("nan"))
    assert not found(nan, run("2", float("nan")))
    assert told(nan, run("3", 1.0)) == ["nan -> 1, difference inf"]

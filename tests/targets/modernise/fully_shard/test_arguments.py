from __future__ import annotations

import pytest
from packaging.version import Version

from fsdp_migrate.findings import Severity
from fsdp_migrate.targets.modernise.fully_shard.arguments import FACTOR, OLD_FACTOR, SETTERS
from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.torch_api.data import ParameterKind, deprecation, exists, signature
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

CLASS = "torch.distributed._composable.fsdp.FSDPModule"
FSDP2 = "from torch.distributed.fsdp import FSDPModule, fully_shard\n"


def test_the_data_agrees_with_the_cards() -> None:
    for release in RELEASES:
        assert exists(f"{CLASS}.{FACTOR}", release) is (release >= Version("2.8"))
        warned = deprecation(f"{CLASS}.{OLD_FACTOR}", release) is not None
        assert warned is (release >= Version("2.8"))
        for setter in SETTERS:
            parameters = signature(f"{CLASS}.{setter}", release) or ()
            kinds = {parameter.kind for parameter in parameters if parameter.name == "recurse"}
            assert kinds == ({ParameterKind.KEYWORD_ONLY} if release >= Version("2.4") else set())


def test_the_factor_is_renamed_where_every_release_has_the_new_name() -> None:
    text = "for m in model.modules():\n    m.{0}(2.0)\n    f = partial(m.{0}, 2)\n"
    check_transformed(text.format(OLD_FACTOR), text.format(FACTOR), "FSDP510", torch=">=2.8")
    assert {f.severity for f in lint(text.format(OLD_FACTOR), "FSDP510", ">=2.8")} == {Severity.DEPRECATED}


def test_the_factor_is_a_hint_while_older_releases_are_supported() -> None:
    check_manual(f"m.{OLD_FACTOR}(2.0)\n", "FSDP510", "the new name needs torch>=2.8", torch=">=2.6")
    (found,) = lint(f"m.{OLD_FACTOR}(2.0)\n", "FSDP510", ">=2.6")
    assert found.severity is Severity.HINT


def test_the_factor_is_renamed_where_only_newer_releases_come() -> None:
    text = "from u import is_torch_version\nif is_torch_version('>=', '2.9'):\n    m.{}(2.0)\n"
    check_transformed(text.format(OLD_FACTOR), text.format(FACTOR), "FSDP510")


@pytest.mark.parametrize(
    "text",
    [
        f"getattr(m, '{FACTOR}', m.{OLD_FACTOR})(2.0)\n",
        f"if new:\n    m.{FACTOR}(2.0)\nelse:\n    m.{OLD_FACTOR}(2.0)\n",
        f"class M:\n    def {OLD_FACTOR}(self, f):\n        pass\nM().{OLD_FACTOR}(2.0)\n",
        f"M.{OLD_FACTOR} = None\n",
    ],
)
def test_a_factor_chosen_by_name_or_of_the_file_itself_is_left_alone(text: str) -> None:
    check_noop(text, "FSDP510", torch=">=2.8")


@pytest.mark.parametrize("setter", SETTERS)
def test_recurse_becomes_a_keyword(setter: str) -> None:
    check_transformed(f"{FSDP2}m.{setter}(x, False)\n", f"{FSDP2}m.{setter}(x, recurse=False)\n", "FSDP511")
    (found,) = lint(f"{FSDP2}m.{setter}(x, False)\n", "FSDP511")
    assert found.severity is Severity.BREAKS


@pytest.mark.parametrize(
    "text",
    [
        "m.set_requires_gradient_sync(x)\n",
        "m.set_requires_gradient_sync(x, recurse=False)\n",
        "m.set_requires_gradient_sync(*x, y)\n",
        "m.set_reshard_after_forward(x, False)\n",
        "class M:\n    def set_requires_all_reduce(self, x, y):\n        pass\nM().set_requires_all_reduce(x, y)\n",
    ],
)
def test_setters_without_a_second_position_are_left_alone(text: str) -> None:
    check_noop(FSDP2 + text, "FSDP511")


def test_a_setter_of_an_unknown_library_is_reported() -> None:
    check_manual("m.set_requires_all_reduce(x, False)\n", "FSDP511", "this file imports nothing of FSDP2")


def test_torch_2_3_takes_the_position() -> None:
    check_noop(f"{FSDP2}m.set_requires_all_reduce(x, False)\n", "FSDP511", torch=">=2.3,<2.4")


ROOT = (
    FSDP2
    + "def f(m):\n    for b in m.blocks:\n        fully_shard(b, reshard_after_forward=True)\n    fully_shard(m{})\n"
)


def test_a_root_told_to_reshard_is_a_hint_where_the_range_spans_2_8() -> None:
    text = ROOT.format(", reshard_after_forward=True")
    check_manual(text, "FSDP512", "one more all-gather")
    (found,) = lint(text, "FSDP512")
    assert (found.severity, found.line) == (Severity.HINT, 5)
    check_noop(text, "FSDP512", torch=">=2.8")
    check_noop(text, "FSDP512", torch=">=2.6,<2.8")


@pytest.mark.parametrize("loop", ["for b in m.blocks", "async for b in m.blocks()", "while b := m.next()"])
def test_every_loop_over_layers_tells_the_root(loop: str) -> None:
    text = ROOT.replace("def f", "async def f").replace("for b in m.blocks", loop)
    check_manual(text.format(", reshard_after_forward=True"), "FSDP512", "one more all-gather")


@pytest.mark.parametrize("argument", ["", ", reshard_after_forward=False", ", reshard_after_forward=x", ", **{}"])
def test_a_root_that_is_told_nothing_certain_is_left_alone(argument: str) -> None:
    check_noop(ROOT.replace("m{}", "m" + argument), "FSDP512")


@pytest.mark.parametrize("module", ["m.embed", "module=m.embed", "m.a.b"])
def test_a_part_of_what_is_sharded_too_is_no_root(module: str) -> None:
    part = f"    fully_shard({module}, reshard_after_forward=True)\n"
    assert [found.line for found in lint(ROOT.format("") + part, "FSDP512")] == []
    check_manual(ROOT.replace("fully_shard(m{})", "") + part, "FSDP512", "one more all-gather")


METHOD = "{}:\n    def shard(self):\n        for b in self.blocks:\n            fully_shard(b)\n        {}\n"
HEAD = "fully_shard(self.head, reshard_after_forward=True)"


@pytest.mark.parametrize("head", ["class M(nn.Module)", "class M(PreTrainedModel)"])
def test_a_part_of_a_module_is_no_root(head: str) -> None:
    check_noop(FSDP2 + METHOD.format(head, HEAD), "FSDP512")
    whole = HEAD.replace("self.head", "self")
    check_manual(FSDP2 + METHOD.format(head, whole), "FSDP512", "one more all-gather")


def test_a_class_with_a_forward_or_that_shards_itself_is_a_module() -> None:
    check_noop(FSDP2 + METHOD.format("class M", HEAD) + "    def forward(self, x): ...\n", "FSDP512")
    check_noop(FSDP2 + METHOD.format("class M", HEAD) + "    def rest(self):\n        fully_shard(self)\n", "FSDP512")


@pytest.mark.parametrize("head", ["class Trainer", "class Trainer(Base)"])
def test_what_a_trainer_has_may_be_a_root(head: str) -> None:
    check_manual(FSDP2 + METHOD.format(head, HEAD), "FSDP512", "one more all-gather")


def test_a_call_without_layers_before_it_is_no_root() -> None:
    check_noop(FSDP2 + "fully_shard(m, reshard_after_forward=True)\n", "FSDP512")

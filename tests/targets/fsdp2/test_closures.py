from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from fsdp_migrate.targets.fsdp2.closures import WORDS, closures
from fsdp_migrate.targets.fsdp2.conversion import Closure
from fsdp_migrate.workspace.filesystem import discover
from fsdp_migrate.workspace.workspace import Workspace
from tests.targets.fsdp2.programs import check_stays, plan

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


def found_in(root: Path, tree: Mapping[str, str]) -> list[Closure]:
    """The closures of a project of some files."""
    for name, text in {"pyproject.toml": "", **tree}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(dedent(text))
    workspace = Workspace(discover([str(root)]))
    return closures(*workspace.modules_with(WORDS))


def program(text: str) -> str:
    return IMPORT + dedent(text)


def uses(closure: Closure) -> list[str]:
    """What is done with the models, in the order of the text."""
    parents = [(one.facts.structure.parents[one.node], one.node) for one in closure.references]
    return sorted(ast.unparse(parent if isinstance(parent, ast.expr) else node) for parent, node in parents)


def test_a_program_in_two_files(tmp_path: Path) -> None:
    tree = {
        "main.py": program(
            """
            from tools import clip
            model = FSDP(build())
            clip(model)
            model.eval()
            """
        ),
        "tools.py": "def clip(model):\n    model.clip_grad_norm_(1.0)\n",
    }
    (one,) = found_in(tmp_path, tree)
    assert uses(one) == ["model.clip_grad_norm_", "model.eval"]
    assert one.escapes == ()


def test_two_models_by_one_function_are_one_closure(tmp_path: Path) -> None:
    text = """
        def wrap(m):
            return FSDP(m)
        one, two = wrap(a()), wrap(b())
        one.eval()
        two.train()
        """
    (one,) = found_in(tmp_path, {"main.py": program(text)})
    assert uses(one) == ["one.eval", "two.train"]


def test_models_that_never_meet_are_two_closures(tmp_path: Path) -> None:
    text = "one = FSDP(a())\ntwo = FSDP(b())\none.eval()\ntwo.train()\n"
    one, two = found_in(tmp_path, {"main.py": program(text)})
    assert (uses(one), uses(two)) == (["one.eval"], ["two.train"])


def test_models_that_one_function_uses_are_one_closure(tmp_path: Path) -> None:
    text = "def use(m):\n    m.eval()\nuse(FSDP(a()))\nuse(FSDP(b()))\n"
    (one,) = found_in(tmp_path, {"main.py": program(text)})
    assert len(one.constructions) == 2


def test_methods_that_return_the_model(tmp_path: Path) -> None:
    (one,) = found_in(tmp_path, {"main.py": program("model = FSDP(a()).eval().to(0)\nmodel.clip_grad_norm_(1)\n")})
    assert "model.clip_grad_norm_" in uses(one)


def test_a_test_of_the_class(tmp_path: Path) -> None:
    text = """
        model = FSDP(a()) if args.fsdp else a()
        if isinstance(model, FSDP):
            model.one()
        else:
            model.two()
        if not isinstance(model, FSDP):
            raise ValueError
        model.three()
        """
    (one,) = found_in(tmp_path, {"main.py": program(text)})
    assert uses(one) == ["isinstance(model, FSDP)", "isinstance(model, FSDP)", "model.one", "model.three"]
    assert all(not one.others for one in one.references if ast.unparse(one.node) == "model" and one.node.lineno > 8)


def test_an_arm_for_another_wrapper(tmp_path: Path) -> None:
    text = """
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = FSDP(a()) if args.fsdp else DDP(a())
        if isinstance(model, DDP):
            model.module.one()
        model.two()
        """
    (one,) = found_in(tmp_path, {"main.py": program(text)})
    assert uses(one) == ["isinstance(model, DDP)", "model.two"]


def test_a_file_that_names_fsdp_and_cannot_be_parsed(tmp_path: Path) -> None:
    (one,) = found_in(tmp_path, {"main.py": program("model = FSDP(a())\n"), "bad.py": program("def (\n")})
    assert [escape.reason for escape in one.escapes] == [f"{tmp_path}/bad.py names FSDP, and cannot be parsed"]


def test_models_that_share_a_function_which_stays_are_converted_apart(tmp_path: Path) -> None:
    program = {
        "steps.py": "def step(model, batch):\n    model(batch).sum().backward()\n",
        "one.py": f"{IMPORT}from steps import step\n\nmodel = FSDP(net())\nstep(model, batch)\n",
        "two.py": f"{IMPORT}from steps import step\n\nmodel = FSDP(net())\nmodel.register_comm_hook(None, hook)\n"
        "step(model, batch)\n",
    }
    done = plan(tmp_path, program)
    assert "fully_shard" in done.texts["one.py"]
    assert done.texts["two.py"] == program["two.py"]
    assert [one.path.endswith("two.py") for one in done.left] == [True]


def test_models_that_share_a_function_which_changes_are_converted_together(tmp_path: Path) -> None:
    program = {
        "steps.py": "def clip(model):\n    model.clip_grad_norm_(1.0)\n",
        "one.py": f"{IMPORT}from steps import clip\n\nmodel = FSDP(net())\nclip(model)\n",
        "two.py": f"{IMPORT}from steps import clip\n\nmodel = FSDP(net())\nmodel.register_comm_hook(None, hook)\n"
        "clip(model)\n",
    }
    done = plan(tmp_path, program)
    assert done.texts == program
    assert len(done.left) == 1


def reasons(closure: Closure) -> list[str]:
    return sorted(escape.reason for escape in closure.escapes)


MODULE = "import torch.nn as nn\n"


def test_units_inside_the_model_of_a_function_belong_to_it(tmp_path: Path) -> None:
    text = """
        model = Net()
        for i, layer in enumerate(model.layers):
            model.layers[i] = FSDP(layer)
        model.head = FSDP(model.head)
        model = FSDP(model)
        model.eval()
        """
    (one,) = found_in(tmp_path, {"main.py": program(text)})
    assert [construction.call.lineno for construction in one.constructions] == [5, 6, 7]
    assert (uses(one), one.escapes) == (["model.eval"], ())


def test_units_in_the_class_of_the_model_belong_to_it(tmp_path: Path) -> None:
    net = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = FSDP(build())
            def forward(self, x):
                return self.body(x)
        """
    tree = {
        "net.py": MODULE + program(net),
        "main.py": program("from net import Net\nmodel = FSDP(Net())\nmodel.eval()\n"),
    }
    (one,) = found_in(tmp_path, tree)
    assert len(one.constructions) == 2
    assert uses(one) == ["model.eval", "self.body(x)"]
    assert one.escapes == ()


def test_a_part_of_a_module_that_is_not_wrapped(tmp_path: Path) -> None:
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = FSDP(build())
        net = Net()
        """
    (one,) = found_in(tmp_path, {"main.py": MODULE + program(text)})
    assert reasons(one) == ["it becomes a part of `Net`, a module that FSDP does not wrap as a whole"]


def test_a_model_in_an_object_that_is_no_module(tmp_path: Path) -> None:
    text = """
        class Trainer:
            def __init__(self):
                self.model = FSDP(build())
        Trainer()
        """
    (one,) = found_in(tmp_path, {"main.py": program(text)})
    assert one.escapes == ()


WRAP = "from torch.distributed.fsdp.wrap import enable_wrap, wrap\n"


def test_units_of_enable_wrap_belong_to_the_model(tmp_path: Path) -> None:
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                with enable_wrap(wrapper_cls=FSDP):
                    self.body = wrap(build())
        model = FSDP(Net())
        model.eval()
        """
    (one,) = found_in(tmp_path, {"main.py": MODULE + WRAP + program(text)})
    assert ([ast.unparse(part.call) for part in one.constructions], reasons(one)) == (["FSDP(Net())"], [])


def test_enable_wrap_around_code_elsewhere(tmp_path: Path) -> None:
    text = "with enable_wrap(wrapper_cls=FSDP):\n    model = build()\n"
    (one,) = found_in(tmp_path, {"main.py": WRAP + program(text)})
    assert "`enable_wrap` reaches the calls of `wrap` in the functions that its block calls" in reasons(one)


def test_the_class_in_a_variable(tmp_path: Path) -> None:
    text = """
        from torch.nn.parallel import DistributedDataParallel as DDP
        cls = FSDP if args.fsdp else DDP
        model = cls(build())
        model.eval()
        """
    (one,) = found_in(tmp_path, {"main.py": program(text)})
    assert [ast.unparse(part.call) for part in one.constructions] == ["cls(build())"]
    assert uses(one) == ["model.eval"]
    assert reasons(one) == ["FSDP1's class is passed on from here"]


def test_partial(tmp_path: Path) -> None:
    text = "from functools import partial\nshard = partial(FSDP, device_id=0)\nmodel = shard(build())\nmodel.eval()\n"
    (one,) = found_in(tmp_path, {"main.py": program(text)})
    assert ([ast.unparse(part.call) for part in one.constructions], uses(one)) == (["shard(build())"], ["model.eval"])
    assert reasons(one) == ["FSDP1's class is passed on from here"]


def test_the_class_for_another_package(tmp_path: Path) -> None:
    (one,) = found_in(tmp_path, {"main.py": program("from lib import build\nmodel = build(wrapper_cls=FSDP)\n")})
    assert reasons(one) == ["FSDP1's class is passed on from here", "what makes it is given to `build`"]


def test_a_class_that_derives_from_it(tmp_path: Path) -> None:
    (one,) = found_in(tmp_path, {"main.py": program("class Own(FSDP):\n    pass\nmodel = Own(build())\n")})
    assert reasons(one) == ["`Own` is a class that derives from FSDP"]


def test_annotations_and_tests_of_the_class_pass_nothing_on(tmp_path: Path) -> None:
    text = """
        from typing import List, Union
        Models = Union[FSDP, int]
        def use(model: FSDP, more: "List[FSDP]") -> FSDP:
            if isinstance(model, (FSDP, int)) or type(model) is FSDP:
                FSDP.set_state_dict_type(model, 1)
            return model
        """
    assert found_in(tmp_path, {"main.py": program(text)}) == []


def test_a_policy_sees_the_model_as_it_was(tmp_path: Path) -> None:
    text = "model = build()\nmodel = FSDP(model, auto_wrap_policy=lambda m: m in model.layers)\nmodel.eval()\n"
    (one,) = found_in(tmp_path, {"main.py": program(text)})
    assert uses(one) == ["model.eval"]


@pytest.mark.parametrize(
    "program",
    [
        "@singledispatch\ndef save(obj):\n    print(obj)\n\n\n@save.register\ndef _(obj: nn.Module):\n"
        "    torch.save(obj.state_dict(), 'x')\n\n\nsave(FSDP(net))\n",
        "class Saver:\n    @singledispatchmethod\n    def save(self, obj):\n        print(obj)\n\n    @save.register\n"
        "    def _(self, obj: nn.Module):\n        torch.save(obj.state_dict(), 'x')\n\n\nSaver().save(FSDP(net))\n",
    ],
)
def test_a_function_that_dispatches_is_not_followed(tmp_path: Path, program: str) -> None:
    head = "from functools import singledispatch, singledispatchmethod\nimport torch\nfrom torch import nn\n"
    head += "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    check_stays(tmp_path, head + program, "`save` has a decorator that may replace it")

"""`model.clip_grad_norm_` becomes torch's own function; the norm is made whole where somebody looks at it."""

from __future__ import annotations

import pytest

from tests.targets.fsdp2.converted import Converted, check_becomes, check_wall


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model.clip_grad_norm_(1.0)", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
        (
            "norm = model.clip_grad_norm_(1.0)",
            "norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()",
        ),
        (
            "log(model.clip_grad_norm_(max_norm=c, norm_type=2).item())",
            "log(nn.utils.clip_grad_norm_(model.parameters(), max_norm=c, norm_type=2).full_tensor().item())",
        ),
        ("model.clip_grad_norm_(*args, **more)", "nn.utils.clip_grad_norm_(model.parameters(), *args, **more)"),
        ("FSDP.clip_grad_norm_(model, c)", "nn.utils.clip_grad_norm_(model.parameters(), c)"),
        (
            "norm = FSDP.clip_grad_norm_(model, max_norm=c)",
            "norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=c).full_tensor()",
        ),
        ("( model ) .clip_grad_norm_( 1.0 )", "nn.utils.clip_grad_norm_(( model ).parameters(), 1.0 )"),
        (
            "if model.clip_grad_norm_(1.0) > 9: stop()",
            "if nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor() > 9: stop()",
        ),
    ],
)
def test_a_call_becomes_that_of_the_function(before: str, after: str) -> None:
    head = "model = FSDP(Net())\nloss.backward()\n"
    check_becomes(f"{head}{before}\n", f"{head}{after}\n")


WHOLE = '''\
def whole(norm):
    """The norm of all ranks: a DTensor, unless there are no gradients or the model is not sharded."""
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


'''


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "norm = model.clip_grad_norm_(1.0)\nloss.backward()",
            "norm = whole(nn.utils.clip_grad_norm_(model.parameters(), 1.0))\nloss.backward()",
        ),
        (
            "x = model.clip_grad_norm_(\n    1.0,  # at most\n).item()",
            "x = whole(nn.utils.clip_grad_norm_(\n    model.parameters(),\n    1.0,  # at most\n)).item()",
        ),
    ],
)
def test_the_norm_of_no_gradient_is_no_dtensor(before: str, after: str) -> None:
    head = "model = FSDP(Net())\n"
    found = Converted(f"{head}{before}\n")
    assert found.walls == []
    assert found.text == f"from torch.distributed.tensor import DTensor\n{head}{WHOLE}{after}\n"


@pytest.mark.parametrize(
    "program",
    [
        "def step(model):\n    loss.backward()\n    return model.clip_grad_norm_(1.0)\n",
        "for x in data:\n    scaler.scale(model(x)).backward()\n    print(model.clip_grad_norm_(1.0))\n",
        "def clip(model):\n    return model.clip_grad_norm_(1.0)\nbackward()\nclip(model)\n",
        "def run(loss):\n    loss.backward()\nrun(x)\nnorm = model.clip_grad_norm_(1.0)\n",
    ],
)
def test_behind_a_backward_there_are_gradients(program: str) -> None:
    assert "1.0).full_tensor()" in Converted(program).text


@pytest.mark.parametrize(
    "program",
    [
        "for x in data:\n    print(model.clip_grad_norm_(1.0))\n    model(x).backward()\n",
        "def clip(model):\n    return model.clip_grad_norm_(1.0)\nclip(model)\nbackward()\nclip(model)\n",
        "def clip(model):\n    return model.clip_grad_norm_(1.0)\n",
        "if x:\n    loss.backward()\nelse:\n    print(model.clip_grad_norm_(1.0))\n",
    ],
)
def test_elsewhere_there_may_be_none(program: str) -> None:
    assert "whole(nn.utils.clip_grad_norm_(" in Converted(program).text


def test_the_layout_and_the_comments_of_a_long_call_stay() -> None:
    check_becomes(
        """
        def step(self):
            self.loss.backward()
            norm = self.trainer.model.clip_grad_norm_(
                self.config.max_norm,  # from the paper
                norm_type=2.0,
            )
            return norm
        """,
        """
        def step(self):
            self.loss.backward()
            norm = nn.utils.clip_grad_norm_(
                self.trainer.model.parameters(),
                self.config.max_norm,  # from the paper
                norm_type=2.0,
            ).full_tensor()
            return norm
        """,
        "self.trainer.model",
    )


def test_a_method_of_another_class_is_not_touched() -> None:
    program = "model = FSDP(Net())\naccelerator.clip_grad_norm_(params, 1.0)\n"
    check_becomes(program, program)


def test_a_bound_method_is_a_wall() -> None:
    check_wall("model = FSDP(Net())\nclip = model.clip_grad_norm_\n", "is passed on")


@pytest.mark.parametrize("kind", ["float('inf')", "norm_type=kind"])
def test_the_largest_gradient_is_declared(kind: str) -> None:
    done = Converted(f"model = FSDP(Net())\nmodel.clip_grad_norm_(1.0, {kind})\n")
    assert [text for text in done.differences if "fewer rows than there are ranks" in text]

"""FSDP109: the optimizer-state hooks of torch 2.0, where a comment stands in a call that is written anew."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_transformed, lint

HEAD = "import functools\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
OLD, NEW = "FSDP.load_optim_state_dict_pre_hook", "FSDP.optim_state_dict_to_load"


@pytest.mark.parametrize(("method", "indent"), [(f"(  # why\n    {OLD}\n)", "    "), (f"{OLD}  # why\n   ", "   ")])
def test_a_comment_at_the_method_of_a_partial_is_not_lost(method: str, indent: str) -> None:
    arguments = f"\n{indent}{NEW},\n{indent}# why\n{indent}model,\n{indent}is_named_optimizer=True"
    after = f"{HEAD}hook = functools.partial({arguments})\n"
    check_transformed(f"{HEAD}hook = functools.partial({method}, model)\n", after, "FSDP109")


def test_a_comment_at_another_argument_stays_with_it() -> None:
    call = f"{HEAD}hook = functools.partial(\n    {{}},\n    model,  # the whole (one)\n{{}})\n"
    check_transformed(call.format(OLD, ""), call.format(NEW, "    is_named_optimizer=True,\n"), "FSDP109")


@pytest.mark.parametrize(
    ("head", "third", "grade"),
    [
        ("def f(m, o, group):", "group", "unsafe"),
        ("def f(m, o, group: ProcessGroup):", "group", "safe"),
        ("def f(m, o, comm: Optional[dist.ProcessGroup] = None):", "comm", "safe"),
        ("def f(m, o):\n    comm = dist.new_group([0, 1])", "comm", "safe"),
        ("def f(m, o):\n    group = None\n    if x:\n        group = dist.group.WORLD", "group", "safe"),
        ("def f(self, m, o):\n    self.comm = dist.new_group()", "self.comm", "safe"),
        ("def f(self, m, o):", "self.process_group", "unsafe"),
        ("def f(m, o):\n    group = o.state_dict()", "group", None),
        ("def f(m, o, group: dict):", "group", None),
        ("def f(m, o, group: Dict[str, Any]):", "group", None),
        ("def f(m, o):\n    group = {'state': {}}", "group", None),
        ("def f(m, o, state):", "state", None),
    ],
)
def test_a_group_is_known_by_what_it_is(head: str, third: str, grade: str | None) -> None:
    text = (
        "import torch.distributed as dist\nfrom torch.distributed import ProcessGroup\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        f"{head}\n    return FSDP.optim_state_dict(m, o, {third})\n"
    )
    assert [one.applicability.value for one in lint(text, "FSDP108")] == ([] if grade is None else [grade])

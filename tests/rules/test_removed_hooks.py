"""FSDP109: the optimizer-state hooks of torch 2.0, where a comment stands in a call that is written anew."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_transformed

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

from __future__ import annotations

import sys
from types import FrameType

import pytest

from fsdp_migrate.findings import Severity
from fsdp_migrate.planning.rewriting import rewrite_bytes, rewrite_source
from fsdp_migrate.torch_api import RangeError, TorchRange
from fsdp_migrate.workspace.settings import Settings

BEFORE = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def save(model, optim):  # é
    osd = FSDP.full_optim_state_dict(model, optim)
    return osd
"""
AFTER = """\
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullyShardedDataParallel as FSDP,
    StateDictType,
)

def save(model, optim):  # é
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        osd = FSDP.optim_state_dict(model, optim)
    return osd
"""


def test_a_text_comes_back_as_text_with_what_was_fixed() -> None:
    result = rewrite_source(BEFORE, "save.py")
    assert result.source == AFTER
    assert [(f.code, f.path, f.line, f.column) for f in result.fixed] == [("FSDP101", "save.py", 4, 11)]
    assert result.left == ()
    hinted = rewrite_source(BEFORE, "save.py", hints=True)
    assert [(f.code, f.severity) for f in hinted.left] == [("FSDP210", Severity.HINT)]
    assert result.error is None


def test_bytes_come_back_as_bytes() -> None:
    assert rewrite_source(BEFORE.encode()).source == AFTER.encode()
    settings = Settings(TorchRange.parse(">=2.1"))
    assert rewrite_bytes(BEFORE.encode(), "x.py", settings).raw == AFTER.encode()


def test_a_rewritten_text_is_left_as_it_is() -> None:
    result = rewrite_source(AFTER)
    assert (result.source, result.fixed) == (AFTER, ())


@pytest.mark.parametrize("start", ["", "\ufeff", "# coding: latin-1\n", "\ufeff# coding: utf-8\n"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_text_keeps_its_mark_its_cookie_and_its_newlines(start: str, newline: str) -> None:
    before, after = ((start + text).replace("\n", newline) for text in (BEFORE, AFTER))
    assert rewrite_source(before).source == after


def test_a_text_that_does_not_fit_its_cookie_is_an_error() -> None:
    text = f"# coding: latin-1\n{BEFORE}# \u20ac\n"
    result = rewrite_source(text)
    assert result.source == text
    assert "declares" in (result.error or "")
    assert rewrite_source("# coding: nonsense\n").error is not None


def test_unsafe_fixes_and_the_range_are_up_to_the_caller() -> None:
    text = BEFORE.replace("full_optim", "sharded_optim")
    assert rewrite_source(text).source == text
    assert "state_dict_type" in rewrite_source(text, unsafe_fixes=True).source
    assert "state_dict_type" in rewrite_source(text, torch=">=2.1,<2.2").source
    with pytest.raises(RangeError):
        rewrite_source(text, torch="two")


def test_new_lines_end_as_the_lines_beside_them() -> None:
    lines = BEFORE.splitlines()
    mixed = "\r\n".join(lines[:3]) + "\r\n" + "\n".join(lines[3:]) + "\n"
    imports, function = AFTER.split("def save")
    first, rest = function.split("\n", 1)
    crlf = f"{imports}def save{first}\n".replace("\n", "\r\n")
    assert rewrite_source(mixed, "save.py").source == crlf + rest


def test_steps_for_a_file_grow_as_the_file_does() -> None:
    def steps(functions: int) -> int:
        text = BEFORE.replace("return osd", "osd = FSDP.full_optim_state_dict(model, optim)")
        imports, function = text.split("\n\n", 1)
        whole = "\n".join([imports, *(function.replace("save", f"save_{number}") for number in range(functions))])
        counted = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            assert len(rewrite_source(whole).fixed) == 2 * functions
        finally:
            sys.setprofile(None)
        return counted

    steps(1)
    assert steps(80) < 11 * steps(8)

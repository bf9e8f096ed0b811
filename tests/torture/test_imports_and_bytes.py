"""The cases in which one or another well-known codemod breaks a program, misses the place, or loses a byte of it."""

from __future__ import annotations

import codecs
from textwrap import dedent

import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

SETTINGS = Settings(TorchRange.parse(">=2.1"))

OLD, NEW = "_all_gather_base", "all_gather_into_tensor"

LEGACY = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)
"""

REWRITTEN = """\
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullyShardedDataParallel as FSDP,
    StateDictType,
)

def save(model, optim):
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        return FSDP.optim_state_dict(model, optim)
"""


def rewritten(text: str) -> str:
    result = rewrite_bytes(dedent(text).encode(), "train.py", SETTINGS)
    assert result.error is None
    assert rewrite_bytes(result.raw, "train.py", SETTINGS).raw == result.raw
    return result.raw.decode()


def found(text: str) -> list[tuple[str, int, Applicability]]:
    report = lint_bytes(dedent(text).encode(), "train.py", SETTINGS)
    return [(finding.code, finding.line, finding.applicability) for finding in report.findings]


@pytest.mark.parametrize(
    "text",
    [
        f"import torch as T\nT.distributed.{OLD}(a, b)\n",
        f"import torch\ntorch.distributed.{OLD}(a, b)\n",
        f"import torch.distributed as dist\ndist.{OLD}(a, b)\n",
        f"from torch import distributed as d\nd.{OLD}(a, b)\n",
        f"from torch.distributed import {OLD}\n{OLD}(a, b)\n",
        f"from torch.distributed import {OLD} as g\ng(a, b)\n",
        f"from torch.distributed import {OLD} as g, all_reduce\ng(a, b)\nall_reduce(a)\n",
        f"def f(a, b):\n    from torch.distributed import {OLD}\n    return {OLD}(a, b)\n",
    ],
)
def test_however_a_name_is_imported_its_use_and_its_import_change_together(text: str) -> None:
    assert rewritten(text) == text.replace(OLD, NEW)


def test_a_reference_that_is_called_later_changes_where_it_is_taken() -> None:
    text = (
        f"import torch.distributed as dist\ng = dist.{OLD}\ng(a, b)\nfs = [dist.{OLD}, dist.all_reduce]\nfs[0](a, b)\n"
    )
    assert rewritten(text) == text.replace(OLD, NEW)


def test_a_reference_to_a_method_that_needs_more_than_a_name_is_reported() -> None:
    text = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\ng = FSDP.full_optim_state_dict\n"
    assert rewritten(text) == text
    assert found(text) == [("FSDP101", 2, Applicability.MANUAL)]


def test_all_of_a_call_in_a_call_changes_in_one_run() -> None:
    text = f"import torch.distributed as dist\ndist.{OLD}(dist.{OLD}(a, b), dist.{OLD}(c, d))\n"
    assert rewritten(text) == text.replace(OLD, NEW)
    inner = "FSDP.full_optim_state_dict(model, optim)"
    nested = LEGACY.replace(inner, f"FSDP.scatter_full_optim_state_dict({inner}, model, optim=optim)")
    new = rewritten(nested)
    assert new.endswith(
        "        return FSDP.optim_state_dict_to_load(model=model, optim=optim, optim_state_dict=full_osd)\n"
    )
    assert "        full_osd = FSDP.optim_state_dict(model, optim)\n" in new


@pytest.mark.parametrize(
    "text",
    [
        f"from torch.distributed import {OLD}\ndef f({OLD}):\n    return {OLD}(a, b)\n",
        f"import torch.distributed as dist\ndef f(dist):\n    return dist.{OLD}(a, b)\n",
        f"import torch.distributed as dist\nclass A:\n    dist = mine\n    x = dist.{OLD}\n",
        f"import torch.distributed as dist\nx = [dist.{OLD} for dist in mine]\n",
        f"import torch.distributed\nfrom mine.distributed import {OLD}\n{OLD}(a, b)\n",
        f"import torch.distributed\nfrom .distributed import {OLD}\n{OLD}(a, b)\n",
        "from fairscale.nn import FullyShardedDataParallel as FSDP\nx = FSDP.full_optim_state_dict(model, optim)\n",
    ],
)
def test_another_thing_of_the_same_name_is_left_alone(text: str) -> None:
    assert (rewritten(text), found(text)) == (text, [])


def test_a_class_that_may_be_another_one_is_reported_and_left_alone() -> None:
    text = LEGACY.replace("save(model, optim)", "save(FSDP, model, optim)")
    assert (rewritten(text), found(text)) == (text, [("FSDP101", 4, Applicability.MANUAL)])


def test_behind_a_star_import_a_place_is_found_and_mended() -> None:
    text = "from torch.distributed.fsdp import *\nx = FullyShardedDataParallel.full_optim_state_dict(model, optim)\n"
    assert [code for code, *_ in found(text)] == ["FSDP101"]
    new = rewritten(text)
    assert new.startswith("from torch.distributed.fsdp import *\nwith FullyShardedDataParallel.state_dict_type(\n")
    assert "full_optim_state_dict" not in new


def test_what_joins_an_import_that_is_guarded_is_guarded_too() -> None:
    guard = "try:\n    {}\nexcept ImportError:\n    FSDP = None\n"
    head, _, body = LEGACY.partition("\n")
    new_head, _, new_body = REWRITTEN.partition("\n\n")
    expected = guard.format(new_head.replace("\n", "\n    ")) + "\n" + new_body
    assert rewritten(guard.format(head) + body) == expected


def test_a_name_with_a_fallback_is_renamed_in_its_import_only() -> None:
    text = (
        f"try:\n    from torch.distributed import {OLD}\nexcept ImportError:\n    {OLD} = None\n"
        f"import torch.distributed\n{OLD}(a, b)\n"
    )
    assert rewritten(text) == text.replace(f"import {OLD}\n", f"import {NEW} as {OLD}\n")
    assert found(rewritten(text)) == []


def test_an_import_whose_last_use_goes_goes_and_any_other_stays() -> None:
    text = """\
        from torch.distributed.fsdp import FlatParameter
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp import StateDictType as Kept

        __all__ = ["FSDP"]

        def f(model):
            return any(isinstance(p, FlatParameter) for p in model.parameters())
        """
    settings = Settings(TorchRange.parse(">=2.1"), unsafe_fixes=True)
    new = rewrite_bytes(dedent(text).encode(), "train.py", settings).raw.decode()
    assert new == dedent(text).replace("from torch.distributed.fsdp import FlatParameter\n", "").replace(
        "isinstance(p, FlatParameter)", 'getattr(p, "_fsdp_flattened", False)'
    )


def test_every_comment_inside_an_import_and_a_call_survives_in_its_place() -> None:
    text = """\
        from torch.distributed.fsdp import (  # one
            FullyShardedDataParallel as FSDP,  # two
            # three
        )  # four

        def save(model, optim):
            return FSDP.full_optim_state_dict(  # five
                model,  # six
                # seven
                optim,
                # eight )
            )  # nine
        """
    assert rewritten(text) == dedent("""\
        from torch.distributed.fsdp import (  # one
            FullOptimStateDictConfig,
            FullyShardedDataParallel as FSDP,  # two
            StateDictType,
            # three
        )  # four

        def save(model, optim):
            with FSDP.state_dict_type(
                model,
                StateDictType.FULL_STATE_DICT,
                optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
            ):
                return FSDP.optim_state_dict(  # five
                    model,  # six
                    # seven
                    optim,
                    # eight )
                )  # nine
        """)


def test_texts_that_only_speak_of_a_name_are_left_alone() -> None:
    text = f"import torch.distributed as dist\n# {OLD}\nx = '''dist.{OLD}(a, b)'''\n'{OLD}'\n"
    assert (rewritten(text), found(text)) == (text, [])


def test_a_method_that_is_asked_for_by_its_name_is_reported() -> None:
    text = LEGACY.replace("FSDP.full_optim_state_dict", "getattr(FSDP, 'full_optim_state_dict')")
    assert (rewritten(text), found(text)) == (text, [("FSDP101", 4, Applicability.MANUAL)])


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_other_newlines_are_kept_and_used(newline: str) -> None:
    raw = LEGACY.replace("\n", newline).encode()
    assert rewrite_bytes(raw, "train.py", SETTINGS).raw == REWRITTEN.replace("\n", newline).encode()


def test_where_newlines_are_mixed_those_outside_the_changes_stay() -> None:
    raw = b"# a\r\n" + LEGACY.encode() + b"# b\r# c\r\nx = 1"
    new = rewrite_bytes(raw, "train.py", SETTINGS).raw
    assert new.startswith(b"# a\r\nfrom torch")
    assert new.endswith(b"optim_state_dict(model, optim)\n# b\r# c\r\nx = 1")


def test_a_byte_order_mark_is_kept_and_moves_nothing() -> None:
    raw = codecs.BOM_UTF8 + LEGACY.encode()
    assert rewrite_bytes(raw, "train.py", SETTINGS).raw == codecs.BOM_UTF8 + REWRITTEN.encode()


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "caf\u00e9"),
        ("cp1252", "\u201cx\u201d"),
        ("shift_jis", "\u65e5\u672c"),
        ("gb18030", "\u4f60\U0001f600"),
    ],
)
def test_a_declared_encoding_is_kept(encoding: str, text: str) -> None:
    head = f"# -*- coding: {encoding} -*-\nname = '{text}'  # {text}\n"
    raw = (head + LEGACY).encode(encoding)
    assert rewrite_bytes(raw, "train.py", SETTINGS).raw == (head + REWRITTEN).encode(encoding)


def test_form_feeds_tabs_and_a_last_line_without_newline_are_kept() -> None:
    raw = LEGACY.replace("\n\n", "\n\x0c\n").replace("    ", "\t").rstrip("\n").encode()
    expected = REWRITTEN.replace(")\n\n", ")\n\x0c\n")
    head, _, body = expected.partition("\x0c")
    assert rewrite_bytes(raw, "train.py", SETTINGS).raw == (
        head.replace("    ", "\t") + "\x0c" + body.replace("    ", "\t")
    ).rstrip("\n").encode()  # fmt: skip


def test_subclasses_count_as_the_class_and_what_a_wrapper_returns_is_reported() -> None:
    text = """\
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        class Mine(FSDP):
            pass

        def wrap(module):
            return FSDP(module)

        def save(model, optim):
            return Mine.full_optim_state_dict(model, optim), wrap(model).full_optim_state_dict(model, optim)
        """
    assert found(text) == [("FSDP101", 10, Applicability.SAFE), ("FSDP101", 10, Applicability.MANUAL)]

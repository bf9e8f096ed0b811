from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_transformed, lint

FSDP = "from unittest.mock import patch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
DIST = "import torch.distributed as dist\nfrom unittest import mock\n\n"


@pytest.mark.parametrize(
    "replacement",
    [
        "FSDP.full_optim_state_dict = staticmethod(mine)",
        "del FSDP.full_optim_state_dict",
        'setattr(FSDP, "full_optim_state_dict", mine)',
        'monkeypatch.setattr(FSDP, "full_optim_state_dict", mine)',
        'patch.object(FSDP, "full_optim_state_dict").start()',
        'patch("torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel.full_optim_state_dict")',
    ],
)
@pytest.mark.parametrize(
    "call", ["FSDP.full_optim_state_dict(model, optim)", "model.full_optim_state_dict(model, optim)"]
)
def test_a_method_that_the_file_replaces_is_not_migrated(replacement: str, call: str) -> None:
    text = f"{FSDP}{replacement}\n\ndef save(model, optim):\n    osd = {call}\n    return osd\n"
    found = {(finding.line, finding.reason) for finding in lint(text, "FSDP101")}
    assert (7, "line 4 replaces it with an object of your own: change both places together") in found
    assert all(finding.fix is None for finding in lint(text, "FSDP101"))


def test_the_replacement_of_a_legacy_method_is_reported() -> None:
    check_manual(
        f"{FSDP}FSDP.scatter_full_optim_state_dict = mine\n", "FSDP104", "the calls are rewritten to another method"
    )


def test_methods_of_other_classes_are_replaced_without_a_word() -> None:
    text = f"{FSDP}Engine.full_optim_state_dict = mine\nosd = FSDP.full_optim_state_dict(model, optim)\n"
    (found,) = lint(text, "FSDP101")
    assert found.fix is not None


@pytest.mark.parametrize(
    "replacement",
    [
        "dist._all_gather_base = counted",
        'mock.patch.object(dist, "_all_gather_base")',
        'setattr(dist, "_all_gather_base", f)',
    ],
)
def test_a_function_that_the_file_replaces_keeps_its_name(replacement: str) -> None:
    check_manual(f"{DIST}{replacement}\ndist._all_gather_base(whole, part)\n", "FSDP811", "line 4 replaces it")


def test_what_only_releases_that_are_not_supported_replace_is_migrated() -> None:
    head = f"import torch\n{DIST}if torch.__version__ < '1.13':\n    dist._all_gather_base = f\n"
    before, after = head + "dist._all_gather_base(a, b)\n", head + "dist.all_gather_into_tensor(a, b)\n"
    check_transformed(before, after, "FSDP811")


def test_a_class_that_a_test_patches_keeps_its_name() -> None:
    text = f"import torch\n{DIST}mock.patch('torch.cuda.amp.autocast')\nwith torch.cuda.amp.autocast():\n    pass\n"
    check_manual(text, "FSDP801", "line 5 replaces it")

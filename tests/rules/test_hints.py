from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from fsdp_migrate.lint import lint_bytes, selected_rules
from fsdp_migrate.rules.entry import Entry
from fsdp_migrate.rules.index import ENTRIES, OF_TARGETS
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

STATED = Settings(TorchRange.parse(">=2.1"))
ASSUMED = Settings(TorchRange.default())
DEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel

if torch.__version__ < "2.0":{}
    pass
"""
NEW = "from torch.distributed.fsdp import fully_shard{}\n"
CALL = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def shard(model, mesh):
    return FSDP(model, device_mesh=mesh){}
"""
# What is a hint where nobody states the range, and by which rule.
HINTS = [(DEAD, "FSDP690"), (NEW, "FSDP600"), (CALL, "FSDP500")]
EVERY = (*ENTRIES, *(entry for entries in OF_TARGETS.values() for entry in entries))


def codes(text: str, settings: Settings) -> list[str]:
    report = lint_bytes(text.encode(), "x.py", settings)
    assert report.error is None
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize("entry", [entry for entry in EVERY if entry.hint], ids=lambda entry: entry.module)
def test_a_rule_for_hints_finds_nothing_else_and_runs_for_them_only(entry: Entry) -> None:
    assert entry.code not in {one.code for one in selected_rules(STATED)}
    for example in entry.load().card.flags:
        torch = STATED.torch if example.torch is None else TorchRange.parse(example.torch)
        found = lint_bytes(example.before.encode(), "x.py", Settings(torch, (entry.code,), hints=True)).findings
        assert {finding.severity for finding in found if finding.code == entry.code} == {Severity.HINT}


@pytest.mark.parametrize(("text", "code"), HINTS)
def test_a_hint_is_looked_for_where_it_is_asked_for(text: str, code: str) -> None:
    assert code in codes(text.format(""), ASSUMED._replace(hints=True))
    assert code not in codes(text.format(""), ASSUMED)


@pytest.mark.parametrize("hints", [False, True])
@pytest.mark.parametrize(("text", "code"), HINTS)
def test_a_comment_that_silences_a_hint_is_no_waste(text: str, code: str, hints: bool) -> None:
    assert codes(text.format(f"  # noqa: {code}"), ASSUMED._replace(hints=hints)) == []


@pytest.mark.parametrize("settings", [STATED, ASSUMED, STATED._replace(hints=True)])
def test_what_the_newest_release_lacks_is_found_whatever_the_range_is(settings: Settings) -> None:
    gone = "from torch.distributed.fsdp._runtime_utils import _clear_grads_if_needed\n"
    assert codes(gone, settings) == ["FSDP600"]

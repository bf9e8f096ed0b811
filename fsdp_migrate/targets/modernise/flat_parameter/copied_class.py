"""FSDP305: a copy of torch's `fully_sharded_data_parallel.py`, which is not migrated line by line."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual
from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.rules.running import in_copies, unasked
from fsdp_migrate.source import Span

_ORDER = (Severity.BREAKS, Severity.CHANGES, Severity.DEPRECATED, Severity.HINT)


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the class of the copy, if the rules that are silent about the copy would find something in it."""
    copied = facts.fsdp.copied_class
    if copied is None:
        return
    found = [one.severity for entry in ENTRIES if not in_copies(entry) for one in unasked(facts, entry)]
    if found:
        start = facts.source.span(copied).start
        place = Span(start, start + len(f"class {copied.name}"))
        message = (
            "this file is a copy of torch's FSDP class, which works with the private modules of one torch release only"
        )
        verdict = manual("use torch's own class, or copy the file again from the torch release in use")
        yield finding(facts, card, place, copied, message, verdict, severity=min(found, key=_ORDER.index))


_CLASS = """\
from torch.distributed.fsdp._utils import _apply_to_modules
from torch.distributed.fsdp.flat_param import FlatParamHandle
from torch import nn

class FullyShardedDataParallel(nn.Module):
    @staticmethod
    def summon_full_params(module):
        _apply_to_modules(module, print)

    @staticmethod
    def full_optim_state_dict(model, optim):
        return {}
"""

RULE = Rule(
    RuleCard(
        code="FSDP305",
        name="copy-of-fsdp-class",
        summary="a copy of torch's own FSDP class, which belongs to one torch release",
        explanation="""\
The file defines `FullyShardedDataParallel` with the methods of torch's class: it is a copy. Such a copy works with the
private modules of one torch release. Updating its imports one by one would mix two releases, so all rules about FSDP
are silent in this file. This rule reports the file once, with the highest severity of the findings that it replaces,
or not at all if there are none.

Use torch's own class, with a subclass for your changes, or copy the file again from the torch release in use.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(Example(before=_CLASS),),
        leaves=(
            """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Sharded(FSDP):
    def summon_full_params(self):
        return self
""",
        ),
        url="https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/fully_sharded_data_parallel.py",
    ),
    words=("full_optim_state_dict",),
    check=check,
)

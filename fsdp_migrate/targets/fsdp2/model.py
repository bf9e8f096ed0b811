"""FSDP900: a model of FSDP1, which PyTorch's documentation calls deprecated.

Source: the page of the FSDP1 tutorial, "FSDP1 is deprecated" (pytorch/tutorials, FSDP1_tutorial.rst). No release warns.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Rule, RuleCard


def check(_facts: ModuleFacts, _card: RuleCard) -> Iterator[Finding]:
    """Nothing of a single file: the target looks at each model through its whole program."""
    return iter(())


RULE = Rule(
    RuleCard(
        code="FSDP900",
        name="fsdp1-model",
        summary="A model of FSDP1, `FullyShardedDataParallel`",
        explanation="""\
Only `--target fsdp2` reports this. PyTorch's tutorials call FSDP1 deprecated, and its maintainers answer questions
about it with the guide to FSDP2. No release warns so far.

A program that is converted in part goes wrong without an error: `isinstance(model, FSDP)` is false,
`summon_full_params` gives shards, and `torch.save(model.state_dict())` writes the rows of one rank. So a model is
converted with all that is done with it, or not at all.

`fsdp-migrate plan --target fsdp2` tells which models can be converted, and what stops the others.
`fsdp-migrate rewrite --target fsdp2` converts them. docs/fsdp2.md has the details.""",
        applicability="safe, unsafe or manual",
        severity=Severity.DEPRECATED,
        url="https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html",
    ),
    words=(),
    check=check,
)

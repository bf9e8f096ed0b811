"""FSDP001: a file that holds FSDP names and does not parse, about which nothing else can be said."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import UNPARSABLE, Finding, Severity
from fsdp_migrate.rules.card import Rule, RuleCard

CARD = RuleCard(
    code=UNPARSABLE,
    name="unparsable-file",
    summary="a file with FSDP names that does not parse",
    explanation="""\
The file holds a name that some rule looks for, but Python cannot parse it, so nothing in it was checked. The run ends
with exit code 3; the other files are done. Mend the syntax error, or exclude the file.""",
    applicability="manual",
    severity=Severity.BREAKS,
)


def _check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    return iter(())  # the finding is made where parsing fails


RULE = Rule(CARD, (), _check, everywhere=True)

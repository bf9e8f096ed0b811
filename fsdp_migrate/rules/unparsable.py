"""FSDP001: a file that holds FSDP names and does not parse, about which nothing else can be said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def rule(others: Iterable[Rule]) -> Rule:
    """The rule that looks at every file the `others` look at; the finding is made where parsing fails."""
    return Rule(CARD, tuple(needle for other in others for needle in other.needles), _check)


def _check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    return iter(())

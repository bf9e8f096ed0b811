"""No finding of a program here is in a text that its rule is not asked about."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Severity
from fsdp_migrate.rules.changed_names import OBJECTS, names_asked
from fsdp_migrate.rules.entry import Entry
from fsdp_migrate.rules.index import ENTRIES, OF_TARGETS
from fsdp_migrate.scan.names import listed
from fsdp_migrate.scan.needles import Written
from fsdp_migrate.scan.written_names import Vocabulary
from fsdp_migrate.screen import Screen
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange

FIXTURES = Path(__file__).parents[2] / "fixtures"
EVERY = (*ENTRIES, *(entry for entries in OF_TARGETS.values() for entry in entries))
NEWEST, ALL = TorchRange.default(), TorchRange.parse(">=1.12")


def programs() -> dict[str, bytes]:
    """The text of each fixture and of each example of a card."""
    found = {str(path.relative_to(FIXTURES)): path.read_bytes() for path in sorted(FIXTURES.rglob("*.py"))}
    for entry in EVERY:
        card = entry.load().card
        for number, text in enumerate((*(one.before for one in card.flags), *card.leaves)):
            found[f"{card.code}-{entry.target}-{number}"] = text.encode()
    return {name: raw for name, raw in found.items() if _parses(raw)}


def _parses(raw: bytes) -> bool:
    try:
        ast.parse(raw)
    except SyntaxError:
        return False
    return True


def found_unasked(raw: bytes, torch: TorchRange, *, hints: bool) -> Iterator[Entry]:
    """The rules that find something in a text if all of them are run on it."""
    facts = ModuleFacts(Source(raw), "x.py", torch, hints=hints)
    for entry in EVERY:
        rule = entry.load()
        if any(hints or found.severity is not Severity.HINT for found in rule.check(facts, rule.card)):
            yield entry
    facts.close()


@pytest.mark.parametrize("raw", programs().values(), ids=programs())
def test_whatever_a_rule_finds_is_in_a_text_that_it_is_asked_about(raw: bytes) -> None:
    text = Written(raw)
    for torch, hints in ((NEWEST, False), (ALL, True)):
        for entry in found_unasked(raw, torch, hints=hints):
            newest = torch.newest_only(hints)
            names = names_asked(newest) if entry.names is None else listed(entry.names)
            spoken = any(text.has(one) for one in entry.needles(hints))
            asked = entry.scope == "everywhere" or spoken or Vocabulary(names, OBJECTS).is_written(raw)
            assert asked, entry.code
            assert Screen((entry,), newest_only=newest, hints=hints).passes(raw) or entry.scope == "everywhere", (
                entry.code
            )

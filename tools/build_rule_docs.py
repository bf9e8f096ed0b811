"""Write docs/rules.md, and what tells of the settings, from their tables.

python -m tools.build_rule_docs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from fsdp_migrate.report.cards import card_markdown
from fsdp_migrate.rules import RULES
from fsdp_migrate.rules.card import RuleCard
from fsdp_migrate.torch_api import DEFAULT_RANGE, TorchRange
from tools import build_config_docs

COMMAND = "python -m tools.build_rule_docs"
ROOT = Path(__file__).resolve().parent.parent
FAMILIES = {
    "FSDP0": "The tool itself",
    "FSDP1": "Optimizer state",
    "FSDP2": "state_dict_type and configs",
    "FSDP3": "FlatParameter and private names",
    "FSDP4": "Wrap policies",
    "FSDP5": "Constructor and methods",
    "FSDP6": "Moved and removed names",
    "FSDP7": "Distributed checkpoint",
    "FSDP8": "Neighbours of FSDP",
    "FSDP9": "FSDP2",
}
_INTRODUCTION = f"""\
# Rules

<!-- Made from the rule cards in fsdp_migrate/rules by `{COMMAND}`; edit those. -->
<!-- fmt: off -->

What `fsdp-migrate explain CODE` prints, for all rules.

* Severity, here on torch{DEFAULT_RANGE}: *breaks* (some supported release lacks or rejects it), *changes* (some
  supported release silently does something else), *deprecated* (some supported release warns), *hint* (nothing is wrong
  yet).
* Fix: *safe* ones are applied by `fsdp-migrate rewrite`; after *unsafe* ones something observable differs, so that they
  need `--unsafe-fixes`; *manual* means that the finding says what to do.
"""


def main() -> None:
    """Bring the files up to date."""
    cards = [rule.card for rule in RULES]
    settings = ROOT / build_config_docs.PAGE
    pages = {
        ROOT / "docs" / "rules.md": rules_page(cards),
        ROOT / build_config_docs.SCHEMA: build_config_docs.schema(cards),
        settings: build_config_docs.with_settings(settings.read_text(encoding="utf-8")),
    }
    for path, text in pages.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            print(f"{path.relative_to(ROOT)} is up to date")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote {path.relative_to(ROOT)}")


def rules_page(cards: Sequence[RuleCard]) -> str:
    """The whole of docs/rules.md: tables of contents by family, then a section for every card."""
    families = [(family, list(members)) for family, members in groupby(cards, lambda card: card.code[:-2])]
    contents = "\n\n".join(f"**{FAMILIES[family]}**\n\n{_table(members)}" for family, members in families)
    sections = (
        block
        for family, members in families
        for block in [f"## {FAMILIES[family]}", *(part for card in members for part in _section(card))]
    )
    return "\n\n".join([_INTRODUCTION.rstrip(), contents, *sections]) + "\n"


def _table(cards: Iterable[RuleCard]) -> str:
    rows = ["| code | name | what it finds | fix |", "|---|---|---|---|"]
    for card in cards:
        summary = card.summary.replace("|", "\\|")
        rows.append(f"| [{card.code}](#{_anchor(card)}) | {card.name} | {summary} | {card.applicability} |")
    return "\n".join(rows)


def _anchor(card: RuleCard) -> str:
    """What GitHub makes of the section's heading."""
    return f"{card.code.lower()}-{card.name}"


def _section(card: RuleCard) -> Iterator[str]:
    yield f"### {card.code} {card.name}"
    yield from card_markdown(card, card.severity_on(TorchRange.parse(DEFAULT_RANGE)))


if __name__ == "__main__":
    main()

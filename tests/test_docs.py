from __future__ import annotations

import re
from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.rules import RULES
from fsdp_migrate.rules.card import Example, RuleCard
from tools import build_rule_docs
from tools.build_rule_docs import COMMAND, ROOT, rules_page, with_table

CARDS = [rule.card for rule in RULES]
PAGE = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
CARD = RuleCard(
    code="FSDP399",
    name="some-name",
    summary="a name | another",
    explanation="It **breaks**.\n\nSince long.\n",
    applicability="unsafe or manual",
    deprecated="2.1",
    removed="2.4",
    floor="2.2",
    flags=(
        Example("a = old()\n", "a = new()\n", "two words", Applicability.UNSAFE),
        Example("b = old()\n", "b = new()\n"),
        Example("old\n", note="not called"),
    ),
    leaves=("young()\n",),
    url="https://example.org/399",
)
SECTION = """\
### FSDP399 some-name

A name | another.

- Severity: breaks
- Deprecated since: torch 2.1
- Fails since: torch 2.4
- Rewritten code needs: torch 2.2 or newer
- Fix: unsafe or manual
- More: <https://example.org/399>

It **breaks**.

Since long.

**Finds** (two words)

```python
a = old()
```

**becomes**, with `--unsafe-fixes`

```python
a = new()
```

**Finds**

```python
b = old()
```

**becomes**

```python
b = new()
```

**Finds** (manual: not called)

```python
old
```

**Leaves alone**

```python
young()
```
"""


def test_the_page_of_the_rules_says_what_their_cards_say() -> None:
    assert rules_page(CARDS) == PAGE, f"docs/rules.md is not what the cards say: run `{COMMAND}`"


def test_the_table_of_the_readme_says_what_the_cards_say() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_table(readme, CARDS) == readme, f"the rules in README.md are not the cards': run `{COMMAND}`"


def test_a_bar_in_a_summary_does_not_end_its_cell() -> None:
    table = with_table("<!-- rules -->\n<!-- /rules -->\n", [CARD])
    assert "\n| FSDP399 | some-name | a name \\| another | unsafe or manual |\n" in table


def test_a_section_tells_the_whole_card() -> None:
    page = rules_page([CARD])
    assert page.endswith("\n## FlatParameter and private names\n\n" + SECTION)
    assert "\n- [FSDP399](#fsdp399-some-name) `some-name`: a name | another\n" in page


def test_a_card_with_a_severity_of_its_own_shows_it() -> None:
    card = RuleCard("FSDP299", "x", "a y", "z", "manual", severity=Severity.CHANGES)
    assert "\n- Severity: changes\n- Fix: manual\n" in rules_page([card])


def test_every_link_of_the_contents_leads_to_a_heading() -> None:
    headings = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    links = re.findall(r"^- \[FSDP\d{3}\]\(#([^)]+)\)", PAGE, re.MULTILINE)
    assert links == [heading.lower().replace(" ", "-") for heading in headings]
    assert len(links) == len(RULES)


def test_the_command_writes_what_is_not_up_to_date_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_rule_docs, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("# A\n\n<!-- rules -->\nold\n<!-- /rules -->\nend\n")
    build_rule_docs.main()
    assert capsys.readouterr().out == "wrote docs/rules.md\nwrote README.md\n"
    assert (tmp_path / "docs" / "rules.md").read_text(encoding="utf-8") == rules_page(CARDS)
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# A\n\n<!-- rules -->\n| code | name |")
    assert readme.endswith(" |\n<!-- /rules -->\nend\n")
    build_rule_docs.main()
    assert capsys.readouterr().out == "docs/rules.md is up to date\nREADME.md is up to date\n"

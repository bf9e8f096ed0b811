from __future__ import annotations

import importlib.util
import operator
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.report import github, gitlab, sarif
from fsdp_migrate.report.output import LINT_FORMATS
from fsdp_migrate.rules import RULES
from fsdp_migrate.rules.card import Example, RuleCard
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.verify.fixtures import parse_header
from tools import build_rule_docs
from tools.build_rule_docs import COMMAND, ROOT, rules_page
from tools.new_rule import checked

CARDS = [rule.card for rule in RULES]
PAGE = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
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


def test_a_bar_in_a_summary_does_not_end_its_cell() -> None:
    row = "| [FSDP399](#fsdp399-some-name) | some-name | a name \\| another | unsafe or manual |"
    assert f"\n{row}\n" in rules_page([CARD])


def test_a_section_tells_the_whole_card() -> None:
    page = rules_page([CARD])
    assert page.endswith("\n## FlatParameter and private names\n\n" + SECTION)


def test_a_card_with_a_severity_of_its_own_shows_it() -> None:
    card = RuleCard("FSDP299", "x", "a y", "z", "manual", severity=Severity.CHANGES)
    assert "\n- Severity: changes\n- Fix: manual\n" in rules_page([card])


def test_every_link_of_the_contents_leads_to_a_heading() -> None:
    headings = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    links = re.findall(r"^\| \[FSDP\d{3}\]\(#([^)]+)\)", PAGE, re.MULTILINE)
    assert links == [heading.lower().replace(" ", "-") for heading in headings]
    assert len(links) == len(RULES)


def test_the_command_writes_what_is_not_up_to_date_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_rule_docs, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "fsdp_migrate" / "workspace" / "settings").mkdir(parents=True)
    (tmp_path / "docs" / "configuration.md").write_text("<!-- settings -->\n<!-- /settings -->\n")
    build_rule_docs.main()
    assert capsys.readouterr().out == (
        "wrote docs/rules.md\nwrote fsdp_migrate/workspace/settings/schema.json\nwrote docs/configuration.md\n"
    )
    assert (tmp_path / "docs" / "rules.md").read_text(encoding="utf-8") == rules_page(CARDS)
    build_rule_docs.main()
    assert capsys.readouterr().out == (
        "docs/rules.md is up to date\n"
        "fsdp_migrate/workspace/settings/schema.json is up to date\ndocs/configuration.md is up to date\n"
    )


def guide_block(language: str, word: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if word in block]
    return block


def test_the_check_in_the_guide_finds_and_fixes_what_it_says() -> None:
    example: dict[str, Any] = {}
    exec(guide_block("python", "def check"), example)
    text = """\
import torch.distributed.fsdp as f
wrap = f.FullyShardedDataParallel
model = [wrap(n, use_orig_params=False), wrap(n, use_orig_params=flag), other(n, use_orig_params=False)]
"""
    facts = ModuleFacts(Source(text.encode()), "x.py", TorchRange.parse(">=2.1"))
    (finding,) = example["check"](facts, CARD._replace(floor=None))
    assert (finding.line, finding.applicability) == (3, Applicability.UNSAFE)
    (edit,) = finding.fix.edits
    assert (facts.source.segment(edit.span), edit.text) == ("False", "True")
    assert edit.span.start == text.index("False")


def test_what_the_guide_starts_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.new_rule.RULES", ())  # whoever tries the guide has the rule already
    _, _, _, code, name, summary = shlex.split(guide_block("sh", "tools.new_rule"))
    assert checked(code, name, summary).module == "flat_originals"


def test_every_module_file_and_name_in_the_guide_is_there() -> None:
    for module in re.findall(r"python -m ([\w.]+)", GUIDE):
        assert importlib.util.find_spec(module), module
    examples = {"before.py", "after.py", "tests/targets/modernise/FAMILY/test_RULE.py"}
    for path in set(re.findall(r"`((?:\w+/)*\w+\.py)`", GUIDE)) - examples:
        inside = ("facts", "code", "rules", "workspace", "targets/modernise")
        homes = ("", "fsdp_migrate", *(f"fsdp_migrate/{folder}" for folder in inside))
        assert any((ROOT / home / path).is_file() for home in homes), path
    facts = ModuleFacts(Source(b"x = 1\n"), "x.py", TorchRange.parse(">=2.1"))
    chains = re.findall(r"\bfacts((?:\.\w+)+)", GUIDE)
    assert len(chains) > 10
    for chain in chains:
        operator.attrgetter(chain[1:])(facts)


def test_the_header_in_the_guide_is_one_that_is_read() -> None:
    lines = guide_block("text", "# fixture:").splitlines()
    values = [re.sub(r"(?<=\S) {3,}.*", "", line) for line in lines if re.match(r"# \w+:", line)]
    alternatives = re.findall(r"\bor: (.+?)(?=\s{3,}or:|$)", "\n".join(lines), re.MULTILINE)
    for line in values:
        parse_header(line.replace("QUALIFIED.NAME", "torch.save"), Path("before.py"), strict=False)
    assert len(alternatives) == 4
    for value in alternatives:
        key = "evidence" if value.startswith(("warning", "raises")) else "expect"
        parse_header(f"# {key}: {value}", Path("before.py"), strict=False)


CI_PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def test_the_page_on_ci_has_every_format() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", CI_PAGE, re.MULTILINE)) == LINT_FORMATS


def test_the_page_on_ci_grades_findings_as_the_formats_do() -> None:
    rows = {
        severity.value: (sarif.LEVELS[severity], github.LEVELS[severity], gitlab.SEVERITIES[severity])
        for severity in Severity
    }
    told = {
        row[0]: tuple(row[1:]) for row in re.findall(r"^\| (\w+) \| (\w+) \| (\w+) \| (\w+) \|$", CI_PAGE, re.MULTILINE)
    }
    assert {key: told[key] for key in rows} == rows


def test_every_command_line_on_the_page_on_ci_is_understood() -> None:
    lines = re.findall(r"^[`\s-]*fsdp-migrate ((?:lint|rewrite) .*?)`?$", CI_PAGE, re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        command, *arguments = shlex.split(line)
        known = {name for option in cli.commands[command].params for name in option.opts}
        assert {argument for argument in arguments if argument.startswith("-")} <= known


def test_the_workflow_on_the_page_on_ci_uses_inputs_of_the_action() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    blocks = re.findall(r"^```yaml\n(.*?)^```", CI_PAGE, re.MULTILINE | re.DOTALL)
    (workflow,) = [yaml.safe_load(block) for block in blocks if "steps:" in block]
    used = workflow["jobs"]["fsdp-migrate"]["steps"][-1]["with"]
    assert set(used) <= set(action["inputs"])

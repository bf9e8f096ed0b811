from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fsdp_migrate.rules import RULES
from tools.messages import sections, texts


def test_every_rule_has_its_card_and_messages_listed() -> None:
    listed = dict(sections())
    codes = {code for title in listed for code in title.split()[1:]}
    assert codes == {rule.card.code for rule in RULES}
    assert all(lines for lines in listed.values())


def test_messages_are_shown_without_docstrings_and_examples(tmp_path: Path) -> None:
    path = tmp_path / "rule.py"
    path.write_text(
        '"""A docstring of five words."""\n'
        'Example("not a message at all")\n'
        'message = f"`{old}` is {new!r}, "  \\\n    "deprecated since 2.4"\n'
    )
    assert [(text.line, text.text) for text in texts(path)] == [(3, "`{old}` is {new}, deprecated since 2.4")]


def test_arguments_choose_sections() -> None:
    command = [sys.executable, "-m", "tools.messages", "FSDP701"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "storage_classes.py FSDP701" in printed
    assert "FSDP801" not in printed

"""The JSON schema of the settings and their page in docs, made from the table of settings.

`python -m tools.build_rule_docs` writes both, since the schema names every rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from fsdp_migrate.commands.config_answer import Effective, lines
from fsdp_migrate.rules.card import RuleCard
from fsdp_migrate.workspace.settings.table import SETTINGS, Setting

SCHEMA = "fsdp_migrate/workspace/settings/schema.json"
PAGE = "docs/configuration.md"
MARKS = ("<!-- settings -->\n", "<!-- /settings -->")


def schema(cards: Iterable[RuleCard]) -> str:
    """The text of fsdp_migrate/workspace/settings/schema.json."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of fsdp-migrate",
        "description": "A fsdp-migrate.toml, or [tool.fsdp-migrate] in a pyproject.toml.",
        "type": "object",
        "additionalProperties": False,
        "properties": {setting.key: _property(setting) for setting in SETTINGS},
        "$defs": {"rule": {"description": "A code, the start of one, or a name.", "enum": _selectors(cards)}},
    }
    return json.dumps(document, indent=2) + "\n"


def with_settings(page: str) -> str:
    """The text of docs/configuration.md with its settings replaced."""
    head, rest = page.split(MARKS[0])
    _, tail = rest.split(MARKS[1])
    sections = "\n\n".join(part for setting in SETTINGS for part in _section(setting))
    return f"{head}{MARKS[0]}\n{sections}\n\n{MARKS[1]}{tail}"


def _property(setting: Setting) -> dict[str, Any]:
    default = {} if setting.default is None else {"default": setting.default}
    return {"description": setting.doc, **setting.kind.schema, **default, "examples": [setting.example]}


def _selectors(cards: Iterable[RuleCard]) -> list[str]:
    """Every way to name rules: starts of codes, codes and names."""
    known = list(cards)
    starts = {card.code[:length] for card in known for length in range(len("FSDP"), len(card.code) + 1)}
    return [*sorted(starts), *(card.name for card in known)]


def _section(setting: Setting) -> Iterator[str]:
    yield f"### {setting.key}"
    yield setting.doc
    default = "none" if setting.default is None else next(lines([Effective("x", setting.default, "")]))[4:].rstrip("# ")
    yield "\n".join(
        [
            f"- Value: {setting.kind.wanted}",
            f"- Default: {setting.unset or f'`{default}`'}",
            *([f"- Option: `{setting.option}`"] if setting.option else []),
        ]
    )
    example = next(lines([Effective(setting.key, setting.example, "")])).rstrip("# ")
    yield f"```toml\n{example}\n```"

"""One table of settings: what is read, what the schema says and what the docs tell are the same."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import jsonschema
import pytest

from fsdp_migrate.config import ConfigError, Layer
from fsdp_migrate.config.effective import SCHEMA
from fsdp_migrate.config.table import BY_KEY, SETTINGS, Setting
from fsdp_migrate.rules import RULES
from fsdp_migrate.toml import tomllib
from tools import build_config_docs
from tools.build_rule_docs import COMMAND, ROOT

TEXT = SCHEMA.read_text(encoding="utf-8")
VALIDATOR = jsonschema.Draft202012Validator(json.loads(TEXT))

BAD: dict[str, list[Any]] = {
    "torch": [2.1, None, [">=2.1"]],
    "select": ["FSDP1", ["FSDP999"], [1], ["no-such-rule"]],
    "ignore": [{}, [[]]],
    "per-file-ignores": [[], {"tests/": "FSDP1"}, {"tests/": ["x"]}],
    "fixes": [["FSDP1"], {"FSDP1": "save"}, {"FSDP999": "safe"}, {"FSDP1": True}],
    "unsafe-fixes": [1, "true"],
    "hints": [0, "yes"],
    "fail-on": ["worst", True],
    "include": ["*.py", [1], [""]],
    "exclude": ["gen", [None], [""]],
    "baseline": [True, ["x"], ""],
}


def test_every_setting_has_a_field_of_its_own() -> None:
    assert [setting.field for setting in SETTINGS] == [field.name for field in fields(Layer)]


def test_the_schema_names_exactly_the_settings_that_are_read() -> None:
    VALIDATOR.check_schema(VALIDATOR.schema)
    assert list(VALIDATOR.schema["properties"]) == list(BY_KEY)
    assert VALIDATOR.schema["additionalProperties"] is False


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_what_is_read_fits_the_schema(setting: Setting) -> None:
    for value in (setting.example, *([] if setting.default is None else [setting.default])):
        setting.kind.read(value)
        assert VALIDATOR.is_valid({setting.key: value})


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_what_is_refused_does_not_fit_the_schema(setting: Setting) -> None:
    for value in BAD[setting.key]:
        assert not VALIDATOR.is_valid({setting.key: value}), value
        with pytest.raises(ConfigError):
            setting.kind.read(value)


def test_the_schema_knows_every_way_to_name_a_rule() -> None:
    known = VALIDATOR.schema["$defs"]["rule"]["enum"]
    assert BY_KEY["select"].kind.read(known)
    assert {word for rule in RULES for word in (rule.card.code, rule.card.name)} < set(known)
    assert {"FSDP", "FSDP1", "FSDP10"} < set(known)


def test_schema_and_page_say_what_the_table_says() -> None:
    assert build_config_docs.schema(rule.card for rule in RULES) == TEXT, f"run `{COMMAND}`"
    page = (ROOT / build_config_docs.PAGE).read_text(encoding="utf-8")
    assert build_config_docs.with_settings(page) == page, f"run `{COMMAND}`"


def test_every_example_on_the_page_is_usable() -> None:
    page = (ROOT / build_config_docs.PAGE).read_text(encoding="utf-8")
    blocks = [tomllib.loads(block.split("```")[0]) for block in page.split("```toml\n")[1:]]
    values = [block["tool"]["fsdp-migrate"] if "tool" in block else block for block in blocks]
    assert len(values) == len(SETTINGS) + 1
    for value in values:
        assert VALIDATOR.is_valid(value)
        for key, written in value.items():
            BY_KEY[key].kind.read(written)

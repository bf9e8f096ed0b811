"""One table of settings: what is read, what the schema says and what the docs tell are the same."""

from __future__ import annotations

import json
from typing import Any

import hypothesis
import jsonschema
import pytest
from hypothesis import strategies as st

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.commands.config_answer import SCHEMA
from fsdp_migrate.rules import RULES
from fsdp_migrate.workspace.settings import ConfigError, Layer
from fsdp_migrate.workspace.settings.table import BY_KEY, SETTINGS, Setting
from fsdp_migrate.workspace.toml import tomllib
from tools import build_config_docs
from tools.build_rule_docs import COMMAND, ROOT

TEXT = SCHEMA.read_text(encoding="utf-8")
VALIDATOR = jsonschema.Draft202012Validator(json.loads(TEXT))

BAD: dict[str, list[Any]] = {
    "torch": [2.1, None, [">=2.1"]],
    "target": ["fsdp3", True, ["dcp"]],
    "fsdp2-helper": ["no", True],
    "checkpoints": ["old", False],
    "all-parameters-used": [1, "yes"],
    "select": ["FSDP1", ["FSDP999"], [1], ["no-such-rule"]],
    "ignore": [{}, [[]]],
    "per-file-ignores": [[], {"tests/": "FSDP1"}, {"tests/": ["x"]}],
    "fixes": [["FSDP1"], {"FSDP1": "save"}, {"FSDP999": "safe"}, {"FSDP1": True}],
    "unsafe-fixes": [1, "true"],
    "hints": [0, "yes"],
    "scripts": [0, "yes"],
    "fail-on": ["worst", True],
    "include": ["*.py", [1], [""]],
    "exclude": ["gen", [None], [""]],
    "baseline": [True, ["x"], ""],
}


def test_every_setting_has_a_field_of_its_own() -> None:
    assert [setting.field for setting in SETTINGS] == list(Layer._fields)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_a_setting_is_named_like_the_option_that_wins_over_it(setting: Setting) -> None:
    parameters = [parameter for command in ("lint", "rewrite") for parameter in cli.commands[command].params]
    options = {name for parameter in parameters for name in parameter.opts}
    assert setting.option == (f"--{setting.key}" if f"--{setting.key}" in options else None)


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


WORDS = ["FSDP1", "FSDP301", "no-shard", "safe", "manual", "hint", "breaks", ">=2.1", "*.py", "tests/", "#", "!", ""]
KEYS = st.sampled_from(WORDS) | st.text(max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | KEYS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(KEYS, inside, max_size=3),
    max_leaves=6,
)


@hypothesis.settings(max_examples=400, deadline=None)
@hypothesis.given(st.sampled_from(SETTINGS), VALUES)
def test_reading_and_schema_agree_on_any_value(setting: Setting, value: Any) -> None:
    valid, refusal = VALIDATOR.is_valid({setting.key: value}), refused(setting, value)
    assert "\n" not in refusal
    # A schema says nothing of what a range or a pattern means.
    assert valid is not bool(refusal) or (valid and setting.key in ("torch", "include", "exclude"))


def refused(setting: Setting, value: Any) -> str:
    """Why a value cannot be read, nothing if it can."""
    try:
        setting.kind.read(value)
    except ConfigError as error:
        return str(error)
    return ""


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

"""The kinds of values of settings: how TOML is read, and the JSON schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.workspace.settings.settings import CHECKPOINTS, HELPERS, TARGETS, ConfigError, code_prefix

if TYPE_CHECKING:
    from pathlib import Path


class OptionKind(NamedTuple):
    """A kind of values.

    `wanted` says to people what is expected. `schema` is a JSON schema, in which ``#/$defs/rule`` stands for all ways
    to name a rule. `read` converts the value in the file.

    Raises (`read`): ConfigError: it is not such a value; the message does not name the key.
    """

    wanted: str
    schema: Mapping[str, Any]
    read: Callable[[Any], Any]


def _typed(value: Any, type_: type, wanted: str) -> Any:
    if type(value) is not type_:
        import json  # only for messages

        raise ConfigError(f"expected {wanted}, not {json.dumps(value, default=str, ensure_ascii=False)}")
    return value


def _strings(value: Any, wanted: str) -> list[str]:
    return [_typed(item, str, wanted) for item in _typed(value, list, wanted)]


def _choice(value: Any, known: tuple[str, ...]) -> str:
    text: str = _typed(value, str, f"one of {', '.join(known)}")
    if text not in known:
        from fsdp_migrate.spelling import closest  # only for messages

        raise ConfigError(f"{text!r} is none of {', '.join(known)}{closest(text, known)}")
    return text


def _range(value: Any) -> Any:
    from fsdp_migrate.torch_api import RangeError, TorchRange

    try:
        return TorchRange.parse(_typed(value, str, RANGE.wanted))
    except RangeError as error:
        raise ConfigError(str(error)) from None


def _known_rules() -> dict[str, str]:
    from fsdp_migrate.rules.index import ENTRIES

    return {entry.code: entry.name for entry in ENTRIES}


def _rules(value: Any) -> tuple[str, ...]:
    written = _strings(value, RULES.wanted)
    if not written:
        return ()
    known = _known_rules()
    return tuple(dict.fromkeys(code_prefix(selector, known) for selector in written))


def _rules_by_pattern(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    table = _typed(value, dict, RULES_BY_PATTERN.wanted)
    return tuple((pattern, _rules(rules)) for pattern, rules in table.items())


def _grades(value: Any) -> tuple[tuple[str, Applicability], ...]:
    table = _typed(value, dict, GRADES.wanted)
    known = _known_rules() if table else {}
    return tuple(
        (code_prefix(selector, known), Applicability(_choice(grade, _GRADE_NAMES))) for selector, grade in table.items()
    )


def _patterns(value: Any) -> tuple[str, ...]:
    written = tuple(_strings(value, PATTERNS.wanted))
    for pattern in written:
        # Whatever else is no pattern fits nothing. Asking pathspec would load it even where no folder is searched.
        if pattern.startswith("#") or not pattern.strip("!/ "):
            raise ConfigError(f"{pattern!r} matches no file; write patterns as in a .gitignore")
    return written


def _path(value: Any) -> Path:
    from pathlib import Path

    if not _typed(value, str, "a path"):
        raise ConfigError('expected a path, not ""')
    return Path(value)


_GRADE_NAMES = tuple(grade.value for grade in Applicability)
_SEVERITIES = tuple(severity.value for severity in Severity)
_RULE_LIST = {"type": "array", "items": {"$ref": "#/$defs/rule"}}

RANGE = OptionKind("a range such as '>=2.1'", {"type": "string"}, _range)
RULES = OptionKind("a list of rules such as ['FSDP1', 'FSDP303']", _RULE_LIST, _rules)
RULES_BY_PATTERN = OptionKind(
    "a table of patterns such as { 'tests/' = ['FSDP1'] }",
    {"type": "object", "additionalProperties": _RULE_LIST},
    _rules_by_pattern,
)
GRADES = OptionKind(
    "a table of rules such as { FSDP301 = 'unsafe' }",
    {
        "type": "object",
        "propertyNames": {"$ref": "#/$defs/rule"},
        "additionalProperties": {"enum": list(_GRADE_NAMES)},
    },
    _grades,
)
BOOLEAN = OptionKind("true or false", {"type": "boolean"}, lambda value: _typed(value, bool, "true or false"))
SEVERITY = OptionKind(
    f"one of {', '.join(_SEVERITIES)}",
    {"enum": list(_SEVERITIES)},
    lambda value: Severity(_choice(value, _SEVERITIES)),
)
TARGET, HELPER, CHECKPOINT = (
    OptionKind(f"one of {', '.join(known)}", {"enum": list(known)}, partial(_choice, known=tuple(known)))
    for known in (TARGETS, HELPERS, CHECKPOINTS)
)
PATTERNS = OptionKind(
    "a list of patterns such as ['third_party/', '*_pb2.py']",
    {"type": "array", "items": {"type": "string", "minLength": 1}},
    _patterns,
)
PATH = OptionKind("a path", {"type": "string", "minLength": 1}, _path)

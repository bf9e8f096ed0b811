"""Write fsdp_migrate/rules/index.py: what choosing among the rules takes, so that linting loads only those it runs.

    python -m tools.build_rule_index

Run it whenever a rule is added or changes its code, name, words, names, scope, grades of fixes or severity.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import fsdp_migrate
from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.rules.card import Rule
from fsdp_migrate.rules.changed_names import changed_names

COMMAND = "python -m tools.build_rule_index"
TARGET = Path(__file__).resolve().parent.parent / "fsdp_migrate" / "rules" / "index.py"
# Where rules stand.
_ROOMS = ("rules", "targets")
_GRADES = (Applicability.SAFE, Applicability.UNSAFE)
_HEAD = f'''\
"""The rules by code, as far as choosing among them takes: made from their modules by `{COMMAND}`."""
# fmt: off

from __future__ import annotations

from fsdp_migrate.rules.entry import Entry

ENTRIES: tuple[Entry, ...] = (
'''


_TAIL = '''\
def entry_of(code: str) -> Entry:
    """The rule of a code that is in force without a target."""
    return next(entry for entry in ENTRIES if entry.code == code)
'''


def main() -> int:
    """Bring the index up to date."""
    text = index_text(found(), found_of_targets())
    if TARGET.read_text(encoding="utf-8") == text:
        print(f"{TARGET.name} is up to date")
    else:
        TARGET.write_text(text, encoding="utf-8", newline="\n")
        print(f"wrote {TARGET.name}")
    return 0


def found() -> dict[str, tuple[str, Rule]]:
    """Every rule that is in force always, with the module that holds it, in the order of their codes."""
    return {rule.card.code: (module, rule) for module, rule in _rules() if rule.target is None}


def found_of_targets() -> dict[str, list[tuple[str, Rule]]]:
    """The rules that targets put in the place of others."""
    targets: dict[str, list[tuple[str, Rule]]] = {}
    for module, rule in _rules():
        if rule.target is not None:
            targets.setdefault(rule.target, []).append((module, rule))
    return targets


def _rules() -> list[tuple[str, Rule]]:
    """All rules of the package, with their modules."""
    rules: dict[int, tuple[str, Rule]] = {}
    for room in _ROOMS:
        path = [str(Path(fsdp_migrate.__file__).parent / room)]
        for info in pkgutil.walk_packages(path, f"fsdp_migrate.{room}."):
            for value in vars(importlib.import_module(info.name)).values():
                for rule in (value,) if isinstance(value, Rule) or not isinstance(value, tuple) else value:
                    if isinstance(rule, Rule):
                        rules.setdefault(id(rule), (info.name.removeprefix("fsdp_migrate."), rule))
    return sorted(rules.values(), key=lambda one: one[1].card.code)


def index_text(rules: Mapping[str, tuple[str, Rule]], targets: Mapping[str, Iterable[tuple[str, Rule]]]) -> str:
    """The whole module, a line for each rule; `targets` are those that a target puts in the place of others."""
    text = _HEAD + "".join(f"    {row(rule, module)},\n" for module, rule in rules.values()) + ")\n"
    text += "# What a target has in the place of the rules with the same codes.\n"
    text += "OF_TARGETS: dict[str, tuple[Entry, ...]] = {\n"
    for target, own in targets.items():
        rows = "".join(f"        {row(rule, module)},\n" for module, rule in own)
        text += f"    {_literal(target)}: (\n{rows}    ),\n"
    return f"{text}}}\n\n\n{_TAIL}"


def row(rule: Rule, module: str) -> str:
    """The line of one rule that stands in `module`."""
    fields = [_literal(rule.card.code), _literal(rule.card.name), _literal(module)]
    if rule.words:
        fields.append(_literal(rule.words))
    if rule.names is not None:
        names = None if rule.names is changed_names else tuple(sorted(rule.names()))
        fields.append(f"names={names if names is None else _literal(names)}")
    if rule.scope != "fsdp":
        fields.append(f"scope={_literal(rule.scope)}")
    fixes = tuple(grade.value for grade in _GRADES if re.search(rf"\b{grade.value}\b", rule.card.applicability))
    if fixes:
        fields.append(f"fixes={_literal(fixes)}")
    if rule.card.severity is Severity.HINT:
        fields.append("hint=True")
    if rule.hinted:
        fields.append(f"hinted={_literal(rule.hinted)}")
    if rule.beside:
        fields.append(f"beside={_literal(rule.beside)}")
    if rule.target is not None:
        fields.append(f"target={_literal(rule.target)}")
    return f"Entry({', '.join(fields)})"


def _literal(value: str | tuple[str, ...]) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    inside = ", ".join(_literal(part) for part in value)
    return f"({inside},)" if len(value) == 1 else f"({inside})"


if __name__ == "__main__":
    raise SystemExit(main())

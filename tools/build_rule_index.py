"""Write fsdp_migrate/rules/index.py: what choosing among the rules takes, so that linting loads only those it runs.

    python -m tools.build_rule_index

Run it whenever a rule is added or changes its code, name, needles, names or grades of fixes.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import fsdp_migrate
from fsdp_migrate.findings import Applicability
from fsdp_migrate.rules.card import Rule
from fsdp_migrate.rules.changed_names import changed_names

COMMAND = "python -m tools.build_rule_index"
TARGET = Path(__file__).resolve().parent.parent / "fsdp_migrate" / "rules" / "index.py"
# They are written in nearly every file that a rule looks at.
_COMMON = {"torch", "distributed", "fsdp", "tensor", "checkpoint"}
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


def main() -> int:
    """Bring the index up to date."""
    text = index_text(found())
    if TARGET.read_text(encoding="utf-8") == text:
        print(f"{TARGET.name} is up to date")
    else:
        TARGET.write_text(text, encoding="utf-8", newline="\n")
        print(f"wrote {TARGET.name}")
    return 0


def found() -> dict[str, tuple[str, Rule]]:
    """Every rule of the package with the module that holds it, in the order of their codes."""
    rules: dict[int, tuple[str, Rule]] = {}
    for room in _ROOMS:
        path = [str(Path(fsdp_migrate.__file__).parent / room)]
        for info in pkgutil.walk_packages(path, f"fsdp_migrate.{room}."):
            for value in vars(importlib.import_module(info.name)).values():
                for rule in value if isinstance(value, tuple) else (value,):
                    if isinstance(rule, Rule):
                        rules.setdefault(id(rule), (info.name.removeprefix("fsdp_migrate."), rule))
    return {rule.card.code: (module, rule) for module, rule in sorted(rules.values(), key=lambda one: one[1].card.code)}


def index_text(rules: Mapping[str, tuple[str, Rule]]) -> str:
    """The whole module, a line for each rule."""
    return _HEAD + "".join(f"    {row(rule, module)},\n" for module, rule in rules.values()) + ")\n"


def row(rule: Rule, module: str) -> str:
    """The line of one rule that stands in `module`."""
    fields = [_literal(rule.card.code), _literal(rule.card.name), _literal(module), _literal(rule.needles)]
    marks = _marks(rule)
    if marks:
        fields.append(f"marks={_literal(marks)}")
    if rule.neighbour:
        fields.append("neighbour=True")
    if rule.near is not None:
        fields.append(f"near={_literal(rule.near)}")
    if rule.names is changed_names:
        fields.append("changed=True")
    elif rule.names is not None:
        fields.append(f"names={_literal(tuple(sorted(rule.names())))}")
    if rule.everywhere:
        fields.append("everywhere=True")
    fixes = tuple(grade.value for grade in _GRADES if re.search(rf"\b{grade.value}\b", rule.card.applicability))
    if fixes:
        fields.append(f"fixes={_literal(fixes)}")
    return f"Entry({', '.join(fields)})"


def _marks(rule: Rule) -> tuple[str, ...]:
    """What one of must be written where the rule finds something, the names of the API data apart."""
    marks = rule.marks
    if marks is None:
        names = () if rule.names is None or rule.names is changed_names else rule.names()
        # What stands in front of a name may be spelt in other ways, or on another line.
        marks = (*(re.split(r"[. ]", text)[-1] for text in rule.needles), *_parts(names))
    return tuple(sorted(m for m in set(marks) if not any(other != m and other in m for other in marks)))


def _parts(names: Iterable[str]) -> set[str]:
    """Few identifiers one of which is a part of each of the names; every part of a name is written where it is."""
    left = {name: set(name.split(".")) - _COMMON for name in names}
    chosen: set[str] = set()
    while left:
        counts = Counter(part for parts in left.values() for part in parts)
        best = max(counts, key=lambda part: (counts[part], len(part), part))
        chosen.add(best)
        left = {name: parts for name, parts in left.items() if best not in parts}
    return chosen


def _literal(value: str | tuple[str, ...]) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    inside = ", ".join(_literal(part) for part in value)
    return f"({inside},)" if len(value) == 1 else f"({inside})"


if __name__ == "__main__":
    raise SystemExit(main())

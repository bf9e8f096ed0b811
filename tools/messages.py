"""Print every text that a user can see: first the cards, messages and reasons of rules, then what the commands say.

python -m tools.messages [CODE or part of a path ...]

The texts come from the source, so that all of them can be read at once: every string of three words or more that is
neither a docstring nor an example. Parts of an f-string that are filled in at run time appear in braces.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fsdp_migrate.rules import RULES
from fsdp_migrate.rules.card import Rule

PACKAGE = Path(__file__).resolve().parent.parent / "fsdp_migrate"
# Where the texts of findings are; they come first.
ROOMS = ("rules", "targets", "code", "facts")
_NOT_SHOWN_TO_USERS = frozenset({"index.py", "catalogue.py", "data.py", "releases.py"})
_SKIPPED_CALLS = frozenset({"Example"})
_SKIPPED_KEYWORDS = frozenset({"leaves", "summary", "explanation"})
_FEWEST_WORDS = 3


class Text(NamedTuple):
    """A message or a reason, and its line."""

    line: int
    text: str


def main() -> None:
    """Print the texts that fit the arguments, all without one."""
    wanted = sys.argv[1:]
    for title, lines in sections():
        if not wanted or any(word in title for word in wanted):
            print(f"## {title}", *lines, "", sep="\n")


def sections() -> Iterator[tuple[str, list[str]]]:
    """A section for each module with texts: its cards first, then its messages and reasons."""
    for path in modules():
        name = str(path.relative_to(PACKAGE))
        cards = [rule.card for rule in RULES if _home(rule) == name]
        lines = [f"{card.code}: {card.summary}\n\n{card.explanation}\n" for card in cards]
        lines += [f"{text.line}: {text.text}" for text in texts(path)]
        if lines:
            yield " ".join([name, *(card.code for card in cards)]), lines


def modules() -> list[Path]:
    """The modules of the package, first those whose texts a finding may carry."""
    first = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    paths = dict.fromkeys([*first, *sorted(PACKAGE.rglob("*.py"))])
    return [path for path in paths if path.name not in _NOT_SHOWN_TO_USERS]


def _home(rule: Rule) -> str:
    """The file that a rule stands in, relative to the package; its check may be a function with arguments given."""
    dotted = getattr(rule.check, "func", rule.check).__module__
    return f"{dotted.removeprefix('fsdp_migrate.').replace('.', '/')}.py"


def texts(path: Path) -> list[Text]:
    """The messages and reasons in a module, in their order."""
    tree = ast.parse(path.read_bytes())
    found = (Text(node.lineno, shown(node)) for node in _strings(tree))
    prose = (text for text in found if len(text.text.split()) >= _FEWEST_WORDS and "\n" not in text.text)
    return sorted(prose, key=lambda text: text.line)


def _strings(node: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Strings and f-strings below a node; not docstrings, nor those of examples and cards."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield node
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SKIPPED_CALLS:
        return
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not is_docstring and not (isinstance(child, ast.keyword) and child.arg in _SKIPPED_KEYWORDS):
            yield from _strings(child)


def shown(node: ast.Constant | ast.JoinedStr) -> str:
    """A string as it is given, with the expressions of an f-string in braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    values = (part.value for part in node.values if isinstance(part, (ast.Constant, ast.FormattedValue)))
    return "".join(f"{{{ast.unparse(value)}}}" if isinstance(value, ast.AST) else str(value) for value in values)


if __name__ == "__main__":
    main()

"""setup.py, read without running it: the strings that reach `install_requires` and `extras_require`."""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator

from fsdp_migrate.workspace.project_files import FileFault, read_bytes
from fsdp_migrate.workspace.projects.mentions import Mentions

_KEYS = {"install_requires": True, "extras_require": False}
_KEY = re.compile("|".join(_KEYS).encode())
_GROWING = frozenset(["append", "extend", "insert", "update", "add"])


def read(path: str, _root: str) -> Mentions:
    """The requirements on torch in the literals of a setup.py.

    A script without requirements describes no package: it builds an extension, or is a module that has this name.

    Raises:
        FileFault: it cannot be read.
    """
    raw = read_bytes(path)
    mentions = Mentions(package=_KEY.search(raw) is not None)
    if not mentions.package or b"torch" not in raw:
        return mentions
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(raw)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise FileFault(f"it does not parse: {' '.join(str(error).split())}") from None
    strings = _Strings(tree)
    for key, value in _arguments(tree):
        mentions.add_pip(path, list(dict.fromkeys(strings.reaching(value))), main=_KEYS[key])
    return mentions


def _arguments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The values for the keys, as keyword arguments or in a dict (`setup(**kwargs)`)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in _KEYS:
            yield node.arg, node.value
        elif isinstance(node, ast.Dict):
            for name, value in zip(node.keys, node.values):
                if isinstance(name, ast.Constant) and name.value in _KEYS:
                    yield str(name.value), value
        elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Subscript):
            name = target.slice
            if isinstance(name, ast.Constant) and name.value in _KEYS:
                yield str(name.value), node.value


class _Strings:
    """The string literals that may reach an expression, through all names bound in the module."""

    def __init__(self, tree: ast.Module) -> None:
        self._bound: defaultdict[str, list[ast.expr]] = defaultdict(list)
        for node in ast.walk(tree):
            for name, value in _bindings(node):
                self._bound[name].append(value)

    def reaching(self, expression: ast.expr) -> Iterator[str]:
        """The strings, split into lines, because setuptools also accepts a list as the lines of one string."""
        seen: set[str] = set()
        waiting: list[ast.AST] = [expression]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from node.value.split("\n")
            elif isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                waiting += self._bound[node.id]
            elif isinstance(node, ast.Dict):
                waiting += node.values
            # The pieces of an f-string are no requirements, nor is what strings are compared with.
            elif not isinstance(node, (ast.JoinedStr, ast.Compare)):
                waiting += ast.iter_child_nodes(node)


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and the values that they get: assignments, `+=`, `name[key] = value`, `name.append(value)`."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            holder = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(holder, ast.Name):
                yield holder.id, node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWING:
        holder = node.func.value
        holder = holder.value if isinstance(holder, ast.Subscript) else holder
        if isinstance(holder, ast.Name):
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield holder.id, argument

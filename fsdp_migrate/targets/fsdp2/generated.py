"""The module that is written beside the one that wraps models: its functions, its text, and how it is imported."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from fsdp_migrate.code.import_texts import CannotSupply
from fsdp_migrate.code.new_names import spell_from
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.other_modules import imported_modules
from fsdp_migrate.source import Source
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion

SHARD = "shard"
NO_SYNC = "no_sync"
CLIP = "clip_grad_norm_"
GROUP = "group_of"
FUNCTIONS = (SHARD, NO_SYNC, CLIP, GROUP)
NAME = "fsdp2"
_TEMPLATE = Path(__file__).with_name("generated_module.py.txt")
_WIDTH = 88
_MOST_NAMES = 9
_LEVELS = re.compile(r"^(?: {4})+", re.MULTILINE)
_BODY = re.compile(r"^def .*:\n([ \t]+)", re.MULTILINE)


def helper(conversion: Conversion, closure: Closure, facts: ModuleFacts, function: str, at: ast.AST) -> str:
    """How a function of the generated module is written at `at`; the import is added to the conversion.

    Raises:
        CannotSupply: no import can bring it.
    """
    wrapping = closure.constructions[0].facts
    if conversion.helper_path is None:
        conversion.helper_path = _free_path(wrapping)
    module = _imported(facts, wrapping, Path(conversion.helper_path).stem)
    spelled = spell_from(facts, module, function, at)
    conversion.edit(facts, spelled.edits)
    conversion.helper.add(function)
    return spelled.text


def indented(written: str, unit: str) -> str:
    """A text that has four spaces for each level of indentation with another unit instead."""
    return _LEVELS.sub(lambda found: unit * (len(found[0]) // 4), written)


def text(functions: Collection[str], unit: str = "    ") -> str:
    """The text of a module that has these functions and what they need."""
    parts = _parts()
    needed, waiting = set[str](), list(functions)
    while waiting:
        name = waiting.pop()
        if name in parts and name not in needed:
            needed.add(name)
            waiting += _names_in(parts[name])
    used = {word for name in needed for word in _names_in(parts[name])}
    groups = ["\n".join(lines) for group in _imports() if (lines := list(_import_lines(group, used)))]
    constants = [parts[name] for name in parts if name in needed and name.isupper()]
    rest = [parts[name] for name in parts if name in needed and not name.isupper()]
    head = [_docstring(), *groups, *(["\n".join(constants)] if constants else [])]
    return indented("\n\n\n".join(["\n\n".join(head), *rest]) + "\n", unit)


def module_of(conversion: Conversion, wrapping: ModuleFacts) -> tuple[str, str | None]:
    """The text of the module that a conversion needs, and what is written there already, by an earlier one."""
    assert conversion.helper_path is not None
    old = None if wrapping.project is None else wrapping.project.text_of(conversion.helper_path)
    known = frozenset[str]() if old is None else functions_of(old) or frozenset()
    return text(known | conversion.helper, wrapping.indent_unit if old is None else _unit_of(old)), old


def comments_of(written: str) -> list[str]:
    """The comments in a text of the module."""
    return [comment for _, comment in Source(written.encode()).comments]


def functions_of(written: str) -> frozenset[str] | None:
    """The functions that a module was generated for, None if somebody else wrote it or changed it."""
    try:
        defined = {node.name for node in ast.parse(written).body if isinstance(node, ast.FunctionDef)}
    except (SyntaxError, ValueError):
        return None
    public = frozenset(name for name in defined if name in FUNCTIONS)
    return public if public and written == text(public, _unit_of(written)) else None


def _unit_of(written: str) -> str:
    found = _BODY.search(written)
    return "    " if found is None else found[1]


# --- where it is


def _free_path(wrapping: ModuleFacts) -> str:
    """Where the module goes: beside the one that wraps, under a name that nothing else has."""
    for number in range(1, _MOST_NAMES):
        name = NAME if number == 1 else f"{NAME}_{number}"
        path = os.path.join(os.path.dirname(wrapping.path), f"{name}.py")
        if not _is_taken(wrapping, name, path):
            return path
    raise CannotSupply(f"all file names from `{NAME}` on are taken: rename a file")


def _is_taken(wrapping: ModuleFacts, name: str, path: str) -> bool:
    project = wrapping.project
    imported = {alias.name.split(".")[0] for node in wrapping.structure.imports for alias in node.names}
    if name in imported or name in wrapping.structure.module.bindings:
        return True
    own = None if project is None else project.text_of(path)
    if own is not None:
        return functions_of(own) is None
    return project is not None and (project.finds(name) or project.finds(f".{name}")) is not None


def _imported(facts: ModuleFacts, wrapping: ModuleFacts, name: str) -> str:
    """The name under which a file imports the module that lies beside the one that wraps.

    Raises:
        CannotSupply: it is not visible how the two files import each other.
    """
    folder = os.path.dirname(os.path.abspath(wrapping.path))
    for module, path in _own_modules(facts):
        if os.path.dirname(path) == folder and not path.endswith("__init__.py"):
            return f"{module[: -len(Path(path).stem)]}{name}"
        if (package := _package_at(module, path, folder)) is not None:
            return f"{package}.{name}"
    here = os.path.dirname(os.path.abspath(facts.path)) == folder
    is_package = facts.project is not None and facts.project.finds(".") is not None
    if here and is_package and _is_script(facts):
        raise CannotSupply(_TWO_WAYS)
    if here and not is_package:
        return name
    if here:
        return f".{name}"
    stem = Path(wrapping.path).stem
    parts = Path(folder).parts
    for number in range(len(parts)):
        module = ".".join([*parts[len(parts) - number :], stem])
        if facts.project is not None and facts.project.finds(module) == os.path.abspath(wrapping.path):
            return f"{module[: -len(stem)]}{name}"
    raise CannotSupply(f"it is not visible how this file imports modules beside {wrapping.path}: import `{stem}` of it")


_TWO_WAYS = (
    "it is not visible whether this file runs by its path or as a module of its package: import another file of the "
    "project in it, as the program is run"
)


def _package_at(module: str, path: str, folder: str) -> str | None:
    """The package in a folder, if a module that is imported by its full name is somewhere in it."""
    location = Path(path).parent if path.endswith("__init__.py") else Path(path).with_suffix("")
    parts = [] if module.startswith(".") else module.split(".")
    for number, above in zip(range(len(parts) - 1, 0, -1), location.parents):
        if str(above) == folder:
            return ".".join(parts[:number])
    return None


def _own_modules(facts: ModuleFacts) -> Iterator[tuple[str, str]]:
    """The modules of the project that a file imports, as it writes them, with their files."""
    for name in imported_modules(facts.structure) if facts.project is not None else ():
        path = facts.project.finds(name) if facts.project is not None else None
        if path is not None:
            yield name, path


def _is_script(facts: ModuleFacts) -> bool:
    return any(isinstance(one.value, str) and one.value == "__main__" for one in facts.structure.strings)


# --- its text


def _names_in(part: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(part)) if isinstance(node, ast.Name)}


@cache
def _template() -> tuple[str, ast.Module]:
    written = _TEMPLATE.read_text()
    return written, ast.parse(written)


def _docstring() -> str:
    written, tree = _template()
    return ast.get_source_segment(written, tree.body[0]) or ""


@cache
def _parts() -> dict[str, str]:
    """The constants and functions by their names, each with the comments above it."""
    written, tree = _template()
    lines, parts = written.splitlines(), {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
        elif isinstance(node, ast.FunctionDef):
            name = node.name
        else:
            continue
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) - 1
        while lines[first - 1].startswith("#"):
            first -= 1
        parts[name] = "\n".join(lines[first : node.end_lineno])
    return parts


def _imports() -> list[list[ast.Import | ast.ImportFrom]]:
    """The imports in the groups that blank lines make."""
    groups: list[list[ast.Import | ast.ImportFrom]] = []
    end = -1
    for node in _template()[1].body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if node.lineno != end + 1:
                groups.append([])
            groups[-1].append(node)
            end = node.end_lineno or 0
    return groups


def _import_lines(group: list[ast.Import | ast.ImportFrom], used: set[str]) -> Iterator[str]:
    """The imports of a group that bring something used."""
    for node in group:
        kept = [alias for alias in node.names if (alias.asname or alias.name.split(".")[0]) in used]
        if not kept:
            continue
        node = type(node)(**{**dict(ast.iter_fields(node)), "names": kept})
        line = ast.unparse(node)
        if len(line) > _WIDTH and isinstance(node, ast.ImportFrom):
            listed = "".join(f"    {alias.name},\n" for alias in kept)
            line = f"from {node.module} import (\n{listed})"
        yield line

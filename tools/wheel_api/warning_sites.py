"""Where a release's Python files warn that something is deprecated: by decorator, by a warning, or by a log message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from tools.wheel_api.deprecations import CATEGORIES
from tools.wheel_api.names import dotted, text_of

# What lies around FSDP, with all that lies below.
SWEPT = (
    "torch.amp",
    "torch.autocast_mode",
    "torch.cpu.amp",
    "torch.cuda.amp",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.nn.utils.clip_grad",
    "torch.utils.checkpoint",
)
# What a warning without a category says of something that is to go or to change.
_WORDS = re.compile(
    r"deprecat|obsolete|legacy|will be removed|no longer|in favou?r of|should be passed|will soon|near future"
    r"|future (version|release)|has no effect|will be updated",
    re.IGNORECASE,
)
_FILTERS = frozenset({"filterwarnings", "simplefilter", "catch_warnings"})
_MEMBERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Files(Protocol):
    """The Python files of a release, as `wheels.Sources` has them."""

    @property
    def modules(self) -> list[str]:
        """The names of all modules."""

    def text(self, module: str) -> str:
        """The source of one of them."""


class Site(NamedTuple):
    """One place that warns: `module:Class.method`, and the text of the warning on one line."""

    place: str
    text: str


def warning_sites(files: Files) -> list[Site]:
    """All places of a release that warn of a deprecation, in order; a function that warns for others is one too."""
    modules = (name for name in files.modules if any(name == p or name.startswith(f"{p}.") for p in SWEPT))
    return sorted({site for name in modules for site in _Sweep(name).of(ast.parse(files.text(name)))})


class _Sweep:
    def __init__(self, module: str) -> None:
        self.module = module
        self.constants: dict[str, str] = {}

    def of(self, tree: ast.Module) -> Iterator[Site]:
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and (text := text_of(statement.value)) is not None:
                self.constants.update({name: text for target in statement.targets if (name := dotted(target))})
        yield from self.below(tree, ())

    def below(self, node: ast.AST, scope: tuple[str, ...]) -> Iterator[Site]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _MEMBERS):
                yield from self.below(child, (*scope, child.name))
                continue
            if isinstance(child, ast.Call) and _says_so(child, self.constants):
                yield Site(f"{self.module}:{'.'.join(scope)}", _text(child, self.constants))
            yield from self.below(child, scope)


def _says_so(call: ast.Call, constants: Mapping[str, str]) -> bool:
    """Whether a call, a decorator's too, tells that something is deprecated."""
    name = (dotted(call.func) or "").rpartition(".")[2].lower()
    if "deprecat" in name:
        return True
    if "warn" not in name or name in _FILTERS:
        return False
    category = any((dotted(node) or "").rpartition(".")[2] in CATEGORIES for node in _given(call))
    return category or _WORDS.search(_text(call, constants)) is not None


def _text(call: ast.Call, constants: Mapping[str, str]) -> str:
    texts = (text_of(node, dict(constants)) for node in _given(call))
    text = next((text for text in texts if text), None)
    return " ".join((ast.unparse(call) if text is None else text).split())


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]

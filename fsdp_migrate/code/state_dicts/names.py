"""How new code spells the names of `torch.distributed.checkpoint.state_dict`, and the import that brings them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from fsdp_migrate.code.import_texts import CannotSupply, bringing, certainly_ran, free_name, is_alone, origins_of
from fsdp_migrate.code.new_names import spell_from
from fsdp_migrate.edits import EditImport, ImportBehind
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.fsdp import Receiver
from fsdp_migrate.facts.scopes import Scope

MODULE = "torch.distributed.checkpoint.state_dict"


class Supplied:
    """The spelling of each name at one place, and what makes it valid: edits of imports, or lines in front."""

    def __init__(self, facts: ModuleFacts, symbols: Iterable[str], at: ast.AST, receiver: Receiver) -> None:
        """Find a spelling for every one of `symbols` at `at`, where `receiver` is FSDP.

        Raises:
            CannotSupply: a name is taken there.
        """
        self.facts, self.at, self.receiver = facts, at, receiver
        self.spelling: dict[str, str] = {}
        self.edits: tuple[EditImport | ImportBehind, ...] = ()
        self.lines: tuple[str, ...] = ()
        missing = []
        for symbol in sorted(set(symbols)):
            name = self._visible(symbol)
            if name is None:
                missing.append(symbol)
            else:
                self.spelling[symbol] = name
        if missing:
            self._import(missing)

    def _visible(self, symbol: str) -> str | None:
        scope = self.facts.scope(self.at)
        for outer in scope.enclosing():
            for name, imports in bringing(self.facts, outer, f"{MODULE}.{symbol}"):
                if scope.lookup(name) is outer and certainly_ran(self.facts, imports, outer, self.at, self.receiver):
                    return name
        return None

    def _import(self, symbols: list[str]) -> None:
        facts = self.facts
        origins = {binding.node: binding.scope for binding in origins_of(facts, self.at, self.receiver)}
        blocks = {facts.structure.parents[origin] for origin in origins if len(origins) == 1} | {facts.source.tree}
        own = (one for one in facts.structure.imports if facts.structure.parents[one] in blocks)
        joined = next((one for one in own if _brings_from_module(one)), None)
        if joined is not None:
            added = self._named(symbols, facts.scope(joined))
            self.edits = (EditImport(facts.source.span(joined), add=added, unit=facts.indent_unit),)
        elif len(origins) == 1:
            ((origin, scope),) = origins.items()
            assert isinstance(origin, ast.stmt)
            self.edits = (self._in_front(_neighbour(facts, origin), self._named(symbols, scope)),)
        elif not origins and not self.receiver.meanings and self._is_at_top():
            for symbol in symbols:
                spelled = spell_from(facts, MODULE, symbol, self.at)
                self.spelling[symbol] = spelled.text
                self.edits += spelled.edits
        else:
            self.lines = (f"from {MODULE} import {', '.join(self._named(symbols, facts.scope(self.at)))}",)

    def _is_at_top(self) -> bool:
        """Whether the top of the file has imports that a new one can stand by."""
        body = self.facts.source.tree.body
        return any(isinstance(one, (ast.Import, ast.ImportFrom)) and is_alone(self.facts, one) for one in body)

    def _named(self, symbols: list[str], home: Scope) -> tuple[str, ...]:
        for symbol in symbols:
            self.spelling[symbol] = free_name(self.facts, symbol, [home], self.facts.scope(self.at))
        pairs = [(symbol, self.spelling[symbol]) for symbol in symbols]
        return tuple(symbol if name == symbol else f"{symbol} as {name}" for symbol, name in pairs)

    def _in_front(self, statement: ast.stmt, names: tuple[str, ...]) -> ImportBehind:
        facts = self.facts
        if not is_alone(facts, statement):
            raise CannotSupply(f"the import in line {statement.lineno} shares its line: put it on one of its own")
        span, indent = facts.source.span(statement), facts.indentation(statement)
        return ImportBehind(span, MODULE, names, indent, facts.indent_unit, ahead=True)


def _brings_from_module(node: ast.stmt) -> bool:
    is_from = isinstance(node, ast.ImportFrom) and node.module == MODULE and not node.level
    return is_from and all(alias.name != "*" for alias in getattr(node, "names", ()))


def _neighbour(facts: ModuleFacts, origin: ast.stmt) -> ast.stmt:
    """The import that a new one goes in front of: among those from torch around `origin`, by its name."""
    block = next(b for _, b in ast.iter_fields(facts.structure.parents[origin]) if isinstance(b, list) and origin in b)
    index = block.index(origin)
    while index > 0 and _goes_behind(block[index - 1]) and is_alone(facts, block[index - 1]):
        index -= 1
    found: ast.stmt = block[index]
    return found


def _goes_behind(node: ast.stmt) -> bool:
    module = node.module or "" if isinstance(node, ast.ImportFrom) and not node.level else ""
    return module.startswith("torch.") and module > MODULE

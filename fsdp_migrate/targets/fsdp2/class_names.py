"""What is left of FSDP1's names in the modules of a closure: annotations, tests of other objects, unused imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from fsdp_migrate.code.import_texts import CannotSupply, for_type_checking
from fsdp_migrate.code.new_names import spell
from fsdp_migrate.code.unused_imports import import_binding, is_exported, is_guarded, strings_naming, uses_of
from fsdp_migrate.edits import RemovedUse, RemoveStatement, Replace, touched
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.facts.names import PACKAGE, canonical, is_in_package
from fsdp_migrate.facts.objects import Reference
from fsdp_migrate.facts.scopes import Binding, Kind
from fsdp_migrate.source import Span
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion, Options
from fsdp_migrate.targets.fsdp2.instances import FSDP_MODULE, convert_classes
from fsdp_migrate.targets.fsdp2.seeds import reads_of_alias
from fsdp_migrate.targets.fsdp2.unused_functions import is_unused, modules_of
from fsdp_migrate.targets.fsdp2.use import Use

_MODULE = "torch.nn.Module"
_STRETCH = 64  # bytes, about a line
# Names that only FSDP1 has a use for; the modules of its wrap policies and of its scaler have no others.
_OF_FSDP1 = frozenset(
    f"{PACKAGE}.{name}"
    for name in """
    FullyShardedDataParallel CPUOffload MixedPrecision BackwardPrefetch ShardingStrategy StateDictType StateDictConfig
    FullStateDictConfig ShardedStateDictConfig LocalStateDictConfig OptimStateDictConfig FullOptimStateDictConfig
    ShardedOptimStateDictConfig LocalOptimStateDictConfig StateDictSettings OptimStateKeyType FlatParameter
    """.split()
)
_MODULES = (f"{PACKAGE}.wrap.", f"{PACKAGE}.sharded_grad_scaler.")
_UNUSED = "functions that nothing calls keep FSDP1's names: what they do cannot be converted"
_KEPT = "imports of FSDP1's names stay that nothing uses: a comment, a `try` or an `if` keeps them"
_STAR = "a star import still brings FSDP1's names"


def convert_names(conversion: Conversion, closure: Closure, options: Options) -> None:
    """Add what becomes of FSDP1's names where no model of the closure stands beside them; to be called last."""
    if closure.escapes:
        return
    for facts in modules_of(closure):
        _Module(conversion, closure, options, facts).convert()


class _Spans:
    """Spans by the stretch of text that they touch."""

    def __init__(self) -> None:
        self._spans: dict[int, list[Span]] = {}

    def add(self, spans: Iterable[Span]) -> None:
        for span in spans:
            for stretch in self._stretches(span):
                self._spans.setdefault(stretch, []).append(span)

    def near(self, span: Span) -> Iterator[Span]:
        """Those in the same stretches as `span`."""
        return (one for stretch in self._stretches(span) for one in self._spans.get(stretch, ()))

    @staticmethod
    def _stretches(span: Span) -> range:
        return range(span.start // _STRETCH, span.end // _STRETCH + 1)


class _Module:
    def __init__(self, conversion: Conversion, closure: Closure, options: Options, facts: ModuleFacts) -> None:
        self.conversion, self.closure, self.options, self.facts = conversion, closure, options, facts
        self.source = facts.source
        self.own = {one.call for one in closure.constructions}
        self.used = {one.node for one in (*closure.references, *closure.passed)}
        # What edits claim, and how many edits and removed uses that is of.
        self.edited, self.removed, self.seen = _Spans(), _Spans(), (0, 0)

    def convert(self) -> None:
        # Where the module wraps other models too, its names may be for those.
        if self.own.issuperset(self.facts.fsdp.constructions):
            for node in self._naming():
                self._convert(node)
            for binding in self._bindings():
                if FSDP in {canonical(target or "") for target in self.facts.names.targets(binding)}:
                    self._convert_quoted(binding)
        for binding in self._bindings():
            self._drop(binding)
            self._note_left(binding)
        for one in self.facts.structure.imports:
            if isinstance(one, ast.ImportFrom) and one.names[0].name == "*" and is_in_package(one.module or ""):
                self.conversion.note(self.facts, one, _STAR)

    def _note_left(self, binding: Binding) -> None:
        """Note where one of FSDP1's names stays that nothing needs."""
        left = [use for use in uses_of(binding) if not self._is_claimed(use)]
        code, facts = self.conversion.code, self.facts
        for use in left:
            if is_unused(code, facts, facts.function(use)):
                self.conversion.note(facts, use, _UNUSED)
        node, known = binding.node, import_binding(facts, binding)
        stays = not (known.removable or self._may_go(binding)) or self._has_comment(node)
        if not left and stays and not is_exported(facts, binding):
            self.conversion.note(facts, node, _KEPT)

    def _has_comment(self, node: ast.AST) -> bool:
        """Whether a comment stands in a statement or behind it, for which an import stays."""
        span = self.source.span(node)
        end = self.source.data.find(b"\n", span.end)
        return self.source.has_comment(Span(span.start, len(self.source.data) if end < 0 else end))

    def _naming(self) -> Iterator[ast.expr]:
        """The expressions that name FSDP1's class, of which no edit has anything to say."""
        names = [use for binding in self._bindings() for use in uses_of(binding)]
        chains = [node for node in self.facts.structure.attributes if isinstance(node.ctx, ast.Load)]
        for node in (*names, *chains):
            if self.facts.names.qualified(node) == FSDP and not self._is_claimed(node):
                yield node

    def _is_claimed(self, node: ast.expr) -> bool:
        span = self.source.span(node)
        edits = self.conversion.edits.get(self.facts.path, ())
        removed = self.conversion.removed.get(self.facts.path, ())
        self.edited.add(claimed for edit in edits[self.seen[0] :] for claimed in touched(edit))
        self.removed.add(use.span for use in removed[self.seen[1] :])
        self.seen = len(edits), len(removed)
        is_removed = any(span.contains(use) for use in self.removed.near(span))
        return is_removed or any(one.overlaps(span) for one in self.edited.near(span))

    def _convert(self, node: ast.expr) -> None:
        facts = self.facts
        parent = facts.structure.parents[node]
        while isinstance(parent, (ast.Tuple, ast.BinOp)) and not self._is_annotation(node):
            node, parent = parent, facts.structure.parents[parent]
        func = parent.func if isinstance(parent, ast.Call) else None
        named = facts.names.qualified(func) if isinstance(func, (ast.Name, ast.Attribute)) else None
        is_cast = isinstance(parent, ast.Call) and named == "typing.cast" and parent.args[:1] == [node]
        if isinstance(parent, ast.Assign) and (uses := reads_of_alias(self.facts, parent)) is not None:
            self._take_alias(node, parent, uses)
        elif is_cast or self._is_annotation(node):
            self._put(node, _MODULE)
        elif named == "builtins.isinstance":
            convert_classes(Use(self.conversion, self.closure, Reference(facts, node), self.options), node, mixed=True)
        elif _is_asked_for(parent):
            self._put(node, FSDP_MODULE)
        elif not self._is_settled(node, parent):
            around = facts.structure.parents[parent] if isinstance(parent, ast.Attribute) else parent
            text = ast.unparse(around if isinstance(around, ast.expr) else parent)
            step = "replace it by a model that can be followed, or remove it"
            self.conversion.wall(facts, node, f"FSDP1's class is used in `{text}`", step)

    def _take_alias(self, node: ast.expr, assignment: ast.Assign, uses: list[ast.Name]) -> None:
        """Convert what is left under another name of the class, and take the name away."""
        for use in uses:
            if not self._is_claimed(use):
                self._convert(use)
        if all(map(self._is_claimed, uses)):
            self.conversion.edit(self.facts, [RemoveStatement(self.source.span(assignment))])
            self.conversion.release(self.facts, node)

    def _is_settled(self, node: ast.expr, parent: ast.AST) -> bool:
        """Whether a construction is converted, nothing ever comes there, or it is told already what stops it."""
        unused = is_unused(self.conversion.code, self.facts, self.facts.function(node))
        return parent in self.own or unused or self._is_stopped(node)

    def _is_stopped(self, node: ast.expr) -> bool:
        """Whether a wall at the same statement says already what stops the conversion."""
        statement = self.facts.statement(node)
        walls = [wall.node for wall in self.conversion.walls if wall.facts is self.facts]
        return any(one in self.facts.structure.parents and self.facts.statement(one) is statement for one in walls)

    def _is_annotation(self, node: ast.expr) -> bool:
        """Whether an expression stands in an annotation."""
        child: ast.AST = node
        parent = self.facts.structure.parents[child]
        while isinstance(parent, ast.expr) and not isinstance(parent, ast.Lambda):
            child, parent = parent, self.facts.structure.parents[parent]
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return child is parent.returns
        if isinstance(parent, ast.Assign) and isinstance(child, ast.Subscript):  # Model = Union[FSDP, DDP]
            return (self.facts.names.qualified(child.value) or "").startswith("typing.")
        return isinstance(parent, (ast.arg, ast.AnnAssign)) and child is parent.annotation

    def _put(self, node: ast.expr, path: str) -> None:
        """Put a name, given in full, in the place of FSDP1's class."""
        text = self._spelled(path, node)
        if text is not None:
            self.conversion.edit(self.facts, [Replace(self.source.span(node), text)])
            self.conversion.release(self.facts, node)

    def _spelled(self, path: str, at: ast.AST) -> str | None:
        try:
            spelled = spell(self.facts, path, at)
        except CannotSupply as error:
            self.conversion.wall(self.facts, at, f"`{path}` is needed here", str(error))
            return None
        self.conversion.edit(self.facts, spelled.edits)
        return spelled.text

    def _convert_quoted(self, binding: Binding) -> None:
        """Annotations in quotes."""
        for constant in strings_naming(self.facts, binding.name):
            if self._is_annotation(constant) and (new := self._spelled(_MODULE, constant)) is not None:
                text = re.sub(rf"\b{re.escape(binding.name)}\b", new, self.source.segment(constant))
                self.conversion.edit(self.facts, [Replace(self.source.span(constant), text)])

    def _bindings(self) -> Iterator[Binding]:
        """What imports bring of FSDP1."""
        for scope in self.facts.structure.module.nested():
            for bindings in scope.bindings.values():
                for one in bindings:
                    if one.kind is Kind.IMPORT and any(map(_is_of_fsdp1, self.facts.names.targets(one))):
                        yield one

    def _drop(self, binding: Binding) -> None:
        """Take an import away that nothing uses, or nothing but annotations that are converted."""
        facts = self.facts
        if not isinstance(binding.node, (ast.Import, ast.ImportFrom)):
            return
        known = import_binding(facts, binding)
        if known.removable and known.uses:
            return  # the last edit of a use takes it along
        if known.removable or self._may_go(binding):
            unused = known._replace(uses=(), removable=True)
            self.conversion.removed.setdefault(facts.path, []).append(RemovedUse(known.statement, unused))

    def _may_go(self, binding: Binding) -> bool:
        """Whether nothing asks for a name any more that is imported for types, or written in quotes."""
        facts = self.facts
        if len(binding.scope.bindings[binding.name]) != 1 or is_exported(facts, binding) or self._is_left(binding):
            return False
        return for_type_checking(facts, binding.node) or not is_guarded(facts, binding)

    def _is_left(self, binding: Binding) -> bool:
        """Whether a use of a name stays as it is."""
        quoted = [one for one in strings_naming(self.facts, binding.name) if not self._is_claimed(one)]
        return bool(quoted) or not all(self._is_claimed(use) for use in uses_of(binding))


def _is_asked_for(parent: ast.AST) -> bool:
    """Whether a class is compared with None: the import of it may have failed."""
    return isinstance(parent, ast.Compare) and [ast.unparse(one) for one in parent.comparators] == ["None"]


def _is_of_fsdp1(target: str | None) -> bool:
    return target is not None and (canonical(target) in _OF_FSDP1 or target.startswith(_MODULES))

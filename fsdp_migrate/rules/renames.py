"""Names that are called otherwise in the same module, with the same meaning."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from packaging.version import Version

from fsdp_migrate.edits import Argument, Edit, EditImport, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import ordered_arguments
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import RuleCard, Verdict, below_floor, finding, manual
from fsdp_migrate.rules.fallback_arms import is_old_arm
from fsdp_migrate.rules.floors import newest, only_older
from fsdp_migrate.rules.moved_imports import kept_both
from fsdp_migrate.rules.releases import release, uses_of
from fsdp_migrate.rules.torch_places import reads
from fsdp_migrate.source import Span
from fsdp_migrate.torch_api.data import exists


@dataclass(frozen=True)
class Rename:
    """An old name, the new one, and the keywords that go with it.

    All of `modules` have both names. `since` is when the old one warns or, `gone`, fails. `members` says that what is
    used is an attribute of the name.
    """

    modules: tuple[str, ...]
    old: str
    new: str
    since: str
    keywords: dict[str, str] = field(default_factory=dict)
    gone: bool = False
    members: bool = False

    @property
    def targets(self) -> set[str]:
        """The old name with each of the modules."""
        return {f"{module}.{self.old}" for module in self.modules}


def check_renames(facts: ModuleFacts, card: RuleCard, renames: tuple[Rename, ...]) -> Iterator[Finding]:
    """Find uses of the old names, and imports of them under another name."""
    for rename in renames:
        targets = rename.targets
        for binding in _aliased(facts, targets):
            if facts.reached(binding.node):
                assert isinstance(binding.node, ast.ImportFrom)
                yield _finding(facts, card, binding.node, rename, _import_verdict(facts, binding, rename))
        found = [
            node
            for node in uses(facts, rename.old, targets)
            if not only_older(facts, node, rename.since) and not is_old_arm(facts, node, rename.new)
        ]
        guarded = _guarded(facts, card, found, rename)
        for binding, verdict in guarded.items():
            assert isinstance(binding.node, ast.ImportFrom)
            yield _finding(facts, card, binding.node, rename, verdict)
        for node in found:
            if not any(node in _uses_of(facts, binding) for binding in guarded):
                yield _finding(facts, card, node, rename, _verdict(facts, node, rename))
        yield from _read(facts, card, rename)


def _read(facts: ModuleFacts, card: RuleCard, rename: Rename) -> Iterator[Finding]:
    """Find the old names that a `getattr` reads."""
    for one, call in reads(facts):
        if one.path not in rename.targets or only_older(facts, one.node, rename.since):
            continue
        if not is_old_arm(facts, one.node, rename.new):
            yield _finding(facts, card, one.node, rename, _read_verdict(facts, one.node, call, rename))


def _guarded(
    facts: ModuleFacts, card: RuleCard, nodes: Iterable[ast.Name | ast.Attribute], rename: Rename
) -> dict[Binding, Verdict]:
    """The imports of the old name by itself that can try the new one first, with the verdicts that let them."""
    verdicts: dict[Binding, Verdict] = {}
    for node in nodes:
        bindings = facts.names.bindings(node) if isinstance(node, ast.Name) else []
        binding = bindings[0] if len(bindings) == 1 else None
        if binding is None or binding in verdicts or not _needs_no_other_call(facts, binding, rename):
            continue
        if not below_floor(card, facts, binding.node, node):
            continue
        module = (binding.target or "").rpartition(".")[0]
        if module in rename.modules and any(exists(binding.target or "", one) for one in facts.torch.releases):
            verdict = kept_both(facts, {binding: f"{module}.{rename.new}"})
            if verdict.fix is not None:
                verdicts[binding] = verdict
    return verdicts


def _needs_no_other_call(facts: ModuleFacts, binding: Binding, rename: Rename) -> bool:
    """Whether what is done with a name is done with the new one in the same way."""
    holders = [facts.structure.parents[use] for use in uses_of(binding)]
    keywords = {keyword.arg for call in holders if isinstance(call, ast.Call) for keyword in call.keywords}
    return not keywords & rename.keywords.keys() and None not in keywords


def _uses_of(facts: ModuleFacts, binding: Binding) -> set[ast.Name]:
    return facts.memo((_uses_of, binding), lambda: set(uses_of(binding)))


def uses(facts: ModuleFacts, name: str, targets: set[str]) -> Iterator[ast.Name | ast.Attribute]:
    """Where a name is read under its own spelling."""
    nodes: list[ast.Name | ast.Attribute] = [node for node in facts.structure.attributes if node.attr == name]
    for scope in facts.structure.module.nested():
        nodes += scope.uses.get(name, ())
    for node in nodes:
        if isinstance(node.ctx, ast.Load) and facts.names.qualified(node) in targets:
            yield node


def _aliased(facts: ModuleFacts, targets: set[str]) -> Iterator[Binding]:
    """Imports of a name under another one, the only bindings of that."""
    for scope in facts.structure.module.nested():
        for bindings in scope.bindings.values():
            binding = bindings[0] if len(bindings) == 1 else None
            if binding is None or binding.target is None or not isinstance(binding.node, ast.ImportFrom):
                continue
            if binding.target in targets and binding.target.rpartition(".")[2] != binding.name:
                yield binding


def _finding(facts: ModuleFacts, card: RuleCard, node: ast.AST, rename: Rename, verdict: Verdict) -> Finding:
    how = "gone" if rename.gone else "deprecated"
    message = f"`{rename.modules[0]}.{rename.old}` is {how} since torch {rename.since}: it is called `{rename.new}` now"
    severity = Severity.BREAKS if rename.gone and newest(facts, node) >= Version(rename.since) else None
    return finding(facts, card, node, facts.statement(node), message, verdict, severity)


def _import_verdict(facts: ModuleFacts, binding: Binding, rename: Rename) -> Verdict:
    if rename.keywords or rename.members:
        return manual(f"import `{rename.new}` instead, and look at what is done with `{binding.name}`")
    span = facts.source.span(binding.node)
    added = f"{rename.new} as {binding.name}"
    return Verdict(Fix((EditImport(span, add=(added,), remove=(binding.name,), unit=facts.indent_unit),)))


def _verdict(facts: ModuleFacts, node: ast.Name | ast.Attribute, rename: Rename) -> Verdict:
    parent = facts.structure.parents[node]
    if rename.members and not isinstance(parent, ast.Attribute):
        return manual(f"only `{rename.old}.SUM` and the like can be rewritten: use `{rename.new}`")
    if rename.old in facts.memo(_last_names, lambda: _last_names(facts)):
        return manual(f"a string here names it too, as for `mock.patch`: use `{rename.new}` in both places")
    edits: list[Edit] = []
    if isinstance(node, ast.Name):
        trouble = _import_new(facts, node, rename, edits)
        if trouble is not None:
            return manual(trouble)
    elif facts.names.qualified(node.value) not in rename.modules:
        return manual(_of_project(ast.unparse(node), rename))
    edits.insert(0, _renamed(facts, node, rename))
    return Verdict(Fix(tuple(edits), release(facts, node) if isinstance(node, ast.Name) else ()))


def _read_verdict(facts: ModuleFacts, node: ast.Constant, reader: ast.Call | ast.Subscript, rename: Rename) -> Verdict:
    """How the name goes on that a `getattr` reads."""
    if (trouble := _trouble_with_read(facts, node, reader, rename)) is not None:
        return manual(trouble)
    start, end = facts.source.span(node)
    return Verdict(Fix((Replace(Span(start + 1, end - 1), rename.new),)))


def _trouble_with_read(
    facts: ModuleFacts, node: ast.Constant, reader: ast.Call | ast.Subscript, rename: Rename
) -> str | None:
    parent = facts.structure.parents[reader]
    if rename.members and not isinstance(parent, ast.Attribute):
        return f"only `{rename.old}.SUM` and the like can be rewritten: use `{rename.new}`"
    called = parent.keywords if isinstance(parent, ast.Call) and parent.func is reader else None
    if rename.keywords and (called is None or {k.arg for k in called} & {None, *rename.keywords}):
        return f"use `{rename.new}`, and look at the names of its arguments"
    if facts.source.segment(node)[1:-1] != rename.old:
        return f"the name is written in an unusual way: use `{rename.new}`"
    asked = {constant for constant in facts.structure.strings if str(constant.value).rpartition(".")[2] == rename.old}
    put = any(one.attr == rename.old for one in facts.structure.stores)
    if put or asked - {one.node for one, _ in reads(facts)}:
        return f"the file asks for or replaces the old name too: use `{rename.new}` in all places"
    return None


def _renamed(facts: ModuleFacts, node: ast.Name | ast.Attribute, rename: Rename) -> Edit:
    call = facts.structure.parents[node]
    if isinstance(call, ast.Call) and call.func is node and any(k.arg in rename.keywords for k in call.keywords):
        arguments = tuple(
            Argument(rename.keywords.get(a.arg or "", a.arg) if isinstance(a, ast.keyword) else None, index)
            for index, a in enumerate(ordered_arguments(call))
        )
        span = facts.source.span(call)
        if isinstance(node, ast.Attribute):
            return RewriteCall(span, rename.new, arguments)
        return RewriteCall(span, None, arguments, callee=rename.new)
    end = facts.source.span(node).end
    return Replace(Span(end - len(rename.old), end), rename.new)


def _of_project(written: str, rename: Rename) -> str:
    return f"`{written}` comes from a module of the project: import `{rename.new}` from `{rename.modules[0]}`"


def _import_new(facts: ModuleFacts, node: ast.Name, rename: Rename, edits: list[Edit]) -> str | None:
    """Let the import of the old name bring the new one too; why that cannot be, None when it can."""
    (binding,) = facts.names.bindings(node) if len(facts.names.bindings(node)) == 1 else (None,)
    if binding is None or not isinstance(binding.node, ast.ImportFrom):
        return f"`{rename.old}` is bound in several ways: use `{rename.new}` in all of them"
    if binding.target not in rename.targets:
        return _of_project(binding.name, rename)
    wanted = f"{(binding.target or '').rpartition('.')[0]}.{rename.new}"
    homes = [scope for scope in facts.scope(node).enclosing() if rename.new in scope.bindings]
    taken = any(other.target != wanted for scope in homes for other in scope.bindings[rename.new])
    if taken:
        return f"the name `{rename.new}` is taken here: import it under another one"
    if binding.scope not in homes:
        edits.append(EditImport(facts.source.span(binding.node), add=(rename.new,), unit=facts.indent_unit))
    return None


def _last_names(facts: ModuleFacts) -> frozenset[str]:
    """What stands behind the last dot of the strings that have one."""
    texts = (str(text.value).rpartition(".") for text in facts.structure.strings)
    return frozenset(last for _, dot, last in texts if dot)

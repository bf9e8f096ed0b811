"""`enable_wrap` and `wrap`: the parts of a model that its own class wraps."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from fsdp_migrate.code.new_names import spell
from fsdp_migrate.code.state_dicts.rewriting import unwrap
from fsdp_migrate.code.state_dicts.settings import NotUnderstood
from fsdp_migrate.edits import Edit, Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.facts.project_code import Sort
from fsdp_migrate.source import Span
from fsdp_migrate.targets.fsdp2.arguments import PARAMETERS, WITHOUT_MEANING, Given
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion
from fsdp_migrate.targets.fsdp2.literal import Literal, read_literal
from fsdp_migrate.targets.fsdp2.policies import AtRunTime
from fsdp_migrate.targets.fsdp2.precision import Impossible
from fsdp_migrate.targets.fsdp2.reachable import reachable

_ENABLE = f"{PACKAGE}.wrap.enable_wrap"
_WRAP = f"{PACKAGE}.wrap.wrap"
_WORD = "enable_wrap("
_CLASS = "wrapper_cls"
_STEP = "call FSDP's class where the part is made, as `self.part = FSDP(Part())`"


def convert_wraps(conversion: Conversion, closure: Closure, construction: Construction, module: ast.expr) -> None:
    """Convert what the class of a wrapped module, or others that its file imports from the project, wrap by `wrap`.

    Raises:
        Impossible: it cannot be converted, or may be out of sight.
        CannotSupply: an import that is needed cannot be made.
    """
    facts = construction.facts
    project = facts.project
    others = () if project is None or not project.is_written(_WORD) else project.having(_WORD)
    near = _near(closure) if others else frozenset()
    elsewhere = any(_is(one, call, _ENABLE) for one in others if one.path in near for call in one.structure.calls)
    if not elsewhere and _WORD.encode() not in facts.source.data:
        return
    origins = conversion.code.origins(facts, module)
    classes = [one for one in origins if one.sort is Sort.INSTANCE]
    if len(classes) == len(origins):
        modules = {one.path: one for origin in classes for one in reachable(origin.facts)}
    else:
        modules = {facts.path: facts}
        if elsewhere:
            raise Impossible(module, "a part of it may be wrapped by `enable_wrap` in another file", _STEP)
    for one in modules.values():
        if b"wrap" in one.source.data:
            _convert(conversion, one)


def _near(closure: Closure) -> frozenset[str]:
    """The files that have a part in building or using the models, and those that they import."""
    uses = (one.facts for one in (*closure.references, *closure.passed))
    homes = {one.path: one for one in (*uses, *(one.facts for one in closure.constructions))}
    return frozenset(one.path for home in homes.values() for one in reachable(home))


def _convert(conversion: Conversion, facts: ModuleFacts) -> None:
    blocks = [call for call in facts.structure.calls if _is(facts, call, _ENABLE)]
    wraps = [call for call in facts.structure.calls if _is(facts, call, _WRAP)]
    if not blocks and not wraps:
        return
    inside = set()
    for call in blocks:
        block = _Block(conversion, facts, call)
        inside |= block.wraps
        block.convert()
    for call in wraps:
        if call not in inside:
            raise Impossible(call, "an `enable_wrap` that is not visible decides how `wrap` wraps", _STEP)


def _is(facts: ModuleFacts, call: ast.Call, name: str) -> bool:
    return isinstance(call.func, (ast.Name, ast.Attribute)) and facts.names.qualified(call.func) == name


class _Block:
    """A `with enable_wrap(...):` with the calls of `wrap` in it."""

    def __init__(self, conversion: Conversion, facts: ModuleFacts, call: ast.Call) -> None:
        self.conversion, self.facts, self.call = conversion, facts, call
        item = facts.structure.parents[call]
        block = facts.structure.parents.get(item)
        if not isinstance(block, ast.With) or not isinstance(item, ast.withitem) or len(block.items) > 1:
            raise Impossible(call, "`enable_wrap` is not the only context manager of a `with`", _STEP)
        self.block = block
        self.wraps = {
            one
            for statement in block.body
            for one in ast.walk(statement)
            if isinstance(one, ast.Call) and _is(facts, one, _WRAP) and facts.function(one) is facts.function(block)
        }

    def convert(self) -> None:
        facts, source = self.facts, self.facts.source
        values = {one.arg: one.value for one in self.call.keywords}
        if None in values or self.call.args or not facts.fsdp.is_class(values.get(_CLASS, self.call)):
            raise Impossible(self.call, "the arguments of `enable_wrap` are not written out", _STEP)
        other = next((name for name in values if name not in (_CLASS, *PARAMETERS)), None)
        if other is not None:
            raise Impossible(self.call, f"`enable_wrap` gets `{other}`, which FSDP does not take", _STEP)
        self._check_alone()
        literal = self._read({str(name): value for name, value in values.items() if name != _CLASS})
        spelled = spell(facts, f"{PACKAGE}.fully_shard", self.call)
        edits: list[Edit] = list(spelled.edits)
        keywords, lines = self._keywords(literal, edits)
        inner = [self._wrapped(one, spelled.text, keywords) for one in sorted(self.wraps, key=source.span)]
        try:
            block = unwrap(facts, self.block, lines)
        except NotUnderstood as error:
            raise Impossible(self.call, str(error).partition(":")[0], "put it on lines of its own") from None
        edits.append(block._replace(inner=tuple(one for several in inner for one in several)))
        self.conversion.edit(facts, edits)
        kept = {part for one in literal.kept for part in ast.walk(one)}
        for node in (self.call, *(one.func for one in self.wraps)):
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and name not in kept:
                    self.conversion.release(facts, name, kept)

    def _check_alone(self) -> None:
        """Nothing that the block calls may wrap parts by itself: those functions are out of sight."""
        for one in self._others():
            raise Impossible(one, f"`{ast.unparse(one.func)}` may wrap parts too inside `enable_wrap`", _STEP)

    def _others(self) -> Iterator[ast.Call]:
        """The calls in the block of functions that may call `wrap`, or that are not known."""
        for statement in self.block.body:
            for one in ast.walk(statement):
                if not isinstance(one, ast.Call) or one in self.wraps:
                    continue
                name = self.facts.names.qualified(one.func) or ""
                package, _, rest = name.partition(".")
                if package == "torch" or (package == "builtins" and hasattr(builtins, rest)):
                    continue
                origins = self.conversion.code.origins(self.facts, one.func)
                known = [origin for origin in origins if origin.sort in (Sort.FUNCTION, Sort.CLASS)]
                if not known or len(known) < len(origins) or any(_may_wrap(one.facts, self.facts) for one in known):
                    yield one

    def _read(self, values: dict[str, ast.expr]) -> Literal:
        given = Given({name: value for name, value in values.items() if name not in WITHOUT_MEANING})
        if "auto_wrap_policy" in given.values and not is_literal(given.values["auto_wrap_policy"], None):
            raise Impossible(self.call, "`enable_wrap` gets a policy", _STEP)
        try:
            return read_literal(self.facts, self.call, given, (self.call,), self.conversion.code)
        except AtRunTime as error:
            raise Impossible(self.call, f"{error} is only known at run time", _STEP) from None

    def _keywords(self, literal: Literal, edits: list[Edit]) -> tuple[list[str], list[str]]:
        """The keywords for each part, and statements that come first."""
        keywords, lines = list(literal.every), []
        if literal.on_cpu:
            init = spell(self.facts, "torch.distributed.device_mesh.init_device_mesh", self.call)
            size = spell(self.facts, "torch.distributed.get_world_size", self.call)
            edits += [*init.edits, *size.edits]
            lines.append(f'mesh = {init.text}("cpu", ({size.text}(),))')
            keywords.insert(0, "mesh=mesh")
        if literal.offloads is not None or (literal.precision is not None and literal.precision.name is not None):
            raise Impossible(self.call, "`enable_wrap` gets more than what is written out in it", _STEP)
        if literal.precision is not None:
            policy = spell(self.facts, f"{PACKAGE}.MixedPrecisionPolicy", self.call)
            edits += policy.edits
            fields = literal.precision.fields(casts=literal.precision.below)
            keywords.append(f"mp_policy={policy.text}({', '.join(fields)})")
        return keywords, lines

    def _wrapped(self, call: ast.Call, function: str, keywords: list[str]) -> list[Replace]:
        """`wrap(module)` as a call of `fully_shard`."""
        source = self.facts.source
        if len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
            raise Impossible(call, "this part is wrapped with arguments of its own", _STEP)
        whole, module = source.span(call), source.span(call.args[0])
        if any(other is not call and whole.contains(source.span(other)) for other in self.wraps):
            raise Impossible(call, "a part is wrapped inside another one", _STEP)
        end = source.data.rfind(b")", module.end, whole.end)
        return [
            Replace(source.span(call.func), function),
            *([Replace(Span(module.end, end), "".join(f", {one}" for one in keywords))] if keywords else []),
        ]


def _may_wrap(facts: ModuleFacts, home: ModuleFacts) -> bool:
    """Whether a function of a module may call `wrap`; the calls in the module of the block are all looked at."""
    return facts is not home and any(_is(facts, call, _WRAP) for call in facts.structure.calls)

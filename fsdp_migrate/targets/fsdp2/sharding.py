"""The statements that take the place of a call of FSDP1's class."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise

from fsdp_migrate.code.import_texts import fresh_name
from fsdp_migrate.code.new_names import spell
from fsdp_migrate.code.placement import own_line
from fsdp_migrate.edits import Edit, Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.evaluation import calls_in, evaluated_before, evaluated_conditionally, pure
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Span
from fsdp_migrate.targets.fsdp2.arguments import Given
from fsdp_migrate.targets.fsdp2.batch_norm import CLASS
from fsdp_migrate.targets.fsdp2.conversion import Construction, Conversion
from fsdp_migrate.targets.fsdp2.literal import Literal
from fsdp_migrate.targets.fsdp2.policies import AtRunTime
from fsdp_migrate.targets.fsdp2.precision import rewritten

_SHARD = f"{PACKAGE}.fully_shard"
_POLICY = f"{PACKAGE}.MixedPrecisionPolicy"
_OFFLOAD = f"{PACKAGE}.CPUOffloadPolicy"
_INIT_MESH = "torch.distributed.device_mesh.init_device_mesh"
_WORLD_SIZE = "torch.distributed.get_world_size"
_CHILDREN_FIRST = "# children before their parents"
_ROOT_CASTS = "# FSDP1 casts the inputs of the root only"
_NO_GRADIENT = "# as in FSDP1, no gradient counts as zero"
_IN_FULL = "# FSDP1 keeps them in float32"
_WIDTH = 88
_HOW_OFTEN = "how often the call is evaluated"


class Role(NamedTuple):
    """What a construction is among those of its model.

    `is_inner` is whether another one wraps what it wraps; `fills_gradients` whether the released torch can be told that
    no gradient counts as zero, and is to be.
    """

    is_inner: bool
    fills_gradients: bool


def write_literal(
    conversion: Conversion, construction: Construction, given: Given, literal: Literal, role: Role
) -> None:
    """Put calls of `fully_shard` in the place of a construction that is written out.

    Raises:
        AtRunTime: statements cannot stand where it stands.
        CannotSupply: an import that is needed cannot be made.
    """
    _Writer(conversion, construction, given, literal, role).write()


class _Writer:
    def __init__(
        self, conversion: Conversion, construction: Construction, given: Given, literal: Literal, role: Role
    ) -> None:
        self.conversion, self.literal, self.role = conversion, literal, role
        self.facts, self.call = construction
        self.module = given.module
        self.statement = self.facts.statement(self.call)
        self.target = _target(self.statement, self.call)
        self.edits: list[Edit] = []
        self.comments: list[str] = []
        self.taken: set[str] = set()
        self.indent = ""

    def write(self) -> None:
        facts, span = self.facts, self.facts.source.span
        if self.literal.test is not None:
            self._check_builtins("reversed", "list", "isinstance")
        if self._has_room():
            self._as_statements()
        else:
            self._in_place()
        kept = {part for one in (self.module, *self.literal.kept) for part in ast.walk(one)}
        annotation = self.statement.annotation if isinstance(self.statement, ast.AnnAssign) else None
        parts = [self.call, *([annotation] if annotation is not None and self._binds_the_same() else [])]
        gone = [one for part in parts for one in ast.walk(part) if isinstance(one, ast.Name) and one not in kept]
        self.conversion.edit(facts, self.edits)
        self.conversion.comment(facts, self.comments)
        for name in sorted(gone, key=span):
            self.conversion.release(facts, name, kept)

    def _spelled(self, path: str) -> str:
        found = spell(self.facts, path, self.call)
        self.edits += found.edits
        return found.text

    def _fresh(self, *stems: str) -> str:
        scope = self.facts.scope(self.statement)
        names = [fresh_name(scope, stem, self.taken) for stem in stems]
        name = next((name for name, stem in zip(names, stems) if name == stem), names[0])
        self.taken.add(name)
        return name

    # --- in the place of the call

    def _in_place(self) -> None:
        """One call of `fully_shard`, which returns the module."""
        span, source = self.facts.source.span, self.facts.source
        if self.literal.test is not None or self.role.fills_gradients:
            raise AtRunTime(_HOW_OFTEN)
        root, _, lines = self._keywords()
        if lines or source.has_comment(span(self.call)):
            raise AtRunTime(_HOW_OFTEN)
        start, module, end = span(self.call).start, span(self.module), span(self.call).end
        shard = self._spelled(_SHARD)
        self.edits.append(Replace(Span(start, module.start), f"{shard}("))
        self.edits.append(Replace(Span(module.end, end), "".join(f", {one}" for one in root) + ")"))

    # --- in front of the statement of the call

    def _as_statements(self) -> None:
        facts, source, span = self.facts, self.facts.source, self.facts.source.span
        indent, splits = own_line(facts, self.statement)
        self.edits += splits
        self.indent = indent
        whole, call, module = span(self.statement), span(self.call), span(self.module)
        self.taken |= {part.id for part in ast.walk(self.module) if isinstance(part, ast.Name)}
        is_pure, text = pure(self.module), source.segment(self.module)
        direct = self.target is not None and pure(self.target)
        if is_pure:
            name = text
        else:
            name = ast.unparse(self.target) if direct and self.target is not None else self._fresh("model")
        block = f"\n{indent}".join([*self._comments_in(self.call, self.module), *self._lines(name, indent)])
        if is_pure and self._binds_the_same():
            self.edits.append(Replace(whole, block))
        elif is_pure:
            self.edits += [Replace(Span(whole.start, whole.start), f"{block}\n{indent}"), Replace(call, text)]
        elif direct:
            self.edits += [*self._moved(call.start), Replace(Span(module.end, whole.end), f"\n{indent}{block}")]
        elif isinstance(self.statement, ast.Return) and self.statement.value is self.call:
            behind = f"\n{indent}{block}\n{indent}return {name}"
            self.edits += [*self._moved(whole.start, f"{name} = "), Replace(Span(module.end, whole.end), behind)]
        else:
            if "\n" in text:
                raise AtRunTime(_HOW_OFTEN)
            before = f"{name} = {text}\n{indent}{block}\n{indent}"
            self.edits += [Replace(Span(whole.start, whole.start), before), Replace(call, name)]

    def _has_room(self) -> bool:
        """Whether statements in front of that of the call run when the call does."""
        facts, statement = self.facts, self.statement
        unusual = evaluated_conditionally(self.call, statement, facts.structure.parents) is not None
        unusual = unusual or facts.scope(statement).is_class or facts.scope(self.call) is not facts.scope(statement)
        earlier = evaluated_before(self.call, statement, facts.structure.parents)
        unusual = unusual or any(next(calls_in(one), None) is not None for one in earlier)
        start = facts.source.span(statement).start
        return not unusual and not (isinstance(statement, ast.If) and facts.source.data.startswith(b"elif", start))

    def _moved(self, start: int, text: str = "") -> list[Edit]:
        """What the module is made by, in the place of all from `start` on, and as far to the left as that stood."""
        source, span = self.facts.source, self.facts.source.span(self.module)
        if not _stands_alone(source.segment(span)):
            return [Replace(Span(start, span.start), f"{text}("), Replace(Span(span.end, span.end), ")")]
        lead = source.data[source.line_start(span.start) : span.start]
        edits: list[Edit] = [Replace(Span(start, span.start), text)]
        width = len(lead) - len(self.facts.indentation(self.statement).encode())
        lines = source.segment(span).split("\n")
        if not lead.strip() and width > 0 and not any(quote in source.segment(span) for quote in ('"""', "'''")):
            offset = span.start
            for line, following in pairwise(lines):
                offset += len(line.encode()) + 1
                blank = len(following) - len(following.lstrip(" \t"))
                edits.append(Replace(Span(offset, offset + min(blank, width)), "")) if blank else None
        return edits

    def _binds_the_same(self) -> bool:
        """Whether the statement does no more than give the module the name that it has."""
        if isinstance(self.statement, ast.Expr):
            return self.statement.value is self.call
        return self.target is not None and (
            ast.unparse(self.target) == ast.unparse(self.module) or _is_item(self.facts, self.target, self.module)
        )

    def _comments_in(self, outer: ast.expr, inner: ast.expr) -> list[str]:
        """The comments in the part of the call that goes."""
        whole, kept = self.facts.source.span(outer), self.facts.source.span(inner)
        return [text for at, text in self.facts.source.comments if whole.contains(at) and not kept.contains(at)]

    # --- what is done

    def _lines(self, model: str, indent: str) -> list[str]:
        """The statements that shard the module called `model`, without the indentation of the first level."""
        root, inner, lines = self._keywords()
        unit, shard = self.facts.indent_unit, self._spelled(_SHARD)
        if self.literal.test is not None:
            module = self._fresh("module", "submodule", "unit")
            test = self.literal.test
            condition = f"({test.of(module)})" if test.loose else test.of(module)
            self.comments.append(_CHILDREN_FIRST)
            loop = [f"if {module} is not {model} and {condition}:", f"{unit}{_call(shard, [module, *inner])}"]
            if self.literal.normalises:
                self.comments.append(_IN_FULL)
                normal = self._spelled(CLASS)
                loop[0] = f"el{loop[0]}"
                loop = [
                    f"if isinstance({module}, {normal}):  {_IN_FULL}",
                    f"{unit}{_call(shard, [module, *self.literal.every, f'mp_policy={self._in_full(lines)}'])}",
                    *loop,
                ]
            lines.append(f"for {module} in reversed(list({model}.modules())):  {_CHILDREN_FIRST}")
            lines += [f"{unit}{line}" for line in loop]
        lines.append(_call(shard, [model, *root]))
        if self.role.fills_gradients:
            self.comments.append(_NO_GRADIENT)
            lines.append(f"{model}.set_reduce_scatter_unused_params(True)  {_NO_GRADIENT}")
        return lines

    def _check_builtins(self, *names: str) -> None:
        """Functions that the text calls mean what Python has built in.

        Raises:
            AtRunTime: one does not.
        """
        scope = self.facts.scope(self.statement)
        hidden = next((name for name in names if self.facts.names.hides_builtin(scope, name)), None)
        if hidden is not None:
            raise AtRunTime(f"what `{hidden}` does, which is not Python's own here,")

    def _in_full(self, lines: list[str]) -> str:
        """The name of the policy for batch normalisation, which `lines` get."""
        precision = self.literal.precision
        assert precision is not None
        full = self._spelled("torch.float32")
        fields = [f"param_dtype={full}", f"reduce_dtype={full}"]
        if precision.param_dtype is not None:
            own = precision.param_dtype if precision.name is None else f"{precision.name}.param_dtype"
            fields.append(f"output_dtype={own}")
        name = self._fresh("norm_mp_policy")
        lines += self._assigned(name, self._spelled(_POLICY), fields)
        return name

    def _assigned(self, name: str, function: str, fields: Sequence[str]) -> list[str]:
        """The lines of an assignment, of which a long one gets several."""
        whole = f"{name} = {_call(function, fields)}"
        if len(f"{self.indent}{whole}") <= _WIDTH:
            return [whole]
        unit = self.facts.indent_unit
        inner = [f"{unit}{', '.join(fields)}"]
        if len(f"{self.indent}{inner[0]}") > _WIDTH:
            inner = [f"{unit}{one}," for one in fields]
        return [f"{name} = {function}(", *inner, ")"]

    def _keywords(self) -> tuple[list[str], list[str], list[str]]:
        """The keywords for the root, those for what is below it, and statements that have to come first."""
        lines: list[str] = []
        if self.literal.on_cpu:
            mesh = self._fresh("mesh")
            lines.append(f'{mesh} = {self._spelled(_INIT_MESH)}("cpu", ({self._spelled(_WORLD_SIZE)}(),))')
            self.literal.every.insert(0, f"mesh={mesh}")
        if self.literal.offloads is not None:
            pins = "pin_memory=False" if self.literal.on_cpu else ""
            self.literal.every.append(f"offload_policy={self._spelled(_OFFLOAD)}({pins})")
        root, inner = list(self.literal.every), list(self.literal.every)
        precision = self.literal.precision
        if precision is None:
            return root, inner, lines
        casts = precision.below if self.role.is_inner else precision.at_root
        one = precision.is_one or self.role.is_inner or self.literal.test is None
        if precision.home is not None:
            made = spell(precision.home, _POLICY, precision.call)
            self.conversion.edit(precision.home, [*made.edits, *rewritten(precision, made.text)])
            self.conversion.release(precision.home, precision.call.func)
            first = precision.name or ""
        else:
            fields = precision.fields(casts=casts)
            first = _call(self._spelled(_POLICY), fields)
            if self.literal.test is not None:
                first = self._fresh("mp_policy")
                lines += self._assigned(first, self._spelled(_POLICY), fields)
        second = first
        if not one:
            second = self._fresh("inner_mp_policy")
            self.comments.append(_ROOT_CASTS)
            lines.append(_ROOT_CASTS)
            lines += self._assigned(second, self._spelled(_POLICY), precision.fields_below())
        return [*root, f"mp_policy={first}"], [*inner, f"mp_policy={second}"], lines


def _call(function: str, arguments: Sequence[str]) -> str:
    return f"{function}({', '.join(arguments)})"


def _stands_alone(text: str) -> bool:
    """Whether an expression needs no brackets around it to span its lines."""
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def _target(statement: ast.stmt, call: ast.Call) -> ast.expr | None:
    """What a statement assigns the value of a call to, where that is all it does."""
    if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        return statement.targets[0]
    return statement.target if isinstance(statement, ast.AnnAssign) and statement.value is call else None


def _is_item(facts: ModuleFacts, target: ast.expr, module: ast.expr) -> bool:
    """Whether `target` is the item that a loop `for index, module in enumerate(items)` is at."""
    if not isinstance(target, ast.Subscript) or not isinstance(module, ast.Name):
        return False
    loops = (one for one in facts.blocks_around(target) if isinstance(one, ast.For))
    for loop in loops:
        pair = [one.id for one in getattr(loop.target, "elts", ()) if isinstance(one, ast.Name)]
        if isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter) == f"enumerate({ast.unparse(target.value)})":
            return pair == [ast.unparse(target.slice), module.id]
    return False

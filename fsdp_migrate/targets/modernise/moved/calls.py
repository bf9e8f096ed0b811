"""What has to change where a moved name is used, for names whose replacement differs in more than its place."""

from __future__ import annotations

import ast
from collections.abc import Callable

from fsdp_migrate.code.torch_names import imports, torch_path
from fsdp_migrate.code.unused_imports import removed_use, uses_of
from fsdp_migrate.edits import Argument, RemovedUse, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind, ordered_arguments
from fsdp_migrate.facts.scopes import Scope
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.targets.modernise.moved.cases import Case

_AUTOCAST = ("enabled", "dtype", "cache_enabled")
_DTYPE = {"cuda": "float16", "cpu": "bfloat16"}
_SCALER = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
_ASSERTIONS = ("assertIsInstance", "assertNotIsInstance")
_SHARDED = "ShardedGradScaler"
# What the new placement calls the reductions that both know.
_REDUCTIONS = frozenset({"SUM", "AVG", "MAX", "MIN", "PRODUCT"})


class UseEdits(NamedTuple):
    """The edits that let one use go on with the new name.

    `removed_uses` are the uses of imported names that they take away, `before` statements that the import of the new
    name needs in front of it.
    """

    edits: tuple[Replace | RewriteCall, ...] = ()
    removed_uses: tuple[RemovedUse, ...] = ()
    before: tuple[str, ...] = ()


class Stays(NamedTuple):
    """Why one use does not go on with the new name; none of the file's does where it is used `as_value`."""

    reason: str
    as_value: bool = False


class _Use(NamedTuple):
    """One use of the old name; `written` is the new name there, None where its text stays."""

    facts: ModuleFacts
    node: ast.expr
    case: Case
    written: str | None

    @property
    def parent(self) -> ast.AST:
        return self.facts.structure.parents[self.node]

    @property
    def call(self) -> ast.Call | None:
        """The call of which it is the callee."""
        return call_of(self.facts, self.node)

    def renamed(self, behind: str = "") -> UseEdits:
        """The use with its new name, and some text behind it."""
        span = self.facts.source.span(self.node)
        text = (self.written or self.facts.source.segment(span)) + behind
        return UseEdits((Replace(span, text),) if self.written or behind else ())

    def called(self, call: ast.Call, arguments: tuple[Argument, ...], before: tuple[str, ...] = ()) -> UseEdits:
        """The call with other arguments."""
        edit = RewriteCall(self.facts.source.span(call), None, arguments, callee=self.written)
        return UseEdits((edit,), before=before)

    def as_value(self, what: str = "called") -> Stays:
        """It is neither called nor anything else that goes on with the new name."""
        line = self.facts.source.location(self.facts.source.span(self.node).start).line
        text = (
            f"`{ast.unparse(self.node)}` is not only {what} (line {line}), and the class or function "
            f"`{self.case.moved.new}` differs"
        )
        return Stays(f"{text}: change all uses together", as_value=True)


def follow(facts: ModuleFacts, node: ast.expr, case: Case, written: str | None = None) -> UseEdits | Stays:
    """The edits that let the use `node` of an old name go on with the new one, called `written` if otherwise there."""
    use, move = _Use(facts, node, case, written), case.move
    if written is not None and (trouble := text_trouble(facts, node)) is not None:
        return Stays(trouble)
    if move.only is not None:
        kept = isinstance(use.parent, ast.Attribute) and use.parent.attr in move.only
        return use.renamed() if kept else Stays(f"use `{move.new}`: {move.trap}", as_value=True)
    if _is_compared_to_none(use.parent):
        return use.renamed()
    result = _CHANGES[move.change](use) if move.change else _keywords(use) if move.keywords else use.renamed()
    if isinstance(result, UseEdits) and result.edits and (trouble := text_trouble(facts, node)) is not None:
        return Stays(trouble)
    return result


def text_trouble(facts: ModuleFacts, node: ast.expr) -> str | None:
    """Why the text of a name cannot be replaced, None when it can."""
    if facts.template_around(node) is not None:
        return "the name is inside an f-string: assign it to a variable first"
    if facts.source.has_comment(facts.source.span(node)):
        return "a comment is inside the name: move the comment"
    return None


def call_of(facts: ModuleFacts, node: ast.AST) -> ast.Call | None:
    """The call of which a name or chain is the callee."""
    parent = facts.structure.parents[node]
    return parent if isinstance(parent, ast.Call) and parent.func is node else None


def is_type(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether a class is named as a type only: in an annotation, or as what `isinstance` tests for."""
    child: ast.AST = node
    parent = facts.structure.parents[child]
    while isinstance(parent, (ast.Subscript, ast.Tuple, ast.BinOp)):
        child, parent = parent, facts.structure.parents[parent]
    if isinstance(parent, ast.Call):
        asserted = getattr(parent.func, "attr", None) in _ASSERTIONS
        tested = asserted or facts.names.qualified(parent.func) in ("builtins.isinstance", "builtins.issubclass")
        return tested and child in parent.args[1:]
    return child in (getattr(parent, "annotation", None), getattr(parent, "returns", None))


def _is_compared_to_none(parent: ast.AST) -> bool:
    others = parent.comparators if isinstance(parent, ast.Compare) else []
    return len(others) == 1 and isinstance(others[0], ast.Constant) and others[0].value is None


def _kept(call: ast.Call, renamed: dict[str | None, str] | None = None) -> tuple[Argument, ...]:
    """All arguments of a call as they are, some keywords apart."""
    return tuple(
        Argument((renamed or {}).get(one.arg, one.arg) if isinstance(one, ast.keyword) else None, index)
        for index, one in enumerate(ordered_arguments(call))
    )


def _keywords(use: _Use) -> UseEdits | Stays:
    """A function whose parameters have other names."""
    renamed: dict[str | None, str] = dict(use.case.move.keywords)
    call = use.call
    if call is None:
        return use.as_value()
    given = {keyword.arg for keyword in call.keywords}
    if None in given:
        return Stays("the call passes `**kwargs`, and the parameters were renamed: change the call by hand")
    if not given & renamed.keys():
        return use.renamed()
    if use.case.guard:
        return Stays(use.case.floor)
    return use.called(call, _kept(call, renamed))


def _device(case: Case) -> str:
    """The device that the old name stands for: `torch.cuda.amp.autocast` is for "cuda"."""
    return case.moved.old.split(".")[1]


def _autocast(use: _Use) -> UseEdits | Stays:
    """Positions become keywords; what a nested region would take over from the one around it is written out."""
    facts, call = use.facts, use.call
    if use.case.guard:
        return Stays(use.case.floor)
    if call is None:
        return use.renamed() if is_type(facts, use.node) else use.as_value()
    device = _device(use.case)
    try:
        bound = bind(call, _AUTOCAST, 0)
    except BindingError as error:
        return Stays(f'the call {error}: `{use.case.moved.new}` takes "{device}" first, then dtype and enabled')
    arguments = [Argument(None, text=f'"{device}"')]
    before: tuple[str, ...] = ()
    off = "enabled" in bound and isinstance(bound["enabled"].value, ast.Constant) and not bound["enabled"].value.value
    if "dtype" not in bound and not off:
        torch = torch_spelling(facts, use.node)
        before = () if torch is not None else ("import torch",)
        arguments.append(Argument("dtype", text=f"{torch or 'torch'}.{_DTYPE[device]}"))
    ordered = sorted((argument.index, name) for name, argument in bound.items())
    arguments += [Argument(name, index) for index, name in ordered]
    # The old class always meant True. Another value can only come from what sets it.
    if "cache_enabled" not in bound and b"cache_enabled" in facts.source.data:
        arguments.append(Argument("cache_enabled", text="True"))
    return use.called(call, tuple(arguments), before)


def _scaler(use: _Use) -> UseEdits | Stays:
    """The device comes first; where both classes have to do, arguments are keywords, and "cuda" is the default."""
    facts, call, case = use.facts, use.call, use.case
    cuda = _device(case) == "cuda"
    if case.guard and not cuda:
        return Stays(case.floor)
    if isinstance(use.parent, ast.ClassDef):
        if cuda and use.node in use.parent.bases and _takes_keywords(facts, use.parent):
            return use.renamed()
        return Stays(
            f'derive from `{case.moved.new}` and pass "{_device(case)}" as the first argument of `super().__init__`'
        )
    if call is None:
        return use.renamed() if is_type(facts, use.node) else use.as_value()
    if not case.guard:
        return use.called(call, (Argument(None, text=f'"{_device(case)}"'), *_kept(call)))
    try:
        bound = bind(call, _SCALER, 0)
    except BindingError as error:
        return Stays(f"the call {error}, and has to work with the old and the new class: pass the arguments by keyword")
    ordered = sorted((argument.index, name) for name, argument in bound.items())
    return use.called(call, tuple(Argument(name, index) for index, name in ordered)) if call.args else use.renamed()


def _takes_keywords(facts: ModuleFacts, cls: ast.ClassDef) -> bool:
    """Whether the base of a subclass is known to get no positions, be it from its own constructor or its callers."""
    calls = [node for node in ast.walk(cls) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    if any(call.func.attr == "__init__" and call.args for call in calls if isinstance(call.func, ast.Attribute)):
        return False
    if any(isinstance(node, ast.FunctionDef) and node.name == "__init__" for node in cls.body):
        return True
    own = [binding for binding in facts.scope(cls).bindings[cls.name] if binding.node is cls]
    project = facts.project
    if project is not None and project.is_imported(cls.name):
        return False
    parents = [facts.structure.parents[use] for binding in own for use in uses_of(binding)]
    if not parents:  # Whoever builds it is in a file that this run may not see.
        return False
    return not any(isinstance(parent, ast.ClassDef) or getattr(parent, "args", None) for parent in parents)


def _custom(use: _Use) -> UseEdits | Stays:
    """The decorators have to be told the device; where both have to do, a `partial` behind the import tells it."""
    call, case = use.call, use.case
    if case.guard:
        return UseEdits()
    device = f'"{_device(case)}"'
    if call is not None:
        arguments = _kept(call)
        positional = sum(1 for argument in arguments if argument.keyword is None)
        told = Argument("device_type", text=device)
        return use.called(call, (*arguments[:positional], told, *arguments[positional:]))
    if use.node in getattr(use.parent, "decorator_list", ()):
        return use.renamed(f"(device_type={device})")
    return use.as_value("called or a decorator")


def _statement(use: _Use) -> UseEdits | Stays:
    """A function whose result changed, which does not matter where it is called as a statement."""
    call = use.call
    if call is not None and isinstance(use.facts.structure.parents[call], ast.Expr):
        return use.renamed()
    return Stays(f"use `{use.case.move.new}`: {use.case.move.trap}")


def _reduction(use: _Use) -> UseEdits | Stays:
    """A placement that takes the name of the reduction."""
    facts, call, case = use.facts, use.call, use.case
    stays = Stays(f"use `{case.move.new}`: {case.move.trap}")
    if (compared := reads_reduction(facts)) is not None:
        return Stays(compared)
    if isinstance(use.parent, ast.ClassDef):
        return stays
    if call is None or not (call.args or call.keywords):
        return use.renamed()
    found = reduction(facts, call)
    if found is None or case.guard:
        return stays
    value, name = found
    return UseEdits((*use.renamed().edits, Replace(facts.source.span(value), f'"{name}"')), removed_use(facts, value))


def reads_reduction(facts: ModuleFacts) -> str | None:
    """Where the file reads the reduction of a placement, which is a name in the new class."""
    for node in facts.structure.attributes:
        if node.attr == "reduce_op" and torch_path(facts, node) is None and isinstance(node.ctx, ast.Load):
            return (
                f"line {node.lineno} reads `reduce_op` of a placement, which is a string in the new class, not a "
                "`ReduceOp`"
            )
    return None


def reduction(facts: ModuleFacts, call: ast.Call) -> tuple[ast.expr, str] | None:
    """The only argument of a placement and the name that takes its place, None unless it is a plain `ReduceOp`."""
    values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "reduce_op")]
    path = torch_path(facts, values[0]) if len(values) == 1 and len(call.args) + len(call.keywords) == 1 else None
    owner, _, name = (path or "").rpartition(".")
    return (values[0], name.lower()) if owner.endswith(".ReduceOp") and name in _REDUCTIONS else None


def _policy_base(use: _Use) -> UseEdits | Stays:
    """A base class with another method in the place of a property."""
    if isinstance(use.parent, ast.ClassDef):
        return Stays(f"a subclass of `{use.case.moved.new}` {(use.case.move.trap or '').removeprefix('a subclass ')}")
    if any(node.attr == "policy" for node in use.facts.structure.attributes):
        return Stays(f"the file reads `.policy`, which `{use.case.moved.new}` does not have: change it by hand")
    return use.renamed()


_CHANGES: dict[str, Callable[[_Use], UseEdits | Stays]] = {
    "autocast": _autocast,
    "scaler": _scaler,
    "custom": _custom,
    "statement": _statement,
    "reduction": _reduction,
    "policy_base": _policy_base,
}


def torch_spelling(facts: ModuleFacts, node: ast.expr) -> str | None:
    """How the module torch is called at a place, None when it is not imported there."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and facts.names.qualified(root) == "torch":
        return root.id
    scope = facts.scope(node)
    for outer in scope.enclosing():
        for name, bindings in outer.bindings.items():
            is_torch = scope.lookup(name) is outer and all(binding.target == "torch" for binding in bindings)
            if is_torch and any(not one.conditional and _ran(one.position, outer, scope, node) for one in bindings):
                return name
    return None


def _ran(position: tuple[int, int], home: Scope, scope: Scope, node: ast.expr) -> bool:
    """Whether what stands at `position` ran when control reaches `node`."""
    return home.is_module if home is not scope else position < (node.lineno, node.col_offset)


def told_apart(facts: ModuleFacts, nodes: list[ast.expr], case: Case) -> str | None:
    """Why a scaler's fix is unsafe: a test tells it from `ShardedGradScaler`, which is one of the new class."""
    if case.move.change != "scaler" or not any(taken.path.endswith(_SHARDED) for taken in imports(facts)):
        return None
    tests = [_test_of(facts, node) for node in nodes if is_type(facts, node)]
    if all(test is None or _SHARDED in ast.unparse(test) for test in tests):
        return None
    return f"since torch 2.3 a {_SHARDED} is an instance of the new class, but not of the old one"


def _test_of(facts: ModuleFacts, node: ast.AST) -> ast.Call | None:
    """The call of `isinstance` or the like around a class, None for an annotation."""
    while isinstance(node, (ast.expr, ast.keyword)):
        node = facts.structure.parents[node]
        if isinstance(node, ast.Call):
            return node
    return None

"""What may be done with a sharded parameter, its gradient, and what is computed from them.

Measured on two ranks with torch 2.13: methods that work element by element do on a DTensor what they did on FSDP1's
local piece. What adds elements up answered for the piece on each rank, and answers for all of them, or for the piece
still, on a DTensor. Tensors of other kinds cannot be mixed in.
"""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.objects import EACH, EACH_SECOND
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.targets.fsdp2.arguments import ignored
from fsdp_migrate.targets.fsdp2.unfreezing import check_unfreezing
from fsdp_migrate.targets.fsdp2.use import Use

SHAPES = "shapes and numbers of elements are those of whole parameters, not of the pieces on a rank"
_HOOKS = "hooks behind the accumulation of gradients run, which FSDP1 never ran"
# A norm that only some ranks or one parameter know of.
_NORM_STEP = "use `torch.nn.utils.get_total_norm` or the result of `clip_grad_norm_`"

_FACTS = frozenset(
    """
    requires_grad is_leaf device dtype grad_fn is_cuda is_meta is_cpu layout name is_floating_point is_complex
    element_size get_device requires_grad_ retain_grad is_sparse register_hook
    """.split()
)
_SHAPES = frozenset("shape ndim size dim numel nelement nbytes stride ndimension __len__".split())
_PLAIN = "abs neg sqrt rsqrt square exp log sign add sub mul div pow clamp lerp addcmul addcdiv clamp_min clamp_max"
_IN_PLACE = [f"{name}_" for name in _PLAIN.split()]
ELEMENTWISE = frozenset(
    f"""
    {_PLAIN} {" ".join(_IN_PLACE)} zero_ fill_ copy_ nan_to_num nan_to_num_ detach detach_ clone contiguous float half
    bfloat16 double to cpu cuda isnan isinf isfinite sigmoid tanh relu reciprocal round floor ceil maximum minimum
    true_divide multiply subtract divide type_as
    """.split()
)
_REDUCING = frozenset(
    "norm sum mean max min any all std var argmax argmin prod item median dot count_nonzero amax amin".split()
)
_ALIKE = frozenset(
    f"torch.{name}" for name in "zeros_like ones_like empty_like full_like clone abs sqrt square isnan isinf".split()
)
_HARMLESS = frozenset(
    f"builtins.{name}" for name in "print isinstance type hasattr callable repr str id hash".split()
) | {"torch.is_tensor", "torch.is_floating_point"}
_INIT = "torch.nn.init."
_CONSTANT = frozenset({"zeros_", "ones_", "constant_"})
_RANDOM = "random initialisation of sharded parameters draws other numbers"


class Tensors:
    """Looks at what is done with a sharded tensor, which `use.node` is."""

    def __init__(self, use: Use, whole: bool = False) -> None:
        """`whole` says that the parameters are gathered here, and must only be read."""
        self.use, self.whole = use, whole
        self.facts: ModuleFacts = use.facts
        self._fitting: set[ast.AST] = set()  # the names that are looked at

    def look(self, node: ast.expr) -> None:
        """What is done with a sharded tensor: fine, a difference, or a wall."""
        if node in self.use.conversion.looked or self._is_ignored(node):
            return
        self.use.conversion.looked.add(node)
        parent = self.facts.structure.parents[node]
        if isinstance(parent, ast.Attribute):
            self._member(node, parent)
        elif isinstance(parent, ast.Call) and parent.func is not node:
            self._argument(node, parent)
        elif isinstance(parent, (ast.BinOp, ast.UnaryOp)):
            self._compute(node, parent)
        elif isinstance(parent, ast.Compare):
            self._compare(parent)
        elif isinstance(parent, ast.Subscript):
            if not self.whole or isinstance(parent.ctx, ast.Store):
                self._wall(parent, "indexes a sharded parameter", "use `full_tensor()`, which all ranks call")
        elif (
            not isinstance(parent, (ast.FormattedValue, ast.Expr)) and not self.whole and not _is_own_grad(node, parent)
        ):
            self._follow(node)

    def _is_ignored(self, node: ast.expr) -> bool:
        """Whether a construction lists this parameter as one that is not sharded."""
        text = ast.unparse(node)
        own = (one for one in self.use.closure.constructions if one.facts is self.facts)
        return any(ast.unparse(one) == text for construction in own for one in ignored(construction))

    def _follow(self, node: ast.expr) -> None:
        """A tensor that is computed from a parameter and passed on."""
        followed = self.use.follow(node)
        others = [one for one in followed.references if one.node is not node]
        self.use.lose("what is computed from a sharded parameter", followed.escapes)
        if not others and not followed.escapes and not followed.passed:
            parent = self.facts.structure.parents[node]
            self._wall(parent, "does something unknown with a sharded parameter", "write it in plain steps")
        for one in others:
            Tensors(self.use.at(one), self.whole).look(one.node)

    def _wall(self, at: ast.AST, reason: str, step: str) -> None:
        self.use.wall(f"`{_short(at)}` {reason}", step, at)

    def _member(self, node: ast.expr, attribute: ast.Attribute) -> None:
        name, outer = attribute.attr, self.facts.structure.parents[attribute]
        call = outer if isinstance(outer, ast.Call) and outer.func is attribute else None
        if not isinstance(attribute.ctx, ast.Load):
            self._store(attribute)
        elif name in ("grad", "data") and call is None:
            self.look(attribute)
        elif self.whole:
            if name.endswith("_") and not name.endswith("__") and name not in _FACTS:
                self._wall(outer, "writes to parameters that are gathered", "write to the sharded parameters instead")
        elif name in _FACTS:
            arguments = call.args if call is not None else []
            if name == "requires_grad_" and not (arguments and is_literal(arguments[0], False)):
                check_unfreezing(self.use, attribute)
        elif name in _SHAPES:
            self.use.differs(SHAPES, attribute)
        elif name == "register_post_accumulate_grad_hook":
            self.use.differs(_HOOKS, attribute)
        elif name in ELEMENTWISE and call is not None:
            self._apply(call)
        elif name in _REDUCING:
            self._wall(outer, "reads the elements of one rank or of all, depending on the release", _NORM_STEP)
        elif call is None:
            step = "set it behind the sharding, or keep it by the parameter's name"
            self._wall(attribute, "reads an attribute that `fully_shard` may have lost with the old parameter", step)
        else:
            self._wall(call, f"uses `{name}`, which differs for a sharded parameter", "use `full_tensor()`")

    def _store(self, attribute: ast.Attribute) -> None:
        """An assignment to an attribute of a parameter."""
        statement = self.facts.structure.parents[attribute]
        value = getattr(statement, "value", None)
        if attribute.attr == "requires_grad" and not is_literal(value, False):
            check_unfreezing(self.use, statement)
        if attribute.attr not in ("grad", "data"):
            return
        is_none = isinstance(value, ast.Constant) and value.value is None
        fits = isinstance(statement, (ast.Assign, ast.AugAssign)) and value is not None and self.fits(value)
        if self.whole and not is_none:
            self._wall(statement, "writes to parameters that are gathered", "write to the sharded parameters instead")
        elif not is_none and not fits:
            self._wall(statement, "puts another tensor into a sharded parameter", "use `distribute_tensor`")

    def _apply(self, call: ast.Call) -> None:
        """A method that works element by element."""
        given = [*call.args, *(one.value for one in call.keywords)]
        casts = isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda", "type_as", "double")
        if casts or all(self.fits(one) for one in given):
            self.look(call)
        else:
            step = "make the other tensor like the parameter (`torch.randn_like(p)`, `distribute_tensor`)"
            self._wall(call, "mixes a sharded parameter with another tensor", step)

    def _compute(self, node: ast.expr, operation: ast.BinOp | ast.UnaryOp) -> None:
        other = None
        if isinstance(operation, ast.BinOp):
            other = operation.left if operation.right is node else operation.right
        if self.whole or other is None or self.fits(other):
            self.look(operation)
        else:
            self._wall(operation, "mixes a sharded parameter with another tensor", "make it like the parameter")

    def _compare(self, comparison: ast.Compare) -> None:
        if self.whole or all(isinstance(op, (ast.Is, ast.IsNot)) for op in comparison.ops):
            return
        self._wall(comparison, "compares sharded parameters", "compare names, or what `full_tensor()` gives")

    def _argument(self, node: ast.expr, call: ast.Call) -> None:
        named = self.facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
        method = call.func if isinstance(call.func, ast.Attribute) else None
        if named in _HARMLESS:
            if any(self._is_flat_parameter(one) for one in call.args[1:]):
                self._wall(call, "tests for FSDP1's flat parameters", "remove the test")
            return
        if named is not None and named.startswith("torch.distributed."):
            step = "let FSDP2 reduce gradients; use `to_local()` where a collective is really needed"
            self._wall(call, "gives a sharded parameter to a collective", step)
        elif named in _ALIKE:
            if not self.whole:
                self.look(call)
        elif named is not None and named.startswith(_INIT) and not self.whole:
            if named.removeprefix(_INIT) not in _CONSTANT:
                self.use.differs(_RANDOM, call)
        elif method is not None and method.attr in ELEMENTWISE and self.fits(method.value):
            return  # looked at from the other side
        elif self.whole and named is not None and not named.endswith("_"):
            return
        else:
            self._wall(call, "gets a sharded parameter", "check whether it works with DTensors, or use `full_tensor()`")

    def _is_flat_parameter(self, node: ast.expr) -> bool:
        parts = (part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute)))
        return any((self.facts.names.qualified(part) or "").endswith(".FlatParameter") for part in parts)

    def fits(self, node: ast.expr) -> bool:
        """Whether an operand is a number, or a tensor that is sharded like the parameter."""
        if node in own_tensors(self.use):
            return True
        if isinstance(node, ast.BinOp):
            return self.fits(node.left) and self.fits(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.fits(node.operand)
        if isinstance(node, ast.Attribute):
            return self.fits(node.value) if node.attr in ("data", "grad") else not self._is_tensor_like(node)
        if isinstance(node, ast.Call):
            return self._call_fits(node)
        if isinstance(node, ast.Name):
            return self._name_fits(node)
        return isinstance(node, ast.Constant)

    def _is_tensor_like(self, node: ast.Attribute) -> bool:
        """Whether an attribute may be a parameter or buffer of a module: not one of what is called a setting."""
        owner = ast.unparse(node.value).rpartition(".")[2].lower()
        return not any(word in owner for word in ("self", "arg", "config", "cfg", "opt", "hparams", "torch", "params"))

    def _call_fits(self, call: ast.Call) -> bool:
        if not isinstance(call.func, (ast.Name, ast.Attribute)):
            return False
        named = self.facts.names.qualified(call.func) or ""
        if isinstance(call.func, ast.Attribute) and call.func.attr in ELEMENTWISE and not named:
            return self.fits(call.func.value)
        if named in _ALIKE:
            return bool(call.args) and self.fits(call.args[0])
        return named in ("builtins.float", "builtins.int", "builtins.min", "builtins.max", "builtins.len") or (
            named.startswith("math.") or named == "torch.distributed.get_world_size"
        )

    def _name_fits(self, name: ast.Name) -> bool:
        bindings = self.facts.names.bindings(name)
        for binding in bindings:
            if binding.node in self._fitting:
                continue  # `x = x * 2`
            self._fitting.add(binding.node)
            fits = binding.kind is Kind.ASSIGNMENT and binding.value is not None and self.fits(binding.value)
            self._fitting.discard(binding.node)
            if fits:
                continue
            if binding.kind is not Kind.PARAMETER and not self._counts(binding.node):
                return False
        return bool(bindings)

    def _counts(self, target: ast.AST) -> bool:
        """Whether the target of a loop is a number: of `range`, or the first of `enumerate`."""
        parent = self.facts.structure.parents[target]
        is_first = isinstance(parent, ast.Tuple) and parent.elts[0] is target
        loop = self.facts.structure.parents[parent] if is_first else parent
        of = loop.iter if isinstance(loop, (ast.For, ast.comprehension)) else None
        named = (
            self.facts.names.qualified(of.func) if isinstance(of, ast.Call) and isinstance(of.func, ast.Name) else None
        )
        return named == ("builtins.enumerate" if is_first else "builtins.range")


def own_tensors(use: Use) -> frozenset[ast.AST]:
    """The expressions that stand for parameters of the models of the closure."""
    if use.conversion.own is None:
        found: set[ast.AST] = set()
        for one in use.closure.references:
            attribute = one.facts.structure.parents[one.node]
            path = PATHS.get(attribute.attr) if isinstance(attribute, ast.Attribute) else None
            call = one.facts.structure.parents[attribute]
            if path is not None and isinstance(call, ast.Call) and call.func is attribute:
                found |= {place.node for place in use.at(one).follow(call, path).references}
        use.conversion.own = frozenset(found)
    return use.conversion.own


# How the parameters are in what the methods of a module return.
PATHS = {"parameters": EACH, "named_parameters": EACH_SECOND}


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


_LONG = 60


def _is_own_grad(node: ast.expr, parent: ast.AST) -> bool:
    """Whether a tensor becomes the gradient of the parameter that it is made from: `p.grad = torch.zeros_like(p)`."""
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    if not isinstance(target, ast.Attribute) or target.attr != "grad":
        return False
    parameter = ast.unparse(target.value)
    return any(isinstance(one, ast.expr) and ast.unparse(one) == parameter for one in ast.walk(node))

"""`FSDP.summon_full_params(model)` around code that reads: parameters are gathered by `unshard` of every unit.

What is written to gathered parameters is lost in FSDP2, so that only reading is converted.
"""

from __future__ import annotations

import ast

from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind, is_literal, ordered_arguments
from fsdp_migrate.targets.fsdp2.file_helpers import helper
from fsdp_migrate.targets.fsdp2.said import gives_no_precision
from fsdp_migrate.targets.fsdp2.use import Use

_NAME = "summon_full_params"
_PARAMETERS = ("module", "recurse", "writeback", "rank0_only", "offload_to_cpu", "with_grads")
_EVERYWHERE = "parameters are gathered on all ranks and on the model's device, not on rank 0 or the CPU only"
_ROUNDED = "parameters that are gathered to be read have `param_dtype`"


def convert_gathering(use: Use, call: ast.Call) -> None:
    """Gather by a function of the file."""
    facts = use.facts
    try:
        given = bind(call, _PARAMETERS, 1)
    except BindingError as error:
        use.wall(f"`{ast.unparse(call.func)}` {error}", "write its arguments out", call)
        return
    if "recurse" in given and not is_literal(given["recurse"].value, True):
        use.wall("`summon_full_params` may gather the root alone", "gather all of the model", call)
    elif "with_grads" in given and not is_literal(given["with_grads"].value, False):
        use.wall("`summon_full_params` may gather gradients", "read them by `p.grad.full_tensor()`", call)
    elif given["module"].value is not use.node:
        use.wall(
            f"`{ast.unparse(call)}` does not pass the model as its first argument",
            "pass it as the first argument",
            call,
        )
    elif _is_read_only(use, call) and not _stands_in_comment(use, call):
        for name in ("rank0_only", "offload_to_cpu"):
            if name in given and not is_literal(given[name].value, False):
                use.differs(_EVERYWHERE, call)
        if not gives_no_precision(use.closure):
            use.differs(_ROUNDED, call)
        function = helper(use, "unsharded")
        if function is not None:
            model = Argument(None, text=use.written)
            use.conversion.edit(facts, [RewriteCall(facts.source.span(call), None, (model,), callee=function)])
            release_class(use, call)


def release_class(use: Use, call: ast.Call) -> None:
    """The class in front of a static method is named no more."""
    if isinstance(call.func, ast.Attribute) and use.facts.fsdp.is_class(call.func.value):
        use.conversion.release(use.facts, call.func.value)


def _stands_in_comment(use: Use, call: ast.Call) -> bool:
    if use.facts.source.has_comment(use.facts.source.span(call)):
        use.wall(f"a comment is inside `{ast.unparse(call)}`", "move it before the statement", call)
        return True
    return False


def _is_read_only(use: Use, call: ast.Call) -> bool:
    """Whether the block of the gathering can be seen to read only; there is a wall if not.

    What is done with parameters is looked at where they are used.
    """
    facts = use.facts
    item = facts.structure.parents[call]
    block = facts.structure.parents[item]
    if not isinstance(item, ast.withitem) or item.context_expr is not call or not isinstance(block, ast.With):
        use.wall("`summon_full_params` is not entered by `with`", "write it as a `with`", call)
        return False
    body = [node for statement in block.body for node in ast.walk(statement)]
    given: set[ast.AST] = {one.node for one in use.closure.passed if one.facts is facts}
    run: set[ast.AST] = {one.node for one in use.closure.references if one.facts is facts}
    for node in body:
        if node in given:
            step = "read the parameters here, by `full_tensor()`"
            use.wall(f"`{ast.unparse(node)}` is passed on while its parameters are gathered", step, node)
            return False
        if isinstance(node, ast.Call) and node.func in run:
            use.wall("the model runs while its parameters are gathered", "run it outside of the block", node)
            return False
    return True


def is_gathered(facts: ModuleFacts, root: ast.expr, node: ast.AST) -> bool:
    """Whether a place stands in a block that has the parameters of the model `root` whole."""
    text = ast.unparse(root)
    for around in facts.blocks_around(node):
        if isinstance(around, (ast.With, ast.AsyncWith)):
            for item in around.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and is_gathering(call) and text in map(ast.unparse, _values(call)):
                    return True
    return False


def is_gathering(call: ast.Call) -> bool:
    """Whether a call is one of `summon_full_params`."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == _NAME


def _values(call: ast.Call) -> list[ast.expr]:
    return [one.value if isinstance(one, ast.keyword) else one for one in ordered_arguments(call)]

"""Which ranks get to a place, as far as the conditions around it tell: rank 0 alone, or others too.

`rank` means the rank among all processes. A test of the local rank, or of the rank in a group of a mesh, is none: the
first rank of every machine or group passes it.
"""

from __future__ import annotations

import ast
import re

from fsdp_migrate.code.state_dicts.functions import Function, arguments_of, called, calls_of, parameter_of
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.exits import leaves
from fsdp_migrate.records import NamedTuple

_RANKS = frozenset({"rank", "global_rank", "world_rank", "process_index", "RANK", "GLOBAL_RANK", "_rank"})
_RANK_CALLS = frozenset({"get_rank", "get_global_rank", "get_world_rank", "global_rank", "rank"})
_PREDICATE = re.compile(
    r"_?(?:is_)?(?:main|master|primary|chief|world_process_zero|global_zero|global_rank_zero|rank_?0|rank_?zero"
    r"|global_main|global_master)(?:_process|_rank|_proc|_worker)?"
)
_ONLY_ON_ZERO = frozenset({"rank_zero_only", "rank0_only", "on_main_process", "main_process_only", "master_only"})
# Words of ranks and tests that are about a part of the processes: those of a machine, or those of a group.
_GROUPS = re.compile(r"group|parallel|mesh|replica|shard", re.IGNORECASE)
_PARTIAL = re.compile(rf"local|node|{_GROUPS.pattern}", re.IGNORECASE)
# `get_rank` of a device mesh is the rank among all processes; `get_local_rank` is the one in the mesh.
_MESH = re.compile(r"(?:\w*_)?mesh")
_MOST_STEPS = 5


def runs_on_rank_0_only(facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether only rank 0 gets to `node` within its function."""
    child = node
    parents = facts.structure.parents
    while child in parents:
        parent = parents[child]
        if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
            is_true = child in parent.body if isinstance(parent, ast.If) else child is parent.body
            if tells(facts, parent.test) is is_true:
                return True
        elif isinstance(parent, ast.BoolOp):
            before = parent.values[: parent.values.index(child)]  # type: ignore[arg-type]
            wanted = isinstance(parent.op, ast.And)
            if any(tells(facts, value) is wanted for value in before):
                return True
        if isinstance(child, ast.stmt) and _others_left(facts, parent, child):
            return True
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and child in parent.body:
            return any(_last_name(one) in _ONLY_ON_ZERO for one in parent.decorator_list)
        if isinstance(parent, ast.Lambda):
            return False
        child = parent
    return False


class PartTest(NamedTuple):
    """A condition that one rank of every machine meets, or of every group of ranks, as it is written."""

    text: str
    of_groups: bool


def tested_in_part(facts: ModuleFacts, node: ast.AST) -> PartTest | None:
    """The test of a rank around `node` that several ranks pass."""
    for around in facts.blocks_around(node):
        if isinstance(around, ast.If):
            names = [part for part in ast.walk(around.test) if isinstance(part, ast.Name)]
            values = [value for name in names for value in facts.names.definitions(name)]
            words = " ".join(ast.unparse(part) for part in (around.test, *values))
            if _PARTIAL.search(words) and re.search("rank|main|master", words):
                return PartTest(ast.unparse(around.test), _GROUPS.search(words) is not None)
    return None


def _others_left(facts: ModuleFacts, parent: ast.AST, statement: ast.stmt) -> bool:
    """Whether all ranks but 0 have left by a statement before this one in its block."""
    left = facts.memo((_others_left, parent), lambda: _where_others_leave(facts, parent))
    return any(
        isinstance(block, list) and statement in block and block.index(statement) > left.get(name, len(block))
        for name, block in ast.iter_fields(parent)
    )


def _where_others_leave(facts: ModuleFacts, parent: ast.AST) -> dict[str, int]:
    """The first statement in each block of a statement by which all ranks but 0 leave."""
    found: dict[str, int] = {}
    for name, block in ast.iter_fields(parent):
        for number, one in enumerate(block if isinstance(block, list) else ()):
            if isinstance(one, ast.If) and leaves(one.body) and tells(facts, one.test) is False:
                found.setdefault(name, number)
    return found


def tells(facts: ModuleFacts, test: ast.expr, depth: int = 0) -> bool | None:
    """What a test says of the rank: True if it holds on rank 0 at most, False if on all others, None if neither."""
    if depth > _MOST_STEPS:
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        told = tells(facts, test.operand, depth + 1)
        return None if told is None else not told
    if isinstance(test, ast.BoolOp):
        every = [tells(facts, value, depth + 1) for value in test.values]
        if isinstance(test.op, ast.And):
            return True if True in every else (False if set(every) == {False} else None)
        return False if False in every else (True if set(every) == {True} else None)
    if isinstance(test, ast.Compare):
        return _compared(facts, test) if len(test.ops) == 1 else None
    if is_rank(facts, test):
        return False
    return True if _is_predicate(facts, test, depth) else None


def _compared(facts: ModuleFacts, test: ast.Compare) -> bool | None:
    left, operator, right = test.left, test.ops[0], test.comparators[0]
    if isinstance(operator, (ast.In, ast.NotIn)):
        listed = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else []
        if not listed or not is_rank(facts, left) or not all(_number(one) in (0, -1) for one in listed):
            return None
        return isinstance(operator, ast.In)
    if is_rank(facts, right) and isinstance(operator, (ast.Eq, ast.NotEq)):
        left, right = right, left
    number = _number(right)
    if number is None or not is_rank(facts, left):
        return None
    if (type(operator), number) in {(ast.Eq, 0), (ast.Is, 0), (ast.Lt, 1), (ast.LtE, 0)}:
        return True
    if (type(operator), number) in {(ast.NotEq, 0), (ast.IsNot, 0), (ast.Gt, 0), (ast.GtE, 1)}:
        return False
    return None


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def is_rank(facts: ModuleFacts, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is the rank among all processes, by what it is called or was made of."""
    if depth > _MOST_STEPS:
        return False
    if isinstance(node, ast.Call):
        return _is_rank_call(facts, node, depth)
    name = _last_name(node)
    if isinstance(node, ast.Subscript):
        return facts.names.qualified(node.value) == "os.environ" and _text(node.slice) == "RANK"
    if isinstance(node, ast.Name):
        if _is_given_to_torch(facts, node):
            return True
        if any(_is_partial(given) for given in _given_by_callers(facts, node)):
            return False
        values = facts.names.definitions(node)
        if values:
            return all(is_rank(facts, one, depth + 1) or (name in _RANKS and _is_open(one)) for one in values)
    elif isinstance(node, ast.Attribute):
        values = [value for value in _stored(facts, node) if not isinstance(value, ast.Name) or value.id != name]
        if values and name in _RANKS:
            return all(is_rank(facts, one, depth + 1) or _is_open(one) for one in values)
    return name in _RANKS


def _given_by_callers(facts: ModuleFacts, node: ast.Name) -> list[ast.expr]:
    """What the visible callers of a function pass for a parameter."""
    bindings = facts.names.bindings(node)
    parameter = bindings[0].node if len(bindings) == 1 else None
    function = facts.function(parameter) if isinstance(parameter, ast.arg) else None
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    made = Function(facts, function)
    given = [(one.call, value) for one in calls_of(facts, function) for value in arguments_of(one.call)]
    return [value for call, value in given if parameter_of(made, call, value) is parameter]


def _is_given_to_torch(facts: ModuleFacts, node: ast.Name) -> bool:
    """Whether the function around a name tells torch.distributed by it which rank this is."""
    function = facts.function(node)
    for call in facts.structure.calls:
        given = next((one.value for one in call.keywords if one.arg == "rank"), None)
        is_it = isinstance(given, ast.Name) and given.id == node.id and facts.function(call) is function
        if is_it and facts.names.qualified(call.func) == "torch.distributed.init_process_group":
            return True
    return False


def _is_rank_call(facts: ModuleFacts, call: ast.Call, depth: int) -> bool:
    name = _last_name(call.func)
    if name == "int" and len(call.args) == 1:
        return is_rank(facts, call.args[0], depth + 1)
    if name in ("get", "getenv") and call.args:
        return facts.names.qualified(call.func) in ("os.environ.get", "os.getenv") and _text(call.args[0]) == "RANK"
    if name not in _RANK_CALLS or call.args or call.keywords:
        return False
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is not None and _PARTIAL.search(ast.unparse(owner)) and not (name == "get_rank" and _is_mesh(owner)):
        return False
    function = called(facts, call.func)
    return function is None or not any(_is_partial(one) for one in _returned(function.node))


def _is_mesh(node: ast.expr) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return _MESH.fullmatch(_last_name(node)) is not None


def _is_predicate(facts: ModuleFacts, test: ast.expr, depth: int) -> bool:
    func = test.func if isinstance(test, ast.Call) else test
    name = _last_name(func)
    if isinstance(test, ast.Call) and any("local" in (keyword.arg or "local") for keyword in test.keywords):
        return False
    if isinstance(test, ast.Name):
        values = facts.names.definitions(test)
        if values:
            return all(tells(facts, value, depth + 1) is True for value in values)
    elif isinstance(test, ast.Attribute):
        values = _stored(facts, test)
        if values and any(_is_partial(value) for value in values):
            return False
    elif isinstance(test, ast.Call):
        function = called(facts, test.func)
        if function is not None:
            returned = _returned(function.node)
            if returned and all(tells(function.facts, one, depth + 1) is True for one in returned):
                return True
            has_choice = any("local" in one.arg for one in (*function.node.args.args, *function.node.args.kwonlyargs))
            if not has_choice and any(_is_partial(one) for one in returned):
                return False
    return _PREDICATE.fullmatch(name) is not None


def _stored(facts: ModuleFacts, node: ast.Attribute) -> list[ast.expr]:
    """What the file assigns to an attribute that is written in this way."""
    text, found = ast.unparse(node), []
    for store in facts.structure.stores:
        if store.attr == node.attr and ast.unparse(store) == text:
            statement = facts.structure.parents.get(store)
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                found.append(statement.value)
    return found


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    return [one.value for one in ast.walk(function) if isinstance(one, ast.Return) and one.value is not None]


def _is_partial(node: ast.expr) -> bool:
    return _PARTIAL.search(ast.unparse(node)) is not None


def _is_open(node: ast.expr) -> bool:
    """Whether what a name was bound to leaves it to the name to say what it is."""
    return isinstance(node, (ast.Call, ast.Attribute, ast.Subscript, ast.Name, ast.IfExp)) and not _is_partial(node)


def _text(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")

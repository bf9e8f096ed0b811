"""FSDP107: positional arguments of `optim_state_dict_to_load`, whose order changed in torch 2.1.

2.0 takes (optim_state_dict, model, optim), 2.1 and newer (model, optim, optim_state_dict); the keywords are the
same in both. Source: catalogue osd-to-load-argorder (2.0.1 and 2.1.2, fully_sharded_data_parallel.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.argument_roles import is_dict, is_group
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.annotations import options
from fsdp_migrate.facts.calls import ordered_arguments
from fsdp_migrate.facts.evaluation import calls_in, is_reading
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual

METHOD = "optim_state_dict_to_load"
ROLES = ("model", "optim", "optim_state_dict")
_OLD_ORDER = ("optim_state_dict", "model", "optim")
# What torch 2.0 took by position, whatever the order of the first three.
_REST = (*ROLES, "is_named_optimizer", "group")
_PACKAGES = {"torch.nn.": "model", "torch.optim.": "optim"}
_NEW_ORDER_SINCE = Version("2.1")
_FSDP_METHODS_GIVING_STATE = ("optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find positional calls whose order is not right on every supported release."""
    for call in facts.structure.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != METHOD or len(call.args) < 1:
            continue
        if not _is_fsdp_call(facts, call) or not facts.reached(call):
            continue
        roles = tuple(_role(facts, argument) for argument in call.args[:3])
        order = _order(call, roles)
        oldest, newest = min(facts.gates.alive(call)), max(facts.gates.alive(call))
        count = len(roles)
        wrong_new = (order is None or order[:count] != ROLES[:count]) and newest >= _NEW_ORDER_SINCE
        wrong_old = (order is None or order[:count] != _OLD_ORDER[:count]) and oldest < _NEW_ORDER_SINCE
        if order is None and _fits(roles, _OLD_ORDER if wrong_old else ROLES) and not (wrong_new and wrong_old):
            continue
        if not (wrong_new or wrong_old) and len(call.args) == len(_REST) and is_group(facts, call.args[-1]):
            verdict = _verdict(facts, call, ROLES)._replace(unsafe="this call no longer loads the optimizer")
            message = (
                f"the fifth position of `{METHOD}` is `load_directly` since torch 2.1 (in 2.0 it was the process group)"
            )
            yield finding(facts, card, call.args[-1], facts.statement(call), message, verdict, Severity.CHANGES)
        if wrong_new or wrong_old:
            where = f"torch>={_NEW_ORDER_SINCE}" if wrong_new else f"torch<{_NEW_ORDER_SINCE}"
            message = f"the positional arguments of `{METHOD}` are not in the order of {where}: pass them by keyword"
            verdict = _verdict(facts, call, order)
            yield finding(facts, card, call.func, facts.statement(call), message, verdict)


def _is_fsdp_call(facts: ModuleFacts, call: ast.Call) -> bool:
    models = call.args[:2]
    return any(facts.fsdp.receiver(call.func, model) is not None for model in models)


def _role(facts: ModuleFacts, node: ast.expr) -> str | None:
    """Which of the three an argument is, by what it is known to hold or by its name; None when neither tells."""
    if isinstance(node, ast.Starred):
        return None
    if facts.fsdp.is_instance(node):
        return "model"
    if isinstance(node, (ast.Subscript, ast.Call, ast.Dict)):
        return _role_of_value(node)
    definition = facts.names.definition(node) if isinstance(node, ast.Name) else None
    if isinstance(definition, ast.Call):
        known = _role_of_value(definition)
        if known is not None:
            return known
    kinds = {
        _role_of_class(facts, part) for cls in facts.fsdp.object_classes.all_classes(node) for part in options(cls)
    }
    if len(kinds) == 1 and (told := kinds.pop()) is not None:
        return told
    name = (node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")).lower()
    return _role_of_name(name)


def _role_of_class(facts: ModuleFacts, cls: ast.expr) -> str | None:
    """The role of an object of a class, by the package of torch that has it, or as a dict."""
    path = facts.names.qualified(cls) or ""
    roles = (role for package, role in _PACKAGES.items() if path.startswith(package))
    return next(roles, "optim_state_dict" if is_dict(cls) else None)


def _role_of_name(name: str) -> str | None:
    words = set(name.strip("_").split("_"))
    if "state" in name or words & {"osd", "sd", "blob", "ckpt", "checkpoint"} or name.endswith("osd"):
        return "optim_state_dict"
    if "optim" in name or words & {"opt", "adam", "adamw", "sgd"}:
        return "optim"
    if "model" in name or words & {"net", "network", "module", "fsdp", "wrapped"}:
        return "model"
    return None


def _role_of_value(node: ast.expr) -> str | None:
    """The role of what an expression makes: a loaded or collected state dict, an optimizer."""
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return "optim_state_dict" if isinstance(key, str) and "optim" in key else None
    if isinstance(node, ast.Dict):
        return "optim_state_dict"
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        if called == "torch.load" or last in _FSDP_METHODS_GIVING_STATE:
            return "optim_state_dict"
        if ".optim." in called or last in ("AdamW", "Adam", "SGD"):
            return "optim"
    return None


def _order(call: ast.Call, roles: tuple[str | None, ...]) -> tuple[str, ...] | None:
    """The order of the three arguments, keywords put where they are still free; None when it is not certain."""
    given = tuple(keyword.arg for keyword in call.keywords if keyword.arg in ROLES)
    known = [role for role in roles if role is not None] + list(given)
    if len(set(known)) != len(known) or len(roles) + len(given) != len(ROLES):
        return None
    missing = [role for role in ROLES if role not in known]
    if len(missing) > 1 or (missing and roles.count(None) != 1):
        return None
    return tuple(role if role is not None else missing[0] for role in roles) + given


def _fits(roles: tuple[str | None, ...], order: tuple[str, ...]) -> bool:
    """Whether nothing known about the arguments speaks against `order`."""
    return all(role is None or role == wanted for role, wanted in zip(roles, order))


def _verdict(facts: ModuleFacts, call: ast.Call, order: tuple[str, ...] | None) -> Verdict:
    if order is None or any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return manual(
            "it is not clear which argument is the model, the optimizer and the state dict: pass them by keyword"
        )
    if len(call.args) > len(_REST) or (len(call.args) == len(_REST) and not is_group(facts, call.args[-1])):
        return manual(
            "the fifth position is the process group in torch 2.0 and `load_directly` since 2.1: pass it by keyword"
        )
    positions = (*order[: len(ROLES)], *_REST[len(ROLES) :])
    arguments = []
    for index, argument in enumerate(ordered_arguments(call)):
        keyword = argument.arg if isinstance(argument, ast.keyword) else positions[index]
        arguments.append(Argument(keyword, index))
    if not facts.source.has_comment(facts.source.span(call)) and _any_order(facts, call):
        arguments.sort(key=lambda a: ROLES.index(a.keyword) if a.keyword in ROLES else len(ROLES))
    return Verdict(Fix((RewriteCall(facts.source.span(call), None, tuple(arguments)),)))


def _any_order(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether the arguments can be evaluated in another order: at most one does more than read."""
    if any(isinstance(part, ast.NamedExpr) for part in ast.walk(call)):
        return False
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    stirring = [v for v in values if any(not is_reading(inner, facts.names) for inner in calls_in(v))]
    return not stirring or all(isinstance(v, (ast.Name, ast.Constant)) for v in values if v is not stirring[0])


RULE = Rule(
    RuleCard(
        code="FSDP107",
        name="optim-state-dict-to-load-order",
        summary="positional arguments of `optim_state_dict_to_load`, whose order changed in torch 2.1",
        explanation="""\
`FSDP.optim_state_dict_to_load` takes `(optim_state_dict, model, optim)` in torch 2.0 and `(model, optim,
optim_state_dict)` since 2.1. Code in the old order only fails when a job resumes. The keywords are the same on
every release, so the fix writes them. It finds out which argument is which from the values of the names and their
spelling; the finding is manual if that is not certain.

The fifth position was the group in 2.0 and is `load_directly` since: with a group there, the call loads the
optimizer itself, on all ranks of the default group.""",
        applicability="safe, unsafe or manual",
        removed="2.1",
        severity=Severity.BREAKS,
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def load(model, optimizer, osd):
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(osd, model, optimizer))
""",
                after="""\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def load(model, optimizer, osd):
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model=model, optim=optimizer, optim_state_dict=osd))
""",
            ),
            Example(
                before="""\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def load(a, model, c):
    return FSDP.optim_state_dict_to_load(a, model, c)
""",
                note="two of the three arguments do not say what they are",
            ),
        ),
        leaves=(
            """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def load(model, optimizer, osd):
    return FSDP.optim_state_dict_to_load(model, optimizer, osd)
""",
            """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def load(model, optimizer, osd):
    return FSDP.optim_state_dict_to_load(optim_state_dict=osd, model=model, optim=optimizer)
""",
        ),
        url="https://github.com/pytorch/pytorch/pull/96534",
    ),
    words=(METHOD,),
    check=check,
)

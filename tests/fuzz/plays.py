"""Programs for the stage: legacy optimizer-state calls anywhere, with effects, types and rebinding around them."""

from __future__ import annotations

from hypothesis import strategies as st

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, FullStateDictConfig, StateDictType


def build(module):
    return FSDP(module)


class Trainer:
    def run(self, m: FSDP, n: FSDP, o, q, osd, x=None, y=None):
"""
_MODELS = ("m", "m", "m", "self.m", "n", "m.sub")
_OPTIMIZERS = ("o", "o", "o", "self.o", "q", "self.opts['q']")
_GIVEN = ("osd", "osd", "None", "osd if rank == 0 else None", "effect(osd)", "(osd or {})")
_CALLS = (
    "FSDP.full_optim_state_dict({model}, {optim})",
    "FSDP.full_optim_state_dict({model}, {optim}, rank0_only=False)",
    "FSDP.full_optim_state_dict({model}, {optim}, None, flag)",
    "FSDP.full_optim_state_dict({model}, {optim}, rank0_only=effect(flag))",
    "FSDP.full_optim_state_dict({model}, {optim}, optim_input=m.parameters(), group='pg')",
    "FSDP.sharded_optim_state_dict({model}, {optim})",
    "FSDP.shard_full_optim_state_dict({given}, {model}, optim={optim})",
    "FSDP.scatter_full_optim_state_dict({given}, {model}, None, {optim})",
    "FSDP.scatter_full_optim_state_dict({given}, {model}, optim={optim}, group='pg')",
    "FSDP.flatten_sharded_optim_state_dict({given}, {model}, {optim})",
    "m.full_optim_state_dict(m, {optim})",
)
_EXPRESSIONS = (
    "[{}, {}]",
    "{{'a': {}, 'b': {}, 'c': {}}}",
    "dict(a={}, b={})",
    "effect({})",
    "({} if flag else {})",
    "({} or {})",
    "({} and {})",
    "(y := {})",
    "[{} for _ in range(2)]",
    "tuple({} for _ in [1])",
    "(lambda: {})()",
    'f"{{{}}}"',
    "sorted({}, key=repr)",
    "({} == {})",
    "[*[{}], {}]",
)
_STATEMENTS = (
    "x = {}",
    "x, y = {}, {}",
    "x: dict = {}",
    "x = effect(1); y = {}",
    "{}",
    "return {}",
    "if flag: return {}",
    "self.kept += [{}]",
    "self.kept.append({})",
    "self.saved = {}",
    "torch.save({{'optim': {}, 'model': m.state_dict()}}, 'f')",
    "assert {} is not None",
    "osd = {}",
    "m = n",
    "o = q",
    "self.o = q",
    "o.step()",
    "FSDP.set_state_dict_type(n, StateDictType.SHARDED_STATE_DICT)",
)
_LOADS = (
    ("{optim}.load_state_dict({call})",),
    ("x = {call}", "{optim}.load_state_dict(x)"),
    ("x = {call}", "y = x", "{optim}.load_state_dict(y)"),
    ("x = {call}", "o = q", "{optim}.load_state_dict(x)"),
    ("x = {call}", "effect(2)", "{optim}.load_state_dict(x)"),
    ("if (x := {call}):", "    {optim}.load_state_dict(x)"),
    ("{optim}.load_state_dict(effect({call}))",),
    ("kept = {{}}", "kept['x'] = {call}", "{optim}.load_state_dict(kept['x'])"),
    ("kept = {{'x': {call}}}", "{optim}.load_state_dict(kept['x'])"),
    ("x, y = {call}, osd", "{optim}.load_state_dict(x)"),
    ("y = x = {call}", "{optim}.load_state_dict(x)", "q.load_state_dict(y)"),
    ("if x: {optim}.load_state_dict(x)", "x = {call}"),
    ("z = {call}", "for one in [z, osd]:", "    {optim}.load_state_dict(one)"),
    ("for one in [o, q]:", "    one.load_state_dict({call})"),
    ("for m, o in [(m, o), (n, q)]:", "    x = {call}", "    o.load_state_dict(x)"),
    ("x = {call}", "if flag:", "    x = osd", "{optim}.load_state_dict(x)"),
    ("try:", "    x = {call}", "except ValueError:", "    x = osd", "{optim}.load_state_dict(x)"),
    ("self.state = {call}", "{optim}.load_state_dict(self.state)"),
    ("z = {call}", "def load(s=z):", "    {optim}.load_state_dict(s)", "load()"),
    ("z = {call}", "def load():", "    {optim}.load_state_dict(z)", "load()"),
    ("x, y = {call}, {call}", "{optim}.load_state_dict(x)", "q.load_state_dict(y)"),
    ("x, y = {call}, {call}", "x, y = y, x", "{optim}.load_state_dict(y)", "q.load_state_dict(x)"),
    ("kept = [{call}]", "{optim}.load_state_dict(kept[0])"),
    ("kept = {{'x': {call}}}", "kept['x'], y = y, kept['x']", "{optim}.load_state_dict(y)"),
    ("while x is None:", "    x = {call}", "{optim}.load_state_dict(x)"),
    ("for i in range(2):", "    if i: {optim}.load_state_dict(y)", "    y = x = {call}"),
    ("for i in range(2):", "    y, x = x, {call}", "    if y: q.load_state_dict(y)", "o.load_state_dict(x)"),
    ("x = {call}", "for o in [o, q]:", "    o.load_state_dict(x)"),
    ("with torch.no_grad():", "    x = {call}", "    {optim}.load_state_dict(x)", "q.load_state_dict(x)"),
)
_CONVERSIONS = (
    "FSDP.shard_full_optim_state_dict({given}, {model})",
    "FSDP.scatter_full_optim_state_dict({given}, {model})",
)
_CONTEXTS = (
    "FSDP.state_dict_type({}, StateDictType.SHARDED_STATE_DICT)",
    "FSDP.state_dict_type({}, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True))",
    "FSDP.state_dict_type({}, StateDictType.SHARDED_STATE_DICT), torch.no_grad()",
    "torch.no_grad() as {}_",
)
_BLOCKS = (
    ("if {}:", None, "else:", None),
    ("for m in [m, n]:", None),
    ("for o in [o, q]:", None),
    ("for x in [{}]:", None),
    ("try:", None, "finally:", None),
    ("try:", None, "except ValueError:", None),
    ("def inner(m=m, o=o, osd=osd, x=None, y=None):", None, "inner()"),
    ("match {}:", "    case {{'state': _}}:", "        pass", "    case _:", "        pass"),
)

_models, _optimizers, _given = map(st.sampled_from, (_MODELS, _OPTIMIZERS, _GIVEN))
_Lines = list[str]


def _call(calls: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda text, model, optim, given: text.format(model=model, optim=optim, given=given),
        st.sampled_from(calls),
        _models,
        _optimizers,
        _given,
    )


def _filled(texts: tuple[str, ...], inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """One of the texts with its gaps filled."""
    return st.builds(lambda text, parts: text.format(*parts), st.sampled_from(texts), st.tuples(inner, inner, inner))


def _blocks(inner: st.SearchStrategy[_Lines], expressions: st.SearchStrategy[str]) -> st.SearchStrategy[_Lines]:
    """A compound statement with statements in it."""

    def block(lines: tuple[str | None, ...], bodies: list[_Lines], test: str) -> _Lines:
        rest = iter(bodies)
        filled = [[line.format(test)] if line is not None else _indented(next(rest)) for line in lines]
        return [line for part in filled for line in part]

    chosen = st.builds(block, st.sampled_from(_BLOCKS), st.lists(inner, min_size=2, max_size=2), expressions)
    manager = _filled(_CONTEXTS, st.sampled_from(("m", "n")))
    managed = st.builds(lambda context, body: [f"with {context}:", *_indented(body)], manager, inner)
    return st.one_of(chosen, managed, managed)


def _indented(lines: _Lines) -> _Lines:
    return [f"    {line}" for line in lines]


def _joined(many: list[_Lines]) -> _Lines:
    return [line for lines in many for line in lines]


def programs() -> st.SearchStrategy[str]:
    """Whole programs: the function `run` of the class `Trainer` is what counts."""
    plain = st.sampled_from(("osd", "1", "effect(osd)", "m.state_dict()"))
    calls = _call(_CALLS)
    expressions = st.recursive(
        st.one_of(calls, calls, plain), lambda inner: st.one_of(calls, _filled(_EXPRESSIONS, inner)), max_leaves=5
    )
    loads = st.builds(
        lambda lines, call, optim: [line.format(call=call, optim=optim) for line in lines],
        st.sampled_from(_LOADS),
        _call(_CONVERSIONS),
        _optimizers,
    )
    simple = st.one_of(_filled(_STATEMENTS, expressions).map(lambda line: [line]), loads)
    statements = st.recursive(
        simple,
        lambda inner: st.one_of(_blocks(inner, expressions), st.lists(inner, min_size=2, max_size=3).map(_joined)),
        max_leaves=6,
    )
    return statements.map(lambda lines: HEAD + "".join(f"        {line}\n" for line in [*lines, "return x, y, m, o"]))

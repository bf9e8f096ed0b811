from __future__ import annotations

import pytest

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange
from tests.rules.checks import check_transformed, lint

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def f(self, x, y, model, ok):
"""


def program(body: str) -> str:
    return HEAD + "\n".join(f"    {line}" for line in body.splitlines()) + "\n"


def known(body: str, more: str = "") -> list[bool]:
    """Whether each `X.seen` of the body is read off an FSDP model."""
    facts = ModuleFacts(Source((program(body) + more).encode()), "x.py", TorchRange.default())
    return [facts.fsdp.is_instance(node.value) for node in facts.structure.attributes if node.attr == "seen"]


@pytest.mark.parametrize(
    "body",
    [
        "if isinstance(x, FSDP):\n    x.seen",
        "if isinstance(x, FSDP) and ok:\n    x.seen",
        "if ok and isinstance(x, FSDP) and x.seen:\n    pass",
        "if not isinstance(x, FSDP) or x.seen:\n    pass",
        "if not isinstance(x, FSDP):\n    pass\nelse:\n    x.seen",
        "if not (isinstance(x, FSDP) and ok):\n    pass\nelse:\n    x.seen",
        "if not isinstance(x, FSDP) or ok:\n    return\nx.seen",
        "if not isinstance(x, FSDP):\n    raise TypeError(x)\nuse(x.seen)",
        "if not isinstance(x, FSDP):\n    with y:\n        return x\nx.seen",
        "if not isinstance(x, FSDP):\n    if ok:\n        return x\n    else:\n        raise ValueError\nx.seen",
        "if isinstance(x, FSDP):\n    pass\nelse:\n    return\nx.seen",
        "if isinstance(x, (FSDP,)):\n    x.seen",
        "if type(x) is FSDP:\n    x.seen",
        "if x.__class__ != FSDP:\n    return\nx.seen",
        "if isinstance(x, FSDP):\n    if ok:\n        with y:\n            x.seen",
        "while isinstance(x, FSDP):\n    x.seen\n    x = x.module",
        "assert isinstance(x, FSDP), 'wrap it'\nx.seen",
        "return x.seen if isinstance(x, FSDP) else None",
        "return None if not isinstance(x, FSDP) else x.seen",
        "if isinstance(self.model, FSDP):\n    self.model.seen",
        "assert isinstance(self.a.model, FSDP)\nself.a.model.seen",
        "for m in model.modules():\n    if not isinstance(m, FSDP):\n        continue\n    m.seen",
        "for m in model.modules():\n    if isinstance(m, FSDP):\n        for h in m.seen:\n            use(h)",
        "for m in FSDP.fsdp_modules(model):\n    m.seen",
        "for m in reversed(list(FSDP.fsdp_modules(model))):\n    m.seen",
        "for n, m in enumerate(FSDP.fsdp_modules(model)[1:]):\n    m.seen",
        "ms = FSDP.fsdp_modules(model)\nfor m in ms:\n    m.seen",
        "ms = [m for m in model.modules() if isinstance(m, FSDP)]\nfor m in ms:\n    m.seen",
        "FSDP.fsdp_modules(model)[0].seen",
        "root = FSDP.fsdp_modules(model)[0]\nroot.seen",
        "return [m.seen for m in FSDP.fsdp_modules(model)]",
        "return [m.seen for m in model.modules() if isinstance(m, FSDP)]",
        "return {m: m.seen for m in model.modules() if ok if isinstance(m, FSDP)}",
        "return [m for m in model.modules() if isinstance(m, FSDP) and m.seen]",
        "return [m for m in model.modules() if isinstance(m, FSDP) if m.seen]",
        "return [h for m in model.modules() if isinstance(m, FSDP) for h in m.seen]",
        "return any(isinstance(m, FSDP) and m.seen for m in model.modules())",
        "match x:\n    case FSDP():\n        x.seen",
        "match x:\n    case FSDP() as m:\n        m.seen",
        "match x:\n    case m if isinstance(m, FSDP):\n        m.seen",
        "if isinstance(m := y.model, FSDP):\n    m.seen",
        "x = y\nif isinstance(x, FSDP):\n    x.seen\n    x = y",
    ],
)
def test_what_a_test_or_a_loop_makes_plain(body: str) -> None:
    assert known(body) == [True]


@pytest.mark.parametrize(
    "body",
    [
        "if isinstance(x, FSDP):\n    pass\nelse:\n    x.seen",
        "if isinstance(x, FSDP):\n    return\nx.seen",
        "if not isinstance(x, FSDP):\n    x.seen",
        "if isinstance(x, (FSDP, DDP)):\n    x.seen",
        "if isinstance(x, FSDP | DDP):\n    x.seen",
        "if isinstance(x, FSDP) or ok:\n    x.seen",
        "if not isinstance(x, FSDP) and ok:\n    return\nx.seen",
        "if not isinstance(x, FSDP):\n    log(x)\nx.seen",
        "if not isinstance(x, FSDP):\n    with contextlib.suppress(KeyError):\n        return x[0]\nx.seen",
        "if not isinstance(x, FSDP):\n    if ok:\n        return x\nx.seen",
        "if isinstance(y, FSDP):\n    x.seen",
        "if isinstance(x.module, FSDP):\n    x.seen",
        "if isinstance(x, FSDP):\n    x.module.seen",
        "if isinstance(x, FSDP):\n    x = x.module\n    x.seen",
        "if isinstance(x, FSDP):\n    for x in y:\n        x.seen",
        "if isinstance(x, FSDP):\n    while ok:\n        x.seen\n        x = x.module",
        "if isinstance(self.model, FSDP):\n    self.model = self.model.module\n    self.model.seen",
        "if isinstance(self.a.model, FSDP):\n    self.a = y\n    self.a.model.seen",
        "if isinstance(self.model, FSDP):\n    self = y\n    self.model.seen",
        "assert isinstance(x, FSDP) or ok\nx.seen",
        "x.seen\nassert isinstance(x, FSDP)",
        "if isinstance(x, FSDP):\n    return [x.seen for x in y]",
        "if isinstance(x, FSDP):\n    return lambda x: x.seen",
        "if isinstance(x, FSDP):\n    def g():\n        return x.seen",
        "for m in FSDP.fsdp_modules(model):\n    pass\nm.seen",
        "for m in FSDP.fsdp_modules(model):\n    m = m.module\n    m.seen",
        "for m, n in zip(FSDP.fsdp_modules(model), y):\n    n.seen",
        "for m in model.modules():\n    m.seen",
        "return [m.seen for m in model.modules() if not isinstance(m, FSDP)]",
        "return [m.seen for m in FSDP.fsdp_modules(model) for m in m.children()]",
        "ms = [m for m in ms if ok]\nfor m in ms:\n    m.seen",
        "a = list(b)\nb = list(a)\nfor m in a:\n    m.seen",
        "x = x.fsdp_modules(x)[0]\nx.seen",
        "FSDP.fsdp_modules(model).seen",
        "match x:\n    case FSDP() | DDP():\n        x.seen",
        "match x:\n    case DDP():\n        x.seen",
        "isinstance = ok\nif isinstance(x, FSDP):\n    x.seen",
    ],
)
def test_what_stays_unknown(body: str) -> None:
    assert known(body) == [False]


@pytest.mark.parametrize(
    ("call", "seen"),
    [
        ("is_fsdp(x)", True),
        ("is_sharded(x)", True),
        ("not other(x)", True),
        ("is_fsdp(y)", False),
        ("other(x)", False),
        ("imports(x)", True),
        ("told(x)", False),
        ("loops(x)", False),
    ],
)
def test_a_function_that_returns_the_test_says_it_too(call: str, seen: bool) -> None:
    functions = """
def is_fsdp(module):
    \"\"\"Docs.\"\"\"
    return isinstance(module, FSDP)

def is_sharded(m):
    return is_fsdp(m) and m.sharding_strategy != 1

def other(m):
    return not isinstance(m, FSDP)

def imports(m):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return isinstance(m, FullyShardedDataParallel)

def told(m):
    m = m.module
    return isinstance(m, FSDP)

def loops(m):
    return loops(m)
"""
    assert known(f"if {call}:\n    x.seen", functions) == [seen]


@pytest.mark.parametrize("count", [200])
def test_long_chains_come_to_an_end(count: int) -> None:
    chain = "\n".join(f"a{n + 1} = a{n}.fsdp_modules(a{n})[0]" for n in range(count))
    assert known(f"{chain}\na{count}.seen") == [False]


def test_rules_that_ask_for_an_instance_follow() -> None:
    body = "for m in model.modules():\n    if isinstance(m, FSDP):\n        for h in m._handles:\n            use(h)"
    (found,) = lint(program(body), "FSDP611")
    assert "removed in torch 2.1" in found.message
    assert lint(program(body.replace("if isinstance", "if not isinstance")), "FSDP611") == ()
    before = program("assert isinstance(self.model, FSDP)\nreturn [g for g in self.model.params_with_grad]")
    after = "[p for p in self.model.parameters() if p.grad is not None]"
    check_transformed(before, before.replace("self.model.params_with_grad", after), "FSDP611")


def test_methods_and_clipping_follow() -> None:
    (found,) = lint(program("if isinstance(x, FSDP):\n    return x.full_optim_state_dict(x, y)"), "FSDP101")
    assert found.severity.value == "deprecated"
    clip = "from torch.nn.utils import clip_grad_norm_\n{}\n    clip_grad_norm_(x.parameters(), 1.0)"
    (found,) = lint(program(clip.format("if isinstance(x, FSDP):")), "FSDP503")
    assert found.applicability.value == "manual"
    assert lint(program(clip.format("if not isinstance(x, FSDP):")), "FSDP503") == ()
    assert lint(program(clip.format("for x in FSDP.fsdp_modules(model):")), "FSDP503") == ()


@pytest.mark.parametrize(
    "text",
    [
        "def g(m: Optional[FSDP]):\n    m.seen\n",
        "def g(m: FSDP | None = None):\n    m.seen\n",
        "def g(m: 'FSDP'):\n    m.seen\n",
        "def g(m: Optional['FSDP']):\n    m.seen\n",
        "def g(self):\n    self.model: 'FSDP | None' = load()\n    self.model.seen\n",
        "def g():\n    m: FSDP = load()\n    m.seen\n",
        "class C:\n    m: 'FSDP'\n    def __init__(self, m):\n        self.m = m\n        self.m.seen\n",
    ],
)
def test_annotations_say_what_is_an_fsdp_model(text: str) -> None:
    assert known("pass", text) == [True]
    assert known("pass", text.replace("FSDP", "DDP")) == [False]

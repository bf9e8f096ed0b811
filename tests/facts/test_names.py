from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from fsdp_migrate.facts.names import Names, canonical
from fsdp_migrate.facts.walk import build


def names_of(text: str) -> tuple[Names, ast.expr]:
    """The resolver of a program and the expression in its last `probe(...)` call."""
    structure = build(ast.parse(dedent(text)))
    probes = [c for c in structure.calls if isinstance(c.func, ast.Name) and c.func.id == "probe"]
    return Names(structure), probes[-1].args[0]


def symbols(text: str) -> set[str | None]:
    names, node = names_of(text)
    return set(names.symbols(node))


FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
PUBLIC = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP"


@pytest.mark.parametrize(
    "text",
    [
        f"{PUBLIC}\nprobe(FSDP)",
        "from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as F\nprobe(F)",
        "import torch.distributed.fsdp\nprobe(torch.distributed.fsdp.FullyShardedDataParallel)",
        "import torch.distributed.fsdp as fsdp\nprobe(fsdp.FullyShardedDataParallel)",
        "from torch import distributed\nprobe(distributed.fsdp.FullyShardedDataParallel)",
        "from torch.distributed.fsdp import *\nprobe(FullyShardedDataParallel)",
        f"{PUBLIC}\nG = FSDP\nH = G\nprobe(H)",
        f"try:\n    {PUBLIC}\nexcept ImportError:\n    FSDP = None\nprobe(FSDP)",
        f"FSDP = object\nif flag:\n    {PUBLIC}\nprobe(FSDP)",
        f"def f():\n    {PUBLIC}\n    def g():\n        probe(FSDP)",
        f"{PUBLIC}\nclass A:\n    FSDP = 1\n    def f(self):\n        probe(FSDP)",
        f"from fairscale.nn import FullyShardedDataParallel as FSDP\n{PUBLIC}\nprobe(FSDP)",
        f"def load():\n    global FSDP\n    {PUBLIC}\nprobe(FSDP)",
        f"{PUBLIC}\n[probe(FSDP) for x in y]",
        f"{PUBLIC}\nA, B = FSDP, 1\nprobe(A)",
    ],
)
def test_fsdp_is_resolved_under_every_binding(text: str) -> None:
    assert symbols(text) == {FSDP}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{PUBLIC}\ndef f(FSDP):\n    probe(FSDP)", {None}),
        (f"{PUBLIC}\ndef f():\n    for FSDP in x:\n        probe(FSDP)", {None}),
        (f"{PUBLIC}\nclass A:\n    FSDP = 1\n    probe(FSDP)", {None}),
        (f"{PUBLIC}\n[probe(FSDP) for FSDP in y]", {None}),
        (f"{PUBLIC}\n(lambda FSDP: probe(FSDP))", {None}),
        (f"{PUBLIC}\nFSDP = wrap(FSDP)\nprobe(FSDP)", {None}),
        ("from .dist import FSDP\nprobe(FSDP)", {".dist.FSDP"}),
        ("class FSDP: ...\nprobe(FSDP)", {"<file>.FSDP"}),
        ("probe(print)", {"builtins.print"}),
        (f"if a:\n    {PUBLIC}\nelse:\n    from fairscale.nn import FSDP\nprobe(FSDP)", {FSDP, "fairscale.nn.FSDP"}),
    ],
)
def test_a_name_means_what_its_own_scope_binds(text: str, expected: set[str | None]) -> None:
    assert symbols(text) == expected


def test_a_symbol_has_one_name_whatever_module_it_comes_from() -> None:
    base = "torch.distributed.fsdp"
    assert canonical(f"{base}.api.StateDictType.FULL_STATE_DICT") == f"{base}.StateDictType.FULL_STATE_DICT"
    assert canonical(f"{base}.flat_param.FlatParameter") == f"{base}.FlatParameter"
    assert canonical(f"{base}.flat_param.FlatParamHandle") == f"{base}.flat_param.FlatParamHandle"
    assert canonical(f"{base}.FullyShardedDataParallel.optim_state_dict") == f"{FSDP}.optim_state_dict"


def test_the_chain_to_a_class_is_the_text_in_front_of_it() -> None:
    names, node = names_of("import torch.distributed as dist\nFSDP = dist.fsdp.FullyShardedDataParallel\nprobe(FSDP)")
    (meaning,) = names.meanings(node)
    assert meaning.chain == "dist.fsdp"


def test_only_a_name_bound_once_has_a_definition() -> None:
    names, node = names_of("x = 1\nprobe(x)")
    assert isinstance(node, ast.Name)
    definition = names.definition(node)
    assert isinstance(definition, ast.Constant)
    assert definition.value == 1
    names, node = names_of("if a:\n    x = 1\nelse:\n    x = 2\nprobe(x)")
    assert isinstance(node, ast.Name)
    assert names.definition(node) is None
    assert [ast.unparse(value) for value in names.definitions(node)] == ["1", "2"]


@pytest.mark.parametrize("others", [0, 30])
def test_the_last_unconditional_binding_counts_however_many_there_are(others: int) -> None:
    rebound = "FSDP = 1\n" * others
    assert symbols(f"{rebound}{PUBLIC}\nprobe(FSDP)\n{rebound}") == {FSDP}
    assert symbols(f"{PUBLIC}\n{rebound}if flag:\n    {PUBLIC}\nprobe(FSDP)") == ({None, FSDP} if others else {FSDP})
    assert symbols(f"def f():\n    probe(FSDP)\n{rebound}{PUBLIC}") == {FSDP}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{PUBLIC}\nfor x in y:\n    probe(FSDP)\n    FSDP = 1", {FSDP, None}),
        (f"{PUBLIC}\nwhile x:\n    if y:\n        probe(FSDP)\n    FSDP = 1", {FSDP, None}),
        (f"{PUBLIC}\nfor x in y:\n    for z in x:\n        probe(FSDP)\n    FSDP = 1", {FSDP, None}),
        (f"for x in y:\n    {PUBLIC}\n    probe(FSDP)\n    FSDP = 1", {FSDP}),
        (f"for x in y:\n    {PUBLIC}\n    for z in x:\n        probe(FSDP)\n    FSDP = 1", {FSDP}),
        (f"{PUBLIC}\nfor x in y:\n    probe(FSDP)\nelse:\n    FSDP = 1\nFSDP = 2", {FSDP}),
        (f"{PUBLIC}\nfor x in probe(FSDP):\n    FSDP = 1", {FSDP}),
        (f"{PUBLIC}\nfor x in y:\n    def f(FSDP):\n        FSDP.z\n    probe(FSDP)\nFSDP = 1", {FSDP}),
    ],
)
def test_the_next_turn_of_a_loop_finds_what_the_last_one_bound(text: str, expected: set[str | None]) -> None:
    assert symbols(text) == expected


@pytest.mark.parametrize("start", ["torch.a", "given"])
def test_a_name_that_a_loop_binds_in_many_ways_has_no_more_meanings_than_can_be_told(start: str) -> None:
    steps = "".join(f"        if n.a{step}:\n            node = node.b{step}\n" for step in range(40))
    text = f"import torch\n\ndef f(given, n):\n    node = {start}\n    while n:\n{steps}    probe(node.x)\n"
    names, node = names_of(text)
    meanings = names.meanings(node)
    assert 1 < len(meanings) <= 101
    assert None in {meaning.qualified for meaning in meanings}
    assert ("torch.a.b0.x" in {meaning.qualified for meaning in meanings}) is (start == "torch.a")


STRATEGY = "torch.distributed.fsdp.ShardingStrategy"
ENUM = "from torch.distributed.fsdp import ShardingStrategy, FullyShardedDataParallel as FSDP"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("probe(ShardingStrategy['NO_SHARD'])", {f"{STRATEGY}.NO_SHARD"}),
        ("probe(getattr(ShardingStrategy, 'NO_SHARD'))", {f"{STRATEGY}.NO_SHARD"}),
        ("probe(ShardingStrategy.__dict__['NO_SHARD'])", {f"{STRATEGY}.NO_SHARD"}),
        ("s = ShardingStrategy['NO_SHARD']\nprobe(s)", {f"{STRATEGY}.NO_SHARD"}),
        ("probe(ShardingStrategy['MINE'])", {None}),
        ("probe(ShardingStrategy[name])", {None}),
        ("probe(getattr(FSDP, 'no_sync'))", {None}),
        ("probe(FSDP['no_sync'])", {None}),
        ("probe(mesh['NO_SHARD'])", {None}),
        ("getattr = None\nprobe(getattr(ShardingStrategy, 'NO_SHARD'))", {None}),
        ("def getattr(a, b):\n    return b\nprobe(getattr(ShardingStrategy, 'NO_SHARD'))", {None}),
        (
            "import torch.distributed as dist\nprobe(getattr(dist.ReduceOp, 'SUM'))",
            {"torch.distributed.ReduceOp.SUM"},
        ),
    ],
)
def test_a_member_of_an_enum_is_known_by_its_string(text: str, expected: set[str | None]) -> None:
    assert symbols(f"{ENUM}\n{text}") == expected

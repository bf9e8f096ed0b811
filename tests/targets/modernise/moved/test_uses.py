"""Names whose replacement differs in more than its place: their uses change together, or none does."""

from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

TOGETHER = "change all uses together"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            "FSDP813",
            "from functools import partial\nfrom torch.distributed.distributed_c10d import _get_global_rank\n"
            "f = partial(_get_global_rank, rank=3)\n_get_global_rank(g, rank=1)\n",
        ),
        (
            "FSDP813",
            "from torch.distributed import distributed_c10d as c\ndef f(rank_of=c._get_global_rank):\n"
            "    return rank_of(g, rank=1)\nc._get_global_rank(g, 0)\n",
        ),
        ("FSDP802", "import torch\ns = torch.cuda.amp.GradScaler()\nok = type(s) is torch.cuda.amp.GradScaler\n"),
        ("FSDP802", "import torch\ns = torch.cuda.amp.GradScaler()\nbuild(torch.cuda.amp.GradScaler)\n"),
        ("FSDP801", "import torch\nr = torch.cuda.amp.autocast()\nq = partial(torch.cuda.amp.autocast, dtype=d)\n"),
        ("FSDP801", "from torch.cuda.amp import autocast\nr = autocast()\nn = autocast.__name__\n"),
        ("FSDP803", "import torch\nf = torch.cuda.amp.custom_fwd(g)\nh = torch.cuda.amp.custom_fwd\n"),
    ],
)
def test_a_use_as_a_value_keeps_all_uses_as_they_are(code: str, text: str) -> None:
    check_manual(text, code, TOGETHER, torch=">=2.4")


def test_the_line_of_the_use_as_a_value_is_named() -> None:
    text = "import torch\ns = torch.cuda.amp.GradScaler()\n\nmake(torch.cuda.amp.GradScaler)\n"
    assert all("(line 4)" in (one.reason or "") for one in lint(text, "FSDP802", ">=2.4"))


def test_members_that_only_the_old_class_has_are_named() -> None:
    text = "import torch.distributed as dist\nx = dist.reduce_op.__members__\n"
    check_manual(text, "FSDP812", "only members such as `reduce_op.SUM`")


def test_a_test_for_the_type_of_a_region_follows_its_calls() -> None:
    text = "import torch\nwith torch.{0}.autocast({1}) as r:\n    pass\nok = isinstance(r, torch.{0}.autocast)\n"
    check_transformed(
        text.format("cuda.amp", ""), text.format("amp", '"cuda", dtype=torch.float16'), "FSDP801", torch=">=2.4"
    )
    check_noop("import torch\nok = isinstance(r, torch.cuda.amp.autocast)\n", "FSDP801", torch=">=2.4")


def test_the_reduction_of_a_placement_that_is_read_keeps_it_as_it_is() -> None:
    head = "from torch.distributed import ReduceOp\n"
    rest = "ok = p.reduce_op == ReduceOp.SUM\n"
    new = f"{head}from torch.distributed.tensor import Partial\np = Partial(ReduceOp.SUM)\n{rest}"
    check_manual(new, "FSDP612", "line 4 reads `reduce_op`", torch=">=2.6")
    old = f"{head}from torch.distributed._tensor.placement_types import _Partial\np = _Partial(ReduceOp.SUM)\n{rest}"
    check_manual(old, "FSDP601", "line 4 reads `reduce_op`", torch=">=2.6")


def test_an_argument_is_never_given_twice() -> None:
    text = "import torch\nf = torch.cuda.amp.custom_fwd(g, device_type='cuda')\n"
    check_manual(text, "FSDP803", "`device_type` twice", torch=">=2.4")


@pytest.mark.parametrize("cache", ["torch.set_autocast_cache_enabled(False)", 'f(**{"cache_enabled": False})'])
def test_the_cache_is_written_out_where_the_file_sets_it(cache: str) -> None:
    text = "import torch\n{}\nwith torch.{}:\n    pass\n"
    after = 'amp.autocast("cuda", dtype=torch.float16, cache_enabled=True)'
    check_transformed(text.format(cache, "cuda.amp.autocast()"), text.format(cache, after), "FSDP801", torch=">=2.4")
    after = 'amp.autocast("cuda", dtype=torch.float16)'
    check_transformed(text.format("", "cuda.amp.autocast()"), text.format("", after), "FSDP801", torch=">=2.4")


def test_a_region_that_is_off_reads_as_torch_says() -> None:
    text = "import torch\nwith torch.{}:\n    pass\n"
    check_transformed(
        text.format("cuda.amp.autocast(enabled=False)"),
        text.format('amp.autocast("cuda", enabled=False)'),
        "FSDP801",
        torch=">=2.4",
    )


@pytest.mark.parametrize("declared", ["global", "nonlocal"])
def test_a_name_that_is_imported_for_another_scope_keeps_its_name(declared: str) -> None:
    text = (
        "def outer():\n    {1} = None\n    def inner():\n        {0} {1}\n"
        "        from torch.distributed import {2}\n        {1}(a, b)\n    return inner\n"
    ).replace("    {1} = None\n", "    {1} = None\n" if declared == "nonlocal" else "")
    check_transformed(
        text.format(declared, "_all_gather_base", "_all_gather_base"),
        text.format(declared, "_all_gather_base", "all_gather_into_tensor as _all_gather_base"),
        "FSDP811",
    )


NEEDLES = [
    "from torch.distributed import _all_gather_base",
    "from torch.cuda.amp import autocast",
    "from torch.cuda.amp import GradScaler",
    "from torch.distributed.fsdp import FullyShardedDataParallel",
    "from torch.distributed.fsdp.flat_param import FlatParameter",
    "from torch.distributed._tensor import DTensor",
    "from torch.distributed.fsdp.wrap import default_auto_wrap_policy",
    "import torch.distributed._shard.checkpoint as dcp",
]


@pytest.mark.parametrize("needle", NEEDLES)
@pytest.mark.parametrize(
    "around",
    [
        "def f():\n    global {0}\n    {1}\n    return {0}()\n",
        "def f():\n    {0} = 1\n    def g():\n        nonlocal {0}\n        {1}\n        return {0}()\n    return g\n",
        "class C:\n    {1}\n    x = {0}()\n",
        "class C:\n    global {0}\n    {1}\n    x = {0}\n",
        "for {0} in y:\n    {1}\n    {0}()\n",
        "with y as {0}:\n    {1}\n    {0}()\n",
        "try:\n    {1}\nexcept ImportError as {0}:\n    pass\n{0}()\n",
        "del {0}\n{1}\n{0}()\ndel {0}\n",
        "match y:\n    case {0}:\n        {1}\n        {0}()\n",
        "x = [{0} for {0} in y]\n{1}\n({0} := 1)\n",
        "{1}\ndef {0}({0}=1): ...\n{0}()\n",
    ],
)
def test_bindings_of_every_kind_end_no_check_with_an_error(needle: str, around: str) -> None:
    name = needle.split()[-1]
    settings = Settings(TorchRange.parse(">=2.1"), select=("FSDP",), hints=True)
    report = lint_bytes(around.format(name, needle).encode(), "example.py", settings)
    assert report.error is None


def test_a_place_that_some_release_between_lacks_is_not_written() -> None:
    text = "from torch.distributed._tensor.ops.utils import register_prop_rule\n"
    check_manual(text, "FSDP601", "torch 2.10 has neither")
    text = "from torch.distributed._tensor.op_schema import OpSchema\n"
    check_manual(text, "FSDP601", "torch 2.4 has neither")
    check_transformed(text, text.replace("_tensor.op", "tensor._op"), "FSDP601", torch=">=2.5")


def test_an_example_in_a_docstring_keeps_the_name() -> None:
    use = '\n\ndef f():\n    """Doc.\n\n    >>> _all_gather_base(a, b)\n    """\n    _all_gather_base(a, b)\n'
    check_transformed(
        f"from torch.distributed import _all_gather_base{use}",
        f"from torch.distributed import all_gather_into_tensor as _all_gather_base{use}",
        "FSDP811",
    )


def test_a_star_import_that_may_bring_the_new_name_keeps_the_old_one() -> None:
    text = "from torch.distributed import {}\nfrom ops import *\n_all_gather_base(a, b)\n"
    after = text.format("all_gather_into_tensor as _all_gather_base")
    check_transformed(text.format("_all_gather_base"), after, "FSDP811")


def test_the_old_package_of_checkpoints_is_the_new_one_whatever_is_done_with_it() -> None:
    text = "import torch.distributed.{}checkpoint as dist_cp\n\nregister(dist_cp)\ndist_cp.planner = None\n"
    check_transformed(text.format("_shard."), text.format(""), "FSDP605")


def test_fsdp2_is_imported_from_where_older_releases_have_it() -> None:
    text = "from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy as M, fully_shard\n"
    after = (
        "try:\n    from torch.distributed.fsdp import MixedPrecisionPolicy as M, fully_shard\nexcept ImportError:\n"
        "    from torch.distributed._composable.fsdp import (\n        MixedPrecisionPolicy as M,\n"
        "        fully_shard,\n    )\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel\n"
    )
    check_transformed(text, after, "FSDP602", torch=">=2.4")
    check_noop(text, "FSDP602", torch=">=2.6")
    check_noop(text, "FSDP602", torch=">=2.2")  # torch 2.2 has it nowhere
    (found,) = lint(text, "FSDP602", ">=2.4")
    assert (found.severity, found.applicability) == (Severity.BREAKS, Applicability.SAFE)
    check_noop(after, "FSDP6", torch=">=2.4")


def test_a_private_place_that_every_release_has_is_named() -> None:
    text = "from torch.distributed.checkpoint import FsspecWriter\n"
    check_manual(text, "FSDP600", "import it from `torch.distributed.checkpoint._fsspec_filesystem`", torch=">=2.1")


@pytest.mark.parametrize(
    "line",
    [
        "warnings.filterwarnings('ignore', message='torch.cuda.amp.GradScaler')",
        "logger.info('GradScaler')",
        "raise RuntimeError('GradScaler')",
        "ok = type(s).__name__ == 'GradScaler'",
        "x: 'torch.cuda.amp.GradScaler'",
    ],
)
def test_a_string_that_nothing_reads_as_the_name_is_no_hindrance(line: str) -> None:
    text = f"from torch.cuda.amp import GradScaler\n\ns = GradScaler()\n{line}\n"
    after = text.replace("torch.cuda.amp import", "torch.amp import").replace("GradScaler()", 'GradScaler("cuda")')
    check_transformed(text, after, "FSDP802", torch=">=2.4")


@pytest.mark.parametrize(
    "line",
    [
        "__all__ = ['GradScaler']",
        "s = globals()['GradScaler'](2.0)",
        "mock.patch('train.GradScaler')",
        "build('GradScaler')",
    ],
)
def test_a_string_that_may_be_read_as_the_name_is_one(line: str) -> None:
    text = f"from torch.cuda.amp import GradScaler\n\ns = GradScaler()\n{line}\n"
    assert "from torch.cuda.amp import GradScaler" in rewritten_text(text)


def rewritten_text(text: str) -> str:
    settings = Settings(torch=TorchRange.parse(">=2.4"), select=("FSDP802",))
    return rewrite_bytes(text.encode(), "example.py", settings).raw.decode()

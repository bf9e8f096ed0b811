from __future__ import annotations

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

BASES = "FSDP811"
OPS = "FSDP812"
RANKS = "FSDP813"
MULTIGPU = "FSDP814"


def test_gathers_are_renamed_wherever_the_module_comes_from() -> None:
    check_transformed(
        """\
        import torch
        import torch.distributed.distributed_c10d as c10d

        gather = torch.distributed._all_gather_base
        c10d._reduce_scatter_base(part, whole, op, group, True)
        """,
        """\
        import torch
        import torch.distributed.distributed_c10d as c10d

        gather = torch.distributed.all_gather_into_tensor
        c10d.reduce_scatter_tensor(part, whole, op, group, True)
        """,
        BASES,
    )


def test_an_import_brings_the_new_name_in_place_of_the_old_one() -> None:
    check_transformed(
        """\
        from torch.distributed import _all_gather_base, all_reduce

        def f(a, b):
            _all_gather_base(a, b)
            _all_gather_base(b, a)
        """,
        """\
        from torch.distributed import all_gather_into_tensor, all_reduce

        def f(a, b):
            all_gather_into_tensor(a, b)
            all_gather_into_tensor(b, a)
        """,
        BASES,
    )


def test_an_import_under_another_name_is_all_that_changes() -> None:
    check_transformed(
        "from torch.distributed import _all_gather_base as gather\n\ngather(a, b)\n",
        "from torch.distributed import all_gather_into_tensor as gather\n\ngather(a, b)\n",
        BASES,
    )


def test_the_new_gathers_are_never_reported() -> None:
    text = "import torch.distributed as dist\ndist.all_gather_into_tensor(a, b)\ndist.reduce_scatter_tensor(a, b)\n"
    check_noop(text, "FSDP8", ">=2.13")


def test_code_that_chooses_by_itself_is_left_alone() -> None:
    check_noop(
        """\
        import torch.distributed as dist
        try:
            gather = dist.all_gather_into_tensor
        except Exception:
            gather = dist._all_gather_base
        if "all_gather_into_tensor" in dir(dist):
            dist.all_gather_into_tensor(a, b)
        else:
            dist._all_gather_base(a, b)
        """,
        BASES,
    )


def test_a_check_of_the_version_leaves_the_old_gather_to_older_releases() -> None:
    text = """\
        import torch
        from packaging.version import Version
        if Version(torch.__version__) < Version("{}"):
            torch.distributed._all_gather_base(a, b)
        """
    check_noop(text.format("1.13"), BASES, torch=">=1.11")
    check_manual(text.format("2.0"), BASES, "also runs on torch 1.11 to 1.12", torch=">=1.11")


def test_what_only_names_the_old_gather_besides_is_no_choice() -> None:
    text = """\
        import torch.distributed as dist
        if fast:
            dist.{0}(a, b)
        else:
            dist.all_gather(a, b)
        """
    check_transformed(text.format("_all_gather_base"), text.format("all_gather_into_tensor"), BASES)


def test_a_patched_name_is_manual_and_a_taken_one_is_an_alias() -> None:
    check_manual(
        """\
        import torch.distributed as dist
        from unittest.mock import patch
        with patch("torch.distributed._all_gather_base", dist._all_gather_base):
            pass
        """,
        BASES,
        "a string here names it, too",
    )
    check_transformed(
        "from torch.distributed import _all_gather_base\nall_gather_into_tensor = _all_gather_base\n",
        "from torch.distributed import all_gather_into_tensor as _all_gather_base\n"
        "all_gather_into_tensor = _all_gather_base\n",
        BASES,
    )


def test_methods_of_that_name_are_left_alone() -> None:
    check_noop("self._all_gather_base(a, b)\nbackend._get_global_rank(g, 0)\nself.reduce_op.SUM\n", "FSDP81")
    check_noop("def f(dist):\n    dist._all_gather_base(a, b)\n", BASES)


def test_reduce_op_is_renamed_with_its_members_only() -> None:
    check_transformed(
        "from torch.distributed import reduce_op\n\nOP = reduce_op.MAX\n",
        "from torch.distributed import ReduceOp\n\nOP = ReduceOp.MAX\n",
        OPS,
    )
    check_manual("import torch.distributed as dist\ngetattr(dist.reduce_op, name)\n", OPS, "only members such as")


def test_the_keyword_of_a_rank_is_renamed_too() -> None:
    check_transformed(
        """\
        from torch.distributed.distributed_c10d import _get_group_rank

        _get_group_rank(group, rank=3)
        """,
        """\
        from torch.distributed.distributed_c10d import get_group_rank

        get_group_rank(group, global_rank=3)
        """,
        RANKS,
    )


def test_only_the_group_rank_is_gone() -> None:
    def severity(name: str) -> Severity:
        (found,) = lint(f"from torch.distributed import distributed_c10d as c\nc.{name}(g, 0)\n", RANKS)
        return found.severity

    assert severity("_get_group_rank") is Severity.BREAKS
    assert severity("_get_global_rank") is Severity.DEPRECATED


def test_collectives_over_several_gpus_break_from_torch_2_2_on() -> None:
    text = "import torch.distributed as dist\ndist.broadcast_multigpu([t], 0)\n"
    check_manual(text, MULTIGPU, "one process per GPU")
    assert [f.severity for f in lint(text, MULTIGPU, ">=2.1")] == [Severity.BREAKS]
    assert [f.severity for f in lint(text, MULTIGPU, ">=1.13,<2.2")] == [Severity.DEPRECATED]


def test_below_the_floor_a_gather_stays() -> None:
    check_manual("import torch.distributed as dist\ndist._all_gather_base(a, b)\n", BASES, "1.13", torch=">=1.12")


def test_a_name_that_getattr_reads_is_renamed_in_its_string() -> None:
    check_transformed(
        """\
        import torch.distributed as dist

        getattr(dist, "_all_gather_base")(a, b)
        scatter = getattr(dist.distributed_c10d, '_reduce_scatter_base')
        """,
        """\
        import torch.distributed as dist

        getattr(dist, "all_gather_into_tensor")(a, b)
        scatter = getattr(dist.distributed_c10d, 'reduce_scatter_tensor')
        """,
        BASES,
    )
    check_transformed(
        "import torch\n\nop = getattr(torch.distributed, 'reduce_op').SUM\n",
        "import torch\n\nop = getattr(torch.distributed, 'ReduceOp').SUM\n",
        OPS,
    )
    check_transformed(
        "import torch.distributed as dist\n\ngetattr(dist.distributed_c10d, '_get_global_rank')(group, 0)\n",
        "import torch.distributed as dist\n\ngetattr(dist.distributed_c10d, 'get_global_rank')(group, 0)\n",
        RANKS,
    )


def test_a_string_of_getattr_is_left_to_the_reader_where_more_than_the_name_changes() -> None:
    head = "import torch.distributed as dist\n\n"
    check_manual(head + "op = getattr(dist, 'reduce_op')\n", OPS, "only members such as `reduce_op.SUM`")
    check_manual(
        head + "getattr(dist.distributed_c10d, '_get_global_rank')(group, rank=0)\n",
        RANKS,
        "its parameters were renamed",
    )
    check_manual(head + "f = getattr(dist.distributed_c10d, '_get_global_rank')\n", RANKS, "is not only called")
    check_manual(head + "f = getattr(dist, r'_all_gather_base')\n", BASES, "not written as a plain")
    asked = "setattr(dist, '_all_gather_base', fake)\nf = getattr(dist, '_all_gather_base')\n"
    check_manual(head + asked, BASES, "also tests for or assigns the old name")
    put = "dist._all_gather_base = fake\nf = getattr(dist, '_all_gather_base')\n"
    check_manual(head + put, BASES, "also tests for or assigns the old name")
    check_manual(head + "getattr(dist, 'all_reduce_multigpu')([a])\n", MULTIGPU, "one process per GPU")


def test_a_getattr_that_expects_the_name_to_be_missing_is_left_alone() -> None:
    head = "import torch.distributed as dist\n\n"
    check_noop(head + "f = getattr(dist, '_all_gather_base', None)\n", BASES)
    check_noop(head + "f = getattr(model, '_all_gather_base')\n", BASES)
    check_noop(head + "def getattr(a, b): ...\n\nf = getattr(dist, '_all_gather_base')\n", BASES)
    choice = (
        "f = (\n    getattr(dist, 'all_gather_into_tensor')\n"
        "    if hasattr(dist, 'all_gather_into_tensor')\n    else getattr(dist, '_all_gather_base')\n)\n"
    )
    check_noop(head + choice, BASES)


def test_a_collective_that_is_expected_to_be_missing_is_left_alone() -> None:
    handler = "except AttributeError:\n    reduce = dist.all_reduce\n"
    for name in ("dist.all_reduce_multigpu", "getattr(dist, 'all_reduce_multigpu')"):
        check_noop(f"import torch.distributed as dist\n\ntry:\n    reduce = {name}\n{handler}", MULTIGPU)
    check_manual(
        "import torch.distributed as dist\n\ntry:\n    dist.all_reduce_multigpu([a])\nexcept RuntimeError:\n    pass\n",
        MULTIGPU,
        "one process per GPU",
    )

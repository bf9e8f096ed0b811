"""Comments in imports whose names move: each goes with its name, those of the statement stay with the statement."""

from __future__ import annotations

import pytest

from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from tests.rules.checks import check_transformed

OLD, PUBLIC = "from torch.distributed.fsdp.flat_param import", "from torch.distributed.fsdp import"
NEW = "from torch.distributed.fsdp._flat_param import"

# Both names move, each to its own module.
SPLIT = {
    "black": (
        f"{OLD} (\n    FlatParameter,  # noqa: F401\n    FlatParamHandle,  # the handle\n)\n",
        f"{PUBLIC} FlatParameter  # noqa: F401\n{NEW} FlatParamHandle  # the handle\n",
    ),
    "without a last comma": (
        f"{OLD} (\n    FlatParameter,  # one\n    FlatParamHandle  # two\n)\n",
        f"{PUBLIC} FlatParameter  # one\n{NEW} FlatParamHandle  # two\n",
    ),
    "yapf": (
        f"{OLD} (FlatParameter,  # one\n                  FlatParamHandle)  # two\n",
        f"{PUBLIC} FlatParameter  # one\n{NEW} FlatParamHandle  # two\n",
    ),
    "hanging": (
        f"{OLD} (\n    FlatParameter,\n    # the handle\n    FlatParamHandle)\n",
        f"{PUBLIC} FlatParameter\n# the handle\n{NEW} FlatParamHandle\n",
    ),
    "commas in front": (
        f"{OLD} (\n    FlatParameter  # one\n    , FlatParamHandle  # two\n    )\n",
        f"{PUBLIC} FlatParameter  # one\n{NEW} FlatParamHandle  # two\n",
    ),
    "backslash": (
        f"{OLD} FlatParameter, \\\n    FlatParamHandle  # both\n",
        f"{PUBLIC} FlatParameter\n{NEW} FlatParamHandle  # both\n",
    ),
    "one line": (
        f"{OLD} FlatParameter, FlatParamHandle  # noqa: F401\n",
        f"{PUBLIC} FlatParameter  # noqa: F401\n{NEW} FlatParamHandle  # noqa: F401\n",
    ),
    "behind the parenthesis": (
        f"{OLD} (  # type: ignore\n    FlatParameter,\n    FlatParamHandle as Handle,\n)  # why\n",
        f"{PUBLIC} FlatParameter  # type: ignore\n{NEW} (  # type: ignore\n    FlatParamHandle as Handle,\n)  # why\n",
    ),
    "above a name and at the end": (
        f"{OLD} (\n    # one\n    FlatParameter,  # noqa: F401\n    FlatParamHandle,\n    # ParamInfo,\n)\n",
        f"# ParamInfo,\n# one\n{PUBLIC} FlatParameter  # noqa: F401\n{NEW} FlatParamHandle\n",
    ),
    "inside a name": (
        f"{OLD} (\n    FlatParameter as  # renamed\n    P, FlatParamHandle\n)\n",
        f"# renamed\n{PUBLIC} FlatParameter as P\n{NEW} FlatParamHandle\n",
    ),
    "several names": (
        f"{OLD} (\n    FlatParameter,\n    # two\n    FlatParamHandle,  # noqa: F401\n    ParamInfo, # three\n)\n",
        f"{PUBLIC} FlatParameter\n{NEW} (\n    # two\n    FlatParamHandle,  # noqa: F401\n    ParamInfo,  # three\n)\n",
    ),
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("layout", SPLIT)
def test_a_comment_goes_with_its_name(layout: str, newline: str) -> None:
    before, after = SPLIT[layout]
    settings = Settings(torch=TorchRange.parse(">=2.2"), select=("FSDP303",))
    result = rewrite_bytes(before.replace("\n", newline).encode(), "example.py", settings)
    assert (result.left, result.error) == ((), None)
    assert result.raw.decode() == after.replace("\n", newline)
    assert rewrite_bytes(result.raw, "example.py", settings).raw == result.raw


def test_a_comment_of_a_name_that_stays_stays() -> None:
    check_transformed(
        """\
        import torch
        from torch.cuda.amp import (  # noqa: F401
        \tautocast,  # mixed
        \t# both of them
        \tcustom_fwd,
        \tcustom_bwd,  # type: ignore

        \t# last
        )  # end
        def train():
        \twith autocast(enabled=True): pass
        """,
        """\
        import torch
        from torch.amp import (  # noqa: F401
        \tautocast,  # mixed
        )
        from torch.cuda.amp import (  # noqa: F401
        \t# both of them
        \tcustom_fwd,
        \tcustom_bwd,  # type: ignore

        \t# last
        )  # end
        def train():
        \twith autocast("cuda", dtype=torch.float16, enabled=True): pass
        """,
        "FSDP801",
        torch=">=2.4",
    )


def test_where_both_places_are_tried_comments_stand_at_the_first_and_what_silences_a_tool_at_both() -> None:
    check_transformed(
        f"{OLD} (\n    FlatParamHandle,  # the handle\n    ParamInfo,  # type: ignore[attr-defined]\n)  # private\n",
        f"try:\n    {NEW} (  # private\n        FlatParamHandle,  # the handle\n"
        "        ParamInfo,  # type: ignore[attr-defined]\n    )\n"
        f"except ImportError:\n    {OLD} (\n        FlatParamHandle,\n"
        "        ParamInfo,  # type: ignore[attr-defined]\n    )\n",
        "FSDP303",
    )


def test_names_of_the_general_table_go_the_same_way() -> None:
    check_transformed(
        "from torch.distributed._tensor.debug import (\n    CommDebugMode,  # counts\n)\n",
        "try:\n    from torch.distributed.tensor.debug import CommDebugMode  # counts\nexcept ImportError:\n"
        "    from torch.distributed._tensor.debug import CommDebugMode\n",
        "FSDP601",
    )
    check_transformed(
        "from torch.distributed.fsdp._utils import (\n    _apply_to_tensors,  # all\n"
        "    FSDP_FLATTENED,  # type: ignore\n)\nx = FSDP_FLATTENED\n",
        "from torch.distributed.fsdp._common_utils import FSDP_FLATTENED  # type: ignore\n"
        "from torch.distributed.fsdp._utils import (\n    _apply_to_tensors,  # all\n)\nx = FSDP_FLATTENED\n",
        "FSDP304",
    )


def test_a_name_that_takes_the_place_of_another_takes_its_comments() -> None:
    check_transformed(
        """\
        from torch.distributed import (
            _all_gather_base as gather,  # gathers
            # one of them
            _reduce_scatter_base,  # scatters
            barrier,
        )
        from torch.distributed import _all_gather_base, _reduce_scatter_base as rs  # type: ignore
        from torch.distributed.distributed_c10d import _all_gather_base as ag  # type: ignore
        gather(a, b), rs(a, b), ag(a, b)
        _reduce_scatter_base(a, b)
        _all_gather_base(a, b)
        """,
        """\
        from torch.distributed import (
            all_gather_into_tensor as gather,  # gathers
            # one of them
            reduce_scatter_tensor,  # scatters
            barrier,
        )
        from torch.distributed import all_gather_into_tensor, reduce_scatter_tensor as rs  # type: ignore
        from torch.distributed.distributed_c10d import all_gather_into_tensor as ag  # type: ignore
        gather(a, b), rs(a, b), ag(a, b)
        reduce_scatter_tensor(a, b)
        all_gather_into_tensor(a, b)
        """,
        "FSDP811",
    )

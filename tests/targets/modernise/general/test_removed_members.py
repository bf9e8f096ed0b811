from __future__ import annotations

import pytest
from packaging.version import Version

from fsdp_migrate.facts.fsdp import FSDP as CLASS
from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.targets.modernise.general.removed_members import MEMBERS, OF_HANDLES, Member
from fsdp_migrate.torch_api import PUBLISHED, RELEASES
from fsdp_migrate.torch_api.data import exists, kind, names, signature
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
BUILT = FSDP + "model = FSDP(net)\n"


@pytest.mark.parametrize("member", [member for member in MEMBERS if member.method], ids=lambda member: member.name)
def test_the_data_agrees_with_the_rows(member: Member) -> None:
    having = [release for release in PUBLISHED if exists(f"{CLASS}.{member.name}", release)]
    assert having
    assert min(release for release in PUBLISHED if release > having[-1]) == Version(f"{member.removed}.0")


@pytest.mark.parametrize("member", [member for member in MEMBERS if member.own], ids=lambda member: member.name)
def test_no_class_of_the_newest_torch_has_a_member_of_fsdp_alone(member: Member) -> None:
    newest = RELEASES[-1]
    classes = [name for name in names("torch.distributed") if exists(name, newest) and kind(name, newest) == "class"]
    assert len(classes) > 100
    assert [name for name in classes if exists(f"{name}.{member.name}", newest)] == []


def test_what_only_instances_have_and_no_data_knows_is_gone_since() -> None:
    # Set up to the release before (1.12.1, 1.13.1 and 2.0.1, in the files that the table names).
    gone: dict[str, set[str]] = {}
    for member in MEMBERS:
        if not member.method:
            gone.setdefault(member.removed, set()).add(member.name)
    assert gone == {
        "2.1": {
            "_handles",
            "_fully_sharded_module_to_handles",
            "_handles_prefetched",
            "_needs_pre_backward_unshard",
            "_needs_pre_forward_unshard",
            "_ran_pre_backward_hook",
            "_streams",
            "_stream_to_name",
            "_communication_hook",
            "_communication_hook_state",
            "_hook_registered",
        },
        "2.0": {
            "_full_param_ctx",
            "_ignored_param_names",
            "_fsdp_params_exec_order",
            "_param_exec_order_policy",
            "_param_exec_order_prep_stage",
        },
        "1.13": {
            "_require_backward_grad_sync",
            "_orig_buffer_dtypes",
            "_pre_backward_hook_has_run",
            "_need_rebuild_full_params",
            "_fsdp_graph_order",
            "_my_fsdp_idx_in_graph",
            "gradient_predivide_factor",
            "gradient_postdivide_factor",
            "numel_padded_per_param",
        },
    }


@pytest.mark.parametrize("path", OF_HANDLES)
def test_the_data_knows_where_one_handle_stands_for_several(path: str) -> None:
    def given(release: str) -> list[str]:
        return [parameter.name for parameter in signature(path, Version(release)) or ()]

    position = given("2.1.2").index("handle")
    assert given("2.0.1")[position] in ("handles", "_handles", "handles_key")
    assert given("2.15")[position] == "handle"


@pytest.mark.parametrize(
    "call",
    [
        "_reshard(m, m._handles, free)",
        "_reshard(m, handles, free)",
        "_reshard(m, [handle], [True])",
        "_reshard(m, handles[:1], free)",
    ],
)
def test_several_handles_for_a_function_that_takes_one_break(call: str) -> None:
    text = f"from torch.distributed.fsdp._runtime_utils import _reshard\n{call}\n"
    (found,) = lint(text, "FSDP611")
    assert (found.severity, found.applicability) == (Severity.BREAKS, Applicability.MANUAL)
    assert found.message == (
        "`torch.distributed.fsdp._runtime_utils._reshard` takes one handle since torch 2.1, "
        "and a list of handles before"
    )
    check_noop(text, "FSDP611", torch=">=2.0,<2.1")


def test_a_name_of_the_old_parameter_is_told_by_the_general_rule() -> None:
    text = "from torch.distributed.fsdp._runtime_utils import _reshard_grads\n_reshard_grads(handles=m._handles)\n"
    assert [found.code for found in lint(text, "FSDP")] == ["FSDP500"]


@pytest.mark.parametrize(
    "call", ["_reshard(m, m._handle, True)", "_reshard(m, handle, free=True)", "_reshard(m)", "_reshard(m, h[0], True)"]
)
def test_one_handle_is_right(call: str) -> None:
    check_noop(f"from torch.distributed.fsdp._runtime_utils import _reshard\n{call}\n", "FSDP611")
    asked = "if hasattr(m, '_handles'):\n    _reshard(m, m._handles, free)\nelse:\n    _reshard(m, m._handle, True)\n"
    check_noop(f"from torch.distributed.fsdp._runtime_utils import _reshard\n{asked}", "FSDP611")
    check_noop("def _reshard(m, handles): ...\n_reshard(m, m.handles)\n", "FSDP611")


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_a_member_of_a_model_built_here_breaks(member: Member) -> None:
    (finding,) = lint(f"{BUILT}x = model.{member.name}\n", "FSDP611")
    assert finding.severity is Severity.BREAKS
    assert finding.message == f"`{member.name}` of FSDP was removed in torch {member.removed}"
    check_noop(f"{BUILT}x = model.{member.name}\n", "FSDP611", torch=f"<{member.removed}")


@pytest.mark.parametrize(
    "text",
    [
        "class Trainer:\n    def __init__(self, net):\n        self.net = FSDP(net)\n        self.net._lazy_init()\n",
        "class Sharded(FSDP):\n    def forward(self, x):\n        self._lazy_init()\n",
        "def f(model: FSDP):\n    model._lazy_init()\n",
        "FSDP(net)._lazy_init()\n",
        "init = FSDP._lazy_init\n",
    ],
)
def test_every_way_to_a_model_counts(text: str) -> None:
    check_manual(FSDP + text, "FSDP611", "_runtime_utils")


def test_names_of_fsdp_alone_are_found_on_anything_in_a_file_with_fsdp() -> None:
    check_manual(
        f"{FSDP}for m in FSDP.fsdp_modules(x):\n    m._rebuild_full_params()\n", "FSDP611", "summon_full_params"
    )
    check_noop("m._rebuild_full_params()\n", "FSDP611")
    check_noop("from fairscale.nn import FullyShardedDataParallel as FSDP\nFSDP(m)._rebuild_full_params()\n", "FSDP611")


def test_names_that_others_have_too_need_a_known_model() -> None:
    check_noop(f"{FSDP}import torch\ntorch.cuda._lazy_init()\nx._handles\ny._reshard()\n", "FSDP611")


@pytest.mark.parametrize(
    "text",
    [
        "if hasattr(model, '_handles'):\n    model._handles\n",
        "handles = getattr(model, '_handles', None)\n",
        "model._handles = []\nmodel._handles.append(1)\n",
        "try:\n    model._handles\nexcept AttributeError:\n    model._handle\n",
        "import torch\nif torch.__version__ < '2.1':\n    model._handles\n",
        "class Net:\n    def _handles(self):\n        pass\nmodel._handles()\n",
    ],
)
def test_a_file_that_asks_or_has_the_name_itself_is_left_alone(text: str) -> None:
    check_noop(BUILT + text, "FSDP611")


def test_the_parameters_with_gradients_become_the_list_that_they_were() -> None:
    check_transformed(
        BUILT + "for p in model.params_with_grad:  # clip\n    p.grad.clamp_(-1, 1)\n",
        BUILT + "for p in [p for p in model.parameters() if p.grad is not None]:  # clip\n    p.grad.clamp_(-1, 1)\n",
        "FSDP611",
    )
    check_manual(FSDP + "def f(model):\n    return model.params_with_grad\n", "FSDP611", "write `[p for p in")
    check_manual(BUILT + "print(f'{model.params_with_grad}')\n", "FSDP611", "write `[p for p in")


def test_a_member_is_told_once() -> None:
    assert [finding.code for finding in lint(BUILT + "model._lazy_init()\n", "FSDP6")] == ["FSDP611"]


def test_a_member_that_is_too_new_is_told_by_the_general_rule() -> None:
    text = BUILT + "model.register_comm_hook(state, hook)\n"
    assert [f.message for f in lint(text, "FSDP600", ">=1.12")] == [
        "`torch.distributed.fsdp.FullyShardedDataParallel.register_comm_hook` is new in torch 1.13"
    ]
    check_noop(text, "FSDP600", torch=">=1.13")
    check_noop(BUILT + "model.own_method()\nmodel.layers\nmodel.parameters()\n", "FSDP600", torch=">=1.11")


def test_a_setter_of_fsdp2_that_is_too_new_is_told_by_the_general_rule() -> None:
    text = "from torch.distributed.fsdp import fully_shard\nmodel = fully_shard(net)\n"
    setter = "model.set_custom_all_gather(comm)\n"
    (found,) = lint(text + setter, "FSDP600", ">=2.6")
    assert found.message.endswith(".set_custom_all_gather` is new in torch 2.9")
    check_noop(text + setter, "FSDP600", torch=">=2.9")
    check_noop(text + f"if hasattr(model, 'set_custom_all_gather'):\n    {setter}", "FSDP600", torch=">=2.6")
    check_noop(text + "model.set_requires_gradient_sync(True)\nmodel.set_epoch(1)\n", "FSDP600", torch=">=2.6")

"""The optimizer of a converted state dict that is assigned or unpacked before it is loaded."""

from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability
from tests.rules.checks import check_manual, check_transformed, lint

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\n"
OLD = "FSDP.flatten_sharded_optim_state_dict({0}, {1})"
NEW = "FSDP.optim_state_dict_to_load(model={1}, optim={2}, optim_state_dict={0})"


def loading(body: str) -> str:
    return f"{IMPORT}\ndef load(model, other, optim, second, key, read):\n    state = read()\n{body}"


def converted(target: str, state: str, model: str = "model", optim: str = "optim", rest: str = "") -> str:
    return (
        f"    with FSDP.state_dict_type({model}, StateDictType.SHARDED_STATE_DICT):\n"
        f"        {target} = {NEW.format(state, model, optim)}{rest}\n"
    )


def test_the_part_of_an_unpacking_is_followed() -> None:
    tail = "    optim.load_state_dict(flat)\n    return epoch\n"
    before = f"    flat, epoch = {OLD.format('state', 'model')}, key\n{tail}"
    check_transformed(loading(before), loading(converted("flat, epoch", "state", rest=", key") + tail), "FSDP105")


def test_each_target_of_an_assignment_is_followed() -> None:
    tail = "    optim.load_state_dict(flat)\n"
    before = f"    key.kept = flat = {OLD.format('state', 'model')}\n{tail}"
    check_transformed(loading(before), loading(converted("key.kept = flat", "state") + tail), "FSDP105")


def test_an_annotated_name_is_followed() -> None:
    tail = "    optim.load_state_dict(flat)\n"
    before = f"    flat: dict = {OLD.format('state', 'model')}\n{tail}"
    check_transformed(loading(before), loading(converted("flat: dict", "state") + tail), "FSDP105")


@pytest.mark.parametrize(
    "body",
    [
        f"    epoch, flat = {OLD.format('state', 'model')}, key\n    optim.load_state_dict(flat)\n",
        f"    flat, *rest = {OLD.format('state', 'model')}, key\n    optim.load_state_dict(flat)\n",
        f"    state[key] = {OLD.format('state', 'model')}\n    optim.load_state_dict(state[key])\n",
        f"    key.state['a'] = {OLD.format('state', 'model')}\n    optim.load_state_dict(key.state['a'])\n",
        f"    state['a'] = {OLD.format('state', 'model')}\n    optim.load_state_dict(state['a'])\n",
    ],
)
def test_what_is_loaded_may_be_something_else(body: str) -> None:
    check_manual(loading(body), "FSDP105", "not loaded into it here")


@pytest.mark.parametrize(
    ("loop", "target", "loader", "safe"),
    [
        ("for m in models:", "flat", "optim", False),
        ("while models:\n        m = models.pop()", "flat", "optim", False),
        ("for m, o in models:", "flat", "o", True),
        ("for k in models:", "flat", "optim", True),
    ],
)
def test_a_model_of_each_turn_has_an_optimizer_of_each_turn(loop: str, target: str, loader: str, safe: bool) -> None:
    text = (
        f"{IMPORT}\ndef load(models, m, o, optim, osd):\n    d = {{}}\n    {loop}\n"
        f"        {target} = FSDP.shard_full_optim_state_dict(osd, m)\n        {loader}.load_state_dict({target})\n"
    )
    if safe:
        (found,) = lint(text, "FSDP103")
        assert found.applicability is Applicability.SAFE
    else:
        check_manual(
            text, "FSDP103", "`m` is another model in each iteration of the loop, but `optim` is the same optimizer"
        )


@pytest.mark.parametrize(
    ("head", "built", "other"),
    [
        ("gen, disc, osd", "Adam(disc.parameters())", "disc"),
        ("gen, disc, osd", "Adam(disc.net.parameters(), lr=1.0)", "disc.net"),
        ("gen, disc, osd", "Adam(gen.net.parameters())", None),
        ("self, gen, osd", "Adam(gen.parameters())", None),
        ("gen, disc, osd", "Adam(params)", None),
    ],
)
def test_an_optimizer_that_is_built_for_another_model_is_not_that_of_this_one(
    head: str, built: str, other: str | None
) -> None:
    text = (
        f"{IMPORT}\ndef load({head}):\n    optim = {built}\n"
        "    flat = FSDP.shard_full_optim_state_dict(osd, gen)\n    optim.load_state_dict(flat)\n"
    )
    (found,) = lint(text, "FSDP103")
    assert (found.reason or "").startswith(f"`optim` was built for `{other}`, not for `gen`" if other else "")
    assert (found.fix is None) == (other is not None)
    wrapped = text.replace("    optim", "    gen = FSDP(disc)\n    optim", 1)
    assert lint(wrapped, "FSDP103")[0].fix is not None

from __future__ import annotations

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

OFFLOAD = "FSDP831"
APPLY = "FSDP832"
OLD_MODULE = "FSDP833"
REENTRANT = "FSDP834"
MODULE = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
IMPORT = f"from {MODULE} import CheckpointImpl, checkpoint_wrapper\n"


def test_a_false_switch_goes_from_every_place_it_can_stand_at() -> None:
    check_transformed(
        f"""\
        {IMPORT.strip()}
        from functools import partial
        wrapper = partial(checkpoint_wrapper, offload_to_cpu=False, checkpoint_impl=CheckpointImpl.REENTRANT)
        layer = checkpoint_wrapper(layer, CheckpointImpl.REENTRANT, False)
        """,
        f"""\
        {IMPORT.strip()}
        from functools import partial
        wrapper = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
        layer = checkpoint_wrapper(layer, CheckpointImpl.REENTRANT)
        """,
        OFFLOAD,
    )


def test_any_other_switch_is_manual() -> None:
    check_manual(f"{IMPORT}checkpoint_wrapper(x, offload_to_cpu=True)\n", OFFLOAD, "offload_wrapper")
    check_manual(f"{IMPORT}checkpoint_wrapper(x, offload_to_cpu=cfg.offload)\n", OFFLOAD, "offload_wrapper")
    check_manual(f"{IMPORT}checkpoint_wrapper(x, CheckpointImpl.REENTRANT, True)\n", OFFLOAD, "offload_wrapper")
    check_manual(f"{IMPORT}checkpoint_wrapper(x, offload_to_cpu=False, checkpoint_fn=f)\n", OFFLOAD, "`checkpoint_fn`")


def test_a_comment_at_the_switch_stays_in_the_call() -> None:
    text = f"{IMPORT}checkpoint_wrapper(\n    x,\n    {{}}# slow\n)\n"
    check_transformed(text.format("offload_to_cpu=False,  "), text.format(""), OFFLOAD)


def test_other_third_positions_and_older_releases_are_left_alone() -> None:
    check_noop(f"{IMPORT}checkpoint_wrapper(x, CheckpointImpl.REENTRANT, my_checkpoint)\n", OFFLOAD)
    check_noop(f"{IMPORT}checkpoint_wrapper(x, offload_to_cpu=True)\n", OFFLOAD, "<2.0")
    check_noop("def checkpoint_wrapper(m, offload_to_cpu): ...\ncheckpoint_wrapper(x, offload_to_cpu=True)\n", OFFLOAD)


def test_the_name_of_the_nightlies_is_replaced() -> None:
    check_transformed(
        f"""\
        from {MODULE} import (
            apply_activation_checkpointing_wrapper,
            checkpoint_wrapper,
        )

        apply_activation_checkpointing_wrapper(
            model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=check
        )
        """,
        f"""\
        from {MODULE} import (
            apply_activation_checkpointing,
            checkpoint_wrapper,
        )

        apply_activation_checkpointing(
            model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=check
        )
        """,
        APPLY,
    )
    (found,) = lint(f"import {MODULE} as cw\ncw.apply_activation_checkpointing_wrapper(m)\n", APPLY)
    assert found.severity is Severity.BREAKS


def test_a_fallback_for_the_old_name_is_left_alone() -> None:
    check_noop(
        f"""\
        try:
            from {MODULE} import apply_activation_checkpointing
        except ImportError:
            from {MODULE} import apply_activation_checkpointing_wrapper as apply_activation_checkpointing
        apply_activation_checkpointing(model)
        """,
        APPLY,
    )


def test_the_module_of_torch_1_11_is_replaced() -> None:
    old = "torch.distributed.algorithms._checkpoint._checkpoint_wrapper"
    check_transformed(
        f"from {old} import (\n    checkpoint_wrapper,\n)\n",
        f"from {MODULE} import (\n    checkpoint_wrapper,\n)\n",
        OLD_MODULE,
    )
    check_noop(
        f"try:\n    from {MODULE} import checkpoint_wrapper\n"
        f"except ImportError:\n    from {old} import checkpoint_wrapper\n",
        OLD_MODULE,
    )


def test_what_the_renamed_module_lacks_too_is_gone() -> None:
    old = "torch.distributed.algorithms._checkpoint._checkpoint_wrapper"
    text = f"from {old} import checkpoint\n"
    check_noop(text, OLD_MODULE)
    check_manual(text, "FSDP6", "remove the use")


def test_the_default_of_checkpoint_is_written_out() -> None:
    check_transformed(
        """\
        import torch.utils.checkpoint as cp
        from torch.utils import checkpoint

        x = cp.checkpoint(
            layer,
            *inputs,
            preserve_rng_state=False,
        )
        y = checkpoint.checkpoint(layer, x)
        """,
        """\
        import torch.utils.checkpoint as cp
        from torch.utils import checkpoint

        x = cp.checkpoint(
            layer,
            *inputs,
            preserve_rng_state=False,
            use_reentrant=True,
        )
        y = checkpoint.checkpoint(layer, x, use_reentrant=True)
        """,
        REENTRANT,
    )


def test_a_checkpoint_of_another_kind_is_left_alone() -> None:
    check_noop("from fairscale.nn.utils.checkpoint import checkpoint\ncheckpoint(f, x)\n", REENTRANT)
    check_noop("import torch.utils.checkpoint\nself.checkpoint(f, x)\n", REENTRANT)


def test_sequences_are_checkpointed_as_before() -> None:
    imported = "import torch.distributed\nfrom torch.utils.checkpoint import checkpoint_sequential as sequence\n"
    check_transformed(
        f"{imported}sequence(layers, 2, input=x, preserve_rng_state=False)\n",
        f"{imported}sequence(layers, 2, input=x, preserve_rng_state=False, use_reentrant=True)\n",
        REENTRANT,
    )
    check_noop(f"{imported}sequence(layers, 2, x, True)\nsequence(*given)\n", REENTRANT)
    check_manual(f"{imported}sequence(layers, 2, x)\n", REENTRANT, "needs torch>=2.0", torch=">=1.13")

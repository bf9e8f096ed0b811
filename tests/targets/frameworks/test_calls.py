from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability, Finding
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

SETTINGS = Settings(TorchRange.parse(">=2.6"), select=("FSDP85",), target="fsdp2", unsafe_fixes=True)
HF = "from transformers import TrainingArguments\n"


def found(text: str, path: str = "a.py", target: str | None = "fsdp2") -> tuple[Finding, ...]:
    return lint_bytes(text.encode(), path, SETTINGS._replace(target=target)).findings


def rewritten(text: str) -> str:
    result = rewrite_bytes(text.encode(), "a.py", SETTINGS)
    assert result.error is None
    assert rewrite_bytes(result.raw, "a.py", SETTINGS).raw == result.raw
    return result.raw.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "TrainingArguments('o', fsdp='full_shard auto_wrap')",
            "TrainingArguments('o', fsdp='full_shard auto_wrap', "
            'fsdp_config={"version": 2, "reshard_after_forward": True})',
        ),
        (
            "TrainingArguments('o', fsdp='shard_grad_op', fsdp_config={'min_num_params': 3, 'use_orig_params': True})",
            "TrainingArguments('o', fsdp='shard_grad_op', "
            'fsdp_config={"version": 2, "reshard_after_forward": False, \'min_num_params\': 3})',
        ),
        (
            "TrainingArguments('o', fsdp='full_shard', "
            "fsdp_config={'fsdp_forward_prefetch': True, 'mine': 1, 'version': 1})",
            "TrainingArguments('o', fsdp='full_shard', "
            'fsdp_config={"version": 2, "reshard_after_forward": True, \'mine\': 1})',
        ),
        (
            "TrainingArguments('o', fsdp='full_shard', fsdp_config={'use_orig_params': True,})",
            "TrainingArguments('o', fsdp='full_shard', fsdp_config={\"version\": 2, \"reshard_after_forward\": True,})",
        ),
    ],
)
def test_training_arguments_move_to_fsdp2(before: str, after: str) -> None:
    assert rewritten(f"{HF}args = {before}\n") == f"{HF}args = {after}\n"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("TrainingArguments('o', fsdp='hybrid_shard')", "dp_replicate_size"),
        ("TrainingArguments('o', fsdp='full_shard', fsdp_config=config)", "where `fsdp_config` is made"),
        ("TrainingArguments('o', fsdp='full_shard', fsdp_config={**config})", "where `fsdp_config` is made"),
    ],
)
def test_training_arguments_that_are_not_visible_stay(call: str, reason: str) -> None:
    text = f"{HF}args = {call}\n"
    (finding,) = found(text)
    assert finding.applicability is Applicability.MANUAL
    assert reason in (finding.reason or "")
    assert rewritten(text) == text


def test_a_comment_in_a_dict_stays() -> None:
    config = "{\n    'use_orig_params': True,  # why\n    'a': 1,\n}"
    text = f"{HF}args = TrainingArguments('o', fsdp='full_shard', fsdp_config={config})\n"
    assert "# why" in rewritten(text)


def test_what_uses_fsdp2_or_no_fsdp_is_left_alone() -> None:
    assert found(f"{HF}a = TrainingArguments('o', fsdp='full_shard', fsdp_config={{'version': 2}})\n") == ()
    assert found(f"{HF}a = TrainingArguments('o')\nb = TrainingArguments('o', fsdp='')\n") == ()
    assert found("from mine import TrainingArguments\na = TrainingArguments('o', fsdp='no_shard')\n", target=None) == ()


LIGHTNING = """\
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch.distributed.fsdp import fully_shard


class Model(LightningModule):
    def configure_model(self):
        fully_shard(self.net)


trainer = Trainer(devices=4, num_nodes=2, strategy=FSDPStrategy())
"""


def test_a_module_that_shards_itself_gets_the_new_strategy() -> None:
    after = LIGHTNING.replace("import FSDPStrategy", "import ModelParallelStrategy").replace(
        "FSDPStrategy()",
        "ModelParallelStrategy(data_parallel_size=8, tensor_parallel_size=1, save_distributed_checkpoint=False)",
    )
    assert rewritten(LIGHTNING) == after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("devices=4", "devices='auto'"),
        ("fully_shard(self.net)", "pass"),
        ("FSDPStrategy()", "FSDPStrategy(auto_wrap_policy={Block})"),
        ("FSDPStrategy()", "FSDPStrategy(sharding_strategy='NO_SHARD')"),
        ("FSDPStrategy()", "'fsdp'"),
    ],
)
def test_a_strategy_with_more_to_it_is_manual(old: str, new: str) -> None:
    text = LIGHTNING.replace(old, new)
    assert {finding.applicability for finding in found(text)} == {Applicability.MANUAL}
    assert rewritten(text) == text
    assert found(text, target=None) == ()


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ('python run.py --fsdp "hybrid_shard auto_wrap"', "FSDP852"),
        ("python run.py --fsdp --fsdp_min_num_params=3", "FSDP852"),
    ],
)
def test_flags_that_transformers_stops_at_are_found_in_scripts(flags: str, code: str) -> None:
    assert [finding.code for finding in found(f"{flags}\n", "run.sh", None)] == [code]


@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch --use_fsdp --fsdp_transformer_layer_cls_to_wrap Block train.py",
        "python other.py --fsdp_min_num_params 3",
        "python other.py --fsdp true",
    ],
)
def test_flags_of_other_programs_are_left_alone(command: str) -> None:
    assert found(f"{command}\n", "run.sh") == ()


def test_flags_of_fsdp1_are_found_with_the_target() -> None:
    script = "accelerate launch --use_fsdp --fsdp_sharding_strategy 1 \\\n  train.py\npython run.py --fsdp full_shard\n"
    assert [(finding.code, finding.line) for finding in found(script, "run.sh")] == [("FSDP851", 1), ("FSDP852", 3)]
    assert found(script, "run.sh", None) == ()

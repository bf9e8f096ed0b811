from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability, Severity
from tests.rules.checks import lint

FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


def found(text: str, select: str = "FSDP10") -> list[tuple[str, Severity]]:
    findings = lint(text, select)
    assert all(finding.applicability is Applicability.MANUAL for finding in findings)
    return [(finding.code, finding.severity) for finding in findings]


@pytest.mark.parametrize(
    "text",
    [
        "# as full_optim_state_dict did\nx = FSDP\n",
        "x = FSDP  # FSDP.full_optim_state_dict\n",
        'def save(m):\n    """Like `full_optim_state_dict`."""\n',
        'SAVERS = {"full": "full_optim_state_dict"}\n',
        'log.info("calling full_optim_state_dict now")\n',
    ],
)
def test_a_comment_or_text_that_names_a_legacy_method_is_a_hint(text: str) -> None:
    assert found(FSDP + text) == [("FSDP101", Severity.HINT)]


@pytest.mark.parametrize(
    "text",
    [
        "# shard_full_optim_state_dict_of_ours\nx = FSDP\n",
        "# optim_state_dict\nx = FSDP\n",
        "full_optim_state_dict = 1\n",
    ],
)
def test_other_words_are_no_hint(text: str) -> None:
    assert found(FSDP + text) == []


def test_nothing_is_said_of_texts_in_files_that_have_nothing_of_fsdp() -> None:
    assert found("# full_optim_state_dict\nx = 'full_optim_state_dict'\n") == []


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ('f = getattr(FSDP, f"{kind}_optim_state_dict")\n', "full_optim_state_dict"),
        ('f = getattr(FSDP, prefix + "_full_optim_state_dict")\n', "shard_full_optim_state_dict"),
    ],
)
def test_a_name_that_is_put_together_is_a_hint_of_one_rule(text: str, method: str) -> None:
    (finding,) = lint(FSDP + text, "FSDP10")
    assert (finding.code, finding.severity) == ("FSDP101", Severity.HINT)
    assert f"may be `{method}`" in finding.message


def test_a_name_put_together_that_cannot_be_a_legacy_method_is_none() -> None:
    assert found(FSDP + 'f = getattr(FSDP, f"{kind}_full_params")\n') == []


def test_a_method_looked_up_on_something_unknown_is_reported() -> None:
    text = f'{FSDP}def save(model):\n    return getattr(model, "full_optim_state_dict")\n'
    assert found(text) == [("FSDP101", Severity.DEPRECATED)]


def test_a_lookup_that_expects_the_method_to_be_missing_is_a_hint() -> None:
    text = f'{FSDP}f = getattr(model, "full_optim_state_dict", None)\n'
    assert found(text) == [("FSDP101", Severity.HINT)]


@pytest.mark.parametrize("module", ["fairlib.dist", "..dist", "mylib"])
def test_what_a_star_import_may_bring_is_reported_with_the_doubt(module: str) -> None:
    text = f"from {module} import *\n\ndef save(model, optim):\n    return FSDP.full_optim_state_dict(model, optim)\n"
    assert found(text) == [("FSDP101", Severity.DEPRECATED)]
    (finding,) = lint(text, "FSDP101")
    assert "whether `FSDP` is an FSDP module or class" in (finding.reason or "")

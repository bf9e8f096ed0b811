from __future__ import annotations

from textwrap import dedent

import pytest

from fsdp_migrate.findings import Applicability, Finding
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.noqa import with_noqa
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

ACCELERATE = "distributed_type: FSDP\nfsdp_config:\n"


def settings(target: str | None = "fsdp2", *, hints: bool = False) -> Settings:
    return Settings(TorchRange.parse(">=2.6"), target=target, unsafe_fixes=True, hints=hints)


def found(text: str, target: str | None = "fsdp2") -> tuple[Finding, ...]:
    return lint_bytes(text.encode(), "config.yaml", settings(target)).findings


def rewritten(raw: bytes) -> bytes:
    result = rewrite_bytes(raw, "config.yaml", settings())
    assert result.error is None
    assert rewrite_bytes(result.raw, "config.yaml", settings()).raw == result.raw
    return result.raw


BEFORE = """\
# why
compute_environment: LOCAL_MACHINE   # here
distributed_type: FSDP
other: &anchor {a: 1, b: [x, 'y']}
same: *anchor
fsdp_config:
  # wrapping
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP  # layers
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_sharding_strategy: 'SHARD_GRAD_OP'   # less
  my_key: 1
  fsdp_use_orig_params: true  # for compile
  fsdp_version: 1
machine_rank: 0
"""
AFTER = """\
# why
compute_environment: LOCAL_MACHINE   # here
distributed_type: FSDP
other: &anchor {a: 1, b: [x, 'y']}
same: *anchor
fsdp_config:
  # wrapping
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP  # layers
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_reshard_after_forward: false   # less
  my_key: 1
  # for compile
  fsdp_version: 2
machine_rank: 0
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_accelerate_yaml_moves_to_fsdp2_with_comments_anchors_order_and_bytes(newline: str, mark: str) -> None:
    before, after = ((mark + text.replace("\n", newline)).encode() for text in (BEFORE, AFTER))
    assert rewritten(before) == after


def test_unknown_keys_are_named() -> None:
    (finding,) = found(BEFORE)
    assert finding.applicability is Applicability.UNSAFE
    assert "unknown keys stay: my_key" in finding.message


def test_nothing_is_found_without_a_target_where_accelerate_takes_it() -> None:
    assert found(BEFORE, None) == ()


def test_fsdp2_is_left_alone() -> None:
    assert found(ACCELERATE + "  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n") == ()


def test_other_documents_are_left_alone() -> None:
    text = f"a: 1\n---\n{ACCELERATE}  fsdp_sharding_strategy: 1\n---\nfsdp_config: 3\n"
    assert b"---\nfsdp_config: 3\n" in rewritten(text.encode())


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ("  fsdp_sharding_strategy: HYBRID_SHARD\n", "dp_replicate_size"),
        ("  fsdp_sharding_strategy: 3\n", "DDP"),
        ("  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_reshard_after_forward: SHARD_GRAD_OP\n", "disagree"),
        ("  fsdp_sharding_strategy: MINE\n", "no known strategy"),
        ("  fsdp_state_dict_type: LOCAL_STATE_DICT\n", "SHARDED_STATE_DICT"),
        ("  fsdp_version: &v 1\n", "anchors or in braces"),
        ("  <<: {a: 1}\n  fsdp_offload_params: true\n", "anchors or in braces"),
        ("  {fsdp_offload_params: true}\n", "anchors or in braces"),
        ("  fsdp_version: 1\n  version: 1\n", "given twice"),
        ("  fsdp_use_orig_params:\n    - 1\n  a: 1\n", "several lines"),
    ],
)
def test_what_cannot_be_switched_stays_and_says_why(own: str, reason: str) -> None:
    text = ACCELERATE + own
    (finding,) = found(text)
    assert finding.applicability is Applicability.MANUAL
    assert reason in (finding.reason or "")
    assert rewritten(text.encode()) == text.encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ACCELERATE + "  fsdp_version: 2\n  fsdp_reshard_after_forward: FULL_SHARD\n", "true or false"),
        (ACCELERATE + "  fsdp_version: 2\n  fsdp_state_dict_type: LOCAL_STATE_DICT\n", "since accelerate 1.7"),
        ("fsdp_version: 2\n" + ACCELERATE + "  fsdp_version: 2\n", "unknown key"),
        (ACCELERATE + "  fsdp_version: 1\nparallelism_config:\n  a: 2\n", "without FSDP2"),
    ],
)
def test_what_accelerate_stops_at_is_found_without_a_target(text: str, message: str) -> None:
    (finding,) = found(text, None)
    assert finding.code == "FSDP851"
    assert message in finding.message


def test_composer_and_llm_foundry_name_what_fsdp2_ignores() -> None:
    text = (
        "parameters:\n  max_seq_len: 1\n  fsdp_config:\n    sharding_strategy: FULL_SHARD\n    use_orig_params: true\n"
    )
    (finding,) = found(text)
    assert (finding.code, finding.line) == ("FSDP854", 3)
    assert "(use_orig_params)" in (finding.reason or "")
    assert found(text, None) == ()


def test_axolotl_names_its_keys() -> None:
    text = "base_model: x\nfsdp: [full_shard]\nfsdp_config:\n  fsdp_use_orig_params: true\n  other: 1\n"
    (finding,) = found(text)
    assert finding.code == "FSDP855"
    assert all(word in (finding.reason or "") for word in ("`fsdp_use_orig_params`", "other", "leave out `fsdp`"))
    (pinned,) = found("base_model: x\nfsdp_config:\n  cpu_offload_pin_memory: false\n", None)
    assert "stops" in pinned.message
    assert found("base_model: x\nfsdp_version: 2\nfsdp_config:\n  offload_params: true\n") == ()


def test_torchtune_has_a_key_that_nothing_reads() -> None:
    (finding,) = found("memory_efficient_fsdp_wrap: true\n")
    assert finding.code == "FSDP856"


def test_yaml_of_nobody_we_know_is_left_alone() -> None:
    assert found("fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n") == ()
    assert found("- fsdp_config\n") == ()
    assert found("") == ()


def test_a_comment_silences_and_is_written() -> None:
    text = ACCELERATE + "  fsdp_sharding_strategy: 1\n"
    silent = with_noqa(text.encode(), found(text))
    assert silent == text.replace("fsdp_config:\n", "fsdp_config:  # noqa: FSDP851\n").encode()
    report = lint_bytes(silent, "config.yaml", settings())
    assert (report.findings, report.suppressed) == ((), 1)


def test_a_comment_that_silences_nothing_is_found_and_goes() -> None:
    text = "fsdp_config:  # noqa: FSDP851\n  a: '# noqa: FSDP851'\n"
    assert rewritten(text.encode()) == b"fsdp_config:\n  a: '# noqa: FSDP851'\n"


BAD = {
    "tabs": "fsdp_config:\n\tfsdp_version: 1\n",
    "a template": "{% if x %}\nfsdp_config: {{ y }}\n",
    "a broken anchor": "fsdp_config: *nowhere\n",
    "brackets": "fsdp_config: " + "[" * 5000,
    "a null byte": "fsdp_config: \0\n",
    "5 MB": "fsdp_config: 1\n" + "a: 1\n" * 1_000_000,
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_yaml_that_cannot_be_read_is_a_hint_and_no_failure(text: str) -> None:
    report = lint_bytes(text.encode(), "config.yaml", settings())
    assert [finding.code for finding in report.findings] == ["FSDP859"]
    assert not report.failed
    assert rewrite_bytes(text.encode(), "config.yaml", settings()).raw == text.encode()
    assert with_noqa(text.encode(), report.findings) == text.encode()


def test_bytes_that_are_no_utf_8_are_a_hint() -> None:
    assert [f.code for f in lint_bytes(b"fsdp_config: \xff\n", "a.yml", settings()).findings] == ["FSDP859"]


def test_tags_make_nothing_and_aliases_are_not_expanded() -> None:
    unsafe = ACCELERATE + "  fsdp_version: !!python/object/apply:os.abort []\n"
    assert len(found(unsafe)) == 1
    laughs = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
    assert len(found(laughs + ACCELERATE + "  fsdp_sharding_strategy: 1\n")) == 1


def test_without_the_reader_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ruamel.yaml", None)
    (finding,) = found(dedent(BEFORE))
    assert finding.code == "FSDP859"
    assert "fsdp-migrate[yaml]" in (finding.reason or "")

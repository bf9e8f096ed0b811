from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fsdp_migrate.fingerprints import numbered
from fsdp_migrate.lint import lint_source
from fsdp_migrate.source import Source

ROOT = Path(__file__).parent.parent
HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
CALL = "state = FSDP.full_optim_state_dict(model, optim)\n"


def keys(text: str) -> list[tuple[str, int]]:
    source = HEAD + textwrap.dedent(text)
    findings = lint_source(source, hints=True)
    assert findings
    return [(key, occurrence) for _, key, occurrence in numbered(findings, Source(source.encode()))]


@pytest.mark.parametrize(
    "same",
    [
        "\n\n# moved down\nx = 1\n" + CALL,
        "state=FSDP . full_optim_state_dict( model,optim )  # a remark\n",
        "state = FSDP.full_optim_state_dict(\n    model,\n    optim,\n)\n",
        "state = (\n    FSDP.full_optim_state_dict(model, (optim))\n)\n",
        "def save(model, optim):\n    if model:\n        " + CALL,
        "state = FSDP.\\\n    full_optim_state_dict(model, optim)\r\n",
    ],
)
def test_moving_and_formatting_code_keeps_its_key(same: str) -> None:
    assert keys(same) == keys(CALL)


@pytest.mark.parametrize(
    "other",
    [
        CALL.replace("state =", "saved ="),
        CALL.replace("optim)", "optim, rank0_only=False)"),
        "return_value = [FSDP.full_optim_state_dict(model, optim)]\n",
    ],
)
def test_other_code_has_another_key(other: str) -> None:
    assert keys(other) != keys(CALL)


def test_names_that_come_and_go_beside_it_are_no_matter_to_an_import() -> None:
    (key, _), *_ = keys("from torch.distributed.fsdp.wrap import default_auto_wrap_policy\n")
    (same, _), *_ = keys(
        "from torch.distributed.fsdp.wrap import (\n    default_auto_wrap_policy, enable_wrap as e,\n)\n"
    )
    assert key == same
    (other, _), *_ = keys("from torch.distributed.fsdp.wrap import default_auto_wrap_policy as by_size\n")
    assert key != other


def test_the_names_of_an_import_may_be_sorted() -> None:
    one = "from torch.distributed._shard.checkpoint import load_state_dict, FileSystemReader as R, FileSystemReader\n"
    two = "from torch.distributed._shard.checkpoint import FileSystemReader, FileSystemReader as R, load_state_dict\n"
    assert keys(one) == keys(two) != keys(two.replace(" as R", ""))


def test_quotes_and_implicit_concatenation_are_spelling() -> None:
    one = keys("""d = {'a': FSDP.full_optim_state_dict(model, optim), "b": f'{x!r:>3}' 'yz'}\n""")
    assert one == keys("""d = {"a": FSDP.full_optim_state_dict(model, optim), 'b': f"{x!r:>3}yz"}\n""")
    assert one != keys("""d = {"a": FSDP.full_optim_state_dict(model, optim), 'b': f"{x!s:>3}yz"}\n""")


def test_equal_statements_are_told_apart_by_their_number() -> None:
    (one, first), (two, second) = keys(CALL + "x = 1\n" + CALL)
    assert one == two
    assert (first, second) == (1, 2)


def test_findings_of_one_statement_have_keys_of_their_own() -> None:
    one, two = keys("pair = FSDP.full_optim_state_dict(a, b), FSDP.sharded_optim_state_dict(a, b)\n")
    assert one[0] != two[0]


def test_a_decorator_belongs_to_its_function_but_the_body_does_not() -> None:
    text = "@wrap(FSDP.full_optim_state_dict(a, b))\ndef f():\n    return {}\n"
    assert keys(text.format(1)) == keys(text.format(2))
    assert keys(text) != keys(text.replace("def f", "def g"))


def test_the_key_is_the_same_on_every_python() -> None:
    # What is pinned here is what baselines hold: it has to stay for ever, under every release of Python.
    rich = "@a(key=1.5, *b)\nasync def f(x: int = 3, *, y=FSDP.full_optim_state_dict(m, o)[1:], z=f'{x!r:>{y}}'): ...\n"
    assert keys(CALL) == [("32e98557c1d55765", 1)]
    assert keys(rich) == [("38e38ba42e8af626", 1)]
    inside = "raise ValueError(f'full_optim_state_dict of {FSDP.full_optim_state_dict(model, optim)}')\n"
    assert keys(inside) == [("8277a8ee2cc83b07", 1), ("8277a8ee2cc83b07", 2)]


def test_a_statement_of_great_depth_is_no_trouble() -> None:
    deep = "state = [" + " + ".join(["a"] * 700) + ", FSDP.full_optim_state_dict(model, optim)]\n"
    try:
        found = keys(deep)
    except AssertionError:
        pytest.skip("too deep for the linter itself")
    assert len(found) == 1


def test_without_a_text_that_parses_the_message_makes_the_key() -> None:
    (finding,) = lint_source(HEAD + CALL)
    ((_, none, number),) = numbered([finding], None)
    ((_, broken, _),) = numbered([finding], Source(b"x = ("))
    assert (none, number) == (broken, 1)
    assert len(none) == 16


def test_a_formatter_changes_no_key_of_any_fixture(tmp_path: Path) -> None:
    """The formatter joins and splits lines, changes quotes, and adds and removes parentheses and trailing commas."""
    originals = sorted((ROOT / "fixtures").rglob("before.py"))
    for number, path in enumerate(originals):
        (tmp_path / f"{number}.py").write_bytes(path.read_bytes())
    before = [file_keys(tmp_path / f"{number}.py") for number in range(len(originals))]
    options = ["--isolated", "--line-length", "40", "--config", "format.quote-style='single'"]
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", *options, str(tmp_path)], check=True)
    changed = [number for number, path in enumerate(originals) if differs(path, tmp_path / f"{number}.py")]
    assert len(changed) > len(originals) // 2
    for number in range(len(originals)):
        assert file_keys(tmp_path / f"{number}.py") == before[number], originals[number]


def differs(one: Path, two: Path) -> bool:
    return one.read_bytes() != two.read_bytes()


def file_keys(path: Path) -> list[tuple[str, int]]:
    source = path.read_text(encoding="utf-8")
    findings = lint_source(source, hints=True)
    return sorted((key, occurrence) for _, key, occurrence in numbered(findings, Source(source.encode())))

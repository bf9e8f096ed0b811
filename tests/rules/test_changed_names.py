from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

import pytest

from fsdp_migrate.lint import lint_bytes, worth_linting
from fsdp_migrate.rules.changed_names import has_changed, names_asked
from fsdp_migrate.scan.names import CALLED, Names
from fsdp_migrate.targets.modernise.general.unaccepted_arguments import misfit_of
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.torch_api.data import _parameters
from fsdp_migrate.workspace.settings import Settings
from tools.build_changed_names import derived_names, refused

FSDP = "torch.distributed.fsdp"


def test_the_stored_names_are_those_that_the_api_data_gives() -> None:
    stored = tuple(frozenset(marked(names_asked(newest_only))) for newest_only in (True, False))
    assert stored == derived_names(), "run `python -m tools.build_changed_names`"


def marked(names: Names) -> Iterator[str]:
    """All names, those that count only where they are called with a mark."""
    for name in names:
        owner, _, last = name.rpartition(".")
        words = names.marked(owner)[last]
        yield name if words is None else f"{name}{CALLED}{b','.join(words).decode()}"


def test_a_name_counts_as_changed_by_presence_or_by_signature() -> None:
    assert has_changed(f"{FSDP}.fully_shard")
    assert has_changed(f"{FSDP}.FullyShardedDataParallel")
    assert has_changed("torch.distributed.device_mesh")
    assert not has_changed(f"{FSDP}.wrap")
    assert not has_changed("torch.distributed.get_rank")
    assert not has_changed("torch.nn.Linear")


def test_a_member_counts_wherever_its_class_is_imported_from() -> None:
    assert has_changed(f"{FSDP}.FullyShardedDataParallel.optim_state_dict")
    assert has_changed(f"{FSDP}.fully_sharded_data_parallel.FullyShardedDataParallel.optim_state_dict")
    assert not has_changed(f"{FSDP}.FullyShardedDataParallel.no_sync_at_all")


def test_a_name_fails_with_the_newest_release_if_that_lacks_it_warns_or_takes_less() -> None:
    assert has_changed("torch.distributed._shard.checkpoint", newest_only=True)
    assert has_changed("torch.distributed.all_gather_coalesced", newest_only=True)
    assert has_changed("torch.distributed.tensor.parallel.parallelize_module", newest_only=True)
    assert has_changed(f"{FSDP}.fully_shard")
    assert not has_changed(f"{FSDP}.fully_shard", newest_only=True)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a, b", "a, b, c=None", set()),
        ("a, *, b=1", "a, *, b=1, c=2", set()),
        ("a, *, b=1", "a, b=1", set()),
        ("a, b=1, *, c=1", "a, c=1, b=1", {""}),
        ("a", "a, **options", set()),
        ("a, b=1", "a, c=2, b=1", set()),
        ("a, b=1, c=2", "a, c=2, b=1", {""}),
        ("a, b", "*rest, **options", set()),
        ("a, b=1", "a", {"b", ""}),
        ("a, *, b=1", "a", {"b"}),
        ("a, *, b=1, c=2", "a, *, d=1", {"b", "c"}),
        ("a, b", "a, c", {"b"}),
        ("a, b=1", "a, b", {""}),
        ("a", "a, *, b", {""}),
        ("a, b", "a, *, b", {""}),
        ("a, *, b=1", "a, *, b", {""}),
        ("a, *rest", "a, b=1", {""}),
        ("a, **options", "a", {""}),
        ("a, **options", "a, b=1, **options", {""}),
    ],
)
def test_calls_that_new_parameters_refuse_have_one_of_some_words(old: str, new: str, words: set[str]) -> None:
    assert refused(_parameters(new), _parameters(old)) == words


@pytest.mark.parametrize("old", _SIGNATURES := ["a, b=1, c=2", "a, *, b=1, c=2", "b=1, a=2", "c, b, a=1", "*a, b=1"])
@pytest.mark.parametrize("new", _SIGNATURES)
def test_a_call_that_has_none_of_these_words_is_taken(old: str, new: str) -> None:
    before, after = _parameters(old), _parameters(new)
    words = refused(after, before)
    for count, taken in itertools.product(range(4), itertools.chain.from_iterable(map(_subsets, range(4)))):
        call = ast.parse(f"f({', '.join(['0'] * count + [f'{name}=0' for name in taken])})", mode="eval").body
        assert isinstance(call, ast.Call)
        if misfit_of(call, before) is None and not words.intersection(("", *taken)):
            assert misfit_of(call, after) is None


def _subsets(size: int) -> Iterator[tuple[str, ...]]:
    return itertools.combinations("abc", size)


_NEW = b"from torch.distributed.fsdp import fully_shard\n\nshard = fully_shard\n"
_GONE = b"from torch.distributed._shard.checkpoint import save_state_dict\n"


def test_what_only_older_releases_lack_makes_no_file_worth_a_look_where_nobody_states_them() -> None:
    assumed, stated = Settings(TorchRange.default(), ("FSDP600",)), Settings(TorchRange.parse(">=2.1"), ("FSDP600",))
    assert not worth_linting(_NEW, "x.py", assumed)
    assert worth_linting(_NEW, "x.py", assumed._replace(hints=True))
    assert worth_linting(_NEW, "x.py", stated)
    assert worth_linting(_GONE, "x.py", assumed)
    assert [one.code for one in lint_bytes(_NEW, "x.py", stated).findings] == ["FSDP600"]

"""Nothing is lost, whatever is rewritten."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from tests.fuzz import bindings, grammar, names, seeds
from tests.fuzz.clothes import Clothes, clothes
from tests.fuzz.mutations import MUTATIONS, Mutation, mutated, planted
from tests.fuzz.pages import Pages, pages, read
from tests.fuzz.properties import NOTEBOOK, check

RANGES = (">=2.1", ">=2.1", ">=1.11", ">=1.13,<2.2", ">=2.0,<2.5", ">=2.4", ">=2.6")

Steps = list[tuple[Mutation, int, int]]

settings = st.builds(
    Settings, st.sampled_from(RANGES).map(TorchRange.parse), hints=st.booleans(), unsafe_fixes=st.booleans()
)
numbers = st.integers(0, 2**20)
steps = st.lists(st.tuples(st.sampled_from(MUTATIONS), numbers, numbers), max_size=8)


@given(
    grammar.programs(),
    st.lists(st.tuples(st.sampled_from(MUTATIONS), numbers, numbers), max_size=3),
    clothes(),
    settings,
)
def test_programs_of_a_grammar(program: str, steps: Steps, clothes: Clothes, settings: Settings) -> None:
    check(clothes.on(mutated(program, steps)), settings)


@given(names.programs(), settings)
def test_any_name_that_some_torch_has(program: str, settings: Settings) -> None:
    check(program.encode(), settings)


@given(st.sampled_from(seeds.examples()), steps, clothes(), settings)
def test_mutated_examples_of_the_rules(program: str, steps: Steps, clothes: Clothes, settings: Settings) -> None:
    check(clothes.on(mutated(program, steps)), settings)


@given(st.sampled_from(seeds.fixtures()), steps, clothes(), settings)
def test_mutated_fixtures(program: str, steps: Steps, clothes: Clothes, settings: Settings) -> None:
    check(clothes.on(mutated(program, steps)), settings)


@given(st.sampled_from(seeds.library()), st.sampled_from(seeds.examples()), numbers, clothes(), settings)
def test_files_of_the_standard_library_with_fsdp_planted_in(
    path: Path, program: str, place: int, clothes: Clothes, settings: Settings
) -> None:
    text = path.read_text(encoding="utf-8")
    check(clothes.on(planted(text, place, program)), settings)


@given(st.sampled_from(seeds.fixtures()), st.lists(st.tuples(numbers, st.binary(max_size=4)), max_size=4), settings)
def test_damaged_bytes(program: str, damage: list[tuple[int, bytes]], settings: Settings) -> None:
    raw = program.encode()
    for place, piece in damage:
        at = place % (len(raw) + 1)
        raw = raw[:at] + piece + raw[at + place % 3 :]
    check(raw, settings)


@given(
    st.one_of(grammar.programs(), st.sampled_from(seeds.examples()), st.sampled_from(seeds.fixtures())),
    steps,
    pages(),
    settings,
)
def test_notebooks(program: str, steps: Steps, pages: Pages, settings: Settings) -> None:
    raw = pages.on(mutated(program, steps))
    assert pages.written(read(raw)) == raw
    result = check(raw, settings, NOTEBOOK)
    # Nothing but sources is other than before, and these are spelled as the others are.
    assert pages.written(read(result.raw)) == result.raw


@given(bindings.programs(), settings)
def test_names_that_are_bound_in_every_way(program: str, settings: Settings) -> None:
    check(program.encode(), settings)

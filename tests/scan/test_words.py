from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.scan.needles import parts
from fsdp_migrate.screen import Screen, Words

FEW_LETTERS = st.text("_Aab.", min_size=1, max_size=5).map(str.encode)


def used(words: list[bytes]) -> Words:
    """Words that were looked for so often that the patterns are used."""
    found = Words(words)
    for _ in range(100):
        found.any_in(b"")
    return found


@given(st.lists(FEW_LETTERS, min_size=1, max_size=6, unique=True), st.text("_Aab. ", max_size=30).map(str.encode))
def test_the_patterns_find_what_looking_for_each_word_finds(words: list[bytes], text: bytes) -> None:
    assert used(words).any_in(text) == any(word in text for word in words)


WORDS = sorted({word for entry in ENTRIES for needles in entry.words for word in parts(needles)})


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_found_within_a_word_and_in_any_bytes(word: bytes) -> None:
    words = used(WORDS)
    assert words.any_in(b"\xff\n(my_" + word + b"_A\x00")
    for text in (word[:-1], word[1:], word.swapcase()):
        assert words.any_in(text) == any(other in text for other in WORDS)


def test_a_start_that_is_written_twice_in_a_word_hides_nothing() -> None:
    words = used([b"_a_b", b"x_a"])
    assert words.any_in(b"_a_a_b")
    assert words.any_in(b"__x_a")
    assert not words.any_in(b"_a_ab")


def test_no_words_are_in_nothing() -> None:
    assert not used([]).any_in(b"anything")


@pytest.mark.parametrize(
    "text", [b"x = 1  # noqa: FSDP101\n", b"x = 1  # fsdp-migrate: ignore\n", b"# NOQA : fsdp, FSDP3\n"]
)
def test_a_suppression_alone_lets_a_file_pass(text: bytes) -> None:
    screen = Screen(ENTRIES)
    assert all(screen.passes(text) for _ in range(100))
    assert not any(screen.passes(b"x = 1  # noqa: E501\n") for _ in range(100))

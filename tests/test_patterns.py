from __future__ import annotations

import re

import pytest

from fsdp_migrate.patterns import pattern


def test_a_pattern_is_compiled_when_it_is_used() -> None:
    late = pattern("(")
    with pytest.raises(re.error):
        late.search("x")


def test_a_pattern_does_what_re_does() -> None:
    word, same = pattern(r"(\w+)-", re.IGNORECASE), re.compile(r"(\w+)-", re.IGNORECASE)
    for _ in range(2):
        assert [match.span(1) for match in word.finditer("ab-C-")] == [m.span(1) for m in same.finditer("ab-C-")]
    assert (word.sub("x", "ab-c"), word.groups, word.flags) == (same.sub("x", "ab-c"), same.groups, same.flags)

from __future__ import annotations

from fsdp_migrate.findings import Finding
from fsdp_migrate.planning.drafts import first_seen, shifted
from fsdp_migrate.source import Replacement, Source, Span

from .plans import finding

OLD = Source(b"aaaa bbbb cccc dddd\n")


def at(start: int, code: str = "FSDP101", source: Source = OLD) -> Finding:
    return finding(source, Span(start, start + 1), code=code)


def test_offsets_move_with_the_text_before_them() -> None:
    made = [Replacement(Span(5, 9), "é"), Replacement(Span(10, 10), "xyz")]
    assert shifted((0, 4, 5, 8, 9, 10, 15), made) == [0, 4, None, None, 7, 11, 16]


def test_findings_outside_of_the_edits_are_known_by_their_place() -> None:
    before = [(at(0), at(1)), (at(10), at(2)), (at(15), at(3))]
    made = [Replacement(Span(0, 4), "a"), Replacement(Span(5, 9), "")]
    found = [at(3), at(8)]
    assert first_seen(before[1:], made, found) == [(found[0], at(2)), (found[1], at(3))]


def test_findings_inside_edits_are_known_by_their_code_and_order() -> None:
    before = [(at(0), at(1)), (at(1, "FSDP301"), at(2, "FSDP301")), (at(2), at(3)), (at(10), at(4))]
    made = [Replacement(Span(0, 5), "0123456")]
    found = [at(2), at(3, "FSDP301"), at(4), at(12)]
    assert [origin for _, origin in first_seen(before, made, found)] == [at(1), at(2, "FSDP301"), at(3), at(4)]


def test_a_new_finding_is_its_own_first_sight() -> None:
    found = [at(2, "FSDP210"), at(7)]
    assert first_seen([(at(2), at(1))], [Replacement(Span(0, 4), "")], found) == [(found[0], found[0]), (at(7), at(1))]
    assert first_seen([], [], found) == [(found[0], found[0]), (found[1], found[1])]


def test_a_new_finding_above_one_that_stayed_does_not_take_its_first_sight() -> None:
    found = [at(0), at(10)]
    assert first_seen([(at(10), at(2))], [], found) == [(found[0], found[0]), (found[1], at(2))]

from __future__ import annotations

import random

import pytest

from fsdp_migrate.edits import Edit, EditImport, ImportBinding, RemovedUse, RemoveStatement, Replace
from fsdp_migrate.findings import Applicability, Finding, Fix
from fsdp_migrate.planning.selection import conflict, edits_of, selected, unused_bindings
from fsdp_migrate.source import Source, Span

from .plans import SHARDED, finding, hoist, renamed, wrap

TEXT = Source(b"from m import A, B\ng(F.o(m, F.o(n, o)), F.o(m, p))\n")
OUTER, INNER, OTHER = "F.o(m, F.o(n, o))", "F.o(n, o)", "F.o(m, p)"
STATEMENT = f"g({OUTER}, {OTHER})"
IMPORT = Span(0, 18)


def found(*edits: Edit, applicability: Applicability = Applicability.SAFE) -> Finding:
    return finding(TEXT, Span(0, 1), *edits, applicability=applicability)


def names(chosen: list[Finding]) -> list[Edit]:
    return [finding.fix.edits[0] for finding in chosen if finding.fix]


def test_only_fixes_that_may_be_applied_are_selected() -> None:
    safe = found(renamed(TEXT, INNER))
    unsafe = found(renamed(TEXT, OTHER), applicability=Applicability.UNSAFE)
    manual = found(Replace(IMPORT, ""), applicability=Applicability.MANUAL)
    bare = found()
    assert selected([manual, unsafe, safe, bare], unsafe_fixes=False) == [safe]
    assert names(selected([manual, unsafe, safe, bare], unsafe_fixes=True)) == [
        renamed(TEXT, INNER),
        renamed(TEXT, OTHER),
    ]


def test_the_outer_of_two_fixes_wins_whatever_their_order() -> None:
    outer, inner = renamed(TEXT, OUTER), renamed(TEXT, INNER)
    assert names(selected([found(inner), found(outer)], False)) == [outer]
    assert names(selected([found(outer), found(inner)], False)) == [outer]
    around = wrap(TEXT, STATEMENT, OUTER)
    before = hoist(TEXT, "g(", OTHER)
    assert names(selected([found(before), found(around)], False)) == [around]


def test_the_earlier_of_two_fixes_wins() -> None:
    one, two = Replace(Span(20, 30), "x"), Replace(Span(25, 40), "y")
    assert names(selected([found(two), found(one)], False)) == [one]


def test_a_fix_is_applied_whole_or_not_at_all() -> None:
    outer = found(renamed(TEXT, OUTER))
    both = found(renamed(TEXT, INNER), renamed(TEXT, OTHER))
    assert selected([both, outer], False) == [outer]
    assert names(selected([both, outer], False)) == [renamed(TEXT, OUTER)]


def test_imports_do_not_make_a_fix_the_earlier_one() -> None:
    inner = found(EditImport(IMPORT, add=("X",)), renamed(TEXT, INNER))
    outer = found(renamed(TEXT, OUTER))
    assert names(selected([inner, outer], False)) == [renamed(TEXT, OUTER)]


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (Replace(Span(1, 1), "x"), Replace(Span(1, 1), "x"), False),
        (Replace(Span(1, 1), "x"), Replace(Span(1, 1), "y"), True),
        (Replace(Span(1, 3), "x"), Replace(Span(3, 3), "y"), False),
        (EditImport(IMPORT, add=("X",)), EditImport(IMPORT, remove=("A",)), False),
        (EditImport(IMPORT, add=("X",)), Replace(Span(5, 6), "n"), True),
        (hoist(TEXT, "g(", OUTER, "x"), hoist(TEXT, "g(", OTHER, "y"), False),
        (hoist(TEXT, "g(", OUTER, "x"), hoist(TEXT, "g(", OTHER, "x"), True),
        (hoist(TEXT, "g(", OUTER, "x"), hoist(TEXT, "g(", INNER, "y"), True),
        (hoist(TEXT, "g(", OUTER, "x"), wrap(TEXT, STATEMENT, OTHER), True),
        (wrap(TEXT, STATEMENT, OUTER), wrap(TEXT, STATEMENT, OTHER), False),
        (wrap(TEXT, STATEMENT, OUTER), wrap(TEXT, STATEMENT, INNER), True),
        (wrap(TEXT, STATEMENT, OUTER), wrap(TEXT, STATEMENT, OTHER, header=SHARDED), True),
        (wrap(TEXT, STATEMENT, OUTER), renamed(TEXT, OUTER), True),
    ],
)
def test_edits_conflict_when_they_cannot_both_be_carried_out(one: Edit, two: Edit, expected: bool) -> None:
    assert conflict(one, two) is expected
    assert conflict(two, one) is expected


SOURCE = "from m import (  # all\n    A,  # a\n    B,\n)\nx(A, A, B)\n"


def binding(source: Source, name: str, removable: bool = True) -> ImportBinding:
    statement = Span(0, source.data.index(b")") + 1)
    first = source.data.index(b"x(")
    uses = [Span(i, i + 1) for i in range(first, len(source.data)) if source.data[i : i + 1] == name.encode()]
    return ImportBinding(statement, name, tuple(uses), removable)


def fixed(binding: ImportBinding, *uses: int) -> Fix:
    spans = [binding.uses[use] for use in uses]
    return Fix(tuple(Replace(span, "z") for span in spans), tuple(RemovedUse(span, binding) for span in spans))


def test_an_import_goes_when_the_last_use_goes() -> None:
    source = Source(SOURCE.replace("  # a\n", "\n").encode())
    a, b = binding(source, "A"), binding(source, "B")
    assert unused_bindings(source, [fixed(a, 0)]) == []
    assert unused_bindings(source, [fixed(a, 0), fixed(a, 1)]) == [EditImport(a.statement, remove=("A",))]
    assert unused_bindings(source, [fixed(b, 0), fixed(a, 1, 0)]) == []
    assert unused_bindings(source, [fixed(binding(source, "A", removable=False), 0, 1)]) == []


def test_names_of_one_statement_go_together() -> None:
    source = Source(b"from m import (A, B)\nx(A, B)\n")
    a, b = binding(source, "A"), binding(source, "B")
    assert unused_bindings(source, [fixed(b, 0), fixed(a, 0)]) == [EditImport(a.statement, remove=("A", "B"))]


def test_a_fix_that_leaves_a_name_unused_waits_for_one_that_rewrites_its_import() -> None:
    source = Source(b"from m import (A, B)\nx(A, B)\n")
    a, b = binding(source, "A"), binding(source, "B")
    moved = finding(source, Span(0, 1), Replace(Span(5, 6), "n"))
    last, other = moved._replace(fix=fixed(a, 0)), moved._replace(fix=fixed(b, 0))
    assert selected([last, moved], False) == [moved]
    assert selected([last, other], False) == [last, other]
    stays = last._replace(fix=fixed(binding(source, "A", removable=False), 0))
    assert selected([stays, moved], False) == [moved, stays]
    itself = fixed(a, 0)._replace(edits=(*fixed(a, 0).edits, Replace(Span(5, 6), "n")))
    assert selected([last._replace(fix=itself)], False) == [last._replace(fix=itself)]


def test_a_fix_waits_too_where_the_name_goes_with_an_assignment() -> None:
    source = Source(b"from m import A\nc = A()\nx(c)\n")
    a = ImportBinding(Span(0, 15), "A", (Span(20, 21),), removable=True)
    c = ImportBinding(Span(16, 23), "c", (Span(26, 27),), removable=True, then=(RemovedUse(Span(20, 21), a),))
    fix = Fix((Replace(Span(26, 27), ""),), (RemovedUse(Span(26, 27), c),))
    moved = finding(source, Span(0, 1), Replace(Span(5, 6), "n"))
    last = moved._replace(fix=fix)
    assert selected([last, moved], False) == [moved]
    assert edits_of(source, [fix])[1:] == [EditImport(a.statement, remove=("A",)), RemoveStatement(c.statement)]


def test_the_comment_behind_a_name_goes_with_it_and_those_of_others_stay() -> None:
    source = Source(SOURCE.encode())
    a, b = binding(source, "A"), binding(source, "B")
    assert unused_bindings(source, [fixed(a, 0, 1)]) == [EditImport(a.statement, remove=("A",), comments=("# a",))]
    assert unused_bindings(source, [fixed(b, 0)]) == [EditImport(b.statement, remove=("B",))]
    source = Source(SOURCE.replace("  # all", "").encode())
    a, b = binding(source, "A"), binding(source, "B")
    both = unused_bindings(source, [fixed(a, 0, 1), fixed(b, 0)])
    assert both == [EditImport(a.statement, remove=("A", "B"), comments=("# a",))]


def test_what_silences_a_tool_keeps_a_name_and_a_comment_of_no_name_keeps_the_statement() -> None:
    source = Source(b"from m import (\n    A,  # noqa: F401\n    B,\n)\nx(A, B)\n")
    a, b = binding(source, "A"), binding(source, "B")
    assert unused_bindings(source, [fixed(a, 0), fixed(b, 0)]) == [EditImport(a.statement, remove=("B",))]
    source = Source(b"from m import (\n    # one\n    A,\n    B,\n)\nx(A, B)\n")
    a, b = binding(source, "A"), binding(source, "B")
    assert unused_bindings(source, [fixed(a, 0), fixed(b, 0)]) == []
    assert unused_bindings(source, [fixed(a, 0)]) == [EditImport(a.statement, remove=("A",))]
    line = Source(b"from m import (A, B)  # noqa\nx(A, B)\n")
    assert unused_bindings(line, [fixed(binding(line, "A"), 0), fixed(binding(line, "B"), 0)]) == []
    assert len(unused_bindings(line, [fixed(binding(line, "A"), 0)])) == 1


def test_an_import_whose_text_another_fix_replaces_stays() -> None:
    source = Source(b"from m import (A)\nx(A)\n")
    moved = Fix((Replace(Span(5, 6), "n"),))
    assert unused_bindings(source, [moved, fixed(binding(source, "A"), 0)]) == []


def test_an_import_edited_by_another_fix_may_lose_names_too() -> None:
    source = Source(b"from m import (A)\nx(A)\n")
    a = binding(source, "A")
    adding = Fix((EditImport(a.statement, add=("C",)),))
    assert unused_bindings(source, [adding, fixed(a, 0)]) == [EditImport(a.statement, remove=("A",))]


def test_a_name_that_several_imports_would_bring_comes_by_the_first_and_removals_stay() -> None:
    source = Source(b"from m import A\nfrom n import B, C\nif x:\n    from o import D\n")
    one, two, three = Span(0, 15), Span(16, 34), Span(46, 61)
    fixes = [
        Fix((EditImport(two, add=("N",), remove=("B",)),)),
        Fix((EditImport(two, add=("N",)),)),
        Fix((EditImport(one, add=("N", "M")),)),
        Fix((EditImport(three, add=("N",)),)),
        Fix((Replace(Span(0, 0), "x"),)),
    ]
    assert edits_of(source, fixes) == [
        EditImport(two, add=(), remove=("B",)),
        EditImport(one, add=("N", "M")),
        EditImport(three, add=("N",)),
        Replace(Span(0, 0), "x"),
    ]


def test_an_import_that_a_fix_would_move_goes_if_the_pass_leaves_it_unused() -> None:
    source = Source(b"from m import (A)\nx(A, A)\n")
    a = binding(source, "A")
    moved = Fix((Replace(Span(5, 6), "n"),), moves=((a.statement, a.name),))
    removal = EditImport(a.statement, remove=("A",))
    assert edits_of(source, [moved, fixed(a, 0)]) == [*moved.edits, *fixed(a, 0).edits]
    assert edits_of(source, [moved, fixed(a, 0, 1)]) == [*fixed(a, 0, 1).edits, removal]


def pairwise_selection(findings: list[Finding]) -> list[Finding]:
    chosen: list[Finding] = []
    for one in sorted(
        findings, key=lambda f: (f.fix.edits[0].span.start, -f.fix.edits[0].span.end) if f.fix else (0, 0)
    ):
        others = [edit for other in chosen if other.fix for edit in other.fix.edits]
        if one.fix and not any(conflict(edit, other) for edit in one.fix.edits for other in others):
            chosen.append(one)
    return chosen


@pytest.mark.parametrize("seed", range(20))
def test_the_fixes_chosen_are_those_that_comparing_all_with_all_gives(seed: int) -> None:
    chance = random.Random(seed)
    findings = []
    for number in range(60):
        start = chance.randrange(600)
        first = Replace(Span(start, start + chance.choice((0, 0, 3, 64, 130))), str(number % 3))
        other = EditImport(Span(start - start % 50, start - start % 50 + 20), add=("X",))
        findings.append(found(first, other) if chance.random() < 0.3 else found(first))
    chosen = selected(findings, unsafe_fixes=False)
    assert list(map(id, chosen)) == list(map(id, pairwise_selection(findings)))
    assert 5 < len(chosen) < 60


def test_fixes_far_apart_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr("fsdp_migrate.planning.selection.conflict", lambda one, two: compared.append(one))
    findings = [found(Replace(Span(at, at + 5), "x")) for at in range(0, 30_000, 30)]
    assert len(selected(findings, unsafe_fixes=False)) == 1000
    assert len(compared) < 4000

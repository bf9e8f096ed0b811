from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple

import pytest

from fsdp_migrate.edits import Edit, EditImport, ImportBinding, RemovedUse, Replace
from fsdp_migrate.findings import UNPARSABLE, Applicability, FileReport
from fsdp_migrate.planning import passes as engine
from fsdp_migrate.planning.parts import RewriteResult
from fsdp_migrate.planning.passes import SPARE_PASSES
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.source import Source, SourceError, Span
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

from ..looks import rewrite
from .plans import finding

SETTINGS = Settings(TorchRange.parse(">=2.1"))
UNSAFE = Settings(TorchRange.parse(">=2.1"), unsafe_fixes=True)


class Rules:
    """A linter that finds words, each with a new word (None: manual) and how far that can be trusted."""

    def __init__(self, **words: str | None) -> None:
        self.words = words
        self.unsafe: tuple[str, ...] = ()
        self.texts: list[bytes] = []

    def __call__(self, raw: bytes, path: str, settings: Settings) -> FileReport:
        self.texts.append(raw)
        try:
            source = Source(raw)
        except SourceError as error:
            return FileReport(path, error=str(error))
        findings = []
        for match in re.finditer(rb"\w+", source.data):
            word = match.group().decode()
            if word in self.words:
                place, new = Span(*match.span()), self.words[word]
                applicability = Applicability.UNSAFE if word in self.unsafe else Applicability.SAFE
                if new is None:
                    findings.append(finding(source, place, code=word, applicability=Applicability.MANUAL))
                else:
                    findings.append(finding(source, place, Replace(place, new), code=word, applicability=applicability))
        return FileReport(path, tuple(findings), suppressed=source.text.count("noqa"))


def places(result: RewriteResult) -> list[tuple[str, int, int]]:
    return [(f.code, f.line, f.column) for f in result.fixed]


def test_what_can_be_fixed_is_and_the_rest_is_left() -> None:
    rules = Rules(old="new", bad=None)
    result = rewrite(b"bad = 1\nx = old + bad  # noqa\n", "x.py", SETTINGS, rules)
    assert result.raw == b"bad = 1\nx = new + bad  # noqa\n"
    assert places(result) == [("old", 2, 5)]
    assert [(f.code, f.line) for f in result.left] == [("bad", 1), ("bad", 2)]
    assert (result.suppressed, result.error) == (1, None)


def test_a_text_without_fixes_is_linted_once_and_stays() -> None:
    rules = Rules(bad=None)
    result = rewrite(b"bad = 1", "x.py", SETTINGS, rules)
    assert (result.raw, result.fixed, len(result.left), len(rules.texts)) == (b"bad = 1", (), 1, 1)


def test_unsafe_fixes_wait_for_permission() -> None:
    rules = Rules(old="new")
    rules.unsafe = ("old",)
    assert rewrite(b"old", "x.py", SETTINGS, rules).raw == b"old"
    assert rewrite(b"old", "x.py", UNSAFE, rules).raw == b"new"


def test_passes_go_on_while_one_fix_makes_the_next_possible() -> None:
    rules = Rules(one="two", two="three")
    result = rewrite(b"x = one\n", "x.py", SETTINGS, rules)
    assert result.raw == b"x = three\n"
    assert places(result) == [("one", 1, 5), ("two", 1, 5)]
    assert rules.texts == [b"x = one\n", b"x = two\n", b"x = three\n"]


def test_a_finding_fixed_later_keeps_the_place_where_it_was_first_seen() -> None:
    def lint(raw: bytes, path: str, settings: Settings) -> FileReport:
        source = Source(raw)
        findings = []
        for word in (b"outer", b"inner", b"later"):
            start = raw.find(word)
            if start >= 0:
                place = Span(start, start + 5)
                span = Span(raw.index(b"outer"), raw.index(b")") + 1) if word == b"outer" else place
                text = raw[span.start : span.end].decode().replace(word.decode(), "x")
                edit: Edit = Replace(span, "\n" + text if word == b"outer" else text)
                if word == b"later" and b"inner" in raw:
                    continue
                findings.append(finding(source, place, edit, code=word.decode()))
        return FileReport(path, tuple(findings))

    result = rewrite(b"y = (\nouter(\n 1, inner)); later", "x.py", SETTINGS, lint)
    assert result.raw == b"y = (\n\nx(\n 1, x)); x"
    # The last one was first seen when the text had a line more.
    assert places(result) == [("outer", 2, 1), ("inner", 3, 5), ("later", 4, 10)]


def test_a_text_that_never_settles_is_an_error_and_stays() -> None:
    rules = Rules(tick="tock", tock="tick")
    result = rewrite(b"tick # noqa", "x.py", SETTINGS, rules)
    assert result.raw == b"tick # noqa"
    assert result.fixed == ()
    assert [f.code for f in result.left] == ["tick"]
    assert result.suppressed == 1
    assert result.error == (
        f"internal: the text still changes after {SPARE_PASSES + 1} passes; "
        "the file was not changed, please report this"
    )


@pytest.mark.parametrize(
    ("text", "new", "fault"),
    [
        ("x = old\n", "(", "does not parse"),
        ("x = old\n", "1 # more\n", "lose or repeat the comment '# more'"),
        ("x = [old, # why\n]\n", "'''", "does not parse"),
        ("f(a=1, old=2)\n", "a", "would give `a` twice"),
        ("f(a=1, **{'old': 2})\n", "a", "would give `a` twice"),
        ("# coding: latin-1\nx = old\n", "\u20ac", "latin-1"),
    ],
)
def test_a_fix_that_would_break_the_text_is_left_out_and_says_so(text: str, new: str, fault: str) -> None:
    result = rewrite(text.encode(), "x.py", SETTINGS, Rules(old=new))
    assert (result.raw, result.fixed, result.error) == (text.encode(), (), None)
    (left,) = result.left
    assert left.applicability is Applicability.MANUAL
    assert left.reason is not None
    assert fault in left.reason
    assert "\n" not in left.reason


def test_fixes_inside_one_another_take_as_many_passes_as_they_need() -> None:
    depth = 3 * SPARE_PASSES

    def lint(raw: bytes, path: str, settings: Settings) -> FileReport:
        source = Source(raw)
        calls = [Span(2 * level, len(raw) - level) for level in range(depth)]
        found = [(span, Replace(span, f"x{source.segment(span)[1:]}")) for span in calls if raw[span.start] == 111]
        return FileReport(path, tuple(finding(source, span, edit, code="old") for span, edit in found))

    result = rewrite(b"o(" * depth + b")" * depth, "x.py", SETTINGS, lint)
    assert (result.raw, result.error) == (b"x(" * depth + b")" * depth, None)


def test_a_fix_of_code_too_deep_for_libcst_is_left_out_and_the_others_are_not() -> None:
    deep = "FSDP.full_optim_state_dict(model, optim, " + "+".join("a" * 900) + ")"
    plain = "FSDP.full_optim_state_dict(model, optim)"
    text = f"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\nx = {deep}\ny = {plain}\n"
    result = rewrite_bytes(text.encode(), "x.py", SETTINGS)
    assert result.error is None
    assert [(f.code, f.line) for f in result.fixed] == [("FSDP101", 4)]
    (reason,) = [f.reason for f in result.left if f.code == "FSDP101"]
    assert reason == "too deeply nested to be rewritten: change it by hand"
    assert deep.encode() in result.raw


def test_a_fix_that_is_left_out_does_not_keep_the_others_from_being_applied() -> None:
    result = rewrite(b"a = old\nb = good\n", "x.py", SETTINGS, Rules(old="(", good="better"))
    assert result.raw == b"a = old\nb = better\n"
    assert [f.code for f in result.fixed] == ["good"]
    assert [(f.code, f.applicability) for f in result.left] == [("old", Applicability.MANUAL)]


def test_a_fix_that_brings_a_finding_is_left_out_and_says_so() -> None:
    result = rewrite(b"x = old + good + bad\n", "x.py", SETTINGS, Rules(old="bad", good="fine", bad=None))
    assert (result.raw, places(result)) == (b"x = old + fine + bad\n", [("good", 1, 11)])
    assert [(f.code, f.fix) for f in result.left] == [("old", None), ("bad", None)]
    assert result.left[0].reason == "not made: it would add bad (a-rule)"
    assert result.left[0].applicability is Applicability.MANUAL


def test_of_fixes_that_only_bring_a_finding_together_the_first_is_made() -> None:
    def lint(raw: bytes, path: str, settings: Settings) -> FileReport:
        report = Rules(one="1", two="2")(raw, path, settings)
        both = Rules(**{"1": None})(raw, path, settings).findings if b"1 + 2" in raw else ()
        return report._replace(findings=(*report.findings, *both))

    result = rewrite(b"x = one + two\n", "x.py", SETTINGS, lint)
    assert (result.raw, places(result)) == (b"x = 1 + two\n", [("one", 1, 5)])
    assert [f.reason for f in result.left] == ["not made: it would add 1 (a-rule)"]


def test_a_fix_may_bring_the_findings_that_its_card_declares() -> None:
    text = b"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
    text += b"def save(model, optim):\n    return FSDP.full_optim_state_dict(model, optim)\n"
    result = rewrite_bytes(text, "x.py", Settings(TorchRange.parse(">=2.1"), hints=True))
    assert [f.code for f in result.fixed] == ["FSDP101"]
    assert [f.code for f in result.left] == ["FSDP210"]


def test_a_fix_that_would_lose_a_comment_is_left_out() -> None:
    def lint(raw: bytes, path: str, settings: Settings) -> FileReport:
        source = Source(raw)
        return FileReport(path, (finding(source, Span(4, 11), Replace(Span(4, 11), "1")),))

    result = rewrite(b"x = 1 # two\n", "x.py", SETTINGS, lint)
    assert (result.raw, result.fixed) == (b"x = 1 # two\n", ())
    assert "lose or repeat the comment '# two'" in (result.left[0].reason or "")


def test_a_fix_that_changes_nothing_leaves_its_finding() -> None:
    result = rewrite(b"old", "x.py", SETTINGS, Rules(old="old"))
    assert (result.raw, result.fixed, len(result.left), result.error) == (b"old", (), 1, None)


def test_a_text_that_cannot_be_read_stays_with_its_error() -> None:
    raw = b"# coding: ascii\n\xff old\n"
    result = rewrite(raw, "x.py", SETTINGS, Rules(old="new"))
    assert result.raw == raw
    assert "not valid" in (result.error or "")


def test_a_text_that_does_not_parse_stays_with_its_finding() -> None:
    def lint(raw: bytes, path: str, settings: Settings) -> FileReport:
        return FileReport(path, (finding(Source(raw), Span(0, 1), Replace(Span(0, 1), "x"), code=UNPARSABLE),))

    result = rewrite(b"(", "x.py", SETTINGS, lint)
    assert (result.raw, [f.code for f in result.left], result.error) == (b"(", [UNPARSABLE], None)


def test_an_import_goes_in_the_pass_that_takes_its_last_use() -> None:
    def lint(raw: bytes, path: str, settings: Settings) -> FileReport:
        source = Source(raw)
        uses = [Span(*match.span()) for match in re.finditer(rb"\bB\b", source.data)][1:]
        binding = ImportBinding(Span(0, 18), "B", tuple(uses), True)
        findings = [finding(source, use, Replace(use, "b"), removed_uses=(RemovedUse(use, binding),)) for use in uses]
        return FileReport(path, tuple(findings))

    result = rewrite(b"from m import A, B\nx(A, B)\ny(B)\n", "x.py", SETTINGS, lint)
    assert result.raw == b"from m import A\nx(A, b)\ny(b)\n"


def test_two_fixes_may_edit_one_import() -> None:
    def lint(raw: bytes, path: str, settings: Settings) -> FileReport:
        source = Source(raw)
        found = [Span(*match.span()) for match in re.finditer(rb"old\d", source.data)]
        return FileReport(
            path,
            tuple(
                finding(source, place, Replace(place, new), EditImport(Span(0, 15), add=(new,)))
                for place in found
                for new in [f"new{source.segment(place)[-1]}"]
            ),
        )

    result = rewrite(b"from m import m\nold2(old1)\n", "x.py", SETTINGS, lint)
    assert result.raw == b"from m import m, new1, new2\nnew2(new1)\n"


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_everything_else_stays_byte_for_byte(bom: bytes, newline: bytes) -> None:
    text = bom + b"\f# \xc3\xa9  \nx = 'a'  \n\n\n\t\ny = old ;z=1 \nif x:\n\tpass\n  # end"
    text = text.replace(b"\n", newline)
    result = rewrite(text, "x.py", SETTINGS, Rules(old="new"))
    assert (result.raw, result.error) == (text.replace(b"old", b"new"), None)


def test_nothing_but_a_fix_brings_libcst() -> None:
    code = "import sys, fsdp_migrate.planning.rewriting; sys.exit('libcst' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_hint_is_mended_only_where_hints_are_shown() -> None:
    text = b"from torch.distributed.fsdp._optim_utils import FlatParameter\n\nkind: FlatParameter\n"
    quiet = Settings(TorchRange.parse(">=2.1"))
    assert rewrite_bytes(text, "x.py", quiet).raw == text
    shown = Settings(TorchRange.parse(">=2.1"), hints=True)
    assert rewrite_bytes(text, "x.py", shown).raw.startswith(b"from torch.distributed.fsdp import FlatParameter\n")


class Stepwise(NamedTuple):
    """Finds words that have a fix first, then others too."""

    text: bytes
    asked: list[str]
    source: Source | None = None

    def fixable(self) -> FileReport:
        self.asked.append("some")
        return Rules(old="new", broken="(")(self.text, "x.py", SETTINGS)

    def report(self) -> FileReport:
        self.asked.append("all")
        return Rules(old="new", broken="(", bad=None, late="old")(self.text, "x.py", SETTINGS)

    def close(self) -> None:
        self.asked.append("closed")


def test_all_rules_are_asked_of_the_first_text_and_of_the_one_that_the_others_leave_alone() -> None:
    asked: list[str] = []
    result = engine.rewrite(b"old = bad\n", "x.py", SETTINGS, lambda text, source: Stepwise(text, asked, source))
    assert (result.raw, [f.code for f in result.left]) == (b"new = bad\n", ["bad"])
    assert asked == ["some", "all", "closed", "some", "all", "closed"]


def test_what_only_all_rules_find_is_mended_too() -> None:
    result = engine.rewrite(b"late = bad\n", "x.py", SETTINGS, lambda text, source: Stepwise(text, [], source))
    assert (result.raw, places(result)) == (b"new = bad\n", [("late", 1, 1), ("old", 1, 1)])


def test_a_fix_that_is_left_out_is_declared_in_the_report_of_all_rules() -> None:
    asked: list[str] = []
    result = engine.rewrite(b"broken = bad\n", "x.py", SETTINGS, lambda text, source: Stepwise(text, asked, source))
    assert [(f.code, f.fix) for f in result.left] == [("broken", None), ("bad", None)]
    assert "does not parse" in (result.left[0].reason or "")
    assert asked == ["some", "all", "closed", "all", "closed"]


def test_a_text_is_read_once_and_given_to_the_next_look() -> None:
    given: list[Source | None] = []

    def look(text: bytes, source: Source | None) -> Stepwise:
        given.append(source)
        return Stepwise(text, [], source)

    engine.rewrite(b"old = bad\n", "x.py", SETTINGS, look)
    assert [source and source.text for source in given] == [None, "new = bad\n"]


def test_a_fix_that_only_puts_one_text_in_the_place_of_another_does_without_libcst() -> None:
    text = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\nFSDP(model, fsdp_auto_wrap_policy=p)\n"
    )
    code = (
        "import sys\nfrom fsdp_migrate.planning.rewriting import rewrite_source\n"
        f"new = rewrite_source({text!r}).source\nsys.exit('libcst' in sys.modules or ', auto_wrap_policy=p' not in new)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

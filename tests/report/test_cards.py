from __future__ import annotations

import io

from rich.console import Console

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.report import cards
from fsdp_migrate.rules.card import Example, RuleCard

CARD = RuleCard(
    code="FSDP104",
    name="scatter-full-optim-state-dict",
    summary="`FSDP.scatter_full_optim_state_dict(...)`",
    explanation="It **warns**.\n\nThe optimizer has to be visible.\n",
    applicability="safe or manual",
    deprecated="2.1",
    floor="2.1",
    flags=(
        Example("FSDP.scatter(osd, model, optim=o)\n", "FSDP.to_load(model=model)\n"),
        Example("a = f()\n", "a = g()\n", "two lines", Applicability.UNSAFE),
        Example("FSDP.scatter(osd, model)\n"),
    ),
    leaves=("scatter(osd, model)\n",),
    url="https://example.org/104",
)

PLAIN = """\
FSDP104 scatter-full-optim-state-dict
`FSDP.scatter_full_optim_state_dict(...)`

It **warns**.

The optimizer has to be visible.

Severity              deprecated
Deprecated since      torch 2.1
Rewritten code needs  torch 2.1 or newer
Fix                   safe or manual
More                  https://example.org/104

Finds:
    FSDP.scatter(osd, model, optim=o)
becomes:
    FSDP.to_load(model=model)

Finds (two lines):
    a = f()
becomes, with --unsafe-fixes:
    a = g()

Finds (manual):
    FSDP.scatter(osd, model)

Leaves alone:
    scatter(osd, model)"""


def test_the_plain_card_holds_everything() -> None:
    assert cards.card_text(CARD, Severity.DEPRECATED) == PLAIN


def test_a_card_says_how_to_see_hints() -> None:
    assert "Severity              hint, shown with `--hints`\n" in cards.card_text(CARD, Severity.HINT)


def test_a_card_says_which_files_a_rule_beside_fsdp_looks_at() -> None:
    autocast = cards.card_text(CARD._replace(code="FSDP801"), Severity.DEPRECATED)
    looks = "Looks at              files that use torch.distributed or FSDP; all files with `--select FSDP801`\n"
    assert autocast == PLAIN.replace("FSDP104", "FSDP801").replace("Fix  ", f"{looks}Fix  ")


def test_the_card_on_a_terminal_holds_the_same() -> None:
    stream = io.StringIO()
    cards.print_card(
        Console(file=stream, width=80, highlight=False, markup=False, soft_wrap=True), CARD, Severity.DEPRECATED
    )
    words = stream.getvalue().split()
    assert [word for word in PLAIN.replace("**", "").replace(":\n", "\n").split() if word not in words] == []


def test_the_plain_table_is_aligned() -> None:
    short = RuleCard("FSDP001", "unparsable-file", "a file that does not parse", "", "manual")
    assert cards.table_text([short, CARD]).splitlines() == [
        "FSDP001  unparsable-file                manual          a file that does not parse",
        "FSDP104  scatter-full-optim-state-dict  safe or manual  `FSDP.scatter_full_optim_state_dict(...)`",
    ]


def test_the_table_on_a_terminal_never_cuts_codes_and_names() -> None:
    stream = io.StringIO()
    cards.print_table(Console(file=stream, width=72, highlight=False, markup=False, soft_wrap=True), [CARD])
    lines = stream.getvalue().splitlines()
    assert lines[0].split() == ["Code", "Name", "Fix", "What", "it", "finds"]
    assert lines[1].startswith("FSDP104  scatter-full-optim-state-dict  safe")
    assert max(map(len, lines)) <= 72


def test_prose_has_lines_of_one_width_and_lists_stay() -> None:
    word = "`module.parameters()`"
    card = CARD._replace(explanation=f"{word}\n" * 12 + "\nThere are:\n* one\n* two\n\n    code = 1\n")
    _, first, listed, code, *_ = cards.card_text(card, Severity.DEPRECATED).split("\n\n")
    assert first.split() == [word] * 12
    assert [len(line) for line in first.split("\n")] == [4 * len(word) + 3] * 3
    assert (listed, code) == ("There are:\n* one\n* two", "    code = 1")

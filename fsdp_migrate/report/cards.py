"""Rule cards for people: for `explain` and `rules`, and as Markdown for the docs and SARIF."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import fill, indent
from typing import TYPE_CHECKING

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.rules.index import ENTRIES

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fsdp_migrate.rules.card import Example, RuleCard


CONTRACT = """\
Safe means: the same values, keys, ranks, devices and order of collectives. It assumes that reading attributes, items \
and `state_dict()` has no effect, that the call of torch returns, and that models and optimizers are what the project \
shows them to be. docs/safe.md has the whole contract; `fsdp-migrate verify --rewrite` compares before and after."""
# Columns of prose where nobody renders it.
_WIDTH = 100
_NEIGHBOURS = frozenset(entry.code for entry in ENTRIES if entry.is_neighbour)


def facts(card: RuleCard, severity: Severity) -> Iterator[tuple[str, str]]:
    """Labels and values of a rule besides its prose, for a range on which it has this severity."""
    yield "Severity", "hint, shown with `--hints`" if severity is Severity.HINT else severity.value
    if card.deprecated:
        yield "Deprecated since", f"torch {card.deprecated}"
    if card.removed:
        yield "Fails since", f"torch {card.removed}"
    if card.floor:
        yield "Rewritten code needs", f"torch {card.floor} or newer"
    if card.code in _NEIGHBOURS:
        yield "Looks at", f"files that use torch.distributed or FSDP; all files with `--select {card.code}`"
    yield "Fix", card.applicability
    if card.url:
        yield "More", card.url


def card_text(card: RuleCard, severity: Severity) -> str:
    """The card as plain text, for a torch range on which the rule has this severity."""
    labels = max(len(label) for label, _ in facts(card, severity))
    blocks = [
        f"{card.code} {card.name}\n{card.summary}",
        _prose(card.explanation),
        "\n".join(f"{label:<{labels}}  {value}" for label, value in facts(card, severity)),
        *(_example_text(example) for example in card.flags),
        *(f"Leaves alone:\n{_code(code)}" for code in card.leaves),
    ]
    return "\n\n".join(block for block in blocks if block)


def _prose(markdown: str) -> str:
    """Paragraphs wrapped to one width; lists, tables and code stay as they are."""
    return "\n\n".join(map(_filled, markdown.strip().split("\n\n")))


def _filled(block: str) -> str:
    if any(line.startswith((" ", "* ", "- ", "|", "```")) for line in block.split("\n")):
        return block
    return fill(block, _WIDTH, break_long_words=False, break_on_hyphens=False)


def card_markdown(card: RuleCard, severity: Severity) -> Iterator[str]:
    """The card in Markdown, without its heading, for a torch range on which the rule has this severity."""
    yield f"{card.summary[0].upper()}{card.summary[1:]}."
    yield "\n".join(f"- {label}: {_linked(value)}" for label, value in facts(card, severity))
    yield card.explanation.strip()
    for example in card.flags:
        yield from _example_markdown(example)
    for code in card.leaves:
        yield "**Leaves alone**"
        yield _fenced(code)


def contract(card: RuleCard) -> str | None:
    """What a safe fix assumes, if the rule has safe fixes."""
    return fill(CONTRACT, _WIDTH) if card.applicability.startswith(Applicability.SAFE.value) else None


def table_text(cards: Iterable[RuleCard]) -> str:
    """The rules in aligned columns: code, name, kind of fix, summary."""
    rows = [(card.code, card.name, card.applicability, card.summary) for card in cards]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return "\n".join("  ".join([*(f"{row[i]:<{width}}" for i, width in enumerate(widths)), row[3]]) for row in rows)


def print_card(console: Console, card: RuleCard, severity: Severity) -> None:
    """Print the card with rendered Markdown and highlighted examples."""
    from rich.markdown import Markdown
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text.assemble((f"{card.code} ", "bold yellow"), (card.name, "bold")))
    console.print(Text(card.summary), soft_wrap=False)
    parts: list[RenderableType] = [Markdown(card.explanation.strip()), _facts_grid(card, severity)]
    for example in card.flags:
        parts += [Text(_heading(example), "bold"), _syntax(example.before)]
        if example.after is not None:
            parts += [Text(_becomes(example), "bold"), _syntax(example.after)]
    for code in card.leaves:
        parts += [Text("Leaves alone", "bold"), _syntax(code)]
    for part in parts:
        console.print(Padding(part, (1, 0, 0, 0)), soft_wrap=False)


def print_table(console: Console, cards: Iterable[RuleCard]) -> None:
    """Print the table of rules."""
    from rich.table import Table

    table = Table("Code", "Name", "Fix", "What it finds", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for card in cards:
        table.add_row(card.code, card.name, card.applicability, card.summary)
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    console.print(table, soft_wrap=False)


def _example_text(example: Example) -> str:
    text = f"{_heading(example)}:\n{_code(example.before)}"
    return text if example.after is None else f"{text}\n{_becomes(example)}:\n{_code(example.after)}"


def _example_markdown(example: Example) -> Iterator[str]:
    notes = ": ".join(note for note in ("manual" if example.after is None else "", example.note) if note)
    yield f"**Finds** ({notes})" if notes else "**Finds**"
    yield _fenced(example.before)
    if example.after is not None:
        unsafe = example.applicability is Applicability.UNSAFE
        yield "**becomes**, with `--unsafe-fixes`" if unsafe else "**becomes**"
        yield _fenced(example.after)


def _linked(value: str) -> str:
    return f"<{value}>" if value.startswith("https://") else value


def _fenced(code: str) -> str:
    return "```python\n" + code.strip("\n") + "\n```"


def _heading(example: Example) -> str:
    notes = [note for note in (example.note, "" if example.after is not None else "manual") if note]
    return f"Finds ({', '.join(notes)})" if notes else "Finds"


def _becomes(example: Example) -> str:
    return "becomes, with --unsafe-fixes" if example.applicability is Applicability.UNSAFE else "becomes"


def _code(code: str) -> str:
    return indent(code.strip("\n"), "    ")


def _facts_grid(card: RuleCard, severity: Severity) -> RenderableType:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    for label, value in facts(card, severity):
        grid.add_row(label, value)
    return grid


def _syntax(code: str) -> RenderableType:
    from rich.padding import Padding
    from rich.syntax import Syntax

    return Padding(
        Syntax(code.strip("\n"), "python", theme="ansi_dark", background_color="default", word_wrap=True), (0, 0, 0, 4)
    )

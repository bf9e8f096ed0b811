"""Small changes of a program that leave a program: each is a function of the text and two numbers that choose the place."""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.fuzz import seeds

Mutation = Callable[[str, int, int], str]
T = TypeVar("T")

BLOCKS = (
    "if flag:\n{}",
    "if rank == 0:\n{}\nelse:\n    pass",
    "if flag:\n    pass\nelse:\n{}",
    "if flag:\n    pass\nelif other:\n{}",
    "for step in range(3):\n{}",
    "while flag:\n{}\n    break",
    "try:\n{}\nexcept Exception:\n    pass",
    "try:\n{}\nexcept (AttributeError, ImportError) as error:\n    raise\nelse:\n    pass\nfinally:\n    done()",
    "try:\n    pass\nfinally:\n{}",
    "with torch.no_grad():\n{}",
    "with open(path) as file, lock:\n{}",
    "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n{}",
    "with FSDP.summon_full_params(model):\n{}",
    "def inner(model, optim=None, *rest, **options):\n{}",
    "async def inner(model, optim):\n{}",
    "class Trainer(Base):\n    '''Docs.'''\n\n    def save(self, model, optim):\n    {}",
    "class Inner:\n{}",
    "@decorated\ndef inner(self):\n    '''Docs.'''\n{}\n    return None",
    "match kind:\n    case 'full':\n    {}\n    case _:\n        pass",
    "if torch.__version__ >= '2.1':\n{}\nelse:\n    pass",
    "if version.parse(torch.__version__) < version.parse('2.0'):\n{}",
    "if TYPE_CHECKING:\n{}",
    "if hasattr(FSDP, 'optim_state_dict'):\n    pass\nelse:\n{}",
    "if not isinstance(model, FSDP):\n{}",
    "if __name__ == '__main__':\n{}",
)

COMMENTS = (
    "# note", "#", "# type: ignore", "# noqa", "# noqa: FSDP101", "# fsdp-migrate: ignore", "# fsdp-migrate: ignore[FSDP6]",
    "# )", "# \u4f60\u597d \u2028 x", "# '''", "# \x0c", "# fmt: off", "#\ttabs", "# \\",
)  # fmt: skip

NAMES = (
    "FSDP",
    "model",
    "optim",
    "self",
    "StateDictType",
    "fsdp",
    "torch",
    "dist",
    "x",
    "osd",
    "\u00e9t\u00e9",
    "_",
    "match",
    "type",
)


def pick(choices: Sequence[T], number: int) -> T:
    """The choice that `number` means."""
    return choices[number % len(choices)]


def other_expression(text: str, place: int, what: int) -> str:
    """Put another expression where one stands."""
    return _with_expression(text, place, lambda old: pick(seeds.expressions(), what))


def parenthesised(text: str, place: int, what: int) -> str:
    """Put parentheses, and perhaps a comment and line breaks, around an expression."""
    return _with_expression(
        text, place, lambda old: pick(("({})", "(({}))", "(  # c\n{}\n)", "(\n\n  {}  # c\n)"), what).format(old)
    )


def other_argument(text: str, place: int, what: int) -> str:
    """Change how the arguments of a call are passed."""
    calls = [node for node in _nodes(text, ast.Call) if isinstance(node, ast.Call) and (node.args or node.keywords)]
    if not calls:
        return text
    call = pick(calls, place)
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    node = pick(arguments, what)
    old = ast.get_source_segment(text, node) or ""
    value = old.partition("=")[2] if isinstance(node, ast.keyword) else old
    forms = ("{}", "*{}", "**{}", "optim={}", "group={}", "x={}", "{}, {}", "{},", "model={}", "rank0_only={}", "")
    return _replaced(text, node, pick(forms, place // 7).format(value, value))


def doubled(text: str, place: int, what: int) -> str:
    """Say a statement twice."""
    return _beside(text, place, lambda segment: segment)


def grafted(text: str, place: int, what: int) -> str:
    """Add a statement of another program."""
    return _beside(text, place, lambda segment: pick(seeds.statements(), what))


def removed(text: str, place: int, what: int) -> str:
    """Take a statement away."""
    return _with_statement(text, place, lambda segment: "pass")


def other_statement(text: str, place: int, what: int) -> str:
    """Put a statement of another program in the place of one."""
    return _with_statement(text, place, lambda segment: pick(seeds.statements(), what))


def in_block(text: str, place: int, what: int) -> str:
    """Put a statement into a block."""
    return _with_statement(text, place, lambda segment: _blocked(segment, pick(BLOCKS, what)))


def all_in_block(text: str, place: int, what: int) -> str:
    """Put the whole program into a block."""
    return _blocked(text, pick(BLOCKS, what)) + "\n"


def joined(text: str, place: int, what: int) -> str:
    """Write two statements on one line."""
    ends = [match.start() for match in re.finditer(r"\n(?=[ \t]*[^ \t\n])", text)]
    if not ends:
        return text
    at = pick(ends, place)
    return text[:at] + "; " + text[at:].lstrip()


def commented(text: str, place: int, what: int) -> str:
    """Put a comment at the end of a line."""
    ends = [match.start() for match in re.finditer(r"(?=\n)", text)]
    if not ends:
        return text
    at = pick(ends, place)
    return f"{text[:at]}  {pick(COMMENTS, what)}{text[at:]}"


def own_comment(text: str, place: int, what: int) -> str:
    """Put a comment, a blank line or a form feed in front of a line."""
    starts = [match.start() for match in re.finditer(r"^[ \t]*", text, re.MULTILINE)]
    at = pick(starts, place)
    line = pick((*COMMENTS, "", "    ", "\x0c", "\t# tab"), what)
    indent = re.match(r"[ \t]*", text[at:])
    return f"{text[:at]}{indent.group() if indent and what % 2 else ''}{line}\n{text[at:]}"


def broken(text: str, place: int, what: int) -> str:
    """Break a line between two tokens, inside brackets or with a backslash."""
    tokens = _tokens(text)
    if not tokens:
        return text
    row, column = pick(tokens, place).end
    lines = text.split("\n")
    at = sum(len(line) + 1 for line in lines[: row - 1]) + column
    return (
        text[:at]
        + pick(("\n", "  # c\n", "\\\n", " \\\n  ", "\n\n      ", "  # a\n  # b\n", "\t", ",", ", # c\n"), what)
        + text[at:]
    )


def renamed(text: str, place: int, what: int) -> str:
    """Call something by another name, everywhere."""
    names = sorted({token.string for token in _tokens(text) if token.type == tokenize.NAME and len(token.string) > 1})
    if not names:
        return text
    return re.sub(rf"\b{re.escape(pick(names, place))}\b", pick((*NAMES, *names), what), text)


def aliased(text: str, place: int, what: int) -> str:
    """Give an imported name an alias."""
    imports = [*_nodes(text, ast.alias)]
    if not imports:
        return text
    node = pick(imports, place)
    assert isinstance(node, ast.alias)
    return _replaced(text, node, f"{node.name} as {pick(NAMES, what)}")


def continued(text: str, place: int, what: int) -> str:
    """Follow the program with another one."""
    return text + "\n" + pick(seeds.examples(), what)


MUTATIONS: tuple[Mutation, ...] = (
    other_expression, parenthesised, other_argument, doubled, grafted, removed, other_statement, in_block, all_in_block,
    joined, commented, own_comment, broken, renamed, aliased, continued,
)  # fmt: skip


def mutated(text: str, steps: Sequence[tuple[Mutation, int, int]]) -> str:
    """`text` after those of `steps` that leave a program."""
    for mutation, place, what in steps:
        changed = mutation(text, place, what)
        if seeds.parse(changed) is not None:
            text = changed
    return text


def planted(text: str, place: int, program: str) -> str:
    """`text` with another program's statements put somewhere into it, its imports on top."""
    tree = seeds.parse(program)
    segments = [ast.get_source_segment(program, node) or "" for node in tree.body] if tree else []
    imports = [segment for segment in segments if segment.startswith(("import ", "from "))]
    for number, segment in enumerate(segment for segment in segments if segment not in imports):
        text = _beside(text, place + number * 31, lambda _, new=segment: new)  # type: ignore[misc]
    first = next((node for node in (seeds.parse(text) or ast.Module([], [])).body if not _leads(node)), None)
    rows = text.split("\n")
    row = (first.lineno if first else 1) - 1
    return "\n".join([*rows[:row], *imports, *rows[row:]])


def _leads(node: ast.stmt) -> bool:
    """Whether a statement has to stay in front of imports."""
    docs = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docs or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _nodes(text: str, *kinds: type[ast.AST]) -> list[ast.AST]:
    return [node for node in ast.walk(seeds.parse(text) or ast.Module([], [])) if isinstance(node, kinds)]


def _with_expression(text: str, place: int, new: Callable[[str], str]) -> str:
    nodes = _nodes(text, ast.expr)
    if not nodes:
        return text
    node = pick(nodes, place)
    return _replaced(text, node, new(ast.get_source_segment(text, node) or "x"))


def _with_statement(text: str, place: int, new: Callable[[str], str]) -> str:
    nodes = _nodes(text, ast.stmt)
    if not nodes:
        return text
    node = pick(nodes, place)
    segment = textwrap.dedent(" " * node.col_offset + (ast.get_source_segment(text, node) or "pass"))  # type: ignore[attr-defined]
    return _replaced(text, node, _indented(new(segment), _indent(text, node)))


def _beside(text: str, place: int, new: Callable[[str], str]) -> str:
    return _with_statement(
        text, place, lambda segment: f"{new(segment)}\n{segment}" if place % 2 else f"{segment}\n{new(segment)}"
    )


def _blocked(segment: str, block: str) -> str:
    head, mark, tail = block.partition("{}")
    deep = "        " if head.endswith("\n    ") else "    "
    return head.removesuffix("    ") + textwrap.indent(segment.rstrip("\n"), deep) + tail if mark else block


def _indent(text: str, node: ast.AST) -> str:
    line = text.split("\n")[node.lineno - 1]  # type: ignore[attr-defined]
    return line[: len(line) - len(line.lstrip())]


def _indented(segment: str, indent: str) -> str:
    """All lines but the first one indented, those in strings as well: what matters is that it is some program."""
    first, newline, rest = segment.partition("\n")
    return first + newline + textwrap.indent(rest, indent)


def _replaced(text: str, node: ast.AST, new: str) -> str:
    """`text` with `new` where `node` stands; the text has no line ends but line feeds."""
    lines = text.encode().split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    begin = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
    end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
    data = text.encode()
    return (data[:begin] + new.encode() + data[end:]).decode()


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    try:
        return [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.string.strip()]
    except (tokenize.TokenError, SyntaxError):
        return []

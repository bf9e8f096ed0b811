from __future__ import annotations

from collections.abc import Callable

import pytest

from fsdp_migrate.edits import Context, Edit, Hoist, Replace, RewriteCall, Unwrap, Wrap
from fsdp_migrate.rewrite.blocks import with_header
from fsdp_migrate.source import Source, Span

from .plans import FULL, SHARDED, WIDE, apply, arguments, hoist, renamed, replace, span, wrap

HEADER = "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):"


def applied(text: str, *plan: Callable[[Source], Edit]) -> str:
    source = Source(text.encode())
    return apply(source, [make(source) for make in plan]).decode()


def test_a_header_of_88_columns_stays_on_one_line() -> None:
    context = Context("FSDP.state_dict_type", ("m" * 56,))
    line = with_header(context, "    ", "    ", "\n")
    assert len("    " + line) == 88
    assert "\n" not in line
    assert with_header(context, "     ", "    ", "\n") == (f"with FSDP.state_dict_type(\n         {'m' * 56},\n     ):")


def test_a_wide_header_has_one_argument_a_line_and_a_trailing_comma() -> None:
    assert with_header(WIDE, "  ", "  ", "\r\n") == (
        "with FSDP.state_dict_type(\r\n"
        "    model,\r\n"
        "    StateDictType.FULL_STATE_DICT,\r\n"
        "    optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),\r\n"
        "  ):"
    )


def test_a_tab_counts_four_columns() -> None:
    context = Context("FSDP.state_dict_type", ("m" * 56,))
    assert "\n" not in with_header(context, "\t", "\t", "\n")
    assert "\n" in with_header(context, "\t\t", "\t", "\n")


def test_a_header_argument_over_several_lines_is_not_put_on_one() -> None:
    header = with_header(Context("f", ("a[\n    0\n]", "b")), "", "    ", "\n")
    assert header == "with f(\n    a[\n    0\n],\n    b,\n):"


@pytest.mark.parametrize(
    "statement",
    [
        "osd = FSDP.old(m, o)",
        "osd: dict = FSDP.old(m, o)",
        "state['osd'] = self.osd = FSDP.old(m, o)",
        "states += [FSDP.old(m, o)]",
        "return FSDP.old(m, o)",
        "yield FSDP.old(m, o)",
        "await save(FSDP.old(m, o))",
        "torch.save(FSDP.old(m, o), path)",
        "raise Stop(FSDP.old(m, o))",
    ],
)
def test_a_statement_goes_one_level_deeper_under_its_context(statement: str) -> None:
    new = statement.replace("old", "new")
    assert applied(f"{statement}\n", lambda s: wrap(s, statement, "FSDP.old(m, o)")) == f"{HEADER}\n    {new}\n"
    text = f"async def f():\n  {statement}  # why\n  g()\n"
    assert applied(text, lambda s: wrap(s, statement, "FSDP.old(m, o)", indent="  ", unit="  ")) == (
        f"async def f():\n  {HEADER}\n    {new}  # why\n  g()\n"
    )


def test_lines_in_brackets_move_along() -> None:
    text = "def f():\n    osd = FSDP.old(\n        m,  # model\n\n        o,\n    )\n"
    call = "FSDP.old(\n        m,  # model\n\n        o,\n    )"
    assert applied(text, lambda s: wrap(s, f"osd = {call}", call, indent="    ")) == (
        f"def f():\n    {HEADER}\n        osd = FSDP.new(\n            m,  # model\n\n            o,\n        )\n"
    )


def test_lines_that_hang_left_of_the_statement_stay() -> None:
    text = "def f():\n    osd = FSDP.old(\n  m,\n# odd\n  o)\n"
    assert applied(text, lambda s: wrap(s, "osd = FSDP.old(\n  m,\n# odd\n  o)", None, indent="    ")) == (
        f"def f():\n    {HEADER}\n        osd = FSDP.old(\n  m,\n# odd\n  o)\n"
    )


def test_a_backslash_continuation_moves_along() -> None:
    text = "def f():\n    osd = \\\n        FSDP.old(m, o)\n"
    assert applied(text, lambda s: wrap(s, "osd = \\\n        FSDP.old(m, o)", "FSDP.old(m, o)", indent="    ")) == (
        f"def f():\n    {HEADER}\n        osd = \\\n            FSDP.new(m, o)\n"
    )


@pytest.mark.parametrize("quote", ['"""', "'''"])
@pytest.mark.parametrize("prefix", ["", "b", "r", "f", "rb", "rf"])
def test_strings_over_several_lines_keep_their_content(prefix: str, quote: str) -> None:
    literal = f"{prefix}{quote}a\n    b\n        c{quote}"
    text = f"def f():\n    save({literal},\n        FSDP.old(m, o))\n"
    statement = f"save({literal},\n        FSDP.old(m, o))"
    assert applied(text, lambda s: wrap(s, statement, "FSDP.old(m, o)", indent="    ")) == (
        f"def f():\n    {HEADER}\n        save({literal},\n            FSDP.new(m, o))\n"
    )


def test_a_string_continued_by_a_backslash_keeps_its_content() -> None:
    text = "if x:\n    save('a\\\n    b', FSDP.old(m, o))\n"
    statement = "save('a\\\n    b', FSDP.old(m, o))"
    assert applied(text, lambda s: wrap(s, statement, "FSDP.old(m, o)", indent="    ")) == (
        f"if x:\n    {HEADER}\n        save('a\\\n    b', FSDP.new(m, o))\n"
    )


def test_an_f_string_with_nested_quotes_and_lines_keeps_its_content() -> None:
    literal = "f'''a{x!r}\n    {y:>{w}}\n    b'''"
    text = f"if x:\n    save({literal}, FSDP.old(m, o), [\n    1])\n"
    statement = f"save({literal}, FSDP.old(m, o), [\n    1])"
    assert applied(text, lambda s: wrap(s, statement, None, indent="    ")) == (
        f"if x:\n    {HEADER}\n        save({literal}, FSDP.old(m, o), [\n        1])\n"
    )


def test_a_compound_statement_moves_with_its_whole_body() -> None:
    statement = "for x in y:\n        save(FSDP.old(m, o))\n\n    # none\n    else:\n        pass"
    text = f"def f():\n    {statement}\n"
    assert applied(text, lambda s: wrap(s, statement, "FSDP.old(m, o)", indent="    ")) == (
        f"def f():\n    {HEADER}\n        for x in y:\n            save(FSDP.new(m, o))\n\n"
        "        # none\n        else:\n            pass\n"
    )


def test_tabs_stay_tabs() -> None:
    text = "def f():\n\tosd = FSDP.old(m,\n\t\to)\n"
    assert applied(text, lambda s: wrap(s, "osd = FSDP.old(m,\n\t\to)", None, indent="\t", unit="\t")) == (
        f"def f():\n\t{HEADER}\n\t\tosd = FSDP.old(m,\n\t\t\to)\n"
    )


@pytest.mark.parametrize("indent", ["\f", "\f    ", "  \f    "])
def test_a_form_feed_before_the_statement_stays_alone(indent: str) -> None:
    columns = indent.rpartition("\f")[2]
    text = f"if x:\n    pass\n{indent}osd = FSDP.old(m,\n{columns}  \f o)\n"
    statement = f"osd = FSDP.old(m,\n{columns}  \f o)"
    assert applied(text, lambda s: wrap(s, statement, None, indent=indent)) == (
        f"if x:\n    pass\n{indent}{HEADER}\n{columns}    osd = FSDP.old(m,\n{columns}      \f o)\n"
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_new_lines_end_like_the_others(newline: str) -> None:
    text = "import x\nosd = FSDP.old(\n    m, o)\ny = 1".replace("\n", newline)
    statement = "osd = FSDP.old(\n    m, o)".replace("\n", newline)
    call = statement.removeprefix("osd = ")
    expected = f"import x\n{HEADER}\n    osd = FSDP.new(\n        m, o)\ny = 1".replace("\n", newline)
    assert applied(text, lambda s: wrap(s, statement, call)) == expected


def test_mixed_newlines_inside_a_statement_stay() -> None:
    text = "import x\r\nosd = [FSDP.old(m, o),\n 1,\r 2,\r\n 3]\n"
    statement = "osd = [FSDP.old(m, o),\n 1,\r 2,\r\n 3]"
    assert applied(text, lambda s: wrap(s, statement, "FSDP.old(m, o)")) == (
        f"import x\r\n{HEADER}\n    osd = [FSDP.new(m, o),\n     1,\r     2,\r\n     3]\n"
    )


def test_a_file_without_final_newline_gets_none() -> None:
    assert applied("osd = FSDP.old(m, o)", lambda s: wrap(s, "osd = FSDP.old(m, o)", "FSDP.old(m, o)")) == (
        f"{HEADER}\n    osd = FSDP.new(m, o)"
    )


def test_other_encodings_come_back_as_they_were() -> None:
    raw = "# -*- coding: latin-1 -*-\né = 'ü'; osd = FSDP.old(é, o)  # ß\n".encode("latin-1")
    source = Source(raw)
    edits: list[Edit] = [replace(source, "; ", "\n"), wrap(source, "osd = FSDP.old(é, o)", "FSDP.old(é, o)")]
    assert source.encode(apply(source, edits)) == (
        f"# -*- coding: latin-1 -*-\né = 'ü'\n{HEADER}\n    osd = FSDP.new(é, o)  # ß\n".encode("latin-1")
    )


def test_a_byte_order_mark_stays() -> None:
    source = Source(b"\xef\xbb\xbfosd = FSDP.old(m, o)\n")
    new = source.encode(apply(source, [wrap(source, "osd = FSDP.old(m, o)", "FSDP.old(m, o)")]))
    assert new == b"\xef\xbb\xbf" + f"{HEADER}\n    osd = FSDP.new(m, o)\n".encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = F.o(m, o)\nb = F.o(m, p)\n", f"{HEADER}\n    a = F.new(m, o)\n    b = F.new(m, p)\n"),
        (
            "a = F.o(m, o)  # one\n\n# two\n    # odd\nb = F.o(m, p)  # three\n",
            f"{HEADER}\n    a = F.new(m, o)  # one\n\n    # two\n        # odd\n    b = F.new(m, p)  # three\n",
        ),
        (
            "a = F.o(m, o)\nx = 1\nb = F.o(m, p)\n",
            f"{HEADER}\n    a = F.new(m, o)\nx = 1\n{HEADER}\n    b = F.new(m, p)\n",
        ),
        (
            "model = F.o(m, o)\nb = F.o(m, p)\n",
            f"{HEADER}\n    model = F.new(m, o)\n{HEADER}\n    b = F.new(m, p)\n",
        ),
    ],
)
def test_neighbours_with_equal_contexts_share_one(text: str, expected: str) -> None:
    statements = [line for line in text.split("\n") if "F.o" in line]
    plans = [wrap_of(line.partition("  #")[0]) for line in statements]
    assert applied(text, *plans) == expected
    assert applied(text, *reversed(plans)) == expected


def wrap_of(statement: str, **options: str) -> Callable[[Source], Wrap]:
    return lambda s: wrap(s, statement, statement.partition("= ")[2], **options)  # type: ignore[arg-type]


def test_comments_left_of_the_block_stay_where_they_are() -> None:
    text = "if x:\n    a = F.o(m, o)\n# off = F.o(m, p)\n    b = F.o(m, p)\n"
    plans = [wrap_of(line, indent="    ") for line in ("a = F.o(m, o)", "b = F.o(m, p)")]
    assert applied(text, *plans) == (
        f"if x:\n    {HEADER}\n        a = F.new(m, o)\n# off = F.o(m, p)\n        b = F.new(m, p)\n"
    )


def test_neighbours_with_different_contexts_do_not_share() -> None:
    assert (
        applied(
            "a = F.o(m, o)\nb = F.o(m, p)\n",
            wrap_of("a = F.o(m, o)"),
            lambda s: wrap(s, "b = F.o(m, p)", "F.o(m, p)", header=SHARDED),
        )
        == f"{HEADER}\n    a = F.new(m, o)\n{HEADER.replace('FULL', 'SHARDED')}\n    b = F.new(m, p)\n"
    )


def test_neighbours_in_different_blocks_do_not_share() -> None:
    text = "if x:\n    a = F.o(m, o)\nb = F.o(m, p)\n"
    assert applied(text, wrap_of("a = F.o(m, o)", indent="    "), wrap_of("b = F.o(m, p)")) == (
        f"if x:\n    {HEADER}\n        a = F.new(m, o)\n{HEADER}\n    b = F.new(m, p)\n"
    )


def test_two_calls_of_one_statement_share_its_context() -> None:
    text = "a = [F.o(m, o), F.o(m, p)]\n"
    plans = [lambda s, c=c: wrap(s, text.strip(), c) for c in ("F.o(m, o)", "F.o(m, p)")]
    assert applied(text, *plans) == f"{HEADER}\n    a = [F.new(m, o), F.new(m, p)]\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_one_line_body_is_split_first(newline: str) -> None:
    text = f"if x: osd = F.o(m, o)  # why{newline}y = 1{newline}"
    assert applied(
        text, lambda s: replace(s, ": ", ":\n    "), wrap_of("osd = F.o(m, o)", indent="    ")
    ) == f"if x:\n    {HEADER}\n        osd = F.new(m, o)  # why\ny = 1\n".replace("\n", newline)


def test_a_body_right_behind_its_colon_is_split_by_an_insertion() -> None:
    def at_body(source: Source) -> Edit:
        return Replace(Span(5, 5), "\n    ")

    assert applied("if x:osd = F.o(m, o)\n", at_body, wrap_of("osd = F.o(m, o)", indent="    ")) == (
        f"if x:\n    {HEADER}\n        osd = F.new(m, o)\n"
    )
    assert applied("if x:g(F.o(m, o))\n", at_body, lambda s: hoist(s, "g(", "F.o(m, o)", indent="    ")) == (
        f"if x:\n    {HEADER}\n        state = F.new(m, o)\n    g(state)\n"
    )


def test_statements_on_one_line_are_split_and_share() -> None:
    text = "def f():\n    z = 1; a = F.o(m, o); b = F.o(m, p); c = 2\n"
    assert (
        applied(
            text,
            lambda s: semicolon(s, 1),
            lambda s: semicolon(s, 2),
            lambda s: semicolon(s, 3),
            wrap_of("a = F.o(m, o)", indent="    "),
            wrap_of("b = F.o(m, p)", indent="    "),
        )
        == f"def f():\n    z = 1\n    {HEADER}\n        a = F.new(m, o)\n        b = F.new(m, p)\n    c = 2\n"
    )


def semicolon(source: Source, occurrence: int) -> Edit:
    """What follows the semicolon goes on a line of its own, four columns in."""
    return Replace(span(source, "; ", occurrence), "\n    ")


def test_equal_edits_count_once() -> None:
    plan = wrap_of("a = F.o(m, o)")
    split = [lambda s: replace(s, "; ", "\n")] * 2
    assert applied("x; a = F.o(m, o)\n", plan, plan, *split) == f"x\n{HEADER}\n    a = F.new(m, o)\n"


def test_decorators_and_what_follows_are_left_alone() -> None:
    text = "@d\ndef f():\n    return F.o(m, o)\n\n@d\nclass C: ...\n"
    assert applied(text, lambda s: wrap(s, "return F.o(m, o)", "F.o(m, o)", indent="    ")) == (
        f"@d\ndef f():\n    {HEADER}\n        return F.new(m, o)\n\n@d\nclass C: ...\n"
    )


def test_a_hoisted_call_is_evaluated_in_front_of_its_statement() -> None:
    text = "def f():\n    opt.load(F.o(m, o))  # load\n"
    assert applied(text, lambda s: hoist(s, "opt.load", "F.o(m, o)", header=WIDE, indent="    ")) == (
        "def f():\n"
        "    with FSDP.state_dict_type(\n"
        "        model,\n"
        "        StateDictType.FULL_STATE_DICT,\n"
        "        optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),\n"
        "    ):\n"
        "        state = F.new(m, o)\n"
        "    opt.load(state)  # load\n"
    )


def test_hoists_in_front_of_one_statement_share_equal_contexts_in_the_order_of_the_calls() -> None:
    text = "g(F.o(m, o), F.o(m, p), F.o(m, q))\n"
    plans = [
        lambda s: hoist(s, "g(", "F.o(m, p)", "two"),
        lambda s: hoist(s, "g(", "F.o(m, o)", "one"),
        lambda s: hoist(s, "g(", "F.o(m, q)", "three", header=SHARDED),
    ]
    assert applied(text, *plans) == (
        f"{HEADER}\n    one = F.new(m, o)\n    two = F.new(m, p)\n"
        f"{HEADER.replace('FULL', 'SHARDED')}\n    three = F.new(m, q)\n"
        "g(one, two, three)\n"
    )


def test_contexts_between_others_keep_the_order_of_evaluation() -> None:
    plans = [
        lambda s: hoist(s, "g(", "F.o(m, o)", "one"),
        lambda s: hoist(s, "g(", "F.o(m, p)", "two", header=SHARDED),
        lambda s: hoist(s, "g(", "F.o(m, q)", "three"),
    ]
    assert applied("g(F.o(m, o), F.o(m, p), F.o(m, q))", *plans).count("with ") == 3


@pytest.mark.parametrize(
    ("text", "call", "expected"),
    [
        (
            "def f():\n    opt.load(\n        F.o(\n            m,\n            o,\n        )\n    )\n",
            "F.o(\n            m,\n            o,\n        )",
            "        state = F.new(\n            m,\n            o,\n        )\n    opt.load(\n        state\n    )\n",
        ),
        (
            "def f():\n    opt.load(F.o(\n        m, '''\n        x''',\n        o))\n",
            "F.o(\n        m, '''\n        x''',\n        o)",
            "        state = F.new(\n            m, '''\n        x''',\n            o)\n    opt.load(state)\n",
        ),
        (
            "def f():\n    opt.load(F  # the class\n      .o(m, o))\n",
            "F  # the class\n      .o(m, o)",
            "        state = (F  # the class\n          .new(m, o))\n    opt.load(state)\n",
        ),
    ],
)
def test_lines_of_a_hoisted_call_are_indented_as_deep_below_it_as_they_were(
    text: str, call: str, expected: str
) -> None:
    keep = 3 if "'''" in call else 2
    assert applied(
        text, lambda s: Hoist(span(s, "opt.load").start, FULL, "    ", "    ", "state", renamed(s, call, keep=keep))
    ) == (f"def f():\n    {HEADER}\n{expected}")


def test_the_fresh_name_does_not_melt_into_a_keyword() -> None:
    assert applied("g(F.o(m, o)if x else y)", lambda s: hoist(s, "g(", "F.o(m, o)")) == (
        f"{HEADER}\n    state = F.new(m, o)\ng(state if x else y)"
    )


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_a_hoist_uses_the_newline_of_the_file_and_the_columns_behind_a_form_feed(newline: str) -> None:
    text = f"if x:{newline}    y{newline}\f    g(F.o(m, o))"
    assert applied(text, lambda s: hoist(s, "g(", "F.o(m, o)", indent="\f    ")) == (
        f"if x:{newline}    y{newline}\f    {HEADER}{newline}        state = F.new(m, o){newline}    g(state)"
    )


def test_a_call_alone_is_rewritten_in_its_place() -> None:
    source = Source(b"with ctx:\n    osd = F.o(m, o, rank0_only=False)\n")
    edit = RewriteCall(Span(20, 47), "new", arguments(0, 1))
    assert source.segment(edit.span) == "F.o(m, o, rank0_only=False)"
    assert apply(source, [edit]) == b"with ctx:\n    osd = F.new(m, o)\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_block_takes_the_place_of_its_statement(newline: str) -> None:
    text = "  if x:\n      a = [\n          1]\n      b = '''\n      c'''\n  else:\n      d\n  e\n".replace(
        "\n", newline
    )
    source = Source(f"if 1:{newline}{text}".encode())
    end = span(source, "      d").end
    block = Span(span(source, "a = [").start, span(source, "c'''").end)
    edit = Unwrap(Span(span(source, "if x").start, end), block, "      ", "  ")
    expected = "  a = [\n      1]\n  b = '''\n      c'''\n  e\n".replace("\n", newline)
    assert apply(source, [edit]).decode() == f"if 1:{newline}{expected}"

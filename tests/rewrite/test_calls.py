from __future__ import annotations

import ast
import io
import random
import tokenize

import pytest

from fsdp_migrate.edits import RewriteCall
from fsdp_migrate.rewrite.calls import rewrite_call, stands_alone
from fsdp_migrate.source import Span
from fsdp_migrate.splicing import RewriteError

from .plans import arguments

LOAD = (("model", 1), "optim=optimizer", ("optim_state_dict", 0))


def rewritten(text: str, *plan: int | str | tuple[str, int], attribute: str | None = "new") -> str:
    return rewrite_call(text, RewriteCall(Span(0, len(text)), attribute, arguments(*plan)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FSDP.old(model, optim)", "FSDP.new(model, optim)"),
        ("a.b.FSDP.old(model, optim)", "a.b.FSDP.new(model, optim)"),
        ("FSDP . old (model,optim)", "FSDP . new (model,optim)"),
        ("type(model).old(model, optim)", "type(model).new(model, optim)"),
        ("models[0].old(model, optim)", "models[0].new(model, optim)"),
        ("FSDP\n    .old(model, optim)", "FSDP\n    .new(model, optim)"),
        ("FSDP  # the class\n    .old(model, optim)", "FSDP  # the class\n    .new(model, optim)"),
        ("(FSDP.old)(model, optim)", "(FSDP.new)(model, optim)"),
        ("FSDP.old( model , optim )", "FSDP.new( model , optim )"),
        ("FSDP.old(\n    model,\n    optim,\n)", "FSDP.new(\n    model,\n    optim,\n)"),
        ("FSDP.old(\\\n    model, optim)", "FSDP.new(\\\n    model, optim)"),
        ("FSDP.old((model), (optim))", "FSDP.new((model), (optim))"),
        ("FSDP.old(model,\f optim)", "FSDP.new(model,\f optim)"),
        ("FSDP.old(model,\n\f    optim)", "FSDP.new(model,\n\f    optim)"),
    ],
)
def test_the_last_name_of_the_callee_changes_and_nothing_else(text: str, expected: str) -> None:
    assert rewritten(text, 0, 1) == expected


def test_no_attribute_keeps_the_callee() -> None:
    assert rewritten("FSDP.rekey(a, b)", 1, 0, attribute=None) == "FSDP.rekey(b, a)"


@pytest.mark.parametrize(
    ("text", "plan", "expected"),
    [
        ("f.o(m, o, rank0_only=True)", (0, 1), "f.new(m, o)"),
        ("f.o(m, o, rank0_only=True,)", (0, 1), "f.new(m, o,)"),
        ("f.o(m, o, None, g)", (0, 1, ("group", 3)), "f.new(m, o, group=g)"),
        ("f.o(m, o, group=g)", (0, 1, ("group", 2)), "f.new(m, o, group=g)"),
        ("f.o(m, o, group = g)", (0, 1, ("group", 2)), "f.new(m, o, group = g)"),
        ("f.o(osd = s, m = x)", (("state", 0), ("m", 1)), "f.new(state = s, m = x)"),
        ("f.o(model=m, optim=o)", (0, 1), "f.new(m, o)"),
        ("f.o(\n    m,\n    o,\n    rank0_only=True,\n)", (0, 1), "f.new(\n    m,\n    o,\n)"),
        ("f.o(\n    m,\n    o,\n    rank0_only=True\n)", (0, 1), "f.new(\n    m,\n    o\n)"),
        ("f.o(m,\n    o,\n    r)", (0, 1), "f.new(m,\n    o)"),
        ("f.o(\n    m,\n    o, i,\n    group=g)", (0, 1, ("group", 3)), "f.new(\n    m,\n    o,\n    group=g)"),
        ("f.o(\n    m, o,\n    i, g)", (0, 1, ("group", 3)), "f.new(\n    m, o,\n    group=g)"),
        ("f.o(\n    i,\n    m,\n)", (("model", 1),), "f.new(\n    model=m,\n)"),
        ("f.o(i, m)", (1,), "f.new(m)"),
        ("f.o(i,\n    m)", (1,), "f.new(m)"),
        ("f.o(i)", (), "f.new()"),
        ("f.o(\n    m\n    , i\n    , g\n)", (0, 2), "f.new(\n    m\n    , g\n)"),
    ],
)
def test_dropped_arguments_go_with_their_comma(text: str, plan: tuple[int, ...], expected: str) -> None:
    assert rewritten(text, *plan) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f.o(osd, m)", "f.new(model=m, optim=optimizer, optim_state_dict=osd)"),
        ("f.o(osd, m,)", "f.new(model=m, optim=optimizer, optim_state_dict=osd,)"),
        ("f.o(full_optim_state_dict=osd, model=m)", "f.new(model=m, optim=optimizer, optim_state_dict=osd)"),
        (
            "f.o(\n    osd,\n    m,\n)",
            "f.new(\n    model=m,\n    optim=optimizer,\n    optim_state_dict=osd,\n)",
        ),
        ("f.o(\n    osd,\n    m\n)", "f.new(\n    model=m,\n    optim=optimizer,\n    optim_state_dict=osd\n)"),
        ("f.o(\n    osd, m\n)", "f.new(\n    model=m, optim=optimizer, optim_state_dict=osd\n)"),
        ("f.o(osd,\n    m)", "f.new(model=m,\n    optim=optimizer,\n    optim_state_dict=osd)"),
        ("f.o(osd, m, None)", "f.new(model=m, optim=optimizer, optim_state_dict=osd)"),
        ("f.o(\n    osd\n    , m)", "f.new(\n    model=m\n    , optim=optimizer\n    , optim_state_dict=osd)"),
        ("f.o(g(\n    1,  # one\n), m)", "f.new(model=m, optim=optimizer, optim_state_dict=g(\n    1,  # one\n))"),
        ("f.o(osd,\r\n    m)", "f.new(model=m,\r\n    optim=optimizer,\r\n    optim_state_dict=osd)"),
        ("f.o(osd,\r    m)", "f.new(model=m,\r    optim=optimizer,\r    optim_state_dict=osd)"),
    ],
)
def test_reordered_arguments_take_the_places_of_the_old_ones(text: str, expected: str) -> None:
    assert rewritten(text, *LOAD) == expected


def test_places_are_filled_when_fewer_arguments_are_left() -> None:
    assert rewritten("f.o(\n    a,\n    b,\n    c,\n)", 2, 0) == "f.new(\n    c,\n    a,\n)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "f.o(\n    osd,  # the state\n    m,  # the model\n)",
            "f.new(\n    s=osd,  # the state\n    m=m,  # the model\n    optim=o,\n)",
        ),
        (
            "f.o(\n    osd,  # the state\n    m  # the model\n)",
            "f.new(\n    s=osd,  # the state\n    m=m,  # the model\n    optim=o\n)",
        ),
        (
            "f.o(  # load\n    osd,\n    # where to\n    m,\n    # that is all\n)",
            "f.new(  # load\n    s=osd,\n    # where to\n    m=m,\n    optim=o,\n    # that is all\n)",
        ),
        ("f.o(osd, m  # the model\n)", "f.new(s=osd, m=m,  # the model\noptim=o\n)"),
        ("f.o(\n    osd, m  # both\n)", "f.new(\n    s=osd, m=m,  # both\n    optim=o\n)"),
        ("f.o(\n    osd\n    , m  # the model\n)", "f.new(\n    s=osd\n    , m=m  # the model\n    , optim=o\n)"),
        ("f.o(osd,  # state\r\n    m)", "f.new(s=osd,  # state\r\n    m=m,\r\n    optim=o)"),
    ],
)
def test_an_added_argument_leaves_comments_with_theirs(text: str, expected: str) -> None:
    assert rewritten(text, ("s", 0), ("m", 1), "optim=o") == expected


@pytest.mark.parametrize(
    ("text", "kept", "expected"),
    [
        ("f.o(\n    a,  # first\n    b,\n    c,\n)", (0, 2), "f.new(\n    a,  # first\n    c,\n)"),
        ("f.o(\n    a,  # first\n    b\n)", (0,), "f.new(\n    a  # first\n)"),
        ("f.o(a,  # first\n    b)", (0,), "f.new(a  # first\n    )"),
        ("f.o(\n    a,\n    b,\n    # third\n    c,\n)", (0, 2), "f.new(\n    a,\n    # third\n    c,\n)"),
        ("f.o(\n    a,\n    # second\n    b,\n)", (1,), "f.new(\n    # second\n    b,\n)"),
        ("f.o(  # call\n    a,\n    b,\n)", (1,), "f.new(  # call\n    b,\n)"),
        ("f.o(\n    a,  # gone \\\n    b,\n)", (1,), "f.new(\n    # gone \\\n    b,\n)"),
        ("f.o(\n    a,\n    b  # gone\n)", (0,), "f.new(\n    a\n    # gone\n)"),
        ("f.o(\n    a  # gone\n)", (), "f.new(\n      # gone\n)"),
    ],
)
def test_no_comment_goes_with_a_dropped_argument(text: str, kept: tuple[int, ...], expected: str) -> None:
    assert rewritten(text, *kept) == expected


def test_a_new_argument_may_come_first_or_between() -> None:
    assert rewritten("f.o(a, b)", "x", 0, "y=1", 1) == "f.new(x, a, y=1, b)"
    assert (
        rewritten("f.o(\n    # about a\n    a,  # a\n    b\n)", "x", 0, "y=1", 1)
        == "f.new(\n    x,\n    # about a\n    a,  # a\n    y=1,\n    b\n)"
    )
    assert rewritten("f.o(a,\n    b)", "x", 0, 1) == "f.new(x,\n    a,\n    b)"
    assert rewritten("f.o(a, b,\n    c)", 0, 1, "y", 2) == "f.new(a, b, y,\n    c)"
    assert rewritten("f.o(a, b,  # b\n    c)", 0, 1, "y", 2) == "f.new(a, b,  # b\n    y, c)"
    assert rewritten("f.o()", "x", "y=1") == "f.new(x, y=1)"


def test_values_that_need_parentheses_beside_others_get_them() -> None:
    assert rewritten("f.o(x for x in y)", 0) == "f.new(x for x in y)"
    assert rewritten("f.o(x for x in y)", 0, "optim=o") == "f.new((x for x in y), optim=o)"
    assert rewritten("f.o(x for x in y)", ("model", 0)) == "f.new(model=(x for x in y))"
    assert rewritten("f.o(m := g(), o)", ("model", 0), 1) == "f.new(model=(m := g()), o)"
    assert rewritten("f.o(m if m else n, lambda: o)", ("m", 0), ("o", 1)) == "f.new(m=m if m else n, o=lambda: o)"


def test_starred_arguments_stay() -> None:
    assert rewritten("f.o(*args, ** kwargs)", 0, 1) == "f.new(*args, ** kwargs)"


def test_strings_over_several_lines_keep_their_content() -> None:
    text = "f.o('''a\r\nb\rc''', m)"
    assert rewritten(text, 1, 0) == "f.new(m, '''a\r\nb\rc''')"


def test_plans_that_cannot_be_carried_out_are_errors() -> None:
    with pytest.raises(RewriteError, match="cannot be reordered"):
        rewritten("f.o(\n    a,  # a\n    b)", 1, 0)
    with pytest.raises(RewriteError, match="a call was expected"):
        rewritten("f.o", 0)
    with pytest.raises(RewriteError, match="no attribute"):
        rewritten("o(a)", 0)
    with pytest.raises(RewriteError, match="keyword"):
        rewritten("f.o(*a)", ("x", 0))
    with pytest.raises(RewriteError, match="cannot read the call"):
        rewritten("f.o(", 0)


def test_a_callee_over_several_lines_does_not_stand_alone() -> None:
    assert stands_alone("FSDP.old(\n    a)")
    assert not stands_alone("FSDP\n    .old(a)")


def _random_call(rng: random.Random) -> tuple[str, list[str]]:
    spaces = ["", " ", "\n    ", "  # c{}\n    ", "\n\n    # own{}\n    ", " \\\n  ", "\n\t"]

    def space() -> str:
        return rng.choice(spaces).format(rng.randrange(100))

    values = [
        rng.choice(["a", "(b)", "g(1, 2)", "k=c", "k = [\n  1]", "'''x\n  y'''"]) for _ in range(rng.randrange(1, 5))
    ]
    values = [v.replace("k", f"k{i}", 1) if v.startswith("k") else v for i, v in enumerate(values)]
    values.sort(key=lambda v: v.startswith("k"))
    text = "f.o(" + space()
    for i, value in enumerate(values):
        last = i == len(values) - 1
        text += value + space() + ("" if last and rng.random() < 0.5 else "," + space())
    return text + ")", values


def _comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sorted(token.string for token in tokens if token.type == tokenize.COMMENT)


@pytest.mark.parametrize("seed", range(20))
def test_any_layout_gives_the_planned_arguments_and_keeps_every_comment(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        text, values = _random_call(rng)
        kept = [i for i in range(len(values)) if rng.random() < 0.7]
        if "#" not in text:
            rng.shuffle(kept)
        plan: list[int | str | tuple[str, int]] = [(f"p{i}", i) for i in kept]
        for new in range(rng.randrange(3)):
            plan.insert(rng.randrange(len(plan) + 1), f"n{new}=z")
        result = rewritten(text, *plan)
        expected = [
            (f"p{i[1]}", _value(values[i[1]])) if isinstance(i, tuple) else (str(i).partition("=")[0], _value("z"))
            for i in plan
        ]
        call = ast.parse(result, mode="eval").body
        assert isinstance(call, ast.Call)
        assert [(keyword.arg, ast.dump(keyword.value)) for keyword in call.keywords] == expected
        assert _comments(result) == _comments(text)


def _value(argument: str) -> str:
    call = ast.parse(f"f({argument})", mode="eval").body
    assert isinstance(call, ast.Call)
    return ast.dump([*call.args, *(keyword.value for keyword in call.keywords)][0])


@pytest.mark.parametrize("comment", ["", "  # why", f"  # {'long ' * 200}"])
def test_calls_that_are_written_alike_are_each_rewritten_by_their_own_plan(comment: str) -> None:
    text = f"FSDP.old(\n    model,{comment}\n    optim,\n)"
    for _ in range(2):
        assert rewritten(text, 0, 1) == text.replace("old", "new")
        assert rewritten(text, 0, 1, "more=1") == text.replace("old", "new").replace(
            "optim,\n", "optim,\n    more=1,\n"
        )
        assert rewritten(text, ("m", 0), 1, attribute=None) == text.replace("model", "m=model")

from __future__ import annotations

import pytest

from fsdp_migrate.workspace.notebook.magics import python_view

MASKED = [
    ("!ls", "-ls"),
    ("!!ls -l\n", "- ls, l\n"),
    ("?obj", "-obj"),
    ("obj.method??", "obj,method  "),
    ("%%time?", "- time "),
    ("%lsmagic\nx = 1", "-lsmagic\nx = 1"),
    ("%autoreload 2", "-autoreload  "),
    ("!123\n", "_   \n"),
    ("a = !ls {folder}", "a = -ls+ folder "),
    ("a, b = %magic x", "a, b = -magic+x"),
    ("d['k'] = !pwd", "d['k'] = -pwd"),
    ("!pip install a \\\n    b\nx = 1", "-pip,install,a,\\\n    b\nx = 1"),
    ("if a:\n    %run -i \u00e9.py\nelse:\n    b", "if a:\n    -run, i,\u00e9,py\nelse:\n    b"),
    ("!echo it's (\ny", "-echo,it,s  \ny"),
    ("/f x\n;g y", "-f,x\n-g,y"),
    ("%time x = f(y)\nx", "_    ;x = f(y)\nx"),
    ("%timeit -n 10 -r3 f(x)", "_                ;f(x)"),
    ("%time for i in x: pass", "-time,    i,   x      "),
    ("%%time\nx = 1\n!ls", "- time\nx = 1\n-ls"),
    ("%%capture out\n%%time\nx", "- capture,out\n- time\nx"),
    ("%%bash\necho it's (\n", "      \n           \n"),
    ("\n\n%%writefile a.py\nimport b", "\n\n                \n        "),
    ("%sql select 1\nfrom x where y", "             \n              "),
    ("!a\rx = 1\r", "-a\rx = 1\r"),
]


@pytest.mark.parametrize(("cell", "text"), MASKED)
def test_magics_give_way_to_text_of_the_same_size(cell: str, text: str) -> None:
    view = python_view(cell)
    assert (view.text, view.error, view.prefix) == (text, None, "")
    assert len(view.text.encode()) == len(cell.encode())


@pytest.mark.parametrize(
    "cell",
    [
        "s = '''\n%time x\n!ls\n'''\n",
        "f(a\n%b\n, c)",
        "# what is this?",
        "x = 5 % y",
        "await f()\nasync with a as b:\n    pass",
        "return",
        "",
        "  # indented",
    ],
)
def test_what_python_reads_stays_as_it_is(cell: str) -> None:
    view = python_view(cell)
    assert (view.text, view.masked, view.error) == (cell, (), None)


def test_text_that_looks_like_a_magic_inside_a_statement_is_none() -> None:
    assert python_view("s = '''\n!ls\n'''\nf(a\n%b)\n!ls").text == "s = '''\n!ls\n'''\nf(a\n%b)\n-ls"


def test_a_cell_whose_first_line_is_indented_is_a_block() -> None:
    view = python_view("    a = 1\n    !ls\n")
    assert (view.prefix, view.text, view.error) == ("if True:\n", "    a = 1\n    -ls\n", None)


def test_prompts_of_the_python_shell_are_passed_over() -> None:
    view = python_view(">>> for x in y:\n...     f(x)\n...\n>>> z")
    assert (view.prefix, view.text, view.error) == ("if True:\n", "    for x in y:\n        f(x)\n   \n    z", None)


def test_half_a_surrogate_pair_is_another_character_of_its_size() -> None:
    view = python_view("x = '\ud83d'\n!ls")
    assert (view.text, view.error) == ("x = '\ufffd'\n-ls", None)


@pytest.mark.parametrize(
    ("cell", "text", "line"),
    [
        ("x = = 2\nfoo bar\n  q", "x      \nfoo,bar\n- q", 1),
        ("!ls\nprint('a'\nx", "-ls\nprint, a \nx", 2),
        ("x = 1\0", "x     ", 1),
        ("y \\", "y  ", 1),
    ],
)
def test_a_cell_that_does_not_parse_keeps_its_names_alone(cell: str, text: str, line: int) -> None:
    view = python_view(cell)
    assert view.text == text
    assert view.error is not None
    assert (view.error.lineno or 1) == line

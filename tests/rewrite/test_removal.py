from __future__ import annotations

import ast

import pytest

from fsdp_migrate.rewrite.removal import removed
from fsdp_migrate.source import Source
from fsdp_migrate.splicing import RewriteError, splice

from .plans import span


def without(text: str, *statements: str) -> str:
    source = Source(text.encode())
    result = splice(source.data, removed(source, {span(source, statement) for statement in statements})).decode()
    ast.parse(result)
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import a\nfrom m import A\nb()\n", "import a\nb()\n"),
        ("import a\r\nfrom m import A\r\nb()\r\n", "import a\r\nb()\r\n"),
        ("import a\rfrom m import A\rb()\r", "import a\rb()\r"),
        ("import a\nfrom m import A  \t\nb()\n", "import a\nb()\n"),
        ("import a\n\ffrom m import A\nb()\n", "import a\n\fb()\n"),
        ("from m import A;\nb()\n", "b()\n"),
        ("if x:\n    from m import A\n    b()\n", "if x:\n    b()\n"),
        ("b()\nfrom m import A", "b()\n"),
        ("from m import A", ""),
        ("b()\nif x:\n    from m import A", "b()\nif x:\n    pass"),
    ],
)
def test_a_statement_alone_goes_with_its_line(text: str, expected: str) -> None:
    assert without(text, "from m import A") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import a; from m import A\n", "import a\n"),
        ("import a ;  from m import A  # why\n", "import a  # why\n"),
        ("from m import A; import a\n", "import a\n"),
        ("import a; from m import A; b()\n", "import a; b()\n"),
        ("if x: from m import A; b()\n", "if x: b()\n"),
        ("if x: b(); from m import A\n", "if x: b()\n"),
    ],
)
def test_others_on_the_line_stay(text: str, expected: str) -> None:
    assert without(text, "from m import A") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("try:\n    from m import A\nexcept E:\n    b()\n", "try:\n    pass\nexcept E:\n    b()\n"),
        ("try:\n    b()\nexcept E:\n    from m import A  # old\n", "try:\n    b()\nexcept E:\n    pass  # old\n"),
        ("if x: from m import A\n", "if x: pass\n"),
        ("if x:\n    b()\nelse:\n    from m import A\n", "if x:\n    b()\nelse:\n    pass\n"),
        ("match x:\n    case 1:\n        from m import A\n", "match x:\n    case 1:\n        pass\n"),
        ("def f():\n    from m import A\n", "def f():\n    pass\n"),
    ],
)
def test_a_block_that_would_be_empty_passes(text: str, expected: str) -> None:
    assert without(text, "from m import A") == expected


def test_a_block_that_loses_all_of_several_statements_passes_once() -> None:
    text = "try:\n    from m import A\n    from n import B\nexcept E: c()\n"
    assert without(text, "from m import A", "from n import B") == "try:\n    pass\nexcept E: c()\n"
    assert without("if x: from m import A; from n import B\n", "from m import A", "from n import B") == "if x: pass\n"
    assert without(text, "from n import B") == "try:\n    from m import A\nexcept E: c()\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f():\n    from m import A\n\n    b()\n", "def f():\n    b()\n"),
        ("def f():\n    '''Doc.'''\n    from m import A\n\n    b()\n", "def f():\n    '''Doc.'''\n\n    b()\n"),
        ("def f():\n    '''Doc.'''\n\n    from m import A\n\n    b()\n", "def f():\n    '''Doc.'''\n\n    b()\n"),
        ("import a\n\nfrom m import A\n\n\ndef f(): ...\n", "import a\n\n\ndef f(): ...\n"),
        ("import a\nfrom m import A\n\n\ndef f(): ...\n", "import a\n\n\ndef f(): ...\n"),
        ("from m import A\n\nb()\n", "b()\n"),
        ("import a\n\nfrom m import A\nb()\n", "import a\n\nb()\n"),
    ],
)
def test_no_run_of_blank_lines_grows_and_no_block_opens_with_one(text: str, expected: str) -> None:
    assert without(text, "from m import A") == expected


@pytest.mark.parametrize(
    ("text", "statement", "expected"),
    [
        ("from m import A  # a\nb()\n", "from m import A", "# a\nb()\n"),
        (
            "if x:\n    from m import (A  # a\n    )\n    b()\n",
            "from m import (A  # a\n    )",
            "if x:\n    # a\n    b()\n",
        ),
        (
            "if x:\n    from m import (  # m\n        A,  # a\n    )  # end\n    b()\n",
            "from m import (  # m\n        A,  # a\n    )",
            "if x:\n    # m\n    # a\n    # end\n    b()\n",
        ),
        (
            "if x:\n    from m import (  # m\n        A\n    )  # end\n",
            "from m import (  # m\n        A\n    )",
            "if x:\n    # m\n    pass  # end\n",
        ),
    ],
)
def test_comments_of_a_removed_statement_stay(text: str, statement: str, expected: str) -> None:
    assert without(text, statement) == expected


def test_comments_inside_a_statement_that_shares_its_line_are_an_error() -> None:
    with pytest.raises(RewriteError, match="shares its line"):
        without("from m import (A  # a\n); b()\n", "from m import (A  # a\n)")

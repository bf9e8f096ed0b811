from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability, Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

IMPORT = "from torch.distributed.fsdp import FlatParameter\n"
NEW = 'getattr(p, "_fsdp_flattened", False)'


def program(test: str, head: str = IMPORT, form: str = "if {}:\n        use(p)") -> str:
    return f"{head}import torch\n\n\ndef f(p, ps, ok, A, B):\n    {form.format(test)}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("type(p) is FlatParameter", NEW),
        ("type(p) == FlatParameter", NEW),
        ("FlatParameter is type(p)", NEW),
        ("p.__class__ is FlatParameter", NEW),
        ("p.__class__ == FlatParameter", NEW),
        ("type(p) is not FlatParameter", f"not {NEW}"),
        ("type(p) != FlatParameter", f"not {NEW}"),
        ("type(p) in (FlatParameter,)", NEW),
        ("type(p) not in (FlatParameter,)", f"not {NEW}"),
        ("issubclass(type(p), FlatParameter)", NEW),
        ('type(p).__name__ == "FlatParameter"', NEW),
        ('p.__class__.__name__ != "FlatParameter"', f"not {NEW}"),
    ],
)
def test_a_test_of_the_type_becomes_the_attribute_test(before: str, after: str) -> None:
    head = IMPORT if "FlatParameter" in before.replace('"FlatParameter"', "") else ""
    (finding,) = lint(program(before, head), "FSDP302")
    assert (finding.applicability, finding.severity) == (Applicability.UNSAFE, Severity.CHANGES)
    assert "since torch 2.1" in (finding.reason or "")
    check_transformed(program(before, head), program(after, ""), "FSDP302", unsafe=True)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("return ok and {}", f"not {NEW}"),
        ("return [p for p in ps if {}]", f"not {NEW}"),
        ("return not {}", f"not {NEW}"),
        ("x = 1 if {} else 2", f"not {NEW}"),
        ("return any({} for p in ps)", f"not {NEW}"),
    ],
)
def test_a_negated_test_keeps_its_place_in_the_expression(form: str, text: str) -> None:
    before, new = program("type(p) is not FlatParameter", form=form), program(text, "", form=form)
    check_transformed(before, new, "FSDP302", unsafe=True)


@pytest.mark.parametrize(
    ("test", "form", "reason"),
    [
        ("type(p) is FlatParameter", "if {}:\n        use(p._fqns)", "needs a FlatParameter"),
        ("type(p) is FlatParameter", "x = {}", "decide which test you need"),
        ("type(p) is FlatParameter", "return sum({} for p in ps) == 2", "decide which test you need"),
        ("A is type(p) is FlatParameter", "return {}", "chained comparison"),
        ("type(p) in (FlatParameter, A)", "return {}", "other classes besides FlatParameter"),
        ("type(p) in (FlatParameter, *A)", "return {}", "other classes besides FlatParameter"),
        ("type(p).__name__ in ('FlatParameter', 'A')", "return {}", "other classes besides FlatParameter"),
        ("issubclass(type(p), (FlatParameter, A))", "return {}", "other classes besides FlatParameter"),
        ("type(p) is FlatParameter", 'return f"{{{}}}"', "f-string"),
    ],
)
def test_what_cannot_be_written_is_manual(test: str, form: str, reason: str) -> None:
    check_manual(program(test, form=form), "FSDP302", reason)


@pytest.mark.parametrize(
    "text",
    [
        "from fairscale.nn.misc import FlatParameter\nx = type(p) is FlatParameter\n",
        "from fairscale.nn import FSDP\nx = type(p).__name__ == 'FlatParameter'\n",
        "class FlatParameter:\n    pass\nx = type(p).__name__ == 'FlatParameter'\n",
        "from .flat_param import FlatParameter\nx = type(p) is FlatParameter\n",
        IMPORT + "x = isinstance(p, FlatParameter)\n",
        IMPORT + "x = type(p) is torch.nn.Parameter\n",
        IMPORT + "x = p is FlatParameter\n",
        IMPORT + "x = issubclass(p, FlatParameter)\n",
        "x = name == 'FlatParameter'\n",
        IMPORT + "def f(type, p):\n    return type(p) is FlatParameter\n",
    ],
)
def test_what_only_looks_alike_is_left_alone(text: str) -> None:
    check_noop(text, "FSDP302")


def test_below_torch_2_1_the_test_still_works() -> None:
    check_noop(program("type(p) is FlatParameter"), "FSDP302", torch=">=1.13,<2.1")

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
        ("type(p) in [FlatParameter, A]", f"{NEW} or type(p) is A"),
        ("type(p) in {FlatParameter, A, B}", f"{NEW} or type(p) in (A, B)"),
        ("type(p) not in (A, FlatParameter)", f"not ({NEW} or type(p) is A)"),
        ("issubclass(type(p), FlatParameter)", NEW),
        ("issubclass(p.__class__, (FlatParameter, A))", f"{NEW} or issubclass(p.__class__, A)"),
        ('type(p).__name__ == "FlatParameter"', NEW),
        ('p.__class__.__name__ != "FlatParameter"', f"not {NEW}"),
        ('type(p).__qualname__ in ("FlatParameter", "A")', f'{NEW} or type(p).__qualname__ == "A"'),
    ],
)
def test_a_test_of_the_type_becomes_the_attribute_test(before: str, after: str) -> None:
    head = IMPORT if "FlatParameter" in before.replace('"FlatParameter"', "") else ""
    (finding,) = lint(program(before, head), "FSDP302")
    assert (finding.applicability, finding.severity) == (Applicability.UNSAFE, Severity.CHANGES)
    assert "since torch 2.1" in (finding.reason or "")
    check_transformed(program(before, head), program(after, ""), "FSDP302", unsafe=True)


@pytest.mark.parametrize(
    ("form", "after"),
    [
        ("x = {}", f"not {NEW}"),
        ("return ok and {}", f"not {NEW}"),
        ("return [p for p in ps if {}]", f"not {NEW}"),
        ("return not {}", f"not {NEW}"),
        ("return ok == ({})", f"(not {NEW})"),
        ("use({})", f"not {NEW}"),
        ("x = 1 if {} else 2", f"not {NEW}"),
        ("x = [*ps, {}]", f"not {NEW}"),
        ("x = ok & ({})", f"(not {NEW})"),
        ("x = ~({})", f"(not {NEW})"),
    ],
)
def test_a_negated_test_keeps_its_place_in_the_expression(form: str, after: str) -> None:
    before, new = program("type(p) is not FlatParameter", form=form), program(after, "", form=form)
    check_transformed(before, new, "FSDP302", unsafe=True)


def test_the_message_says_how_the_test_always_ends() -> None:
    ends = {
        "type(p) is FlatParameter": "always False",
        "type(p) is not FlatParameter": "always True",
        "type(p) in (FlatParameter, A)": "always decided by the other classes",
    }
    for test, expected in ends.items():
        assert expected in lint(program(test), "FSDP302")[0].message


@pytest.mark.parametrize(
    ("test", "form", "reason"),
    [
        ("type(p) is FlatParameter", "if {}:\n        use(p._fqns)", "needs a FlatParameter"),
        ("type(p) is not FlatParameter", "if {}:\n        return\n    use(p._fqns)", "needs a FlatParameter"),
        (
            "type(p) is not FlatParameter",
            "if {}:\n        use(p)\n    else:\n        use(p._fqns)",
            "needs a FlatParameter",
        ),
        ("type(p) is FlatParameter", "return sum({} for p in ps)", "counted"),
        ("type(p) is FlatParameter", "return len([p for p in ps if {}])", "counted"),
        ("A is type(p) is FlatParameter", "return {}", "chained comparison"),
        ("type(get(p)) in (FlatParameter, A)", "return {}", "evaluated twice"),
        ("type(p) in (FlatParameter, *A)", "return {}", "unpacked"),
        ("type(p) is FlatParameter", 'return f"{{{}}}"', "f-string"),
        ("issubclass(type(p), (FlatParameter, kinds()))", "return {}", "not plain names"),
    ],
)
def test_what_cannot_be_written_is_manual(test: str, form: str, reason: str) -> None:
    check_manual(program(test, form=form), "FSDP302", reason)


def test_what_a_negated_test_selects_is_not_flat() -> None:
    text = program("type(p) is not FlatParameter", form="return len([p for p in ps if {}])")
    assert [finding.applicability.value for finding in lint(text, "FSDP302")] == ["manual"]
    text = program("type(p) is not FlatParameter", form="return [p._version for p in ps if {}]")
    assert [finding.applicability.value for finding in lint(text, "FSDP302")] == ["unsafe"]


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

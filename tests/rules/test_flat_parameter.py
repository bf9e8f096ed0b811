from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability, Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

IMPORT = "from torch.distributed.fsdp import FlatParameter\n"
OLD = "isinstance(p, FlatParameter)"
NEW = 'getattr(p, "_fsdp_flattened", False)'


def program(body: str, head: str = IMPORT) -> str:
    lines = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    return f"{head}import torch\n\n\ndef f(self, model, ps, p, n, ok):\n{lines}\n"


def grade(body: str, select: str = "FSDP301", head: str = IMPORT) -> str:
    (finding,) = lint(program(body, head), select)
    return finding.applicability.value


@pytest.mark.parametrize(
    "body",
    [
        "if {}:\n    use(p)",
        "if ok:\n    pass\nelif {}:\n    use(p)",
        "while {}:\n    p = use(p)",
        "x = 1 if {} else 2",
        "return True if {} else False",
        "if ok and {}:\n    use(p)",
        "if ok or {}:\n    use(p)",
        "if ok and (n or {}):\n    use(p)",
        "if bool({}):\n    use(p)",
        "if {} is True:\n    use(p)",
        "if {} is not False:\n    use(p)",
        "if {} != False:\n    use(p)",
        "return {}",
        "return ok and {}",
        "return {} or ok",
        "return any({} for p in ps)",
        "return all([{} for p in ps])",
        "x = any({} for p in ps)",
        "if any({} for p in ps):\n    use(ps)",
        "return any(map(lambda p: {}, ps))",
        "x = [p for p in ps if {}]",
        "x = {{p: 1 for p in ps if {}}}",
        "x = {{name for name, p in ps if ok and {}}}",
        "use(p for p in ps if {})",
        "x = sum(p.numel() for p in ps if {})",
        "x = filter(lambda p: {}, ps)",
        "for p in filter(lambda p: {}, ps):\n    use(p)",
        "x = next((p for p in ps if {}), None)",
        "return next((p for p in ps if {}), None) is not None",
        "is_flat = lambda p: {}",
        "return lambda p: {}",
        "match p:\n    case x if {}:\n        use(p)",
        "for p in ps:\n    if {}:\n        continue\n    use(p._version)",
        "if {}:\n    raise ValueError(p)",
    ],
)
def test_a_positive_test_that_decides_is_safe(body: str) -> None:
    assert grade(body.format(OLD)) == "safe"
    check_transformed(program(body.format(OLD)), program(body.format(NEW), head=""), "FSDP301")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if not {}:\n    use(p)", "negated"),
        ("return not {}", "negated"),
        ("if not any({} for p in ps):\n    use(p)", "negated"),
        ("if not (ok and {}):\n    use(p)", "negated"),
        ("if {} is False:\n    use(p)", "negated"),
        ("if {} == False:\n    use(p)", "negated"),
        ("if {} is not True:\n    use(p)", "negated"),
        ("if not [p for p in ps if {}]:\n    use(p)", "negated"),
        ("if next((p for p in ps if {}), None) is None:\n    use(p)", "negated"),
        ("x = list(itertools.filterfalse(lambda p: {}, ps))", "negated"),
        ("assert {}", "assertion"),
        ("assert {}, 'flat'", "assertion"),
        ("assert ok and {}", "assertion"),
        ("assert not {}", "assertion"),
        ("assert all({} for p in ps)", "assertion"),
        ("assert use([p for p in ps if {}])", "assertion"),
        ("self.assertTrue({})", "assertion"),
        ("self.assertFalse({}, msg='flat')", "assertion"),
        ("self.assertEqual([p for p in ps if {}], [])", "assertion"),
        ("torch._assert({}, 'flat')", "assertion"),
        ("x = {}", "stored or passed on"),
        ("self.flat = {}", "stored or passed on"),
        ("x = [{} for p in ps]", "stored or passed on"),
        ("x = {{'flat': {}}}", "stored or passed on"),
        ("return [{} for p in ps]", "stored or passed on"),
        ("return p, {}", "stored or passed on"),
        ("use({})", "stored or passed on"),
        ("use(flat={})", "stored or passed on"),
        ("print({})", "stored or passed on"),
        ("yield {}", "stored or passed on"),
        ("if (flat := {}):\n    use(flat)", "stored or passed on"),
        ("x = ['b', 'a'][{}]", "stored or passed on"),
        ("ps.sort(key=lambda p: {})", "stored or passed on"),
        ("x = sorted(ps, key=lambda p: {})", "stored or passed on"),
        ("ok |= {}", "stored or passed on"),
        ("if {} == ok:\n    use(p)", "compared"),
        ("if [p for p in ps if {}] == ps:\n    use(p)", "compared"),
    ],
)
def test_a_test_whose_answer_may_be_waited_for_is_unsafe(body: str, reason: str) -> None:
    before = program("import itertools\n" + body.format(OLD))
    (finding,) = lint(before, "FSDP301")
    assert finding.applicability is Applicability.UNSAFE
    assert reason in (finding.reason or "")
    check_transformed(before, program("import itertools\n" + body.format(NEW), head=""), "FSDP301", unsafe=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(FlatParameter, A)", "{} or isinstance(p, A)"),
        ("(A, FlatParameter)", "{} or isinstance(p, A)"),
        ("(FlatParameter,)", "{}"),
        ("(A, FlatParameter, B)", "{} or isinstance(p, (A, B))"),
        ("(A, (FlatParameter, torch.Tensor))", "{} or isinstance(p, (A, torch.Tensor))"),
        ("(FlatParameter, *OTHERS)", "{} or isinstance(p, (*OTHERS,))"),
        ("(FlatParameter, type(None))", "{} or isinstance(p, type(None))"),
        ("FlatParameter | A", "{} or isinstance(p, A)"),
        ("A | FlatParameter | B", "{} or isinstance(p, A | B)"),
        ("(FlatParameter, FlatParameter)", "{}"),
    ],
)
def test_the_rest_of_a_tuple_or_union_is_kept(before: str, after: str) -> None:
    old, new = f"isinstance(p, {before})", after.format(NEW)
    wrapped = f"({new})" if " or " in new else new
    for form, text in (
        ("if {}:\n    use(p)", new),
        ("if ok and {}:\n    use(p)", wrapped),
        ("return {}", new),
        ("x = [p for p in ps if {}]", new),
        ("return any({} for p in ps)", wrapped),
        ("while {}:\n    use(p)", new),
    ):
        check_transformed(program(form.format(old)), program(form.format(text), head=""), "FSDP301")
    check_transformed(program(f"assert {old}"), program(f"assert {new}", head=""), "FSDP301", unsafe=True)
    check_transformed(program(f"x = not {old}"), program(f"x = not {wrapped}", head=""), "FSDP301", unsafe=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("isinstance(ps[0], FlatParameter)", 'getattr(ps[0], "_fsdp_flattened", False)'),
        ("isinstance(get(p), FlatParameter)", 'getattr(get(p), "_fsdp_flattened", False)'),
        ("isinstance((ok or p), FlatParameter)", 'getattr(ok or p, "_fsdp_flattened", False)'),
        ("isinstance(\n        p,\n        FlatParameter,\n    )", NEW),
        ("isinstance((yield), FlatParameter)", 'getattr((yield), "_fsdp_flattened", False)'),
        ("isinstance(q := p, FlatParameter)", 'getattr(q := p, "_fsdp_flattened", False)'),
    ],
)
def test_any_expression_can_be_tested(before: str, after: str) -> None:
    check_transformed(
        f"{IMPORT}\ndef f(p, ps, ok):\n    if {before}:\n        use(p)\n",
        f"def f(p, ps, ok):\n    if {after}:\n        use(p)\n",
        "FSDP301",
    )


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("from torch.distributed.fsdp import FlatParameter as FP", "FP"),
        ("from torch.distributed.fsdp.flat_param import FlatParameter", "FlatParameter"),
        ("from torch.distributed.fsdp._flat_param import FlatParameter", "FlatParameter"),
        ("from torch.distributed.fsdp.flatten_params_wrapper import FlatParameter", "FlatParameter"),
        ("from torch.distributed.fsdp.fully_sharded_data_parallel import FlatParameter", "FlatParameter"),
        ("from torch.distributed.fsdp import *", "FlatParameter"),
        ("import torch.distributed.fsdp as fsdp", "fsdp.FlatParameter"),
        ("from torch.distributed import fsdp", "fsdp.FlatParameter"),
        ("import torch", "torch.distributed.fsdp.FlatParameter"),
        ("import torch.distributed.fsdp.flat_param as flat_param_file", "flat_param_file.FlatParameter"),
        ("from torch.distributed.fsdp import _flat_param as flat_param_file", "flat_param_file.FlatParameter"),
        ("import torch.distributed.fsdp._flat_param", "torch.distributed.fsdp._flat_param.FlatParameter"),
        ("from torch.distributed.fsdp import FlatParameter\nFlat = FlatParameter", "Flat"),
        (
            "try:\n    from torch.distributed.fsdp import FlatParameter\nexcept ImportError:\n    FlatParameter = None",
            "FlatParameter",
        ),
        (
            "try:\n    from torch.distributed.fsdp._flat_param import FlatParameter\nexcept ImportError:\n"
            "    from torch.distributed.fsdp.flat_param import FlatParameter",
            "FlatParameter",
        ),
        (
            "try:\n    from torch.distributed.fsdp import FlatParameter\nexcept ImportError:\n"
            "    class FlatParameter:\n        pass",
            "FlatParameter",
        ),
    ],
)
def test_the_class_is_found_under_every_spelling(head: str, name: str) -> None:
    text = f"{head}\n\ndef f(p):\n    return isinstance(p, {name})\n"
    (finding,) = lint(text, "FSDP301")
    assert (finding.code, finding.applicability, finding.severity) == ("FSDP301", Applicability.SAFE, Severity.CHANGES)
    assert (finding.line, finding.column) == (text.count("\n"), 12)


@pytest.mark.parametrize(
    "text",
    [
        "from fairscale.nn.misc import FlatParameter\nx = isinstance(p, FlatParameter)\n",
        "from fairscale.nn.misc.flatten_params_wrapper import FlatParameter\nx = isinstance(p, FlatParameter)\n",
        "from torch_xla.distributed.fsdp import FlatParameter\nx = isinstance(p, FlatParameter)\n",
        "from .flat_param import FlatParameter\nx = isinstance(p, FlatParameter)\n",
        "class FlatParameter:\n    pass\nx = isinstance(p, FlatParameter)\n",
        IMPORT + "def f(FlatParameter, p):\n    return isinstance(p, FlatParameter)\n",
        IMPORT + "def f(isinstance, p):\n    return isinstance(p, FlatParameter)\n",
        "from torch.distributed.fsdp import FlatParameter\nx = issubclass(p, FlatParameter)\n",
        "from torch.distributed.fsdp import FlatParameter\nx = self.isinstance(p, FlatParameter)\n",
        "from torch.distributed.fsdp import FlatParameter\ndef f(p: FlatParameter) -> FlatParameter:\n    return p\n",
        "from torch.distributed.fsdp import FlatParameter\nx = isinstance(FlatParameter, type)\n",
        'x = "isinstance(p, FlatParameter)"\n',
    ],
)
def test_what_only_looks_alike_is_left_alone(text: str) -> None:
    check_noop(text, "FSDP301")


def test_without_original_parameters_nothing_is_wrong() -> None:
    check_noop(program(f"return {OLD}"), "FSDP301", torch=">=1.13,<2.0")
    assert len(lint(program(f"return {OLD}"), "FSDP301", torch=">=1.13,<2.1")) == 1


def test_below_the_floor_there_is_no_fix() -> None:
    check_manual(program(f"return {OLD}"), "FSDP301", "torch>=1.13", torch=">=1.12")


@pytest.mark.parametrize(
    ("head", "call", "reason"),
    [
        (IMPORT + "FLAT_TYPES = (FlatParameter, int)", "isinstance(p, FLAT_TYPES)", "`FLAT_TYPES` stands for several"),
        (
            IMPORT + "FLAT_TYPES = [FlatParameter]",
            "isinstance(p, (int, *FLAT_TYPES))",
            "`FLAT_TYPES` stands for several",
        ),
        (IMPORT + "from typing import Union", "isinstance(p, Union[FlatParameter, int])", "more than a class"),
        (IMPORT, "isinstance(p, (FlatParameter, kinds()))", "not plain names"),
        (IMPORT, "isinstance(p, FlatParameter | None)", "`None` stands among the classes"),
        (IMPORT, "isinstance(get(p), (FlatParameter, int))", "`get(p)` would be evaluated twice"),
        (IMPORT, "isinstance(\n    p,  # the parameter\n    FlatParameter,\n)", "a comment stands in the test"),
        (IMPORT, 'f"{isinstance(p, FlatParameter)}"', "f-string"),
        (IMPORT, "isinstance(*p, FlatParameter)", "the call passes `*args`"),
        (
            "import flags\nif flags.x:\n    from torch.distributed.fsdp import FlatParameter\nelse:\n"
            "    from fairscale.nn import FlatParameter",
            "isinstance(p, FlatParameter)",
            "may also be fairscale.nn.FlatParameter",
        ),
    ],
)
def test_what_cannot_be_written_is_manual(head: str, call: str, reason: str) -> None:
    check_manual(f"{head}\nx = {call}\n", "FSDP301", reason)


def test_a_class_pattern_is_manual() -> None:
    check_manual(program("match p:\n    case FlatParameter():\n        use(p)"), "FSDP301", "class pattern")


def test_the_old_arm_of_a_version_check_is_left_alone() -> None:
    check_noop(
        """
        import torch
        from packaging.version import parse
        from torch.distributed.fsdp import FlatParameter

        def f(p):
            if parse(torch.__version__) < parse("2.0"):
                return isinstance(p, FlatParameter)
            return getattr(p, "_fsdp_flattened", False)
        """,
        "FSDP301",
    )


@pytest.mark.parametrize(
    "head",
    [
        "from torch.distributed.fsdp import FlatParameter\n\n__all__ = ['FlatParameter']\n",
        "from torch.distributed.fsdp import FlatParameter as FlatParameter\n",
        "from torch.distributed.fsdp import FlatParameter  # noqa: F401\n",
        "try:\n    from torch.distributed.fsdp import FlatParameter\nexcept ImportError:\n    pass\n",
        "import flags\nif flags.x:\n    from torch.distributed.fsdp import FlatParameter\n",
        "from torch.distributed.fsdp import FlatParameter\n\ndef g(p: 'FlatParameter'):\n    pass\n",
        IMPORT + "\ndef g(p):\n    # type: (FlatParameter) -> None\n    pass\n",
        "from torch.distributed.fsdp import FlatParameter\n\ndef g(p: FlatParameter):\n    pass\n",
    ],
)
def test_an_import_that_others_may_need_stays(head: str) -> None:
    text = head + "\ndef f(p):\n    return {}\n"
    check_transformed(text.format(OLD), text.format(NEW), "FSDP301")


def test_the_import_stays_while_an_unsafe_test_needs_it() -> None:
    text = IMPORT + "\ndef f(p, q):\n    assert isinstance(p, FlatParameter)\n    return {}\n"
    check_transformed(text.format("isinstance(q, FlatParameter)"), text.format(NEW.replace("(p", "(q")), "FSDP301")


def test_in_a_package_the_import_stays() -> None:
    from fsdp_migrate.rewrite import rewrite_source

    text = IMPORT + "\n\ndef f(p):\n    return {}\n"
    assert rewrite_source(text.format(OLD), "pkg/__init__.py").source == text.format(NEW)
    assert "import" not in rewrite_source(text.format(OLD), "pkg/flat.py").source


def test_every_test_of_a_statement_is_rewritten() -> None:
    old = "[p for p in ps if isinstance(p, FlatParameter) or any(isinstance(q, FlatParameter) for q in p)]"
    new = (
        '[p for p in ps if getattr(p, "_fsdp_flattened", False)'
        ' or any(getattr(q, "_fsdp_flattened", False) for q in p)]'
    )
    check_transformed(program(f"return {old}"), program(f"return {new}", head=""), "FSDP301")


def test_the_message_names_the_mode() -> None:
    (finding,) = lint(program(f"return {OLD}"), "FSDP301")
    assert "use_orig_params=True" in finding.message
    assert "`_fsdp_flattened`" in finding.message

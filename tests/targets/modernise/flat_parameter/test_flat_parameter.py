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


@pytest.mark.parametrize(
    "body",
    [
        "return any({} for p in ps)",
        "return all([{} for p in ps])",
        "return any({} for group in ps for p in group)",
        "return any(ok and {} for p in ps)",
        "return ok or any({} for p in ps)",
        "return sum({} for p in ps)",
        "x = any({} for p in ps)",
        "use(flat=any({} for p in ps))",
        "if any({} for p in ps):\n    use(ps)",
        "if any({} for p in ps):\n    use(ps)\nelse:\n    raise ValueError('none')",
        "if not any({} for p in ps):\n    raise ValueError('none')",
        "if not all({} for p in ps):\n    raise ValueError('others')",
        "if any(not {} for p in ps):\n    raise ValueError('others')",
        "for ps in n:\n    if not any({} for p in ps):\n        raise ValueError('none')",
        "if sum({} for p in ps) == 0:\n    raise ValueError('none')",
        "assert any({} for p in ps), 'none'",
        "x = any({} for p in ps)\nif not x:\n    raise ValueError('none')",
    ],
)
def test_whether_a_model_holds_any_is_a_safe_question(body: str) -> None:
    check_transformed(program(body.format(OLD)), program(body.format(NEW), head=""), "FSDP301")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("for p in ps:\n    if {}:\n        continue\n    use(p)", "the other branch runs"),
        ("for p in ps:\n    if not {}:\n        continue\n    use(p)", "the other branch runs"),
        ("if {}:\n    raise ValueError('pass use_orig_params=True')", "the other branch runs"),
        ("if ok or {}:\n    return", "the other branch runs"),
        ("if ok:\n    pass\nelif {}:\n    use(p)", "the other branch runs"),
        ("x = 1 if {} else 2", "the other value is used"),
        ("x = [p for p in ps if {}]", "the filter selects other parameters"),
        ("x = [p for p in ps if not {}]", "the filter selects other parameters"),
        ("x = {{p: 1 for p in ps if ok and {}}}", "the filter selects other parameters"),
        ("return len([p for p in ps if {}])", "the filter selects other parameters"),
        ("x = sum(p.numel() for p in ps if {})", "the filter selects other parameters"),
        ("x = next((p for p in ps if {}), None)", "the filter selects other parameters"),
        ("x = filter(lambda p: {}, ps)", "the filter selects other parameters"),
        ("x = [ps for ps in n if any({} for p in ps)]", "the filter selects other parameters"),
        ("for ps in n:\n    if any({} for p in ps):\n        continue\n    use(ps)", "the filter selects other"),
        ("for ps in n:\n    if not any({} for p in ps):\n        continue\n    use(ps)", "the filter selects other"),
        ("for ps in n:\n    if not any({} for p in ps):\n        use(ps)", "the filter selects other"),
        ("for ps in n:\n    x = any({} for p in ps)\n    if x:\n        use(ps)", "the filter selects other"),
        ("x = filter(lambda ps: any({} for p in ps), n)", "the filter selects other"),
        ("if any({} for p in ps):\n    if ok:\n        raise ValueError", "an error is raised"),
        ("if any({} for p in ps):\n    torch.exit('pass use_orig_params=True')", "an error is raised"),
        ("assert {}, 'flat'", "the assertion has the opposite outcome"),
        ("assert not {}", "the assertion has the opposite outcome"),
        ("return {}", "callers get another result"),
        ("return not {}", "callers get another result"),
        ("if any({} for p in ps):\n    raise ValueError('pass use_orig_params=True')", "an error is raised"),
        ("assert not any({} for p in ps)", "an error is raised"),
        ("assert sum({} for p in ps) == 0", "an error is raised"),
        ("if not any({} for p in ps):\n    use(p)\nelse:\n    raise ValueError", "an error is raised"),
        ("x = any({} for p in ps)\nif x:\n    raise ValueError", "an error is raised"),
        ("self.x = ok and any({} for p in ps)\nif n or self.x:\n    raise ValueError", "an error is raised"),
    ],
)
def test_what_filters_or_refuses_parameters_is_unsafe(body: str, reason: str) -> None:
    before = program(body.format(OLD))
    (finding,) = lint(before, "FSDP301")
    assert finding.applicability is Applicability.UNSAFE
    assert reason in (finding.reason or "")
    assert "use_orig_params=True" in (finding.reason or "")
    check_transformed(before, program(body.format(NEW), head=""), "FSDP301", unsafe=True)


@pytest.mark.parametrize(
    ("call", "grade"), [("if not self.has(ps):", "safe"), ("if self.has(ps):", "unsafe"), ("assert has(ps)", "safe")]
)
def test_the_answer_of_a_function_is_followed_to_its_callers(call: str, grade: str) -> None:
    end = "\n            raise ValueError\n" if call.endswith(":") else "\n"
    method = f"    def has(self, ps):\n        return any({OLD} for p in ps)\n"
    text = f"{IMPORT}\nclass C:\n{method}\n    def check(self, ps):\n        {call}{end}"
    assert [finding.applicability.value for finding in lint(text, "FSDP301")] == [grade]


@pytest.mark.parametrize(
    "body",
    [
        "x = {}",
        "use({})",
        "yield {}",
        "return p, {}",
        "x = [{} for p in ps]",
        "x = sorted(ps, key=lambda p: {})",
        "is_flat = lambda p: {}",
        "while {}:\n    p = use(p)",
        "if {} == ok:\n    use(p)",
        "n += {}",
        "if sum({} for p in ps) > 1:\n    use(p)",
        "return n + sum({} for p in ps)",
        "return sum({} and p.numel() for p in ps)",
        "match p:\n    case x if {}:\n        use(p)",
    ],
)
def test_every_other_use_is_manual(body: str) -> None:
    check_manual(program(body.format(OLD)), "FSDP301", "decide which test you need")


@pytest.mark.parametrize("use", ["use(p._fqns)", "for q in ps:\n    q._local_shard", "return p._param_infos"])
def test_a_file_that_reads_what_only_a_flat_parameter_has_is_manual(use: str) -> None:
    check_manual(program(f"x = any({OLD} for p in ps)\n{use}"), "FSDP301", "needs a FlatParameter")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(FlatParameter, A)", "{} or isinstance(p, A)"),
        ("(A, FlatParameter)", "{} or isinstance(p, A)"),
        ("(FlatParameter,)", "{}"),
        ("(A, FlatParameter, B)", "{} or isinstance(p, (A, B))"),
        ("(A, (FlatParameter, torch.Tensor))", "{} or isinstance(p, (A, torch.Tensor))"),
        ("FlatParameter | A", "{} or isinstance(p, A)"),
        ("A | FlatParameter | B", "{} or isinstance(p, (A, B))"),
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
        ("return not {}", wrapped),
        ("x = [p for p in ps if {}]", new),
        ("assert {}", new),
        ("return any({} for p in ps)", wrapped),
    ):
        unsafe = "any" not in form
        check_transformed(program(form.format(old)), program(form.format(text), head=""), "FSDP301", unsafe=unsafe)


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
        unsafe=True,
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
    text = f"{head}\n\ndef f(ps):\n    return any(isinstance(p, {name}) for p in ps)\n"
    (finding,) = lint(text, "FSDP301")
    assert (finding.code, finding.applicability, finding.severity) == ("FSDP301", Applicability.SAFE, Severity.CHANGES)
    assert (finding.line, finding.column) == (text.count("\n"), 16)


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
        (
            IMPORT + "FLAT_TYPES = (FlatParameter, int)",
            "isinstance(p, FLAT_TYPES)",
            "other classes besides FlatParameter",
        ),
        (
            IMPORT + "FLAT_TYPES = [FlatParameter]",
            "isinstance(p, (int, *FLAT_TYPES))",
            "other classes besides FlatParameter",
        ),
        (
            IMPORT + "from typing import Union",
            "isinstance(p, Union[FlatParameter, int])",
            "other classes besides FlatParameter",
        ),
        (IMPORT, "isinstance(p, (FlatParameter, kinds()))", "other classes besides FlatParameter"),
        (IMPORT, "isinstance(p, (FlatParameter, *OTHERS))", "other classes besides FlatParameter"),
        (IMPORT, "isinstance(p, FlatParameter | None)", "other classes besides FlatParameter"),
        (IMPORT, "isinstance(get(p), (FlatParameter, int))", "`get(p)` would be evaluated twice"),
        (IMPORT, "isinstance(\n    p,  # the parameter\n    FlatParameter,\n)", "a comment is inside the test"),
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
    check_transformed(text.format(OLD), text.format(NEW), "FSDP301", unsafe=True)


def test_the_import_stays_while_an_unsafe_test_needs_it() -> None:
    text = IMPORT + "\ndef f(p, qs):\n    assert isinstance(p, FlatParameter)\n    return any({} for p in qs)\n"
    check_transformed(text.format(OLD), text.format(NEW), "FSDP301")


def test_in_a_package_the_import_stays() -> None:
    from fsdp_migrate.planning.rewriting import rewrite_source

    text = IMPORT + "\n\ndef f(ps):\n    return any({} for p in ps)\n"
    assert rewrite_source(text.format(OLD), "pkg/__init__.py").source == text.format(NEW)
    assert "import" not in rewrite_source(text.format(OLD), "pkg/flat.py").source


def test_every_test_of_a_statement_is_rewritten() -> None:
    old = "[p for p in ps if isinstance(p, FlatParameter) or any(isinstance(q, FlatParameter) for q in p)]"
    new = (
        '[p for p in ps if getattr(p, "_fsdp_flattened", False)'
        ' or any(getattr(q, "_fsdp_flattened", False) for q in p)]'
    )
    check_transformed(program(f"return {old}"), program(f"return {new}", head=""), "FSDP301", unsafe=True)


def test_the_message_names_the_mode() -> None:
    (finding,) = lint(program(f"return {OLD}"), "FSDP301")
    assert "use_orig_params=True" in finding.message
    assert "`_fsdp_flattened`" in finding.message

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, lint

IMPORT = "from torch.distributed.fsdp import FlatParameter\n"
OLD = "isinstance(p, FlatParameter)"


def program(body: str, head: str = IMPORT) -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{head}\n\ndef f(self, model, ps, p, n, ok):\n{lines}\n"


@pytest.mark.parametrize(
    "body",
    [
        "return sum({} for p in ps)",
        "return sum([{} for p in ps])",
        "return sum(int({}) for p in ps)",
        "return sum(1 for p in ps if {})",
        "return sum(map(lambda p: {}, ps))",
        "return len([p for p in ps if {}])",
        "return len(list(p for p in ps if {}))",
        "return len(tuple(filter(lambda p: {}, ps)))",
        "return len({{p for p in ps if {}}})",
        "return len({{p: 1 for p in ps if {}}})",
        "return [{} for p in ps].count(True)",
        "n += {}",
        "return n + {}",
        "from collections import Counter\nreturn Counter({} for p in ps)",
        "for p in ps:\n    if {}:\n        n += 1",
        "for p in ps:\n    if {}:\n        n = n + 1",
        "for p in ps:\n    if {}:\n        self.counts['flat'] += 1",
        "for p in ps:\n    if not {}:\n        continue\n    n += 1",
        "flat = [p for p in ps if {}]\nassert len(flat) == 1",
        "flat = list(filter(lambda p: {}, ps))\nreturn len(flat)",
        "self.flat = [p for p in ps if {}]\nreturn len(self.flat)",
        "flat = []\nfor p in ps:\n    if {}:\n        flat.append(p)\nreturn len(flat)",
        "flat = {}\nn += flat",
        "n += 1 if {} else 0",
        "class C:\n    flat = [p for p in ps if {}]\n    def g(self):\n        return len(self.flat)",
        "return sum(1 if {} else 0 for p in ps)",
        "names = []\nfor name, p in ps:\n    if {}:\n        names.append(name)\nreturn len(names)",
    ],
)
def test_counting_flat_parameters_is_manual(body: str) -> None:
    check_manual(program(body.format(OLD)), "FSDP301", "counted")


@pytest.mark.parametrize(
    "body",
    [
        "if {}:\n    use(p._fqns)",
        "if ok and {}:\n    use(p._fqns)",
        "if {} or ok:\n    use(p._fqns)",
        "if {} and p._fqns:\n    use(p)",
        "while {}:\n    p = p._params[0]",
        "return {} and p._param_infos",
        "return p._numels if {} else 0",
        "return [p._shapes for p in ps if {}]",
        "return [s for p in ps if {} for s in p._shapes]",
        "return [p for p in ps if {} and p._sharded_size]",
        "return [p for p in ps if {} if p._sharded_size]",
        "for p in ps:\n    if not {}:\n        continue\n    use(p._fqns)",
        "if not {}:\n    raise TypeError(p)\nreturn p._fqns",
        "if not {}:\n    use(p)\nelse:\n    use(p._fqns)",
        "if {}:\n    use(p)\nelse:\n    return\nuse(p._fqns)",
        "assert {}\nreturn p._local_shard",
        "if {}:\n    return getattr(p, '_full_param_padded')",
        "if {}:\n    return hasattr(p, '_fqns')",
        "if {}:\n    flat = p\n    return flat._fqns",
        "for q in (p for p in ps if {}):\n    use(q._fqns)",
        "flat = [p for p in ps if {}]\nfor q in flat:\n    use(q._fqns)",
        "flat = [(n, p) for n, p in ps if {}]\nreturn {{name: q._fqns for name, q in flat}}",
        "flat = [p for p in ps if {}]\nreturn flat[0]._fqns",
        "flat = [p for p in ps if {}]\nreturn [q._fqns for q in sorted(flat)]",
        "flat = {{n: p for n, p in ps if {}}}\nfor q in flat.values():\n    use(q._fqns)",
        "for q in filter(lambda p: {}, ps):\n    use(q._fqns)",
        "return next(p for p in ps if {})._fqns",
        "flat = next((p for p in ps if {}), None)\nreturn flat._fqns",
        "flat = {}\nif flat:\n    use(p._fqns)",
        "if all({} for p in ps):\n    return [q._fqns for q in ps]",
        "assert all({} for p in ps)\nfor q in ps:\n    use(q._fqns)",
        "match p:\n    case x if {}:\n        use(p._fqns)",
        "return list(map(use, (q._fqns for q in ps if ok for p in [q] if {} and p._fqns)))",
    ],
)
def test_the_private_attributes_of_a_flat_parameter_make_it_manual(body: str) -> None:
    check_manual(program(body.format(OLD)), "FSDP301", "needs a FlatParameter")


@pytest.mark.parametrize(
    "rest",
    [
        "for q in ps:\n    if is_flat(q):\n        use(q._fqns)",
        "for q in filter(is_flat, ps):\n    use(q._fqns)",
        "return [q._fqns for q in ps if is_flat(value=q)]",
    ],
)
def test_a_predicate_is_followed_to_its_callers(rest: str) -> None:
    predicate = "def is_flat(value):\n    return isinstance(value, FlatParameter)\n\n\n"
    check_manual(IMPORT + predicate + program(rest, ""), "FSDP301", "needs a FlatParameter")
    assert [f.applicability.value for f in lint(IMPORT + predicate, "FSDP301")] == ["safe"]


def test_what_a_negated_predicate_lets_through_is_no_flat_parameter() -> None:
    predicate = "def other(value):\n    return not isinstance(value, FlatParameter)\n\n\n"
    (found,) = lint(IMPORT + predicate + program("return len(list(filter(other, ps)))", ""), "FSDP301")
    assert (found.applicability.value, "negated" in (found.reason or "")) == ("unsafe", True)


def test_a_method_that_tests_is_followed_to_its_callers() -> None:
    check_manual(
        IMPORT
        + """
class C:
    def is_flat(self, p):
        return isinstance(p, FlatParameter)

    def count(self, ps):
        return sum(self.is_flat(p) for p in ps)
""",
        "FSDP301",
        "counted",
    )


def test_a_function_that_takes_what_the_test_found_is_looked_into() -> None:
    check_manual(
        IMPORT
        + """
def names(flat):
    return flat._fqns

def f(ps):
    return [names(p) for p in ps if isinstance(p, FlatParameter)]
""",
        "FSDP301",
        "`flat._fqns` needs a FlatParameter",
    )


@pytest.mark.parametrize(
    "body",
    [
        "if {}:\n    use(p._fsdp_flattened, p.__class__, p.data)",
        "if {}:\n    use(self._fqns)",
        "if {}:\n    use(p)\nelse:\n    use(p._fqns)",
        "if {}:\n    use(p)\nuse(p._fqns)",
        "use([q._fqns for q in ps], [p for p in ps if {}])",
        "flat = [p for p in ps if {}]\nn = len(ps)",
        "flat = [p for p in ps if {}]\nuse(flat)\nflat = ps\nn = len(flat)",
    ],
)
def test_other_attributes_and_counts_do_not_matter(body: str) -> None:
    assert [f.applicability.value for f in lint(program(body.format(OLD)), "FSDP301")] == ["safe"]


@pytest.mark.parametrize(("function", "grade"), [("all", "manual"), ("any", "manual"), ("first", "unsafe")])
def test_all_and_any_alone_say_what_the_parameters_are(function: str, grade: str) -> None:
    text = program(f"if {function}({OLD} for p in ps):\n    n = len(ps)")
    assert [found.applicability.value for found in lint(text, "FSDP301")] == [grade]

from __future__ import annotations

import ast
from textwrap import dedent

import pytest
from packaging.version import Version

from fsdp_migrate.facts.names import Names
from fsdp_migrate.facts.releases.gates import Gates
from fsdp_migrate.facts.walk import build
from fsdp_migrate.torch_api import RELEASES, TorchRange

IMPORTS = """
import sys
import torch
import torch.distributed.fsdp as fsdp
from accelerate.utils import is_torch_version
from packaging import version
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""


def gates(source: str, releases: tuple[Version, ...] = RELEASES) -> Gates:
    tree = ast.parse(dedent(source))
    structure = build(tree)
    return Gates(tree, Names(structure), releases, structure.parents)


def at(found: Gates, name: str) -> ast.AST:
    """The one place where `name` is used or defined, `name()` being the usual mark."""
    marks = [
        node
        for node in found.parents
        if getattr(node, "id", None) == name or (isinstance(node, ast.FunctionDef) and node.name == name)
    ]
    assert len(marks) == 1, f"{name} occurs {len(marks)} times"
    return marks[0]


def reached(source: str, *names: str) -> list[str]:
    """For each mark the releases that reach it: `all`, `none`, or `oldest-newest` of a run."""
    found = gates(IMPORTS + dedent(source))
    return [described(found, name) for name in names]


def described(found: Gates, name: str) -> str:
    alive = sorted(found.alive(at(found, name)))
    known = list(found.releases)
    if not alive:
        return "none"
    if alive == known:
        return "all"
    first, last = known.index(alive[0]), known.index(alive[-1])
    assert alive == known[first : last + 1], f"{name} is reached on {[str(release) for release in alive]}"
    return f"{alive[0] if first else ''}-{alive[-1] if last + 1 < len(known) else ''}"


def test_an_attribute_that_the_file_sets_decides_nothing() -> None:
    source = """
    import flags
    import others

    flags.TORCH_GREATER_EQUAL_2_1 = True
    if flags.TORCH_GREATER_EQUAL_2_1:
        one()
    if others.TORCH_GREATER_EQUAL_2_1:
        two()
    """
    assert reached(source, "one", "two") == ["all", "2.1.2-"]


def test_a_context_manager_may_stop_what_is_raised_in_it_and_no_return() -> None:
    source = """
    def f():
        with quietly():
            if torch.__version__ < "2.1":
                raise RuntimeError
            one()
        two()

    def g():
        with quietly():
            if torch.__version__ < "2.1":
                return
        three()
    """
    assert reached(source, "one", "two", "three") == ["2.1.2-", "all", "2.1.2-"]


def test_arms_of_an_if() -> None:
    source = """
    if is_torch_version(">=", "2.1"):
        new()
    else:
        old()
    after()
    """
    assert reached(source, "new", "old", "after") == ["2.1.2-", "-2.0.1", "all"]


def test_arms_of_an_elif_chain() -> None:
    source = """
    if is_torch_version("<", "1.13"):
        one()
    elif is_torch_version("<", "2.1"):
        two()
    elif unknown:
        three()
    else:
        four()
    """
    assert reached(source, "one", "two", "three", "four") == ["-1.12.1", "1.13.1-2.0.1", "2.1.2-", "2.1.2-"]


def test_nested_gates_narrow_each_other() -> None:
    source = """
    if is_torch_version(">=", "2.0"):
        if is_torch_version("<", "2.3"):
            inner()
        elif version.parse(torch.__version__) < version.parse("2.0"):
            never()
    """
    assert reached(source, "inner", "never") == ["2.0.0-2.2.2", "none"]


def test_a_condition_on_something_else_stops_nothing() -> None:
    source = """
    if torch.cuda.is_available() and is_torch_version(">=", "2.1"):
        new()
    else:
        other()
    """
    assert reached(source, "new", "other") == ["2.1.2-", "all"]


def test_conditional_and_short_circuit_expressions() -> None:
    source = """
    a = new() if is_torch_version(">=", "2.1") else old()
    b = is_torch_version(">=", "2.1") and both()
    c = x and is_torch_version("<", "2.1") and three()
    d = is_torch_version(">=", "2.1") or either()
    assert is_torch_version(">=", "2.0"), message()
    e = [item() for x in y if is_torch_version("<", "2.2")]
    """
    expected = ["2.1.2-", "-2.0.1", "2.1.2-", "-2.0.1", "-2.0.1"]
    assert reached(source, "new", "old", "both", "three", "either") == expected
    assert reached(source, "message", "item") == ["-1.13.1", "2.0.0-2.1.2"]


def test_while_runs_its_body_only_where_its_condition_may_hold() -> None:
    source = """
    while is_torch_version("<", "2.1"):
        body()
    else:
        end()
    after()
    """
    assert reached(source, "body", "end", "after") == ["-2.0.1", "all", "all"]


@pytest.mark.parametrize(
    "leave",
    [
        "return old()",
        "raise RuntimeError(old())",
        "sys.exit(old())",
        "exit(old())",
        "old(); return",
        "with open(x) as f:\n            return old()",
        "if x:\n            return old()\n        else:\n            raise ValueError",
        "try:\n            return old()\n        finally:\n            close()",
        "try:\n            old()\n        finally:\n            return",
        "try:\n            return old()\n        except OSError:\n            raise",
    ],
)
def test_leaving_under_a_gate_makes_the_rest_the_new_arm(leave: str) -> None:
    source = f"""
    def save(model):
        if is_torch_version("<", "2.1"):
            {leave.replace(chr(10), chr(10) + "    ")}
        new()
        with y:
            inner()
    after()
    """
    assert reached(source, "old", "new", "inner", "after") == ["-2.0.1", "2.1.2-", "2.1.2-", "all"]


@pytest.mark.parametrize(
    "stay",
    [
        "old()",
        "old(); x = 1",
        "if x:\n            return old()",
        "for y in x:\n            return old()",
        "while x:\n            return old()",
        "with suppress(ValueError):\n            raise ValueError(old())",
        "with pytest.raises(ValueError):\n            raise ValueError(old())",
        "try:\n            raise ValueError(old())\n        except ValueError:\n            pass",
        "def inner():\n            return old()",
        "lambda: sys.exit(old())",
        "x.exit(old())",
    ],
)
def test_what_may_come_back_does_not(stay: str) -> None:
    source = f"""
    def save(model):
        if is_torch_version("<", "2.1"):
            {stay.replace(chr(10), chr(10) + "    ")}
        rest()
    """
    assert reached(source, "old", "rest") == ["-2.0.1", "all"]


def test_leaving_in_the_else_leaves_the_rest_to_the_other_arm() -> None:
    source = """
    def save(model):
        if is_torch_version(">=", "2.1"):
            new()
        else:
            return old()
        rest()
    """
    assert reached(source, "new", "old", "rest") == ["2.1.2-", "-2.0.1", "2.1.2-"]


def test_several_early_exits_add_up() -> None:
    source = """
    def save(model):
        if is_torch_version("<", "2.0"):
            return one()
        if is_torch_version("<", "2.2"):
            return two()
        if is_torch_version(">=", "2.6"):
            return three()
        rest()
    """
    expected = ["-1.13.1", "2.0.0-2.1.2", "2.6.0-", "2.2.2-2.5.1"]
    assert reached(source, "one", "two", "three", "rest") == expected


def test_continue_and_break_end_the_turn_of_the_loop_only() -> None:
    source = """
    for model in models:
        if is_torch_version("<", "2.1"):
            continue
        new()
        if is_torch_version("<", "2.3"):
            break
        newer()
    after()
    """
    assert reached(source, "new", "newer", "after") == ["2.1.2-", "2.3.1-", "all"]


def test_asserting_a_version_makes_the_rest_the_new_arm() -> None:
    source = """
    def save(model):
        assert is_torch_version(">=", "2.1"), "too old"
        new()
    """
    assert reached(source, "new") == ["2.1.2-"]


def test_leaving_at_module_level_covers_everything_below_it() -> None:
    source = """
    if version.parse(torch.__version__) < version.parse("2.1"):
        raise ImportError("needs torch 2.1")
    class Saver:
        def save(self):
            deep()
    """
    assert reached(source, "deep") == ["2.1.2-"]


def test_functions_and_classes_defined_under_a_gate() -> None:
    source = """
    if is_torch_version(">=", "2.1"):
        def save_new():
            new()
    else:
        class Saver:
            def save_old(self):
                old()
    """
    assert reached(source, "save_new", "new", "save_old", "old") == ["2.1.2-", "2.1.2-", "-2.0.1", "-2.0.1"]


def test_a_long_elif_chain_does_not_exhaust_the_stack() -> None:
    arms = "\n".join(f"elif x == {n}:\n    y = {n}" for n in range(1500))
    source = f"if is_torch_version('<', '2.1'):\n    sys.exit()\n{arms}\nrest()\n"
    found = gates(IMPORTS + source)
    assert described(found, "rest") == "2.1.2-"


def test_feature_tests_gate_by_the_api_data() -> None:
    source = """
    if hasattr(FSDP, "optim_state_dict"):
        new()
    else:
        old()
    """
    assert reached(source, "new", "old") == ["2.0.0-", "-1.13.1"]


# try and except


def test_handler_of_attribute_error_is_dead_where_the_method_exists() -> None:
    source = """
    try:
        new(FSDP.optim_state_dict(model, optim))
    except AttributeError:
        old(FSDP.full_optim_state_dict(model, optim))
    after()
    """
    assert reached(source, "new", "old", "after") == ["all", "-1.13.1", "all"]


@pytest.mark.parametrize("caught", ["ImportError", "(ImportError, AttributeError)", "Exception", ""])
def test_handler_of_import_error_is_dead_where_the_names_exist(caught: str) -> None:
    source = f"""
    try:
        from torch.distributed.fsdp import FSDPModule, StateDictType
    except {caught}:
        old()
    else:
        new()
    """.replace("except :", "except:")
    assert reached(source, "new", "old") == ["2.6.0-", "-2.5.1"]


def test_handler_of_module_not_found_error_is_for_missing_modules_only() -> None:
    module = """
    try:
        from torch.distributed.fsdp._flat_param import FlatParamHandle
    except ModuleNotFoundError:
        old()
    """
    name = """
    try:
        from torch.distributed.fsdp import FSDPModule
    except ModuleNotFoundError:
        never()
    """
    assert reached(module, "old") == ["-2.1.2"]
    assert reached(name, "never") == ["none"]


def test_modules_by_every_kind_of_import() -> None:
    source = """
    try:
        import torch.distributed.fsdp._flat_param as first_module
    except ImportError:
        first()
    try:
        from torch.distributed.fsdp import _flat_param
    except ImportError:
        second()
    try:
        module = importlib.import_module("torch.distributed.fsdp._flat_param")
    except ImportError:
        third()
    try:
        from torch.distributed.fsdp._flat_param import *
    except ImportError:
        fourth()
    """
    assert reached(source, "first", "second", "third", "fourth") == ["-2.1.2"] * 4


@pytest.mark.parametrize(
    "body",
    [
        "from torchvision.ops import nms",
        "from torch.distributed.fsdp import FSDPModule\n        from torchvision.ops import nms",
        "from torch.distributed.fsdp import FSDPModule\n        import fairscale",
        "from torch.distributed.fsdp import FSDPModule\n        from . import compat",
        "from torch.distributed.fsdp._common_utils import never_heard_of",
        "importlib.import_module(name)",
        "helper()",
    ],
)
def test_handler_stays_alive_when_something_else_may_be_missing(body: str) -> None:
    source = f"""
    try:
        {body}
    except ImportError:
        old()
    """
    assert reached(source, "old") == ["all"]


def test_imports_that_cannot_fail_do_not_matter() -> None:
    source = """
    try:
        import functools
        import torch
        from torch import nn
        import torch.distributed as dist
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        old()
    """
    assert reached(source, "old") == ["-2.5.1"]


@pytest.mark.parametrize("caught", ["RuntimeError", "(AttributeError, RuntimeError)", "Exception", "my_errors", ""])
def test_handler_of_other_errors_too_stays_alive(caught: str) -> None:
    source = f"""
    try:
        FSDP.optim_state_dict(model, optim)
    except {caught}:
        old()
    """.replace("except :", "except:")
    assert reached(source, "old") == ["all"]


def test_handler_that_would_not_work_on_the_old_releases_is_there_for_another_error() -> None:
    # state_dict_type and full_optim_state_dict came with the same release, so this is no fallback for an older one.
    source = """
    try:
        with FSDP.state_dict_type(model, kind):
            state = model.optimizer_state()
    except AttributeError:
        other(FSDP.full_optim_state_dict(model, optim))
    """
    assert reached(source, "other") == ["all"]


def test_raising_in_the_body_reaches_the_handler() -> None:
    source = """
    try:
        if is_torch_version("<", "2.1"):
            raise ImportError
        from torch.distributed.fsdp import FullOptimStateDictConfig
        new()
    except ImportError:
        old()
    """
    assert reached(source, "new", "old") == ["2.1.2-", "-2.0.1"]


def test_a_need_under_a_gate_counts_on_the_releases_of_the_gate() -> None:
    source = """
    try:
        if is_torch_version(">=", "2.0"):
            from torch.distributed.fsdp import FSDPModule
        else:
            from torch.distributed.fsdp import StateDictType
    except ImportError:
        old()
    """
    found = gates(IMPORTS + dedent(source))
    alive = found.alive(at(found, "old"))
    expected = {r for r in RELEASES if Version("2.0") <= r < Version("2.6") or r == Version("1.11.0")}
    assert alive == expected


def test_what_follows_a_failing_import_in_the_body_is_dead_there() -> None:
    source = """
    try:
        before()
        from torch.distributed.fsdp import FSDPModule
        new()
    except ImportError:
        pass
    """
    assert reached(source, "before", "new") == ["all", "2.6.0-"]


def test_a_handler_that_leaves_makes_the_rest_the_new_arm() -> None:
    source = """
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        raise SystemExit
    rest()
    """
    assert reached(source, "rest") == ["2.6.0-"]


def test_names_missing_outside_of_a_try_change_nothing() -> None:
    source = """
    from torch.distributed.fsdp import FSDPModule
    rest()
    """
    assert reached(source, "rest") == ["all"]


# names with several bindings


def test_flag_set_by_trying_an_import() -> None:
    source = """
    try:
        from torch.distributed.fsdp import FSDPModule
        HAS_FSDP2 = True
    except ImportError:
        HAS_FSDP2 = False

    def save():
        if HAS_FSDP2:
            new()
        else:
            old()
    """
    assert reached(source, "new", "old") == ["2.6.0-", "-2.5.1"]


def test_flag_set_before_the_try() -> None:
    source = """
    HAS_FSDP2 = False
    try:
        from torch.distributed.fsdp import FSDPModule
        HAS_FSDP2 = True
    except ImportError:
        pass
    if not HAS_FSDP2:
        old()
    """
    assert reached(source, "old") == ["-2.5.1"]


def test_flag_set_in_the_else_of_the_try() -> None:
    source = """
    try:
        from torch.distributed.fsdp import FSDPModule
    except Exception:
        HAS_FSDP2 = False
    else:
        HAS_FSDP2 = True
    if HAS_FSDP2:
        new()
    """
    assert reached(source, "new") == ["2.6.0-"]


def test_imported_name_with_a_fallback_to_none() -> None:
    source = """
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        FSDPModule = None
    if FSDPModule is None:
        old()
    elif isinstance(model, FSDPModule):
        new()
    """
    found = gates(IMPORTS + dedent(source))
    assert described(found, "old") == "-2.5.1"
    assert described(found, "new") == "2.6.0-"


def test_name_bound_to_none_before_the_import() -> None:
    source = """
    FSDPModule = None
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        pass
    if FSDPModule:
        new()
    """
    assert reached(source, "new") == ["2.6.0-"]


def test_flag_set_by_a_gate() -> None:
    source = """
    if is_torch_version(">=", "2.1"):
        NEW = True
    else:
        NEW = False
    if NEW:
        new()
    """
    assert reached(source, "new") == ["2.1.2-"]


def test_flag_overwritten_in_a_function_is_unknown() -> None:
    source = """
    NEW = is_torch_version(">=", "2.1")
    def configure():
        global NEW
        NEW = False
    def save():
        if NEW:
            new()
    """
    found = gates(IMPORTS + dedent(source.replace("NEW = False", "NEW = True")))
    assert found.alive(at(found, "new")) == set(RELEASES)


def test_flag_of_an_uncovered_import_is_unknown() -> None:
    source = """
    try:
        from torchvision.ops import nms
        HAS_DTENSOR = True
    except ImportError:
        HAS_DTENSOR = False
    if HAS_DTENSOR:
        new()
    else:
        old()
    """
    assert reached(source, "new", "old") == ["all", "all"]


def test_flag_read_between_its_bindings() -> None:
    source = """
    NEW = is_torch_version(">=", "2.1")
    if NEW:
        first()
    NEW = is_torch_version(">=", "2.3")
    if NEW:
        second()
    """
    assert reached(source, "first", "second") == ["2.1.2-", "2.3.1-"]


def test_unpacked_numbers() -> None:
    source = """
    major, minor = torch.__version__.split(".")[:2]
    if int(major) >= 2 and int(minor) >= 1 or int(major) > 2:
        new()

    def f():
        (one, two) = map(int, torch.__version__.split(".")[:2])
        if (one, two) < (2, 1):
            old()
    """
    assert reached(source, "new", "old") == ["2.1.2-", "-2.0.1"]


def test_local_flag() -> None:
    source = """
    def save():
        is_new = is_torch_version(">=", "2.1")
        if not is_new:
            return old()
        new()
    """
    assert reached(source, "old", "new") == ["-2.0.1", "2.1.2-"]


@pytest.mark.parametrize(
    "body",
    [
        "return is_torch_version('>=', '2.1')",
        "answer = is_torch_version('>=', '2.1')\n        return answer",
    ],
)
def test_helper_functions_with_one_return(body: str) -> None:
    source = f"""
    def is_new():
        {body}

    def save():
        if is_new():
            new()
        else:
            old()
    """
    found = gates(IMPORTS + dedent(source))
    release = Version("2.0.1")
    assert release not in found.alive(at(found, "new"))
    assert release in found.alive(at(found, "old"))
    assert Version("2.2.2") in found.alive(at(found, "new"))
    assert Version("2.2.2") not in found.alive(at(found, "old"))


@pytest.mark.parametrize(
    "body",
    [
        "if is_torch_version('<', '2.1'):\n            return False",
        "if x:\n            return is_torch_version('>=', '2.1')\n        return is_torch_version('>=', '2.2')",
        "for x in y:\n            return False\n        return True",
        "print('no answer')",
    ],
)
def test_helper_functions_that_may_answer_otherwise_are_unknown(body: str) -> None:
    source = f"""
    def is_new():
        {body}

    if is_new():
        new()
    """
    found = gates(IMPORTS + dedent(source))
    assert Version("2.1.2") in found.alive(at(found, "new"))


def test_a_flag_that_depends_on_itself_ends() -> None:
    source = """
    for x in y:
        if NEW:
            NEW = is_torch_version(">=", "2.1")
            inner()
    """
    # Only that binding can have made it true.
    assert reached(source, "inner") == ["2.1.2-"]


def test_flags_that_depend_on_each_other_end() -> None:
    source = """
    for x in y:
        if ONE:
            TWO = True
        else:
            TWO = False
        if TWO:
            ONE = True
        else:
            ONE = is_torch_version(">=", "2.1")
            inner()
    """
    # Since 2.1 each of them can only ever have become true.
    assert reached(source, "inner") == ["-2.0.1"]


@pytest.mark.parametrize(
    "setting",
    [
        "FLAG = False",
        "FLAG = DEFAULT = None",
        "FLAG = ''",
        "FLAG = 0\n    if x:\n        FLAG = 0",
        "def FLAG_VALUE():\n        return False\n    FLAG = FLAG_VALUE()",
        "if x:\n        FLAG = False\n    else:\n        FLAG = False",
    ],
)
def test_settings_of_the_program_gate_nothing(setting: str) -> None:
    source = f"""
    {setting}
    if FLAG:
        one()
    if is_torch_version(">=", "2.1") and FLAG:
        two()
    if not FLAG:
        three()
    if is_torch_version(">=", "2.1") or FLAG:
        pass
    else:
        four()
    """
    assert reached(source, "one", "two", "three", "four") == ["all", "2.1.2-", "all", "-2.0.1"]


def test_conditions_written_out_on_the_spot_count_beside_a_version_test_only() -> None:
    source = """
    if False:
        dead_everywhere()
    if False or is_torch_version(">=", "2.1"):
        new()
    while 1 and is_torch_version(">=", "2.2"):
        loop()
    """
    assert reached(source, "dead_everywhere", "new", "loop") == ["all", "2.1.2-", "2.2.2-"]


@pytest.mark.parametrize(
    "leave",
    [
        "return",
        "raise ValueError",
        "sys.exit()",
        "with x:\n            return",
        "if x:\n            return\n        else:\n            return",
    ],
)
def test_code_behind_an_unconditional_exit_is_no_old_arm(leave: str) -> None:
    source = f"""
    def save():
        {leave}
        rest()
        if is_torch_version("<", "2.1"):
            return
        new()
    """
    assert reached(source, "rest", "new") == ["all", "2.1.2-"]


def test_flag_that_holds_on_the_whole_range_is_a_gate_still() -> None:
    source = """
    NEW = False
    if is_torch_version(">=", "2.1"):
        NEW = True
    if not NEW:
        old()
    """
    found = gates(IMPORTS + dedent(source), TorchRange.parse(">=2.1").releases)
    assert found.alive(at(found, "old")) == frozenset()


# the range


def test_only_releases_of_the_range_count() -> None:
    source = IMPORTS + "if is_torch_version('>=', '2.1'):\n    new()\nelse:\n    old()\n"
    found = gates(source, TorchRange.parse(">=2.1,<2.4").releases)
    alive = sorted(found.alive(at(found, "new")))
    assert [str(release) for release in alive] == "2.1.0 2.1.1 2.1.2 2.2.0 2.2.1 2.2.2 2.3.0 2.3.1".split()
    assert found.alive(at(found, "old")) == frozenset()


@pytest.mark.parametrize("test", ["'<=', '2.1'", "'==', '2.1.1'", "'<', '2.1.1'", "'==', '2.3.0'"])
def test_a_patch_release_counts_where_code_asks_for_it(test: str) -> None:
    found = gates(f"{IMPORTS}if is_torch_version({test}):\n    old()\n", TorchRange.parse(">=2.1").releases)
    assert found.alive(at(found, "old"))


def test_truth_on_one_release() -> None:
    found = gates(IMPORTS + "x = (is_torch_version('>=', '2.1') and y) or z")
    test = next(node for node in found.parents if isinstance(node, ast.Call))
    assert found.truth(test, Version("2.0.1")) is False
    assert found.truth(test, Version("2.1.2")) is True


def test_parents_are_found_when_they_are_not_given() -> None:
    tree = ast.parse(IMPORTS + "if is_torch_version('>=', '2.1'):\n    new()\n")
    found = Gates(tree, Names(build(tree)), RELEASES)
    assert min(found.alive(at(found, "new"))) == Version("2.1.2")


class _NoNames:
    project = None

    def qualified(self, node: ast.expr) -> str | None:
        return None

    def definition(self, node: ast.Name) -> ast.expr | ast.FunctionDef | None:
        return None


def test_a_resolver_that_knows_nothing_leaves_everything_alive() -> None:
    tree = ast.parse("if NEW:\n    new()\nelif torch.__version__ >= '2.1':\n    other()\n")
    found = Gates(tree, _NoNames(), RELEASES)
    assert described(found, "new") == described(found, "other") == "all"


# as projects write it


def test_a_save_helper_with_three_generations() -> None:
    source = """
    _IS_TORCH_2_1 = version.parse(torch.__version__.split("+")[0]) >= version.parse("2.1.0")

    class Strategy:
        def optimizer_state(self, optimizer):
            if not _IS_TORCH_2_1:
                if is_torch_version("<", "1.12"):
                    raise ImportError("too old")
                return oldest(FSDP.full_optim_state_dict(self.model, optimizer))
            with FSDP.state_dict_type(self.model, kind):
                return newest(FSDP.optim_state_dict(self.model, optimizer))
    """
    assert reached(source, "oldest", "newest") == ["1.12.1-2.0.1", "2.1.2-"]


def test_every_node_of_a_tree_may_be_asked_for() -> None:
    source = """
    for x in [a and b or c for y in z if is_torch_version(">=", "2.1") and y]:
        assert x, "y" if x else "z"
        try:
            while x if y else z:
                break
        except (ImportError, AttributeError) as error:
            raise error from None
        else:
            match x:
                case [1, *_] if is_torch_version("<", "2.1"):
                    pass
        finally:
            lambda: (yield)
    """
    found = gates(IMPORTS + dedent(source))
    assert all(found.alive(node) <= set(RELEASES) for node in [*found.parents, *found.parents.values()])


def test_a_flag_that_the_turn_before_set_decides_nothing() -> None:
    source = """
    new = version.parse(torch.__version__) >= version.parse("2.1")
    for step in steps:
        if new:
            one()
        new = True
    for step in steps:
        fresh = version.parse(torch.__version__) >= version.parse("2.1")
        if fresh:
            two()
        fresh = True
    """
    assert reached(source, "one", "two") == ["all", "2.1.2-"]


@pytest.mark.parametrize("change", ["parts[1] = 1", "parts.append(1)", "del parts[0]", "parts[:] = [2, 1]"])
def test_a_list_that_the_file_changes_decides_nothing(change: str) -> None:
    source = """
    parts = [int(part) for part in torch.__version__.split(".")[:2]]
    {change}
    if parts >= [2, 1]:
        one()
    """
    assert reached(dedent(source).format(change=change), "one") == ["all"]
    assert reached(dedent(source).format(change="parts.index(2)"), "one") == ["2.1.2-"]


def test_a_private_function_may_run_wherever_its_module_does() -> None:
    source = """
    def _save_old():
        old()
    if is_torch_version("<", "2.1"):
        _save_old()
    """
    assert reached(source, "old") == ["all"]


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ('@pytest.mark.skipif(not is_torch_version(">=", "2.1"), reason="new")', "2.1.2-"),
        ('@pytest.mark.skipif(condition=is_torch_version(">=", "2.1"), reason="old")', "-2.0.1"),
        ('@pytest.mark.skipif(version.parse(torch.__version__) < version.parse("2.1"), reason="")', "2.1.2-"),
        ('@unittest.skipIf(is_torch_version("<", "2.1"), "new")', "2.1.2-"),
        ('@skipUnless(is_torch_version(">=", "2.1"), "new")', "2.1.2-"),
        ('@RunIf(min_torch="2.1", min_cuda_gpus=2)', "2.1.2-"),
        ('@RunIf(max_torch="2.1.0")', "-2.0.1"),
        ('@RunIf(min_torch="1.13", max_torch="2.1")\n@pytest.mark.parametrize("x", [1])', "1.13.1-2.0.1"),
        ('@require_torch_min_version(version="2.1")', "2.1.2-"),
        ('@require_torch_greater_or_equal("2.1")', "2.1.2-"),
        ("@needs_new", "2.1.2-"),
        ("@require_new", "2.1.2-"),
        ("@counted", "all"),
        ('@pytest.mark.skipif(sys.platform == "win32", reason="")', "all"),
        ('@pytest.mark.skipif("torch.cuda.device_count() < 2")', "all"),
        ("@RunIf(min_torch=OLDEST)", "all"),
        ('@pytest.mark.skip(reason="later")', "all"),
        ('@unittest.skipIf(True, "later")', "all"),
    ],
)
def test_a_test_runs_where_its_decorators_do_not_skip_it(mark: str, expected: str) -> None:
    needs = """
needs_new = pytest.mark.skipif(is_torch_version("<", "2.1"), reason="new")
def require_new(test):
    return unittest.skipUnless(is_torch_version(">=", "2.1"), "new")(test)
def counted(test):
    return wraps(test)(test)
"""
    assert reached(f"{needs}{mark}\ndef test_it():\n    mark()\n", "mark") == [expected]
    assert reached(f"{needs}{mark}\nclass TestIt:\n    def test_it(self):\n        mark()\n", "mark") == [expected]


@pytest.mark.parametrize("mark", ["@pytest.mark.skipif({}, reason='')", "@RunIf(max_torch='2.1.0')"])
def test_a_mark_is_for_tests_and_for_what_their_class_does(mark: str) -> None:
    mark = mark.format('is_torch_version(">=", "2.1")')
    assert reached(f"{mark}\ndef test_it():\n    one()\n", "one") == ["-2.0.1"]
    assert reached(f"{mark}\ndef helper():\n    one()\n", "one") == ["all"]
    source = f"{mark}\nclass TestIt:\n    def run(self):\n        one()\n    def test_it(self):\n        self.run()\n"
    assert reached(source, "one") == ["-2.0.1"]


def test_a_decorator_of_unittest_stops_whoever_calls_the_function() -> None:
    source = '@unittest.skipIf(is_torch_version(">=", "2.1"), "")\ndef collect():\n    one()\ncollect()\n'
    assert reached(source, "one") == ["-2.0.1"]


def test_marks_that_are_given_later_are_those_that_hold() -> None:
    mark = 'pytest.mark.skipif(is_torch_version("<", "2.1"), reason="new")'
    test = "def test_it():\n    one()\n"
    assert reached(f"pytestmark = {mark}\npytestmark = []\n{test}", "one") == ["all"]
    assert reached(f"pytestmark = []\npytestmark += [{mark}]\n{test}", "one") == ["2.1.2-"]
    assert reached(f"pytestmark: list = [{mark}]\n{test}", "one") == ["2.1.2-"]


def test_a_decorator_decides_nothing_of_what_runs_with_the_module() -> None:
    source = """
    @RunIf(min_torch="2.1")
    class TestIt:
        x = early()

        @RunIf(min_torch="2.2")
        def test_it(self, y=default()):
            late()
    """
    assert reached(source, "early", "default", "late") == ["all", "all", "2.2.2-"]


@pytest.mark.parametrize("marks", ["{}", "[pytest.mark.gpu, {}]"])
def test_marks_of_a_module_or_class_are_those_of_its_tests(marks: str) -> None:
    mark = marks.format('pytest.mark.skipif(is_torch_version("<", "2.1"), reason="new")')
    source = f"pytestmark = {mark}\ndef test_it():\n    one()\ndef helper():\n    two()\n"
    assert reached(source, "one", "two") == ["2.1.2-", "all"]
    source = f"class TestIt:\n    pytestmark = {mark}\n    def test_it(self):\n        one()\n"
    assert reached(source, "one") == ["2.1.2-"]


def test_a_module_that_skips_itself_is_for_the_rest() -> None:
    skip = 'if is_torch_version("<", "2.1"):\n    pytest.skip("new", allow_module_level=True)\n'
    assert reached(f"import pytest\n{skip}def test_it():\n    mark()\n", "mark") == ["2.1.2-"]

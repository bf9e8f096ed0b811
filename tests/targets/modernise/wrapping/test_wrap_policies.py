from __future__ import annotations

import pytest
from packaging.version import Version

from fsdp_migrate.findings import Severity
from fsdp_migrate.targets.modernise.wrapping.wrap_policies import DEFAULT, FULL, NEW_BASE, OLD_BASE, SIZE_BASED, WRAP
from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.torch_api.data import exists
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

FROM_WRAP = f"from {WRAP} import"
MODULE_POLICY = f"{FROM_WRAP} ModuleWrapPolicy\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        (f"{WRAP}.{DEFAULT}", "1.11.0", "1.11.0"),
        (f"{WRAP}.{SIZE_BASED}", "1.12.1", "2.15.0"),
        (f"{WRAP}.{OLD_BASE}", "2.0.0", "2.0.1"),
        (f"{WRAP}.{NEW_BASE}", "2.1.2", "2.15.0"),
        (f"{WRAP}.ModuleWrapPolicy.policy", "2.0.0", "2.0.1"),
        ("torch.distributed.fsdp.ParamExecOrderWrapPolicy", "1.13.1", "1.13.1"),
        (f"{FULL}._or_policy", "1.12.1", "1.13.1"),
        (f"{WRAP}._or_policy", "1.12.1", "2.15.0"),
    ],
)
def test_the_names_are_where_the_cards_say(name: str, first: str, last: str) -> None:
    there = [release for release in RELEASES if exists(name, release)]
    assert (there[0], there[-1]) == (Version(first), Version(last))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            f"{FROM_WRAP} {DEFAULT}\n{DEFAULT}.X = {DEFAULT}\n",
            f"{FROM_WRAP} {SIZE_BASED}\n{SIZE_BASED}.X = {SIZE_BASED}\n",
        ),
        (f"{FROM_WRAP} {DEFAULT} as p\nq = p\n", f"{FROM_WRAP} {SIZE_BASED} as p\nq = p\n"),
        (
            f"from torch.distributed.fsdp import wrap\nq = wrap.{DEFAULT}\n",
            f"from torch.distributed.fsdp import wrap\nq = wrap.{SIZE_BASED}\n",
        ),
        (f"import {WRAP}\nq = {WRAP}.{DEFAULT}\n", f"import {WRAP}\nq = {WRAP}.{SIZE_BASED}\n"),
        (f"{FROM_WRAP} {DEFAULT}, {SIZE_BASED}\nq = {DEFAULT}\n", f"{FROM_WRAP} {SIZE_BASED}\nq = {SIZE_BASED}\n"),
        (
            f"{FROM_WRAP} {DEFAULT}\n{SIZE_BASED} = 3\nq = {DEFAULT}\n",
            f"{FROM_WRAP} {SIZE_BASED} as {DEFAULT}\n{SIZE_BASED} = 3\nq = {DEFAULT}\n",
        ),
        (
            f"{FROM_WRAP} {DEFAULT}\n__all__ = ['{DEFAULT}']\n",
            f"{FROM_WRAP} {SIZE_BASED} as {DEFAULT}\n__all__ = ['{DEFAULT}']\n",
        ),
        (
            f"{FROM_WRAP} {DEFAULT}\nq = f'{{{DEFAULT}}}'\n",
            f"{FROM_WRAP} {SIZE_BASED} as {DEFAULT}\nq = f'{{{DEFAULT}}}'\n",
        ),
        (
            f"if x:\n    {FROM_WRAP} {DEFAULT}\nq = {DEFAULT}\n",
            f"if x:\n    {FROM_WRAP} {SIZE_BASED} as {DEFAULT}\nq = {DEFAULT}\n",
        ),
        (
            f"def f():\n    {FROM_WRAP} {DEFAULT}\n    return lambda {SIZE_BASED}: {DEFAULT}\n",
            f"def f():\n    {FROM_WRAP} {SIZE_BASED} as {DEFAULT}\n    return lambda {SIZE_BASED}: {DEFAULT}\n",
        ),
        (
            f"def f():\n    {FROM_WRAP} {DEFAULT}\n    return lambda {DEFAULT}: {DEFAULT}, {DEFAULT}\n",
            f"def f():\n    {FROM_WRAP} {SIZE_BASED}\n    return lambda {DEFAULT}: {DEFAULT}, {SIZE_BASED}\n",
        ),
        (
            f"def f():\n    global {DEFAULT}\n    {FROM_WRAP} {DEFAULT}\n",
            f"def f():\n    global {DEFAULT}\n    {FROM_WRAP} {SIZE_BASED} as {DEFAULT}\n",
        ),
    ],
)
def test_the_default_policy_is_renamed_with_its_uses_or_keeps_its_alias(before: str, after: str) -> None:
    check_transformed(before, after, "FSDP402")


@pytest.mark.parametrize(
    "text",
    [
        f"from fairscale.nn.wrap import {DEFAULT}\nq = {DEFAULT}\n",
        f"from torch_xla.distributed.fsdp.wrap import {DEFAULT}\n",
        f"try:\n    {FROM_WRAP} {DEFAULT}\nexcept ImportError:\n    {FROM_WRAP} {SIZE_BASED} as {DEFAULT}\n",
        f"def {DEFAULT}(module):\n    return self.{DEFAULT}\n",
    ],
)
def test_policies_of_others_and_fallbacks_stay(text: str) -> None:
    check_noop(text, "FSDP402")


def test_the_severity_answers_for_the_range() -> None:
    (found,) = lint(f"{FROM_WRAP} {DEFAULT}\n", "FSDP402", torch=">=1.12")
    assert found.severity is Severity.BREAKS
    assert lint(f"{FROM_WRAP} {DEFAULT}\n", "FSDP402", torch="<1.12,>=1.11") == ()


def test_isinstance_and_annotations_take_the_new_base() -> None:
    text = f"{FROM_WRAP} {{0}}\n\ndef f(p: {{0}}) -> bool:\n    return isinstance(p, {{0}})\n"
    check_transformed(text.format(OLD_BASE), text.format(NEW_BASE), "FSDP403")
    text += "\nfrom torch import nn\n\nclass Block(nn.Module):\n    pass\n"
    check_transformed(text.format(OLD_BASE), text.format(NEW_BASE), "FSDP403")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{FROM_WRAP} {OLD_BASE}\nclass P({OLD_BASE}):\n    pass\n", "_run_policy"),
        (f"from torch.distributed.fsdp import wrap\nclass P(wrap.{OLD_BASE}):\n    pass\n", "_run_policy"),
        (f"{FROM_WRAP} {OLD_BASE}\nif isinstance(p, {OLD_BASE}):\n    p = p.policy\n", "the file reads `.policy`"),
        (MODULE_POLICY + "f = ModuleWrapPolicy({A}).policy\n", "remove `.policy`"),
    ],
)
def test_what_needs_more_than_a_name_is_reported(text: str, reason: str) -> None:
    check_manual(text, "FSDP403", reason)


def test_the_policy_property_goes_where_fsdp_gets_it() -> None:
    check_transformed(
        MODULE_POLICY + "m = FSDP(m, auto_wrap_policy=ModuleWrapPolicy({A}).policy)\n",
        MODULE_POLICY + "m = FSDP(m, auto_wrap_policy=ModuleWrapPolicy({A}))\n",
        "FSDP403",
    )


def test_the_base_class_is_there_in_2_0() -> None:
    check_noop(f"{FROM_WRAP} {OLD_BASE}\n", "FSDP403", torch=">=2.0,<2.1")
    both = f"try:\n    {FROM_WRAP} {NEW_BASE} as {OLD_BASE}\nexcept ImportError:\n    {FROM_WRAP} {OLD_BASE}\n"
    check_transformed(f"{FROM_WRAP} {OLD_BASE}\n", both, "FSDP403", torch=">=2.0")


def test_a_fallback_of_the_base_class_stays() -> None:
    check_noop(f"try:\n    {FROM_WRAP} {OLD_BASE}\nexcept ImportError:\n    {OLD_BASE} = object\n", "FSDP403")


def test_the_policy_by_execution_order_is_reported() -> None:
    check_manual(
        "import torch.distributed.fsdp as f\np = f.ParamExecOrderWrapPolicy(q)\n", "FSDP404", "torch has no replacement"
    )
    check_noop("import torch.distributed.fsdp as f\np = f.ParamExecOrderWrapPolicy(q)\n", "FSDP404", ">=1.13,<2.0")


@pytest.mark.parametrize("call", ["(m, p, w)", "(m, p, w, ignored_modules=x)", "(module=m, auto_wrap_policy=p)"])
def test_recursive_wrap_of_1_11_lacks_arguments(call: str) -> None:
    check_manual(f"{FROM_WRAP} _recursive_wrap\n_recursive_wrap{call}\n", "FSDP405", "ignored_params=set()")


def test_recursive_wrap_as_it_is_now_is_left_alone() -> None:
    text = f"{FROM_WRAP} _recursive_wrap\n_recursive_wrap({{}})\n"
    check_noop(text.format("m, p, w, ignored_modules=x, ignored_params=y"), "FSDP405")
    check_noop(text.format("*args"), "FSDP405")
    check_noop(text.format("m, p, w"), "FSDP405", torch="<1.12,>=1.11")


def test_or_policy_is_imported_from_its_home() -> None:
    text = "from {} import _or_policy as either\n"
    check_transformed(text.format(FULL), text.format(WRAP), "FSDP406")
    check_manual(f"import {FULL} as f\np = f._or_policy\n", "FSDP406", f"`{WRAP}._or_policy` cannot be reached")
    check_noop(f"import {FULL} as f\nf._or_policy = p\n", "FSDP406")
    check_noop(text.format(WRAP), "FSDP406")
    check_noop(text.format(WRAP), "FSDP406", torch=">=1.11")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("FSDP403", f"{FROM_WRAP} {OLD_BASE}\n"),
        ("FSDP404", "from torch.distributed.fsdp import ParamExecOrderWrapPolicy\n"),
    ],
)
def test_a_name_that_is_too_new_is_not_called_removed(code: str, text: str) -> None:
    check_noop(text, code, torch=">=1.11,<1.13")

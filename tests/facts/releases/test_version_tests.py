from __future__ import annotations

import ast
import importlib

import pytest
from packaging.version import Version

from fsdp_migrate.facts.names import Names
from fsdp_migrate.facts.releases.evaluator import truth
from fsdp_migrate.facts.releases.values import TorchVersion
from fsdp_migrate.facts.walk import build
from fsdp_migrate.torch_api import RELEASES

IMPORTS = """
import importlib.metadata
import importlib_metadata
import inspect
import operator
import sys
import packaging.version
import pkg_resources
import torch
import torch.distributed.fsdp as fsdp
from accelerate.utils import compare_versions, is_torch_version
from distutils.version import LooseVersion, StrictVersion
from importlib.metadata import version
from lightning_utilities.core.imports import RequirementCache, compare_version
from mmengine.utils import digit_version
from packaging import version as pv
from packaging.version import Version, Version as V, parse
from torch import __version__ as torch_string
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.torch_version import TorchVersion
from torch.version import __version__ as plain_string
from .imports import (
    IS_TORCH_2, TORCH_2_1_AVAILABLE, TORCH_GE_21, TORCH_MAJOR, TORCH_MINOR, _TORCH_EQUAL_2_4_0, _TORCH_EQUAL_2_8,
    _TORCH_GREATER_2_1, _TORCH_GREATER_EQUAL_2_1, _TORCH_GTE_2_11, _TORCH_LESSER_THAN_2_0, _TORCH_LESS_EQUAL_2_6,
    _torch_version, get_package_version, get_torch_version, is_torch2_available, is_torch_greater_or_equal,
    is_torch_greater_or_equal_than_2_1, is_torch_less_or_equal, is_torch_less_than, is_torch_min_version,
    is_torch_version_geq, is_torch_version_greater_than, torch_version_geq_2_1_0, using_torch_2,
)
"""

Expected = list[bool | None]


def since(release: str) -> Expected:
    return [known >= Version(release) for known in RELEASES]


def until(release: str) -> Expected:
    return [known < Version(release) for known in RELEASES]


def only(*releases: str) -> Expected:
    return [str(known) in releases for known in RELEASES]


def always(value: bool | None) -> Expected:
    return [value for _ in RELEASES]


def unknown(expected: Expected, *releases: str) -> Expected:
    """`expected`, but None on `releases`."""
    return [None if str(known) in releases else value for known, value in zip(RELEASES, expected)]


def outcomes(test: str, before: str = IMPORTS) -> Expected:
    tree = ast.parse(f"{before}\n({test})")
    statement = tree.body[-1]
    assert isinstance(statement, ast.Expr)
    names = Names(build(tree))
    return [truth(statement.value, release, names) for release in RELEASES]


@pytest.mark.parametrize(
    "test",
    [
        'pv.parse(torch.__version__) >= pv.parse("2.1")',
        'packaging.version.parse(torch.__version__) >= packaging.version.parse("2.1.0")',
        'parse(torch.__version__) >= parse("2.1")',
        'V(torch.__version__) >= V("2.1")',
        'Version(torch_string) >= Version("2.1")',
        'Version(torch.__version__.split("+")[0]) >= Version("2.1")',
        'Version(torch.__version__.split(".dev")[0]) >= Version("2.1")',
        'Version(torch.__version__.split("+", maxsplit=1)[0]) >= Version("2.1")',
        'pv.parse(pv.parse(torch.__version__).base_version) >= pv.parse("2.1")',
        "Version(torch.__version__).release >= (2, 1)",
        "Version(torch.__version__).release[:2] >= (2, 1)",
        "(Version(torch.__version__).major, Version(torch.__version__).minor) >= (2, 1)",
        'packaging.version.Version(version("torch")) >= packaging.version.Version("2.1")',
        'Version(importlib.metadata.version("torch")) >= Version("2.1")',
        'parse(importlib_metadata.version("torch")) >= parse("2.1")',
        'parse(importlib.metadata.distribution("torch").version) >= parse("2.1")',
        'pkg_resources.get_distribution("torch").parsed_version >= pkg_resources.parse_version("2.1")',
        'pkg_resources.parse_version(torch.__version__) >= pkg_resources.parse_version("2.1")',
        'LooseVersion(torch.__version__) >= LooseVersion("2.1")',
        'LooseVersion(torch.__version__) >= "2.1"',
        'StrictVersion(torch.__version__) >= StrictVersion("2.1")',
        'TorchVersion(torch.__version__) >= "2.1"',
        'digit_version(torch.__version__) >= digit_version("2.1.0")',
        'torch.__version__ >= "2.1"',
        '"2.1" <= torch.__version__',
        "torch.__version__ >= (2, 1)",
        'not torch.__version__ < "2.1"',
        'tuple(int(x) for x in torch.__version__.split(".")[:2]) >= (2, 1)',
        'tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 1)',
        '[int(x) for x in torch.__version__.split("+")[0].split(".") if x.isdigit()] >= [2, 1]',
        'tuple(int(v) for v in plain_string.split(".")[:2]) >= (2, 1)',
        'Version(".".join(torch.__version__.split(".")[:2])) >= Version("2.1")',
        "Version(f\"{torch.__version__.split('.')[0]}.{torch.__version__.split('.')[1]}\") >= Version('2.1')",
        'int(torch.__version__.split(".")[0]) * 100 + int(torch.__version__.split(".")[1]) >= 201',
        'operator.ge(Version(torch.__version__), Version("2.1"))',
        'is_torch_version(">=", "2.1")',
        'not is_torch_version("<", "2.1.0")',
        'compare_versions("torch", ">=", "2.1.0")',
        'compare_versions(parse(torch.__version__), ">=", "2.1.0")',
        'compare_version("torch", operator.ge, "2.1.0", use_base_version=True)',
        'RequirementCache("torch>=2.1")',
        'bool(RequirementCache("torch >= 2.1.0"))',
        'is_torch_greater_or_equal("2.1", accept_dev=True)',
        'is_torch_min_version("2.1.0")',
        'is_torch_version_geq("2.1.0")',
        'not is_torch_less_than("2.1")',
        "_TORCH_GREATER_EQUAL_2_1",
        "is_torch_greater_or_equal_than_2_1",
        "torch_version_geq_2_1_0",
        "TORCH_2_1_AVAILABLE",
        "TORCH_GE_21",
        "(TORCH_MAJOR, TORCH_MINOR) >= (2, 1)",
        'get_torch_version() >= Version("2.1")',
        'parse(_torch_version) >= parse("2.1")',
        '_torch_version >= Version("2.1")',
        'get_package_version("torch") >= parse("2.1")',
        'True if torch.__version__ >= "2.1" else False',
        '(minimum := "2.1") and torch.__version__ >= "2.1"',
        'any([torch.__version__ >= "2.1", False])',
    ],
)
def test_every_style_of_asking_for_2_1(test: str) -> None:
    assert outcomes(test) == since("2.1.2")


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ('torch.__version__.startswith("1.")', until("2.0.0")),
        ('torch.__version__[0] == "1"', until("2.0.0")),
        ('int(torch.__version__.split(".")[0]) >= 2', since("2.0.0")),
        ("Version(torch.__version__).major >= 2", since("2.0.0")),
        ("IS_TORCH_2", since("2.0.0")),
        ("is_torch2_available()", since("2.0.0")),
        ("using_torch_2()", since("2.0.0")),
        ("_TORCH_LESSER_THAN_2_0", until("2.0.0")),
        ("_TORCH_GTE_2_11", since("2.11.0")),
        ("_TORCH_EQUAL_2_8", only("2.8.0")),
        ('RequirementCache("torch>=2.1,<2.3")', only("2.1.2", "2.2.2")),
        ('Version("2.0") <= Version(torch.__version__) < Version("2.2")', only("2.0.0", "2.0.1", "2.1.2")),
        ("(2, 0) <= Version(torch.__version__).release[:2] < (2, 2)", only("2.0.0", "2.0.1", "2.1.2")),
        ('torch.__version__.startswith(("2.1.", "2.2."))', only("2.1.2", "2.2.2")),
        ('torch.__version__[:3] in ("2.2", "2.3")', only("2.2.2", "2.3.1")),
        ('torch.__version__ != "parrots"', always(True)),
        ('torch.__version__ == "parrots"', always(False)),
        ('"2.1." in torch.__version__', only("2.1.2")),
    ],
)
def test_other_bounds(test: str, expected: Expected) -> None:
    assert outcomes(test) == expected


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ("2.1.0.dev20230901", since("2.1.2")),
        ("2.1.0a0", since("2.1.2")),
        ("2.0.1rc", since("2.0.1")),
        ("2.0.1rc1", since("2.0.1")),
    ],
)
def test_pre_releases_as_bounds_compare_as_packaging_does(bound: str, expected: Expected) -> None:
    assert outcomes(f'Version(torch.__version__) >= Version("{bound}")') == expected
    assert outcomes(f'is_torch_version(">=", "{bound}")') == expected


# torch.__version__ compares as a version, but slices, str() and the metadata are plain strings: "2.10.0" < "2.9".
@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ('torch.__version__ >= "2.9"', since("2.9.1")),
        ('str(torch.__version__) >= "2.9"', only("2.9.1")),
        ('f"{torch.__version__}" >= "2.9"', only("2.9.1")),
        ('version("torch") >= "2.9"', only("2.9.1")),
        ('plain_string >= "2.9"', only("2.9.1")),
        ('torch.__version__[:3] >= "2.9"', only("2.9.1")),
        ('torch.__version__[:3] >= "2.1"', since("2.1.2")),
        (
            'float(".".join(torch.__version__.split(".")[:2])) >= 2.2',
            only("2.2.2", "2.3.1", "2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1"),
        ),
    ],
)
def test_plain_strings_compare_as_strings(test: str, expected: Expected) -> None:
    assert outcomes(test) == expected


@pytest.mark.parametrize("other", ["2.9", "2.13.0", "3", "parrots", (2, 9), (2, 13, 0)])
def test_the_version_string_compares_as_the_one_of_torch(other: object) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    real = importlib.import_module("torch.torch_version").TorchVersion("2.13.0+cpu")
    ours = TorchVersion("2.13.0+cpu")
    assert (ours == other, ours != other) == (real == other, real != other)
    if other != "parrots":
        assert (ours < other, ours <= other) == (real < other, real <= other)
        assert (ours > other, ours >= other) == (real > other, real >= other)


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ('Version(torch.__version__) > Version("2.0.0")', unknown(since("2.0.1"), "2.0.0")),
        ('Version(torch.__version__) == Version("2.12.0")', unknown(always(False), "2.12.0")),
        ('is_torch_version("<=", "2.0.1")', unknown(until("2.1.2"), "2.0.1")),
        ('"cu118" in torch.__version__', always(None)),
        ('"dev" in torch.__version__', always(None)),
        ('"git" not in torch.__version__', always(None)),
        ("Version(torch.__version__).is_devrelease", always(None)),
    ],
)
def test_what_differs_between_builds_of_a_release_is_unknown(test: str, expected: Expected) -> None:
    # 2.0.0 from PyPI calls itself 2.0.0+cu117, which is greater than 2.0.0.
    assert outcomes(test) == expected


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("_TORCH_GREATER_2_1", unknown(since("2.2.2"), "2.1.2")),
        ("_TORCH_LESS_EQUAL_2_6", unknown(until("2.7.1"), "2.6.0")),
        ("_TORCH_EQUAL_2_4_0", always(False)),
        ('is_torch_version_greater_than("2.9")', unknown(since("2.10.0"), "2.9.1")),
        ('is_torch_less_or_equal("2.5.1")', unknown(until("2.6.0"), "2.5.1")),
    ],
)
def test_what_a_name_leaves_open_is_unknown(test: str, expected: Expected) -> None:
    assert outcomes(test) == expected


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ('hasattr(FSDP, "optim_state_dict")', since("2.0.0")),
        ('not hasattr(FSDP, "optim_state_dict")', until("2.0.0")),
        ('hasattr(FSDP, "optim_state_dict_post_hook")', only("2.0.0", "2.0.1")),
        ('hasattr(fsdp, "fully_shard")', since("2.6.0")),
        ('hasattr(torch.distributed.fsdp, "FlatParameter")', since("1.12.1")),
        ('hasattr(torch.distributed.fsdp, "flat_param")', only("1.13.1", "2.0.0", "2.0.1", "2.1.2")),
        ('getattr(FSDP, "optim_state_dict", None) is not None', since("2.0.0")),
        ('getattr(FSDP, "optim_state_dict", None) is None', until("2.0.0")),
        ('getattr(FSDP, "optim_state_dict", None)', since("2.0.0")),
        ('callable(getattr(FSDP, "optim_state_dict", None))', since("2.0.0")),
        ('"device_mesh" in inspect.signature(FSDP).parameters', since("2.2.2")),
        ('"use_orig_params" in inspect.signature(FSDP.__init__).parameters.keys()', since("2.0.0")),
        ('"ignored_parameters" in inspect.getfullargspec(FSDP.__init__).args', only("2.0.0", "2.0.1")),
        ('hasattr(FSDP, "never_heard_of")', always(False)),
        ('hasattr(torch, "compile")', always(None)),
        ('hasattr(model, "optim_state_dict")', always(None)),
        ('getattr(FSDP, "optim_state_dict", None) == 1', [*always(False)[:3], *always(None)[3:]]),
    ],
)
def test_questions_about_what_torch_has(test: str, expected: Expected) -> None:
    assert outcomes(test) == expected


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ('torch.cuda.is_available() and torch.__version__ >= "2.1"', [v and None for v in since("2.1.2")]),
        ('torch.__version__ >= "2.1" and torch.cuda.is_available()', [v and None for v in since("2.1.2")]),
        ('torch.cuda.is_available() or torch.__version__ >= "2.1"', [v or None for v in since("2.1.2")]),
        ('not (x and torch.__version__ >= "2.1")', [True if v is False else None for v in since("2.1.2")]),
        ('"1.9" < torch.__version__ < x', always(None)),
        ('x < torch.__version__ < "1.9"', always(False)),
        ('torch.__version__ < "1.9" < x', always(False)),
        ('x if torch.__version__ >= "2.1" else True', [None if v else True for v in since("2.1.2")]),
        ('torch.__version__ >= "2.1" if x else torch.__version__ >= "2.1.0"', since("2.1.2")),
        ('torch.__version__ >= "2.1" if x else torch.__version__ >= "2.2"', unknown(since("2.2.2"), "2.1.2")),
        ("True", always(True)),
        ("0", always(False)),
        ("None", always(False)),
        ("not None", always(True)),
    ],
)
def test_unknown_parts_leave_the_rest_its_say(test: str, expected: Expected) -> None:
    assert outcomes(test) == expected


@pytest.mark.parametrize(
    "test",
    [
        "sys.version_info >= (3, 8)",
        "torch.__version__ == get_torch_version()",
        "Version(torch.__version__).release[:2] != (TORCH_MAJOR, TORCH_MINOR)",
        "torch.cuda.is_available()",
        "torch.version.cuda >= '11.8'",
        "undefined",
        "model.training",
        "1 / 0",
        "Version('no version') < Version(torch.__version__)",
        "Version(torch.__version__) >= '2.1'",
        "Version(torch.__version__) >= (2, 1)",
        "torch.__version__.split('.')[7] > '1'",
        "int(torch.__version__) > 1",
        "RequirementCache('deepspeed>=0.9')",
        "RequirementCache('torch=>2')",
        "compare_version('transformers', operator.ge, '4')",
        "is_torch_version('2.1')",
        "is_torch_version('~', '2.1')",
        "is_torch_version(*arguments)",
        "version('transformers') > '4'",
        "is_torch_greater_or_equal(minimum)",
        "torch.__version__.format(x) > '1'",
        "(lambda: torch.__version__)()",
        "torch.__version__ is x",
        "'a' * 10 ** 9",
        "'2' * 3 == '222'",
        "3 * '2' == '222'",
        "[x for y in torch.__version__ for x in y]",
        "-torch.__version__",
        "str(getattr(FSDP, 'full_optim_state_dict')) > ''",
    ],
)
def test_everything_else_is_unknown_and_never_an_error(test: str) -> None:
    assert outcomes(test) == always(None)


FLAGS = """
import torch
from functools import lru_cache
from packaging import version
from packaging.version import Version, parse

TORCH = version.parse(torch.__version__)
TEXT = torch.__version__
NEW = TORCH >= version.parse("2.1")
ALIAS = NEW
OLD = not NEW
MAJOR, MINOR = int(torch.__version__.split(".")[0]), int(torch.__version__.split(".")[1])
MINIMUM = "2.1"
SETTING = False
is_new = lambda minimum: TORCH >= parse(minimum)
TORCH_GREATER_EQUAL_2_1 = version.parse(torch.__version__) >= version.parse("2.0")
loop = loop and NEW

def at_least(minimum, maximum=None, *, strict=False):
    '''Whether torch is new enough.'''
    current = Version(torch.__version__.split("+")[0])
    return current >= Version(minimum)

@lru_cache(maxsize=None)
def new_enough():
    import torch
    return at_least(minimum=MINIMUM)

def default(minimum="2.1"):
    return at_least(minimum)

def both(flag, minimum):
    return flag and at_least(minimum)

def recursive(minimum):
    return recursive(minimum)

def generator():
    yield torch.__version__ >= "2.1"
    return True

@wrapped
def decorated():
    return torch.__version__ >= "2.1"

async def asynchronous():
    return torch.__version__ >= "2.1"
"""


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("NEW", since("2.1.2")),
        ("ALIAS", since("2.1.2")),
        ("OLD", until("2.1.2")),
        ("not OLD", since("2.1.2")),
        ("MINIMUM", always(None)),
        ('MINIMUM == "2.1"', always(None)),
        ('TORCH >= parse("2.1")', since("2.1.2")),
        ('TEXT >= "2.9"', since("2.9.1")),
        ("(MAJOR, MINOR) >= (2, 1)", since("2.1.2")),
        ("MAJOR > 2 or (MAJOR == 2 and MINOR >= 1)", since("2.1.2")),
        ('is_new("2.1")', since("2.1.2")),
        ('at_least("2.1")', since("2.1.2")),
        ('at_least("2.1", strict=unknown)', since("2.1.2")),
        ('not at_least(minimum="2.1")', until("2.1.2")),
        ("at_least(MINIMUM)", since("2.1.2")),
        ("at_least(unknown)", always(None)),
        ("at_least()", always(None)),
        ("new_enough()", since("2.1.2")),
        ("default()", since("2.1.2")),
        ('default("2.6")', since("2.6.0")),
        ('both(unknown, "2.1")', [v and None for v in since("2.1.2")]),
        ('both(True, "2.1")', since("2.1.2")),
        ('both(False, "2.1")', always(None)),
        ('both(SETTING, "2.1")', [v and None for v in since("2.1.2")]),
        ('recursive("2.1")', always(None)),
        ("loop", [v and None for v in since("2.1.2")]),
        ("generator()", always(None)),
        ("decorated()", always(None)),
        ("asynchronous()", always(None)),
    ],
)
def test_flags_and_helpers_of_the_file_are_followed(test: str, expected: Expected) -> None:
    assert outcomes(test, FLAGS) == expected


def test_a_constant_defined_here_means_its_definition_and_not_its_name() -> None:
    assert outcomes("TORCH_GREATER_EQUAL_2_1", FLAGS) == since("2.0.0")


class _Stub:
    """A resolver by text, as small as the protocol allows."""

    def __init__(self, table: dict[str, str], definitions: dict[str, str]) -> None:
        self.table = table
        self.definitions = definitions

    def qualified(self, node: ast.expr) -> str | None:
        return self.table.get(ast.unparse(node))

    def definition(self, node: ast.Name) -> ast.expr | ast.FunctionDef | None:
        text = self.definitions.get(node.id)
        return None if text is None else ast.parse(text, mode="eval").body


def test_any_resolver_with_the_two_questions_will_do() -> None:
    names = _Stub({"t.__version__": "torch.__version__", "V": "packaging.version.Version"}, {"NEW": "V(t.__version__)"})
    new, old = (ast.parse(f"{name} >= V('2.1')", mode="eval").body for name in ("NEW", "OLD"))
    assert truth(new, Version("2.1.2"), names) is True
    assert truth(new, Version("2.0.1"), names) is False
    assert truth(old, Version("2.0.1"), names) is None


def test_endless_and_enormous_definitions_end_as_unknown() -> None:
    definitions = {f"x{n}": f"x{n + 1} and x{n + 1} or x{n + 1}" for n in range(60)}
    name = ast.parse("x0", mode="eval").body
    assert truth(name, Version("2.1.2"), _Stub({}, definitions)) is None
    assert truth(name, Version("2.1.2"), _Stub({}, {"x0": "x0 + x0"})) is None
    deep = ast.parse("t.__version__" + "[0:]" * 80 + " >= '2'", mode="eval").body
    assert truth(deep, Version("2.1.2"), _Stub({"t.__version__": "torch.__version__"}, {})) is None

"""Reading the API out of a wheel: made-up wheels, since what the real ones hold is checked by the data's own tests."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tools.wheel_api import wheels
from tools.wheel_api.facts import Fact, facts
from tools.wheel_api.release import Release
from tools.wheel_api.table import merged, write

PACKAGE = "torch.distributed.fsdp"
Read = Callable[..., dict[str, Fact]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Facts of a wheel with these modules in torch.distributed.fsdp; `init` is that of the package itself."""

    def facts_of(init: str = "", **texts: str) -> dict[str, Fact]:
        path = tmp_path / "2.1.2.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("torch/__init__.py", "")
            archive.writestr("torch/distributed/__init__.py", "")
            for file, text in {"__init__": init, **texts}.items():
                archive.writestr(f"torch/distributed/fsdp/{file}.py", dedent(text))
        return facts(Release("2.1.2", wheels.sources("2.1.2", tmp_path)))

    return facts_of


def below(found: dict[str, Fact], prefix: str = PACKAGE) -> dict[str, Any]:
    """Kinds by the names below `prefix`, without it."""
    return {n.removeprefix(f"{prefix}."): fact["kind"] for n, fact in found.items() if n.startswith(f"{prefix}.")}


def test_names_are_what_the_statements_of_a_module_bind(read: Read) -> None:
    found = read(
        api="""
        import math
        from typing import TYPE_CHECKING, overload
        VALUE, (OTHER, more) = 1, (2, 3)
        SHORT: str = "short"
        declared: int
        gone = 1
        del gone
        def function(): ...
        @overload
        def function(a: int): ...
        async def coroutine(): ...
        class Cls: ...
        if TYPE_CHECKING:
            from elsewhere import Type
            def only_for_checkers(): ...
        else:
            def for_all(): ...
        if __name__ == "__main__":
            script = 1
        for index in range(3):
            inside = index
        with open(__file__) as stream:
            text = stream
        """
    )
    assert below(found, f"{PACKAGE}.api") == {
        **dict.fromkeys("VALUE OTHER more SHORT index inside stream".split(), "constant"),
        **dict.fromkeys("function coroutine for_all".split(), "function"),
        "Cls": "class",
        "text": "alias",
    }
    assert found[f"{PACKAGE}.api"]["foreign"] == ["TYPE_CHECKING", "math", "overload"]
    assert found[f"{PACKAGE}.api.SHORT"]["value"] == "'short'"


def test_re_exports_are_followed_to_where_a_thing_is_defined(read: Read) -> None:
    found = read(
        init="from .api import *\nfrom .api import Cls as Renamed\nfrom . import wrap\n",
        api="""
        from ._impl import Cls, _private, other
        __all__ = ["Cls"]
        __all__ += ["other"]
        assigned = Cls
        """,
        _impl="class Cls: ...\ndef _private(): ...\ndef other(): ...\n",
        wrap="",
    )
    targets = {name: fact.get("target") for name, fact in found.items()}
    assert targets[f"{PACKAGE}.Cls"] == f"{PACKAGE}._impl.Cls"
    assert targets[f"{PACKAGE}.Renamed"] == f"{PACKAGE}._impl.Cls"
    assert targets[f"{PACKAGE}.other"] == f"{PACKAGE}._impl.other"
    assert targets[f"{PACKAGE}.api.assigned"] == f"{PACKAGE}._impl.Cls"
    assert f"{PACKAGE}._private" not in found
    assert found[f"{PACKAGE}.wrap"]["kind"] == "module"


def test_a_star_import_without_all_takes_public_names_and_loaded_submodules(read: Read) -> None:
    ops = {
        "ops/__init__": "from .inner import Cls\nimport math\n_hidden = 1\nshown = 2\n",
        "ops/inner": "class Cls: ...",
    }
    found = read(init="from .ops import *\n", **ops)
    assert {"Cls", "shown", "inner", "math"} <= below(found).keys()
    assert found[f"{PACKAGE}.inner"]["target"] == f"{PACKAGE}.ops.inner"
    assert "_hidden" not in below(found)


def test_what_some_builds_lack_is_optional(read: Read) -> None:
    found = read(
        api="""
        try:
            from torch._C import Built
            HAS_BUILT = True
        except ImportError:
            HAS_BUILT = False
        try:
            from ._impl import here
        except ImportError:
            here = None
        if somewhere():
            def either(): ...
        else:
            either = None
        if hasattr(torch._C, "_c10d_init"):
            always = 1
        """,
        _impl="def here(): ...",
    )
    optional = {name for name, fact in found.items() if fact.get("optional")}
    assert optional == {f"{PACKAGE}.api.Built"}
    assert {"HAS_BUILT", "here", "either", "always"} <= below(found, f"{PACKAGE}.api").keys()
    assert found[f"{PACKAGE}.api.here"]["target"] == f"{PACKAGE}._impl.here"


def test_entries_in_sys_modules_are_aliases(read: Read) -> None:
    found = read(
        init="""
        import sys
        from importlib import import_module
        for part in ["one", "two"]:
            full = f"torch.distributed.fsdp.new_{part}"
            sys.modules[f"torch.distributed.fsdp.{part}"] = import_module(full)
        """,
        new_one="",
        new_two="",
        old="import sys\nimport torch.distributed.fsdp.new_one\n"
        "sys.modules['torch.distributed.fsdp.old'] = torch.distributed.fsdp.new_one\n",
        older="import sys\nimport torch.distributed.fsdp.new_two as _new\n"
        "sys.modules['torch.distributed.fsdp.older'] = _new\n",
    )
    for name, target in (("one", "new_one"), ("two", "new_two"), ("old", "new_one"), ("older", "new_two")):
        assert found[f"{PACKAGE}.{name}"] == {"kind": "alias", "target": f"{PACKAGE}.{target}"}


def test_members_of_classes(read: Read) -> None:
    found = read(
        api="""
        from dataclasses import dataclass, field
        from enum import Enum, auto
        from typing import ClassVar, NamedTuple

        class Base:
            def inherited(self): self.set_on_instances = 1

        class Cls(Base):
            attribute = 1
            @staticmethod
            def static(a): ...
            @classmethod
            def cls_method(cls, b): ...
            @property
            def prop(self): ...
            @prop.setter
            def prop(self, value): ...
            def method(self, c): ...
            class Inner:
                deep = 1

        class Kind(Enum):
            ONE = auto()
            _hidden = 2

        @dataclass
        class Data:
            required: int
            made: list = field(default_factory=list)
            plain: int = 1
            shared: ClassVar[int] = 2

        class Pair(NamedTuple):
            left: int
            right: int = 0

        class Registry:
            @classmethod
            def register(cls, name): setattr(Registry, name.upper(), name)
        """
    )
    assert found[f"{PACKAGE}.api.Registry"]["bases"] == ["?"]
    assert below(found, f"{PACKAGE}.api.Cls") == {
        "attribute": "constant",
        "static": "staticmethod",
        "cls_method": "classmethod",
        "prop": "property",
        "method": "method",
        "Inner": "class",
        "Inner.deep": "constant",
    }
    assert found[f"{PACKAGE}.api.Cls"]["bases"] == [f"{PACKAGE}.api.Base"]
    assert found[f"{PACKAGE}.api.Base"]["instance"] == ["set_on_instances"]
    assert below(found, f"{PACKAGE}.api.Kind") == {"ONE": "enum-member", "_hidden": "constant"}
    assert below(found, f"{PACKAGE}.api.Data") == {"plain": "field", "shared": "constant"}
    assert found[f"{PACKAGE}.api.Data"]["instance"] == ["made", "required"]
    assert below(found, f"{PACKAGE}.api.Pair") == {"left": "field", "right": "field"}
    signatures = {name.rpartition(".")[2]: fact.get("signature") for name, fact in found.items()}
    assert signatures["static"] == "a"
    assert signatures["cls_method"] == "b"
    assert signatures["method"] == "c"
    assert signatures["Data"] == "required, made=list(), plain=1"
    assert signatures["Pair"] == "left, right=0"
    assert signatures["Kind"] is None
    assert signatures["Cls"] == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "class A:\n def __init__(self, x, /, y=1, *args, z, w=None, **more): ...",
            "x, /, y=1, *args, z, w=None, **more",
        ),
        ("class A:\n def __new__(cls, x): ...\n def __init__(self, *args, **kwargs): ...", "x"),
        ("class A:\n def __new__(cls, *args, **kwargs): ...\n def __init__(self, y): ...", "y"),
        ("class B:\n def __init__(self, y): ...\nclass A(B): ...", "y"),
        ("@dataclass\nclass B:\n x: int\n@dataclass\nclass A(B):\n y: int = 0\n z: int = field(init=False)", "x, y=0"),
        ("@dataclass(kw_only=True)\nclass A:\n x: int", "*, x"),
        ("@dataclass\nclass A:\n x: int = 1\n y: int = field(default=2, kw_only=True)", "x=1, *, y=2"),
        ("class A(Exception): ...", None),
        ("class A(typing.Protocol): ...", None),
        ("class _A:\n def __init__(self, __x, __y__=1): ...\nclass A(_A): ...", "_A__x, __y__=1"),
        ("kw_only_dataclass = {}\n@dataclass(frozen=True, **kw_only_dataclass)\nclass A:\n x: int", "*, x"),
    ],
)
def test_signatures_of_constructors(read: Read, text: str, expected: str | None) -> None:
    found = read(api=f"import typing\nfrom dataclasses import dataclass, field\n{text}\n")
    assert found[f"{PACKAGE}.api.A"].get("signature") == expected


def test_deprecations(read: Read) -> None:
    found = read(
        api="""
        import warnings
        from enum import Enum
        from typing_extensions import deprecated

        warnings.warn("this module is deprecated", DeprecationWarning)

        class Kind(Enum):
            OLD = 1
            NEW = 2

        @deprecated("gone " "soon", category=FutureWarning)
        def decorated(): ...

        @deprecated("only marked", category=None)
        def marked(): ...

        def warns(kind, old=None):
            if kind == Kind.OLD:
                warnings.warn("OLD is deprecated", FutureWarning)
            if old is not None:
                warnings.warn("`old` is deprecated")
            if not is_compiling():
                warnings.warn(f"{warns.__name__} will go", FutureWarning)

        def does_not(x):
            warnings.warn("x is large")
            if x > 1:
                warnings.warn("large values are deprecated", FutureWarning)

        class Cls:
            def method(self):
                Cls._warn_old("method", new="other")
            def by_another(self, a):
                return self.method()
            @staticmethod
            def _warn_old(name, new):
                warnings.warn(f"{name} is deprecated, use {new}", FutureWarning)

        class Old:
            @deprecated("old class")
            def __init__(self): ...
        """
    )
    said = {name.removeprefix(f"{PACKAGE}.api."): fact.get("deprecated") for name, fact in found.items()}
    assert said[f"{PACKAGE}.api"] == ["DeprecationWarning", "this module is deprecated"]
    assert said["decorated"] == ["FutureWarning", "gone soon"]
    assert said["marked"] == ["", "only marked"]
    assert said["warns"] == ["FutureWarning", "{warns.__name__} will go"]
    assert said["Kind.OLD"] == ["FutureWarning", "OLD is deprecated"]
    assert said["Kind.NEW"] is None
    assert said["does_not"] is None
    assert said["Cls.method"] == ["FutureWarning", "method is deprecated, use other"]
    assert said["Cls.by_another"] == said["Cls.method"]
    assert said["Cls"] is None
    assert said["Old"] == ["DeprecationWarning", "old class"]
    assert found[f"{PACKAGE}.api.warns"]["deprecated_parameters"] == {"old": ["UserWarning", "`old` is deprecated"]}
    assert "deprecated_parameters" not in found[f"{PACKAGE}.api.does_not"]


def test_tables_say_what_holds_for_which_releases() -> None:
    releases = ["1.0", "1.1", "1.2", "1.3"]
    old, new = {"kind": "function", "signature": "a"}, {"kind": "function", "signature": "a, b"}
    found = {
        "1.0": {"changed": old, "gone": old, "back": old},
        "1.1": {"changed": old, "gone": old},
        "1.2": {"changed": new, "back": old, "maybe": {**new, "optional": True}},
        "1.3": {"changed": new, "back": old, "maybe": new},
    }
    assert merged(releases, found) == {
        "back": {"in": "1.0-1.0,1.2-", "kind": {"": "function"}, "signature": {"": "a"}},
        "changed": {"in": "1.0-", "kind": {"": "function"}, "signature": {"1.0-1.1": "a", "1.2-": "a, b"}},
        "gone": {"in": "1.0-1.1", "kind": {"": "function"}, "signature": {"": "a"}},
        "maybe": {"in": "1.2-", "kind": {"": "function"}, "signature": {"": "a, b"}, "optional": "1.2-1.2"},
    }


def test_two_builds_give_the_same_bytes_with_one_name_a_line(tmp_path: Path) -> None:
    table = {"b": {"in": "1.0-"}, "a": {"in": "1.0-"}}
    write(tmp_path / "one", ["1.0"], table)
    write(tmp_path / "two", ["1.0"], dict(reversed(table.items())))
    raw = (tmp_path / "one").read_bytes()
    assert raw == (tmp_path / "two").read_bytes()
    text = gzip.decompress(raw).decode()
    assert json.loads(text) == {"releases": "1.0", "names": table}
    assert [line for line in text.splitlines() if '"in"' in line] == ['"a": {"in": "1.0-"},', '"b": {"in": "1.0-"}']


def test_a_release_that_cannot_be_had_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        stderr = "ERROR: no such\nthing\n"

    monkeypatch.setattr(wheels.subprocess, "run", lambda *_, **__: Done())
    with pytest.raises(wheels.WheelError, match=r"^torch 9\.9\.9: no wheel downloaded: ERROR: no such thing$"):
        wheels.sources("9.9.9", tmp_path)


def test_a_wheel_is_kept_as_its_python_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        stderr = ""

    def download(command: list[str], **_: object) -> Done:
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "torch-9.whl", "w") as wheel:
            wheel.writestr("torch/__init__.py", "x = 1")
            wheel.writestr("torch/folder/part.py", "")
            wheel.writestr("torch/lib/libtorch.so", "binary")
        return Done()

    monkeypatch.setattr(wheels.subprocess, "run", download)
    sources = wheels.sources("9.9.9", tmp_path)
    assert sources.modules == ["torch", "torch.folder", "torch.folder.part"]
    assert sources.text("torch") == "x = 1"
    assert sources.text("torch.folder") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["9.9.9.zip"]
    assert zipfile.ZipFile(tmp_path / "9.9.9.zip").namelist() == ["torch/__init__.py", "torch/folder/part.py"]

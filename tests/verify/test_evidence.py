from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fsdp_migrate.verify.worker.evidence import Watch
from fsdp_migrate.verify.worker.protocol import Look

NEW_RECIPE = "FSDP.state_dict_type() and FSDP.set_state_dict_type() are being deprecated"
LIBRARY = """
import contextlib, functools, warnings

def old(model, group=None): return model
def calls_old(model): return old(model)

def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs): return function(*args, **kwargs)
    return wrapper

@contextlib.contextmanager
def context(kind, config=None):
    yield

class Meta(type):
    def __instancecheck__(cls, value): return True

class Old(metaclass=Meta):
    def __init__(self, size): self.size = size
    @staticmethod
    def static(x): return x
    def method(self): return self
"""


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Whether a program, given as text, shows the evidence; it can import the library above and a module beside it."""
    (tmp_path / "evidence_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = tmp_path / "own"
    (own / "site-packages").mkdir(parents=True)
    (own / "evidence_beside.py").write_text("import evidence_library\ndef build(): return evidence_library.old(1)\n")
    (own / "site-packages" / "evidence_theirs.py").write_text((own / "evidence_beside.py").read_text())
    monkeypatch.syspath_prepend(str(own))
    monkeypatch.syspath_prepend(str(own / "site-packages"))
    importlib.invalidate_caches()

    def run(program: str, look: Look, *, fails: bool = False) -> bool:
        for name in ("evidence_beside", "evidence_theirs"):
            sys.modules.pop(name, None)
        path = str(own / "program.py")
        code = compile(f"import warnings, evidence_library as lib\n{program}", path, "exec")
        seen = Watch((look,), path)
        with seen():
            exec(code, {"__name__": "program"})
        return seen.seen(fails)[0]

    return run


@pytest.mark.parametrize(
    ("program", "look", "expected"),
    [
        ("lib.old(1)", Look("call", "evidence_library.old"), True),
        ("f = lib.old\nf(1)", Look("call", "evidence_library.old"), True),
        ("lib.calls_old(1)", Look("call", "evidence_library.old"), False),
        ("import evidence_beside as own; own.build()", Look("call", "evidence_library.old"), True),
        ("import evidence_theirs as theirs; theirs.build()", Look("call", "evidence_library.old"), False),
        ("lib.old", Look("call", "evidence_library.old"), False),
        ("lib.Old(3)", Look("call", "evidence_library.Old"), True),
        ("lib.Old.static(3)", Look("call", "evidence_library.Old.static"), True),
        ("lib.Old(3).method()", Look("call", "evidence_library.Old.method"), True),
        ("isinstance(1, lib.Old)", Look("call", "evidence_library.Old.__instancecheck__"), True),
        ("isinstance(1, (str, lib.Old))", Look("call", "evidence_library.Meta.__instancecheck__"), True),
        ("isinstance(1, int)", Look("call", "builtins.isinstance"), True),
        ("type(1)", Look("call", "builtins.isinstance"), False),
        ("with lib.context('full'): pass", Look("call", "evidence_library.context"), True),
        ("with lib.context('full'): pass", Look("call", "evidence_library.context", "config", False), True),
        ("with lib.context('full', 1): pass", Look("call", "evidence_library.context", "config", False), False),
        ("with lib.context('full', config=1): pass", Look("call", "evidence_library.context", "config"), True),
        ("lib.old(1)", Look("call", "evidence_library.old", "group"), False),
        ("warnings.warn('old is deprecated')", Look("warning", "old is"), True),
        ("warnings.warn('new is fine')", Look("warning", "old is"), False),
        ("warnings.warn('x is deprecated', FutureWarning)", Look("deprecation"), True),
        ("warnings.warn('x is slow', FutureWarning)", Look("deprecation"), False),
        (f"warnings.warn('{NEW_RECIPE}', FutureWarning)", Look("deprecation"), False),
    ],
)
def test_evidence_is_seen_exactly_where_it_is(
    program: str, look: Look, expected: bool, watch: Callable[..., bool]
) -> None:
    assert watch(program, look) is expected


@pytest.mark.parametrize("failed", [True, False])
def test_an_exception_is_evidence_if_it_is_declared(failed: bool, watch: Callable[..., bool]) -> None:
    assert watch("pass", Look("raises"), fails=failed) is failed


def test_a_function_that_is_not_there_is_named(watch: Callable[..., bool]) -> None:
    with pytest.raises(LookupError, match=r"no function evidence_library\.gone in this torch"):
        watch("pass", Look("call", "evidence_library.gone"))

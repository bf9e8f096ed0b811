"""Traces: merged, kept as JSON and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.trace.records import Call, Optimizer, Place, Trace, TraceError, current, document, load, merged
from fsdp_migrate.workspace.disk import digest

API = "torch.distributed.fsdp.FullyShardedDataParallel.full_optim_state_dict"
PLACE = Place("a.py", 3, "save", (3, 4, 3, 9))


def call(times: int = 1, *, ranks: tuple[int, ...] = (), place: Place = PLACE, **more: Any) -> Call:
    return Call(API, place, None, times, ranks, more.pop("given", {"model": ("M",)}), **more)


def trace(*calls: Call, **more: Any) -> Trace:
    return Trace(calls=calls, files=more.pop("files", {"a.py": "1"}), processes=1, torch=("2.13.0",), **more)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    found = Optimizer(("optim", "self.optim"), "AdamW")
    some = (call(2, ranks=(0, 1), optimizers=(found,)), Call(API, None, "lib/x.py:3", 1, (), {}))
    whole = trace(*some, lines={"a.py": frozenset({3, 1})}, sees_lines=False, unwatched={"torch.load": "it is C"})
    (tmp_path / "uses.json").write_text(document(whole))
    read = load(str(tmp_path / "uses.json"))
    assert sorted(map(repr, read.calls)) == sorted(map(repr, some))
    assert read.lines == {"a.py": {1, 3}}
    assert (read.files, read.unwatched, read.sees_lines, read.processes) == (
        {"a.py": "1"},
        {"torch.load": "it is C"},
        False,
        1,
    )


def test_ranks_and_runs_are_added_up() -> None:
    one = trace(call(2, ranks=(0,), given={"optim": ("AdamW",)}), lines={"a.py": frozenset({1})})
    other = trace(call(3, ranks=(1, 0), given={"optim": ("SGD",), "group": ("Group",)}), sees_lines=False)
    whole = merged([one, other])
    assert whole.calls == (call(5, ranks=(0, 1), given={"group": ("Group",), "optim": ("AdamW", "SGD")}),)
    assert (whole.lines, whole.sees_lines, whole.processes) == ({"a.py": {1}}, False, 2)


def test_an_optimizer_is_the_one_that_every_call_found() -> None:
    both, local = Optimizer(("o", "self.o"), "AdamW"), Optimizer(("o",), "AdamW")
    found = [(both,), (local,)]
    assert merged(trace(call(optimizers=one)) for one in found).calls[0].optimizers == (local,)
    for other in ((), (both, local)):
        (several,) = merged([trace(call(optimizers=(both,))), trace(call(optimizers=other))]).calls
        assert several.optimizers != (both,)
        assert len(several.optimizers or ()) != 1
    assert merged([trace(call()), trace(call(optimizers=(both,)))]).calls[0].optimizers == (both,)


def test_of_a_file_that_changed_between_runs_the_last_one_counts() -> None:
    elsewhere = call(place=Place("b.py", 1, "f"))
    old = trace(call(7), elsewhere, files={"a.py": "1", "b.py": "2"}, lines={"a.py": frozenset({9})})
    new = trace(call(1), files={"a.py": "changed"}, lines={"a.py": frozenset({1})})
    whole = merged([old, new])
    assert set(map(repr, whole.calls)) == set(map(repr, (elsewhere, call(1))))
    assert whole.files == {"a.py": "changed", "b.py": "2"}
    assert whole.lines == {"a.py": {1}}


def test_what_changed_since_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("as it was")
    (tmp_path / "b.py").write_text("now")
    files = {"a.py": digest(b"as it was"), "b.py": "then", "gone.py": "then"}
    calls = [call(place=Place(path, 1, "f")) for path in files]
    kept, changed = current(trace(*calls, files=files), str(tmp_path))
    assert changed == ("b.py", "gone.py")
    assert kept.calls == (calls[0],)
    assert set(kept.files) == {"a.py"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "No such file or directory"),
        ("", "this is not JSON"),
        ("[" * 100_000, "this is not JSON"),
        ("[]", "this is not a trace"),
        ('{"findings": []}', "this is not a trace"),
        ('{"fsdp_migrate_trace": 0, "calls": []}', "the format 0 is not the one of this fsdp-migrate (1)"),
        ('{"fsdp_migrate_trace": 1}', "the trace is damaged"),
    ],
)
def test_a_file_that_is_no_trace_is_told_in_one_line(tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "uses.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TraceError) as caught:
        load(str(path))
    assert told in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("broken", ["calls", "files", "lines", "torch"])
def test_any_damage_is_told(tmp_path: Path, broken: str) -> None:
    held = json.loads(document(trace(call())))
    for damage in (None, 3, [1], ["x"], [{}], {"a.py": 1} if broken == "lines" else [None]):
        if broken == "torch" and isinstance(damage, list):
            continue
        (tmp_path / "uses.json").write_text(json.dumps({**held, broken: damage}))
        with pytest.raises(TraceError, match="damaged"):
            load(str(tmp_path / "uses.json"))

"""Write fsdp_migrate/torch_api/fsdp.json.gz from an atlas of torch names.

    python tools/extract_torch_api.py ATLAS.json.gz fsdp_migrate/torch_api/fsdp.json.gz

The atlas maps dotted names to what they were in each torch release, as read from the wheels. What lies in
torch.distributed.fsdp is kept, in the format that `fsdp_migrate/torch_api/data.py` describes. Needs torch (any
release), which is asked what classes outside the package hand down to the classes inside it.
"""

from __future__ import annotations

import ast
import gzip
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = "torch.distributed.fsdp"
Entry = dict[str, Any]


def main(atlas_path: str, data_path: str) -> None:
    """Read the atlas, write the extract."""
    atlas: dict[str, Entry] = json.loads(gzip.decompress(Path(atlas_path).read_bytes()))
    entries = {name: entry for name, entry in atlas.items() if name == PACKAGE or name.startswith(f"{PACKAGE}.")}
    names = {name: extract(entry) for name, entry in sorted(entries.items()) if on_class(name, entries)}
    data = {"releases": atlas["_meta"]["versions"], "inherited": inherited(names), "names": names}
    text = json.dumps(data, separators=(",", ":"))
    # Without a time stamp and a file name, the same atlas always gives the same bytes.
    Path(data_path).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def on_class(name: str, entries: dict[str, Entry]) -> bool:
    """Whether the name is there without an instance: a field that has no value is not (but in a NamedTuple it is)."""
    entry = entries[name]
    kinds = {entry["kind"], *(row["kind"] for row in entry.get("kinds", ()))}
    owner = entries.get(name.rpartition(".")[0], {})
    bases = {base for row in owner.get("bases", ()) for base in row["bases"]}
    values = [row["args"] for row in entry["signatures"]]
    valued = [bool(value) and (not value.startswith("=field(") or "default=" in value) for value in values]
    return "field" not in kinds or (bool(valued) and all(valued)) or "typing.NamedTuple" in bases


def extract(entry: Entry) -> Entry:
    """One name's row, without the keys that say nothing."""
    signatures = [
        [row["from"], row["to"], parameters(row["args"])] for row in entry["signatures"] if row["args"].startswith("(")
    ]
    row = {
        "kind": entry["kind"],
        "first": entry["first"],
        "last": entry["last"],
        "gaps": entry.get("gaps"),
        "signatures": signatures,
        "targets": [[row["from"], row["to"], row["to_name"]] for row in entry.get("target", ())],
        "bases": [[row["from"], row["to"], row["bases"]] for row in entry.get("bases", ())],
    }
    return {key: value for key, value in row.items() if value}


def parameters(text: str) -> str:
    """`(a, *, b=1, **c)` as `a,*,b=,**c`."""
    function = ast.parse(f"def f{text}: pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    return ",".join(_written(function.args))


def _written(args: ast.arguments) -> Iterator[str]:
    positional = [*args.posonlyargs, *args.args]
    required = len(positional) - len(args.defaults)
    for number, arg in enumerate(positional):
        yield arg.arg if number < required else f"{arg.arg}="
        if number + 1 == len(args.posonlyargs):
            yield "/"
    if args.vararg or args.kwonlyargs:
        yield f"*{args.vararg.arg if args.vararg else ''}"
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield arg.arg if default is None else f"{arg.arg}="
    if args.kwarg:
        yield f"**{args.kwarg.arg}"


def inherited(names: dict[str, Entry]) -> dict[str, list[str]]:
    """For each base class outside the package, which of the names that occur inside classes it has."""
    bases = {base for entry in names.values() for row in entry.get("bases", ()) for base in row[2]}
    members = {name.rpartition(".")[2] for name in names if name.rpartition(".")[0] in names}
    found = {}
    for base in sorted(base for base in bases if base not in names):
        module, _, cls = base.rpartition(".")
        try:
            owner = getattr(importlib.import_module(module), cls)
        except (ImportError, AttributeError, ValueError):
            continue
        found[base] = sorted(member for member in members if hasattr(owner, member))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])

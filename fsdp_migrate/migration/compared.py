"""A plan compared with an earlier one, which a file has as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fsdp_migrate.migration.model import Compared, Item, Step, Told
from fsdp_migrate.report.output import FileOptionError

SCHEMA_VERSION = 4


def compared(file: str, target: str | None, steps: Iterable[Step]) -> Compared:
    """The steps of a plan compared with those in a file.

    Raises:
        FileOptionError: the file cannot be read, or is no plan of this version for the same target.
    """
    old = read(file, "a plan")
    version, steps_then, target_then = old.get("schema_version"), old.get("steps"), old.get("target")
    if version != SCHEMA_VERSION or not isinstance(steps_then, list):
        raise FileOptionError(f"{file} is no plan as JSON of this version: write it with `plan -o FILE.json`")
    if target_then != target:
        then, now = target_then or "a newer torch", target or "a newer torch"
        raise FileOptionError(f"{file} is a plan for {then}, and this one is for {now}")
    try:
        found = {
            one["key"]: Told(one["key"], f"{one['path']}:{one['line']}: {one['code']} {one['message']}")
            for step in steps_then
            for one in step["findings"]
        }
    except (KeyError, TypeError):
        raise FileOptionError(f"{file} is no plan as JSON: a finding in it has no key, path, line or message") from None
    present = {item.key: Told(item.key, line(item)) for step in steps for item in step.items}
    done = tuple(told for key, told in found.items() if key not in present)
    new = tuple(told for key, told in present.items() if key not in found)
    return Compared(file, done, new, len(present) - len(new))


def line(item: Item) -> str:
    """A finding in a line."""
    return f"{item.place}: {item.code} {item.message}"


def read(file: str, kind: str) -> Mapping[str, Any]:
    """The object that a file of some kind holds.

    Raises:
        FileOptionError: it cannot be read, or holds none.
    """
    try:
        with open(file, "rb") as stream:
            found = json.loads(stream.read())
    except OSError as error:
        raise FileOptionError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise FileOptionError(f"{file} is not {kind}: {error}") from None
    if not isinstance(found, dict):
        raise FileOptionError(f"{file} is not {kind}: it holds no object")
    return found

"""Which parts of torch the files of each package use."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from fsdp_migrate.code.torch_names import chains, imports
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.migration.model import Package
from fsdp_migrate.source import holds
from fsdp_migrate.workspace.filesystem import FileError
from fsdp_migrate.workspace.workspace import Workspace

PARTS = ("FSDP1", "FSDP2", "DCP", "launch", "amp")
# Modules of torch by the part that they belong to; the first that fits counts.
_MODULES = (
    ("torch.distributed._composable.fsdp", "FSDP2"),
    ("torch.distributed.fsdp._fully_shard", "FSDP2"),
    ("torch.distributed.fsdp", "FSDP1"),
    ("torch.distributed.checkpoint", "DCP"),
    ("torch.distributed.launch", "launch"),
    ("torch.distributed.launcher", "launch"),
    ("torch.distributed.run", "launch"),
    ("torch.distributed.elastic", "launch"),
    ("torch.amp", "amp"),
    ("torch.cuda.amp", "amp"),
    ("torch.cpu.amp", "amp"),
    ("torch.autocast", "amp"),
)
# What torch.distributed.fsdp has of FSDP2.
_OF_FSDP2 = frozenset(
    """
    fully_shard FSDPModule UnshardHandle MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy DataParallelMeshDims
    register_fsdp_forward_method share_comm_ctx
    """.split()
)
_WORDS = tuple({module.rpartition(".")[2].encode() for module, _ in _MODULES})


def packages(workspace: Workspace, found: Iterable[str]) -> tuple[Package, ...]:
    """The packages that use one of the parts or have a finding; `found` has the path of each finding."""
    findings = Counter(package_of(path) for path in found)
    files: Counter[str] = Counter()
    uses: dict[str, Counter[str]] = {}
    for file in workspace.code:
        package = package_of(file.shown)
        files[package] += 1
        try:
            raw = workspace.read(file)
        except FileError:
            continue  # which the run tells
        if b"torch" in raw and holds(raw, file.shown, _WORDS):
            torch = workspace.settings(file, used=False).torch
            facts = workspace.modules.facts(os.path.abspath(file.path), torch)
            uses.setdefault(package, Counter()).update(() if facts is None else _parts(facts))
            workspace.modules.trim()
    used = (package for package in files if findings[package] or uses.get(package))
    named = sorted(used, key=lambda package: (-findings[package], package))
    return tuple(
        Package(name, files[name], {part: uses.get(name, Counter())[part] for part in PARTS}, findings[name])
        for name in named
    )


def package_of(path: str) -> str:
    """The folder that a file is counted in: its outermost package, with the part of that which it is in."""
    folders = os.path.dirname(path).split(os.sep)
    below = [os.sep.join(folders[: n + 1]) for n in range(len(folders))]
    outermost = next((n for n, folder in enumerate(below) if os.path.isfile(os.path.join(folder, "__init__.py"))), None)
    if outermost is None:
        return os.sep.join(folders[:2]) or "."
    return below[min(outermost + 1, len(below) - 1)]


def _parts(facts: ModuleFacts) -> set[str]:
    paths = [taken.path for taken in imports(facts)] + [chain.path for chain in chains(facts)]
    return {part for path in paths for part in _part(path)}


def _part(path: str) -> Iterator[str]:
    if path.startswith("torch.distributed.fsdp.") and path.split(".")[3] in _OF_FSDP2:
        yield "FSDP2"
        return
    for module, part in _MODULES:
        if path == module or path.startswith(f"{module}."):
            yield part
            return

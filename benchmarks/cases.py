"""What is measured: rows of commands that do the same work, or as much of it as each of them can."""

from __future__ import annotations

import filecmp
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import ROOT, program
from benchmarks.environments import tree as released
from benchmarks.measuring import Command, measured

OURS = "fsdp-migrate"
# What takes minutes is run once.
_SLOW = 1
_EDITS = 20


@dataclass(frozen=True)
class Target:
    """What a row has to reach: its first command's cost at most `most` times that of another one."""

    peer: str
    most: float
    wall: bool = False


@dataclass(frozen=True)
class Beyond:
    """What the first command may cost beyond the sum of others: `most` cpu seconds for each of `amount` units."""

    peers: tuple[str, ...]
    amount: float
    most: float
    unit: str = "MB"


@dataclass(frozen=True)
class Row:
    """Commands to compare; the first one is this program's. `size` is how much they look at, in words."""

    title: str
    size: str
    commands: Mapping[str, Command]
    targets: tuple[Target, ...] = ()
    beyond: Beyond | None = None


class Cases:
    """Builds the rows. `work` is a folder for environments, trees and caches; `trees` are those that are there."""

    def __init__(self, work: Path, trees: Mapping[str, Path]) -> None:
        self.work = work
        self.given = trees
        self._programs: dict[str, Path] = {}

    def rows(self) -> Iterator[tuple[str, Callable[[], Row]]]:
        """The name of each row and how it is made."""
        yield "start", self.start
        yield "small", self.small
        for name, most in (("accelerate", 12.0), ("transformers", 2.0), ("torch", 7.0)):
            yield f"lint-{name}", lambda name=name, most=most: self.lint(name, most)  # type: ignore[misc]
            yield f"cached-{name}", lambda name=name: self.cached(name)  # type: ignore[misc]
        for name in ("accelerate", "lightning"):
            yield f"plan-{name}", lambda name=name: self.plan(name)  # type: ignore[misc]
        for count in (1, 5, 50):
            yield f"files-{count}", lambda count=count: self.files(count)  # type: ignore[misc]
        yield "rewrite-fixtures", self.rewrite
        yield "rewrite-torch", self.rewrite_torch
        yield "cores", self.cores
        yield "editor", self.editor
        yield "trace", self.trace
        yield "recorder", self.recorder

    def start(self) -> Row:
        """A file with nothing to report."""
        file = self.work / "clean.py"
        file.write_text("import torch\n\nx = torch.ones(3)\n")
        python = str(self._bin(OURS) / "python")
        commands = {
            OURS: self.ours("lint", "--no-cache", str(file)),
            "import click": Command([python, "-c", "import click"]),
            "ruff": self._ruff(str(file)),
        }
        return Row("lint FILE, nothing to report", "1 file", commands, (Target("import click", 1.15),))

    def small(self) -> Row:
        """A short file that uses FSDP."""
        (file, *_) = sorted((ROOT / "fixtures" / "full-optim-state-dict").glob("*/before.py"))
        python = str(self._bin(OURS) / "python")
        commands = {
            OURS: self.ours("lint", "--no-cache", str(file)),
            "import click": Command([python, "-c", "import click"]),
        }
        return Row("lint FILE, a short one with FSDP", "1 file", commands, (Target("import click", 2.5),))

    def editor(self) -> Row:
        """A long file that uses FSDP, as the language server checks it while somebody types."""
        file = next(self.tree("accelerate").rglob("utils/dataclasses.py"))
        lines = file.read_bytes().count(b"\n")
        words = [str(self._bin(OURS) / "python"), str(ROOT / "benchmarks" / "keystrokes.py"), str(file)]
        commands = {OURS: Command([*words, str(1 + _EDITS)]), "the first check": Command([*words, "1"])}
        beyond = Beyond(("the first check",), _EDITS * lines / 2000, 0.1, "check of 2,000 lines")
        return Row("checks of a text in an editor", f"{lines} lines, {_EDITS} edits", commands, beyond=beyond)

    def lint(self, name: str, most: float) -> Row:
        """A whole tree, without a cache and in one process."""
        folder = self.tree(name)
        commands = {OURS: self.ours("lint", "--no-cache", "-j1", str(folder)), "ruff": self._ruff(str(folder))}
        floor = [str(self._bin(OURS) / "python"), str(ROOT / "benchmarks" / "floor.py"), str(folder)]
        commands["floor"] = Command(floor)
        commands |= self._scans(folder)
        targets = [Target("ruff", most), Target("floor", 2.5)]
        if name == "accelerate":
            commands |= self._neighbours(folder)
            targets += [Target("TorchFix", 1 / 110), Target("pyupgrade", 0.35), Target("django-upgrade", 1.5)]
        return Row(f"lint, sources of {name}", _size(folder), commands, tuple(targets))

    def _neighbours(self, folder: Path) -> dict[str, Command]:
        """Linters and codemods in Python; what rewrites files works on a copy."""
        copy = self.work / "copied"
        files = [str(copy / path.relative_to(folder)) for path in sorted(folder.rglob("*.py"))]

        def afresh() -> None:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)

        words = {
            "pyupgrade": ["pyupgrade", "--py39-plus", *files],
            "django-upgrade": ["django-upgrade", "--target-version", "4.2", *files],
            "flake8": ["flake8", "--isolated", "-j1", str(folder)],
            "Fixit": ["fixit", "--quiet", "lint", str(folder)],
            "TorchFix": ["torchfix", str(folder)],
        }
        slow = ("Fixit", "TorchFix")
        return {
            name: Command(
                [str(self._bin(program.lower()) / program), *rest],
                prepare=afresh if files[0] in rest else lambda: None,
                most=_SLOW if name in slow else None,
            )
            for name, (program, *rest) in words.items()
        }

    def cached(self, name: str) -> Row:
        """The same again, unchanged."""
        folder, cache = self.tree(name), self.work / "cache" / name
        shutil.rmtree(cache, ignore_errors=True)
        again = ["lint", "-j1", "--cache-dir", str(cache), str(folder)]
        commands = {
            OURS: self.ours(*again),
            "first run": self.ours("lint", "-j1", "--no-cache", str(folder)),
        }
        return Row(f"a second run, sources of {name}", _size(folder), commands, (Target("first run", 0.4),))

    def plan(self, name: str) -> Row:
        """The plan from FSDP1 to FSDP2, which follows every model through the tree."""
        folder = self.tree(name)
        commands = {
            OURS: self.ours("plan", "--target", "fsdp2", "--torch", ">=2.13", str(folder)),
            "lint": self.ours("lint", "--no-cache", "-j1", str(folder)),
        }
        return Row(f"plan to FSDP2, sources of {name}", _size(folder), commands, (Target("lint", 5.0),))

    def files(self, count: int) -> Row:
        """As a pre-commit hook: some files by name."""
        every = sorted(self.tree("transformers").rglob("*.py"))
        files = [str(path) for path in every[:: max(1, len(every) // count)][:count]]
        commands = {
            OURS: self.ours("lint", "--no-cache", *files),
            "rewrite": self.ours("rewrite", *files),
            "ruff": self._ruff(*files),
        }
        return Row(f"pre-commit hook, {count} file{'s' * (count > 1)}", f"{count} files", commands)

    def rewrite(self) -> Row:
        """A folder of short files with nothing but old calls."""
        source = self.work / "changing"
        shutil.rmtree(source, ignore_errors=True)
        programs = sorted((ROOT / "fixtures").glob("*optim-state-dict*/*/before.py"))
        for number in range(100):
            target = source / f"module_{number}.py"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(programs[number % len(programs)].read_bytes())
        return self._rewriting("rewrite, short files of old calls", source)

    def rewrite_torch(self) -> Row:
        """The files of torch that change."""
        folder, source, copy = self.tree("torch"), self.work / "changing-torch", self.work / "changed-torch"
        shutil.rmtree(source, ignore_errors=True)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        measured({OURS: self.ours("rewrite", str(copy))}, 1)
        for path in folder.rglob("*.py"):
            inside = path.relative_to(folder)
            if not filecmp.cmp(path, copy / inside, shallow=False):
                (source / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, source / inside)
        shutil.rmtree(copy)
        return self._rewriting("rewrite, files of torch that change", source)

    def _rewriting(self, title: str, source: Path) -> Row:
        """A folder in which every file changes."""
        folder = self.work / "changed"
        libcst = str(self._bin("libcst") / "python")
        old = "torch.distributed.fsdp.FullyShardedDataParallel"
        rename = ["rename.RenameCommand", "--old_name", old, "--new_name", f"{old}X"]
        afresh = lambda: (shutil.rmtree(folder, ignore_errors=True), shutil.copytree(source, folder))  # noqa: E731
        commands = {
            OURS: self.ours("rewrite", str(folder), prepare=afresh),
            "lint only": self.ours("lint", "--no-cache", "-j1", str(source)),
            "import libcst": Command([libcst, "-c", "import libcst"]),
            "LibCST rename": Command(
                [libcst, "-m", "libcst.tool", "codemod", "-j", "1", *rename, str(folder)],
                folder=self.work,
                prepare=afresh,
            ),
        }
        amount = sum(path.stat().st_size for path in source.rglob("*.py")) / 1e6
        beyond = Beyond(("lint only", "import libcst"), amount, 1.0)
        return Row(title, _size(source), commands, beyond=beyond)

    def trace(self) -> Row:
        """Training steps whose calls are recorded, in this environment, which needs torch."""
        from fsdp_migrate.trace.running import environment

        notes = self.work / "notes"
        afresh = lambda: (shutil.rmtree(notes, ignore_errors=True), notes.mkdir(), environment(notes))  # noqa: E731
        afresh()
        steps = [sys.executable, str(ROOT / "benchmarks" / "steps.py"), "30"]
        commands = {OURS: Command(steps, ROOT, afresh, environment(notes)), "without": Command(steps, ROOT)}
        return Row("30 training steps under trace", "10M parameters", commands, (Target("without", 1.05),))

    def cores(self) -> Row:
        """One process and two."""
        folder = self.tree("torch")
        commands = {
            OURS: self.ours("lint", "--no-cache", "-j2", str(folder)),
            "one process": self.ours("lint", "--no-cache", "-j1", str(folder)),
        }
        target = Target("one process", 1 / 1.4, wall=True)
        return Row("lint, sources of torch, two processes", _size(folder), commands, (target,))

    def recorder(self) -> Row:
        """The same steps as a rank that `prove` records, the digests of its final state included."""
        program, record, plan = ROOT / "benchmarks" / "steps.py", self.work / "record", self.work / "plan.json"
        # All lines: some never run, so that the search for them does not end.
        lines = {program.name: list(range(1, len(program.read_text().splitlines()) + 1))}
        about = {"folder": str(record), "copy": str(program.parent), "tree": str(self.work), "lines": lines}
        plan.write_text(json.dumps({**about, "deadline": time.time() + 86400}))
        injected = {"PYTHONPATH": str(ROOT / "fsdp_migrate" / "injected"), "FSDP_MIGRATE_PROVE": str(plan), "RANK": "0"}
        afresh = lambda: (shutil.rmtree(record, ignore_errors=True), record.mkdir())  # noqa: E731
        steps = [sys.executable, str(program), "30"]
        commands = {OURS: Command(steps, ROOT, afresh, injected), "without": Command(steps, ROOT)}
        return Row("30 training steps under prove", "10M parameters", commands, (Target("without", 1.1),))

    def ours(self, *words: str, prepare: Callable[[], object] = lambda: None) -> Command:
        """A command of this program."""
        return Command([str(self._bin(OURS) / OURS), words[0], "-q", *words[1:]], prepare=prepare)

    def _ruff(self, *paths: str) -> Command:
        words = ["check", "--no-cache", "--isolated", "--select", "NPY201", "-q", *paths]
        return Command([str(self._bin("ruff") / "ruff"), *words], environment={"RAYON_NUM_THREADS": "1"})

    def _scans(self, folder: Path) -> dict[str, Command]:
        """Programs that look for less: a rule without names, and the bytes alone."""
        grep = [str(self._bin("ast-grep") / "ast-grep"), "run", "-l", "python", "-j", "1"]
        found = {"ast-grep": Command([*grep, "-p", "$X.full_optim_state_dict($$$A)", str(folder)])}
        ripgrep = shutil.which("rg")
        if ripgrep is not None:
            from fsdp_migrate.rules.index import ENTRIES

            own = (each for entry in ENTRIES if not entry.is_neighbour for each in entry.words)
            needles = {(each if isinstance(each, str) else each[0]).lstrip(".*") for each in own}
            words = [word for needle in sorted(needles) for word in ("-e", needle)]
            found["ripgrep"] = Command([ripgrep, "-j1", "-l", "-F", "-g", "*.py", *words, str(folder)])
        return found

    def _bin(self, name: str) -> Path:
        if name not in self._programs:
            self._programs[name] = program(name, self.work)
        return self._programs[name]

    def tree(self, name: str) -> Path:
        """The sources of a release."""
        return self.given[name] if name in self.given else released(name, self.work)


def _size(folder: Path) -> str:
    """How much Python a folder holds."""
    files = lines = amount = 0
    for path in folder.rglob("*.py"):  # one at a time: a child's peak memory is at least that of its parent
        raw = path.read_bytes()
        files, lines, amount = files + 1, lines + raw.count(b"\n"), amount + len(raw)
    return f"{files} files, {lines / 1000:.0f}k lines, {amount / 1e6:.1f} MB"

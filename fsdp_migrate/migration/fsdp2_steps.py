"""The steps of the models of FSDP1: those that convert, what blocks the others, and settings of frameworks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.migration.model import Diff, Frees, Item, Step
from fsdp_migrate.migration.torch_steps import Words
from fsdp_migrate.planning.passes import texts_of
from fsdp_migrate.report import diff, plain, source_of
from fsdp_migrate.runner import Fsdp1
from fsdp_migrate.source import Source
from fsdp_migrate.targets.fsdp2.steps import CLOSED, DECLARED, OPEN, TOOL, YOU, Given, check, convert, status
from fsdp_migrate.targets.fsdp2.target import NAME, Model, Place
from fsdp_migrate.transactions import Transaction
from fsdp_migrate.workspace.workspace import Workspace

_CODE = "FSDP900"
_STATES = {
    CLOSED: ("convert", "Convert what converts whole", TOOL, Applicability.SAFE),
    DECLARED: ("accept-fsdp2", "Convert what has differences to accept", YOU, Applicability.UNSAFE),
}


def steps(found: Fsdp1, given: Given, words: Words, workspace: Workspace) -> Iterator[Step]:
    """The steps, in order; the diffs are those of the files as they are."""
    for state, (name, title, by, grade) in _STATES.items():
        own = [model for model in found.models if status(model) == state]
        if own:
            yield _converting(name, title, by, grade, own, given, workspace)
    yield from _blockers([model for model in found.models if status(model) == OPEN], words)
    yield from _frameworks(found, words)


def _converting(
    name: str, title: str, by: str, grade: Applicability, models: Sequence[Model], given: Given, workspace: Workspace
) -> Step:
    files = sorted({place.path for model in models for place in model.places})
    unsafe = grade is Applicability.UNSAFE
    return Step(
        name,
        title,
        by,
        f"{plain.counted(len(models), 'model')} of FSDP1 in {plain.counted(len(files), 'file')}, "
        "with all that is done with them",
        holds="the program trains as before, and reads its old checkpoints",
        check=check(given, unsafe=unsafe),
        command=convert(files, given, unsafe=unsafe),
        todo="read the differences of each model (below, and in docs/fsdp2.md), then let the command convert"
        if unsafe
        else None,
        items=tuple(_item(model, grade, workspace) for model in models),
        codes=(_CODE,),
    )


def _item(model: Model, grade: Applicability, workspace: Workspace | None = None) -> Item:
    """The finding of a model; with a `workspace` also the diffs of its files."""
    transaction = model.transaction()
    found = transaction.finding
    diffs = () if workspace is None else _diffs(transaction, workspace)
    key = f"{_CODE} {found.path} {model.name}"
    place = Place(found.path, found.line, found.cell)
    return Item(key, _CODE, place, found.message, found.reason, Severity.DEPRECATED, grade, diffs)


def _diffs(transaction: Transaction, workspace: Workspace) -> tuple[Diff, ...]:
    files = {file.shown: file for file in workspace.files}

    def source(path: str) -> Source | None:
        return source_of(workspace.read(files[path]), path) if path in files else None

    made = [
        Diff(path, diff.unified(diff.patch_name(files[path].path), workspace.read(files[path]), new.raw))
        for path, new in (texts_of(transaction, source) or {}).items()
    ]
    return (*made, *_created(transaction))


def _created(transaction: Transaction) -> Iterator[Diff]:
    for new in transaction.creates:
        name = diff.patch_name(os.path.relpath(new.file.path))
        yield Diff(new.file.shown, diff.unified(name, b"", new.text.encode(), created=True))


def _blockers(models: Sequence[Model], words: Words) -> Iterator[Step]:
    """What stops models, that first which frees most by itself."""
    stopped: dict[tuple[str, str], dict[int, list[Place]]] = {}
    reasons: dict[int, set[tuple[str, str]]] = {}
    for number, model in enumerate(models):
        for wall in model.conversion.walls:
            kind = (wall.reason, wall.step)
            stopped.setdefault(kind, {}).setdefault(number, []).append(model.place(wall.facts, wall.node))
            reasons.setdefault(number, set()).add(kind)
    told: set[int] = set()
    rows = []
    for kind, by_model in stopped.items():
        alone = sum(len(reasons[number]) == 1 for number in by_model)
        rows.append((Frees(len(by_model), alone), kind, by_model))
    rows.sort(key=lambda row: (-row[0].alone, -row[0].stopped, row[1]))
    for number, (frees, (reason, todo), by_model) in enumerate(rows, 1):
        places = tuple(sorted({place for own in by_model.values() for place in own}))
        first = [model for model in by_model if model not in told]
        told.update(first)
        yield Step(
            f"blocker-{number}",
            f"Free {plain.counted(frees.stopped, 'model')}" + (f", {frees.alone} by this alone" if frees.alone else ""),
            YOU,
            reason,
            holds="the plan no longer names this blocker",
            check=words.command("plan", "--target", NAME),
            todo=todo,
            # A model is counted with the first of its blockers.
            items=tuple(_item(models[model], Applicability.MANUAL) for model in first),
            places=places,
            codes=(_CODE,),
            frees=frees,
        )  # fmt: skip


def _frameworks(found: Fsdp1, words: Words) -> Iterator[Step]:
    for name in dict.fromkeys(framework.name for _, framework in found.switches):
        places = tuple(place for place, framework in found.switches if framework.name == name)
        change = next(framework.change for _, framework in found.switches if framework.name == name)
        yield Step(
            f"framework-{name}",
            f"Change the settings of {name}",
            YOU,
            f"{name} shards here",
            holds=f"{name} uses FSDP2 at each place",
            check=words.command("plan", "--target", NAME),
            todo=change,
            places=places,
        )


def files_that_convert(models: Sequence[Model]) -> frozenset[str]:
    """The files of models whose state dicts are converted along."""
    return frozenset(place.path for model in models if status(model) != OPEN for place in model.places)

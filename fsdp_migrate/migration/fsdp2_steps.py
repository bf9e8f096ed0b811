"""The steps of the models of FSDP1: those that convert, and what blocks the others."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.migration.model import Cause, Diff, Frees, Item, Step
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
        todo="accept each difference (docs/fsdp2.md), or change the code there; then the command converts"
        if unsafe
        else None,
        items=tuple(_item(model, grade, workspace) for model in models),
        causes=tuple(_differences(models)),
        codes=(_CODE,),
    )


def _differences(models: Sequence[Model]) -> Iterator[Cause]:
    told: dict[str, set[Place]] = {}
    for model in models:
        for one in model.conversion.differences:
            told.setdefault(one.what, set()).add(model.place(one.facts, one.node))
    for what, places in told.items():
        yield Cause(what, None, tuple(sorted(places)))


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
    """What stops models: a step for each set of models that the same things stop.

    What frees many models for little comes first.
    """
    stopped: dict[tuple[str, str], dict[int, set[Place]]] = {}
    for number, model in enumerate(models):
        for wall in model.conversion.walls:
            own = stopped.setdefault((wall.reason, wall.step), {})
            own.setdefault(number, set()).add(model.place(wall.facts, wall.node))
    groups: dict[tuple[int, ...], list[Cause]] = {}
    for (reason, todo), by_model in stopped.items():
        places = tuple(sorted(set().union(*by_model.values())))
        groups.setdefault(tuple(by_model), []).append(Cause(reason, todo, places))
    kinds = Counter(model for by_model in stopped.values() for model in by_model)
    rows = []
    for numbers, causes in groups.items():
        alone = sum(kinds[model] == len(causes) for model in numbers)
        rows.append((Frees(len(numbers), alone), numbers, sorted(causes, key=lambda one: (-len(one.places), one.what))))
    rows.sort(key=lambda row: (-sum(row[0]) / len(row[2]), row[1]))
    told: set[int] = set()
    for number, (frees, numbers, causes) in enumerate(rows, 1):
        first = [model for model in numbers if model not in told]
        told.update(first)
        several = f"{len(causes)} things stop {'it' if len(numbers) == 1 else 'them'}" if len(causes) > 1 else None
        yield Step(
            f"blocker-{number}",
            _freed([models[model] for model in numbers], frees),
            YOU,
            several or causes[0].what,
            holds="the plan no longer names this blocker",
            check=words.command("plan", "--target", NAME),
            todo="do what each of them says" if several else causes[0].todo,
            # A model is counted with the first of its blockers.
            items=tuple(_item(models[model], Applicability.MANUAL) for model in first),
            causes=tuple(causes),
            places=tuple(sorted({place for one in causes for place in one.places})),
            codes=(_CODE,),
            frees=frees,
        )  # fmt: skip


def _freed(models: Sequence[Model], frees: Frees) -> str:
    first, *more = models
    built = first.closure.constructions[0]
    what = f"{len(models)} models" if more else f"`{first.name}`, built at {first.place(built.facts, built.call)}"
    alone = f", {frees.alone} by this alone" if frees.alone else ", with other steps"
    return f"Free {what}{'' if frees.alone == frees.stopped else alone}"


def files_that_convert(models: Sequence[Model]) -> frozenset[str]:
    """The files of models whose state dicts are converted along."""
    return frozenset(place.path for model in models if status(model) != OPEN for place in model.places)

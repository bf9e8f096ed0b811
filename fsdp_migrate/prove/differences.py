"""What differs between two runs at one place, with what it takes to tell by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from fsdp_migrate.prove import numbers, trees
from fsdp_migrate.prove.numbers import Deviation
from fsdp_migrate.prove.pairs import Moment, Pair, Pairs
from fsdp_migrate.prove.records import Event, Place
from fsdp_migrate.prove.trees import Branch, Node, Tensor, Value

# How far two values are apart, with a relative and an absolute tolerance; None if that is not known.
Measure = Callable[[float, float], "Deviation | None"]

_SUBJECTS = {"loss": "loss", "norm": "gradient norm", "step": "learning rates", "final": "final state of"}
_NUMBERS = ("int", "float")
# Kinds of events that happen while the step is taken that the number counts; others come after it.
_WITHIN = ("loss", "norm", "step")


@dataclass(frozen=True)
class Difference:
    """One difference; `trait` says in what, `path` where in a tree. `deviation` is set once it was measured.

    `allowed` is the largest relative deviation that is none, where there is such a bound.
    """

    pair: Pair
    path: tuple[str, ...]
    trait: str
    before: str
    after: str
    dtype: str = ""
    measure: Measure | None = field(default=None, compare=False, repr=False)
    deviation: Deviation | None = None
    allowed: float | None = None

    @property
    def kind(self) -> str:
        """The kind of the event."""
        return self.pair.key.kind

    @property
    def rank(self) -> int:
        """The rank that it was seen on."""
        return self.pair.rank

    @property
    def moment(self) -> Moment:
        """When it was seen."""
        return self.pair.moment

    @property
    def subject(self) -> str:
        """What it was seen in."""
        return subject(self.pair)

    @property
    def when(self) -> str:
        """The step in which it was seen, counted from 1, or after which."""
        steps = self.moment.steps
        if self.kind in _WITHIN:
            return f"step {steps + 1}"
        return f"after step {steps}" if steps else "before step 1"

    @property
    def places(self) -> tuple[Place | None, Place | None]:
        """The lines of the two versions that did it."""
        before, after = self.pair.before, self.pair.after
        return (before.at if before else None, after.at if after else None)

    def measured(self, rtol: float = 0.0, atol: float = 0.0) -> Difference:
        """The same with its deviation, where there is one."""
        return replace(self, deviation=self.measure(rtol, atol)) if self.measure else self


def subject(pair: Pair) -> str:
    """What was compared."""
    kind, name = pair.key.kind, pair.key.name
    if kind in ("save", "load"):
        return f"{'saved' if kind == 'save' else 'loaded'} {f'file {name}' if name else 'data without a file name'}"
    return f"{_SUBJECTS[kind]} {name}".rstrip()


def find(pairs: Pairs) -> Iterator[Difference]:
    """All differences of two runs, in the order of time."""
    for pair in pairs.ordered:
        yield from _of_pair(pairs, pair)


def _of_pair(pairs: Pairs, pair: Pair) -> Iterator[Difference]:
    before, after = pair.before, pair.after
    if before is None or after is None:
        yield Difference(pair, (), "presence", _seen(before), _seen(after))
    elif pair.key.kind in ("loss", "norm"):
        yield from _of_values(pair, before, after)
    elif pair.key.kind == "step":
        yield from _of_steps(pair, before, after)
    else:
        yield from _of_events(pair, before, after)
        yield from _of_trees(pairs, pair, (), before.data["tree"], after.data["tree"])


def _seen(event: Event | None) -> str:
    return "not seen" if event is None else "seen"


def _of_values(pair: Pair, before: Event, after: Event) -> Iterator[Difference]:
    old, new = before.data["value"], after.data["value"]
    dtype, new_dtype = (str(event.data.get("dtype", "")) for event in (before, after))
    if dtype != new_dtype:
        yield Difference(pair, (), "dtype", dtype, new_dtype)
    elif isinstance(old, str) and isinstance(new, str):
        if old != new:
            yield _of_numbers(pair, (), float.fromhex(old), float.fromhex(new), dtype)
    elif old != new:
        yield Difference(pair, (), "value", _short(old), _short(new))


def _short(value: object) -> str:
    """A loss of several elements is known by its digest only."""
    if isinstance(value, dict):
        return f"{value.get('shape', '')} with digest {str(value['digest'])[:12]}"
    return repr(float.fromhex(str(value)))


def _of_numbers(pair: Pair, path: tuple[str, ...], before: float, after: float, dtype: str) -> Difference:
    measure = partial(numbers.of_scalars, before, after)
    return Difference(pair, path, "value", f"{before:.9g}", f"{after:.9g}", dtype, measure)


def _of_steps(pair: Pair, before: Event, after: Event) -> Iterator[Difference]:
    for trait in ("skipped", "optimizer"):
        if before.data[trait] != after.data[trait]:
            yield Difference(pair, (), trait, str(before.data[trait]), str(after.data[trait]))
    old, new = before.data["lr"], after.data["lr"]
    if len(old) != len(new):
        yield Difference(pair, (), "length", f"{len(old)} groups", f"{len(new)} groups")
    for group, (one, other) in enumerate(zip(old, new)):
        if one != other and (one == one or other == other):
            yield _of_numbers(pair, (f"group {group}",), one, other, "")


def _of_events(pair: Pair, before: Event, after: Event) -> Iterator[Difference]:
    if pair.key.kind == "final":
        return
    if before.data["path"] != after.data["path"]:
        yield Difference(pair, (), "name", str(before.data["path"]), str(after.data["path"]))
    if _is_distributed(before) != _is_distributed(after):
        yield Difference(pair, (), "format", str(before.data["api"]), str(after.data["api"]))


def _is_distributed(event: Event) -> bool:
    """Whether a file was written by all ranks together, piece by piece: the file tells nothing of their layout."""
    return str(event.data["api"]).startswith("dcp.")


def _of_trees(pairs: Pairs, pair: Pair, path: tuple[str, ...], old: Node, new: Node) -> Iterator[Difference]:
    if isinstance(old, Branch) and isinstance(new, Branch):
        yield from _of_branches(pairs, pair, path, old, new)
    elif isinstance(old, Tensor) and isinstance(new, Tensor):
        yield from _of_tensors(pairs, pair, path, old, new)
    elif not (isinstance(old, Value) and isinstance(new, Value)):
        yield Difference(pair, path, "type", str(old), str(new))
    elif old.type != new.type:
        yield Difference(pair, path, "type", f"{old.type} {old.text}", f"{new.type} {new.text}")
    elif old.digest != new.digest:
        if old.type in _NUMBERS and _is_number(old.text) and _is_number(new.text):
            yield _of_numbers(pair, path, float(old.text), float(new.text), old.type)
        else:
            yield Difference(pair, path, "value", old.text, new.text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _of_branches(pairs: Pairs, pair: Pair, path: tuple[str, ...], old: Branch, new: Branch) -> Iterator[Difference]:
    names = _names(path, old), _names(path, new)
    if names[0] is not None and names[0] == names[1]:
        return
    if old.kind != new.kind:
        yield Difference(pair, path, "type", str(old), str(new))
        return
    gone = [key for key in old.children if key not in new.children]
    come = [key for key in new.children if key not in old.children]
    if (gone or come) and old.kind != "dict":
        yield Difference(pair, path, "length", str(len(old.children)), str(len(new.children)))
    elif gone or come:
        yield Difference(pair, path, "keys", trees.shown_keys(gone), trees.shown_keys(come))
    for key, child in old.children.items():
        if key in new.children:
            yield from _of_trees(pairs, pair, (*path, key), child, new.children[key])


def _names(path: tuple[str, ...], branch: Branch) -> list[str] | None:
    """The parameters of a group by their names: what has a name needs no order, and releases of torch differ in it."""
    if path[-1:] != ("params",) or "param_groups" not in path:
        return None
    members = branch.children.values()
    by_name = all(isinstance(member, Value) and member.type == "str" for member in members)
    return sorted(str(member) for member in members) if by_name else None


def _of_tensors(pairs: Pairs, pair: Pair, path: tuple[str, ...], old: Tensor, new: Tensor) -> Iterator[Difference]:
    assert pair.before is not None
    final = pair.key.kind == "final"
    traits = ["dtype", "shape"]
    if not final:
        traits.append("device")
    if not final and not _is_distributed(pair.before):
        traits.append("kind")
    for trait in traits:
        if getattr(old, trait) != getattr(new, trait):
            yield Difference(pair, path, trait, _shown(getattr(old, trait)), _shown(getattr(new, trait)))
            return
    if old.pieces == new.pieces:
        return
    layouts = [[(piece.offset, piece.shape) for piece in tensor.pieces] for tensor in (old, new)]
    # Pieces that are cut in another way say nothing by their digests.
    trait = "value" if layouts[0] == layouts[1] else "layout"
    measure = partial(_measure, pairs, pair, path)
    yield Difference(pair, path, trait, str(old), str(new), old.dtype, measure)


def _shown(trait: object) -> str:
    return str(list(trait)) if isinstance(trait, tuple) else str(trait)


def _measure(pairs: Pairs, pair: Pair, path: tuple[str, ...], rtol: float, atol: float) -> Deviation | None:
    """Put both tensors together of what all ranks have, and compare them."""
    held = []
    for after in (False, True):
        events = [member.side(after) for member in pairs.by_key[pair.key]]
        found = [trees.at(event.data["tree"], path) for event in events if event is not None]
        parts = [node for node in found if isinstance(node, Tensor)]
        own = trees.at(_tree(pair.side(after)), path)
        assert isinstance(own, Tensor)
        # A rank that has all of it needs no other.
        whole = len(own.pieces) == 1 and own.pieces[0].shape == own.shape
        held.append(numbers.Held(pairs.run(after).folder, own, own.pieces if whole else numbers.together(parts)))
    return numbers.of_tensors(held[0], held[1], rtol, atol)


def _tree(event: Event | None) -> Node | None:
    return event.data["tree"] if event is not None else None

"""What a conversion changes in a checkpoint's dict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fsdp_migrate.checkpoint.contents import CheckpointError, Contents, Format, Path, tensors
from fsdp_migrate.checkpoint.layout import DECOUPLED, Keys, Kind, Part, elements, is_number, parts
from fsdp_migrate.checkpoint.names import stripped

ParameterNames = Sequence[Sequence[str]]


_PARAMETER_SHAPED = {
    ("exp_avg",),
    ("exp_avg_sq",),
    ("max_exp_avg_sq",),
    ("momentum_buffer",),
    ("square_avg",),
    ("sum",),
}
"""State of torch's optimizers that has the shape of its parameter."""


class Edit(NamedTuple):
    """A change, and how users are told of it."""

    path: Path
    told: str
    change: Callable[[Any], Any]


def edits(contents: Contents, stored: Format, names: ParameterNames | None, *, strip: bool) -> list[Edit]:
    """What to change so that newer programs read it where it is `stored`, in this order.

    Raises:
        CheckpointError: `names` fit no optimizer, or more than one, or names without prefixes would be the same.
    """
    found = list(parts(contents))
    numbered = [part for part in found if part.keys is Keys.NUMBER]
    if names is not None and len(numbered) != 1:
        raise CheckpointError(f"--parameter-names needs one optimizer with state by number; there are {len(numbered)}")
    if names is not None and strip:
        short = stripped([name for group in names for name in group])
        names = [[short[name] for name in group] for group in names]
    return [edit for part in found for edit in _of_part(part, contents, stored, names, strip)]


def _of_part(
    part: Part, contents: Contents, stored: Format, names: ParameterNames | None, strip: bool
) -> Iterator[Edit]:
    where = part.name
    if part.keys is Keys.NUMBER and names is not None:
        mapping = _by_number(_node(contents.tree, part.path), names)
        _check_shapes(contents, part, mapping)
        yield Edit(
            part.path,
            f"{where}: the state of {sum(map(len, names))} parameters is now by name",
            _renaming(mapping, part),
        )
    elif part.keys is Keys.NUMBER and (contents.format, stored) == (Format.DCP, Format.FULL):
        yield Edit(part.path, f"{where}: parameter numbers are numbers again, not text", _numbers)
    if strip and part.prefixes:
        mapping = _short(part)
        prefixes = " and ".join(f"`{prefix}`" for prefix in part.prefixes)
        yield Edit(part.path, f"{where}: {prefixes} removed from names", _renaming(mapping, part))
    if part.shared:
        entries, common = sum(map(len, part.shared)), len(part.shared)
        told = f"{where}: {entries} entries that shared {common} tensor{'s' * (common > 1)} are now separate"
        yield Edit(part.path, told, _separate)
    if part.undecoupled:
        told = f"{where}: {DECOUPLED}=False added to groups of Adam (AdamW sets it to True when it loads)"
        yield Edit(part.path, told, _decoupled)


def apply(tree: Any, wanted: Sequence[Edit]) -> Any:
    """The changed dict; what does not change is shared with `tree`."""
    for edit in wanted:
        tree = _replaced(tree, edit.path, edit.change)
    return tree


def _node(tree: Any, path: Path) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def _replaced(node: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(node)
    first, *rest = path
    if isinstance(node, dict):
        return _like(
            node, {key: _replaced(value, tuple(rest), change) if key == first else value for key, value in node.items()}
        )
    return type(node)(
        _replaced(value, tuple(rest), change) if place == first else value for place, value in enumerate(node)
    )


def _like(old: Any, new: dict[Any, Any]) -> Any:
    """`new` as the kind of dict that `old` is, with the versions of modules that a model's has."""
    made: Any = new if type(old) is dict else type(old)(new)
    versions = getattr(old, "_metadata", None)
    if versions is not None:
        made._metadata = versions
    return made


def _by_number(optimizer: Any, names: ParameterNames) -> dict[Any, str]:
    """The name of each parameter of an optimizer by number.

    Raises:
        CheckpointError: they do not fit.
    """
    groups = elements(optimizer["param_groups"])
    sizes = [len(elements(group["params"])) for group in groups]
    if sizes != [len(group) for group in names]:
        raise CheckpointError(
            f"--parameter-names has groups of {_list(map(len, names))} names, but the optimizer has groups of "
            f"{_list(sizes)}"
        )
    mapping = {
        number: name for group, called in zip(groups, names) for number, name in zip(elements(group["params"]), called)
    }
    if len(set(mapping.values())) < len(mapping):
        raise CheckpointError("--parameter-names has a name twice")
    unknown = [key for key in optimizer.get("state", {}) if int(key) not in mapping]
    if unknown:
        raise CheckpointError(f"the optimizer has state for {unknown[0]}, which is in none of its groups")
    return mapping | {str(number): name for number, name in mapping.items()}


def _check_shapes(contents: Contents, part: Part, mapping: Mapping[Any, str]) -> None:
    """Names in another order would put the state on other parameters, silently.

    Raises:
        CheckpointError: the state of a parameter has another shape than the model's parameter of that name.
    """
    models = [part for part in parts(contents) if part.kind is Kind.MODEL]
    shapes = {
        name: _node(contents.tree, model.path)[key].shape
        for model in models
        for key, name in stripped(model.names).items()
    }
    called = stripped(list(mapping.values()))
    for path, tensor in tensors(_node(contents.tree, part.path).get("state", {})):
        name = called[mapping[path[0]]]
        if path[1:] in _PARAMETER_SHAPED and name in shapes and shapes[name] != tensor.shape:
            sizes = f"{_list(shapes[name])}, but the state of its number has {_list(tensor.shape)}"
            raise CheckpointError(f"--parameter-names does not fit the model: {name} has the shape {sizes}")


def _list(numbers: Any) -> str:
    return ", ".join(map(str, numbers)) or "no"


def _short(part: Part) -> dict[Any, str]:
    mapping = stripped(part.names)
    if len(set(mapping.values())) < len(mapping):
        raise CheckpointError(f"{part.name}: two names would be the same without prefixes: pass --keep-prefixes")
    return dict(mapping)


def _renaming(mapping: Mapping[Any, str], part: Part) -> Callable[[Any], Any]:
    def model(node: Any) -> Any:
        made = _like(node, {mapping.get(key, key): value for key, value in node.items()})
        versions = getattr(node, "_metadata", None)
        if versions is not None:
            keys = stripped([f"{key}." for key in versions if key])
            made._metadata = type(versions)(
                {keys.get(f"{key}.", "").rstrip("."): value for key, value in versions.items()}
            )
        return made

    def optimizer(node: Any) -> Any:
        changed = dict(node)
        if "state" in node:
            changed["state"] = {mapping.get(key, key): value for key, value in node["state"].items()}
        changed["param_groups"] = [
            {**group, "params": [mapping.get(key, key) for key in group["params"]]} for group in node["param_groups"]
        ]
        return changed

    def flattened(node: Any) -> Any:
        return {_flat_key(key, mapping): value for key, value in node.items()}

    if part.kind is Kind.MODEL:
        return model
    return flattened if part.keys is Keys.FLATTENED else optimizer


def _flat_key(key: str, mapping: Mapping[Any, str]) -> str:
    kind, _, rest = key.partition(".")
    name, _, entry = rest.rpartition(".")
    return f"{kind}.{mapping.get(name, name)}.{entry}"


def _numbers(node: Any) -> Any:
    state = {int(key) if is_number(key) else key: value for key, value in node.get("state", {}).items()}
    return {"state": state, **{key: value for key, value in node.items() if key != "state"}}


def _separate(node: Any) -> Any:
    """The state with numbers of its own for each tensor that another one has too; all others stay mapped."""
    seen = set()

    def own(value: Any) -> Any:
        if not hasattr(value, "data_ptr") or not value.numel():
            return value
        if value.data_ptr() in seen:
            return value.clone()
        seen.add(value.data_ptr())
        return value

    state = {
        parameter: {name: own(value) for name, value in entries.items()} for parameter, entries in node["state"].items()
    }
    return {**node, "state": state}


def _decoupled(node: Any) -> Any:
    groups = [
        {**group, DECOUPLED: False} if "amsgrad" in group and DECOUPLED not in group else group
        for group in node["param_groups"]
    ]
    return {**node, "param_groups": groups}

"""What classes offer: members, what only instances have, and the signature of the constructor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.wheel_api.modules import Binding
from tools.wheel_api.names import dotted
from tools.wheel_api.release import Release
from tools.wheel_api.signatures import Function, signature

_DATACLASS = ("dataclass", "dataclasses.dataclass")
_FIELD = ("field", "dataclasses.field")
_PROPERTIES = ("property", "cached_property", "functools.cached_property", "abc.abstractproperty")
_ENUMS = ("enum.Enum", "enum.IntEnum", "enum.Flag", "enum.IntFlag", "enum.StrEnum")
_PLAIN = ("builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol")
_ANYTHING = ("*args, **kwargs", "*args", "**kwargs", "*args, **kwds")


def member_kind(release: Release, cls: str, name: str, held: Binding) -> str:
    """The kind of a class's own member; "instance" for what only its instances have."""
    if isinstance(held.node, Function):
        decorators = {dotted(decorator) for decorator in held.node.decorator_list}
        if decorators & {*_PROPERTIES}:
            return "property"
        return next((kind for kind in ("staticmethod", "classmethod") if kind in decorators), "method")
    if held.kind in ("class", "alias"):
        return held.kind
    mro = release.mro(cls)
    if any(base in _ENUMS for base in mro) and held.kind == "constant" and not name.startswith("_"):
        return "enum-member"
    if "typing.NamedTuple" in mro:
        return "field" if held.kind == "annotation" or isinstance(held.node, ast.expr) else "constant"
    options = _dataclass_options(release, cls)
    if options is not None and name in dict(_own_fields(release, cls)):
        return "field" if "slots" in options or _has_class_value(release, cls, name) else "instance"
    return "instance" if held.kind == "annotation" else "constant"


def instance_names(release: Release, cls: str) -> set[str]:
    """What the class's own methods set on `self`, and what it declares without a value."""
    names = {name for name, held in release.body(cls).items() if member_kind(release, cls, name, held) == "instance"}
    for held in release.body(cls).values():
        if isinstance(held.node, Function) and held.node.args.args:
            names |= set(_set_on(held.node.args.args[0].arg, held.node))
    return names


def grows(node: ast.ClassDef) -> bool:
    """Whether the class sets attributes on itself under names that only the running program knows."""
    return any(
        dotted(call.func) == "setattr" and dotted(call.args[0]) in ("cls", node.name)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and len(call.args) == 3 and not isinstance(call.args[1], ast.Constant)
    )


def constructor(release: Release, cls: str) -> str | None:
    """The parameters that the class takes when it is called.

    None when that is decided outside of the wheel, and for a Protocol, which nobody calls.
    """
    if "typing.Protocol" in release.bases(cls):
        return None
    found: dict[str, str] = {}
    for owner in release.mro(cls):
        if owner == "typing.NamedTuple":
            found.setdefault("__new__", ", ".join(_named_tuple(release, cls)))
        elif release.resolve(owner)[1] is None and owner not in _PLAIN:
            return None if owner in _ENUMS else _preferred(found)
        for name in ("__new__", "__init__"):
            written = _own(release, owner, name)
            if written is not None:
                found.setdefault(name, written)
    return _preferred(found) or ""


def _preferred(found: dict[str, str]) -> str | None:
    """Of `__new__` and `__init__`, the one that says more: it does not just hand everything on."""
    new, init = found.get("__new__"), found.get("__init__")
    if new is None or init is None:
        return init if new is None else new
    return init if "**" in new and init not in _ANYTHING else new


def _own(release: Release, cls: str, name: str) -> str | None:
    held = release.body(cls).get(name)
    if held is not None:
        if held.kind == "alias":
            held = release.resolve(held.target)[1]
        return (
            signature(held.node, bound=True, cls=cls) if held is not None and isinstance(held.node, Function) else None
        )
    if name == "__init__" and (options := _dataclass_options(release, cls)) is not None and "init" not in options:
        return _fields_signature(release, cls)
    return None


def _dataclass_options(release: Release, cls: str) -> set[str] | None:
    """The options of the dataclass decorator that are not as usual, None when the class has no such decorator."""
    held = release.resolve(cls)[1]
    if held is None or not isinstance(held.node, ast.ClassDef):
        return None
    for decorator in held.node.decorator_list:
        if dotted(decorator) in _DATACLASS:
            return set()
        if isinstance(decorator, ast.Call) and dotted(decorator.func) in _DATACLASS:
            return {keyword.arg or "kw_only" for keyword in decorator.keywords if _is_unusual(keyword)}
    return None


def _is_unusual(option: ast.keyword) -> bool:
    if option.arg is None:
        # torch has `kw_only_dataclass = dict(kw_only=True)`, empty for a Python that does not know the option.
        return (dotted(option.value) or "").endswith("kw_only_dataclass")
    usual = {"init": True, "slots": False, "kw_only": False}.get(option.arg)
    return isinstance(option.value, ast.Constant) and option.value.value is not usual and usual is not None


def _own_fields(release: Release, cls: str) -> Iterator[tuple[str, ast.AnnAssign]]:
    held = release.resolve(cls)[1]
    body = held.node.body if held is not None and isinstance(held.node, ast.ClassDef) else []
    for statement in body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            annotation = ast.unparse(statement.annotation)
            if not annotation.strip("'\"").startswith(("ClassVar", "typing.ClassVar")):
                yield statement.target.id, statement


def _fields_signature(release: Release, cls: str) -> str:
    fields: dict[str, tuple[str, bool]] = {}
    for owner in release.mro(cls)[::-1]:
        options = _dataclass_options(release, owner)
        if options is None:
            continue
        keyword_only = "kw_only" in options
        for name, statement in _own_fields(release, owner):
            if ast.unparse(statement.annotation) in ("KW_ONLY", "dataclasses.KW_ONLY", "_: KW_ONLY"):
                keyword_only = True
                continue
            settings = _field_settings(statement.value)
            if settings.get("init") == "False":
                fields.pop(name, None)
                continue
            own = settings.get("kw_only", str(keyword_only)) == "True"
            default = settings.get("default")
            fields[name] = (name if default is None else f"{name}={default}", own)
    positional = [text for text, keyword in fields.values() if not keyword]
    keywords = [text for text, keyword in fields.values() if keyword]
    return ", ".join([*positional, *(["*", *keywords] if keywords else [])])


def _field_settings(value: ast.expr | None) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, ast.Call) and dotted(value.func) in _FIELD:
        settings = {keyword.arg or "": ast.unparse(keyword.value) for keyword in value.keywords}
        factory = settings.pop("default_factory", None)
        return settings if factory is None else {**settings, "default": _made(factory)}
    return {"default": ast.unparse(value)}


def _made(factory: str) -> str:
    return factory.removeprefix("lambda: ") if factory.startswith("lambda: ") else f"{factory}()"


def _has_class_value(release: Release, cls: str, name: str) -> bool:
    value = dict(_own_fields(release, cls))[name].value
    if isinstance(value, ast.Call) and dotted(value.func) in _FIELD:
        return any(keyword.arg == "default" for keyword in value.keywords)
    return value is not None


def _named_tuple(release: Release, cls: str) -> Iterator[str]:
    for owner in release.mro(cls)[::-1]:
        for name, statement in _own_fields(release, owner):
            yield name if statement.value is None else f"{name}={ast.unparse(statement.value)}"


def _set_on(receiver: str, function: Function) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and dotted(node.value) == receiver:
            yield node.attr

"""What the wrapped module's own class defines: its attributes, the modules and parameters in it, its methods.

FSDP1 hands on what its own class does not have; with FSDP2 the model is the module. So an attribute gives the same. A
method runs outside of forward in both, where parameters are sharded: one that computes with them is a wall.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from fsdp_migrate.facts.objects import EACH, EACH_SECOND, Reference
from fsdp_migrate.facts.project_code import Class, Function, Origin, Sort, first_parameter
from fsdp_migrate.targets.fsdp2.guards import has_test
from fsdp_migrate.targets.fsdp2.kinds import kinds_of
from fsdp_migrate.targets.fsdp2.parameters import look_at
from fsdp_migrate.targets.fsdp2.tensors import SHAPES
from fsdp_migrate.targets.fsdp2.units import see_all
from fsdp_migrate.targets.fsdp2.use import Member, Use

_PARAMETER = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
_PARAMETERS = frozenset({"weight", "bias"})
_MODULES = "torch.nn."
_OF_TENSORS = frozenset({"data", "grad", "requires_grad", "detach"})
_OF_DICTS = {"values": EACH, "items": EACH_SECOND, "keys": None}
# Attributes of modules of torch, and of those that many packages build, which are no modules themselves.
_PLAIN = frozenset(
    """
    config generation_config tokenizer device dtype name_or_path main_input_name vocab_size hidden_size in_features
    out_features num_embeddings embedding_dim padding_idx normalized_shape eps p inplace kernel_size stride padding
    num_heads embed_dim num_features momentum __name__ __doc__
    """.split()
)
_REGISTER = "call it through `forward`, or register it by `register_fsdp_forward_method` once FSDP2 is used"


def convert_forwarded(use: Use, member: Member) -> None:
    """A member that FSDP1's class and torch's modules do not have: of the class of the module that is wrapped."""
    name = member.node.attr
    kinds = kinds_of(use)
    classes = [Class(one.facts, one.node) for one in kinds if isinstance(one.node, ast.ClassDef)]
    classes = list(dict.fromkeys(classes))
    is_common = name in _PLAIN or name in _OF_PACKAGES
    if not classes and use.kinds is None and not is_common and not any(_is_of_package(one) for one in kinds):
        classes = _classes_with(use, name)
    methods = dict.fromkeys(one for cls in classes for one in use.conversion.code.methods(cls, name))
    found = tuple(dict.fromkeys(one for cls in classes for one in _values(use, cls, name)))
    if methods:
        known = tuple(Origin(Sort.INSTANCE, cls.facts, cls.node) for cls in classes)
        for method in methods:
            _convert_method(use, member, method, known)
    elif name in _PARAMETERS and not found:
        look_at(use, Reference(use.facts, member.node))
    elif name in _PLAIN and not any((one.name or "").startswith(_MODULES) for one in found):
        return
    elif found:
        _convert_values(use, member, found)
    elif name in _OF_PACKAGES:
        _convert_known(use, member)
    elif kinds and all(_is_of_package(one) for one in kinds):
        use.differs(_UNSEEN, member.node)
        see_all(use, member.node, kinds=kinds)
    elif use.kinds is not None and not classes:
        _convert_unknown(use, member)
    elif has_test(use, f"hasattr({use.text}, {name!r})"):
        use.differs(_UNSEEN, member.node)
    else:
        step = "define it in the class of the module, or use what `torch.nn.Module` has"
        use.wall(f"no class of the project defines `{name}` of `{use.text}`", step, member.node)


def _classes_with(use: Use, name: str) -> list[Class]:
    """The modules of the project that have a member, one of which a model is whose class is chosen at run time."""
    project = use.facts.project
    found: dict[ast.ClassDef, Class] = {}
    for facts in (use.facts, *(project.having(name) if project is not None else ())):
        named = [one for one in facts.structure.functions if one.name == name]
        stored = [one for one in facts.structure.stores_by_name.get(name, ()) if isinstance(one.value, ast.Name)]
        for node in (*named, *stored):
            around = facts.class_around(node)
            if around is not None and _is_module_class(use, Class(facts, around)):
                found[around] = Class(facts, around)
    return list(found.values())


def _is_module_class(use: Use, cls: Class) -> bool:
    code = use.conversion.code
    return any(_sounds_like_module(name) for one in code.ancestors(cls) for name in code.bases(one)[1])


def _is_of_package(one: Origin) -> bool:
    """Whether something is built by a package that is neither torch nor the project."""
    return one.sort is Sort.ELSEWHERE and one.name is not None and not one.name.startswith(("torch.", "builtins."))


def _convert_known(use: Use, member: Member) -> None:
    """A method of models that many packages build."""
    what = _OF_PACKAGES[member.node.attr]
    if what == _SAVING:
        if any(one.arg == "state_dict" for one in (member.call.keywords if member.call else ())):
            use.differs(_CLASS_NAME, member.node)
        else:
            step = "pass `state_dict=`, a full state dict of the model"
            use.wall(f"`{ast.unparse(member.node)}` would save parameters that are sharded", step, member.node)
    elif what == _RUNNING:
        use.wall(
            f"`{ast.unparse(member.node)}` runs modules outside of forward, where parameters are sharded", _REGISTER
        )
    elif what == _GIVING and member.call is not None:
        see_all(use, member.call)
    elif what == _COUNTING:
        use.differs(SHAPES, member.node)


_SAVING, _RUNNING, _GIVING, _COUNTING, _SETTING = "saving", "running", "giving", "counting", "setting"
_OF_PACKAGES = {
    "save_pretrained": _SAVING,
    "generate": _RUNNING,
    **dict.fromkeys(("get_input_embeddings", "get_output_embeddings", "get_decoder", "get_encoder"), _GIVING),
    **dict.fromkeys(("num_parameters", "print_trainable_parameters", "get_memory_footprint"), _COUNTING),
    **dict.fromkeys(
        ("gradient_checkpointing_enable", "gradient_checkpointing_disable", "enable_input_require_grads"), _SETTING
    ),
}
_CLASS_NAME = "the name of the model's class begins with `FSDP`, which packages may write into its files"
_UNSEEN = "a member that another package defines is used of the module itself, and may meet DTensors there"


def defines(use: Use, name: str) -> bool:
    """Whether the class of a module visibly has a member of its own, whatever the class of FSDP1 calls so."""
    code = use.conversion.code
    classes = [Class(one.facts, one.node) for one in kinds_of(use) if isinstance(one.node, ast.ClassDef)]
    return any(code.methods(cls, name) or code.stores(cls, name) for cls in classes)


def may_be_parameter(use: Use, name: str) -> bool:
    """Whether a member is a parameter, by its name or by a class that a module may be of."""
    classes = [Class(one.facts, one.node) for one in kinds_of(use) if isinstance(one.node, ast.ClassDef)]
    found = (one for cls in classes or _classes_with(use, name) for one in _values(use, cls, name))
    return name in _PARAMETERS or any(one.name in _PARAMETER for one in found)


def convert_store(use: Use, attribute: ast.Attribute) -> None:
    """`model.name = value`: FSDP1 sets it on the wrapper, where the code of the module does not look.

    On a module in a model, and in a method of its own, it is set on the same object in both, unless it is a part of it.
    """
    statement = use.facts.structure.parents[attribute]
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    given = () if value is None else use.conversion.code.origins(use.facts, value)
    if _is_made_here(use):
        return
    if attribute.attr in _PARAMETERS or any((one.name or "").startswith(_MODULES) for one in given):
        step = "do that before the model is wrapped"
        use.wall(f"`{ast.unparse(attribute)}` puts a new part into a model that is sharded", step)
    elif use.kinds != () and use.method is None:
        step = "set it on the module before it is wrapped"
        use.wall(f"`{ast.unparse(attribute)}` is assigned on the model after it is wrapped", step)


def _is_made_here(use: Use) -> bool:
    """Whether `self.part` is what the same constructor has just made: it is wrapped later, from outside."""
    facts, node = use.facts, use.node
    function = facts.function(node)
    if getattr(function, "name", "") != "__init__" or not isinstance(node, ast.Attribute):
        return False
    stores = [one for one in use.conversion.code.stores_in(facts, function) if ast.unparse(one) == ast.unparse(node)]
    values = [facts.structure.parents[one] for one in stores]
    made = [one.value if isinstance(one, ast.Assign) else None for one in values]
    wrapped = {one.call for one in use.closure.constructions} | {one.node for one in use.closure.passed}
    return bool(made) and all(one is not None and one not in wrapped for one in made)


def check_call(use: Use) -> None:
    """A module in a model is called; in a method that is no forward its parameters may be sharded."""
    if use.method is not None:
        name = getattr(use.method.node, "name", "")
        use.wall(f"`{name}` runs `{use.text}` outside of forward, where parameters are sharded", _REGISTER)


def _values(use: Use, cls: Class, name: str) -> list[Origin]:
    """What is kept in an attribute of a class."""
    code = use.conversion.code
    return [origin for store in code.stores(cls, name) for origin in code.origins(store.facts, store.node)]


def _convert_values(use: Use, member: Member, found: tuple[Origin, ...]) -> None:
    """An attribute that the class assigns: parameters and modules are looked at, other things are the same."""
    if any(one.name in _PARAMETER for one in found):
        look_at(use, Reference(use.facts, member.node))
    elif any(_may_be_module(use, one) for one in found):
        see_all(use, member.node, kinds=found)


def _may_be_module(use: Use, one: Origin) -> bool:
    if one.sort is Sort.INSTANCE and isinstance(one.node, ast.ClassDef):
        return _is_module_class(use, Class(one.facts, one.node))
    name = one.name or ""
    return (
        one.sort in (Sort.ELSEWHERE, Sort.UNKNOWN)
        and not name.startswith("builtins.")
        and (name.startswith(_MODULES) or not name.startswith("torch."))
    )


def _sounds_like_module(name: str | None) -> bool:
    """Whether a class of another package that the project derives from may be a module."""
    return name is None or name.startswith(_MODULES) or name.endswith(("Module", "Model", "Mixin"))


def is_no_module(use: Use) -> bool:
    """Whether what is done with an attribute that a class has says that it is neither module nor parameter.

    Modules cannot be computed with, and parameters are told by what the class assigns.
    """
    kinds = use.kinds or ()
    return bool(kinds) and not any((one.name or "").startswith(_MODULES) for one in kinds)


def _convert_unknown(use: Use, member: Member) -> None:
    """A member of a module whose class is not known: what is read is followed.

    What is called is a method of the modules of the project that have it, else a wall.
    """
    classes = _classes_with(use, member.node.attr) if member.call is not None else []
    if member.node.attr in _OF_TENSORS:
        look_at(use, use.reference)
    elif member.call is not None and member.node.attr in _OF_DICTS:
        if (path := _OF_DICTS[member.node.attr]) is not None:
            see_all(use, member.call, path)
    elif methods := [one for cls in classes for one in use.conversion.code.methods(cls, member.node.attr)]:
        known = tuple(Origin(Sort.INSTANCE, cls.facts, cls.node) for cls in classes)
        for method in methods:
            _convert_method(use, member, method, known)
    elif member.call is not None:
        step = "call a method of `torch.nn.Module`, or test each class with `isinstance`"
        use.wall(f"it is not known what `{ast.unparse(member.node)}` does with its parameters", step, member.node)
    else:
        see_all(use, member.node, kinds=use.kinds or ())


def _convert_method(use: Use, member: Member, method: Function, kinds: tuple[Origin, ...]) -> None:
    """A method: what it does with `self` is looked at as what is done with the module, outside of forward."""
    code = use.conversion.code
    if member.call is None and not code.is_property(method):
        use.wall(f"`{ast.unparse(member.node)}` is passed on", "call it where it is needed", member.node)
        return
    first = first_parameter(method.node)
    if method.node in use.conversion.methods or first is None or code.is_static(method):
        return
    use.conversion.methods.add(method.node)
    home = method.facts.structure.starts[first]
    for load in code.loads(home, first.arg):
        here = use.at(Reference(method.facts, load))
        use.see(replace(here, whole=load, kinds=kinds, method=method))

"""State dicts of a model and its optimizers: by the functions of `torch.distributed.checkpoint.state_dict`.

Loading a full optimizer state takes one step more. FSDP1 stored one `step` tensor for all parameters of a unit that are
flat, and each parameter would advance it: after three steps and twenty more it counts 43 and 83 instead of 23 (measured
on torch 2.13). So each parameter gets its own where files of FSDP1 have to stay readable.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from fsdp_migrate.code.import_texts import CannotSupply
from fsdp_migrate.code.legacy_methods import METHODS
from fsdp_migrate.code.new_names import spell
from fsdp_migrate.code.state_dicts.context_functions import Spread, context_function, of_function
from fsdp_migrate.code.state_dicts.names import MODULE
from fsdp_migrate.code.state_dicts.rewriting import Manner, Rewritten, of_call, of_setting, removed_uses
from fsdp_migrate.code.state_dicts.settings import NEVER_SET, InForce, NotUnderstood, in_force
from fsdp_migrate.code.state_dicts.sharded_loads import is_only_for_load
from fsdp_migrate.edits import EditImport, ImportBehind, RemoveStatement
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.fsdp import Receiver, TypeSetting
from fsdp_migrate.facts.objects import Reference
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion, Options
from fsdp_migrate.targets.fsdp2.file_helpers import helper
from fsdp_migrate.targets.fsdp2.guards import also_ddp, is_excluded
from fsdp_migrate.targets.fsdp2.lasting_types import lasts
from fsdp_migrate.targets.fsdp2.use import COMPILED, Use

_SETTERS = ("state_dict_type", "set_state_dict_type")
_OF_MODEL = frozenset({"state_dict", "load_state_dict"})
_OF_OPTIMIZER = frozenset({"optim_state_dict", "optim_state_dict_to_load", *METHODS})
_STEP = "rewrite it by hand with the functions of `torch.distributed.checkpoint.state_dict`, which also work with FSDP1"


def convert_states(conversion: Conversion, closure: Closure, options: Options) -> None:
    """Add what becomes of all state dicts of the models of a closure."""
    references: dict[str, list[Reference]] = {}
    for one in closure.references:
        references.setdefault(one.facts.path, []).append(one)
    modules = {path: _Module(conversion, closure, options, own) for path, own in references.items()}
    lasting = NEVER_SET
    for module in modules.values():
        lasting = module.convert_types(modules) or lasting
    for module in modules.values():
        module.convert_calls(lasting)


class _Names:
    """The names of new functions, each as the file writes it; imports of several places become one."""

    def __init__(self, facts: ModuleFacts, symbols: Iterable[str], at: ast.AST, _receiver: Receiver) -> None:
        self.spelling: dict[str, str] = {}
        self.lines: tuple[str, ...] = ()
        edits: list[EditImport | ImportBehind] = []
        for symbol in dict.fromkeys(symbols):
            spelled = spell(facts, f"{MODULE}.{symbol}", at)
            self.spelling[symbol] = spelled.text
            edits += spelled.edits
        self.edits = tuple(edits)


class _Module:
    """The state dicts in one module."""

    def __init__(self, conversion: Conversion, closure: Closure, options: Options, references: list[Reference]) -> None:
        self.conversion, self.closure, self.options = conversion, closure, options
        self.references = references
        self.facts = references[0].facts
        self.nodes: dict[ast.AST, Reference] = {one.node: one for one in references}
        self.settled: set[ast.AST] = set()  # the nodes in which everything is
        needs = options.reads_old_checkpoints and not all(map(_keeps_parameters, closure.constructions))
        self.manner = Manner(
            _Names,
            takes_compiled=True,
            flags=True,
            takes_idle=True,
            full_loads=self._own_steps if needs else None,
        )

    def convert_types(self, modules: Mapping[str, _Module]) -> InForce | None:
        """Convert what types are set for, in blocks here and in those that a function here gives the context to.

        The result is what is set once for all calls of the closure, if something is.
        """
        lasting = None
        for setting in self._settings():
            function = context_function(self.facts, setting)
            if function is not None:
                self._take_function(setting, of_function(function, self.manner), modules)
                continue
            new = of_setting(self.facts, setting, self.manner)
            found = self._lasting(setting, modules) if isinstance(new, str) else None
            if found is None:
                self._take(setting.call, new, setting.model)
                self._settle(_region(self.facts, setting.call))
            else:
                lasting = found
        return lasting

    def _lasting(self, setting: TypeSetting, modules: Mapping[str, _Module]) -> InForce | None:
        """What a statement sets for good, which goes; None if it is not plain what it is in force for."""
        facts, conversion = self.facts, self.conversion
        every = [one for module in modules.values() for one in module._settings()]
        asking = [one for module in modules.values() for one in module.references if module._state_call(one)]
        others = [one for one in every if getattr(one.call.func, "attr", "") == "set_state_dict_type"]
        if len(others) > 1 or not lasts(self.closure, facts, setting, asking):
            return None
        try:
            settings = in_force(facts, setting, flags=True)
        except NotUnderstood:
            return None
        statement = facts.source.span(facts.statement(setting.call))
        conversion.edit(facts, [RemoveStatement(statement)])
        conversion.removed.setdefault(facts.path, []).extend(removed_uses(facts, (), [setting.call], setting.model))
        conversion.settled.add(setting.model)
        return settings

    def _take_function(self, setting: TypeSetting, new: Spread | str, modules: Mapping[str, _Module]) -> None:
        self.conversion.settled.add(setting.model)
        if isinstance(new, str):
            self.conversion.wall(self.facts, setting.call, new, _STEP)
            return
        for path, fix in new.fixes.items():
            self.conversion.edits.setdefault(path, []).extend(fix.edits)
            self.conversion.removed.setdefault(path, []).extend(fix.removed_uses)
        for caller, block in new.blocks:
            self._note(caller.facts, caller.call, block)
            if caller.facts.path in modules:
                modules[caller.facts.path]._settle(_region(caller.facts, caller.call))

    def convert_calls(self, settings: InForce) -> None:
        """Convert the calls outside of such blocks, for which `settings` are in force."""
        calls: dict[ast.Call, ast.expr] = {}
        for reference in self.references:
            call = self._state_call(reference)
            if call is None or reference.node in self.conversion.settled:
                continue
            if is_only_for_load(self.facts, call):  # which goes with what it is for
                self.conversion.settled.add(reference.node)
                continue
            if isinstance(call.func, ast.Attribute) and not self._is_for_others(reference.node, call.func.attr):
                calls[call] = reference.node
        inside: dict[ast.AST, list[ast.Call]] = {}
        for call in calls:
            for outer in self._around(call):
                if outer in calls:
                    inside.setdefault(outer, []).append(call)
        nested = {call for found in inside.values() for call in found}
        for call, node in calls.items():
            if call not in nested:
                parts = tuple((one, self._model(calls[one])) for one in inside.get(call, ()))
                self._take(call, of_call(self.facts, call, self._model(node), self.manner, parts, settings), node)
            self.conversion.settled.add(node)

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        parents = self.facts.structure.parents
        while (parent := parents.get(node)) is not None:
            yield parent
            node = parent

    def _is_for_others(self, node: ast.expr, member: str) -> bool:
        """Whether what is asked here stays: never of a model of the closure, or, with a wall, of a DDP model too.

        The new functions leave `module.` out of the keys of a DDP model.
        """
        use = Use(self.conversion, self.closure, self.nodes[node], self.options)
        found = is_excluded(use) or also_ddp(use, member, visibly=True)
        if found:
            self.conversion.settled.add(node)
        return found

    def _model(self, node: ast.expr) -> ast.expr:
        """The model as it is asked: `compiled._orig_mod`, whose keys have no prefix, where that is what is asked."""
        parent = self.facts.structure.parents[node]
        return parent if isinstance(parent, ast.Attribute) and parent.attr == COMPILED else node

    def _settings(self) -> Iterator[TypeSetting]:
        """The places that set a type for models of the closure."""
        for method in _SETTERS:
            for setting in self.facts.fsdp.settings(method):
                if setting.model in self.nodes and self.facts.reached(setting.call):
                    yield setting

    def _settle(self, around: ast.AST) -> None:
        """Note that nothing more is to be said of state calls inside of a node, and of the types that are set."""
        if around in self.settled:
            return
        self.settled.add(around)
        for node in ast.walk(around):
            reference = self.nodes.get(node)
            if reference is not None and (node in self._models_set or self._state_call(reference) is not None):
                self.conversion.settled.add(node)

    @cached_property
    def _models_set(self) -> frozenset[ast.expr]:
        """The expressions for models that a type is set for."""
        settings = (setting for method in _SETTERS for setting in self.facts.fsdp.settings(method))
        return frozenset(setting.model for setting in settings)

    def _state_call(self, reference: Reference) -> ast.Call | None:
        """The call that asks a model for its state or that of an optimizer, or that loads one."""
        parents = self.facts.structure.parents
        parent = parents[self._model(reference.node)]
        if isinstance(parent, ast.Attribute) and parent.attr in _OF_MODEL:
            call = parents[parent]
            return call if isinstance(call, ast.Call) and call.func is parent else None
        call = parents[parent] if isinstance(parent, ast.keyword) else parent
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _OF_OPTIMIZER:
            return call
        return None

    def _take(self, node: ast.AST, new: Rewritten | str, model: ast.expr) -> None:
        conversion, facts = self.conversion, self.facts
        if isinstance(new, str):
            conversion.wall(facts, node, new, _STEP)
            return
        assert new.verdict.fix is not None
        conversion.edit(facts, new.verdict.fix.edits)
        conversion.removed.setdefault(facts.path, []).extend(new.verdict.fix.removed_uses)
        conversion.settled.add(model)
        self._note(facts, node, new)

    def _note(self, facts: ModuleFacts, node: ast.AST, new: Rewritten) -> None:
        """Note what is settled and what differs where some calls are rewritten."""
        conversion = self.conversion
        conversion.settled.update(part for call in new.calls for part in ast.walk(call.module))
        conversion.settled.update(call.load for call in new.calls if call.load is not None)
        for difference in new.differences:
            if not difference.of_load and not difference.of_fsdp1:
                conversion.differs(facts, node, difference.text)

    def _own_steps(self, facts: ModuleFacts) -> str:
        """The name in a module of a function that gives each parameter a `step` of its own."""
        reference = next((one for one in self.closure.references if one.facts is facts), None)
        if reference is None:
            raise CannotSupply("the model is not used in that file")
        use = Use(self.conversion, self.closure, reference, self.options)
        name = helper(use, "own_steps")
        if name is None:
            raise CannotSupply("there is no place for a function in this file")
        return name


def _region(facts: ModuleFacts, call: ast.Call) -> ast.AST:
    """The block that a setting is for, or the function it is set in."""
    parent = facts.structure.parents[call]
    return facts.structure.parents[parent] if isinstance(parent, ast.withitem) else facts.function(call)


def _keeps_parameters(construction: Construction) -> bool:
    """Whether a model visibly has original parameters, each with a `step` of its own."""
    given = next((one.value for one in construction.call.keywords if one.arg == "use_orig_params"), None)
    return is_literal(given, True)

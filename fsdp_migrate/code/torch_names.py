"""Where a file writes names of torch: imports, attribute chains, and strings that are looked up as names."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Sequence

from fsdp_migrate.facts import ModuleFacts, ProjectModules
from fsdp_migrate.facts.looked_up_names import look_up
from fsdp_migrate.facts.names import Meaning
from fsdp_migrate.facts.scopes import Binding, Kind
from fsdp_migrate.patterns import pattern
from fsdp_migrate.records import NamedTuple

_NAME = pattern(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# Calls whose first argument is a dotted name that they look up, and methods that take an object and a name.
_LOOKING_UP = frozenset({"patch", "multiple", "import_module", "setattr", "delattr", "resolve_name"})
_LOOKING_INTO = frozenset({"object", "setattr", "delattr"})


class Import(NamedTuple):
    """One name that an import takes from torch; `path` is its full name, the module itself for a star."""

    statement: ast.Import | ast.ImportFrom
    alias: ast.alias
    path: str

    @property
    def bound(self) -> str:
        """The name that the import binds, the first part of the path for a plain `import a.b`."""
        if self.alias.asname is not None:
            return self.alias.asname
        return self.alias.name.split(".")[0]

    @property
    def binds_path(self) -> bool:
        """Whether the bound name stands for the whole path, as in every form but `import a.b` and `import *`."""
        plain = isinstance(self.statement, ast.Import) and self.alias.asname is None and "." in self.path
        return not plain and self.alias.name != "*"


class Chain(NamedTuple):
    """A name with the attributes behind it, as far as they go: `dist.fsdp.FlatParameter`.

    `base` is what its root stands for, a name or what a module of the project has; `links` are the full names that
    follow from it, each with its expression, the innermost first; the root is not among them. What is `patched`
    is given an attribute or loses one, which is no link: of `fsdp.wrap.x = f` the chain is `fsdp.wrap`.
    """

    root: ast.expr
    base: str
    links: tuple[tuple[str, ast.Attribute], ...]
    patched: bool = False

    @property
    def path(self) -> str:
        """The full name of the whole chain."""
        return self.links[-1][0]

    def part(self, path: str) -> ast.expr | None:
        """The expression for `path`, None when the chain does not write it by itself."""
        if path == self.base:
            return self.root
        return next((node for written, node in self.links if written == path), None)


class Quoted(NamedTuple):
    """A string that a call looks up as a name: `mock.patch("torch.distributed.fsdp.x")`.

    `reader` is what does with it what an attribute does: `getattr(dist, "x")` without a default, `vars(dist)["x"]`.
    """

    node: ast.Constant
    path: str
    reader: ast.Call | ast.Subscript | None = None


def imports(facts: ModuleFacts) -> tuple[Import, ...]:
    """The imports of the file that take something from torch, in order."""
    return facts.memo(imports, lambda: tuple(_imports(facts)))


def chains(facts: ModuleFacts) -> tuple[Chain, ...]:
    """The attribute chains of the file that read something of torch and whose root has one meaning, in order."""
    return facts.memo(chains, lambda: tuple(_chains(facts)))


def quoted(facts: ModuleFacts) -> tuple[Quoted, ...]:
    """The strings of the file that are looked up as names of torch."""
    return facts.memo(quoted, lambda: tuple(_quoted(facts)))


def reads(facts: ModuleFacts) -> tuple[tuple[Quoted, ast.Call | ast.Subscript], ...]:
    """What reads something of torch by a string, as `getattr(owner, "name")` does, with the strings."""
    return tuple((one, one.reader) for one in quoted(facts) if one.reader is not None)


def passed_on(facts: ModuleFacts) -> tuple[tuple[ast.Name | ast.Attribute, str], ...]:
    """What stands for something of torch by way of a module of the project or a star import, with its full name."""
    return facts.memo(passed_on, lambda: tuple(_passed_on(facts)))


def from_torch_star(facts: ModuleFacts, node: ast.expr, path: str) -> bool:
    """Whether a name comes straight from a star import of the module of torch that has it."""
    stars = (taken.path for taken in imports(facts) if taken.alias.name == "*")
    return isinstance(node, ast.Name) and path.rpartition(".")[0] in stars


def bindings_of(facts: ModuleFacts, taken: Import) -> list[Binding]:
    """The bindings that one name of an import makes."""
    scope = facts.scope(taken.statement)
    home = scope.lookup(taken.bound) or scope  # another one under `global` or `nonlocal`
    return [binding for binding in home.bindings.get(taken.bound, []) if binding.node is taken.statement]


def _imports(facts: ModuleFacts) -> Iterator[Import]:
    for statement in facts.structure.imports:
        if isinstance(statement, ast.ImportFrom):
            if statement.level or statement.module is None or statement.module.split(".")[0] != "torch":
                continue
            for alias in statement.names:
                path = statement.module if alias.name == "*" else f"{statement.module}.{alias.name}"
                yield Import(statement, alias, path)
        else:
            for alias in statement.names:
                if alias.name.split(".")[0] == "torch":
                    yield Import(statement, alias, alias.name)


def _chains(facts: ModuleFacts) -> Iterator[Chain]:
    names, roots, parents = _names(facts).torch, _roots(facts), facts.structure.parents
    for node in facts.structure.attributes:
        if roots[node] not in names or isinstance(parents[node], ast.Attribute):
            continue
        patched = not isinstance(node.ctx, ast.Load)
        links: list[ast.Attribute] = []
        root = node.value if patched else node
        while isinstance(root, ast.Attribute):
            links.append(root)
            root = root.value
        if links and (chain := _chain(facts, root, links[::-1], patched)) is not None:
            yield chain


def _chain(facts: ModuleFacts, root: ast.expr, attributes: list[ast.Attribute], patched: bool) -> Chain | None:
    meaning = _only_meaning(facts, root)
    if meaning is None or meaning.qualified is None:
        return None
    if meaning.qualified.split(".")[0] != "torch":
        # A module of the project may be what leads to torch.
        through_project = facts.project is not None and len(attributes) > 1
        return _chain(facts, attributes[0], attributes[1:], patched) if through_project else None
    path = base = meaning.qualified
    links = []
    for attribute in attributes:
        path = f"{path}.{attribute.attr}"
        links.append((path, attribute))
    return Chain(root, base, tuple(links), patched)


def torch_path(facts: ModuleFacts, node: ast.expr) -> str | None:
    """The full name of what of torch `node` stands for, None where it is anything else or not certain."""
    if _root_name(facts, node) not in _names(facts).torch:
        return None
    meaning = _only_meaning(facts, node)
    path = None if meaning is None else meaning.qualified
    return path if path is not None and path.startswith("torch.") else None


def _passed_on(facts: ModuleFacts) -> Iterator[tuple[ast.Name | ast.Attribute, str]]:
    own, module = _names(facts).own, facts.structure.module
    for name in sorted(own):
        for scope in module.users.get(name, ()):
            home = scope.lookup(name)
            if home is None or all(binding.kind is Kind.IMPORT for binding in home.bindings[name]):
                yield from ((use, path) for use in scope.uses[name] if (path := torch_path(facts, use)) is not None)
    roots = _roots(facts) if own else {}
    for node in facts.structure.attributes if own else ():
        path = torch_path(facts, node) if roots[node] in own and isinstance(node.ctx, ast.Load) else None
        if path is not None and not (facts.names.qualified(node.value) or "torch").startswith("torch"):
            yield node, path


def _root_name(facts: ModuleFacts, node: ast.expr) -> str | None:
    """The name that a chain of attributes starts from."""
    if isinstance(node, (ast.Subscript, ast.Call)) and (found := look_up(node)) is not None:
        node = found.owner
    return node.id if isinstance(node, ast.Name) else _roots(facts).get(node)


def _roots(facts: ModuleFacts) -> dict[ast.expr, str | None]:
    """The names that the attributes of the file start from; each link of a chain is looked at once."""
    return facts.memo(_roots, lambda: _find_roots(facts))


def _find_roots(facts: ModuleFacts) -> dict[ast.expr, str | None]:
    found: dict[ast.expr, str | None] = {}
    for node in reversed(facts.structure.attributes):  # in which a chain comes before its beginnings
        owner = node.value
        found[node] = owner.id if isinstance(owner, ast.Name) else found.get(owner)
    return found


def _only_meaning(facts: ModuleFacts, node: ast.expr) -> Meaning | None:
    """What a node stands for, the first of several imports of the same thing."""
    meanings = facts.names.meanings(node)
    if len(meanings) > 1:
        # Of several imports of one name the old arm of a version check does not count.
        meanings = tuple(m for m in meanings if m.binding is None or facts.reached(m.binding.node))
    return meanings[0] if len({meaning.qualified for meaning in meanings}) == 1 else None


def may_end_in(facts: ModuleFacts, node: ast.expr, words: Container[str]) -> bool:
    """Whether the `torch_path` of a node may end in one of some words, told without looking for it."""
    word = _ending(facts, node)
    return word is None or word in words


def calls_ending_in(facts: ModuleFacts, words: Container[str]) -> list[ast.Call]:
    """The calls of the file whose `torch_path` may end in one of some words, in order."""
    every = facts.memo(calls_ending_in, lambda: [(_ending(facts, call.func), call) for call in facts.structure.calls])
    return [call for word, call in every if word is None or word in words]


def _ending(facts: ModuleFacts, node: ast.expr) -> str | None:
    """The word that the `torch_path` of a node ends in if it has one, None if that may be any; empty if it has none."""
    names, root = _names(facts), _root_name(facts, node)
    if root not in names.torch:
        return ""
    # Names that are imported or assigned, and modules of the project, may call it otherwise.
    return node.attr if isinstance(node, ast.Attribute) and root not in names.own else None


class _Names(NamedTuple):
    """Names that may stand for something of torch; `own` come through the project or a star import."""

    torch: frozenset[str]
    own: frozenset[str]


def last_words(paths: Iterable[str]) -> frozenset[str]:
    """The last parts of full names."""
    return frozenset(path.rpartition(".")[2] for path in paths)


def _names(facts: ModuleFacts) -> _Names:
    return facts.memo(_names, lambda: _find_names(facts))


def _find_names(facts: ModuleFacts) -> _Names:
    scopes = list(facts.structure.module.nested())
    bound = [(name, binding) for scope in scopes for name, bindings in scope.bindings.items() for binding in bindings]
    imported = [(name, binding.target or "") for name, binding in bound if binding.kind is Kind.IMPORT]
    project = facts.project
    own = {
        name
        for name, target in imported
        if (target.startswith(".") if project is None else project.may_pass_on(target))
    }
    stars = {star for scope in scopes for star in scope.star_imports}
    unbound = {name for scope in scopes if stars for name in scope.uses if scope.lookup(name) is None}
    own |= {name for name in unbound if any(_may_bring(project, star, name) for star in stars)}
    names = own.union(name for name, target in imported if target.split(".")[0] == "torch")
    aliases = [(name, root) for name, binding in bound for root in _roots_of(binding.value)]
    return _Names(_with_aliases(names, aliases), _with_aliases(own, aliases))


def _may_bring(project: ProjectModules | None, star: str, name: str) -> bool:
    """Whether a star import may bring a name of torch."""
    if project is None or star.split(".")[0] == "torch":
        return True
    return project.may_pass_on(star + name if star.endswith(".") else f"{star}.{name}")


def _with_aliases(names: set[str], aliases: Sequence[tuple[str, str]]) -> frozenset[str]:
    found = set(names)
    for _ in range(2):
        found.update(name for name, root in aliases if root in found)
    return frozenset(found)


def _roots_of(value: ast.expr | None) -> Iterator[str]:
    """The names that a value may come from, all arms of a choice counted."""
    if isinstance(value, (ast.IfExp, ast.BoolOp)):
        for arm in (value.body, value.orelse) if isinstance(value, ast.IfExp) else value.values:
            yield from _roots_of(arm)
        return
    found = None if value is None else look_up(value)
    value = value if found is None else found.owner
    while isinstance(value, ast.Attribute):
        value = value.value
    if isinstance(value, ast.Name):
        yield value.id


def _quoted(facts: ModuleFacts) -> Iterator[Quoted]:
    for constant in facts.structure.strings:
        parent = facts.structure.parents[constant]
        call = facts.structure.parents[parent] if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, (ast.Call, ast.Subscript)) or not isinstance(constant.value, str):
            continue
        if _NAME.fullmatch(constant.value) is None:
            continue
        if (path := _read(facts, call, constant)) is not None:
            yield Quoted(constant, path, call)
        elif isinstance(call, ast.Subscript):
            continue
        elif (path := _looked_up(facts, call, constant, constant.value) or "").startswith("torch."):
            yield Quoted(constant, path)


def _read(facts: ModuleFacts, node: ast.Call | ast.Subscript, constant: ast.Constant) -> str | None:
    """The full name that `node` reads off something of torch by a string, None where it does not do that."""
    found = look_up(node)
    if found is None or found.text is not constant or (isinstance(node, ast.Call) and len(node.args) != 2):
        return None
    if found.function is not None and facts.names.qualified(found.function) != f"builtins.{found.function.id}":
        return None
    owner = torch_path(facts, found.owner)
    return None if owner is None else f"{owner}.{found.name}"


def _looked_up(facts: ModuleFacts, call: ast.Call, constant: ast.Constant, text: str) -> str | None:
    """The full name that `call` looks up because of a string among its arguments, None when it does not."""
    function = call.func
    name = getattr(function, "attr", getattr(function, "id", None))
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if name in _LOOKING_UP and values[0] is constant:
        return text
    if name in _LOOKING_INTO and isinstance(function, ast.Attribute) and values[1:2] == [constant]:
        owner = values[0]
        meanings = facts.names.meanings(owner) if isinstance(owner, (ast.Name, ast.Attribute)) else ()
        if len(meanings) == 1 and meanings[0].qualified is not None:
            return f"{meanings[0].qualified}.{text}"
    return None

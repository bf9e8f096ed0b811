"""Programs in which a name of an example is bound in every way that Python has, beside or around the example."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from textwrap import indent

from hypothesis import strategies as st

from tests.fuzz import seeds

# `{n}` is a name that the example uses, `{e}` the example and `{i}` it again as the body of a block.
_FORMS = (
    "{e}\ndef f():\n    global {n}\n{i}",
    "def f():\n    global {n}\n{i}\n{n}",
    "def f():\n    global {n}\n    del {n}\n{e}",
    "def f():\n    {n} = 1\n    def g():\n        nonlocal {n}\n        {n} = {n}\n    return {n}\n{e}",
    "def f():\n{i}\n    def g():\n        nonlocal {n}\n        {n} = 1\n    g()\n    return {n}",
    "class C:\n{i}\n    x = {n}\n    def m(self): return {n}",
    "class C:\n    {n} = 1\n    def m(self):\n        global {n}\n    {i}".replace("    {i}", "{i}"),
    "{e}\nclass {n}({n}): pass",
    "{e}\n@{n}\ndef {n}({n}={n}, *a: {n}, **k) -> {n}: return {n}",
    "async def f():\n{i}\n    async for {n} in y: await {n}\n    async with x as {n}: pass\n    [{n} async for {n} in y]",
    "{e}\nif ({n} := {n}): print({n})",
    "{e}\n[({n} := z) for z in y if {n}]",
    "{e}\nx = [{n} for {n} in y for {n} in {n}], {{{n}: {n} for {n} in y}}, ({n} for q in {n})",
    "{e}\nf = lambda {n}, *a: {n}\nf({n})",
    "del {n}\n{e}",
    "{e}\ndel {n}",
    "{e}\ndel {n}.x, {n}[0]\n{n}.x = {n}[0] = 1",
    "{e}\n{n} += 1\n{n}: int\n{n}: {n} = {n}",
    "for {n}, *rest in y:\n{i}\nelse:\n    {n} = 2",
    "{e}\n(*{n},), [a, *b] = y",
    "with x as ({n}, z), {n}.y as q:\n{i}",
    "try:\n{i}\nexcept E as {n}:\n    raise {n}\nelse:\n    {n}\nfinally:\n    {n} = 1",
    "try:\n{i}\nexcept* E as {n}:\n    {n} = None",
    "match {n}:\n    case {{'a': {n}, **rest}}:\n        {n}\n    case [*{n}] | {n}:\n        {n}\n{e}",
    "match x:\n    case {n}(a={n}) as {n}:\n        pass\n    case {n}.y:\n        pass\n{e}",
    "while {n}:\n{i}\n    {n} = {n}.next",
    "{e}\nfrom torch.distributed import *\nfrom torch.cuda.amp import *\n{n}",
    "import {n}\n{e}\nimport {n}.{n} as {n}",
    "{e}\nfrom . import {n} as {n}, {n} as b\nfrom .{n} import *",
    "if x:\n{i}\nelif y:\n    from {n} import {n}\nelse:\n    {n} = None\n{n}",
    "def f(x, {n}, /, *, {n}_=1):\n{i}\n    yield {n}\n    return (yield from {n})",
    "{e}\nx = f'{{{n}!r:>{{{n}}}}}', {n}, *{n}\nprint(*{n}, **{n})\n{n}()()",
    "{e}\n__all__ = ['{n}']\nglobals()['{n}'] = vars()['{n}'], getattr({n}, '{n}'), '{n}.{n}'",
    "{e}\nfrom __future__ import annotations\nx: '{n}[{n}]' = {n}",
)
_NEW_FORMS = (
    "{e}\ndef f[{n}](x: {n}) -> {n}: return {n}",
    "{e}\nclass C[{n}: {n}, *Ts, **P]({n}): x: {n}",
    "type {n} = {n}\n{e}",
    "{e}\ntype A[{n}] = list[{n}]",
)
FORMS = (*_FORMS, *(_NEW_FORMS if sys.version_info >= (3, 12) else ()))


@functools.cache
def names_of(example: str) -> tuple[str, ...]:
    """The names that an example binds by imports, or else reads."""
    nodes = list(ast.walk(ast.parse(example)))
    aliases = (alias for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names)
    bound = [(alias.asname or alias.name).split(".")[0] for alias in aliases if alias.name != "*"]
    read = [node.id for node in nodes if isinstance(node, ast.Name)]
    return tuple(dict.fromkeys([*bound, *read]))


def program(form: str, example: str, name: str) -> str | None:
    """The example with one more binding of a name, None where that is no program."""
    text = form.format(n=name, e=example, i=indent(example, "    ")) + "\n"
    return text if seeds.parse(text) is not None else None


def every() -> Iterator[str]:
    """All of them."""
    for example in seeds.examples():
        found = (program(form, example, name) for name in names_of(example)[:3] for form in FORMS)
        yield from (one for one in found if one is not None)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """One of them."""
    example = draw(st.sampled_from([one for one in seeds.examples() if names_of(one)]))
    form, name = draw(st.sampled_from(FORMS)), draw(st.sampled_from(names_of(example)))
    return program(form, example, name) or example

"""Objects: all expressions of a project that may stand for what one expression makes, such as `FSDP(...)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts


class Reference(NamedTuple):
    """An expression, read in the module of `facts`, that may stand for the object.

    `others` are expressions whose value it may have instead: a plain model on another arm, another caller's argument.
    """

    facts: ModuleFacts
    node: ast.expr
    others: tuple[Value, ...] = ()


class Value(NamedTuple):
    """An expression that gives a value, in the module of `facts`."""

    facts: ModuleFacts
    node: ast.expr


class Escape(NamedTuple):
    """A place behind which the object cannot be followed; `reason` is a clause for the user: "it is kept in ..."."""

    facts: ModuleFacts
    node: ast.AST
    reason: str


class Followed(NamedTuple):
    """Where an object goes.

    `references` are the expressions that something is done with: a member is read, it is called, it is an argument of
    something that is not a function of the project. One that only passes the object on (assigned, returned, given to a
    function of the project) is in `passed`.
    """

    references: tuple[Reference, ...]
    passed: tuple[Reference, ...]
    escapes: tuple[Escape, ...]

from __future__ import annotations

import ast

import pytest

from fsdp_migrate.facts.project_code import Answers, Class, Code, TooMuchError
from tests.facts.following import check, followed, others, parsed

ONE_MODULE = {
    "a name": """
        model = OBJECT()
        model.eval()  # here
        print(model)  # here
        other = 1
        other.eval()
        """,
    "only what comes behind": """
        model = plain()
        model.eval()
        model = OBJECT(model)
        model.eval()  # here
        """,
    "what is bound again": """
        model = OBJECT()
        model = other()
        model.eval()
        """,
    "what is bound again on one arm": """
        model = OBJECT()
        if a:
            model = other()
        model.eval()  # here
        """,
    "the other arm": """
        if a:
            model = OBJECT()
            model.eval()  # here
        else:
            model = other()
            model.eval()
        model.train()  # here
        """,
    "an arm that is left": """
        def f(model):
            if a:
                model = OBJECT()
                return
            model.eval()
        """,
    "a loop": """
        for step in steps:
            model.eval()  # here
            model = OBJECT()
        """,
    "a loop that begins anew": """
        for step in steps:
            model = plain()
            model.eval()
            model = OBJECT(model)
        """,
    "a second name": """
        one = OBJECT()
        two = one
        two.eval()  # here
        """,
    "annotated": """
        model: Model = OBJECT()
        model.eval()  # here
        """,
    "a walrus": """
        if (model := OBJECT()) is None:  # here
            pass
        model.eval()  # here
        """,
    "tuples": """
        model, optimizer = OBJECT(), 1
        model.eval()  # here
        optimizer.step()
        """,
    "starred": """
        first, *rest, last = 1, OBJECT(), 2, 3
        first.x
        last.x
        rest[0].x  # here
        """,
    "conditional": """
        model = OBJECT() if a else plain()
        model.eval()  # here
        """,
    "or": """
        model = given or OBJECT()
        model.eval()  # here
        """,
    "a return": """
        def build():
            return OBJECT()
        def rename():
            return 1
        build().eval()  # here
        model = build()
        model.eval()  # here
        rename().eval()
        """,
    "a return of several": """
        def build():
            model = OBJECT()
            return model, 1
        model, optimizer = build()
        model.eval()  # here
        optimizer.step()
        build()[0].train()  # here
        build()[1].step()
        """,
    "a return of a dict": """
        def build():
            return {"model": OBJECT(), "optimizer": 1}
        state = build()
        state["model"].eval()  # here
        state["optimizer"].step()
        state.get("model").train()  # here
        """,
    "arguments": """
        def one(model, other):
            model.eval()  # here
            other.eval()
        def two(a, *, model):
            model.eval()  # here
            a.eval()
        m = OBJECT()
        one(m, 1)
        two(1, model=m)
        """,
    "any arguments": """
        def one(*args):
            args[0].x
            args[1].x  # here
        def two(**kwargs):
            kwargs["model"].x  # here
            kwargs["other"].x
        m = OBJECT()
        one(1, m)
        two(model=m, other=1)
        """,
    "unpacked arguments": """
        def one(a, b):
            a.x
            b.x  # here
        values = (1, OBJECT())
        one(*values)
        named = {"b": OBJECT(), "a": 1}
        one(**named)
        """,
    "a default": """
        m = OBJECT()
        def one(a, model=m):
            model.eval()  # here
            a.eval()
        """,
    "what is returned as it came": """
        def prepare(model, device):
            model.eval()  # here
            return model
        m = prepare(OBJECT(), 1)
        m.train()  # here
        """,
    "partial": """
        from functools import partial
        def one(model, other):
            model.eval()  # here
            other.eval()
        f = partial(one, OBJECT())
        f(1)
        """,
    "a lambda": """
        m = OBJECT()
        f = lambda: m
        f().eval()  # here
        g = lambda x: x.eval()
        """,
    "an argument of a lambda": """
        f = lambda x: x.eval()  # here
        f(OBJECT())
        """,
    "a closure": """
        def outer():
            model = OBJECT()
            def inner():
                model.eval()  # here
            def other(model):
                model.eval()
            inner()
        """,
    "a closure made before": """
        def outer(model):
            def inner():
                model.eval()  # here
            model.eval()
            model = OBJECT()
            inner()
        """,
    "a generator": """
        def models():
            yield OBJECT()
        for model in models():
            model.eval()  # here
        """,
    "a context manager": """
        from contextlib import contextmanager
        @contextmanager
        def making():
            yield OBJECT()
        with making() as model:
            model.eval()  # here
        """,
    "loops over what is written out": """
        m, e = OBJECT(), 1
        for model in (m, e):
            model.eval()  # here
        for name, which in (("a", m), ("b", e)):
            which.eval()  # here
            name.upper()
        [x.eval() for x in [m, e]]  # here
        """,
    "items of a dict": """
        parts = {"model": OBJECT(), "n": 1}
        for name, part in parts.items():
            part.x  # here
            name.x
        for part in parts.values():
            part.x  # here
        for name in parts:
            print(name)
        """,
    "what is put into a collection": """
        def f():
            parts = []
            parts.append(OBJECT())
            parts[0].eval()  # here
            named = {}
            named["model"] = OBJECT()
            named["model"].eval()  # here
            named["other"].eval()
        """,
    "zip and enumerate": """
        models = [OBJECT()]
        for number, model in enumerate(models):
            model.x  # here
            number.x
        for model, other in zip(models, [1]):
            model.x  # here
            other.x
        """,
    "a global": """
        model = None
        def build():
            global model
            model = OBJECT()
        def use():
            model.eval()  # here
        """,
    "nonlocal": """
        def outer():
            model = None
            def build():
                nonlocal model
                model = OBJECT()
            build()
            model.eval()  # here
        """,
    "a coroutine": """
        import asyncio
        async def build():
            return OBJECT()
        async def main():
            model = await build()
            model.eval()  # here
        asyncio.run(build()).train()  # here
        """,
    "self": """
        class Trainer:
            def __init__(self):
                self.model = OBJECT()
                self.other = 1
            def run(self):
                self.model.eval()  # here
                self.other.eval()
        class Other:
            def run(self):
                self.model.eval()
        """,
    "before in the same method": """
        class Trainer:
            def build(self):
                self.model = plain()
                self.model.to(1)
                self.model = OBJECT(self.model)
                self.model.eval()  # here
        """,
    "a constructor before it calls what makes it": """
        class Trainer:
            def __init__(self):
                self.model = plain()
                self.model.to(1)
                self.wrap()
                self.model.eval()  # here
            def wrap(self):
                self.model = OBJECT(self.model)
        """,
    "bases and derived classes": """
        class Base:
            def use(self):
                self.model.eval()  # here
        class Trainer(Base):
            def __init__(self):
                self.model = OBJECT()
        class Special(Trainer):
            def go(self):
                self.model.eval()  # here
        class Mixin:
            def mix(self):
                self.model.eval()  # here
        class Both(Mixin, Special):
            pass
        class Foreign:
            def mix(self):
                self.model.eval()
        """,
    "an attribute from outside": """
        class State:
            pass
        state = State()
        state.model = OBJECT()
        state.model.eval()  # here
        def use(s):
            s.model.train()  # here
        use(state)
        def other(s):
            s.model.train()
        other(1)
        """,
    "a property": """
        class Trainer:
            def __init__(self):
                self._model = OBJECT()
            @property
            def model(self):
                return self._model
            def method(self):
                return self._model
        t = Trainer()
        t.model.eval()  # here
        t.method().eval()  # here
        """,
    "a setter": """
        class Trainer:
            @property
            def model(self):
                return self._model
            @model.setter
            def model(self, value):
                value.eval()  # here
                self._model = value
        t = Trainer()
        t.model = OBJECT()
        t.model.train()  # here
        """,
    "a constructor": """
        class Trainer:
            def __init__(self, model, other):
                self.model = model
                self.other = other
            def run(self):
                self.model.eval()  # here
                self.other.eval()
        Trainer(OBJECT(), 1).run()
        """,
    "the constructor of a base": """
        class Base:
            def __init__(self, model):
                self.model = model
        class Trainer(Base):
            def __init__(self, model):
                super().__init__(model)
            def run(self):
                self.model.eval()  # here
        Trainer(OBJECT()).run()
        """,
    "a dict of keywords": """
        def result():
            return dict(model=OBJECT(), step=1)
        done = result()
        done["model"].eval()  # here
        done["step"].eval()
        """,
    "methods": """
        class Saver:
            def save(self, model, path):
                model.state_dict()  # here
                path.exists()
        saver = Saver()
        saver.save(OBJECT(), 1)
        class Other:
            def save(self, model, path):
                model.state_dict()
        """,
    "a method of an attribute": """
        class Saver:
            def save(self, model):
                model.state_dict()  # here
        class Trainer:
            def __init__(self):
                self.saver = Saver()
                self.model = OBJECT()
            def go(self):
                self.saver.save(self.model)
        """,
    "static and class methods": """
        class Tools:
            @staticmethod
            def one(model):
                model.eval()  # here
            @classmethod
            def two(cls, model):
                model.eval()  # here
        Tools.one(OBJECT())
        Tools.two(OBJECT())
        """,
    "a dataclass": """
        from dataclasses import dataclass
        @dataclass
        class State:
            step: int
            model: object
        state = State(0, OBJECT())
        state.model.eval()  # here
        state.step.bit_length()
        """,
    "by setattr and getattr": """
        class Trainer:
            def build(self):
                setattr(self, "model", OBJECT())
            def run(self):
                getattr(self, "model").eval()  # here
                getattr(self, "other").eval()
        """,
    "by names from a list": """
        class Trainer:
            def build(self):
                self.model = OBJECT()
            def run(self):
                for name in ("model", "other"):
                    getattr(self, name).eval()  # here
                for name in ("one", "two"):
                    getattr(self, name).eval()
        """,
    "methods of a class by its name": """
        class Tools:
            @staticmethod
            def use(model):
                model.eval()  # here
        Tools.use(model=OBJECT())
        """,
    "several targets": """
        class T:
            def f(self):
                model = self.model = OBJECT()
                self.one, self.two = OBJECT(), 1
                model.eval()  # here
            def g(self):
                self.model.eval()  # here
                self.one.eval()  # here
                self.two.eval()
        """,
    "lists that are put together": """
        def f():
            models = [1]
            models += [OBJECT()]
            for model in models:
                model.eval()  # here
            more = [2] + models
            more[0].eval()  # here
            both = {"b": 1} | {"a": OBJECT()}
            both["a"].eval()  # here
            both["b"].eval()
        """,
    "what is taken out of a list": """
        models = [1, OBJECT()]
        models.pop(0)
        model = models.pop(0)
        model.eval()  # here
        """,
    "looks at a collection": """
        pair = (OBJECT(), 1)
        print(f"{pair}", not pair, len(pair))
        if pair:
            pass
        """,
    "a context that is entered by hand": """
        from contextlib import contextmanager
        @contextmanager
        def making():
            yield OBJECT()
        manager = making()
        model = manager.__enter__()
        model.eval()  # here
        with manager as m:
            m.eval()  # here
        """,
    "a named tuple": """
        from typing import NamedTuple
        class State(NamedTuple):
            model: object
            step: int
        state = State(OBJECT(), 1)
        state.model.eval()  # here
        model, step = state
        model.eval()  # here
        step.eval()
        state[0].eval()  # here
        """,
    "keywords that are handed on": """
        def outer(**kwargs):
            inner(**kwargs)
        def inner(model=None, other=None):
            model.eval()  # here
            other.eval()
        outer(model=OBJECT(), other=1)
        """,
    "an attribute of the class": """
        class T:
            def build(self):
                T.model = OBJECT()
            def run(self):
                self.model.eval()  # here
                type(self).model.eval()  # here
                self.__class__.model.eval()  # here
        """,
    "functions in variables": """
        def one(model):
            model.eval()  # here
        def two(model):
            model.train()  # here
        def run(function):
            function(OBJECT())
        run(one)
        {"two": two}["two"](OBJECT())
        """,
    "what others get": """
        import torch
        m = OBJECT()
        torch.save(m, "x")  # here
        thing.use(m)  # here
        unknown(model=m)  # here
        """,
    "in operators": """
        m = OBJECT()
        if m is None:  # here
            pass
        f"{m}"  # here
        m[0]  # here
        assert m  # here
        """,
    "with": """
        with OBJECT() as m:  # here
            m.eval()  # here
        """,
    "a function that is only read": """
        import threading
        def work():
            return OBJECT()
        threading.Thread(target=work).start()
        """,
    "mains": """
        def main():
            model = OBJECT()
            return {"model": model}
        if __name__ == "__main__":
            main()
        """,
    "a decorator that hands on": """
        import torch
        @torch.no_grad()
        def evaluate(model):
            model.eval()  # here
        evaluate(OBJECT())
        def logged(f):
            def inner(*args, **kwargs):
                return f(*args, **kwargs)
            return inner
        @logged
        def train(model):
            model.train()  # here
        train(OBJECT())
        """,
    "recursion": """
        def walk(model, depth):
            model.eval()  # here
            return walk(model, depth - 1) if depth else model
        walk(OBJECT(), 3).train()  # here
        """,
}
LOST = {
    "an attribute of something": """
        args.model = OBJECT()  # lost
        """,
    "a global dict": """
        MODELS = {}
        MODELS["a"] = OBJECT()  # lost
        """,
    "a list from elsewhere": """
        def f(models):
            models.append(OBJECT())  # lost # here
        """,
    "a name made at run time": """
        class T:
            def f(self, name):
                setattr(self, name, OBJECT())  # lost # here
        """,
    "read by a name made at run time": """
        class T:
            def f(self, name):
                self.model = OBJECT()
                getattr(self, name)  # lost
        """,
    "exec": """
        def f(text):
            model = OBJECT()
            exec(text)  # lost
        """,
    "eval of its name": """
        def f(text):
            model = OBJECT()
            eval("1 / 3")
            eval("model.eval()")  # lost
        """,
    "locals": """
        def f():
            model = OBJECT()
            return locals()  # lost
        """,
    "globals": """
        model = OBJECT()
        def f():
            globals()["model"].eval()  # lost
        """,
    "a collection that is given away": """
        import torch
        torch.save({"model": OBJECT()}, "x")  # lost
        """,
    "a function that nobody calls": """
        def build():  # lost
            return OBJECT()
        """,
    "a function that is given away": """
        def build():
            return OBJECT()
        register_builder(build)  # lost
        """,
    "a decorator": """
        @cached
        def build():  # lost
            return OBJECT()
        build().eval()  # here
        """,
    "a decorator of what takes it": """
        @app.command
        def use(model):
            model.eval()  # here
        use(OBJECT())  # lost
        """,
    "the dict of an object": """
        class T:
            def f(self):
                self.model = OBJECT()
                self.__dict__.update(a=1)
                return self.__dict__["model"]  # lost
        """,
    "vars": """
        class T:
            def f(self):
                self.model = OBJECT()
                return vars(self)  # lost
        """,
    "a method of a collection that is passed on": """
        parts = {"a": OBJECT()}
        f = parts.get  # lost
        """,
    "a function that is called in another way": """
        def build():
            return OBJECT()
        build.remote().eval()  # lost
        """,
    "a list of the module": """
        MODELS = []
        def f():
            global MODELS
            MODELS += [OBJECT()]  # lost
        """,
    "a key": """
        seen = {OBJECT(): 1}  # lost # here
        """,
    "a match statement": """
        model = OBJECT()
        match model:  # lost # here
            case Model():
                pass
        """,
}


@pytest.mark.parametrize("text", ONE_MODULE.values(), ids=ONE_MODULE.keys())
def test_an_object_is_followed_through(text: str) -> None:
    check(text)


@pytest.mark.parametrize("text", LOST.values(), ids=LOST.keys())
def test_an_object_is_lost_in(text: str) -> None:
    check(text)


def test_what_else_a_name_may_be() -> None:
    found = followed(
        """
        model = plain()
        if a:
            model = OBJECT(model)
        model.eval()
        """
    )
    assert others(found, 5) == ["plain()"]


def test_what_other_callers_give() -> None:
    found = followed(
        """
        def use(model):
            model.eval()
        use(OBJECT())
        use(plain())
        """
    )
    assert others(found, 3) == ["plain()"]


def test_a_plain_value_that_is_always_replaced_is_no_other() -> None:
    found = followed(
        """
        class T:
            def __init__(self):
                self.model = plain()
                self.model = OBJECT(self.model)
            def run(self):
                self.model.eval()
        """
    )
    assert others(found, 7) == []


def test_a_budget_that_does_not_do_is_an_escape() -> None:
    text = "m0 = OBJECT()\n" + "".join(f"m{n + 1} = m{n}\n" for n in range(100))
    found = followed(text, budget=50)
    assert [one.reason for one in found.escapes] == ["it was followed for 50 steps and is still passed on"]


def test_a_class_that_derives_from_a_name_of_its_own_comes_to_an_end() -> None:
    check(
        """
        import dataclasses
        @dataclasses.dataclass
        class Holder(Holder):
            kept: object
        holder = Holder(OBJECT())
        holder.kept.use()  # here
        """
    )


def test_a_function_that_another_one_returns_among_others() -> None:
    check(
        """
        def use(it, more):
            it.seen()  # here
        def tools():
            return 1, use
        number, apply = tools()
        apply(OBJECT(), 1)
        """
    )


def test_a_constructor_is_over_before_code_outside_of_the_class_assigns_an_attribute() -> None:
    found = followed(
        """
        class Net:
            def __init__(self):
                self.head = make()
                self.head.reset()

            def forward(self):
                return self.head.run()

        net = Net()
        net.head = OBJECT()
        """
    )
    assert [ast.unparse(one.node) for one in found.references] == ["self.head"]
    assert [one.node.lineno for one in found.references] == [8]


def test_a_collection_that_is_made_of_itself() -> None:
    facts = parsed(
        """
        from torch import nn
        class Sampler(nn.Module):
            def __init__(self):
                self.parts = {}
                self.parts["a"] = OBJECT()
                self.parts = nn.ModuleDict(self.parts)

            def run(self):
                for part in self.parts.values():
                    part.eval()
        """
    )
    (read,) = (call.func for call in facts.structure.calls if ast.unparse(call) == "self.parts.values()")
    assert isinstance(read, ast.Attribute)
    elements = Code().elements(facts, read.value)
    assert elements is not None
    assert [ast.unparse(one.node) for one in elements] == ["OBJECT()"]


def test_an_answer_that_is_broken_off_is_not_kept() -> None:
    answers = Answers()
    breaks = [True]

    def inner() -> tuple[str, ...]:
        return (*answers.of("q", "outer", outer, ()), "inner")[:1]

    def outer() -> tuple[str, ...]:
        found = answers.of("q", "inner", inner, ())
        if breaks:
            raise RecursionError
        return ("outer", *found)[:1]

    with pytest.raises(RecursionError):
        answers.of("q", "outer", outer, ())
    breaks.clear()
    assert answers.of("q", "inner", inner, ()) == ("outer",)


def test_a_base_that_is_found_through_a_class_that_derives_from_it() -> None:
    facts = parsed(
        "class A:\n    def f(self):\n        return super().g()\n"
        "class B(A, A().f()):\n    def g(self):\n        return OBJECT()\n"
    )
    derived = next(node for node in facts.source.tree.body if getattr(node, "name", "") == "B")
    assert isinstance(derived, ast.ClassDef)
    inside, outside = Code().bases(Class(facts, derived))
    assert [one.node.name for one in inside] == ["A"]
    assert outside == (None,)


def test_work_is_counted_and_limited() -> None:
    facts = parsed("a = 1\nb = a\nc = b\nc\n")
    code = Code()
    read = next(node for node in ast.walk(facts.source.tree) if isinstance(node, ast.Expr)).value
    with pytest.raises(TooMuchError), code.limited(2):
        code.origins(facts, read)
    with code.limited(10):
        (found,) = code.origins(facts, read)
    assert isinstance(found.node, ast.Constant)


def test_the_bases_of_a_class_are_asked_again_where_an_error_broke_the_answer_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = parsed("class A: ...\nclass B(A): ...\n")
    last = facts.source.tree.body[1]
    assert isinstance(last, ast.ClassDef)
    cls = Class(facts, last)
    code = Code()
    with monkeypatch.context() as patched:
        patched.setattr(Code, "origins", failing)
        with pytest.raises(RecursionError):
            code.bases(cls)
    assert [base.node.name for base in code.bases(cls)[0]] == ["A"]


def failing(*_: object) -> None:
    raise RecursionError

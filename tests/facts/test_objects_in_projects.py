"""Where objects go through the files of a project."""

from __future__ import annotations

import ast
from pathlib import Path
from time import process_time

import pytest

from fsdp_migrate.facts.objects import Nature
from tests.facts.following import check, check_tree, followed, others

MODULES = {
    "a function that is imported": {
        "main.py": "from tools import use, other\nuse(OBJECT())\nother(1)\n",
        "tools.py": "def use(m):\n    m.eval()  # here\ndef other(m):\n    m.eval()\n",
    },
    "a module": {
        "main.py": "import tools\ntools.use(OBJECT())\n",
        "tools.py": "def use(m):\n    m.eval()  # here\n",
    },
    "another name": {
        "main.py": "from tools import use as apply\napply(OBJECT())\n",
        "tools.py": "def use(m):\n    m.eval()  # here\n",
    },
    "a package that passes names on": {
        "main.py": "from lib import use\nuse(OBJECT())\n",
        "lib/__init__.py": "from .tools import use\n",
        "lib/tools.py": "def use(m):\n    m.eval()  # here\n",
    },
    "either of two modules": {
        "main.py": "try:\n    from one import use\nexcept ImportError:\n    from two import use\nuse(OBJECT())\n",
        "one.py": "def use(m):\n    m.eval()  # here\n",
        "two.py": "def use(m):\n    m.eval()  # here\n",
    },
    "callers elsewhere": {
        "main.py": "def build():\n    return OBJECT()\n",
        "train.py": "from main import build\nmodel = build()\nmodel.eval()  # here\nother().eval()\n",
        "deep/inner.py": "import main\nmain.build().eval()  # here\n",
    },
    "callers of either import": {
        "main.py": "def build():\n    return OBJECT()\n",
        "train.py": (
            "try:\n    from main import build\nexcept Exception:\n    from .main import build\nbuild().eval()  # here\n"
        ),
    },
    "a name of a module": {
        "main.py": "model = OBJECT()\n",
        "train.py": "from main import model\nmodel.eval()  # here\n",
        "other.py": "import main\nmain.model.eval()  # here\n",
        "unrelated.py": "from elsewhere import model\nmodel.eval()\n",
    },
    "an attribute of a class": {
        "main.py": "from trainer import Trainer\nt = Trainer(OBJECT(), 1)\nt.model.train()  # here\n",
        "trainer.py": """\
            class Trainer:
                def __init__(self, model, other):
                    self.model = model
                    self.other = other
                def run(self):
                    self.model.eval()  # here
                    self.other.eval()
            """,
        "other.py": "class Other:\n    def run(self):\n        self.model.eval()\n",
        "report.py": "def show(t):\n    t.model.eval()\nshow(1)\n",
        "plots.py": (
            "from trainer import Trainer\ndef plot(t: Trainer):\n    t.model.eval()  # here\n    t.other.eval()\n"
        ),
    },
    "classes that derive from one another": {
        "main.py": """\
            from base import Base
            class Trainer(Base):
                def setup(self):
                    self.model = OBJECT()
            """,
        "base.py": "class Base:\n    def run(self):\n        self.model.eval()  # here\n",
        "special.py": (
            "import main\nclass Special(main.Trainer):\n    def go(self):\n        self.model.train()  # here\n"
        ),
    },
    "the constructor of a base elsewhere": {
        "main.py": """\
            from base import Base
            class Trainer(Base):
                def __init__(self, model):
                    super().__init__(model)
            Trainer(OBJECT())
            """,
        "base.py": """\
            class Base:
                def __init__(self, model):
                    self.model = model
                    self.model.eval()  # here
            """,
    },
    "methods of objects": {
        "main.py": """\
            from saver import Saver, Other
            class Trainer:
                def __init__(self):
                    self.saver = Saver()
                def run(self):
                    self.saver.save(OBJECT())
            """,
        "saver.py": """\
            class Saver:
                def save(self, m):
                    m.state_dict()  # here
            class Other:
                def save(self, m):
                    m.state_dict()
            """,
    },
    "methods that give it": {
        "main.py": """\
            class Trainer:
                def get(self):
                    return OBJECT()
            """,
        "train.py": "from main import Trainer\nTrainer().get().eval()  # here\nother.get().eval()\n",
    },
    "modules that import one another": {
        "main.py": "from other import use\ndef build():\n    return OBJECT()\nuse(1)\n",
        "other.py": "import main\ndef use(n):\n    main.build().eval()  # here\n    n.eval()\n",
    },
    "a receiver of an unknown class": {
        "main.py": """\
            class Trainer:
                def __init__(self):
                    self.model = OBJECT()
            register(Trainer)
            """,
        "callback.py": "def on_end(trainer):\n    trainer.model.eval()  # here\n",
    },
    "a receiver that can only be of another class": {
        "main.py": """\
            class Trainer:
                def __init__(self):
                    self.model = OBJECT()
            t = Trainer()
            """,
        "callback.py": "def on_end(trainer):\n    trainer.model.eval()\n",
    },
    "a file that cannot be parsed": {
        "main.py": "def build():  # lost\n    return OBJECT()\n",
        "bad.py": "from main import build\nbuild(\n",
    },
}


@pytest.mark.parametrize("tree", MODULES.values(), ids=MODULES.keys())
def test_an_object_is_followed_through_modules(tree: dict[str, str], tmp_path: Path) -> None:
    check_tree(tmp_path, tree)


def test_arguments_of_other_modules_are_others(tmp_path: Path) -> None:
    tree = {
        "main.py": "from tools import use\nuse(OBJECT())\n",
        "other.py": "from tools import use\nuse(plain())\n",
        "tools.py": "def use(m):\n    m.eval()  # here\n",
    }
    assert others(check_tree(tmp_path, tree), 2) == ["plain()"]


def test_two_objects_in_one_variable() -> None:
    found = check(
        """
        if a:
            model = OBJECT()
        else:
            model = OBJECT()
        model.eval()  # here
        """
    )
    assert others(found, 6) == []


def test_what_a_test_of_the_class_tells() -> None:
    def is_thing(_facts: object, node: ast.expr) -> bool:
        return ast.unparse(node) == "Thing"

    def is_other(_facts: object, node: ast.expr) -> bool:
        return ast.unparse(node) == "Other"

    def is_base(_facts: object, node: ast.expr) -> bool:
        return ast.unparse(node) == "Base"

    found = check(
        """
        model = OBJECT() if a else plain()
        if isinstance(model, Thing):  # here
            model.eval()  # here
        else:
            model.eval()
        if isinstance(model, Other):  # here
            model.eval()
        if not isinstance(model, (Base, Third)):  # here
            model.eval()
        if isinstance(model, (Thing, Other)):  # here
            model.eval()  # here
        if type(model) is not Thing:  # here
            model.eval()
        """,
        Nature(is_thing, is_base, is_other),
    )
    assert others(found, 4) == []
    assert others(found, 12) == ["plain()"]


def test_methods_and_functions_that_return_the_object() -> None:
    nature = Nature(methods=frozenset({"eval"}), functions=frozenset({"torch.compile"}))
    check(
        """
        import torch
        model = OBJECT().eval()  # here
        model.one()  # here
        compiled = torch.compile(model)  # here
        compiled.two()  # here
        model.train().three()  # here
        torch.relu(model).four()  # here
        """,
        nature,
    )


def test_what_is_called_to_make_objects() -> None:
    found = followed("model = OBJECT()\n")
    assert found.made == ()


def test_a_long_trainer_is_followed_quickly() -> None:
    steps = "".join(
        f"        if step % {n + 2} == 0:\n            self.model.step_{n}(batch)\n"
        f"        loss_{n} = self.model(batch)\n        model = self.model\n        model.log(loss_{n})\n"
        for n in range(1000)
    )
    text = (
        "class Trainer:\n    def __init__(self):\n        self.model = OBJECT()\n    def run(self, batch, step):\n"
        + steps
    )
    assert len(text.splitlines()) > 5000
    start = process_time()
    found = followed(text, budget=50_000)
    assert process_time() - start < 20
    assert len(found.references) == 3000
    assert found.escapes == ()


def test_many_names_for_one_object_end() -> None:
    text = "a = OBJECT()\nwhile True:\n" + "".join(f"    b{n} = a\n    a = b{n}\n" for n in range(50)) + "    a.use()\n"
    assert len(followed(text).references) == 1


def test_containers_in_containers_end() -> None:
    found = followed("def f():\n    x = OBJECT()\n    while True:\n        x = [x]\n")
    assert [one.reason for one in found.escapes] == ["it is kept in containers within containers"]


def test_a_function_behind_a_star_among_others_that_are_not_known(tmp_path: Path) -> None:
    tree = {
        "main.py": "from elsewhere import *\nfrom tools import *\n\nuse(OBJECT())\n",
        "tools/__init__.py": "from .own import use\nfrom .others import *\nfrom missing import *\n",
        "tools/own.py": "def use(it):\n    it.seen()  # here\n",
        "tools/others.py": "import os\n",
    }
    check_tree(tmp_path, tree)


def test_a_function_that_two_stars_may_bring_is_not_known(tmp_path: Path) -> None:
    tree = {
        "main.py": "from missing import *\nfrom one import *\n\nuse(OBJECT())  # here\n",
        "one.py": "def other(it):\n    it.seen()\n",
    }
    check_tree(tmp_path, tree)

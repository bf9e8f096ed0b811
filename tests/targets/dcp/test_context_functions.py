"""Functions that give their callers a context with a type: the blocks go, in all files, and the function with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate import runner
from fsdp_migrate.findings import Applicability
from fsdp_migrate.report import Plan
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.settings import Layer
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.nearest import ConfigFiles
from tests.targets.dcp.programs import IMPORTS, TORCH, only, rewritten

FULL, SHARDED = "StateDictType.FULL_STATE_DICT", "StateDictType.SHARDED_STATE_DICT"
SAVE = """\
def save(model):
    with _typed(model):
        return model.state_dict()
"""
RETURNED = f"def _typed(model):\n    return FSDP.state_dict_type(model, {SHARDED})\n\n\n"
NAMED = f"def _typed(model):\n    context = FSDP.state_dict_type(model, {SHARDED})\n    return context\n\n\n"
YIELDED = f"""\
@contextlib.contextmanager
def _typed(model):
    '''All shards.'''
    with FSDP.state_dict_type(model, {SHARDED}):
        yield


"""


@pytest.mark.parametrize("function", [RETURNED, NAMED, YIELDED])
def test_the_block_of_a_caller_goes_and_then_the_function(function: str) -> None:
    text = f"import contextlib\n{IMPORTS}{function}{SAVE}"
    assert only(text).applicability is Applicability.SAFE
    after = rewritten(text)
    assert after.endswith("\n\n\ndef save(model):\n    return get_model_state_dict(model)\n")
    assert "_typed" not in after
    assert "StateDictType" not in after
    assert ("contextlib" in after) == (function is not YIELDED)


TYPED = """\
def _typed(trainer, kind=StateDictType.SHARDED_STATE_DICT, *, config=None):
    return FSDP.state_dict_type(trainer.model, kind, config)


"""


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("trainer", None),
        (f"trainer, {FULL}", "full_state_dict=True"),
        (f"kind={FULL}, trainer=trainer", "full_state_dict=True"),
        (f"trainer, {FULL}, config=FullStateDictConfig(True, True)", "full_state_dict=True, cpu_offload=True"),
        ("trainer, config=ShardedStateDictConfig(offload_to_cpu=True)", "cpu_offload=True"),
    ],
)
def test_what_the_type_is_depends_on_the_call_and_the_defaults(arguments: str, options: str | None) -> None:
    block = f"    with _typed({arguments}):\n        state = trainer.model.state_dict()\n"
    body = f"{block}    if rank == 0:\n        print(state)\n"
    text = f"{IMPORTS}{TYPED}def save(trainer, rank):\n{body}"
    assert only(text).applicability is Applicability.SAFE
    after = rewritten(text)
    wanted = f", options=StateDictOptions({options}))" if options else ")"
    shared = f"    options = StateDictOptions({options})\n"
    assert f"get_model_state_dict(trainer.model{wanted}\n" in after or shared in after


def test_a_field_of_a_config_may_be_a_parameter() -> None:
    config = "FullStateDictConfig(offload_to_cpu=True, rank0_only=alone)"
    function = f"def _typed(model, alone=True):\n    return FSDP.state_dict_type(model, {FULL}, {config})\n\n\n"
    body = "    with _typed(model{}):\n        state = model.state_dict()\n    if rank == 0:\n        print(state)\n"
    text = f"{IMPORTS}{function}def save(model, rank):\n{body}"
    assert "full_state_dict=True, cpu_offload=True" in rewritten(text.format(""))
    assert "CPU of every rank" in (only(text.format(", alone=False")).reason or "")
    assert "`rank` in" in (only(text.format(", rank")).reason or "")


def test_methods_give_contexts_for_their_own_model() -> None:
    text = (
        IMPORTS
        + f"""\
class Trainer:
    def _typed(self):
        return FSDP.state_dict_type(self.model, {SHARDED})

    def save(self):
        with torch.no_grad(), self._typed():
            return self.model.state_dict()

    def load(self, state):
        with self._typed():
            self.model.load_state_dict(state)
"""
    )
    after = rewritten(text)
    assert (
        after.partition("class Trainer:\n")[2]
        == """\
    def save(self):
        with torch.no_grad():
            return get_model_state_dict(self.model)

    def load(self, state):
        set_model_state_dict(self.model, state)
"""
    )


def test_comments_of_the_function_go_with_it() -> None:
    text = IMPORTS + RETURNED.replace("    return", "    # all '#'\n    return") + SAVE
    assert rewritten(text).endswith("\n\n\ndef save(model):\n    return get_model_state_dict(model)\n")


def test_a_public_function_stays_without_its_callers_where_nobody_knows_who_else_there_is() -> None:
    after = rewritten(IMPORTS + (RETURNED + SAVE).replace("_typed", "typed"))
    assert "    return get_model_state_dict(model)\n" in after
    assert f"    return FSDP.state_dict_type(model, {SHARDED})\n" in after
    assert "no visible code calls `typed`" in (only(after).reason or "")


@pytest.mark.parametrize(
    ("function", "caller", "reason"),
    [
        (RETURNED, "", "no visible code calls `_typed`"),
        (RETURNED, SAVE.replace("model.state_dict()", "model.save_pretrained('x')"), "which stays: "),
        (RETURNED, f"{SAVE}\nother(_typed)\n", "uses `_typed` otherwise than by a call"),
        (RETURNED, f"{SAVE}\ndef _typed(model):\n    return model\n", "is defined in several ways"),
        (
            RETURNED,
            SAVE.replace("with _typed(model)", "contexts = [_typed(model)]\n    with contexts[0]"),
            "which stays: ",
        ),
        (RETURNED, SAVE.replace("_typed(model)", "_typed(make())"), "which model `model` is there is not visible"),
        (RETURNED, SAVE.replace("_typed(model)", "_typed(*model)"), "which stays: "),
        (RETURNED.replace("    return", "    model = model.module\n    return"), SAVE, "is there is not visible"),
        (RETURNED.replace(SHARDED, "kind").replace("model)", "model, kind)"), SAVE, "which stays: "),
        (
            RETURNED.replace(SHARDED, "kind").replace("(model):", "(model, kind):"),
            SAVE.replace("(model):\n    w", "(model, kind):\n    w").replace("_typed(model)", "_typed(model, kind)"),
            "the type is chosen at run time, so choose: `get_model_state_dict(model, options=...)` with",
        ),
        (RETURNED.replace("    return", "    print(model)\n    return"), SAVE, "returns the context to its callers"),
        (YIELDED.replace("yield", "yield model"), SAVE, "sets the type for its callers"),
        (YIELDED.replace("        yield", "        yield\n    print(model)"), SAVE, "sets the type for its callers"),
    ],
)
def test_it_stays_with_all_its_callers_where_one_of_them_does(function: str, caller: str, reason: str) -> None:
    text = f"import contextlib\n{IMPORTS}{function}{caller}"
    finding = only(text)
    assert finding.applicability is Applicability.MANUAL
    assert reason in (finding.reason or ""), finding.reason
    assert rewritten(text, unsafe=True) == text


# --- several files -----------------------------------------------------------------------------------------------

CONTEXTS = f"""\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def typed(model):
    return FSDP.state_dict_type(model, {SHARDED})
"""
CALLER = """\
from contexts import typed


def state(model):
    with typed(model):
        return model.state_dict()
"""
NEW = """\
from torch.distributed.checkpoint.state_dict import get_model_state_dict


def state(model):
    return get_model_state_dict(model)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text("[project]\nname = 'x'\n")


def run(texts: dict[str, str], paths: tuple[str, ...] = (".",), *, rewrite: bool = True, unsafe: bool = False) -> Plan:
    for path, text in texts.items():
        Path(path).write_text(text)
    options = Layer(torch=TorchRange.parse(TORCH), target="dcp", unsafe_fixes=unsafe)
    configuration, files = Configuration(options, ConfigFiles(isolated=True)), filesystem.discover(paths)
    if rewrite:
        return runner.rewrite(files, configuration, write=True)
    return runner.lint(files, configuration)


def test_callers_in_other_files_change_together_and_the_function_goes() -> None:
    texts = {"contexts.py": CONTEXTS, "one.py": CALLER, "two.py": CALLER.replace("state(", "shards(")}
    (finding,) = run(texts, rewrite=False).findings
    assert (finding.path, finding.code, finding.applicability) == ("contexts.py", "FSDP210", Applicability.SAFE)
    plan = run(texts)
    assert [finding.path for finding in plan.fixed] == ["contexts.py"]
    assert plan.findings == ()
    assert Path("contexts.py").read_text() == ""
    assert Path("one.py").read_text() == NEW
    assert Path("two.py").read_text() == NEW.replace("state(model):", "shards(model):")


def test_a_file_outside_of_the_run_keeps_all_as_it_is() -> None:
    texts = {"contexts.py": CONTEXTS, "one.py": CALLER, "two.py": CALLER}
    plan = run(texts, ("contexts.py", "one.py"))
    assert "it also changes two.py, which this run does not include" in (plan.findings[0].reason or "")
    assert {path: Path(path).read_text() for path in texts} == texts


def test_one_caller_that_stays_keeps_them_all() -> None:
    texts = {"contexts.py": CONTEXTS, "one.py": CALLER, "two.py": CALLER.replace("state_dict()", "save_pretrained()")}
    plan = run(texts, unsafe=True)
    assert "`typed` gives the context to two.py:5, which stays: " in (plan.findings[0].reason or "")
    assert {path: Path(path).read_text() for path in texts} == texts


def test_the_worst_grade_counts_and_names_its_place() -> None:
    load = CALLER.replace(
        "return model.state_dict()", "optim.load_state_dict(FSDP.optim_state_dict_to_load(model, optim, s))"
    )
    load = load.replace("(model):\n    w", "(model, optim, s):\n    w")
    load = f"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n{load}"
    texts = {"contexts.py": CONTEXTS, "one.py": CALLER, "two.py": load}
    (finding,) = run(texts).findings
    assert finding.applicability is Applicability.UNSAFE
    assert (finding.reason or "").startswith("two.py:6: an optimizer that has not stepped")
    assert run({}, unsafe=True).findings == ()
    assert "set_optimizer_state_dict(model, optim, optim_state_dict=s)" in Path("two.py").read_text()


@pytest.mark.parametrize("more", ["from contexts import typed\n", "import contexts\n\nNAME = 'contexts.typed'\n"])
def test_a_function_that_others_still_name_stays(more: str) -> None:
    run({"contexts.py": CONTEXTS, "one.py": CALLER, "three.py": more})
    assert Path("one.py").read_text() == NEW
    assert Path("contexts.py").read_text() == CONTEXTS


def test_a_use_through_the_module_keeps_its_import_where_that_has_others() -> None:
    text = CALLER.replace("from contexts import typed", "import contexts").replace("typed(", "contexts.typed(")
    run({"contexts.py": f"{CONTEXTS}\n\nOTHER = 1\n", "one.py": f"{text}\n\nprint(contexts.OTHER)\n"})
    assert "import contexts\n" in Path("one.py").read_text()
    assert "return get_model_state_dict(model)\n" in Path("one.py").read_text()
    assert Path("contexts.py").read_text() == "OTHER = 1\n"


def test_each_folder_may_have_a_target_of_its_own() -> None:
    Path("pyproject.toml").unlink()
    for folder, target in (("old", "dcp"), ("new", "fsdp2")):
        Path(folder).mkdir()
        Path(folder, "pyproject.toml").write_text(f'[tool.fsdp-migrate]\ntarget = "{target}"\ntorch = ">=2.13"\n')
        Path(folder, "contexts.py").write_text(CONTEXTS)
        Path(folder, "one.py").write_text(CALLER)
    Path("new/model.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\nmodel = FSDP(net)\n"
    )
    plan = runner.rewrite(filesystem.discover(["."]), Configuration(Layer(), ConfigFiles()), write=True)
    assert Path("old/one.py").read_text() == NEW
    assert Path("new/one.py").read_text() == CALLER
    assert {(one.path, one.code) for one in plan.fixed} == {("old/contexts.py", "FSDP210"), ("new/model.py", "FSDP900")}

"""Code behind the file's own version check is judged for the releases that get there."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent

import pytest
from packaging.version import Version

from fsdp_migrate.findings import Applicability, Finding, Severity
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.rules import RULES
from fsdp_migrate.rules.card import Example, RuleCard
from fsdp_migrate.torch_api import DEFAULT_RANGE, RELEASES, TorchRange
from fsdp_migrate.torch_api.words import span_of
from fsdp_migrate.workspace.settings import Settings
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

SINCE = ">=1.13"
IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
SUPPORTED = f"the replacement needs torch>=2.1, but torch{SINCE} is supported"
OLD = "FSDP.full_optim_state_dict(model, optim)"


def saved(indent: str, *, imported: bool = True) -> str:
    """What `return FSDP.full_optim_state_dict(model, optim)` becomes, with an import of its own or without one."""
    lines = (
        *(["from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType"] if imported else []),
        "with FSDP.state_dict_type(",
        "    model,",
        "    StateDictType.FULL_STATE_DICT,",
        "    optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),",
        "):",
        "    return FSDP.optim_state_dict(model, optim)",
    )
    return "".join(f"{indent}{line}\n" for line in lines)


@pytest.mark.parametrize(
    "check",
    [
        'if torch.__version__ >= "2.1":',
        'if not torch.__version__ < "2.1":',
        'if version.parse(torch.__version__) >= version.parse("2.1.0") and optim is not None:',
        'if is_torch_version(">=", "2.1.0"):',
        "if _TORCH_GREATER_EQUAL_2_1:",
        "if NEW:",
        "if is_new():",
        'if torch.__version__ < "2.1":\n        pass\n    else:',
        'if torch.__version__ < "2.0":\n        pass\n    elif torch.__version__ < "2.1":\n        pass\n    else:',
    ],
)
def test_an_arm_that_only_new_releases_run_is_rewritten_with_imports_of_its_own(check: str) -> None:
    head = (
        "import torch\nfrom accelerate.utils import is_torch_version\n"
        "from lightning.imports import _TORCH_GREATER_EQUAL_2_1\nfrom packaging import version\n"
        f'{IMPORT}\nNEW = version.parse(torch.__version__) >= version.parse("2.1")\n\n'
        "def is_new():\n    return NEW\n\ndef save(model, optim):\n"
    )
    before = f"{head}    {check}\n        return {OLD}\n"
    check_transformed(before, f"{head}    {check}\n{saved('        ')}", "FSDP101", torch=SINCE)


@pytest.mark.parametrize(
    "exit_below",
    [
        "return None",
        "raise RuntimeError",
        "sys.exit(1)",
    ],
)
def test_code_behind_an_exit_below_a_release_is_rewritten(exit_below: str) -> None:
    head = (
        f'import sys\nimport torch\n{IMPORT}\ndef save(model, optim):\n    if torch.__version__ < "2.1":\n'
        f"        {exit_below}\n"
    )
    check_transformed(f"{head}    return {OLD}\n", f"{head}{saved('    ')}", "FSDP101", torch=SINCE)


def test_a_module_that_fails_below_a_release_is_rewritten_as_for_newer_ones() -> None:
    head = 'import torch\nif torch.__version__ < "2.1":\n    raise ImportError("too old")\n'
    check_transformed(
        f"{head}{IMPORT}\ndef save(model, optim):\n    return {OLD}\n",
        head
        + "from torch.distributed.fsdp import (\n    FullOptimStateDictConfig,\n"
        + "    FullyShardedDataParallel as FSDP,\n    StateDictType,\n)\n\ndef save(model, optim):\n"
        + saved("    ", imported=False),
        "FSDP101",
        torch=SINCE,
    )


def test_a_class_in_an_arm_uses_the_import_of_that_arm() -> None:
    head = "import torch\n\nif torch.__version__ >= '2.1':\n"
    body = "\n    class Saver:\n        def save(self, model, optim):\n"
    check_transformed(
        f"{head}    {IMPORT}{body}            return {OLD}\n",
        f"{head}    from torch.distributed.fsdp import (\n        FullOptimStateDictConfig,\n"
        f"        FullyShardedDataParallel as FSDP,\n        StateDictType,\n    )\n{body}"
        + saved("            ", imported=False),
        "FSDP101",
        torch=SINCE,
    )


def test_of_imports_in_both_arms_the_one_of_new_releases_brings_the_names() -> None:
    other = "from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as FSDP\n"
    head = "import torch\n\nif torch.__version__ >= '2.1':\n"
    tail = f"else:\n    {other}\ndef save(model, optim):\n    if torch.__version__ >= '2.1':\n"
    check_transformed(
        f"{head}    {IMPORT}{tail}        return {OLD}\n",
        f"{head}    from torch.distributed.fsdp import (\n        FullOptimStateDictConfig,\n"
        f"        FullyShardedDataParallel as FSDP,\n        StateDictType,\n    )\n{tail}"
        + saved("        ", imported=False),
        "FSDP101",
        torch=SINCE,
    )


@pytest.mark.parametrize(
    "imported",
    [
        "if torch.__version__ >= '2.1':\n    {}",
        "if torch.__version__ < '2.0':\n    pass\nelse:\n    {}",
        "try:\n    {}except ImportError:\n    pass\n",
    ],
)
def test_names_that_a_checked_import_of_the_module_brings_are_used(imported: str) -> None:
    names = "from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType\n"
    head = (
        f"import torch\n{IMPORT}\n{imported.format(names)}\n"
        "def save(model, optim):\n    if torch.__version__ >= '2.1':\n"
    )
    check_transformed(f"{head}        return {OLD}\n", head + saved("        ", imported=False), "FSDP101", torch=SINCE)


@pytest.mark.parametrize(
    "imported",
    [
        "if torch.__version__ >= '2.2':\n    {}",
        "if torch.__version__ >= '2.1' and flag:\n    {}",
        "try:\n    import apex\n    {}except ImportError:\n    pass\n",
        "try:\n    prepare()\n    {}except Exception:\n    pass\n",
        "for _ in range(n):\n    {}",
    ],
)
def test_names_that_an_import_may_not_bring_are_imported_again(imported: str) -> None:
    names = "from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType\n"
    head = (
        f"import torch\n{IMPORT}\n{imported.format(names)}\n"
        "def save(model, optim):\n    if torch.__version__ >= '2.1':\n"
    )
    new = saved("        ")
    for name in ("FullOptimStateDictConfig", "StateDictType"):
        new = new.replace(name, f"FSDP{name}")
    new = new.replace(
        "import FSDPFullOptimStateDictConfig, FSDPStateDictType",
        "import FullOptimStateDictConfig as FSDPFullOptimStateDictConfig, StateDictType as FSDPStateDictType",
    )
    check_transformed(f"{head}        return {OLD}\n", head + new, "FSDP101", torch=SINCE)


def test_an_arm_on_the_line_of_its_check_gets_lines_of_its_own() -> None:
    head = f"import torch\n{IMPORT}\ndef save(model, optim):\n    if torch.__version__ >= '2.1':"
    tail = "    else: return None\n"
    check_transformed(f"{head} return {OLD}\n{tail}", f"{head}\n{saved('        ')}{tail}", "FSDP101", torch=SINCE)


def test_a_chain_reaches_what_the_releases_of_the_arm_have() -> None:
    head = (
        "import torch\nimport torch.distributed.fsdp as fsdp\n\ndef save(model, optim):\n"
        "    if torch.__version__ >= '2.1':\n"
    )
    new = saved("        ", imported=False)
    new = new.replace("StateDictType.", "fsdp.StateDictType.").replace("=FullOptim", "=fsdp.FullOptim")
    new = new.replace("FSDP.", "fsdp.FullyShardedDataParallel.")
    before = f"{head}        return fsdp.FullyShardedDataParallel.full_optim_state_dict(model, optim)\n"
    check_transformed(before, head + new, "FSDP101", torch=SINCE)


def with_floors() -> Iterator[object]:
    """The examples of all fixes that need a release of torch."""
    for card in (rule.card for rule in RULES):
        for number, example in enumerate(card.flags):
            # The companions of FlatParameter came a release later than the class.
            companion = card.code == "FSDP303" and "FlatParamHandle" in example.before
            if card.floor and example.after is not None and example.torch == DEFAULT_RANGE and not companion:
                yield pytest.param(card, example, id=f"{card.name}-{number}")


@pytest.mark.parametrize(("card", "example"), list(with_floors()))
def test_each_fix_is_made_for_new_releases_and_nothing_for_old_ones_is_touched(
    card: RuleCard, example: Example
) -> None:
    assert card.floor is not None
    older = [release for release in RELEASES if release < Version(card.floor)][-1]
    body = indent(example.before, "    ")
    before = (
        f"import torch\n\ndef new():\n    if torch.__version__ < '{card.floor}':\n        return\n{body}\n"
        f"def old():\n    if torch.__version__ >= '{card.floor}':\n        return\n{body}"
    )
    settings = Settings(torch=TorchRange.parse(f">={older}"), select=(card.code,), hints=True, unsafe_fixes=True)
    result = rewrite_bytes(before.encode(), "example.py", settings)
    new, old = result.raw.decode().split("def old():")
    assert old == before.split("def old():")[1]
    assert new != before.split("def old():")[0]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            f"def helper(model, optim):\n    return {OLD}\n\n"
            "def save(model, optim):\n    if torch.__version__ >= '2.1':\n        return helper(model, optim)\n",
            id="only the call of the function is checked",
        ),
        pytest.param(
            "import torchvision\n\ndef save(model, optim):\n"
            f"    if torchvision.__version__ >= '2.1':\n        return {OLD}\n",
            id="the check is not about torch",
        ),
        pytest.param(
            f"def save(model, optim):\n    if torch.__version__ >= '2.1' or optim.new:\n        return {OLD}\n",
            id="something else lets older releases in",
        ),
        pytest.param(
            "NEW = torch.__version__ >= '2.1'\n\ndef force():\n    global NEW\n    NEW = True\n\n"
            f"def save(model, optim):\n    if NEW:\n        return {OLD}\n",
            id="the flag is set in a function",
        ),
        pytest.param(
            "import os\n\nNEW = torch.__version__ >= '2.1'\nNEW |= 'FORCE' in os.environ\n\n"
            f"def save(model, optim):\n    if NEW:\n        return {OLD}\n",
            id="the flag is widened",
        ),
        pytest.param(
            "import flags\n\nflags.TORCH_GREATER_EQUAL_2_1 = True\n\n"
            f"def save(model, optim):\n    if flags.TORCH_GREATER_EQUAL_2_1:\n        return {OLD}\n",
            id="the flag of another module is set",
        ),
        pytest.param(
            f"def save(model, optim, new=torch.__version__ >= '2.1'):\n    if new:\n        return {OLD}\n",
            id="the flag is a parameter",
        ),
        pytest.param(
            "class Saver:\n    TORCH_GREATER_EQUAL_2_1 = torch.__version__ >= '2.1'\n\n"
            f"    def save(self, model, optim):\n        if self.TORCH_GREATER_EQUAL_2_1:\n            return {OLD}\n",
            id="the flag belongs to an object",
        ),
        pytest.param(
            "def save(model, optim):\n    new = True\n    for _ in range(2):\n        if new:\n"
            f"            state = {OLD}\n        new = torch.__version__ >= '2.1'\n    return state\n",
            id="the flag means something else in the first turn of the loop",
        ),
        pytest.param(
            "def save(model, optim):\n    try:\n        if torch.__version__ < '2.1':\n            raise ValueError\n"
            f"    except ValueError:\n        pass\n    return {OLD}\n",
            id="the exit is caught",
        ),
        pytest.param(
            "def save(model, optim):\n    with quietly():\n        if torch.__version__ < '2.1':\n"
            f"            raise ValueError\n    return {OLD}\n",
            id="a context manager may stop the exit",
        ),
        pytest.param(
            f"def save(model, optim):\n    while torch.__version__ < '2.1':\n        break\n    return {OLD}\n",
            id="nothing keeps older releases out",
        ),
    ],
)
def test_what_older_releases_may_run_too_is_left_as_it_is(program: str) -> None:
    check_manual(f"import torch\n{IMPORT}\n{program}", "FSDP101", SUPPORTED, torch=SINCE)


def test_a_check_for_a_release_below_the_floor_is_not_enough() -> None:
    program = f"{IMPORT}\ndef save(model, optim):\n    if hasattr(FSDP, 'optim_state_dict'):\n        return {OLD}\n"
    reason = "the replacement needs torch>=2.1, but this code also runs on torch 2.0"
    check_manual(program, "FSDP101", reason, torch=SINCE)


@pytest.mark.parametrize(
    ("releases", "words"),
    [
        ("2.1.0", "2.1.0"),
        ("2.1.0 2.1.1 2.1.2", "2.1"),
        ("2.1.1 2.1.2", "2.1.1 to 2.1.2"),
        ("1.13.1", "1.13.1"),
        ("1.13.1 2.0.0 2.0.1", "1.13.1 to 2.0"),
        ("1.13.0 1.13.1 2.0.0", "1.13 to 2.0.0"),
    ],
)
def test_releases_are_told_by_their_minors_where_these_are_whole(releases: str, words: str) -> None:
    assert span_of([Version(release) for release in releases.split()]) == words


def graded(text: str, select: str, torch: str = SINCE) -> list[tuple[int, Severity, Applicability]]:
    """Where the findings are, and what they are."""
    return [(one.line, one.severity, one.applicability) for one in lint(text, select, torch)]


def arms(new: str, old: str, release: str, imports: str = IMPORT) -> str:
    """A function with `new` on line 4 for torch from `release` on, and `old` on line 6 for others; one import line."""
    return (
        f"import torch\n{imports}def f(model, optim, x):\n"
        f"    if torch.__version__ >= '{release}': {new}\n    else:\n        {old}\n"
    )


def reason_of(findings: tuple[Finding, ...], line: int) -> str | None:
    """Why the finding of a line is not safe."""
    (found,) = (finding for finding in findings if finding.line == line)
    return found.reason


def test_the_old_arm_of_a_check_is_a_hint_that_names_its_releases() -> None:
    text = arms("pass", f"return {OLD}", "2.1")
    assert graded(text, "FSDP101") == [(6, Severity.HINT, Applicability.MANUAL)]
    reason = reason_of(lint(text, "FSDP101", SINCE), 6)
    assert reason == "the replacement needs torch>=2.1, but this code only runs on torch 1.13 to 2.0"


def test_without_a_check_the_same_call_stays_deprecated() -> None:
    text = f"{IMPORT}def f(model, optim):\n    return {OLD}\n"
    assert graded(text, "FSDP101") == [(2 + 1, Severity.DEPRECATED, Applicability.MANUAL)]
    assert graded(text, "FSDP101", ">=1.13,<2.1") == [(2 + 1, Severity.DEPRECATED, Applicability.MANUAL)]


def test_nothing_is_deprecated_before_the_release_that_warns() -> None:
    assert graded(arms("pass", f"return {OLD}", "2.0"), "FSDP101") == [(6, Severity.HINT, Applicability.MANUAL)]


@pytest.mark.parametrize(
    ("select", "release", "call", "found"),
    [
        ("FSDP108", "2.1", "FSDP.optim_state_dict(model, optim, dist.group.WORLD)", {4: "breaks safe", 6: "hint safe"}),
        ("FSDP109", "2.1", "FSDP.optim_state_dict_post_hook(model, optim, x)", {4: "breaks safe", 6: "hint manual"}),
        ("FSDP301", "2.0", "isinstance(x, torch.distributed.fsdp.FlatParameter)", {4: "changes manual"}),
        ("FSDP302", "2.1", "type(x) is torch.distributed.fsdp.FlatParameter", {4: "changes manual"}),
        ("FSDP502", "2.1", "FSDP(model, ignored_parameters=x)", {4: "breaks safe"}),
        ("FSDP503", "2.0", "f(x)", {}),
    ],
)
def test_each_arm_is_graded_for_its_releases(select: str, release: str, call: str, found: dict[int, str]) -> None:
    start = ">=1.13" if release == "2.0" else ">=2.0"
    text = arms(call, call, release, f"import torch.distributed; {IMPORT}")
    told = {line: f"{grade.value} {applicability.value}" for line, grade, applicability in graded(text, select, start)}
    assert told == found


def test_an_argument_that_no_release_of_an_arm_takes_breaks_there() -> None:
    text = arms("pass", "FSDP(model, ignored_parameters=x)", "2.0")
    assert graded(text, "FSDP502") == [(6, Severity.BREAKS, Applicability.MANUAL)]


def test_an_argument_put_into_a_dict_for_old_releases_is_no_fault() -> None:
    check_noop(
        f"""\
        import torch
        {IMPORT.strip()}

        def build(module, frozen):
            options = {{}}
            if torch.__version__ < "2.1":
                options["ignored_parameters"] = frozen
            else:
                options["ignored_states"] = frozen
            return FSDP(module, **options)
        """,
        "FSDP502",
        torch=">=2.0",
    )


def test_a_dict_that_old_releases_unpack_as_well_keeps_its_keys() -> None:
    program = (
        f"import torch\n{IMPORT}\ndef build(module, frozen):\n    options = {{'ignored_parameters': frozen}}\n"
        "    if torch.__version__ < '2.1':\n        return FSDP(module, **options)\n"
        "    return FSDP(module, **options)\n"
    )
    check_manual(program, "FSDP502", "torch>=2.0 is supported", torch=">=2.0")


def test_a_callback_defined_outside_of_the_arm_keeps_its_parameters() -> None:
    program = """\
        import torch
        from torch.distributed._tensor import distribute_module

        def shard_input(inputs, mesh):
            return inputs

        def build(model, mesh):
            if torch.__version__ >= "2.3":
                distribute_module(model, mesh, input_fn=shard_input)
        """
    reason = "the fix also changes line 4, which runs on torch 2.1 to 2.2"
    check_manual(program, "FSDP613", reason)


def test_a_callback_defined_in_the_arm_gets_the_module() -> None:
    program = """\
        import torch
        from torch.distributed._tensor import distribute_module

        if torch.__version__ >= "2.3":
            def shard_input({}inputs, mesh):
                return inputs

            distribute_module(model, mesh, input_fn=shard_input)
        """
    check_transformed(program.format(""), program.format("module, "), "FSDP613")


def test_a_policy_that_older_releases_call_too_is_manual() -> None:
    policy = "def big(module, recurse, unwrapped_params):\n    return recurse or unwrapped_params > 9\n"
    use = "\ndef build(net):\n    if torch.__version__ >= '2.0':\n        return FSDP(net, auto_wrap_policy=big)\n"
    check_manual(f"import torch\n{IMPORT}\n{policy}{use}", "FSDP401", "needs torch>=2.0", torch=SINCE)


def test_a_policy_of_new_releases_only_is_renamed() -> None:
    program = (
        f"import torch\n{IMPORT}\nif torch.__version__ >= '2.0':\n    def big(module, recurse, {{0}}):\n"
        "        return recurse or {0} > 9\n\n    model = FSDP(net, auto_wrap_policy=big)\n"
    )
    check_transformed(program.format("unwrapped_params"), program.format("nonwrapped_numel"), "FSDP401", torch=SINCE)


def test_a_scaler_of_new_releases_only_comes_from_the_new_place() -> None:
    check_transformed(
        """\
        import torch
        import torch.distributed

        if torch.__version__ >= "2.3":
            from torch.cuda.amp import GradScaler

            scaler = GradScaler(2.0)
        else:
            scaler = torch.cuda.amp.GradScaler(2.0)
        """,
        """\
        import torch
        import torch.distributed

        if torch.__version__ >= "2.3":
            from torch.amp import GradScaler

            scaler = GradScaler("cuda", 2.0)
        else:
            scaler = torch.cuda.amp.GradScaler(2.0)
        """,
        "FSDP802",
    )


def test_a_scaler_that_older_releases_import_too_comes_from_either_place() -> None:
    check_transformed(
        """\
        import torch
        import torch.distributed
        from torch.cuda.amp import GradScaler

        def build():
            if torch.__version__ >= "2.3":
                return GradScaler(2.0)
        """,
        """\
        import torch
        import torch.distributed
        try:
            from torch.amp import GradScaler
        except ImportError:
            from torch.cuda.amp import GradScaler

        def build():
            if torch.__version__ >= "2.3":
                return GradScaler(init_scale=2.0)
        """,
        "FSDP802",
    )


def test_a_decorator_in_an_arm_is_told_the_device() -> None:
    program = """\
        import torch
        import torch.distributed

        if torch.__version__ >= "2.4":
            class Scale(torch.autograd.Function):
                @torch.{}
                def forward(ctx):
                    pass
        """
    after = program.format('amp.custom_fwd(device_type="cuda")')
    check_transformed(program.format("cuda.amp.custom_fwd"), after, "FSDP803")


def test_a_name_used_outside_of_the_arm_that_imports_it_keeps_its_spelling_there() -> None:
    program = (
        "import torch\n\ndef policy():\n    if torch.__version__ >= '1.12':\n        {}\n"
        "    return default_auto_wrap_policy\n"
    )
    check_transformed(
        program.format("from torch.distributed.fsdp.wrap import default_auto_wrap_policy"),
        program.format(
            "from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy as default_auto_wrap_policy"
        ),
        "FSDP402",
        torch=">=1.11",
    )


def test_a_collective_in_an_arm_is_renamed_and_the_other_arm_is_not() -> None:
    call = "torch.distributed.{}(model, x)"
    old, new = call.format("_all_gather_base"), call.format("all_gather_into_tensor")
    imports = "import torch.distributed\n"
    check_transformed(arms(old, old, "1.13", imports), arms(new, old, "1.13", imports), "FSDP811", torch=">=1.12")


def test_a_shared_config_gets_an_import_of_its_own_in_the_arm() -> None:
    head = (
        "import torch\nfrom torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, "
        "StateDictType\n\ndef save(model, optim):\n    config = FullStateDictConfig(rank0_only=True)\n"
        "    if torch.__version__ >= '2.1':\n"
    )
    call = "        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config{}):\n"
    tail = "            return FSDP.optim_state_dict(model, optim)\n"
    config = ", optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)"
    check_transformed(
        head + call.format("") + tail,
        f"{head}        from torch.distributed.fsdp import FullOptimStateDictConfig\n{call.format(config)}{tail}",
        "FSDP201",
        unsafe=True,
        torch=SINCE,
    )


def test_the_mesh_is_no_doubt_where_no_release_has_one() -> None:
    call = "x = FSDP.sharded_optim_state_dict(model, optim)"
    text = (
        f"import torch\n{IMPORT}def f(model, optim):\n    if torch.__version__ >= '2.2':\n        {call}\n"
        f"    elif torch.__version__ >= '2.1':\n        {call}\n"
    )
    applicable = [applicability for _, _, applicability in graded(text, "FSDP102")]
    assert applicable == [Applicability.UNSAFE, Applicability.SAFE]

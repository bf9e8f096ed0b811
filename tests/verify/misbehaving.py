"""Programs that do to their process, or observe, what the harness has to survive and must not be misled by."""

from __future__ import annotations

from tests.verify.programs import SAVE_NEW, SAVE_OLD, TRAINED, Caught

LOOK = """
    import builtins, collections, faulthandler, gc, io, logging, random, subprocess, threading, types, warnings
    from dataclasses import make_dataclass
    c10d = dist.distributed_c10d
    trial.observe("now", [
        torch.get_default_dtype(), torch.tensor(1.0).device, torch.is_grad_enabled(), torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled(), str(torch.tensor([1 / 3])),
        os.environ.get("MARK"), sys.getrecursionlimit(), logging.root.level, len(logging.root.handlers),
        gc.isenabled(), random.random(), torch.rand(1), FSDP.optim_state_dict is None, "flash" in sys.modules,
    ])
"""

# What each program does after it has looked: the other one, and the next, must see nothing of it.
CHANGES = {
    "torch-settings": """
    torch.set_default_dtype(torch.float64); torch.use_deterministic_algorithms(True); torch.set_grad_enabled(False)
    torch.autograd.set_detect_anomaly(True); torch.set_num_threads(2); torch.set_printoptions(precision=2)
    torch.manual_seed(7); random.seed(7); torch.set_default_device("meta")
""",
    "python-settings": """
    sys.setrecursionlimit(150); gc.disable(); sys.settrace(lambda *a: None); sys.excepthook = None; sys.argv.append("x")
    logging.basicConfig(level=logging.DEBUG); logging.disable(50)
""",
    "environment": """
    os.environ.clear(); os.environ["MARK"] = "x"; os.environ["TMPDIR"] = "/nowhere"; os.chdir("/")
""",
    "warnings-filters": "    warnings.filterwarnings('ignore')\n",
    "functions-of-fsdp": """
    FSDP.optim_state_dict = FSDP.state_dict_type = FSDP.forward = FSDP.__init__ = None
    FSDP.full_optim_state_dict = staticmethod(lambda *a: {})
""",
    "functions-of-torch": """
    dist.barrier = dist.destroy_process_group = dist.init_process_group = dist.get_rank = None
    dist.is_initialized = lambda: False
    c10d.destroy_process_group = c10d._new_process_group_helper = None
    torch.optim.AdamW.step = torch.nn.Module.__init__ = torch.nn.functional.cross_entropy = None
    torch.ones = torch.save = torch.Tensor.mul_ = torch.autograd.backward = time.sleep = None
""",
    "hooks-of-every-module": """
    torch.nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 2 if torch.is_tensor(o) else None)
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    register_optimizer_step_pre_hook(lambda *a: 1 / 0)
""",
    "modules": """
    sys.modules["flash"] = types.ModuleType("flash")
    sys.modules["json"] = None; del sys.modules["torch.distributed.fsdp"]
""",
    "signals": """
    faulthandler.cancel_dump_traceback_later(); faulthandler.disable(); faulthandler.unregister(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.setitimer(signal.ITIMER_REAL, 0.2)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
""",
    "streams-closed": "    sys.stdout.close(); sys.stderr.close(); sys.stdin.close()\n",
    "streams-replaced": "    sys.stdout, sys.stderr = io.StringIO(), None; os.close(0); os.close(1); os.close(2)\n",
    "process-group": "    dist.destroy_process_group()\n",
    "threads": """
    threading.Thread(target=time.sleep, args=(1000,)).start()
    threading.Thread(target=lambda: (time.sleep(0.3), trial.observe("late", 1))).start()
""",
    "forks-that-come-back": """
    child = os.fork()
    if child == 0: sys.exit(7)
    trial.observe("exit code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    child = os.fork()
    if child: trial.observe("end", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    "output": "    for _ in range(20_000): print('x' * 100)\n",
}
CHANGING = [
    Caught(name, SAVE_OLD + LOOK + change, SAVE_NEW + LOOK + change, "SAME", r"^$") for name, change in CHANGES.items()
]


def _ends(name: str, end: str, verdict: str, message: str) -> Caught:
    return Caught(name, SAVE_OLD, TRAINED + end, verdict, message)


ENDING = [
    *(
        _ends(
            f"exit-code-{code}", f"    os._exit({code})\n", "CRASH", rf"rank \d ended its process with exit code {code}"
        )
        for code in (3, 4)
    ),
    _ends("aborts", "    if trial.rank: os.abort()\n", "CRASH", r"rank 1 was ended by SIGABRT"),
    _ends("interrupted", "    raise KeyboardInterrupt\n", "ERROR", r"every rank raised KeyboardInterrupt\n"),
    _ends(
        "message-that-fails",
        "    class Bad(BaseException):\n        def __str__(self): raise KeyboardInterrupt\n    raise Bad\n",
        "ERROR",
        r"every rank raised Bad: its message is not available",
    ),
    _ends(
        "cause-of-itself",
        "    error = ValueError('x'); other = KeyError(); error.__cause__ = other; other.__context__ = error\n"
        "    raise error\n",
        "ERROR",
        r"every rank raised ValueError: x",
    ),
    _ends("generator", "    yield 1\n", "ERROR", r"scenario\(trial\) returned a generator: nothing in it has run"),
    _ends(
        "no-coroutine",
        "\nasync def wait(trial): pass\nscenario = wait\n",
        "ERROR",
        r"scenario\(trial\) returned a coroutine: nothing in it has run",
    ),
    _ends("no-function", "\nscenario = 3\n", "ERROR", r"after.py has no function scenario\(trial\)"),
    _ends(
        "name-and-value-swapped",
        "    trial.observe(1, 'step')\n",
        "ERROR",
        r"observe\(name, value\): the name has to be a string, not int",
    ),
    _ends(
        "observes-a-generator",
        "    trial.observe('names', (name for name in 'ab'))\n",
        "ERROR",
        r"observe\('names'\): a generator cannot be compared \(.*\); observe what it holds",
    ),
    _ends(
        "observes-too-deep",
        "    deep = 1\n    for _ in range(5000): deep = [deep]\n    trial.observe('deep', deep)\n",
        "ERROR",
        r"observe\('deep'\): it is nested too deeply",
    ),
    Caught(
        "name-of-a-training",
        SAVE_OLD.replace("    trial.train", "    trial.observe('train 1: losses', 1)\n    trial.train"),
        SAVE_NEW.replace("    trial.train", "    trial.observe('train 1: losses', 2)\n    trial.train"),
        "DIFFERS",
        r"rank 0, train 1: losses: 1 -> 2",
    ),
    Caught(
        "changes-from-run-to-run",
        SAVE_OLD + "    trial.observe('saved at', time.time())\n",
        SAVE_NEW + "    trial.observe('saved at', time.time())\n",
        "DIFFERS",
        r"rank 0, saved at: .*\nbefore.py differs from itself from run to run: rank 0, saved at: ",
    ),
]

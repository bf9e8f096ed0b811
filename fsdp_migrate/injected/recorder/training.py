"""Losses, gradient norms and optimizer steps; and stopping after a number of them."""

from __future__ import annotations

import functools
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ..after_import import after_import
from . import processes
from .final import Final
from .journal import Journal
from .trees import Trees, is_dtensor

SEED = 0
_CLIPS = "clip_grads_with_norm_"
_EXECUTORS = "concurrent.futures.thread"


def install(journal: Journal, trees: Trees) -> None:
    """Record how a program trains."""
    if journal.plan.deterministic:
        _seed()
    training = Training(journal, trees)
    torch.autograd.backward = training.backward(torch.autograd.backward)
    clip = training.norm(torch.nn.utils.clip_grad_norm_)
    torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad.clip_grad_norm_ = clip
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        if hasattr(module, _CLIPS):  # since torch 2.6
            setattr(module, _CLIPS, training.given_norm(getattr(module, _CLIPS)))
    after_import("torch.distributed.fsdp.fully_sharded_data_parallel", training.norms_of_fsdp)
    after_import("torch.distributed.checkpoint.state_dict", training.no_steps_of_torch)
    register_optimizer_step_pre_hook(training.before_step)
    register_optimizer_step_post_hook(training.after_step)


def _seed() -> None:
    torch.manual_seed(SEED)
    random.seed(SEED)
    after_import("numpy.random", lambda module: module.seed(SEED))
    # What has no deterministic variant warns, on both sides, rather than ending the program.
    torch.use_deterministic_algorithms(True, warn_only=True)


class Training:
    """What a rank trains."""

    def __init__(self, journal: Journal, trees: Trees) -> None:
        self._journal = journal
        self._trees = trees
        self._final = Final(journal, trees)
        self._depth = self._depth_of_norms = 0
        self._given: Any = None
        self._since: float | None = None
        self._record_loss = journal.guarded("losses")(self._loss)
        self._record_norm = journal.guarded("norms")(self._norm)
        self.before_step = journal.guarded("steps")(self._before_step)
        self.after_step = journal.guarded("steps")(self._after_step)

    def backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.autograd.backward`, which `Tensor.backward` calls, recording what it starts from."""

        @functools.wraps(original)
        def backward(tensors: Any, *arguments: Any, **named: Any) -> Any:
            # A checkpointed function calls it again from within.
            if not self._depth:
                self._stop_if_done()
                self._record_loss(tensors)
            self._depth += 1
            try:
                return original(tensors, *arguments, **named)
            finally:
                self._depth -= 1

        return backward

    def _loss(self, tensors: Any) -> None:
        # What comes before the first one is no part of a step.
        self._since = self._since or time.monotonic()
        for tensor in tensors if isinstance(tensors, (tuple, list)) else (tensors,):
            if isinstance(tensor, torch.Tensor):
                self._journal.event("loss", **self._told(tensor))

    def _told(self, tensor: torch.Tensor) -> dict[str, Any]:
        value: Any = tensor.detach()
        if is_dtensor(value):
            self._journal.quiet = True
            try:
                value = value.full_tensor()
            finally:
                self._journal.quiet = False
        about = {"dtype": str(value.dtype).removeprefix("torch.")}
        if value.numel() == 1 and not value.is_complex():
            return {**about, "value": float(value).hex()}
        return {**about, "value": {"digest": self._trees.digest(value)["digest"], "shape": list(value.shape)}}

    def norm(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function that clips gradients, recording the norm that it returns."""

        @functools.wraps(original)
        def clip_grad_norm_(*arguments: Any, **named: Any) -> Any:
            self._depth_of_norms += 1
            try:
                found = original(*arguments, **named)
            finally:
                self._depth_of_norms -= 1
            # FSDP's method uses the function where nothing is sharded.
            if not self._depth_of_norms:
                self._record_norm(found)
            return found

        return clip_grad_norm_

    def given_norm(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function that clips gradients to a norm that the program has, which is recorded once for all its parts."""

        @functools.wraps(original)
        def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any, *rest: Any, **named: Any) -> Any:
            if total_norm is not self._given:
                self._given = total_norm
                self._record_norm(total_norm)
            return original(parameters, max_norm, total_norm, *rest, **named)

        return clip_grads_with_norm_

    def _norm(self, found: Any) -> None:
        self._journal.event("norm", **self._told(torch.as_tensor(found)))

    def norms_of_fsdp(self, module: Any) -> None:
        """Record what the method of FSDP1 returns, too."""
        kind = module.FullyShardedDataParallel
        kind.clip_grad_norm_ = self.norm(kind.clip_grad_norm_)

    def no_steps_of_torch(self, module: Any) -> None:
        """Leave out the step that torch takes, with a learning rate of 0, to give an optimizer its state."""
        original = getattr(module, "_init_optim_state", None)
        if original is None:
            return

        @functools.wraps(original)
        def _init_optim_state(*arguments: Any, **named: Any) -> Any:
            before, self._journal.quiet = self._journal.quiet, True
            try:
                return original(*arguments, **named)
            finally:
                self._journal.quiet = before

        module._init_optim_state = _init_optim_state

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        number = self._final.number(optimizer)
        if number == 0:
            self._stop_if_done()
        if number is None:
            if self._journal.plan.nudged:
                _nudge(optimizer)
            self._final.add(optimizer)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        journal = self._journal
        number = self._final.number(optimizer)
        inf = getattr(optimizer, "found_inf", None)
        skipped = inf is not None and bool(float(inf))
        rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
        journal.event("step", lr=rates, optimizer=number, skipped=skipped)
        if number == 0 and not skipped:
            journal.steps += 1
            now = time.monotonic()
            journal.event("cost", seconds=now - (self._since or now), **_peak())
            self._since = now
        journal.flush()

    def _stop_if_done(self) -> None:
        """End this rank where the last step is done, and with it what the program did up to the next one."""
        journal = self._journal
        if not journal.active or journal.plan.steps is None or journal.steps < journal.plan.steps:
            return
        if _EXECUTORS in sys.modules:
            sys.modules[_EXECUTORS]._python_exit()  # waits for checkpoints that are still being written
        self._final.record()
        processes.end(journal, "steps", 0)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def _peak() -> dict[str, Any]:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {"peak": torch.cuda.max_memory_allocated(), "memory": "cuda"}
    import resource

    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak": kilobytes * (1 if sys.platform == "darwin" else 1024), "memory": "rss"}


def _nudge(optimizer: Any) -> None:
    """Move each parameter by one unit in the last place."""
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                local = parameter.to_local() if is_dtensor(parameter) else parameter
                local.copy_(torch.nextafter(local, torch.full_like(local, float("inf"))))

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Times the steps of torch programs without changes to their code, and lets them be traced.

torch calls global hooks before and after every optimizer step. The data loader's ``__next__`` and
``torch.autograd.backward`` are wrapped, because torch has no hooks there.

Gradients are ready when the engine has run the backward pass: a callback that is queued at its
begin runs before those that wait for other ranks, which DDP and FSDP queue during the pass.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from time import monotonic_ns
from types import ModuleType
from typing import Any, Final

from ullage.api.environment import ENV_STEPS
from ullage_run.loader_hook import LoaderHook
from ullage_run.rank_record import RankWriter
from ullage_run.step_clock import StepClock
from ullage_run.trace_hook import TraceHook
from ullage_run.uneven import hook_of

BEFORE: Final = "register_optimizer_step_pre_hook"
AFTER: Final = "register_optimizer_step_post_hook"

_ranks: Final = RankWriter(os.environ.get(ENV_STEPS))
uneven: Final = hook_of(_ranks)
"""The hook for uneven batches, where the container's policy asks for it."""
_clock: Final = StepClock(_ranks, uneven.timed if uneven is not None else None)
_traces: Final = TraceHook(_ranks)
_loaders: Final = LoaderHook.from_environment(_ranks)
os.register_at_fork(after_in_child=_ranks.forget)
os.register_at_fork(after_in_child=_traces.forget)
_failed = False


def register(optimizer_module: ModuleType) -> None:
    """Register the hooks in a loaded ``torch.optim.optimizer``, and time backward passes."""
    getattr(optimizer_module, AFTER)(_after_optimizer_step)
    before = getattr(optimizer_module, BEFORE, None)
    if callable(before):
        before(_before_optimizer_step)
    autograd = sys.modules.get("torch.autograd")
    if autograd is not None:
        _guarded(_time_backward, autograd)
        if uneven is not None:
            _guarded(uneven.register_backward, autograd)
    profiler = sys.modules.get("torch.autograd.profiler")
    if profiler is not None:
        _guarded(_traces.watch, profiler)


def register_loader(loader_module: ModuleType) -> None:
    """Time the batches of a loaded ``torch.utils.data.dataloader``, and tune its workers."""
    _guarded(_loaders.install, loader_module)
    _guarded(_time_batches, loader_module)
    if uneven is not None:
        _guarded(uneven.register_loader, loader_module)


def register_uneven(module: ModuleType, method: str) -> None:
    """Connect the hook for uneven batches with a loaded module, by the method for it."""
    if uneven is not None:
        _guarded(getattr(uneven, method), module)


def _guarded(call: Callable[..., object], *args: object) -> None:
    """Call, unless an earlier call failed: an error is printed once and only ends the timing."""
    global _failed
    if _failed:
        return
    try:
        call(*args)
    except Exception as error:  # torch may have another shape, a batch any
        _failed = True
        with contextlib.suppress(OSError, ValueError):
            print(f"ullage: steps are not timed: {error!r}", file=sys.stderr, flush=True)


def _time_batches(loader_module: Any) -> None:
    iterator = loader_module._BaseDataLoaderIter
    advance = iterator.__next__

    @functools.wraps(advance)
    def timed(self: object) -> object:
        if not _clock.timing:
            return advance(self)
        began = monotonic_ns()
        batch = advance(self)
        _guarded(_clock.batch, began, batch)
        return batch

    iterator.__next__ = timed


def _time_backward(autograd: Any) -> None:
    backward = autograd.backward
    engine = autograd.Variable._execution_engine

    def begins(*_: object) -> None:
        _guarded(engine.queue_callback, _clock.gradients_ready)

    @functools.wraps(backward)
    def timed(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if _clock.timing:
            _guarded(_watch_root, tensors, begins)
        return backward(tensors, *args, **kwargs)

    autograd.backward = timed


def _watch_root(tensors: Any, begins: Callable[..., None]) -> None:
    """Call ``begins`` when the engine starts at the first root of a backward pass."""
    root = getattr(tensors, "grad_fn", None)
    if root is None and isinstance(tensors, list | tuple) and tensors:
        root = getattr(tensors[0], "grad_fn", None)
    if root is not None:
        root.register_prehook(begins)


def _before_optimizer_step(optimizer: object, *_: object) -> None:
    if _clock.timing:
        _guarded(_clock.optimizer_begins, optimizer)


def _after_optimizer_step(optimizer: object, *_: object) -> None:
    _guarded(_end_step, optimizer)


def _end_step(optimizer: object) -> None:
    if uneven is not None:
        uneven.trains(optimizer)
    if _clock.optimizer_ended(optimizer):
        _traces.stepped()
        if uneven is not None:
            uneven.stepped()

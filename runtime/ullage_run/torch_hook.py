# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts steps of torch programs without changes to their code.

torch calls a global hook after every optimizer step. Importing torch from here would cost seconds
in programs that never use it, so the hook is registered when the program itself imports
``torch.optim.optimizer``, and the program's import must never fail because of the hook. From then
on :mod:`ullage_run.rank_hook` times the steps.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

import ullage_run
from ullage.api.environment import ENV_STRAGGLERS, REBALANCE

OPTIMIZER: Final = "torch.optim.optimizer"
LOADER: Final = "torch.utils.data.dataloader"
UNEVEN: Final = {
    "torch.nn.parallel.distributed": "register_parallel",
    "torch.distributed.distributed_c10d": "register_collectives",
    "accelerate.data_loader": "register_accelerate",
    "transformers.trainer": "register_trainer",
}
"""Modules that the hook for uneven batches waits for, with its methods."""
REGISTER: Final = "register_optimizer_step_post_hook"
"""Function of torch >= 2.0; without it nothing is counted."""
LAZY_CALL: Final = "_lazy_call"


class _HookingLoader(Loader):
    """Loads a module as its own loader does, then registers the hooks in it."""

    def __init__(self, loader: Loader, register: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._register = register

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._register(module)


class TorchFinder(MetaPathFinder):
    """First entry of ``sys.meta_path`` until the modules it waits for are imported."""

    def __init__(self, registers: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._waiting = dict(registers)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Wrap the loader of a module that is waited for; all other modules are ignored."""
        register = self._waiting.pop(fullname, None)  # first, so the search does not recurse
        if register is None:
            return None
        if not self._waiting:
            uninstall()
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _HookingLoader(spec.loader, register)
        return spec

    def install(self) -> None:
        """Register in modules that are already there, and wait for the others."""
        for name, register in list(self._waiting.items()):
            loaded = sys.modules.get(name)
            if loaded is not None:
                del self._waiting[name]
                register(loaded)
        if self._waiting and self not in sys.meta_path:
            sys.meta_path.insert(0, self)


def install() -> None:
    """Register the hooks now if torch is already imported, else on its import."""
    _finder.install()


def uninstall() -> None:
    """Stop waiting for torch."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def register(optimizer_module: ModuleType) -> None:
    """Register the hooks in a loaded ``torch.optim.optimizer``."""
    after = getattr(optimizer_module, REGISTER, None)
    if callable(after):
        after(_after_optimizer_step)
        _time(lambda ranks: ranks.register(optimizer_module))
    _tell_at_context()


def register_loader(loader_module: ModuleType) -> None:
    """Time the batches of a loaded ``torch.utils.data.dataloader``."""
    _time(lambda ranks: ranks.register_loader(loader_module))


def _time(register: Callable[[Any], None]) -> None:
    """Register what times steps; without it they are counted all the same."""
    try:
        register(import_module("ullage_run.rank_hook"))
    except Exception as error:  # an older library, or torch of another shape
        with contextlib.suppress(OSError, ValueError):
            print(f"ullage: steps are not timed: {error!r}", file=sys.stderr, flush=True)


def register_uneven(module: ModuleType) -> None:
    """Divide batches of programs that use a loaded module."""
    _time(lambda ranks: ranks.register_uneven(module, UNEVEN[module.__name__]))


def _registers() -> Mapping[str, Callable[[ModuleType], None]]:
    """Actions by the module that they are for."""
    registers: dict[str, Callable[[ModuleType], None]] = {
        OPTIMIZER: register,
        LOADER: register_loader,
    }
    if os.environ.get(ENV_STRAGGLERS) == REBALANCE:
        registers |= dict.fromkeys(UNEVEN, register_uneven)
    return registers


_finder: Final = TorchFinder(_registers())


def _tell_at_context() -> None:
    """Record the SM count as soon as torch starts CUDA, long before the first step.

    ``torch.cuda._lazy_call`` is torch's hook for that; it is not public, so if it is missing or
    fails the first step records it.
    """
    cuda = sys.modules.get("torch.cuda")
    later = getattr(cuda, LAZY_CALL, None)
    if callable(later):
        with contextlib.suppress(Exception):  # torch's private parts may change in any way
            later(lambda: _tell_sm_count(cuda))


def _tell_sm_count(cuda: object) -> None:
    """Runs while torch starts CUDA: an exception here would end the user's program."""
    with contextlib.suppress(Exception):
        ullage_run.sm_count(_sm_count_of(cuda), keep=False)


def _sm_count_of(cuda: Any) -> int:
    return int(cuda.get_device_properties(cuda.current_device()).multi_processor_count)


_seen_sm_count = False


def _after_optimizer_step(*_: object) -> None:
    """Count the step; at the first one record the visible SM count again."""
    global _seen_sm_count
    if not _seen_sm_count:
        _seen_sm_count = True
        ullage_run.sm_count(visible_sm_count())
    ullage_run.step()


def visible_sm_count() -> int:
    """Streaming multiprocessors of the current CUDA device; 0 if CUDA is not in use."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return 0
    try:
        return _sm_count_of(cuda)
    except (RuntimeError, AssertionError, AttributeError):  # raised by torch for a lost device
        return 0

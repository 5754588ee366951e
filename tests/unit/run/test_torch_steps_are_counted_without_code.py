# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The hook against a package of torch's shape: importing the real one here would cost minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ullage_run
from ullage.api.environment import ENV_STEPS
from ullage.api.steps import StepRecord

AUTOSTEP = Path(ullage_run.__file__).parent / "autostep"
OPTIMIZER = """
_hooks = []

def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)

class SGD:
    def step(self):
        for hook in _hooks:
            hook(self, (), {})
"""
CUDA = """
from types import SimpleNamespace

def is_initialized():
    return True

def current_device():
    return 0

def get_device_properties(device):
    return SimpleNamespace(multi_processor_count=66)
"""
LAZY = (
    CUDA
    + """
_started, _queued = False, []

def is_initialized():
    return _started

def _lazy_call(callable, **kwargs):
    callable() if _started else _queued.append(callable)

def init():
    global _started
    for call in _queued:
        call()  # what it raises ends the program, as in torch
    _started = True
"""
)
TRAIN = "from torch.optim import SGD; o = SGD(); [o.step() for _ in range(5)]"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a package called torch."""
    site = tmp_path / "site"
    (site / "torch" / "optim").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("from torch import cuda, optim\n")
    (site / "torch" / "cuda.py").write_text(CUDA)
    (site / "torch" / "optim" / "__init__.py").write_text("from torch.optim.optimizer import SGD\n")
    (site / "torch" / "optim" / "optimizer.py").write_text(OPTIMIZER)
    return site


def run(program: str, site: Path, record: Path | None) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{AUTOSTEP}:{site}"}
    environment.pop(ENV_STEPS, None)
    if record is not None:
        environment[ENV_STEPS] = str(record)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_every_optimizer_step_is_a_step(site: Path, record: Path) -> None:
    run(TRAIN, site, record)
    written = StepRecord.unpack(record.read_bytes())
    assert written is not None
    assert (written.steps, written.sm_count) == (5, 66)


def test_a_program_without_torch_does_not_pay_for_it(site: Path, record: Path) -> None:
    program = "import sys; print('torch' in sys.modules)"
    assert run(program, site, record) == "False\n"
    assert not any(record.read_bytes())


def test_outside_ullage_the_library_is_not_even_loaded(site: Path) -> None:
    program = f"{TRAIN}; import sys; print('ullage_run' in sys.modules)"
    assert run(program, site, None) == "False\n"


def test_an_older_torch_without_the_hook_still_imports(site: Path, record: Path) -> None:
    (site / "torch" / "optim" / "optimizer.py").write_text("class SGD:\n    def step(self): ...\n")
    run(TRAIN, site, record)
    assert not any(record.read_bytes())


def test_a_sitecustomize_further_down_the_path_still_runs(site: Path, record: Path) -> None:
    (site / "sitecustomize.py").write_text("import builtins; builtins.theirs = __file__\n")
    program = f"{TRAIN}; import sitecustomize; print(theirs == sitecustomize.__file__)"
    assert run(program, site, record) == "True\n"
    written = StepRecord.unpack(record.read_bytes())
    assert written is not None
    assert written.steps == 5


def test_torch_that_fails_to_import_fails_with_its_own_error(site: Path, record: Path) -> None:
    (site / "torch" / "optim" / "optimizer.py").write_text("raise ImportError('no CUDA here')\n")
    program = "try:\n    import torch\nexcept ImportError as error:\n    print(error)"
    assert run(program, site, record) == "no CUDA here\n"


def test_the_sm_count_is_told_when_cuda_starts_and_not_only_at_a_step(
    site: Path, record: Path
) -> None:
    (site / "torch" / "cuda.py").write_text(LAZY)
    run("import torch", site, record)
    assert not any(record.read_bytes()), "a program without CUDA says nothing"
    run("import torch; torch.cuda.init()", site, record)
    written = StepRecord.unpack(record.read_bytes())
    assert written is not None
    assert (written.steps, written.sm_count) == (0, 66)


def test_who_looks_at_the_device_leaves_the_record_to_who_trains(site: Path, record: Path) -> None:
    (site / "torch" / "cuda.py").write_text(LAZY)
    child = f"import torch; torch.cuda.init(); {TRAIN}"
    parent = "import subprocess, sys, torch; torch.cuda.init()"
    run(f"{parent}; subprocess.run([sys.executable, '-c', {child!r}], check=True)", site, record)
    written = StepRecord.unpack(record.read_bytes())
    assert written is not None
    assert (written.steps, written.sm_count) == (5, 66)


@pytest.mark.parametrize(
    "broken",
    [
        LAZY.replace("multi_processor_count=66", ""),
        LAZY.replace(
            "return SimpleNamespace", "raise RuntimeError('lost'); return SimpleNamespace"
        ),
        LAZY.replace("def _lazy_call(callable, **kwargs):", "def _lazy_call():"),
    ],
)
def test_a_torch_of_another_shape_starts_all_the_same(
    site: Path, record: Path, broken: str
) -> None:
    (site / "torch" / "cuda.py").write_text(broken)
    assert run("import torch; torch.cuda.init(); print(1)", site, record) == "1\n"

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter costs nothing without torch, and says what is missing when it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ["ullage_run", "ullage_run.group", "ullage_run.torch_record", "ullage_run.torch_state"]


def run(program: str, folder: Path) -> str:
    """What a program prints where torch is a package that must not be imported."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise ImportError('no torch here')\n")
    begin = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + program], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("module", MODULES)
def test_importing_needs_no_torch(module: str, tmp_path: Path) -> None:
    assert run(f"import {module}; print('torch' in sys.modules)", tmp_path) == "False\n"


def test_using_it_without_torch_says_what_to_install(tmp_path: Path) -> None:
    program = """
from ullage_run.torch_state import TorchState
try:
    TorchState(object(), object(), shards=1)
except ImportError as error:
    print(error)
"""
    said = run(program, tmp_path)
    assert "ullage_run.torch_state needs torch" in said
    assert "no torch here" in said
    assert "pip install torch" in said

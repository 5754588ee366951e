# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The same assertions against the fake and, where someone says so, against the real MPS.

``ULLAGE_REAL_MPS=1`` takes ``nvidia-cuda-mps-control`` from PATH and a small CUDA program as the
client; ``ULLAGE_REAL_MPS_GPU`` names the GPU's UUID. Tests that script a fault need the fake.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.mps import Factory, Installation

_CUDA_PROBE = Path(__file__).parent / "cuda_probe.py"


def _real() -> bool:
    return os.environ.get("ULLAGE_REAL_MPS") == "1"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a short name: sun_path holds 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="mps") as name:
        yield Path(name)


@pytest.fixture
def mps(place: Path) -> Iterator[Installation]:
    """A GPU's MPS, not started: the fake's, or the real one when asked for."""
    if _real():
        found = shutil.which("nvidia-cuda-mps-control")
        assert found is not None, "ULLAGE_REAL_MPS=1, but nvidia-cuda-mps-control is not on PATH"
        installation = Installation(
            place,
            gpu=os.environ.get("ULLAGE_REAL_MPS_GPU"),
            control=(found,),
            client=(sys.executable, str(_CUDA_PROBE)),
        )
    else:
        installation = Installation(place)
    yield installation
    installation.close()


@pytest.fixture
def scripted(place: Path) -> Iterator[Factory]:
    """Makes an installation of the fake with a script."""
    made: list[Installation] = []

    def make(gpu: str | None = None, **script: object) -> Installation:
        installation = Installation(place, script=script, gpu=gpu)
        made.append(installation)
        return installation

    yield make
    for installation in made:
        installation.close()

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from digits import data
from digits.data import Digits

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="session")
def digits() -> Digits:
    return data.load()


@pytest.fixture
def port() -> int:
    """A port that no one listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
    return number


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a program of the examples with settings, as a container would; ends it afterwards."""
    started: list[subprocess.Popen[str]] = []

    def run(module: str, *words: str, **settings: object) -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(EXAMPLES),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "CHECKPOINT_DIR": str(tmp_path),
            "HIDDEN": "16",
        } | {name: str(value) for name, value in settings.items()}
        process = subprocess.Popen(
            [sys.executable, "-m", f"digits.{module}", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()

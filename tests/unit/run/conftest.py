# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ullage.api.steps import STEP_RECORD_BYTES, StepRecord

ReadRecord = Callable[[], StepRecord | None]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """An empty record, as the node agent leaves it before a container starts."""
    path = tmp_path / "record"
    path.write_bytes(bytes(STEP_RECORD_BYTES))
    return path


@pytest.fixture
def read(record: Path) -> ReadRecord:
    """Reads the record as the node agent does."""
    return lambda: StepRecord.unpack(record.read_bytes())


@pytest.fixture
def sigterm() -> Iterator[None]:
    """No one listens for SIGTERM, as when a process starts; afterwards who listened before.

    Whoever heard a test's signal would believe for good that the process is to end.
    """
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)

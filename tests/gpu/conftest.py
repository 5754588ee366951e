# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests on a real GPU: left out, with the reason in one line, where there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.gpu.device import Device, NoDevice
from bench.gpu.mps import Transcript
from bench.gpu.rig import Rig, real_rig

HERE = Path(__file__).parent
_reason: list[str] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    if not ours:
        return
    try:
        Device().close()
    except NoDevice as error:
        _reason.append(f"tests/gpu: {len(ours)} tests deselected, no GPU was used: {error}")
        items[:] = [item for item in items if item not in ours]
        config.hook.pytest_deselected(items=ours)


def pytest_report_collectionfinish() -> list[str]:
    return _reason


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """The machine's own GPU; its transcript is shown when a test fails."""
    transcript = Transcript(tmp_path / "transcript.txt")
    found = real_rig(transcript)
    yield found
    found.close()
    with contextlib.suppress(FileNotFoundError):
        print(transcript.path.read_text(encoding="utf-8"))

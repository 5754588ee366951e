# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The first hour of the product on the fakes, end to end, and that its steps can fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.gpu.__main__ import main
from bench.gpu.first_hour import FirstHour
from bench.gpu.preflight import Result
from bench.gpu.rig import Rig

STEPS = ["a", "b", "", "c", "d", "e", "f"]


def first_hour(rig: Rig) -> dict[str, Result]:
    """Results by letter, "" = the daemon's start; nothing is left on the machine."""
    path = os.environ["PATH"]
    told: list[Result] = []
    hour = FirstHour(rig, told.append)
    results = hour.run()
    assert told == results
    assert not hour.run_dir.exists()
    assert os.environ["PATH"] == path
    return {one.name[0].strip(): one for one in results}


@pytest.mark.slow
def test_every_step_passes(rig: Rig) -> None:
    found = first_hour(rig)
    assert list(found) == STEPS
    assert all(one.ok for one in found.values()), found
    assert "another namespace sees nobody" in found["b"].detail
    assert "32 SMs when its context was made" in found["c"].detail
    assert found["d"].detail.startswith("repeated by 0, applied by 0")
    assert found["f"].detail.startswith("uids ")


@pytest.mark.slow
def test_a_driver_that_shows_a_container_everybody_is_no_fake_of_the_kernel(rig: Rig) -> None:
    rig.contained = rig.api
    found = first_hour(rig)
    assert not found["b"].ok
    assert "to a container" in found["b"].detail


@pytest.mark.slow
def test_a_client_that_misses_mps_is_no_proof(rig: Rig) -> None:
    says = 'print(\'{"sm_count": 132, "memory_free_mib": 80000}\', flush=True)'
    rig.client = (sys.executable, "-c", f"import time; {says}; time.sleep(60)")
    found = first_hour(rig)
    assert {name for name, one in found.items() if not one.ok} == {"c", "d", "f"}
    assert "is not among" in found["c"].detail


def test_without_a_version_nothing_is_tried(rig: Rig) -> None:
    rig.api.driver_version = "devel"
    assert [name for name, one in first_hour(rig).items() if not one.ok] == ["a"]


@pytest.mark.slow
def test_the_command_prints_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench.gpu", "preflight", "--dry", "--out", str(tmp_path), "--scale", "0.004"]
    monkeypatch.setattr(sys, "argv", words)
    assert main() == 0
    said = capsys.readouterr().out
    assert "no GPU was used" in said
    for letter in filter(None, STEPS):
        assert f"ok     {letter} " in said
    assert "FAILED" not in said.partition("Command 0")[0]

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance subset on a real GPU: ``make test-gpu``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.gpu.measured import load
from bench.gpu.rig import Rig
from bench.gpu.runner import Options, Run
from gpu import conformance

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
EVICTIONS = 100


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_a_rig_conforms(rig: Rig, check: Callable[[Rig], None]) -> None:
    check(rig)


def test_command_0_finds_mps(rig: Rig) -> None:
    conformance.command_0_finds_mps(rig)


def test_evictions_cause_no_fault(rig: Rig) -> None:
    conformance.evictions_cause_no_fault(rig, EVICTIONS)


def test_two_tenants_are_measured_with_proof(rig: Rig, tmp_path: Path) -> None:
    options = Options(
        name="r1", out=tmp_path, run_id="conformance", minutes=4, tenants=("DEC", "PRE")
    )
    outcome = Run(options, rig).do()
    assert outcome.ended == "complete"
    data = load([outcome.rows])
    assert not data.fake
    assert "not attached" not in data.left_out

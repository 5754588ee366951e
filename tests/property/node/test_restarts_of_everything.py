# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Agent, kubelet, supervisor, daemons and servers die in random order: nothing leaks or doubles.

Two hundred restarts over both protocols by default; ``ULLAGE_STRESS_EVENTS`` sets another number, a
hundredth of the events that it asks of stress runs that cost less.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fakes.mps_stress import StressRun
from fakes.virtual_time import run_virtual
from ullage.api.devices import Backend

pytestmark = pytest.mark.slow

RESTARTS = max(60, int(os.environ.get("ULLAGE_STRESS_EVENTS", "20000")) // 100)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [Backend.MPS2, Backend.MPS3])
def test_random_deaths_leak_and_double_nothing(scratch: Path, kind: Backend) -> None:
    async def live() -> None:
        stress = StressRun(scratch, kind, seed=7)
        await stress.start_agent()
        await stress.rig.settle(stress.backend)
        try:
            while stress.restarts < RESTARTS // 2:
                await stress.event()
            await stress.settle()
            assert stress.bound() == stress.truth()
            assert set(stress.cdi.slots()) == set(stress.truth())
            if kind is Backend.MPS3:
                assert stress.namespaces() == stress.wanted_namespaces()
            assert len(stress.rig.programs.living) == len(stress.rig.gpus)
            assert stress.counts["Draining"] == stress.counts["CapacityExceeded"] == 0
            await everyone_leaves(stress)
        finally:
            await stress.rig.supervisor.retire()
        assert stress.rig.programs.living == []
        assert list((stress.rig.run_dir / "mps").iterdir()) == []
        shutil.rmtree(stress.rig.run_dir)

    run_virtual(live())


async def everyone_leaves(stress: StressRun) -> None:
    for uid in list(stress.live):
        stress.end(uid, clean=True)
    await stress.settle()
    assert stress.bound() == {}
    assert stress.table.held == ()
    assert stress.cdi.slots() == ()
    assert stress.namespaces() == set()

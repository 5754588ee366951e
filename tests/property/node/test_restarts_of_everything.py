# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Agent, kubelet, supervisor, daemons and servers die in random order: nothing leaks or doubles.

Two hundred restarts over both protocols by default; ``ULLAGE_STORM_EVENTS`` sets another number, a
hundredth of the events that it asks of storms that cost less.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fakes.mps_storm import Storm
from fakes.virtual_time import run_virtual
from ullage.api.contract import Backend

RESTARTS = max(60, int(os.environ.get("ULLAGE_STORM_EVENTS", "20000")) // 100)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [Backend.MPS2, Backend.MPS3])
def test_random_deaths_leak_and_double_nothing(scratch: Path, kind: Backend) -> None:
    async def live() -> None:
        storm = Storm(scratch, kind, seed=7)
        await storm.start_agent()
        await storm.rig.settle(storm.backend)
        try:
            while storm.restarts < RESTARTS // 2:
                await storm.event()
            await storm.settle()
            assert storm.bound() == storm.truth()
            assert set(storm.cdi.slots()) == set(storm.truth())
            if kind is Backend.MPS3:
                assert storm.namespaces() == storm.wanted_namespaces()
            assert len(storm.rig.programs.living) == len(storm.rig.gpus)
            assert storm.counts["Draining"] == storm.counts["CapacityExceeded"] == 0
            await everyone_leaves(storm)
        finally:
            await storm.rig.supervisor.retire()
        assert storm.rig.programs.living == []
        assert list((storm.rig.run_dir / "mps").iterdir()) == []
        shutil.rmtree(storm.rig.run_dir)

    run_virtual(live())


async def everyone_leaves(storm: Storm) -> None:
    for uid in list(storm.live):
        storm.end(uid, clean=True)
    await storm.settle()
    assert storm.bound() == {}
    assert storm.table.held == ()
    assert storm.cdi.slots() == ()
    assert storm.namespaces() == set()

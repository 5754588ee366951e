# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Thousands of starts with every message overtaking every other: no container on a wrong slice.

Ten thousand by default and in the stress suite; ``ULLAGE_STRESS_EVENTS`` sets half of it, at most
ten thousand.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fakes.kubelet_crowd import Crowd

pytestmark = pytest.mark.slow

CALLS = min(10_000, int(os.environ.get("ULLAGE_STRESS_EVENTS", "20000")) // 2)
AT_ONCE = 24


async def test_no_wrong_binding_and_nothing_left_over(scratch: Path) -> None:
    crowd = Crowd(scratch, seed=20_260)
    await crowd.run(CALLS, AT_ONCE)
    assert crowd.asked >= CALLS
    assert crowd.tally.wrong == []
    # The disorder was real: starts were refused for passing reasons and went on later.
    assert {"Draining", "PodUnknown"} <= set(crowd.tally.refusals)
    await crowd.settle()
    assert crowd.table.held == ()
    assert dict(crowd.table.slots) == {}
    assert list(crowd.runtime.cdi_dir.iterdir()) == []

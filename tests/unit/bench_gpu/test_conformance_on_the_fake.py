# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance subset of a real GPU, on the fakes: its assertions run everywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.gpu.rig import Rig
from gpu import conformance


@pytest.mark.slow
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_a_rig_conforms(rig: Rig, check: Callable[[Rig], None]) -> None:
    check(rig)


def test_the_fake_says_that_no_gpu_was_used(rig: Rig) -> None:
    assert "no GPU was used" in rig.device.facts.said()


@pytest.mark.slow
def test_evictions_cause_no_fault(rig: Rig) -> None:
    conformance.evictions_cause_no_fault(rig, 3)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Others beside hostile tenants: what is counted, on a small cluster."""

from __future__ import annotations

import pytest

from bench.hostile_tenants import tenants, waits


def test_no_one_starves_and_no_machine_is_set_aside() -> None:
    seen = waits(1, nodes=12, newcomers=3)
    assert len(seen.calls) == 3
    assert (seen.starved, seen.aside) == (0, 0)
    assert seen.dearest > 0


@pytest.mark.slow
def test_others_are_no_later_beside_eight_hostile_tenants() -> None:
    figures = tenants()
    assert figures["tenants_later"] == 0
    assert figures["innocent_nodes_aside"] == 0

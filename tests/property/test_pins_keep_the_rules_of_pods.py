# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of pods are judged as kube-scheduler's filters judge them, before the pin and beside it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fakes.pod_rules import Draw, judged, pinned, refusing

SEEDS = st.integers(min_value=0, max_value=10**9)


@given(SEEDS)
def test_a_node_is_barred_where_a_filter_refuses_the_pod_as_it_is_or_pinned(seed: int) -> None:
    world = Draw(seed).world()
    for name, text in judged(world).items():
        node = world.node(name)
        refused = refusing(world, world.waits, node)
        beside_the_pin = refusing(world, pinned(world.waits, name), node)
        assert bool(text) == bool((refused | beside_the_pin) - {"node"}), (seed, name, text)

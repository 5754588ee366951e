# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pool's status is its memory: nothing of it is lost on the way, and no hazard is ever 0."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.generate.crds.definition import schema
from fakes.pool_watch import START_S, PoolWatch, a_member, a_pool
from structure import list_faults, shape_faults, unknown_fields
from ullage.api.capacitypool import CapacityPool
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.cluster.codecs.status import pool_as_stored, pool_status_from_wire, pool_status_to_wire
from ullage.cluster.records.node import NodeRecord
from ullage.cluster.records.pool import LaunchRecord, LossRecord, PoolStatus
from ullage.cluster.records.status import Condition
from ullage.engines.capacity.hazard import AdvisorBand
from ullage.scheduling.capacity.hazard import Learning, hazard_of

AMOUNTS = st.floats(0.0, 1e6) | st.floats(1e-9, 1e-3)
MOMENTS = st.floats(1.0, 4e9)
COUNTS = st.integers(0, 10_000)
LOSSES = st.builds(LossRecord, at_s=MOMENTS, nodes=COUNTS, lost=COUNTS, open=st.booleans())
LAUNCHES = st.builds(
    LaunchRecord, succeeded=AMOUNTS, failed=AMOUNTS, failed_at_s=st.none() | MOMENTS
)
CONDITIONS = st.sampled_from([("PriceFresh", "PriceRead"), ("HazardKnown", "HazardFromPrior")])
STATUSES = st.builds(
    PoolStatus,
    price=st.none() | AMOUNTS,
    priced_at_s=st.none() | MOMENTS,
    hazard_per_hour=st.none() | AMOUNTS,
    exposure_hours=AMOUNTS,
    loss_events=AMOUNTS,
    mean_lost_fraction=st.none() | st.floats(0.0, 1.0),
    launch_failures=COUNTS,
    available=st.booleans(),
    nodes=COUNTS,
    launches=LAUNCHES,
    last_loss=st.none() | LOSSES,
    warned_at_s=st.none() | MOMENTS,
    observed_at_s=MOMENTS,
    observed_generation=COUNTS,
    conditions=st.lists(CONDITIONS, unique=True).map(
        lambda found: tuple(
            Condition(type=type_, status="True", reason=reason, since=12.5)
            for type_, reason in found
        )
    ),
)
NODE = schema(CapacityPool)


@given(STATUSES)
def test_what_is_stored_reads_back_equal_and_fits_the_schema(status: PoolStatus) -> None:
    written = pool_status_to_wire(status)
    stored = pool_as_stored(status)
    assert pool_status_from_wire(written) == stored
    assert pool_as_stored(stored) == stored
    assert pool_status_to_wire(stored) == written
    node = NODE["properties"]["status"]  # type: ignore[index]
    assert shape_faults(node, written) == []
    assert not [*list_faults(node, written), *unknown_fields(node, written)]


@given(STATUSES, st.sampled_from([None, *AdvisorBand]), st.floats(1.0, 1e4))
def test_nothing_that_matters_is_lost(
    status: PoolStatus, band: AdvisorBand | None, prior_hours: float
) -> None:
    pool, learning = a_pool(advisor_band=band), Learning(prior_hours=prior_hours)
    before = hazard_of(pool, status, learning)
    after = hazard_of(pool, pool_as_stored(status), learning)
    assert after.rate_per_hour == pytest.approx(before.rate_per_hour, rel=1e-8)
    assert after.rate_per_hour > 0


FATES = st.sampled_from(["stays", "vanishes", "notice", "warning", "unready", "cordoned"])


def fate(node: NodeRecord, what: str, now: float) -> NodeRecord | None:
    match what:
        case "vanishes":
            return None
        case "notice":
            return replace(node, interruption=Interruption(kind=InterruptionKind.TERMINATE))
        case "warning":
            return replace(node, interruption=Interruption(kind=InterruptionKind.REBALANCE))
        case "unready":
            return replace(node, ready=False, ready_since=now - 400.0)
        case "cordoned":
            return replace(node, unschedulable=True)
        case _:
            return node


@settings(max_examples=40, deadline=None)
@given(
    fates=st.lists(st.tuples(FATES, FATES), min_size=1, max_size=6),
    waits=st.tuples(st.floats(1.0, 4000.0), st.floats(1.0, 90_000.0)),
    order=st.randoms(use_true_random=False),
)
def test_the_order_within_a_look_does_not_matter_and_the_hazard_is_never_0(
    fates: list[tuple[str, str]], waits: tuple[float, float], order: object
) -> None:
    """Names decide the order in which nodes are gone through: others give the same figures."""
    names = [f"node-{index}" for index in range(len(fates))]
    shuffled = list(names)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    ends = []
    for called in (names, shuffled):
        watch = PoolWatch()
        nodes = [a_member(name, created=START_S - 1e6) for name in called]
        watch.look(*nodes)
        watch.hold(*nodes, hours=1)
        for turn, wait_s in enumerate(waits):
            at = watch.now + wait_s
            found = [fate(node, one[turn], at) for node, one in zip(nodes, fates, strict=True)]
            watch.look(*(one for one in found if one is not None), after_s=wait_s)
            rate = watch.status.hazard_per_hour
            assert rate is not None
            assert rate > 0
            assert pool_as_stored(watch.status).hazard_per_hour
        ends.append(watch.status)
    assert ends[0] == ends[1]

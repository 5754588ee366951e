# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Offsets of clocks lie within the bounds that their collectives prove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.traced_jobs import RankPlan, TracedJob
from ullage.engines.tracing.alignment import Passage, clock_offsets
from ullage.engines.tracing.job_trace import ClockAlignment
from ullage.engines.tracing.join import joined

NODES = ("a", "b", "c")


def on_nodes(**changes: object) -> TracedJob:
    ranks = [RankPlan(node=node) for node in ("a", "a", "b", "b")]
    return replace(TracedJob(ranks=ranks), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("ahead", [-50_000.0, 0.0, 50_000.0])
@pytest.mark.parametrize("late_ends", [0.0, 5_000.0])
def test_a_shifted_clock_is_recovered_within_a_millisecond(ahead: float, late_ends: float) -> None:
    job = joined(on_nodes(clocks={"b": ahead}, late_ends=late_ends, luck=400.0).traces())
    assert job.alignment is ClockAlignment.ALIGNED
    assert [view.clock_offset_micros for view in job.ranks[:2]] == [0, 0]
    for view in job.ranks[2:]:
        wrong = abs(view.clock_offset_micros - ahead)
        assert wrong <= 1000
        assert wrong <= view.clock_uncertainty_micros


@st.composite
def passages(draw: st.DrawFn) -> tuple[list[list[Passage]], dict[str, float]]:
    """Collectives in true time, seen by clocks that are wrong; ends may be late."""
    clocks = {node: draw(st.floats(-1e6, 1e6)) for node in NODES} | {"a": 0.0}
    length = st.floats(0, 5000)
    collectives = []
    for number in range(draw(st.integers(8, 12))):
        begun = number * 20_000.0
        arrived = [begun + draw(length) for _ in range(4)]
        done = max(arrived) + draw(st.floats(0, 300))
        collectives.append(
            [
                Passage(
                    rank,
                    node := NODES[rank % 3],
                    arrived[rank] + clocks[node],
                    done + draw(length) + clocks[node],
                )
                for rank in range(4)
            ]
        )
    return collectives, clocks


@given(passages())
def test_an_offset_is_never_more_wrong_than_it_says(
    drawn: tuple[list[list[Passage]], dict[str, float]],
) -> None:
    collectives, clocks = drawn
    offsets = clock_offsets(collectives, NODES)
    assert offsets is not None
    for node, ahead in clocks.items():
        assert abs(offsets[node].micros - ahead) <= offsets[node].uncertainty + 1e-6


def test_pods_of_one_node_share_its_clock() -> None:
    ranks = [RankPlan(), RankPlan()]
    job = joined(TracedJob(ranks=ranks, steps=1).traces())
    assert job.alignment is ClockAlignment.ONE_CLOCK
    assert job.clock_uncertainty_micros == 0


def test_few_collectives_align_nothing() -> None:
    job = joined(on_nodes(steps=3).traces())
    assert job.alignment is ClockAlignment.UNALIGNED
    assert [finding.reason.value for finding in job.findings] == ["ClocksUnaligned"]


def test_nodes_without_a_common_collective_are_compared_over_a_third() -> None:
    clocks = {"a": 0.0, "b": 7_000.0, "c": -9_000.0}

    def meeting(number: int, *nodes: str) -> list[Passage]:
        start = number * 1000.0
        return [
            Passage(NODES.index(node), node, start + clocks[node], start + 50 + clocks[node])
            for node in nodes
        ]

    collectives = [meeting(number, "a", "b") for number in range(8)]
    collectives += [meeting(number, "b", "c") for number in range(8)]
    offsets = clock_offsets(collectives, NODES)
    assert offsets is not None
    assert abs(offsets["c"].micros + 9_000) <= offsets["c"].uncertainty <= 150
    assert clock_offsets(collectives[:8], NODES) is None


def test_reports_that_contradict_each_other_align_nothing() -> None:
    def meeting(number: int, ahead: float) -> list[Passage]:
        start = number * 1000.0
        return [Passage(0, "a", start, start + 50), Passage(1, "b", start + ahead, start + ahead)]

    collectives = [meeting(number, 0.0 if number % 2 else 90_000.0) for number in range(10)]
    found: Mapping[str, object] | None = clock_offsets(collectives, ("a", "b"))
    assert found is None

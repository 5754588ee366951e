# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever dies, hangs, lies or restarts: requests of traces end with a reason and leave nothing.

An operator keeps nothing between two looks in this world, so each look is one after a restart.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.trace_world import TraceWorld
from ullage.api.reasons import Reason
from ullage.scheduling.observation.profile_requests import orders_by_node
from ullage.scheduling.times import AGENT_SILENT_S, STEPS_COME_S, TRACE_MOST_S, TRACE_WAITS_S

LONGEST_S = TRACE_WAITS_S + 2 * (AGENT_SILENT_S + STEPS_COME_S + TRACE_MOST_S) + 60
"""From its creation to its end: it waits, and is tried twice."""
TROUBLES = (
    *("agent dies", "agent restarts", "agent is old", "node goes"),
    *("rank dies", "rank hangs", "rank refuses", "rank lies", "rank is ahead", "rank is slow"),
    *("job ends", "hook missing", "request deleted"),
)
Trouble = tuple[int, str, int]
troubles = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from(TROUBLES), st.integers(0, 7)), max_size=8
)


def _bring(world: TraceWorld, trouble: str, which: int) -> None:
    ranks = list(world.ranks.values())
    names = list(world.agents)
    rank = ranks[which % len(ranks)]
    name = names[which % len(names)] if names else ""
    match trouble:
        case "agent dies" if name:
            world.agents[name].alive = False
        case "agent restarts" if name:
            world.agents[name].alive = True
            world.agents[name].restart()
        case "agent is old" if name:
            world.agents[name].knows_traces = False
        case "node goes" if name:
            del world.agents[name]
        case "rank dies":
            rank.alive = False
        case "rank hangs":
            rank.silent = True
        case "rank refuses":
            rank.refuses = Reason.ALREADY_PROFILING
        case "rank lies":
            rank.claims = which
        case "rank is ahead":
            rank.ahead = 10**6
        case "rank is slow":
            rank.pace_s = 1000.0
        case "job ends":
            world.ended = True
            for each in ranks:
                each.alive = False
        case "hook missing":
            world.instrumented = None if which % 2 else False
        case "request deleted" if len(world.requests) > 1:
            world.requests.pop(list(world.requests)[which % len(world.requests)])


@settings(max_examples=40, deadline=None)
@given(
    pods=st.integers(1, 5),
    nodes=st.integers(1, 3),
    requests=st.integers(1, 6),
    events=troubles,
)
def test_every_request_ends_with_a_reason_and_leaves_nothing(
    pods: int, nodes: int, requests: int, events: list[Trouble]
) -> None:
    world = TraceWorld(pods=pods, nodes=nodes, requests=requests)
    began = world.now
    for at in range(41):
        for when, trouble, which in events:
            if when == at:
                _bring(world, trouble, which)
        world.go_on()
    while any(not request.status.is_over for request in world.requests.values()):
        assert world.now - began <= LONGEST_S
        world.go_on(seconds=20)
    world.operate()
    world.work()
    assert not orders_by_node(world.requests.values())
    for agent in world.agents.values():
        assert not agent.orders
        assert not agent.reports or not (agent.alive and agent.knows_traces)
    for request in world.requests.values():
        status = request.status
        assert status.conditions[0].reason in set(Reason)
        assert status.message
        if status.phase == "Done":
            assert status.result is not None
            done = [capture.rank for capture in status.ranks if capture.state == "Done"]
            assert done
            assert len(set(done)) == len(done)
        failed = [capture for capture in status.ranks if capture.state == "Failed"]
        assert all(capture.reason is not None for capture in failed)


@settings(max_examples=40, deadline=None)
@given(pods=st.integers(1, 6), restarts=st.lists(st.integers(0, 30), max_size=6))
def test_restarts_of_agents_alone_cost_no_rank(pods: int, restarts: list[int]) -> None:
    world = TraceWorld(pods=pods)
    at = 0
    while not world.request.status.is_over:
        if at in restarts:
            for agent in world.agents.values():
                agent.restart()
        world.go_on()
        at += 1
        assert at < 300
    assert world.request.status.conditions[0].reason == Reason.TRACE_DONE

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""However requests come, go, expire and are picked: each leaves once, and bounds hold."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.batching.chooser import BatchChooser, BatchPolicy, BatchRules
from ullage.engines.batching.waiting import BatchRequest
from ullage_router.calls import RouterCall
from ullage_router.request_queue import RequestQueue
from ullage_router.run_times import first_costs

MOST = 12


def call(loop: asyncio.AbstractEventLoop, number: int, group: int | None, due: float) -> RouterCall:
    request = BatchRequest(number=number, arrival_s=0.0, deadline_s=due, app="default/1")
    return RouterCall(
        request=request, method="POST", path="/", headers={}, body=b"",
        answer=loop.create_future(), group=group,
    )  # fmt: skip


STEP = st.one_of(
    st.tuples(st.just("offer"), st.none() | st.integers(0, 3), st.integers(1, 9)),
    st.tuples(st.just("pick"), st.integers(0, 1), st.integers(0, 9)),
    st.tuples(st.just("remove"), st.integers(0, 40), st.just(0)),
    st.tuples(st.just("expired"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("retry"), st.integers(0, 1), st.just(0)),
)


@given(st.lists(STEP, max_size=60), st.sampled_from(BatchPolicy))
def test_each_leaves_once(steps: list[tuple[str, int | None, int]], policy: BatchPolicy) -> None:
    loop = asyncio.new_event_loop()
    queue = RequestQueue(most_calls=MOST, most_bytes=1)
    rules = BatchRules(policy=policy, sizes=(1, 2, 4))
    chooser = BatchChooser(rules=rules, costs=first_costs(rules.sizes, 0.001))
    inside: dict[int, RouterCall] = {}
    ran: list[RouterCall] = []

    def leave(calls: tuple[RouterCall, ...]) -> None:
        for one in calls:
            assert inside.pop(one.number) is one

    for at, (what, first, second) in enumerate(steps):
        match what:
            case "offer":
                one = call(loop, at, first, float(second))
                taken = queue.offer(one)
                assert taken == (len(inside) < MOST)
                if taken:
                    inside[at] = one
            case "pick":
                assert first is not None
                picked = queue.pick(chooser, float(second), first)
                able = [one for one in inside.values() if one.avoid != first]
                assert (picked is None) == (not able)
                if picked is not None:
                    assert picked.run or picked.dropped
                    assert len({one.group for one in picked.run}) <= 1
                    assert (
                        len(picked.run) == 1 or picked.run == () or picked.run[0].group is not None
                    )
                    assert all(one.avoid != first for one in picked.run)
                    leave(picked.run + picked.dropped)
                    ran += picked.run
            case "remove":
                assert first is not None
                gone = inside.pop(first, None)
                if gone is not None:
                    queue.remove(gone)
            case "expired":
                assert first is not None
                past = queue.expired(float(first))
                assert {one.number for one in past} == {
                    number for number, one in inside.items() if one.request.deadline_s <= first
                }
                leave(past)
            case "retry" if ran:
                again = ran.pop()
                again.avoid, again.group = first, None
                queue.put(again)
                inside[again.number] = again
        assert len(queue) == len(inside)
        assert queue.apps() == ({"default/1"} if inside else set())
    loop.close()

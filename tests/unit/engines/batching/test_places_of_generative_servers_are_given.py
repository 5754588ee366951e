# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.batching_generations import (
    Generation,
    PlayedGenerations,
    SimulatedReplica,
    StepCosts,
    play_generations,
)
from bench.batching_play import Outcome
from ullage.engines.batching.chooser import BatchPolicy
from ullage.engines.batching.generative_order import DISTRIBUTIONS, GenerativeChooser, Prospect
from ullage.engines.batching.histogram import TimeHistogram
from ullage.engines.batching.output_tokens import OutputTokens, TokenCount
from ullage.engines.batching.waiting import BatchRequest, WaitingRequests

QUICK = TimeHistogram.of([0.08, 0.1, 0.12])
SLOW = TimeHistogram.of([0.4, 0.5, 0.6])
PROSPECTS = {
    "short": Prospect(due=QUICK, place_s=1.0),
    "long": Prospect(due=QUICK, place_s=20.0),
    "prompt": Prospect(due=SLOW, place_s=2.0),
}
REQUESTS = st.lists(
    st.tuples(st.floats(0.0, 2.0), st.floats(-0.5, 3.0), st.sampled_from(sorted(PROSPECTS))),
    min_size=1,
    max_size=12,
)


def chooser(policy: BatchPolicy = BatchPolicy.ORLOJ, rate_per_s: float = 1.0) -> GenerativeChooser:
    return GenerativeChooser(policy=policy, prospect=PROSPECTS.get, rate_per_s=rate_per_s)


def waiting(rows: list[tuple[float, float, str]]) -> WaitingRequests:
    """Requests as (arrival, deadline, application)."""
    return WaitingRequests.of(
        BatchRequest(number=at, arrival_s=arrival, deadline_s=deadline, app=app)
        for at, (arrival, deadline, app) in enumerate(rows)
    )


@given(rows=REQUESTS, policy=st.sampled_from(BatchPolicy))
def test_one_request_takes_the_place_and_only_hopeless_ones_are_refused(
    rows: list[tuple[float, float, str]], policy: BatchPolicy
) -> None:
    queue = waiting(rows)
    choice = chooser(policy).choose(queue, 0.0)
    assert len(choice.run) <= 1
    assert not set(choice.run) & set(choice.dropped)
    for at, one in enumerate(queue):
        due = PROSPECTS[one.app].due
        least = {
            BatchPolicy.FIFO: 0.0,
            BatchPolicy.EDF: due.mean_s,
            BatchPolicy.ORLOJ: due.least_s,
        }[policy]
        hopeless = one.deadline_s < least or (
            policy is not BatchPolicy.EDF and one.deadline_s == least
        )
        assert (at in choice.dropped) == (hopeless or one.deadline_s <= 0)
    assert bool(choice.run) == (len(choice.dropped) < len(rows))


@given(rows=REQUESTS, rate_per_s=st.sampled_from([0.2, 1.0, 8.0]))
def test_the_most_valuable_request_is_chosen(
    rows: list[tuple[float, float, str]], rate_per_s: float
) -> None:
    """Against the definition: the gain of now over later is integrated, not in closed form."""
    queue = waiting(rows)
    choice = chooser(rate_per_s=rate_per_s).choose(queue, 0.0)
    if not choice.run:
        return
    worth = [_value(one, rate_per_s) for one in queue]
    best = max(worth[at] for at in range(len(rows)) if at not in choice.dropped)
    assert worth[choice.run[0]] >= best - 0.01 * abs(best) - 1e-6


def _value(one: BatchRequest, rate_per_s: float) -> float:
    prospect = PROSPECTS[one.app]
    waits = (np.arange(4000) + 0.5) * (8 / rate_per_s / 4000)
    chance = rate_per_s * np.exp(-rate_per_s * waits) * (waits[1] - waits[0])
    now = float(prospect.due.below(one.deadline_s))
    later = float((prospect.due.below(one.deadline_s - waits) * chance).sum())
    return (now * float(chance.sum()) - later) / prospect.place_s


def test_of_equal_deadlines_the_shorter_answer_and_of_equal_answers_the_earlier_deadline() -> None:
    assert chooser().choose(waiting([(0, 2, "long"), (0, 2, "short")]), 0.0).run == (1,)
    assert chooser().choose(waiting([(0, 2, "short"), (0, 1, "short")]), 0.0).run == (0,)


def test_while_one_is_unknown_the_earliest_deadline_goes_first() -> None:
    queue = waiting([(0, 2, "short"), (0, 1, "new"), (0, 0.05, "short")])
    choice = chooser().choose(queue, 0.0)
    assert queue[choice.run[0]].deadline_s == 0.05
    assert choice.dropped == ()


def test_wild_requests_of_too_many_kinds_make_it_the_order_of_deadlines() -> None:
    many = {f"a{at}": TimeHistogram.of([0.1 + at, 0.2 + at]) for at in range(DISTRIBUTIONS + 1)}
    found = {app: Prospect(due=due, place_s=1.0) for app, due in many.items()}
    order = GenerativeChooser(policy=BatchPolicy.ORLOJ, prospect=found.get, rate_per_s=1.0)
    queue = waiting([(0, 500.0 - at, app) for at, app in enumerate(found)])
    assert order.choose(queue, 0.0).run == (0,)


def test_a_place_is_held_for_some_time() -> None:
    with pytest.raises(ValueError, match="some time"):
        Prospect(due=QUICK, place_s=0.0)
    with pytest.raises(ValueError, match="positive"):
        chooser(rate_per_s=0.0)


COSTS = StepCosts(fixed_s=0.01, each_s=0.001, prompt_s=0.00005)
PLACES = 8


def arrivals(count: int, load: float, seed: int, allowed_s: float) -> list[Generation]:
    """Two applications, one with answers ten times as long, on two replicas."""
    random = np.random.default_rng(seed)
    chats = random.random(count) < 0.7
    tokens = random.lognormal(np.log(np.where(chats, 30, 300)), 0.6).clip(1, 2000).astype(int)
    rate = load * 2 * PLACES / (COSTS.step_s(PLACES) * 135)
    at = np.cumsum(random.exponential(1 / rate, count))
    return [
        Generation(
            request=BatchRequest(
                number=number,
                arrival_s=float(at[number]),
                deadline_s=float(at[number]) + allowed_s,
                app="chat" if chats[number] else "text",
            ),
            prompt_tokens=100,
            output_tokens=int(tokens[number]),
        )
        for number in range(count)
    ]


def learned() -> dict[str, Prospect]:
    """What earlier arrivals of the same kind taught."""
    seen: dict[str, list[TokenCount]] = {}
    for one in arrivals(1000, 0.5, 99, 1.0):
        seen.setdefault(one.request.app, []).append(TokenCount(tokens=one.output_tokens))
    step_s = COSTS.step_s(PLACES)
    first = TimeHistogram.of(np.linspace(step_s, 2 * step_s, 50))
    means = {app: OutputTokens.of(counts).mean() for app, counts in seen.items()}
    return {app: Prospect(due=first, place_s=mean * step_s) for app, mean in means.items()}


def attainment(requests: list[Generation], policy: BatchPolicy | None) -> float:
    order = None
    if policy is not None:
        order = GenerativeChooser(policy=policy, prospect=learned().get, rate_per_s=0.33)
    replicas = [SimulatedReplica(places=PLACES, costs=COSTS) for _ in range(2)]
    played = play_generations(requests, replicas, order)
    assert len(played.outcomes) == len(requests)
    for one, first_s, outcome in zip(requests, played.first_s, played.outcomes, strict=True):
        assert (first_s < 0) == (outcome is Outcome.DROPPED)
        assert first_s < 0 or first_s > one.request.arrival_s
    return played.attainment


@pytest.mark.parametrize("load", [0.9, 1.5])
def test_more_first_tokens_are_in_time_than_by_deadlines_or_by_a_plain_proxy(load: float) -> None:
    requests = arrivals(700, load, 1, 1.0)
    ours = attainment(requests, BatchPolicy.ORLOJ)
    assert ours >= attainment(requests, BatchPolicy.EDF) - 0.005
    assert ours >= attainment(requests, BatchPolicy.FIFO) - 0.005
    assert ours > attainment(requests, None) + 0.1
    if load > 1:
        assert ours > attainment(requests, BatchPolicy.EDF) + 0.05


def test_attainment_is_the_part_of_all_requests_that_was_in_time() -> None:
    met, late = Outcome.MET, next(one for one in Outcome if one is not Outcome.MET)
    played = PlayedGenerations(outcomes=(met, late, met, met), first_s=(0.1, -1.0, 0.2, 0.3))
    assert played.attainment == 0.75

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rounds look at the head of the queue only, and run whoever the operator's rounds would run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from ullage.engines.allocation.model import Allocation
from ullage.engines.allocation.round_records import RoundSettings, RoundState
from ullage.engines.allocation.rounds import are_patient, keeps_turn, next_round, rounds_passed
from ullage_simulate import choosers
from ullage_simulate.choosers import Queue, RoundsChooser
from ullage_simulate.policies import POLICIES
from ullage_simulate.trace import Fleet, TraceJob
from ullage_simulate.work import Costs, JobWork, begun

FLEETS = (Fleet(devices={"a": 4}), Fleet(devices={"b": 3, "a": 4}))


def a_job(chance: random.Random, number: int, now: float, fleet: Fleet) -> TraceJob:
    speeds = {kind: chance.choice((0.0, 1.0, 1.0, 3.0)) for kind in fleet.devices}
    if not any(speeds.values()):
        speeds = dict.fromkeys(speeds, 1.0)
    return TraceJob(
        name=f"job-{chance.randrange(1000)}-{number}",
        gang=chance.choice((1, 1, 1, 1, 2, 3)),
        steps=1000,
        arrival_s=now,
        speeds=speeds,
        checkpointable=chance.random() > 0.1,
        weight=chance.choice((1.0, 1.0, 2.5)),
    )


@dataclass
class Whole:
    """The operator's rounds over all jobs, with the books of ``RoundsChooser`` as records."""

    rounds: RoundsChooser
    state: RoundState = field(default_factory=RoundState)

    def next(self, allocation: Allocation, up: dict[str, int], now: float) -> RoundState:
        seen, settings = self.rounds, self.rounds.settings
        late = {name: rounds_passed(at, now, settings) for name, at in seen.passed_since.items()}
        patient = are_patient(late.values(), settings)
        jobs = []
        for name in allocation.jobs:
            asking = seen._asking[name]
            began = seen.began.get(name)
            if began is not None and keeps_turn(began, now, settings, patient=patient):
                asking = asking._replace(checkpointable=False)
            jobs.append(asking)
        self.state = next_round(
            replace(self.state, skipped=late), allocation, up, now, jobs=jobs, settings=settings
        ).state
        return self.state


@pytest.mark.parametrize("seed", range(8))
def test_whoever_the_whole_queue_would_let_run_runs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosers, "_SPARE_CLAIMS", 0)
    chance = random.Random(seed)
    fleet = FLEETS[seed % 2]
    rounds = RoundsChooser(
        policy=POLICIES["isolated"],
        fleet=fleet,
        costs=Costs(restart_s=chance.choice((0.0, 30.0))),
        settings=RoundSettings(gang_skip_limit=2),
    )
    active: dict[str, JobWork] = {}
    whole, now, looked_at_few = Whole(rounds), 0.0, 0
    for step in range(40):
        for number in range(40 if step == 0 else chance.choice((0, 0, 1, 2))):
            job = a_job(chance, 100 * step + number, now, fleet)
            active[job.name] = begun(job, len(active), fleet)
            rounds.arrive(active[job.name])
        if active and chance.random() < 0.4:
            name = chance.choice(list(active))
            running = rounds.state.running
            rounds.state = replace(
                rounds.state, running={who: on for who, on in running.items() if who != (name,)}
            )
            whole.state = replace(whole.state, running=rounds.state.running)
            del active[name]
            rounds.leave(name)
        up = dict(fleet.devices)
        if not active:
            continue
        before = dict(rounds.passed_since), dict(rounds.began)
        runs = rounds.choose(active, up, now)
        assert rounds.allocation is not None
        after = rounds.passed_since, rounds.began
        rounds.passed_since, rounds.began = before
        expected = whole.next(rounds.allocation, up, now)
        rounds.passed_since, rounds.began = after
        assert dict(runs) == dict(expected.running)
        assert list(runs) == list(expected.running)
        assert set(rounds.passed_since) == set(expected.skipped)
        looked_at_few += len(active) > 2 * sum(up.values())
        now += chance.choice((360.0, 360.0, 100.0))
    assert looked_at_few > 20


def a_queue(name: str) -> Queue:
    return Queue(strict=name == "strict", patience_s=600.0 if name == "fastest" else None)


@pytest.mark.parametrize("name", ["plain", "strict", "fastest"])
def test_a_queue_starts_in_order_of_arrival_whoever_fits(name: str) -> None:
    fleet = Fleet(devices={"b": 2, "a": 4})
    chance = random.Random(7)
    queue, active = a_queue(name), dict[str, JobWork]()
    waiting: list[str] = []
    for step in range(80):
        now = 100.0 * step
        job = a_job(chance, step, now, fleet)
        active[job.name] = begun(job, step, fleet)
        queue.arrive(active[job.name])
        waiting.append(job.name)
        running = [who for who, _ in queue.runs.items()]
        if running and chance.random() < 0.5:
            (gone,) = chance.choice(running)
            del active[gone]
            queue.leave(gone)
        before = set(queue.runs)
        held = dict(fleet.devices)
        for (who,), kind in queue.runs.items():
            held[kind] -= active[who].job.gang
        queue.choose(active, fleet.devices, now)
        started = [who for (who,) in queue.runs if (who,) not in before]
        assert started == [who for who in waiting if who in started]
        for (who,), kind in queue.runs.items():
            if (who,) not in before:
                held[kind] -= active[who].job.gang
        assert min(held.values()) >= 0
        waiting = [who for who in waiting if who not in started]
        if name == "plain":
            assert not any(
                held[kind] >= active[who].job.gang and active[who].job.speeds[kind] > 0
                for who in waiting
                for kind in held
            )
        if name == "strict" and waiting:
            first = active[waiting[0]].job
            assert not any(held[kind] >= first.gang and first.speeds[kind] > 0 for kind in held)

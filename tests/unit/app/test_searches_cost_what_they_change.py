# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Many searches, which any tenant may create, keep no one else waiting."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from builders_raw import CREATED_S, raw_tuning_job
from ullage.app import tuning_service
from ullage.app.tuning_service import MOST_CREATES, BackgroundHooks, TuningService
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.status import tuning_status_to_wire
from ullage.cluster.records.tuning import TrialResize
from ullage.cluster.values.streams import STREAMS, TUNING_JOBS
from ullage.scheduling.model.plan import Action, CreateTrial, SetTuningStatus
from ullage.scheduling.tuning.step import Around, TuningStep, next_step

RANDOM = {"ref": "Random", "maxEpochs": 9}


def waits_for_suggestions(number: int, **status: object) -> dict[str, object]:
    job = raw_tuning_job(
        f"search-{number}",
        algorithm={"ref": "External", "maxEpochs": 9},
        suggestions=[{"trial": 0, "parameters": {"lr": "none"}}],
        status=status,
    )
    job["metadata"]["uid"] = f"uid-{number}"
    return job


@dataclass
class Rig:
    """Searches that wait for their clients; ``taken`` are names of those that were looked at."""

    many: int = 5
    epoch: int | None = 1
    time_s: float = CREATED_S
    taken: list[str] = field(default_factory=list)
    created: Counter[str] = field(default_factory=Counter)
    """TrainingJobs by namespace."""
    lags: bool = False
    """The API does not show what was written."""
    asked: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = ClusterState(lambda _: None)
        for stream in STREAMS:
            self.state.replace(stream, [], self.time_s)
        jobs = [waits_for_suggestions(number) for number in range(self.many)]
        self.state.replace(TUNING_JOBS, jobs, self.time_s)
        hooks = BackgroundHooks(synced=lambda: True, epoch=lambda: self.epoch, submit=self.submit)
        self.service = TuningService(self.state, hooks, clock=self)

    def now(self) -> float:
        return self.time_s

    def monotonic(self) -> float:
        return self.time_s

    def submit(self, actions: Sequence[Action]) -> None:
        """Every status of a search that waits is written, and seen."""
        self.asked.extend(actions)
        for one in () if self.lags else actions:
            if isinstance(one, CreateTrial):
                self.created[one.owner.namespace] += 1
            if isinstance(one, SetTuningStatus) and one.target.name.startswith("search-"):
                number = int(one.target.uid.removeprefix("uid-"))
                status = tuning_status_to_wire(one.status)
                self.state.upsert(TUNING_JOBS, waits_for_suggestions(number, **status), self.time_s)

    def statuses(self) -> list[SetTuningStatus]:
        return [one for one in self.asked if isinstance(one, SetTuningStatus)]

    def something_else_changes(self) -> None:
        self.state.set_routers({})
        self.time_s += 1.0

    def looked_at(self) -> list[str]:
        """Names of the searches that a look takes a step of."""
        self.taken.clear()
        self.something_else_changes()
        self.service.look()
        return list(self.taken)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    made = Rig()

    def counted(job: tuning_service.TuningRecord, around: Around) -> TuningStep:
        made.taken.append(job.ref.name)
        return next_step(job, around)

    monkeypatch.setattr(tuning_service, "next_step", counted)
    return made


def test_a_search_that_needs_nothing_is_not_looked_at_until_it_changes(rig: Rig) -> None:
    assert len(rig.looked_at()) == 5, "their statuses are written"
    rig.looked_at()
    assert rig.looked_at() == [], "and read back"
    changed = waits_for_suggestions(3, **tuning_status_to_wire(_status(rig, "search-3")))
    changed["metadata"]["generation"] = 2
    rig.state.upsert(TUNING_JOBS, changed, rig.time_s)
    assert rig.looked_at() == ["search-3"]
    rig.epoch = 2
    assert len(rig.looked_at()) == 5, "a new leader looks at all"


def test_a_resize_that_the_api_does_not_show_yet_is_not_decided_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resizes(job: tuning_service.TuningRecord, around: Around) -> TuningStep:
        step = next_step(job, around)
        resize = TrialResize(trial=0, epoch=9, from_percent=50, to_percent=100, time=around.now)
        return replace(step, status=replace(step.status, resizes=(resize,)))

    monkeypatch.setattr(tuning_service, "next_step", resizes)
    rig.lags = True
    for _ in range(4):
        rig.looked_at()
    assert len(rig.statuses()) == 5, "once for each search"
    for _ in range(3):
        rig.looked_at()
    assert len(rig.statuses()) == 10, "again where it may have been lost"


def test_a_search_is_looked_at_again_when_time_alone_changes_its_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = CREATED_S + 600.0

    def stalls(job: tuning_service.TuningRecord, around: Around) -> TuningStep:
        rig.taken.append(job.ref.name)
        again_at = at if job.ref.name == "search-2" and around.now < at else 0.0
        return replace(next_step(job, around), again_at=again_at)

    monkeypatch.setattr(tuning_service, "next_step", stalls)
    for _ in range(2):
        rig.looked_at()
    assert rig.looked_at() == []
    rig.time_s = at - 2.0
    assert rig.looked_at() == []
    assert rig.looked_at() == ["search-2"], "though nothing of it has changed"
    assert rig.looked_at() == []


def test_a_namespace_begins_some_trials_at_each_look(rig: Rig) -> None:
    searches = [
        raw_tuning_job("wide", algorithm=RANDOM, trials=40, parallelism=40),
        raw_tuning_job("wider", algorithm=RANDOM, trials=40, parallelism=40),
        raw_tuning_job("other", algorithm=RANDOM, trials=2, parallelism=2),
    ]
    for number, one in enumerate(searches):
        one["metadata"]["uid"] = f"uid-{number}"
    searches[2]["metadata"]["namespace"] = "another"
    rig.state.replace(TUNING_JOBS, searches, rig.time_s)
    rig.service.look()
    assert rig.created == {"default": MOST_CREATES, "another": 2}
    rig.service.look()
    assert rig.created == {"default": 2 * MOST_CREATES, "another": 2}, "nothing has to change"


async def test_others_are_served_between_two_searches(rig: Rig) -> None:
    service = asyncio.create_task(rig.service.run())
    turns = 0
    while len(rig.taken) < rig.many:
        await asyncio.sleep(0)
        turns += 1
    service.cancel()
    await asyncio.gather(service, return_exceptions=True)
    assert turns >= rig.many


async def test_one_that_leads_no_more_looks_at_no_other_search(rig: Rig) -> None:
    service = asyncio.create_task(rig.service.run())
    while not rig.taken:
        await asyncio.sleep(0)
    rig.epoch = None
    await asyncio.sleep(0.02)
    service.cancel()
    await asyncio.gather(service, return_exceptions=True)
    assert len(rig.taken) == 1


def _status(rig: Rig, name: str) -> tuning_service.TuningStatus:
    return next(one.status for one in rig.state.tuning_jobs().values() if one.ref.name == name)

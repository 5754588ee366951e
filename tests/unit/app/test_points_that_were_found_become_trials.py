# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A search by a sampler waits for nothing but its points, and for those only as long as it must."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field

from builders_raw import CREATED_S, raw_tuning_job
from fakes.lesson_rig import Inline
from ullage.app.suggestion_worker import Suggested
from ullage.app.suggestions import SuggestionService
from ullage.app.tuning_service import BackgroundHooks, TuningService
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values.streams import STREAMS, TUNING_JOBS
from ullage.engines.tuning.search_space import Point
from ullage.engines.tuning.suggestions import SuggestionRequest, suggest
from ullage.scheduling.model.plan import Action, CreateTrial


def numbered(payload: bytes) -> bytes:
    """The width of each point is 16 more than the trial's number."""

    def sampler(request: SuggestionRequest, trial: int, attempt: int) -> Point:
        return {"lr": 0.01, "width": 16 + trial}

    request: SuggestionRequest = pickle.loads(payload)
    return pickle.dumps(Suggested(suggestions=suggest(request, sampler), seconds=0.1))


def refuses(payload: bytes) -> bytes:
    raise ValueError("no suggestion today")


@dataclass
class Rig:
    """The operator's view of one TuningJob, its service, and what it asks to be written."""

    trials: int = 5
    leads: bool = True
    time_s: float = CREATED_S
    written: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = ClusterState(lambda _: None)
        for stream in STREAMS:
            self.state.replace(stream, [], self.time_s)
        job = raw_tuning_job(
            algorithm={"ref": "TPE", "maxEpochs": 9}, trials=self.trials, parallelism=3
        )
        self.state.replace(TUNING_JOBS, [job], self.time_s)
        hooks = BackgroundHooks(
            synced=lambda: True, epoch=lambda: 1 if self.leads else None, submit=self.submit
        )
        self.service = TuningService(self.state, hooks, clock=self)

    def now(self) -> float:
        return self.time_s

    def monotonic(self) -> float:
        return self.time_s

    def submit(self, actions: Sequence[Action]) -> None:
        self.written += actions

    def created(self) -> dict[int, dict[str, str]]:
        return {
            one.trial: dict(one.parameters) for one in self.written if isinstance(one, CreateTrial)
        }

    def sampler(self, work: object) -> SuggestionService:
        return SuggestionService(
            requests=self.service.wanted,
            publish=self.service.suggested,
            clock=self,
            work=work,  # type: ignore[arg-type]
            executor=Inline,
        )


async def test_trials_get_the_points_that_were_found_for_them() -> None:
    rig = Rig()
    sampler = rig.sampler(numbered)
    rig.service.look()
    assert rig.created() == {}
    await sampler.step()
    rig.service.look()
    assert rig.created() == {at: {"lr": "0.01", "width": str(16 + at)} for at in range(3)}


async def test_a_sampler_that_fails_leaves_no_trial_waiting() -> None:
    rig = Rig()
    sampler = rig.sampler(refuses)
    rig.service.look()
    await sampler.step()
    rig.service.look()
    assert list(rig.created()) == [0, 1, 2]
    assert sampler.stats.refused == 1


async def test_nothing_is_wanted_where_another_replica_leads_or_the_search_is_gone() -> None:
    rig = Rig()
    rig.service.look()
    assert list(rig.service.wanted() or {}) == ["uid-digits"]
    rig.leads = False
    assert rig.service.wanted() is None
    rig.leads = True
    rig.state.replace(TUNING_JOBS, [], rig.time_s)
    rig.service.look()
    assert rig.service.wanted() == {}
    rig.service.end_term()
    assert rig.service.wanted() == {}

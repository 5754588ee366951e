# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever a service, other clients, the API and restarts do, a search keeps its bounds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum

from hypothesis import given
from hypothesis import strategies as st

from fakes.examples import examples
from fakes.katib_search import KatibRig, katib_rig
from fakes.katib_service import a_reply
from ullage.cluster.projection.tuning import project_tuning_job
from ullage_katib.bridge import NoMoreTries
from ullage_katib.proto import suggestion_pb2 as messages
from ullage_katib.service import ServiceError

SPACE = [
    {"name": "n", "type": "Int", "min": 0, "max": 9},
    {"name": "act", "type": "Categorical", "values": ["relu", "tanh"]},
]
TRIALS, PARALLEL = 8, 3


class Turn(StrEnum):
    """What happens at a call of the service."""

    GOOD = "good"
    FEW = "few points"
    REPEAT = "an old point"
    WRONG = "points that are none"
    MANY = "too many points"
    FAIL = "no answer"
    REFUSE = "an error of its program"
    OTHER_CLIENT = "another client writes at once"
    REMOVED = "someone removes a trial"
    LOST = "a write whose answer is lost"
    BROKEN = "the API server fails"
    KILLED = "the process is killed after the answer"


class Killed(Exception):
    """The process is no more."""


class Service:
    """Does what is its turn; then all is well."""

    def __init__(self, rig: KatibRig, turns: Sequence[Turn], seed: int) -> None:
        self.rig = rig
        self.turns = list(turns)
        self.random = random.Random(seed)
        self.kill = False

    async def validate(self, experiment: messages.Experiment) -> None:
        assert len(experiment.spec.parameter_specs.parameters) == len(SPACE)

    async def suggest(
        self, request: messages.GetSuggestionsRequest
    ) -> messages.GetSuggestionsReply:
        asked = request.current_request_number
        assert 1 <= asked <= PARALLEL
        turn = self.turns.pop(0) if self.turns else Turn.GOOD
        stated = self.rig.suggestions
        points = [self.point() for _ in range(asked)]
        match turn:
            case Turn.FAIL | Turn.REFUSE:
                raise ServiceError("boom", refused=turn is Turn.REFUSE)
            case Turn.FEW:
                points = points[:1]
            case Turn.REPEAT if stated:
                points = [stated[0]["parameters"]]
            case Turn.WRONG:
                points = [{**points[0], "n": "10"}, {"n": "1"}, {"n": "1", "x": "2"}][:asked]
            case Turn.MANY:
                points = [*points, self.point()]
            case Turn.OTHER_CLIENT if len(stated) < TRIALS:
                number = max((one["trial"] for one in stated), default=-1) + 1
                added = {"trial": number, "parameters": self.point()}
                self.rig.edit(suggestions=[*stated, added])
            case Turn.REMOVED if stated:
                self.rig.edit(suggestions=stated[1:])
            case Turn.LOST:
                self.rig.api.fail(0, verb="patch", after_write=True)
            case Turn.BROKEN:
                self.rig.api.fail(500, times=2)
            case Turn.KILLED:
                self.kill = True
        return a_reply(*points)

    def point(self) -> dict[str, str]:
        return {"n": str(self.random.randint(0, 9)), "act": self.random.choice(["relu", "tanh"])}


async def search(turns: Sequence[Turn], seed: int) -> None:
    async with katib_rig(searchSpace=SPACE, trials=TRIALS, parallelism=PARALLEL) as rig:
        rig.score = lambda parameters: float(parameters["n"])
        service = Service(rig, turns, seed)
        foreign = Turn.OTHER_CLIENT in turns

        def check() -> None:
            record = project_tuning_job(rig.job)
            assert len(record.terms.stated) <= TRIALS
            assert not any(one.refused for one in record.terms.stated)
            points = [tuple(sorted(one.point.items())) for one in record.terms.stated]
            assert foreign or len(set(points)) == len(points)
            if service.kill:
                service.kill = False
                raise Killed

        rig.at_pause = check
        for _ in range(len(turns) + 2):
            with suppress(Killed, NoMoreTries):
                await rig.bridge(service, tries=5).run()
                break
        check()
        assert rig.ended, "with a service that works again the search comes to its end"
        assert foreign or rig.most_at_once <= PARALLEL


@examples(few=25, many=400)
@given(st.lists(st.sampled_from(Turn), max_size=12), st.integers(0, 2**16))
def test_a_search_keeps_its_bounds_and_ends(turns: list[Turn], seed: int) -> None:
    asyncio.run(search(turns, seed))

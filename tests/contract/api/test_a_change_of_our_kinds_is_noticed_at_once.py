# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's own streams notice every change of our kinds: nothing else watches them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from dataclasses import dataclass

import pytest

from builders_raw import (
    Raw,
    raw_device_profile,
    raw_gpu_node,
    raw_job,
    raw_policy,
    raw_pool,
    raw_profile,
    raw_profile_request,
    raw_service,
    raw_tuning_job,
)
from fakes.apiserver import FakeApiServer, make_cluster
from fakes.replicas import InlineLearner, InlineSolver
from ullage import ports
from ullage.api.labels import GROUP
from ullage.app.operator import Operator, Surroundings
from ullage.app.settings import HttpSettings, Settings, TriggerTimes
from ullage.cluster.values.streams import STREAMS

AT_ONCE_S = 4.0
"""Far below the times after which a stream or the loop looks again by itself."""
SELDOM = TriggerTimes(resync_seconds=3600.0)

CHANGES: dict[ports.Kind, tuple[Raw, Raw]] = {
    ports.TRAINING_JOB: (raw_job("one"), {"replicas": 2}),
    ports.INFERENCE_DEPLOYMENT: (raw_service("one", replicas=1), {"replicas": 2}),
    ports.SCHEDULING_POLICY: (raw_policy(), {"roundSeconds": 90}),
    ports.CAPACITY_POOL: (raw_pool(), {"max": 3}),
    ports.TUNING_JOB: (raw_tuning_job(), {"parallelism": 3}),
    ports.PROFILE_REQUEST: (raw_profile_request(), {"steps": 7}),
    ports.GPU_NODE: (raw_gpu_node("one"), {"epoch": 8}),
    ports.WORKLOAD_PROFILE: (raw_profile("one"), {"class": "another"}),
    ports.DEVICE_PROFILE: (raw_device_profile("one"), {"memory": "32Gi"}),
}
"""An object of each of our kinds, and a change of its spec."""


async def until(condition: Callable[[], bool], most_s: float = 60.0) -> None:
    async with asyncio.timeout(most_s):
        while not condition():
            await asyncio.sleep(0.002)


@dataclass
class Watching:
    """An operator with an open watch on each stream."""

    api: FakeApiServer
    operator: Operator

    async def notices(self, kind: ports.Kind, change: Callable[[], object]) -> None:
        """The change pokes the loop, soon, under the name of its stream."""
        pokes = self.operator.trigger.pokes
        before = pokes[kind.plural]
        change()
        await until(lambda: pokes[kind.plural] > before, AT_ONCE_S)


@pytest.fixture
async def watching(api: FakeApiServer) -> AsyncIterator[Watching]:
    async with make_cluster(api.url) as cluster:
        operator = Operator(
            Settings(identity="a", trigger=SELDOM, http=HttpSettings(port=0, debug_port=0)),
            cluster,
            Surroundings(solver=InlineSolver, learner=InlineLearner),
        )
        task = asyncio.create_task(operator.work())
        await until(lambda: operator.replica.synced() and api.open_watches == len(STREAMS))
        yield Watching(api, operator)
        operator.stop()
        await task


def test_every_kind_of_ours_has_a_stream() -> None:
    streams = {stream.kind for stream in STREAMS if stream.kind.group == GROUP}
    assert streams == CHANGES.keys()


@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.plural)
async def test_a_change_is_noticed_at_once(watching: Watching, kind: ports.Kind) -> None:
    raw, spec = deepcopy(CHANGES[kind])
    name, namespace = raw["metadata"]["name"], raw["metadata"].get("namespace", "")
    changed = {**raw, "spec": {**raw["spec"], **spec}}
    await watching.notices(kind, lambda: watching.api.put(kind, raw))
    await watching.notices(kind, lambda: watching.api.put(kind, changed))
    await watching.notices(kind, lambda: watching.api.remove(kind, name, namespace))


async def test_nothing_beside_the_streams_is_listed(watching: Watching) -> None:
    await until(lambda: watching.operator.lease.held)
    lists = Counter(seen.ask.plural for seen in watching.api.requests if seen.ask.verb == "list")
    assert lists == Counter(stream.kind.plural for stream in STREAMS)
    assert watching.api.open_watches == len(STREAMS)

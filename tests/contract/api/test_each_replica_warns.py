# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Leader and standby answer reviews where they are told a port, and write nothing for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import kopf
import pytest

from builders_raw import raw_gpu_node
from fakes.apiserver import FakeApiServer, make_cluster
from fakes.replicas import InlineLearner, InlineSolver, NoFrame
from ullage.app.operator import Operator, Surroundings
from ullage.app.settings import HttpSettings, Settings
from ullage.handlers.admission import AdmissionAdvice
from ullage.handlers.frame import Bridge, KopfFrame, Register
from ullage.handlers.session import Send
from ullage.ports import GPU_NODE, TRAINING_JOB, Forbidden
from ullage.scheduling.status.advice import ADVISED


async def until(condition: Callable[[], bool], most_s: float = 90.0) -> None:
    async with asyncio.timeout(most_s):
        while not condition():
            await asyncio.sleep(0.01)


class Noted(KopfFrame):
    """Runs nothing; notes what admission would run with."""

    runs: ClassVar[list[tuple[Send, Register]]]
    fails: ClassVar[bool] = False

    async def run(self, send: Send, register: Register) -> None:
        self.runs.append((send, register))
        if self.fails:
            raise RuntimeError("kopf ended by itself")
        await asyncio.Event().wait()


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> type[Noted]:
    monkeypatch.setattr(Noted, "runs", [], raising=False)
    monkeypatch.setattr("ullage.app.operator.KopfFrame", Noted)
    return Noted


@asynccontextmanager
async def replica(api: FakeApiServer, name: str, port: int) -> AsyncIterator[Operator]:
    async with make_cluster(api.url) as cluster:
        operator = Operator(
            Settings(identity=name, http=HttpSettings(port=0, debug_port=0, admission_port=port)),
            cluster,
            Surroundings(solver=InlineSolver, learner=InlineLearner, frame=NoFrame),
        )
        task = asyncio.create_task(operator.work())
        try:
            yield operator
        finally:
            operator.stop()
            await task


async def test_leader_and_standby_see_the_cluster(api: FakeApiServer, noted: type[Noted]) -> None:
    api.put(GPU_NODE, raw_gpu_node())
    async with replica(api, "a", 9443) as first:
        await until(lambda: first.lease.held)
        async with replica(api, "b", 9443) as second:
            await until(second.replica.synced)
            await until(lambda: len(noted.runs) == 2)
            assert not second.lease.held
            for send, register in noted.runs:
                registry = kopf.OperatorRegistry()
                register(registry, Bridge(asyncio.get_running_loop()))
                assert len(registry._webhooks.get_all_handlers()) == len(ADVISED)
                admission = getattr(register, "__self__", None)
                assert isinstance(admission, AdmissionAdvice)
                assert admission._folder == Path("/etc/ullage/admission")
                snapshot = await admission._look()
                assert snapshot is not None
                assert snapshot.gpu_nodes
                with pytest.raises(Forbidden):
                    await send(TRAINING_JOB, "default", "train", [])


async def test_without_a_port_nothing_is_answered(api: FakeApiServer, noted: type[Noted]) -> None:
    async with replica(api, "a", 0) as operator:
        await until(lambda: operator.lease.held)
        assert not noted.runs


async def test_its_faults_make_no_replica_unhealthy(
    api: FakeApiServer, noted: type[Noted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noted, "fails", True)
    async with replica(api, "a", 9443) as operator:
        await until(lambda: operator.lease.held and len(noted.runs) > 1)
        assert not operator.replica.supervisor.failures, "what health looks at"


async def test_a_replica_that_has_not_seen_all_says_so(
    api: FakeApiServer, noted: type[Noted]
) -> None:
    async with make_cluster(api.url) as cluster:
        operator = Operator(
            Settings(http=HttpSettings(port=0, debug_port=0, admission_port=9443)), cluster
        )
        task = asyncio.create_task(operator._warn())
        await until(lambda: bool(noted.runs))
        admission = getattr(noted.runs[0][1], "__self__", None)
        assert isinstance(admission, AdmissionAdvice)
        assert await admission._look() is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from docs.generate.crds.definition import schema
from fakes.kubelet_backend import a_device
from structure import faults
from ullage.api.gpunode import GPUNode
from ullage.api.loads import ObservedLoad
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, ObservedRank, SliceKey, SlicePhase
from ullage_node.api_client import ApiServerError
from ullage_node.kubelet.registrar import Registration
from ullage_node.model.devices import Attachment, AttachState, ContainerKey, StepProgress
from ullage_node.model.slices import HeldSlice, SliceRefusal
from ullage_node.publisher import Publisher
from ullage_node.status import (
    NodeFacts,
    StatusFacts,
    body_of,
    effective,
    judge,
    loaded_slices,
    observed_slices,
    timestamp,
    urgent_digest,
    with_transitions,
)
from ullage_node.times import STATUS_SETTLE_S

KEY = ContainerKey(pod_uid="uid-1", container="main")
PART = DesiredSlice(
    key=SliceKey(pod_uid="uid-1", container="main"),
    pod_namespace="team",
    pod_name="trainer",
    gpu="gpu-0",
    percent=40,
    memory_mib=1000,
    epoch=3,
)
HELD = HeldSlice(desired=PART, phase=SlicePhase.ATTACHED)
REGISTERED = Registration(registered=True)
SEEN = Attachment(state=AttachState.ENFORCED, pids=(4711, 0), memory_used_mib=77)
MADE = StepProgress(steps=5, items=50, step_micros=900, solo_step_micros=300)


def facts(**change: object) -> StatusFacts:
    base = StatusFacts(
        name="node-a",
        uid="uid-of-node",
        generation=2,
        epoch=3,
        version="0.1.0",
        driver="cgroup v2",
        devices=(a_device(),),
        slices=observed_slices([HELD], {KEY: SEEN}, {KEY: MADE}),
        slots=8,
        used_slots=1,
        conditions=with_transitions(
            judge(NodeFacts(registration=REGISTERED)), (), "2026-01-01T00:00:00Z", 2
        ),
    )
    return replace(base, **change)  # type: ignore[arg-type]


def conditions(node: NodeFacts) -> dict[str, tuple[bool, str]]:
    return {found.type: (found.status, found.reason.value) for found in judge(node)}


def test_the_body_is_what_the_schema_expects() -> None:
    body = body_of(facts(), "2026-01-01T00:00:00Z")
    status: Any = body["status"]
    assert faults(schema(GPUNode)["properties"]["status"], status) == []
    assert status["slices"][0]["soloStepMicros"] == 300
    assert status["slices"][0]["pids"] == [4711]


def test_time_alone_is_the_containers_own_where_the_node_can_tell() -> None:
    decided = replace(HELD, desired=replace(HELD.desired, solo_step_micros=250))
    for made, micros in ((MADE, 300), (replace(MADE, solo_step_micros=0), 250)):
        (seen,) = observed_slices([decided], {KEY: SEEN}, {KEY: made})
        assert seen.solo_step_micros == micros


def test_counters_and_heartbeat_are_not_urgent() -> None:
    body = body_of(facts(), "2026-01-01T00:00:00Z")
    later = body_of(
        facts(slices=observed_slices([HELD], {KEY: replace(SEEN, memory_used_mib=80)}, {})),
        "2026-01-01T00:01:00Z",
    )
    assert urgent_digest(body) == urgent_digest(later)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 4},
        {"generation": 3},
        {
            "devices": (
                effective(a_device(), SliceRefusal(reason=Reason.DEVICE_UNHEALTHY, message="")),
            )
        },
        {"slices": observed_slices([replace(HELD, phase=SlicePhase.FAILED)], {}, {})},
        {"slices": observed_slices([replace(HELD, reason="Draining")], {}, {})},
        {"slots": 9},
        {"uid": "another-object"},
    ],
)
def test_everything_else_is(change: dict[str, object]) -> None:
    moment = "2026-01-01T00:00:00Z"
    assert urgent_digest(body_of(facts(), moment)) != urgent_digest(
        body_of(facts(**change), moment)
    )


def test_where_a_start_resumed_is_told_with_the_counters() -> None:
    """With the heartbeat: what a tenant writes a thousand times makes no more writes of ours."""
    resumed = replace(MADE, resumed_at=5_000)
    (slice_,) = observed_slices([HELD], {KEY: SEEN}, {KEY: resumed})
    assert (slice_.steps, slice_.resumed_at) == (5, 5_000)
    moment = "2026-01-01T00:00:00Z"
    before = observed_slices([HELD], {KEY: SEEN}, {KEY: MADE})
    assert urgent_digest(body_of(facts(slices=(slice_,)), moment)) == urgent_digest(
        body_of(facts(slices=before), moment)
    )


def stepping(count: int) -> StepProgress:
    """A container with so many ranks, the last one the slowest."""
    ranks = tuple(
        ObservedRank(rank=rank, steps=5, step_micros=90, compute_micros=10 + rank)
        for rank in range(count)
    )
    return replace(MADE, ranks=ranks)


def test_ranks_are_told_with_the_counters_and_once_a_container() -> None:
    second = replace(PART, key=replace(PART.key, index=1))
    both = [HELD, replace(HELD, desired=second)]
    slices = observed_slices(both, {KEY: SEEN}, {KEY: stepping(2)})
    assert [len(part.ranks) for part in slices] == [2, 0]
    before = observed_slices(both, {KEY: SEEN}, {KEY: MADE})
    digests = {urgent_digest(body_of(facts(slices=told), "t")) for told in (slices, before)}
    assert len(digests) == 1


def test_of_many_ranks_a_node_tells_the_slowest_of_each_container() -> None:
    keys = [ContainerKey(pod_uid=f"uid-{number}", container="main") for number in range(20)]
    held = [
        replace(HELD, desired=replace(PART, key=SliceKey(pod_uid=key.pod_uid, container="main")))
        for key in keys
    ]
    slices = observed_slices(held, {}, {key: stepping(16) for key in keys})
    assert {tuple(rank.rank for rank in part.ranks) for part in slices} == {(13, 14, 15)}


def test_memory_of_a_container_is_said_once() -> None:
    second = replace(PART, key=replace(PART.key, index=1))
    both = observed_slices([HELD, replace(HELD, desired=second)], {KEY: SEEN}, {})
    assert [part.memory_used_mib for part in both] == [77, 0]


PROBLEM = SliceRefusal(reason=Reason.DEVICE_CONFIG_MISSING, message="no file")


@pytest.mark.parametrize(
    ("node", "ready", "degraded"),
    [
        (NodeFacts(registration=REGISTERED), (True, "Registered"), (False, "Registered")),
        (
            NodeFacts(registration=Registration(problem="no socket")),
            (False, "KubeletAway"),
            (False, "Registered"),
        ),
        (
            NodeFacts(registration=Registration(foreign="2 nvidia.com/gpu")),
            (False, "ForeignPlugin"),
            (True, "ForeignPlugin"),
        ),
        (
            NodeFacts(registration=Registration(), backend_problem=PROBLEM),
            (False, "DeviceConfigMissing"),
            (True, "DeviceConfigMissing"),
        ),
        (
            NodeFacts(registration=Registration(), late_binding=False),
            (False, "CDIUnavailable"),
            (True, "CDIUnavailable"),
        ),
        (
            NodeFacts(registration=REGISTERED, problems=("spec.slices[0].gpu: missing",)),
            (True, "Registered"),
            (True, "InvalidObject"),
        ),
        (
            NodeFacts(registration=Registration(), retired=True),
            (False, "Retired"),
            (False, "Registered"),
        ),
    ],
)
def test_conditions_say_how_the_node_stands(
    node: NodeFacts, ready: tuple[bool, str], degraded: tuple[bool, str]
) -> None:
    found = conditions(node)
    assert (found["Ready"], found["Degraded"]) == (ready, degraded)
    assert ("Retired" in found) == node.retired
    assert found["LateBinding"][0] == node.late_binding


def test_a_transition_time_changes_only_with_the_status() -> None:
    first = with_transitions(judge(NodeFacts(registration=REGISTERED)), (), "t1", 1)
    away = judge(NodeFacts(registration=Registration(problem="x")))
    second = {
        str(c["type"]): c["lastTransitionTime"] for c in with_transitions(away, first, "t2", 1)
    }
    assert second == {"Ready": "t2", "Degraded": "t1", "LateBinding": "t1"}


class Writer:
    """Counts what is written; refuses while told to."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, object]] = []
        self.refusing = False

    async def apply_status(self, name: str, body: Mapping[str, object]) -> None:
        if self.refusing:
            raise ApiServerError(503, "not now")
        self.bodies.append(body)


def a_publisher(writer: Writer, bodies: list[Mapping[str, object] | None]) -> Publisher:
    return Publisher(writer, "node-a", lambda: bodies[-1], heartbeat_seconds=1000.0)


async def test_an_unchanged_status_is_written_once() -> None:
    writer, bodies = Writer(), [body_of(facts(), "t")]
    publisher = a_publisher(writer, list(bodies))
    assert [await publisher.publish() for _ in range(5)] == [True] + [False] * 4


async def test_a_wall_clock_that_jumps_neither_floods_nor_silences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Writer()
    bodies: list[Mapping[str, object] | None] = [body_of(facts(), timestamp(0.0))]
    publisher = a_publisher(writer, bodies)
    monotonic = 5000.0
    monkeypatch.setattr("ullage_node.publisher.time.monotonic", lambda: monotonic)
    assert await publisher.publish()
    for jump in (-86_400.0, 86_400.0, 1.0):
        bodies.append(body_of(facts(), timestamp(1e9 + jump)))
        assert not await publisher.publish()
    monotonic += 1000.0
    bodies.append(body_of(facts(), timestamp(1.0)))
    assert await publisher.publish()
    assert writer.bodies == [bodies[0], bodies[-1]]


STARTING = (SlicePhase.RESERVED, SlicePhase.PREPARED, SlicePhase.ATTACHED)


def test_starts_of_a_burst_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, monotonic, second = Writer(), 5000.0, replace(PART, key=replace(PART.key, index=1))
    held = [replace(HELD, desired=one, phase=SlicePhase.RESERVED) for one in (PART, second)]

    def body() -> Mapping[str, object]:
        slices = observed_slices(held, {}, {})
        started = sum(part.phase is not SlicePhase.RESERVED for part in held)
        return body_of(facts(slices=slices, used_slots=started), "t")

    publisher = Publisher(writer, "n", body, heartbeat_seconds=1000.0, starts_seconds=1.0)
    monkeypatch.setattr("ullage_node.publisher.time.monotonic", lambda: monotonic)

    async def main() -> list[float]:
        nonlocal monotonic
        written = [0.0] if await publisher.publish() else []
        for tick in range(1, 31):
            monotonic = 5000.0 + tick / 8
            if tick in (2, 5, 6, 9):
                at = tick % 2
                step = STARTING.index(held[at].phase) + 1
                held[at] = replace(held[at], phase=STARTING[step])
            if tick == 20:
                held[0] = replace(held[0], phase=SlicePhase.FAILED)
            written += [tick / 8] if await publisher.publish() else []
        return written

    assert asyncio.run(main()) == [0.0, 1.25, 2.5], "a failure waits for no one"


async def test_a_start_that_is_taken_back_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, monotonic, phase = Writer(), 5000.0, SlicePhase.RESERVED

    def body() -> Mapping[str, object]:
        return body_of(facts(slices=observed_slices([replace(HELD, phase=phase)], {}, {})), "t")

    publisher = Publisher(writer, "n", body, heartbeat_seconds=1000.0, starts_seconds=1.0)
    monkeypatch.setattr("ullage_node.publisher.time.monotonic", lambda: monotonic)
    assert await publisher.publish()
    for after, reached in ((0.5, SlicePhase.PREPARED), (0.9, SlicePhase.RESERVED)):
        monotonic, phase = 5000.0 + after, reached
        assert not await publisher.publish()
    monotonic = 5002.0
    phase = SlicePhase.ATTACHED
    assert not await publisher.publish(), "its time begins when it is seen"


async def test_loads_are_told_every_ten_seconds_and_their_end_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer, monotonic = Writer(), 5000.0
    quiet = facts()
    told = loaded_slices(quiet.slices, {KEY: ObservedLoad(seconds=15)})
    now = [replace(quiet, slices=told)]
    publisher = Publisher(writer, "n", lambda: body_of(now[-1], "t"), heartbeat_seconds=1000.0)
    monkeypatch.setattr("ullage_node.publisher.time.monotonic", lambda: monotonic)
    written = []
    for second in range(61):
        monotonic = 5000.0 + second
        if second == 35:
            now.append(quiet)
        written += [second] if await publisher.publish() else []
    assert written == [0, 10, 20, 30, 40]


async def test_a_status_that_failed_is_written_again() -> None:
    writer = Writer()
    publisher = a_publisher(writer, [body_of(facts(), "t")])
    writer.refusing = True
    assert not await publisher.publish()
    writer.refusing = False
    assert await publisher.publish()
    assert (publisher.writes, publisher.failures) == (1, 1)


async def test_without_an_object_nothing_is_written() -> None:
    publisher = a_publisher(Writer(), [None])
    assert not await publisher.publish()


async def test_another_object_gets_everything_again() -> None:
    writer = Writer()
    publisher = a_publisher(writer, [body_of(facts(), "t")])
    await publisher.publish()
    publisher.forget()
    assert await publisher.publish()


async def test_a_burst_of_changes_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, sleep = Writer(), asyncio.sleep
    bodies: list[Mapping[str, object] | None] = [body_of(facts(), "t")]
    publisher = a_publisher(writer, bodies)
    settles, burst_over = asyncio.Event(), asyncio.Event()

    async def settle(seconds: float) -> None:
        assert seconds == STATUS_SETTLE_S
        settles.set()
        await burst_over.wait()

    monkeypatch.setattr("ullage_node.publisher.asyncio.sleep", settle)
    task = asyncio.create_task(publisher.run())
    publisher.poke()
    await settles.wait()
    for epoch in range(4, 40):
        bodies.append(body_of(facts(epoch=epoch), "t"))
        publisher.poke()
        await sleep(0)
    assert writer.bodies == []
    burst_over.set()
    while not writer.bodies:
        await sleep(0)
    for _ in range(10):
        await sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert writer.bodies == [bodies[-1]]

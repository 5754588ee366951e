# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from fakes import writer_rig as do
from fakes.virtual_time import run_virtual
from fakes.writer_rig import Rig, a_rig
from ullage.api.reasons import Reason
from ullage.cluster.records.object_ref import ObjectRef
from ullage.kube.events import event_body
from ullage.ports import Forbidden, NotFound
from ullage.scheduling.model.plan import Emit


def events(rig: Rig) -> list[dict[str, object]]:
    return [held for (kind, _, _), held in rig.cluster.objects.items() if kind == "Event"]


def test_an_event_stands_on_the_users_own_object() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            await rig.write(do.emit("placed on node-1"))
            return rig

    (event,) = events(run_virtual(main()))
    assert event["involvedObject"] == {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": "train",
        "namespace": "default",
        "uid": "uid-train",
    }
    assert (event["type"], event["reason"], event["message"]) == (
        "Normal",
        "Placed",
        "placed on node-1",
    )
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-02T03:04:05Z"
    assert event["count"] == 1


def test_the_same_words_again_are_no_news() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            for _ in range(5):
                await rig.write(do.emit("waiting", Reason.NO_CAPACITY))
            return rig

    assert len(run_virtual(main()).cluster.calls) == 1


def test_events_of_one_reason_are_one_event_that_counts() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            await rig.write(do.emit("on node-1"))
            await rig.write(do.emit("evicted", Reason.PREEMPTED))
            await rig.write(do.emit("on node-2"))
            return rig

    rig = run_virtual(main())
    placed = next(event for event in events(rig) if event["reason"] == "Placed")
    assert (placed["count"], placed["message"]) == (2, "on node-2")
    assert placed["lastTimestamp"] == "2026-01-02T03:04:15Z"
    assert len(events(rig)) == 2


def test_a_new_leader_goes_on_counting() -> None:
    async def main() -> Rig:
        async with a_rig() as first:
            await first.write(do.emit("on node-1"))
            async with a_rig() as second:
                second.cluster.objects = first.cluster.objects
                await second.write(do.emit("on node-2"))
                return second

    rig = run_virtual(main())
    (event,) = events(rig)
    assert event["count"] == 2
    assert [call.verb for call in rig.cluster.calls] == ["create", "get", "patch"]


def test_an_event_that_aged_away_is_made_again() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            await rig.write(do.emit("on node-1"))
            rig.cluster.objects.clear()
            rig.cluster.fail(NotFound(404, "expired"), verb="patch")
            await rig.write(do.emit("on node-2"))
            return rig

    (event,) = events(run_virtual(main()))
    assert event["count"] == 1


def test_a_refused_event_is_counted_and_harms_no_one() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.fail(Forbidden(403, "namespace is being terminated"), kind="Event")
            await rig.write(do.emit(), do.delete())
            return rig

    rig = run_virtual(main())
    assert rig.stats.writes["create", "Event", "forbidden"] == 1
    assert [type(action).__name__ for action, _ in rig.results] == ["DeletePod"]


def test_events_on_cluster_scoped_objects_stand_in_default() -> None:
    target = ObjectRef(kind="SchedulingPolicy", namespace="", name="default", uid="u")
    action = Emit(
        target=target, warning=True, epoch=1, reason=Reason.SOLVER_TIMEOUT, text="x" * 2000
    )
    body = event_body(action, 0.0, "me")
    assert body["metadata"]["namespace"] == "default"  # type: ignore[index]
    assert "namespace" not in body["involvedObject"]  # type: ignore[operator]
    assert body["type"] == "Warning"
    assert len(str(body["message"])) == 1024

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A replica that has to leave its device: its replacement serves first, where there is room."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_deployment,
    a_gpu_node,
    a_kube_service,
    a_pod,
    a_policy,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided, told
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.scheduling.model.plan import ApplyDeployment, EvictPod
from ullage.scheduling.times import REPLACEMENT_MOST_S

LEARNED = a_policy(learned=True)
PLAIN = a_service().fractional(50, 50)


@dataclass(frozen=True)
class At:
    """A replica, the device it has, and how it does."""

    name: str
    device: int = 0
    blamed: bool = False
    stage: PodStage = PodStage.RUNNING
    ready: bool = True
    deleting: bool = False
    placed: bool = True
    since: float = NOW - 30


def _pod(service: WorkloadBuilder, at: At) -> PodRecord:
    return a_pod(
        f"serve-{at.name}",
        owner=service.build(),
        stage=at.stage,
        node="" if at.stage is PodStage.GATED else "node-1",
        ready=at.ready and at.stage is PodStage.RUNNING,
        deleting=at.deleting,
        since=at.since,
    )


def _parts(
    service: WorkloadBuilder, *replicas: At, devices: int, deployed: int | None = None
) -> list[Part]:
    pods = [_pod(service, at) for at in replicas]
    held, seen = [], []
    for at, pod in zip(replicas, pods, strict=True):
        if not at.placed:
            continue
        wanted = a_slice(pod, device=gpu("node-1", at.device), percent=50, memory_mib=1000)
        reason = Reason.INTERFERING.value if at.blamed else ""
        held.append(wanted)
        phase = SlicePhase.ATTACHED if at.stage is PodStage.RUNNING else SlicePhase.RESERVED
        seen.append(replace(reported(wanted, phase), reason=reason))
    record = service.build()
    return [
        a_gpu_node(devices=devices, desired=held, observed=seen),
        a_deployment(record, replicas=deployed, surge=1, unavailable=0, ready=len(pods)),
        a_kube_service(record),
        LEARNED,
        *pods,
    ]


def _evicted(found: Decided) -> list[str]:
    return [one.pod.name for one in found.all(EvictPod)]


def _deployed(found: Decided) -> int | None:
    """The number of replicas that the Deployment is set to; ``None`` = it is left alone."""
    applied = found.all(ApplyDeployment)
    return applied[0].replicas if applied else None


A = At("a", blamed=True)


def test_one_more_is_asked_for_and_no_one_is_evicted_yet() -> None:
    found = decided(PLAIN, *_parts(PLAIN, A, devices=2))
    assert (_evicted(found), _deployed(found)) == ([], 2)


def test_the_replacement_does_not_join_the_device_that_is_left() -> None:
    service = told(PLAIN, *_parts(PLAIN, A, devices=2))
    new = At("b", stage=PodStage.GATED, placed=False)
    found = decided(service, *_parts(service, A, new, devices=2, deployed=2))
    assert found.places()["serve-b"] == [gpu("node-1", 1)]
    assert (_evicted(found), _deployed(found)) == ([], None)


def test_the_replacement_may_take_the_only_place() -> None:
    large = a_service().fractional(60, 60)
    service = told(large, *_parts(large, A, devices=2))
    new = At("b", stage=PodStage.GATED, placed=False)
    found = decided(service, *_parts(service, A, new, devices=2, deployed=2))
    assert found.places()["serve-b"] == [gpu("node-1", 1)]
    assert (_evicted(found), _deployed(found)) == ([], None)


def test_a_service_that_was_placed_long_ago_is_kept_away_all_the_same() -> None:
    calm = told(PLAIN, *_parts(PLAIN, replace(A, blamed=False), devices=2))
    assert calm.build().status.decision is not None
    blamed = told(calm, *_parts(calm, A, devices=2), at=NOW + 1)
    decision = blamed.build().status.decision
    assert decision is not None
    assert [one.reason for one in decision.refusals] == [Reason.INTERFERING]
    again = told(blamed, *_parts(blamed, A, devices=2), at=NOW + 2)
    assert again.build().status.decision == decision


@pytest.mark.parametrize(
    "new",
    [
        At("b", 1, stage=PodStage.GATED),
        At("b", 1, stage=PodStage.UNSCHEDULED),
        At("b", 1, ready=False),
    ],
    ids=["reserved", "on its way", "not ready"],
)
def test_while_the_replacement_starts_the_old_one_serves(new: At) -> None:
    service = told(PLAIN, *_parts(PLAIN, A, devices=2))
    found = decided(service, *_parts(service, A, new, devices=2, deployed=2))
    assert (_evicted(found), _deployed(found)) == ([], None)


def test_once_it_serves_the_old_one_goes_and_then_the_number_goes_back() -> None:
    new = At("b", 1)
    service = told(PLAIN, *_parts(PLAIN, A, devices=2))
    found = decided(service, *_parts(service, A, new, devices=2, deployed=2))
    assert (_evicted(found), _deployed(found)) == (["serve-a"], None)
    assert found.one(EvictPod).reason is Reason.INTERFERING
    leaving = replace(A, deleting=True)
    found = decided(service, *_parts(service, leaving, new, devices=2, deployed=2))
    assert (_evicted(found), _deployed(found)) == ([], 1)


@pytest.mark.parametrize(
    ("new", "evicted"),
    [
        (At("b", stage=PodStage.GATED, placed=False), []),
        (At("b", 1, stage=PodStage.UNSCHEDULED), []),
        (At("b", 1, ready=False), []),
        (At("b", 1), ["serve-a"]),
    ],
    ids=["created", "on its way", "not ready", "serves"],
)
def test_a_move_that_has_begun_is_finished_though_the_guard_forgets(
    new: At, evicted: list[str]
) -> None:
    service = told(PLAIN, *_parts(PLAIN, A, devices=2))
    forgotten = replace(A, blamed=False)
    found = decided(service, *_parts(service, forgotten, new, devices=2, deployed=2))
    assert (_evicted(found), _deployed(found)) == (evicted, None)


def test_what_the_guard_forgot_before_anything_was_begun_is_over() -> None:
    service = told(PLAIN, *_parts(PLAIN, A, devices=2))
    forgotten = replace(A, blamed=False)
    found = decided(service, *_parts(service, forgotten, devices=2))
    assert (_evicted(found), _deployed(found)) == ([], None)


def test_who_was_not_blamed_stays_when_the_number_is_lowered() -> None:
    service = told(PLAIN.replicas(2), *_parts(PLAIN.replicas(2), A, At("b", 1), devices=3))
    one = service.replicas(1)
    gone = (At("b", 1), At("c", 2))
    found = decided(one, *_parts(one, *gone, devices=3, deployed=2))
    assert (_evicted(found), _deployed(found)) == ([], 1)


def test_several_go_one_after_the_other() -> None:
    service = PLAIN.replicas(2)
    both = (A, At("b", 1, blamed=True))
    found = decided(service, *_parts(service, *both, devices=4))
    assert (_evicted(found), _deployed(found)) == ([], 3)
    found = decided(service, *_parts(service, *both, At("c", 2), devices=4, deployed=3))
    assert (_evicted(found), _deployed(found)) == (["serve-a"], None)
    rest = (replace(A, deleting=True), both[1], At("c", 2))
    found = decided(service, *_parts(service, *rest, devices=4, deployed=3))
    assert (_evicted(found), _deployed(found)) == ([], None)


def test_without_room_they_go_one_at_a_time() -> None:
    service = PLAIN.fractional(60, 60).replicas(2)
    both = (A, At("b", 1, blamed=True))
    found = decided(service, *_parts(service, *both, devices=2))
    assert (_evicted(found), _deployed(found)) == (["serve-a"], None)
    rest = (replace(A, deleting=True), both[1])
    assert _evicted(decided(service, *_parts(service, *rest, devices=2))) == []
    new = At("c", 0, stage=PodStage.BOUND)
    assert _evicted(decided(service, *_parts(service, both[1], new, devices=2))) == []
    settled = (both[1], At("c", 0))
    assert _evicted(decided(service, *_parts(service, *settled, devices=2))) == ["serve-b"]


def test_a_replacement_that_is_refused_a_place_is_not_waited_for() -> None:
    new = At("b", stage=PodStage.GATED, placed=False)
    found = decided(PLAIN, *_parts(PLAIN, A, new, devices=1, deployed=2))
    assert (_evicted(found), _deployed(found)) == (["serve-a"], 1)


def test_a_service_that_is_scaled_to_nothing_replaces_no_one() -> None:
    found = decided(PLAIN.replicas(0), *_parts(PLAIN, A, devices=2))
    assert (_evicted(found), _deployed(found)) == ([], 0)


def test_patience_with_the_replacement_ends() -> None:
    service = told(PLAIN, *_parts(PLAIN, A, devices=2))
    new = At("b", 1, ready=False)
    parts = _parts(service, A, new, devices=2, deployed=2)
    later = NOW + REPLACEMENT_MOST_S
    fresh = replace(parts[0], heartbeat=later)  # type: ignore[type-var]
    waiting = decided(service, *parts)
    assert waiting.plan.wake_at == later
    assert _evicted(decided(service, fresh, *parts[1:], at=later)) == ["serve-a"]


def test_during_an_update_pods_come_and_go_anyway() -> None:
    service = PLAIN.with_(template_hash="fedcba987654")
    parts = _parts(service, A, devices=1)
    found = decided(service, *parts[:-1], replace(parts[-1], template_hash="0123456789ab"))  # type: ignore[type-var]
    assert _evicted(found) == ["serve-a"]
    assert _deployed(found) in (None, 1)


def test_who_fails_its_trial_goes_at_once() -> None:
    service = PLAIN
    parts = _parts(service, replace(A, blamed=False), devices=2)
    node = parts[0]
    wanted = replace(node.desired[0], probation=True)  # type: ignore[union-attr]
    seen = replace(node.observed[0], phase=SlicePhase.VIOLATING)  # type: ignore[union-attr]
    own = replace(node, desired=(replace(wanted, protected=True),), observed=(seen,))  # type: ignore[type-var]
    found = decided(service.slowdown(2), own, *parts[1:])
    assert _evicted(found) == ["serve-a"]


def _edited(*, devices: int, replicas: int = 1) -> tuple[WorkloadBuilder, list[Part]]:
    """Alone at one half of a device it runs at half its speed: too slow for the new objective."""
    lax = a_service().fractional(50, 100).slowdown(3).replicas(replicas)
    ats = [At(name, device) for device, name in enumerate("abc"[:replicas])]

    def parts() -> list[Part]:
        found = _parts(lax, *ats, devices=devices)
        node = found[0]
        held = tuple(
            replace(one, protected=True, max_slowdown_percent=300)
            for one in node.desired  # type: ignore[union-attr]
        )
        return [replace(node, desired=held), *found[1:3], a_policy(), *found[4:]]  # type: ignore[type-var]

    return told(lax, *parts()).with_(generation=2, max_slowdown=1.5), parts()


def test_an_edited_objective_moves_replicas_beside_their_replacements() -> None:
    service, parts = _edited(devices=2)
    found = decided(service, *parts)
    assert (_evicted(found), _deployed(found)) == ([], 2)
    bad = found.condition(service, "Degraded")
    assert bad.reason == Reason.PREDICTED_SLO_BREACH
    assert "replicas are replaced one after the other" in bad.message
    assert found.status(service).phase == "Ready"


def test_an_edited_objective_stops_no_one_where_no_place_is_better() -> None:
    service, parts = _edited(devices=1)
    found = decided(service, *parts)
    assert (_evicted(found), _deployed(found)) == ([], None)
    assert "it stays" in found.condition(service, "Degraded").message


def test_an_edited_objective_may_stop_one_of_several_that_frees_its_own_better_place() -> None:
    service, parts = _edited(devices=2, replicas=2)
    assert _evicted(decided(service, *parts)) == []
    sharing = replace(service.build().sharing, resizable=True)
    assert _evicted(decided(service.with_(sharing=sharing), *parts)) == ["serve-a"]

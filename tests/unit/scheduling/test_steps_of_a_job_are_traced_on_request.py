# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A ProfileRequest traces the same steps in all ranks, or ends with the reason why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.trace_world import BEGAN, AgentOfNode, TraceWorld, a_request
from ullage.api.reasons import ConditionType, Reason
from ullage.api.traces import ObservedTrace, TraceState
from ullage.cluster.records.trace import ProfileRequestStatus
from ullage.scheduling.observation.profile_requests import (
    MOST_OF_CLUSTER,
    MOST_OF_NAMESPACE,
    admitted,
    first_step,
    is_expired,
    orders_by_node,
)
from ullage.scheduling.observation.traced_pods import PodOfJob, chosen_pods, spread


def _reason(status: ProfileRequestStatus) -> str:
    return status.conditions[0].reason


def _failed_for(world: TraceWorld) -> str:
    status = world.request.status
    assert status.phase == "Failed", status
    assert [(one.type, one.status) for one in status.conditions] == [
        (ConditionType.COMPLETE, "False"),
        (ConditionType.FAILED, "True"),
    ]
    assert status.message
    return _reason(status)


def test_all_ranks_trace_the_same_steps() -> None:
    world = TraceWorld(pods=4, nodes=2)
    world.run()
    status = world.request.status
    assert (status.phase, _reason(status)) == ("Done", Reason.TRACE_DONE)
    assert [(capture.rank, capture.state) for capture in status.ranks] == [
        (rank, "Done") for rank in range(4)
    ]
    assert status.window is not None
    assert status.result is not None
    assert status.window.last_step == status.window.first_step + 4
    assert status.result.first_step == status.window.first_step
    assert status.result.steps == 5
    assert status.message.startswith("4 ranks, steps ")
    assert "compute 41 %" in status.message


def test_phases_follow_each_other() -> None:
    world = TraceWorld(pods=2)
    phases: list[str] = []
    while not world.request.status.is_over:
        world.go_on(seconds=0.5)
        phase = world.request.status.phase
        if phases[-1:] != [phase]:
            phases.append(phase)
    assert phases == ["Pending", "Armed", "Capturing", "Done"]


def test_nothing_is_left_on_nodes_at_the_end() -> None:
    world = TraceWorld()
    world.run()
    assert not any(agent.orders or agent.reports for agent in world.agents.values())
    assert not orders_by_node(world.requests.values())


def test_a_request_that_is_deleted_takes_its_orders_back() -> None:
    world = TraceWorld()
    for _ in range(3):
        world.go_on()
    request = world.request
    assert orders_by_node([request])
    assert not orders_by_node([replace(request, deleting=True)])


def test_a_repeated_look_changes_nothing() -> None:
    world = TraceWorld()
    world.ranks["pod-1"].silent = True
    for _ in range(30):
        world.go_on()
    written = world.written
    for _ in range(10):
        world.go_on()
    assert world.written == written


@pytest.mark.parametrize("pace_s", [0.001, 0.1, 7.0])
def test_the_first_step_is_ahead_of_every_rank_by_the_time_an_order_takes(pace_s: float) -> None:
    ready = [
        ObservedTrace(
            id="a",
            pod_uid=f"{step}",
            state=TraceState.READY,
            step=step,
            step_micros=int(pace_s * 1e6),
        )
        for step in (100, 130, 90)
    ]
    start, step_s = first_step(ready, waited_s=2.0)
    assert step_s == pytest.approx(pace_s)
    assert (start - 130) * pace_s >= 2 * 2.0 + 2.0
    assert (start - 132) * pace_s <= 2 * 2.0 + 2.0


def test_a_rank_that_is_late_is_asked_once_more() -> None:
    world = TraceWorld()
    world.ranks["pod-2"].ahead = 10_000
    seen: list[int] = []
    while not world.request.status.is_over:
        world.go_on()
        seen.append(world.request.status.attempt)
        if world.request.status.attempt == 2:
            world.ranks["pod-2"].ahead = 0
    assert max(seen) == 2
    assert world.request.status.phase == "Done"
    assert _reason(world.request.status) == Reason.TRACE_DONE


def test_a_rank_that_is_late_again_is_left_out() -> None:
    world = TraceWorld()
    world.ranks["pod-2"].ahead = 10_000
    world.run()
    status = world.request.status
    assert (status.phase, status.attempt) == ("Done", 2)
    assert _reason(status) == Reason.TRACE_PARTIAL
    assert [capture.reason for capture in status.ranks] == [None, None, Reason.TRACE_LATE, None]
    assert "1 ranks are missing" in status.message


@pytest.mark.parametrize("reason", [Reason.ALREADY_PROFILING, Reason.NO_PROFILER, Reason.DISK_FULL])
def test_the_reason_of_ranks_is_that_of_the_request(reason: Reason) -> None:
    world = TraceWorld()
    for rank in world.ranks.values():
        rank.refuses = reason
    world.run()
    assert _failed_for(world) == reason


def test_without_the_hook_the_line_to_add_is_named_and_nothing_is_ordered() -> None:
    world = TraceWorld()
    world.instrumented = False
    world.go_on()
    assert _failed_for(world) == Reason.NOT_INSTRUMENTED
    assert "runtime: {inject: Auto}" in world.request.status.message
    assert not any(agent.orders for agent in world.agents.values())


def test_pods_of_others_without_the_hook_say_so_after_two_minutes() -> None:
    world = TraceWorld()
    world.instrumented = None
    world.run(most_s=200)
    assert _failed_for(world) == Reason.NOT_INSTRUMENTED


def test_a_job_that_makes_no_step_says_so() -> None:
    world = TraceWorld()
    for rank in world.ranks.values():
        rank.steps, rank.pace_s = 0.0, 1e9
    world.run(most_s=200)
    assert _failed_for(world) == Reason.NO_STEPS


def test_a_job_that_does_not_exist_is_waited_for_a_minute() -> None:
    world = TraceWorld(pods=0)
    world.exists = False
    for _ in range(50):
        world.go_on()
    assert world.request.status.phase == "Pending"
    assert _reason(world.request.status) == Reason.NO_PODS
    world.run(most_s=20)
    assert _failed_for(world) == Reason.NO_PODS


def test_pods_that_start_are_waited_for_a_minute() -> None:
    world = TraceWorld()
    late = world.ranks["pod-3"]
    late.pod, late.alive = replace(late.pod, running=False, starting=True), False
    for _ in range(30):
        world.go_on()
    assert _reason(world.request.status) == Reason.NO_PODS
    late.pod, late.alive = replace(late.pod, starting=False), True
    world.run()
    assert [capture.rank for capture in world.request.status.ranks] == [0, 1, 2, 3]


def test_pods_that_never_start_do_not_hold_up_the_others() -> None:
    world = TraceWorld()
    late = world.ranks["pod-3"]
    late.pod, late.alive = replace(late.pod, starting=True), False
    world.run()
    assert [capture.rank for capture in world.request.status.ranks] == [0, 1, 2]


def test_a_job_that_has_ended_is_not_waited_for() -> None:
    world = TraceWorld()
    world.ended = True
    world.go_on()
    assert _failed_for(world) == Reason.JOB_ENDED


def test_an_agent_of_an_earlier_version_is_named() -> None:
    world = TraceWorld(nodes=2)
    for agent in world.agents.values():
        agent.knows_traces = False
    world.run(most_s=30)
    assert _failed_for(world) == Reason.AGENT_TOO_OLD


def test_an_agent_that_is_silent_is_left_out() -> None:
    world = TraceWorld(nodes=2)
    world.agents["node-1"].alive = False
    world.run(most_s=150)
    assert _reason(world.request.status) == Reason.TRACE_PARTIAL
    assert {capture.reason for capture in world.request.status.ranks} == {None, Reason.AGENT_SILENT}


def test_a_node_that_is_gone_takes_only_its_pods_along() -> None:
    world = TraceWorld(nodes=2)
    for _ in range(3):
        world.go_on()
    assert world.request.status.phase == "Armed"
    del world.agents["node-0"]
    world.run()
    reasons = [capture.reason for capture in world.request.status.ranks]
    assert reasons == [Reason.NODE_GONE, None, Reason.NODE_GONE, None]


def test_a_rank_that_never_answers_does_not_hold_up_the_others_for_ever() -> None:
    world = TraceWorld()
    world.ranks["pod-3"].silent = True
    world.run(most_s=200)
    assert _reason(world.request.status) == Reason.TRACE_PARTIAL
    assert world.request.status.ranks[3].reason == Reason.TRACE_MISSING


def test_an_agent_that_begins_again_goes_on() -> None:
    world = TraceWorld()
    for _ in range(5):
        world.go_on()
        world.agents["node-0"].restart()
    world.run()
    assert _reason(world.request.status) == Reason.TRACE_DONE


def test_a_trace_of_other_steps_is_not_joined() -> None:
    world = TraceWorld()
    world.ranks["pod-2"].off = 5
    world.run()
    assert world.request.status.ranks[2].reason == Reason.TRACE_INVALID


def test_two_traces_of_one_rank_are_not_joined() -> None:
    world = TraceWorld()
    world.ranks["pod-2"].claims = 1
    world.run()
    assert _reason(world.request.status) == Reason.TRACE_PARTIAL
    assert world.request.status.ranks[2].reason == Reason.RANK_UNKNOWN


@pytest.mark.parametrize("claims", [4, 99_999, 2**31 - 1])
def test_a_rank_beyond_the_world_is_not_joined(claims: int) -> None:
    world = TraceWorld()
    world.ranks["pod-2"].claims = claims
    world.run()
    assert world.request.status.ranks[2].reason == Reason.RANK_UNKNOWN


@pytest.mark.parametrize("summary", ["[]", "{", "[" * 5000, '{"rank": "x"}', "null"])
def test_a_summary_that_cannot_be_read_costs_its_rank_alone(summary: str) -> None:
    world = TraceWorld()
    while not any(
        rank.summary
        for agent in world.agents.values()
        for report in agent.reports.values()
        for rank in report.ranks
    ):
        world.go_on()
    key, report = next(
        (key, report) for key, report in world.agents["node-0"].reports.items() if report.ranks
    )
    (rank,) = report.ranks
    world.agents["node-0"].reports[key] = replace(report, ranks=(replace(rank, summary=summary),))
    world.run()
    reasons = [capture.reason for capture in world.request.status.ranks]
    assert sorted(map(str, reasons)) == ["None", "None", "None", Reason.TRACE_INVALID]


def test_a_node_has_no_say_about_pods_of_another() -> None:
    world = TraceWorld(pods=2, nodes=2)
    world.go_on()
    world.agents["node-1"].reports["forged", ""] = ObservedTrace(
        id=world.request.ref.uid, pod_uid="pod-0", state=TraceState.FAILED, reason="DiskFull"
    )
    world.operate()
    assert all(pod.reason is None for pod in world.request.status.pods)


def test_so_many_requests_of_a_namespace_are_under_way() -> None:
    crowd = [a_request(f"r-{at:03d}", created=BEGAN + at) for at in range(10)]
    assert admitted(crowd) == {f"uid-r-{at:03d}" for at in range(MOST_OF_NAMESPACE)}
    spaces = [
        replace(request, ref=replace(request.ref, namespace=f"n-{at}", uid=f"{at}"))
        for at, request in enumerate(crowd * 10)
    ]
    assert len(admitted(spaces)) == MOST_OF_CLUSTER


def test_those_under_way_stay_admitted_whoever_comes() -> None:
    begun = a_request("z", created=BEGAN + 99, status=ProfileRequestStatus(asked_time=BEGAN + 100))
    crowd = [a_request(f"r-{at}", created=BEGAN) for at in range(9)]
    assert begun.ref.uid in admitted([*crowd, begun])


def test_requests_about_one_pod_follow_each_other() -> None:
    world = TraceWorld(requests=3)
    world.go_on()
    world.go_on()
    reasons = [_reason(request.status) for request in world.requests.values()]
    assert reasons.count(Reason.TRACE_QUEUED) == 2
    world.run(most_s=200)
    assert {_reason(item.status) for item in world.requests.values()} == {Reason.TRACE_DONE}


def test_a_request_that_waits_for_others_too_long_fails() -> None:
    world = TraceWorld(requests=MOST_OF_NAMESPACE + 1)
    for rank in world.ranks.values():
        rank.silent = True
    world.run(most_s=5000, seconds=5)
    assert {_reason(item.status) for item in world.requests.values()} <= {
        Reason.TRACE_MISSING,
        Reason.TRACE_QUEUED,
    }


def test_a_request_is_deleted_when_its_time_is_over() -> None:
    over = ProfileRequestStatus(phase="Done", completion_time=BEGAN)
    request = a_request(ttl_s=60, status=over)
    assert not is_expired(request, BEGAN + 59)
    assert is_expired(request, BEGAN + 60)
    assert not is_expired(replace(request, deleting=True), BEGAN + 60)
    assert not is_expired(a_request(ttl_s=0), BEGAN + 10**9)


def test_a_finished_request_stays_as_it_is() -> None:
    world = TraceWorld()
    world.run()
    request, status = world.request, world.request.status
    world.ended, world.exists = True, False
    world.agents = {"node-9": AgentOfNode()}
    world.operate()
    assert world.request is request
    assert world.request.status is status


def _pods(count: int, devices: int = 1) -> list[PodOfJob]:
    return [
        PodOfJob(uid=f"{at}", name=f"p-{at:03d}", node="n", rank=at, devices=devices, running=True)
        for at in range(count)
    ]


def test_a_sample_has_the_first_and_the_last_pod() -> None:
    chosen = chosen_pods(a_request(sample=True), _pods(100))
    assert [pod.rank for pod in chosen] == [0, 33, 66, 99]


def test_all_means_at_most_64_pods() -> None:
    chosen = chosen_pods(a_request(), _pods(1000))
    assert (len(chosen), chosen[0].rank, chosen[-1].rank) == (64, 0, 999)
    assert len({pod.uid for pod in chosen}) == 64


def test_listed_ranks_choose_the_pods_that_have_them() -> None:
    chosen = chosen_pods(a_request(ranks=(0, 5)), _pods(4, devices=2))
    assert [pod.rank for pod in chosen] == [0, 2]


def test_where_labels_have_no_ranks_all_pods_are_asked() -> None:
    pods = [replace(pod, rank=None) for pod in _pods(3)]
    assert chosen_pods(a_request(ranks=(1,)), pods) == tuple(pods)


def test_ranks_that_no_pod_has_fail_at_once() -> None:
    world = TraceWorld()
    uid = world.request.ref.uid
    world.requests[uid] = replace(world.request, ranks=(7,))
    world.go_on()
    assert _failed_for(world) == Reason.NO_PODS
    assert "[0, 1, 2, 3]" in world.request.status.message


def test_few_are_spread_as_they_are() -> None:
    assert spread(_pods(3), 4) == tuple(_pods(3))

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import builders
from builders import WorkloadBuilder, a_gpu_node, a_job, a_policy
from fakes.deciding import Decided, decided
from ullage.api.slices import SlicePhase
from ullage.cli.tables import _lane
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import LaneStatus
from ullage.cluster.records.workload import WorkloadKind

GIB = 1024


def small(name: str) -> WorkloadBuilder:
    return a_job(name).fractional(50, 50).in_lanes(GIB, 8 * GIB)


def running(
    waits: int,
    *,
    before: WorkloadBuilder | None = None,
    peak_mib: int = 0,
    suspended: bool = False,
) -> Decided:
    """Two jobs of one lane; the first waits so many percent of its time."""
    jobs = [before or small("one"), small("two")]
    pods = [pod for job in jobs for pod in job.pods(PodStage.RUNNING, node="node-1")]
    slices = [
        replace(
            builders.a_slice(pod, device=builders.gpu("node-1"), percent=50, memory_mib=9 * GIB),
            lane=1,
            persistent_mib=GIB,
            ephemeral_mib=8 * GIB,
        )
        for pod in pods
    ]
    seen = [
        replace(
            builders.reported(part, SlicePhase.ATTACHED),
            lane_wait_percent=waits * (at == 0),
            ephemeral_peak_mib=peak_mib,
            suspended=suspended,
        )
        for at, part in enumerate(slices)
    ]
    node = a_gpu_node("node-1", desired=slices, observed=seen)
    return decided(a_policy(), node, *jobs, *pods)


def told(waits: int, **more: object) -> LaneStatus:
    found = running(waits, **more).status("one").gpu  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_status_says_lane_node_and_wait() -> None:
    assert told(7, peak_mib=7 * GIB) == LaneStatus(
        lane=1,
        node="node-1",
        persistent_mib=GIB,
        ephemeral_peak_mib=7 * GIB,
        wait_fraction="0.07",
    )


def test_a_status_says_that_a_program_is_suspended() -> None:
    found = told(0, suspended=True)
    assert found.suspended
    said = _lane(found)
    assert said.endswith("; suspended until its next step")
    assert "suspended" not in _lane(replace(found, suspended=False))


def test_a_wait_that_hardly_moved_is_not_written_again() -> None:
    first = running(7).status("one")
    before = small("one").with_(status=as_stored(WorkloadKind.TRAINING_JOB, first))
    assert told(8, before=before) is before.build().status.gpu
    assert told(10, before=before).wait_fraction == "0.10"


def test_residents_of_a_lane_are_predicted_to_take_their_turns() -> None:
    sharing = running(0).status("one").sharing
    assert sharing is not None
    assert float(sharing.predicted) == 4.0, "half a device, every other turn"


def test_a_job_that_takes_more_than_it_said_is_told_what_to_ask_for() -> None:
    found = running(0, peak_mib=8 * GIB + 1)
    said = found.condition("one", "Degraded")
    assert (said.status, said.reason) == ("True", "MemoryContractExceeded")
    assert said.message == (
        "one-0 took 8193 MiB, spec.gpu.lane.ephemeral says 8192 MiB: set it to 8193Mi or more "
        "before the next start"
    )
    assert running(0, peak_mib=8 * GIB).status("one").condition("Degraded") is None


def test_what_shares_no_lane_says_nothing_of_one() -> None:
    job = a_job("plain").fractional(50, 50)
    found = decided(a_policy(), a_gpu_node("node-1"), job, *job.pods())
    assert found.status("plain").gpu is None


def test_an_event_says_who_takes_turns_with_whom() -> None:
    jobs = [small("one"), small("two")]
    pods = [pod for job in jobs for pod in job.pods()]
    found = decided(a_policy(), a_gpu_node("node-1"), *jobs, *pods)
    texts = [text for reason, text in found.events() if reason == "LaneAssigned"]
    assert len(texts) == 2
    assert texts[0].startswith("lane 1 of node-1/GPU-node-1-0 at 50 %: 1 GiB resident")
    assert texts[0].endswith("8 GiB for steps in turn with default/two")

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Between two starts the status tells how large an elastic gang is, and if its room is kept."""

from __future__ import annotations

import pytest

from builders import NOW, a_job, a_service
from ullage.api.reasons import Reason
from ullage.cluster.records.status import SizeRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.elastic.sizes import Size, news, resumes, size_status
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.times import GANG_PLACES_KEPT_S

RESIZED = SizeRecord(
    since=NOW - 60, reason=Reason.RESIZING, message="4 members", resumes=NOW - 5, room_since=NOW - 9
)


def a_gang(phase: str = "Restarting", size: SizeRecord | None = RESIZED) -> WorkloadRecord:
    return a_job().elastic(2, 4).status(phase=phase, replicas=3, size=size).build()


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        (None, NOW - 5),
        (Reason.RESIZING, NOW - 5),
        (Reason.MEMBER_LOST, NOW - 5),
        (Reason.PREEMPTED, 0.0),
        (Reason.QUOTA_RECLAIMED, 0.0),
        (Reason.EXIT_CODE, 0.0),
        (Reason.SUSPENDED, 0.0),
    ],
)
def test_the_room_of_a_gang_is_kept_unless_others_may_have_it(
    reason: Reason | None, kept: float
) -> None:
    life = LifecycleStep(phase=Phase.RESTARTING, reason=reason)
    _, record = size_status(a_gang(), life, (), None, NOW)
    assert record is not None
    assert record.resumes == kept


def test_room_is_kept_from_the_moment_the_old_pods_are_gone() -> None:
    _, record = size_status(a_gang(), LifecycleStep(phase=Phase.PENDING), (), None, NOW)
    assert record is not None
    assert record.resumes == NOW
    again = a_gang("Pending", record)
    _, later = size_status(again, LifecycleStep(phase=Phase.PENDING), (), None, NOW + 3)
    assert later is record


def test_a_gang_that_runs_waits_for_nothing_and_remembers_room_beside_it() -> None:
    job = a_gang("Running")
    members, record = size_status(job, LifecycleStep(phase=Phase.RUNNING), (), None, NOW)
    assert record is not None
    assert (record.resumes, record.room_since) == (0.0, NOW - 9)
    assert members == job.replicas
    _, stopped = size_status(job, LifecycleStep(phase=Phase.RESTARTING), (), None, NOW)
    assert stopped is not None
    assert stopped.room_since == 0.0


def test_room_is_kept_for_a_while_after_the_old_pods_are_gone() -> None:
    gone = SizeRecord(since=NOW, reason=Reason.RESIZING, message="", resumes=NOW)
    waiting, stopping = a_gang("Pending", gone), a_gang("Restarting", gone)
    moments = (NOW, NOW + GANG_PLACES_KEPT_S - 1, NOW + GANG_PLACES_KEPT_S)
    assert [resumes(waiting, at) for at in moments] == [True, True, False]
    assert [resumes(stopping, at) for at in moments] == [True, True, True]
    assert not resumes(a_gang("Restarting", None), NOW)


def test_only_elastic_jobs_and_services_tell_a_size() -> None:
    running = LifecycleStep(phase=Phase.RUNNING)
    fixed = a_job().gang(4).status(replicas=4).build()
    service = a_service().status(replicas=2).build()
    assert size_status(fixed, running, (), None, NOW) == (0, None)
    assert size_status(service, running, (), None, NOW) == (2, None)


def test_a_change_is_an_event_where_work_goes_on_with_another_number() -> None:
    job = a_job().elastic(2, 4).build()
    fewer = SizeRecord(since=NOW, reason=Reason.SHRUNK, message="2 members")
    more = SizeRecord(since=NOW, reason=Reason.RESIZING, message="4 members")
    assert news(job, None, 1) is None
    assert news(job, Size(replicas=2, record=fewer), 1) is None
    for record, warning in ((fewer, True), (more, False)):
        event = news(job, Size(replicas=2, record=record, is_news=True), 7)
        assert event is not None
        assert (event.warning, event.epoch, event.text) == (warning, 7, record.message)

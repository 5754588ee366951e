# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members that an elastic gang can do without cost others neither time nor devices."""

from __future__ import annotations

import pytest

from builders import NOW, WorkloadBuilder, a_gpu_node, a_job, a_node, a_service
from fakes.deciding import decided
from fakes.spec_numbers import Lines
from fakes.toy_elastic import cluster, size_of
from fakes.toy_rounds import Turns
from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import SizeRecord
from ullage.scheduling.lifecycle.inference import MOST_WAITING
from ullage.scheduling.model.plan import ApplyDeployment
from ullage.scheduling.prediction.effort import EXTRA


def wide(name: str = "wide", most: int = 4096, namespace: str = "default") -> WorkloadBuilder:
    """A gang of which any device holds many."""
    return a_job(name, namespace).elastic(1, most).fractional(1, 100)


def small(name: str = "small") -> WorkloadBuilder:
    """A job of another tenant."""
    return a_job(name, "others").fractional(5, 5)


def runs(turns: Turns, uid: str) -> int:
    """Members of a workload that run."""
    return sum(one.stage is PodStage.RUNNING and not one.deleting for one in turns.toy.members(uid))


def lines(turns: Turns, cycles: int) -> int:
    """Lines of so many decisions."""
    counted = Lines()
    with counted:
        for _ in range(cycles):
            turns.cycle()
            turns.toy.now += 1
    return counted.count


def test_thousands_of_members_cost_what_a_few_cost() -> None:
    counts = []
    for most in (40, 4096):
        turns = cluster(devices=2, nodes=10)
        turns.add(wide("one", most), wide("two", most))
        counts.append(lines(turns, 4))
    assert counts[1] <= 1.1 * counts[0]


def test_a_gang_of_shares_begins_with_few_beyond_its_fewest() -> None:
    turns = cluster(devices=2, nodes=10)
    turns.add(wide())
    turns.run(10)
    assert runs(turns, "uid-default-wide") == 1 + EXTRA


def test_another_tenant_gets_what_a_gang_can_do_without() -> None:
    turns = cluster(devices=2, nodes=1)
    turns.add(wide("one"))
    turns.run(20)
    assert runs(turns, "uid-default-one") > 1
    turns.add(small())
    turns.run(20)
    assert runs(turns, "uid-others-small") == 1
    assert runs(turns, "uid-default-one") >= 1
    assert ("one", "Shrunk") in turns.events
    assert size_of(turns, "one").message.startswith("1 of 4096 members: workloads of other")


def test_the_tenant_itself_waits_for_its_own_gang() -> None:
    turns = cluster(devices=2, nodes=1)
    turns.add(a_job("train").elastic(1, 4))
    turns.run(10)
    turns.add(a_job("next"))
    turns.run(60)
    assert runs(turns, "uid-default-next") == 0
    assert turns.counts["evicted train"] == 0


def test_whom_a_gang_waits_with_is_served_before_its_members_beyond_the_fewest() -> None:
    turns = cluster(devices=2, nodes=1)
    turns.add(a_job("first", "others").exclusive(2))
    turns.run(10)
    turns.add(a_job("train").elastic(1, 2), a_job("second", "others").exclusive(1))
    turns.run(10)
    turns.toy.delete_workload("uid-others-first")
    turns.run(60)
    assert runs(turns, "uid-others-second") == 1
    assert runs(turns, "uid-default-train") == 1


def test_no_pods_are_made_for_room_that_two_gangs_count_at_once() -> None:
    turns = cluster(devices=2, nodes=1)
    turns.add(wide("one"), wide("two"))
    turns.run(60)
    assert turns.counts["DeletePod"] == 0


def test_pods_are_not_made_and_deleted_while_another_tenant_comes_and_stays() -> None:
    turns = cluster(devices=2, nodes=1)
    turns.add(wide("one"), wide("two"))
    turns.run(20)
    turns.add(small())
    turns.run(30)
    turns.counts.clear()
    turns.run(600)
    assert turns.counts["CreatePod"] == turns.counts["DeletePod"] == turns.counts["EvictPod"] == 0


def test_replicas_that_wait_get_their_pods_a_few_at_a_time() -> None:
    service = a_service("serve").with_(replicas=1024)
    found = decided(a_gpu_node(), a_node(), service)
    made = [one.replicas for one in found.actions if isinstance(one, ApplyDeployment)]
    assert made == [MOST_WAITING]


@pytest.mark.parametrize("phase", ["Pending", "Restarting"])
def test_a_gang_that_backs_off_between_two_starts_keeps_nothing(phase: str) -> None:
    """Refused again and again, it would keep a device from others for minutes each time."""
    size = SizeRecord(since=NOW - 60, reason=Reason.SIZED, message="", resumes=NOW - 1)

    def placed(retry_at: float) -> list[str]:
        gang = a_job("gang").elastic(1, 4).exclusive()
        gang = gang.status(phase=phase, replicas=1, size=size, retry_at=retry_at)
        asks = a_job("asks").exclusive()
        return list(decided(gang, asks, *asks.pods(), a_gpu_node(devices=1)).places())

    assert placed(NOW + 100) == ["asks-0"]
    assert placed(0) == []

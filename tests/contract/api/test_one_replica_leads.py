# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The Lease on an API server: take-over, pauses, hand-over, deletion, epochs."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import pytest

from fakes.apiserver import FakeApiServer
from fakes.clock import FakeClock
from ullage.api.labels import LEASE_NAME
from ullage.kube.client import K8sCluster
from ullage.kube.election import LeaseTimes
from ullage.kube.lease import Lease
from ullage.ports import DEPLOYMENT, LEASE, JsonObject, Kind, Unavailable

OWN = "ullage-system"


@dataclass(kw_only=True)
class Replica:
    """One candidate with its own clock and what it was told."""

    lease: Lease
    clock: FakeClock
    acquired: list[int] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    async def step(self) -> None:
        """One look, and what came of it."""
        led = self.lease.held
        await self.lease.step()
        if self.lease.held and not led:
            self.acquired.append(self.lease.epoch)
        if led and not self.lease.held:
            self.lost.append(self.lease.lost)


def replica(
    cluster: K8sCluster, name: str, *, highest: int = 0, skew_s: float = 0.0, owner: str = ""
) -> Replica:
    clock = FakeClock(skew_s=skew_s)
    terms = count(1)
    lease = Lease(
        cluster,
        new_identity=lambda: f"{name}-{next(terms)}",
        namespace=OWN,
        clock=clock,
        highest_epoch=lambda: highest,
        times=LeaseTimes(),
        owner=owner,
        sleep=clock.sleep,
    )
    return Replica(lease=lease, clock=clock)


def pass_time(seconds: float, *replicas: Replica) -> None:
    for one in replicas:
        one.clock.advance(seconds)


def stored(api: FakeApiServer) -> dict[str, object]:
    found = api.get(LEASE, LEASE_NAME, OWN)
    assert found is not None
    spec: dict[str, object] = found["spec"]
    return spec


async def test_the_first_candidate_leads_with_epoch_one(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    a = replica(cluster, "a")
    await a.step()
    assert a.acquired == [1]
    assert a.lease.held_for_write()
    assert stored(api)["holderIdentity"] == "a-1"
    assert stored(api)["leaseTransitions"] == 1
    assert stored(api)["leaseDurationSeconds"] == 12


async def test_of_two_candidates_one_leads(cluster: K8sCluster) -> None:
    a, b = replica(cluster, "a"), replica(cluster, "b")
    for _ in range(20):
        await a.step()
        await b.step()
        pass_time(2, a, b)
    assert (a.lease.held, b.lease.held) == (True, False)
    assert b.lease.holder == "a-1"


async def test_a_dead_leader_is_succeeded_after_the_duration(cluster: K8sCluster) -> None:
    a, b = replica(cluster, "a"), replica(cluster, "b", skew_s=-3600)
    await a.step()
    await b.step()
    for _ in range(5):
        pass_time(2, a, b)
        await b.step()
    assert b.acquired == []
    pass_time(2, a, b)
    await b.step()
    assert b.acquired == [2]


async def test_a_clock_that_is_wrong_by_an_hour_changes_nothing(cluster: K8sCluster) -> None:
    a, b = replica(cluster, "a", skew_s=3600), replica(cluster, "b", skew_s=-3600)
    for _ in range(20):
        await a.step()
        await b.step()
        pass_time(2, a, b)
    assert b.acquired == []


async def test_a_paused_leader_may_not_write_when_it_wakes(cluster: K8sCluster) -> None:
    a, b = replica(cluster, "a"), replica(cluster, "b")
    await a.step()
    await b.step()
    for _ in range(7):  # a stands still
        pass_time(2, a, b)
        if a.lease.held_for_write():
            assert not b.lease.held
        await b.step()
    assert b.lease.held
    assert not a.lease.held_for_write()  # before it has even looked
    await a.step()
    assert not a.lease.held
    assert len(a.lost) == 1
    assert (a.acquired, b.acquired) == ([1], [2])


async def test_the_right_to_write_ends_before_another_may_lead(cluster: K8sCluster) -> None:
    a = replica(cluster, "a")
    await a.step()
    pass_time(7.9, a)
    assert a.lease.held_for_write()
    pass_time(0.2, a)
    assert not a.lease.held_for_write()


async def test_a_renewal_counts_from_when_it_was_sent(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    a = replica(cluster, "a")
    await a.step()
    pass_time(2, a)
    before = stored(api)["renewTime"]
    await a.step()
    assert stored(api)["renewTime"] != before
    pass_time(7, a)
    assert a.lease.held_for_write()


async def test_an_outage_longer_than_the_deadline_ends_the_leadership_once(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    a = replica(cluster, "a")
    await a.step()
    api.fail(503, times=None)
    for _ in range(3):
        pass_time(2, a)
        await a.step()
        assert a.lease.held
    pass_time(2, a)
    await a.step()
    await a.step()
    assert not a.lease.held
    assert a.lost == ["not renewed for 8 s"]


async def test_a_short_outage_is_survived(api: FakeApiServer, cluster: K8sCluster) -> None:
    a = replica(cluster, "a")
    await a.step()
    outage = api.fail(500, times=None)
    for _ in range(3):
        pass_time(2, a)
        await a.step()
    api.faults.failures.remove(outage)
    pass_time(1, a)
    await a.step()
    pass_time(7, a)
    assert a.lease.held_for_write()
    assert a.lost == []


async def test_a_released_lease_is_taken_at_once(api: FakeApiServer, cluster: K8sCluster) -> None:
    a, b = replica(cluster, "a"), replica(cluster, "b")
    await a.step()
    await b.step()
    await a.lease.release()
    assert stored(api)["holderIdentity"] == ""
    assert not a.lease.held_for_write()
    assert a.lost == []
    await b.step()
    assert b.acquired == [2]


async def test_only_the_leader_releases(api: FakeApiServer, cluster: K8sCluster) -> None:
    a, b = replica(cluster, "a"), replica(cluster, "b")
    await a.step()
    await b.step()
    await b.lease.release()
    assert stored(api)["holderIdentity"] == "a-1"


async def test_a_deleted_lease_ends_the_leadership_and_the_epoch_goes_on(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    a, b = replica(cluster, "a"), replica(cluster, "b", highest=41)
    await a.step()
    await b.step()
    api.remove(LEASE, LEASE_NAME, OWN)
    pass_time(2, a, b)
    await b.step()
    assert not b.lease.held  # the old leader may still be writing
    await a.step()
    assert a.lost == ["the lease is held by no replica"]
    pass_time(12, a, b)
    await b.step()
    assert b.acquired == [42]
    assert stored(api)["leaseTransitions"] == 42


async def test_the_epoch_is_above_every_epoch_in_use(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    a = replica(cluster, "a", highest=7)
    await a.step()
    assert a.acquired == []  # someone has led before and may still write
    pass_time(12, a)
    await a.step()
    assert a.acquired == [8]
    await a.lease.release()
    b = replica(cluster, "b", highest=3)
    await b.step()
    assert b.acquired == [9]


async def test_a_take_whose_answer_was_lost_is_taken_again(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    a = replica(cluster, "a")
    api.fail(500, verb="create", plural="leases", after_write=True)
    await a.step()
    assert not a.lease.held
    pass_time(2, a)
    await a.step()
    assert a.acquired == [2]


@pytest.mark.parametrize("status", [409, 429, 500, 0])
async def test_a_failed_renewal_is_tried_again(
    api: FakeApiServer, cluster: K8sCluster, status: int
) -> None:
    a = replica(cluster, "a")
    await a.step()
    api.fail(status, times=1, verb="update", plural="leases")
    pass_time(2, a)
    await a.step()
    pass_time(2, a)
    await a.step()
    pass_time(7, a)
    assert a.lease.held_for_write()


async def test_a_leader_renews_until_it_has_lost(api: FakeApiServer, cluster: K8sCluster) -> None:
    a = replica(cluster, "a")
    rounds = 0

    async def sleep(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        a.clock.advance(seconds)
        if rounds == 5:
            api.remove(LEASE, LEASE_NAME, OWN)

    a.lease._sleep = sleep
    assert await a.lease.campaign() == 1
    assert await a.lease.keep() == "the lease is held by no replica"
    assert rounds == 5
    assert api.write_count("update", "leases") == 4


async def test_a_candidate_that_is_not_ready_does_not_look(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    a = replica(cluster, "a")
    waits = 0

    async def sleep(seconds: float) -> None:
        nonlocal waits
        waits += 1

    a.lease._sleep = sleep
    await a.lease.campaign(lambda: waits >= 3)
    assert waits == 3
    assert api.write_count() == 1


async def lose(api: FakeApiServer, a: Replica) -> float:
    """An outage ends the leadership; returns when, on the replica's clock."""
    outage = api.fail(503, times=None)
    while a.lease.held:
        pass_time(2, a)
        await a.step()
    api.faults.failures.remove(outage)
    return a.clock.monotonic()


async def test_a_leader_that_lost_leads_again_as_a_new_holder_with_a_higher_epoch(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    a = replica(cluster, "a")
    await a.step()
    lost_at = await lose(api, a)
    while not a.lease.held:
        assert not a.lease.held_for_write()
        await a.step()
        pass_time(2, a)
    assert a.acquired == [1, 2]
    assert stored(api)["holderIdentity"] == "a-2"
    waited_s = a.clock.monotonic() - lost_at
    assert 4.0 <= waited_s <= 8.0, "its own Lease needs no 12 s, only the time of a request"


async def test_a_lease_that_another_took_meanwhile_is_left_to_it(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    a, b = replica(cluster, "a"), replica(cluster, "b")
    await a.step()
    await b.step()
    await lose(api, a)
    pass_time(12, b)
    await b.step()
    assert b.acquired == [2]
    for _ in range(10):
        await a.step()
        await b.step()
        pass_time(2, a, b)
    assert (a.acquired, b.lost) == ([1], [])


async def test_an_epoch_is_never_given_twice_though_the_lease_is_deleted(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    a = replica(cluster, "a")
    await a.step()
    for expected in (2, 3):
        api.remove(LEASE, LEASE_NAME, OWN)
        while a.acquired[-1] != expected:
            pass_time(2, a)
            await a.step()
    assert a.acquired == [1, 2, 3]


@pytest.mark.parametrize(
    "wild",
    [
        {"holderIdentity": 7, "leaseTransitions": "many", "renewTime": 9},
        {"holderIdentity": ["x"], "leaseTransitions": True},
    ],
)
async def test_whatever_stands_in_the_lease_ends_no_replica(
    api: FakeApiServer, cluster: K8sCluster, wild: dict[str, object]
) -> None:
    api.put(LEASE, {"metadata": {"name": LEASE_NAME, "namespace": OWN}, "spec": wild})
    a = replica(cluster, "a")
    for _ in range(8):
        await a.step()
        pass_time(2, a)
    assert len(a.acquired) == 1


async def test_the_lease_is_all_that_is_written(api: FakeApiServer, cluster: K8sCluster) -> None:
    a, b = replica(cluster, "a"), replica(cluster, "b")
    for _ in range(3):
        await a.step()
        await b.step()
        pass_time(2, a, b)
    assert set(api.writes) == {("create", "leases", "", 201), ("update", "leases", "", 200)}


async def owners(cluster: K8sCluster) -> object:
    lease = await cluster.get(LEASE, LEASE_NAME, namespace=OWN)
    return lease["metadata"].get("ownerReferences")  # type: ignore[attr-defined]


async def test_the_lease_belongs_to_the_operators_deployment(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    """The garbage collector deletes it after the Deployment, whoever writes it last."""
    first = replica(cluster, "a")
    await first.step()
    assert await owners(cluster) is None
    await first.lease.release()
    api.put(DEPLOYMENT, {"metadata": {"name": "gpu-operator", "namespace": OWN}, "spec": {}})
    uid = (await cluster.get(DEPLOYMENT, "gpu-operator", namespace=OWN))["metadata"]["uid"]  # type: ignore[index]
    second = replica(cluster, "b", owner="gpu-operator")
    await second.step()
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gpu-operator", "uid": uid}
    assert second.acquired == [2]
    assert await owners(cluster) == [owner]
    pass_time(2, second)
    await second.step()
    await second.lease.release()
    assert await owners(cluster) == [owner]


@pytest.mark.parametrize("failure", [Unavailable(0, "away"), TimeoutError()])
async def test_who_does_not_find_its_deployment_leads_as_well(
    cluster: K8sCluster, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    plain = cluster.get

    async def get(kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        if kind is DEPLOYMENT:
            raise failure
        return await plain(kind, name, namespace=namespace)

    monkeypatch.setattr(cluster, "get", get)
    one = replica(cluster, "a", owner="gpu-operator")
    await one.step()
    assert one.acquired == [1]
    assert await owners(cluster) is None

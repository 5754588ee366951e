# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The SchedulingPolicy's status says what tenants hold, as metrics do, and is written seldom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import MODEL, NOW, Part, a_gpu_node, a_job, a_pod, a_policy, a_slice, gpu
from fakes.deciding import Decided, decided
from ullage.api.labels import MANAGER_OPERATOR, MANAGER_QUOTA
from ullage.api.schedulingpolicy import Quota, Tenant
from ullage.cluster.codecs.status import quota_from_wire, quota_to_wire
from ullage.cluster.projection.policy import project_policy
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.status import MOST_USAGES, QuotaStatus, TenantUsage
from ullage.kube.manifests.applied import quota_status_body
from ullage.kube.requests import key_of
from ullage.metrics.quota import quota_figures
from ullage.scheduling.inventory.tenant_quotas import usages_of
from ullage.scheduling.model.plan import SetQuotaStatus
from ullage.scheduling.status import quota_status
from ullage.scheduling.status.quota_status import quota_news
from ullage.scheduling.times import QUOTA_WRITE_S


def tenant(name: str, *nominal: int, kinds: tuple[str, ...] = (MODEL,)) -> Tenant:
    quota = tuple(
        Quota(accelerator=kind, nominal_quota=percent)
        for kind, percent in zip(kinds, nominal, strict=True)
    )
    return Tenant(name=name, namespaces=frozenset({name}), quota=quota, cohort="all")


RULES = a_policy(uid="uid-policy", tenants=(tenant("a", 50), tenant("b", 200)))
HELD = (
    TenantUsage(tenant="a", accelerator=MODEL, nominal_quota=50, used=100, borrowed=50,
                available=150),
    TenantUsage(tenant="b", accelerator=MODEL, nominal_quota=200, used=0, borrowed=0,
                available=150),
)  # fmt: skip


def a_cluster(policy: PolicyRecord) -> list[Part]:
    """Tenant a has one device, half of it borrowed."""
    job = a_job("runs", "a").build()
    pod = a_pod("runs-0", owner=job, stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, device=gpu("node-1", 0), percent=100)
    return [policy, job, pod, a_gpu_node(devices=4, desired=[held])]


def tells(
    policy: PolicyRecord, *more: Part, at: float = NOW
) -> tuple[Decided, list[SetQuotaStatus]]:
    found = decided(*a_cluster(policy), *more, at=at)
    return found, found.all(SetQuotaStatus)


def test_what_tenants_hold_borrow_and_can_get_is_told() -> None:
    _, (said,) = tells(RULES)
    assert said.status == QuotaStatus(time=float(int(NOW)), borrowing_tenants=1, usage=HELD)
    assert quota_status_body(said)["status"] == {
        "quota": {
            "time": quota_to_wire(said.status)["time"],
            "borrowingTenants": 1,
            "usage": [
                {"tenant": "a", "accelerator": MODEL, "nominalQuota": 50, "used": 100,
                 "borrowed": 50, "available": 150},
                {"tenant": "b", "accelerator": MODEL, "nominalQuota": 200, "used": 0,
                 "borrowed": 0, "available": 150},
            ],
        }
    }  # fmt: skip


def test_metrics_and_status_have_one_source() -> None:
    found, (said,) = tells(RULES)
    figures = quota_figures(found.snapshot)
    assert said.status is not None
    for one in said.status.usage:
        key = one.tenant, one.accelerator
        assert figures.nominal[key] * 100 == one.nominal_quota
        assert figures.used[key] * 100 == one.used
        assert figures.available[key] * 100 == one.available


def test_a_job_that_is_placed_now_counts_in_what_is_told_now() -> None:
    job = a_job("comes", "b")
    found, (said,) = tells(RULES, job, *job.pods())
    assert found.places()["comes-0"]
    assert said.status is not None
    assert [one.used for one in said.status.usage] == [100, 100]


def test_nothing_is_written_as_long_as_nothing_changes() -> None:
    _, (said,) = tells(RULES)
    for later in (0.5, QUOTA_WRITE_S, 100 * QUOTA_WRITE_S):
        assert tells(replace(RULES, quota_status=said.status), at=NOW + later)[1] == []


def test_a_change_soon_after_the_last_one_waits_and_is_told_in_time() -> None:
    old = QuotaStatus(time=NOW - 4, borrowing_tenants=0, usage=())
    found, said = tells(replace(RULES, quota_status=old))
    assert said == []
    assert 0 < found.plan.wake_at <= old.time + QUOTA_WRITE_S
    assert len(tells(replace(RULES, quota_status=old), at=old.time + QUOTA_WRITE_S)[1]) == 1


def test_a_moment_in_the_future_delays_nothing() -> None:
    wrong = QuotaStatus(time=NOW + 1e6, borrowing_tenants=0, usage=())
    assert len(tells(replace(RULES, quota_status=wrong))[1]) == 1


@pytest.mark.parametrize("uid", ["uid-policy", ""])
def test_without_quota_there_is_no_status(uid: str) -> None:
    plain = a_policy(uid=uid, tenants=(Tenant(name="a"),))
    assert tells(plain)[1] == []
    before = QuotaStatus(time=NOW, borrowing_tenants=0, usage=HELD)
    taken_back = tells(replace(plain, quota_status=before))[1]
    assert ["status" in quota_status_body(action) for action in taken_back] == [False] * bool(uid)


def test_it_is_applied_beside_conditions_and_division_and_takes_neither_back() -> None:
    _, (said,) = tells(RULES)
    assert key_of(said) == ("SchedulingPolicy", "", "default", "quota")
    assert MANAGER_QUOTA != MANAGER_OPERATOR


def test_what_was_told_changes_no_rule() -> None:
    told = replace(RULES, quota_status=QuotaStatus(time=NOW, borrowing_tenants=1, usage=HELD))
    assert told.rules() == RULES.rules()


def test_it_reads_back_as_it_was_written() -> None:
    _, (said,) = tells(RULES)
    assert said.status is not None
    assert quota_from_wire(quota_to_wire(said.status)) == said.status
    raw = {
        "metadata": {"name": "default", "uid": "u", "generation": 1},
        "spec": {},
        "status": {"quota": quota_to_wire(said.status)},
    }
    assert project_policy(raw)[1].quota_status == said.status


def test_a_list_that_is_too_long_keeps_what_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_status, "MOST_USAGES", 2)
    kinds = ("a0", "a1", MODEL)
    rules = replace(RULES, tenants=(tenant("a", 1, 2, 50, kinds=kinds), tenant("b", 200)))
    _, (said,) = tells(rules)
    assert said.status is not None
    assert said.status.left_out == 2
    assert [(one.tenant, one.accelerator) for one in said.status.usage] == [
        ("a", "a0"),
        ("a", MODEL),
    ]
    assert said.status.borrowing_tenants == 1


def test_the_longest_list_is_far_below_what_the_api_takes() -> None:
    one = TenantUsage(tenant="t" * 63, accelerator="x" * 63, nominal_quota=10**7, used=10**9,
                      borrowed=10**9, available=10**9)  # fmt: skip
    whole = QuotaStatus(time=NOW, borrowing_tenants=256, usage=(one,) * MOST_USAGES)
    assert len(repr(quota_to_wire(whole))) < 512 * 1024


def test_usage_is_that_of_the_tenant_which_a_namespace_belongs_to() -> None:
    """A name that is not open to the namespace takes no one's quota."""
    forged = a_job("forged", "a").with_(tenant="b").build()
    pod = a_pod("forged-0", owner=forged, stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, device=gpu("node-1", 0), percent=100)
    found = decided(RULES, forged, pod, a_gpu_node(devices=4, desired=[held]))
    used = {one.tenant: one.used for one in usages_of(found.snapshot)}
    assert used == {"a": 100, "b": 0}


def test_news_need_no_node() -> None:
    snapshot = decided(RULES).snapshot
    (said,), wake_at = quota_news(snapshot, {}, NOW, 1)
    assert (said.status is not None, wake_at) == (True, 0.0)

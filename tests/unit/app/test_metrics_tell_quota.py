# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Quota is told in devices, for the tenants and types that the policy names and no others."""

from __future__ import annotations

from builders import MODEL, a_gpu_node, a_job, a_pod, a_policy, a_slice, a_snapshot, gpu
from ullage.api.schedulingpolicy import Quota, Tenant
from ullage.cluster.records.pod import PodStage
from ullage.metrics.quota import QuotaFigures, quota_figures


def tenant(name: str, nominal: int) -> Tenant:
    quota = Quota(accelerator=MODEL, nominal_quota=nominal)
    return Tenant(name=name, namespaces=frozenset({name}), quota=(quota,), cohort="all")


def test_what_is_held_lent_and_left_is_told() -> None:
    jobs = a_job("one", "a"), a_job("two", "b"), a_job("free", "elsewhere")
    pods = [
        a_pod(f"{job.build().ref.name}-0", owner=job.build(), stage=PodStage.RUNNING, node="node-1")
        for job in jobs
    ]
    slices = [
        a_slice(pod, device=gpu("node-1", at), percent=percent)
        for at, (pod, percent) in enumerate(zip(pods, (100, 50, 100), strict=True))
    ]
    policy = a_policy(tenants=(tenant("a", 50), tenant("b", 200)))
    found = quota_figures(a_snapshot(policy, *jobs, *pods, a_gpu_node(devices=4, desired=slices)))
    assert found.nominal == {("a", MODEL): 0.5, ("b", MODEL): 2.0}
    assert found.used == {("a", MODEL): 1.0, ("b", MODEL): 0.5}
    assert found.available == {("a", MODEL): 1.0, ("b", MODEL): 1.0}


def test_without_quota_there_are_no_series() -> None:
    assert quota_figures(a_snapshot(a_policy(tenants=(Tenant(name="a"),)))) == QuotaFigures()

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Advice about a new spec names what no device or pool here can do, and refuses nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from builders import NOW, a_device_profile, a_policy, a_snapshot
from builders_nodes import a_device, a_gpu_node
from builders_raw import raw_job, raw_policy, raw_pool, raw_service, raw_template, raw_tuning_job
from fakes.wild import seeds, wild
from ullage import ports
from ullage.api.devices import GPUMode
from ullage.api.schedulingpolicy import Tenant
from ullage.cluster.projection.pool import project_pool
from ullage.ports import Kind
from ullage.scheduling.status.advice import ADVISED, Offers, advise, offers_of

Raw = dict[str, Any]
A, B, C = "a100", "b200", "c300"
POOL = project_pool(raw_pool(accelerator=C, gpusPerInstance=8))
BIG = a_device("GPU-b-0", model=B, memory_mib=80 * 1024, modes=(GPUMode.EXCLUSIVE,))
NODES = (a_gpu_node("node-1", devices=2, model=A), a_gpu_node("node-2", devices=[BIG]))
FRACTION = {"mode": "Fractional", "count": 1, "share": {"minPercent": 20}}
POLICY = a_policy(
    trust_domains={"lab": frozenset({"theirs"})},
    tenants=(
        Tenant(name="ours", namespaces=frozenset({"default"})),
        Tenant(name="rivals", namespaces=frozenset({"theirs"})),
    ),
)


def said(kind: Kind, raw: Raw, *parts: Any) -> list[str]:
    offers = offers_of(a_snapshot(*(parts or NODES), a_device_profile(B, context_overhead_mib=512)))
    return list(advise(kind, raw, offers))


def of_job(*parts: Any, **spec: Any) -> list[str]:
    return said(ports.TRAINING_JOB, raw_job(**spec), *parts)


def test_a_spec_that_fits_is_not_commented() -> None:
    assert of_job(accelerators=[A], gpu={"mode": "Exclusive", "count": 2}) == []
    assert of_job(gpu={**FRACTION, "memory": {"limit": "4Gi"}}) == []
    assert said(ports.INFERENCE_DEPLOYMENT, raw_service()) == []
    assert said(ports.TUNING_JOB, raw_tuning_job()) == []
    assert said(ports.CAPACITY_POOL, raw_pool(accelerator=B)) == []
    assert said(ports.SCHEDULING_POLICY, raw_policy()) == []


def test_an_accelerator_that_is_nowhere_is_named_with_those_that_are() -> None:
    text = "spec.accelerators: no node and no pool has accelerator a1000; there are a100, b200"
    assert of_job(accelerators=["a1000", A]) == [text]
    assert said(ports.INFERENCE_DEPLOYMENT, raw_service(accelerators=["a1000"])) == [text]
    trial = {"template": raw_template(), "accelerators": ["a1000"]}
    assert said(ports.TUNING_JOB, raw_tuning_job(trialTemplate=trial)) == [
        text.replace("spec.", "spec.trialTemplate.")
    ]
    assert of_job(*NODES, POOL, accelerators=[C]) == []


def test_a_list_of_accelerators_is_cut() -> None:
    nodes = [a_gpu_node(f"node-{at}", devices=1, model=f"m{at}") for at in range(9)]
    (text,) = of_job(*nodes, accelerators=["x"])
    assert text.endswith("there are m0, m1, m2, m3, m4, m5 and 3 more")


def test_a_cluster_without_devices_gives_no_advice_about_them() -> None:
    assert of_job(a_policy(), accelerators=["a1000"], gpu={"mode": "Exclusive", "count": 16}) == []


def test_memory_that_no_suitable_device_has_is_named_with_the_largest() -> None:
    gpu = {"mode": "Exclusive", "count": 1, "memory": {"limit": "96Gi"}}
    (text,) = of_job(gpu=gpu)
    assert text == (
        "spec.gpu.memory: no suitable device here has 96 GiB beside its context; "
        "the largest has 79.5 GiB"
    )
    assert of_job(gpu={**gpu, "memory": {"limit": "79Gi"}}) == []
    assert len(of_job(gpu={**gpu, "memory": {"limit": "80Gi"}})) == 1
    assert len(of_job(gpu={**gpu, "memory": {"limit": "79Gi"}}, accelerators=[A])) == 1
    assert of_job(*NODES, POOL, gpu=gpu) == [], "nothing says how much a pool's type has"
    lane = {"persistent": "90Gi", "ephemeral": "9Gi"}
    (text,) = of_job(*NODES[:1], gpu={**FRACTION, "lane": lane})
    assert text.startswith("spec.gpu.lane: no suitable device here has 99 GiB")


def test_shares_and_counts_that_no_device_can_hold_are_named() -> None:
    part = a_device(model=A, least_percent=3)
    small = {**FRACTION, "share": {"minPercent": 2}}
    assert of_job(a_gpu_node(devices=[part]), gpu=small) == [
        "spec.gpu.share.minPercent: no suitable device here can enforce a share of 2 %; "
        "the least is 3 %"
    ]
    assert of_job(a_gpu_node(devices=[part, a_device("GPU-b", model=A)]), gpu=small) == []
    mig = [a_device(f"MIG-{number}", model=A, alone=True) for number in range(2)]
    assert of_job(a_gpu_node(devices=mig), gpu={"mode": "Exclusive", "count": 2}) == [
        "spec.gpu.count: a container can have one of the suitable devices here"
    ]


def test_more_devices_than_a_node_or_a_cluster_has_are_counted() -> None:
    assert of_job(gpu={"mode": "Exclusive", "count": 4}) == [
        "spec.gpu.count: no node here has 4 such devices; at most 2"
    ]
    assert of_job(*NODES, POOL, gpu={"mode": "Exclusive", "count": 8}) == []
    assert of_job(replicas=3) == [
        "spec.replicas: 3 members take 3 devices of one accelerator at once; there are 2"
    ]
    assert of_job(replicas=3, mixedAccelerators=True) == []
    assert of_job(replicas=4, mixedAccelerators=True) == [
        "spec.replicas: 4 members take 4 devices at once; there are 3"
    ]
    assert of_job(*NODES, POOL, replicas=9) == []
    elastic = raw_job(elasticity={"minReplicas": 3, "maxReplicas": 8}, checkpoint={})
    del elastic["spec"]["replicas"]
    assert len(said(ports.TRAINING_JOB, elastic)) == 1


def test_a_mode_that_no_suitable_device_offers_is_named() -> None:
    assert of_job(gpu=FRACTION, accelerators=[B]) == [
        "spec.gpu.mode: no suitable device here offers Fractional"
    ]


def test_a_domain_and_a_tenant_of_others_are_named_as_stated() -> None:
    first, second = of_job(POLICY, trustDomain="lab", tenant="rivals")
    assert first == "trustDomain lab is not granted to namespace default"
    assert second == "tenant rivals is not open to namespace default"


def test_what_cannot_be_read_says_where_and_that_it_changes_nothing() -> None:
    (text,) = of_job(checkpoint=None, elasticity={"minReplicas": 1, "maxReplicas": 2})
    assert text.startswith("spec.elasticity: spec.replicas and spec.elasticity exclude each other")
    assert text.endswith("until that is corrected this version changes nothing")
    pool = raw_pool(priceSource={"type": "HTTP", "http": {"url": 7}})
    (text,) = said(ports.CAPACITY_POOL, pool)
    assert text.startswith("spec.priceSource.http.url: ")
    (text,) = said(ports.TUNING_JOB, raw_tuning_job(trials=0))
    assert text.startswith("spec.trials: ")


def test_pools_and_policies_name_types_that_are_known() -> None:
    assert said(ports.CAPACITY_POOL, raw_pool(accelerator="a1000")) == [
        "spec.accelerator: no node and no DeviceProfile has accelerator a1000; there are a100, b200"
    ]
    tenants = [{"name": "ours", "quota": [{"accelerator": "a1000", "nominalQuota": 1}]}]
    (text,) = said(ports.SCHEDULING_POLICY, raw_policy(tenants=tenants))
    assert text.startswith("spec.tenants.quota.accelerator: no node and no pool has a")
    (text,) = said(ports.SCHEDULING_POLICY, raw_policy("mine", tenants=tenants))
    assert text.startswith("only the SchedulingPolicy named default is in force")


def test_advice_rests_on_nothing_of_namespaces() -> None:
    """Whoever reaches the port may ask in anyone's name."""
    assert Offers.__dataclass_fields__.keys() == {"by_accelerator", "profiled", "policy"}


GOOD: dict[Kind, Raw] = {
    ports.TRAINING_JOB: raw_job(accelerators=[A], slo={"maxSlowdown": "1.5"}),
    ports.INFERENCE_DEPLOYMENT: raw_service(slo={"latency": "50ms"}),
    ports.TUNING_JOB: raw_tuning_job(),
    ports.CAPACITY_POOL: raw_pool(),
    ports.SCHEDULING_POLICY: raw_policy(packing={"maxPercentSum": 100}),
}


@pytest.mark.parametrize("kind", ADVISED, ids=lambda kind: kind.kind)
def test_wild_objects_get_texts(kind: Kind) -> None:
    offers = offers_of(a_snapshot(*NODES, now=NOW))
    for seed in seeds(150):
        dice = random.Random(seed)
        good = GOOD[kind]
        raw = {**good, "spec": wild(dice, good["spec"])}
        if not isinstance(raw["spec"], dict):
            continue
        texts = advise(kind, raw, offers)
        assert all(isinstance(text, str) and text for text in texts), seed

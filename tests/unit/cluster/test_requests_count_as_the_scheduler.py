# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Cases follow the resource helpers of Kubernetes (pod requests with init containers)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from ullage.api.labels import SLOT_RESOURCE
from ullage.api.readers import WireError
from ullage.cluster.projection.pod_shape import MOST_RESOURCES, pod_requests, pod_shape
from ullage.cluster.records.pod_shape import NodeAffinity, Requirement, SelectorTerm, Toleration

Json = dict[str, Any]


def box(cpu: str, name: str = "c", **more: object) -> dict[str, object]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def sidecar(cpu: str) -> dict[str, object]:
    return box(cpu, "side", restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [box("1"), box("2")]}, 3000),
        ({"containers": [box("1")], "initContainers": [box("5")]}, 5000),
        ({"containers": [box("6")], "initContainers": [box("5"), box("4")]}, 6000),
        # a sidecar runs on: it adds to the containers ...
        ({"containers": [box("1")], "initContainers": [sidecar("2")]}, 3000),
        # ... and to every init container that starts after it, not before
        ({"containers": [box("1")], "initContainers": [sidecar("2"), box("4")]}, 6000),
        ({"containers": [box("1")], "initContainers": [box("4"), sidecar("2")]}, 4000),
        ({"containers": [box("1")], "initContainers": [sidecar("3"), sidecar("3")]}, 7000),
        ({"containers": [box("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [box("1")], "resources": {"requests": {"cpu": "3"}}}, 3000),
        ({"containers": [box("1")], "resources": {"limits": {"cpu": "3"}}}, 1000),
        ({"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "3"}}}, 3000),
    ],
)
def test_cpu_of_a_pod(spec: dict[str, object], cpu: int) -> None:
    assert pod_requests(spec)["cpu"] == cpu


def test_a_limit_without_a_request_counts_as_one() -> None:
    container = {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    container["resources"]["requests"] = {"cpu": "1"}  # type: ignore[index]
    amounts = pod_requests({"containers": [container]})
    assert amounts == {"cpu": 1000, "memory": 2**30}


def test_pod_level_requests_do_not_touch_extended_resources() -> None:
    spec = {
        "containers": [{"name": "c", "resources": {"limits": {"example.com/x": "2"}}}],
        "resources": {"requests": {"example.com/x": "9", "hugepages-2Mi": "4Mi"}},
    }
    assert pod_requests(spec) == {"example.com/x": 2, "hugepages-2Mi": 2**22}


def test_a_template_gets_its_slots_and_counts_as_one_pod() -> None:
    shape = pod_shape({"containers": [box("1")]}, slots=4)
    assert shape.requests.extended == ((SLOT_RESOURCE, 4),)
    assert shape.requests.pods == 1
    assert shape.requests.cpu_milli == 1000


def test_the_device_container_is_the_first_and_its_cpu_limit_is_known() -> None:
    first = {"name": "gpu", "resources": {"limits": {"cpu": "1500m"}}}
    shape = pod_shape({"containers": [first, box("1")]})
    assert (shape.device_container, shape.cpu_limit_milli) == ("gpu", 1500)


def test_a_pod_without_containers_is_refused() -> None:
    with pytest.raises(WireError, match=r"spec\.containers: at least one container is needed"):
        pod_shape({"containers": []})


def test_errors_name_the_path() -> None:
    with pytest.raises(WireError, match=r"container c: resources\.requests\[cpu\]: 'lots' is no q"):
        pod_shape({"containers": [box("lots")]})


def test_selectors_tolerations_and_affinity_are_read() -> None:
    terms = [
        {
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}],
        },
        {},
    ]
    shape = pod_shape(
        {
            "containers": [box("1")],
            "nodeSelector": {"b": "2", "a": "1"},
            "tolerations": [{"key": "gpu", "effect": "NoSchedule"}, {"operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
                }
            },
        }
    )
    assert shape.node_selector == (("a", "1"), ("b", "2"))
    assert shape.tolerations == (
        Toleration(key="gpu", effect="NoSchedule"),
        Toleration(operator="Exists"),
    )
    assert shape.affinity.required == (
        SelectorTerm(
            expressions=(Requirement(key="zone", operator="In", values=("a", "b")),),
            fields=(Requirement(key="metadata.name", operator="NotIn", values=("n9",)),),
        ),
        SelectorTerm(),
    )


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        ({}, NodeAffinity(has_affinity=True)),
        ({"podAffinity": {}}, NodeAffinity(has_affinity=True)),
        (
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            NodeAffinity(has_affinity=True, has_node_affinity=True),
        ),
    ],
)
def test_which_parents_of_the_affinity_exist(affinity: object, expected: NodeAffinity) -> None:
    shape = pod_shape({"containers": [box("1")], "affinity": affinity})
    assert shape.affinity == expected


def test_of_too_many_resources_those_that_every_node_has_still_count() -> None:
    limits = {f"a.example/{at}": "1" for at in range(1000)}
    limits |= {"cpu": "2", "memory": "1Gi", SLOT_RESOURCE: "1"}
    more = {f"b.example/{at}": "1" for at in range(1000)} | {"memory": "1Gi"}
    amounts = pod_requests(
        {
            "containers": [{"name": "c", "resources": {"limits": limits}}],
            "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": {"limits": more}}
            ],
        }
    )
    assert (amounts["cpu"], amounts["memory"], amounts[SLOT_RESOURCE]) == (2000, 2 << 30, 1)
    assert len(amounts) <= MOST_RESOURCES + 4


def a_container(draw: random.Random) -> Json:
    names = draw.sample(("a", "b", "c"), draw.randrange(4))
    requests = {name: str(draw.randrange(5)) for name in names}
    more = {"restartPolicy": "Always"} if draw.random() < 0.5 else {}
    return {"name": "c", "resources": {"requests": requests}, **more}


def plainly(spec: Json) -> Counter[str]:
    """The most of each resource at any moment: an init container beside sidecars, or all."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    together = [{**container, "restartPolicy": "Always"} for container in spec["containers"]]
    for container in [*spec["initContainers"], *together]:
        requests = container["resources"]["requests"]
        now = running + Counter({name: int(amount) for name, amount in requests.items()})
        most |= now
        running = now if container.get("restartPolicy") == "Always" else running
    return most


def test_sidecars_count_beside_whatever_starts_after_them() -> None:
    draw = random.Random(1)
    for _ in range(500):
        spec = {
            field: [a_container(draw) for _ in range(draw.randrange(5))]
            for field in ("containers", "initContainers")
        }
        assert +Counter(pod_requests(spec)) == plainly(spec), spec

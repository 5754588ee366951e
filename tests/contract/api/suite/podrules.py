# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gated pods: what may change while a gate stands, and what never."""

from __future__ import annotations

from typing import Any

import pytest

from contract.api.suite.world import World, a_pod, case, uid
from ullage.ports import POD, Conflict, Invalid

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PIN = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def zone(name: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]}


@case
async def a_gated_pod_says_so(w: World) -> None:
    pod = await w.create(POD, a_pod(w.name("pod")))
    (found,) = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert (found["status"], found["reason"]) == ("False", "SchedulingGated")


@case
async def ungate_and_pin_go_in_one_patch(w: World) -> None:
    name = w.name("pod")
    pod = await w.create(POD, a_pod(name, gates=("first.example/x", "ullage.dev/placement")))
    done = await w.patch(
        POD,
        name,
        {"op": "test", "path": "/metadata/uid", "value": uid(pod)},
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": "ullage.dev/placement"},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
        {"op": "add", "path": "/spec/affinity", "value": affinity(PIN)},
    )
    assert [gate["name"] for gate in done["spec"]["schedulingGates"]] == ["first.example/x"]
    assert done["spec"]["affinity"] == affinity(PIN)


@case
async def the_last_gate_leaves_no_list(w: World) -> None:
    name = w.name("pod")
    await w.create(POD, a_pod(name))
    done = await w.patch(
        POD,
        name,
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        {"op": "add", "path": "/spec/affinity", "value": affinity(PIN)},
    )
    assert "schedulingGates" not in done["spec"]


@case
async def a_gate_cannot_be_added(w: World) -> None:
    name = w.name("pod")
    await w.create(POD, a_pod(name))
    late = {"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": "late.example/x"}}
    with pytest.raises(Invalid, match="only deletion is allowed"):
        await w.patch(POD, name, late)


@case
async def required_terms_only_narrow(w: World) -> None:
    name = w.name("pod")
    await w.create(POD, a_pod(name, affinity=affinity(zone("a"), zone("b"))))
    terms = f"/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"
    for refused in (
        {"op": "add", "path": f"{terms}/-", "value": PIN},
        {"op": "remove", "path": f"{terms}/1"},
        {"op": "replace", "path": f"{terms}/0/matchExpressions/0/values/0", "value": "c"},
        {"op": "remove", "path": "/spec/affinity"},
    ):
        with pytest.raises(Invalid):
            await w.patch(POD, name, refused)
    done = await w.patch(
        POD,
        name,
        *(
            {"op": "add", "path": f"{terms}/{i}/matchFields", "value": PIN["matchFields"]}
            for i in (0, 1)
        ),
    )
    found = done["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [term["matchFields"] for term in found] == [PIN["matchFields"]] * 2


@case
async def an_empty_term_may_not_be_filled(w: World) -> None:
    name = w.name("pod")
    await w.create(POD, a_pod(name, affinity=affinity({})))
    terms = f"/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"
    with pytest.raises(Invalid):
        await w.patch(
            POD,
            name,
            {"op": "add", "path": f"{terms}/0/matchFields", "value": PIN["matchFields"]},
        )


@case
async def preferred_terms_do_not_stand_in_the_way_of_a_pin(w: World) -> None:
    name = w.name("pod")
    preferred = [{"weight": 1, "preference": zone("a")}]
    wish = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    await w.create(POD, a_pod(name, affinity=wish))
    done = await w.patch(
        POD,
        name,
        {
            "op": "add",
            "path": f"/spec/affinity/nodeAffinity/{REQUIRED}",
            "value": {"nodeSelectorTerms": [PIN]},
        },
    )
    assert done["spec"]["affinity"]["nodeAffinity"][REQUIRED] == {"nodeSelectorTerms": [PIN]}


@case
async def match_fields_know_the_name_alone(w: World) -> None:
    name = w.name("pod")
    await w.create(POD, a_pod(name))
    wrong = {"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["x"]}]}
    with pytest.raises(Invalid):
        await w.patch(POD, name, {"op": "add", "path": "/spec/affinity", "value": affinity(wrong)})


@case
async def a_node_selector_may_only_grow_while_gated(w: World) -> None:
    name = w.name("pod")
    await w.create(POD, a_pod(name, nodeSelector={"a": "1"}))
    with pytest.raises(Invalid):
        await w.patch(POD, name, {"op": "replace", "path": "/spec/nodeSelector/a", "value": "2"})
    await w.patch(POD, name, {"op": "add", "path": "/spec/nodeSelector/b", "value": "2"})


@case
async def without_gates_the_choice_of_nodes_is_fixed(w: World) -> None:
    name = w.name("pod")
    # An impossible selector keeps kube-scheduler from binding it.
    await w.create(POD, a_pod(name, gates=(), nodeSelector={"no-such": "node"}))
    for refused in (
        {"op": "add", "path": "/spec/affinity", "value": affinity(PIN)},
        {"op": "add", "path": "/spec/nodeSelector/b", "value": "2"},
        {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "late.example/x"}]},
        {"op": "replace", "path": "/spec/containers/0/name", "value": "other"},
    ):
        with pytest.raises(Invalid):
            await w.patch(POD, name, refused)


@case
async def the_rest_of_a_gated_pod_is_fixed(w: World) -> None:
    name = w.name("pod")
    await w.create(POD, a_pod(name))
    with pytest.raises(Invalid):
        await w.patch(POD, name, {"op": "add", "path": "/spec/hostNetwork", "value": True})
    spread = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}
    with pytest.raises(Invalid):
        await w.patch(POD, name, {"op": "add", "path": "/spec/affinity", "value": spread})
    changed = await w.patch(
        POD, name, {"op": "replace", "path": "/spec/containers/0/image", "value": "none.invalid/2"}
    )
    assert changed["spec"]["containers"][0]["image"] == "none.invalid/2"


@case
async def a_gated_pod_cannot_name_its_node(w: World) -> None:
    with pytest.raises(Invalid, match="nodeName"):
        await w.create(POD, a_pod(w.name("pod"), nodeName="node-1"))


@case
async def a_pod_without_containers_is_refused(w: World) -> None:
    with pytest.raises(Invalid, match=r"spec\.containers: Required value"):
        await w.create(POD, a_pod(w.name("pod"), containers=[]))


@case
async def an_evicted_pod_goes(w: World) -> None:
    name = w.name("pod")
    pod = await w.create(POD, a_pod(name))
    with pytest.raises(Conflict):
        await w.cluster.evict(
            name, namespace=w.namespace, uid="00000000-0000-0000-0000-000000000000"
        )
    await w.cluster.evict(name, namespace=w.namespace, uid=uid(pod))
    await w.gone(POD, name)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Server-side apply: who owns which field, and what follows from it."""

from __future__ import annotations

import pytest

from contract.api.suite.world import World, a_job, a_profile, a_slice, case, owners, uid, version
from ullage.ports import (
    GPU_NODE,
    SERVICE,
    TRAINING_JOB,
    WORKLOAD_PROFILE,
    BadRequest,
    Conflict,
    Invalid,
)


def condition(kind: str, status: str = "True") -> dict[str, object]:
    return {
        "type": kind,
        "status": status,
        "reason": "Because",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }


@case
async def an_apply_creates_what_is_not_there(w: World) -> None:
    made = await w.apply(GPU_NODE, w.name("gn"), {"spec": {"epoch": 1}})
    assert made["spec"]["epoch"] == 1
    assert owners(made)["one", "Apply", ""] == {"f:spec": {"f:epoch": {}}}


@case
async def the_same_apply_again_changes_nothing(w: World) -> None:
    body = {"spec": {"epoch": 1, "slices": [a_slice()]}}
    first = await w.apply(GPU_NODE, w.name("gn"), body)
    again = await w.apply(GPU_NODE, w.name("gn"), body)
    assert version(again) == version(first)


@case
async def a_field_no_longer_applied_goes(w: World) -> None:
    name = w.name("gn")
    both = {"spec": {"epoch": 1, "slices": [a_slice("a"), a_slice("b")]}}
    await w.apply(GPU_NODE, name, both)
    one = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1, "slices": [a_slice("b")]}})
    assert [s["podUID"] for s in one["spec"]["slices"]] == ["b"]
    none = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    assert not none["spec"].get("slices")


@case
async def an_applied_empty_list_removes_what_was_ours(w: World) -> None:
    name = w.name("gn")
    await w.apply(GPU_NODE, name, {"spec": {"epoch": 1, "slices": [a_slice("a")]}})
    none = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1, "slices": []}})
    assert not none["spec"].get("slices")


@case
async def a_label_no_longer_applied_goes_and_others_stay(w: World) -> None:
    name = w.name("gn")
    await w.apply(GPU_NODE, name, {"metadata": {"labels": {"a": "1"}}, "spec": {"epoch": 1}})
    labels = {"metadata": {"labels": {"b": "2"}}, "spec": {"epoch": 1}}
    both = await w.apply(GPU_NODE, name, labels, manager="two")
    assert both["metadata"]["labels"] == {"a": "1", "b": "2"}
    left = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    assert left["metadata"]["labels"] == {"b": "2"}
    none = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}}, manager="two")
    assert "labels" not in none["metadata"]


@case
async def what_two_apply_stays_until_both_let_go(w: World) -> None:
    name = w.name("gn")
    body = {"spec": {"epoch": 1, "slices": [a_slice("a")]}}
    await w.apply(GPU_NODE, name, body)
    await w.apply(GPU_NODE, name, body, manager="two")
    kept = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    assert [s["podUID"] for s in kept["spec"]["slices"]] == ["a"]
    gone = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}}, manager="two")
    assert not gone["spec"].get("slices")


@case
async def an_item_lives_on_while_someone_owns_a_field_of_it(w: World) -> None:
    name = w.name("gn")
    await w.apply(GPU_NODE, name, {"spec": {"epoch": 1, "slices": [a_slice("a")]}})
    await w.apply(
        GPU_NODE, name, {"spec": {"epoch": 1, "slices": [a_slice("a", percent=70)]}}, manager="two"
    )
    left = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    assert [s["percent"] for s in left["spec"]["slices"]] == [70]


@case
async def force_takes_a_field_from_its_owner(w: World) -> None:
    name = w.name("gn")
    await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    taken = await w.apply(GPU_NODE, name, {"spec": {"epoch": 2}}, manager="two")
    assert set(owners(taken)) == {("two", "Apply", "")}


@case
async def without_force_another_owner_is_a_conflict(w: World) -> None:
    name = w.name("gn")
    await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    with pytest.raises(Conflict, match=r'conflict with "one".*\.spec\.epoch'):
        await w.apply_gently(GPU_NODE, name, {"spec": {"epoch": 2}}, manager="two")
    profile = w.name("profile")
    await w.apply(WORKLOAD_PROFILE, profile, a_profile(0.5))
    with pytest.raises(Conflict, match=r"\.smUtil"):
        await w.apply_gently(WORKLOAD_PROFILE, profile, a_profile(0.6), manager="two")
    agreed = await w.apply_gently(GPU_NODE, name, {"spec": {"epoch": 1}}, manager="two")
    assert set(owners(agreed)) == {("one", "Apply", ""), ("two", "Apply", "")}


@case
async def an_update_takes_what_it_changes(w: World) -> None:
    name = w.name("profile")
    await w.apply(WORKLOAD_PROFILE, name, a_profile(0.5))
    changed = await w.patch(
        WORKLOAD_PROFILE, name, {"op": "replace", "path": "/spec/solo/0/smUtil", "value": 0.6}
    )
    mine = owners(changed)["ullage-operator", "Update", ""]
    (item,) = mine["f:spec"]["f:solo"].values()
    assert item == {"f:smUtil": {}}
    (left,) = owners(changed)["one", "Apply", ""]["f:spec"]["f:solo"].values()
    assert "f:smUtil" not in left


@case
async def one_manager_applies_and_updates_as_two_owners(w: World) -> None:
    name = w.name("gn")
    await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}}, manager="ullage-operator")
    both = await w.patch(GPU_NODE, name, {"op": "replace", "path": "/spec/epoch", "value": 2})
    assert set(owners(both)) == {("ullage-operator", "Update", "")}
    with pytest.raises(Conflict):
        await w.apply_gently(GPU_NODE, name, {"spec": {"epoch": 3}}, manager="ullage-operator")


@case
async def a_status_apply_sets_the_status_alone(w: World) -> None:
    name = w.name("gn")
    await w.apply(GPU_NODE, name, {"spec": {"epoch": 3}})
    body = {"spec": {"epoch": 9}, "status": {"conditions": [condition("Ready")]}}
    told = await w.apply(GPU_NODE, name, body, manager="node", subresource="status")
    assert told["spec"]["epoch"] == 3
    assert told["status"]["conditions"][0]["type"] == "Ready"
    assert "f:spec" not in owners(told)["node", "Apply", "status"]
    kept = await w.apply(GPU_NODE, name, {"spec": {"epoch": 4}, "status": {"conditions": []}})
    assert kept["status"] == told["status"]


@case
async def an_object_that_loses_its_last_field_must_not_be_applied_empty(w: World) -> None:
    name = w.name("job")
    await w.create(TRAINING_JOB, a_job(name))

    async def apply(status: dict[str, object]) -> dict[str, object]:
        body = {"status": {"phase": "Running"} | status}
        return await w.apply(TRAINING_JOB, name, body, subresource="status")

    assert (await apply({"scheduling": {}}))["status"]["scheduling"] == {}
    await apply({"scheduling": {"pullFailures": 2}})
    with pytest.raises(Invalid, match="must be of type object"):
        await apply({"scheduling": {}})
    assert "scheduling" not in (await apply({}))["status"]


@case
async def conditions_of_two_managers_live_side_by_side(w: World) -> None:
    name = w.name("job")
    await w.create(TRAINING_JOB, a_job(name))
    for manager, kind in (("one", "Admitted"), ("two", "Placed")):
        told = await w.apply(
            TRAINING_JOB,
            name,
            {"status": {"conditions": [condition(kind)]}},
            manager=manager,
            subresource="status",
        )
    assert {c["type"] for c in told["status"]["conditions"]} == {"Admitted", "Placed"}
    left = await w.apply(
        TRAINING_JOB, name, {"status": {"conditions": []}}, manager="one", subresource="status"
    )
    assert [c["type"] for c in left["status"]["conditions"]] == ["Placed"]


@case
async def an_apply_with_the_uid_of_a_gone_object_conflicts(w: World) -> None:
    name = w.name("gn")
    first = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    await w.delete(GPU_NODE, name)
    await w.gone(GPU_NODE, name)
    body = {"metadata": {"uid": uid(first)}, "spec": {"epoch": 1}}
    with pytest.raises(Conflict):
        await w.apply(GPU_NODE, name, body)


@case
async def an_apply_with_the_uid_of_a_recreated_object_is_invalid(w: World) -> None:
    name = w.name("gn")
    first = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    await w.delete(GPU_NODE, name)
    await w.gone(GPU_NODE, name)
    await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    body = {"metadata": {"uid": uid(first)}, "spec": {"epoch": 1}}
    with pytest.raises(Invalid):
        await w.apply(GPU_NODE, name, body)


@case
async def a_status_apply_does_not_check_the_uid_but_the_version(w: World) -> None:
    name = w.name("gn")
    first = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    status = {"status": {"conditions": [condition("Ready")]}}
    stranger = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, **status}
    told = await w.apply(GPU_NODE, name, stranger, subresource="status")
    assert told["status"]["conditions"][0]["type"] == "Ready"
    old = {"metadata": {"resourceVersion": version(first)}, "status": {"conditions": []}}
    with pytest.raises(Conflict):
        await w.apply(GPU_NODE, name, old, subresource="status")


@case
async def an_apply_with_an_old_version_conflicts(w: World) -> None:
    name = w.name("gn")
    first = await w.apply(GPU_NODE, name, {"spec": {"epoch": 1}})
    await w.apply(GPU_NODE, name, {"spec": {"epoch": 2}})
    old = {"metadata": {"resourceVersion": version(first)}, "spec": {"epoch": 3}}
    with pytest.raises(Conflict):
        await w.apply(GPU_NODE, name, old)


@case
async def a_built_in_kind_is_applied_by_its_keys(w: World) -> None:
    name = w.name("svc")
    spec = {
        "clusterIP": "None",
        "selector": {"app": "x"},
        "ports": [{"name": "http", "port": 80}, {"name": "steps", "port": 90}],
    }
    made = await w.apply(SERVICE, name, {"spec": spec})
    assert [p["port"] for p in made["spec"]["ports"]] == [80, 90]
    spec["ports"] = [{"name": "steps", "port": 90}]
    spec["selector"] = {"app": "y"}
    again = await w.apply(SERVICE, name, {"spec": spec})
    assert [p["port"] for p in again["spec"]["ports"]] == [90]
    assert again["spec"]["selector"] == {"app": "y"}
    same = await w.apply(SERVICE, name, {"spec": spec})
    assert version(same) == version(again)


@case
async def a_refused_apply_leaves_no_trace(w: World) -> None:
    name = w.name("wp")
    made = await w.apply(WORKLOAD_PROFILE, name, {"spec": {"class": "resnet"}})
    with pytest.raises(Invalid):
        await w.apply(WORKLOAD_PROFILE, name, {"spec": {"class": ""}})
    with pytest.raises(BadRequest, match=r"\.spec\.class: expected string"):
        await w.apply(WORKLOAD_PROFILE, name, {"spec": {"class": 7}})
    assert version(await w.get(WORKLOAD_PROFILE, name)) == version(made)

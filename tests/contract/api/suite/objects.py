# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Create, read, update, patch, delete: what is accepted, refused and filled in."""

from __future__ import annotations

import asyncio

import pytest

from contract.api.suite.world import World, a_job, a_pod, a_profile, a_slice, case, uid, version
from ullage.ports import (
    GPU_NODE,
    INFERENCE_DEPLOYMENT,
    LEASE,
    POD,
    TRAINING_JOB,
    WORKLOAD_PROFILE,
    BadRequest,
    Conflict,
    Invalid,
    NotFound,
)


@case
async def a_created_object_has_uid_version_and_generation(w: World) -> None:
    made = await w.create(TRAINING_JOB, a_job(w.name("job")))
    assert uid(made)
    assert int(version(made)) > 0
    assert made["metadata"]["generation"] == 1
    assert await w.get(TRAINING_JOB, w.name("job")) == made


@case
async def the_same_name_cannot_be_created_twice(w: World) -> None:
    await w.create(POD, a_pod(w.name("pod")))
    with pytest.raises(Conflict) as refused:
        await w.create(POD, a_pod(w.name("pod")))
    assert refused.value.reason == "AlreadyExists"


@case
async def generate_name_makes_a_name(w: World) -> None:
    body = a_pod("x")
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = w.name("pod") + "-"
    made = await w.create(POD, body)
    assert made["metadata"]["name"].startswith(w.name("pod") + "-")


@case
async def what_is_not_there_is_not_found(w: World) -> None:
    name = w.name("none")
    with pytest.raises(NotFound):
        await w.get(POD, name)
    with pytest.raises(NotFound):
        await w.patch(POD, name, {"op": "remove", "path": "/spec"})
    with pytest.raises(NotFound):
        await w.delete(GPU_NODE, name)
    with pytest.raises(NotFound):
        await w.cluster.evict(name, namespace=w.namespace, uid="x")
    with pytest.raises(NotFound):
        await w.apply(GPU_NODE, name, {"status": {}}, subresource="status")


@case
async def a_missing_required_field_is_named(w: World) -> None:
    with pytest.raises(Invalid, match=r"spec\.template: Required value"):
        await w.create(TRAINING_JOB, {"metadata": {"name": w.name("job")}, "spec": {}})


@case
async def an_unknown_word_of_an_enum_is_refused(w: World) -> None:
    with pytest.raises(Invalid, match="Unsupported value"):
        await w.create(TRAINING_JOB, a_job(w.name("job"), gpu={"mode": "Sideways", "count": 1}))


@case
async def defaults_are_filled_in(w: World) -> None:
    made = await w.create(TRAINING_JOB, a_job(w.name("job")))
    assert made["spec"]["gpu"]["count"] == 1
    assert made["spec"]["gpu"]["mode"] == "Exclusive"


@case
async def a_misspelt_field_in_a_create_is_named(w: World) -> None:
    with pytest.raises(BadRequest, match=r'unknown field "spec\.colour"'):
        await w.create(TRAINING_JOB, a_job(w.name("job"), colour="green"))
    pod = a_pod(w.name("pod"))
    pod["spec"]["containers"][0]["resources"] = {"limit": {"cpu": "1"}}
    with pytest.raises(
        BadRequest, match=r'unknown field "spec\.containers\[0\]\.resources\.limit"'
    ):
        await w.create(POD, pod)


@case
async def an_unknown_field_in_a_patch_is_dropped(w: World) -> None:
    name = w.name("job")
    made = await w.create(TRAINING_JOB, a_job(name))
    same = await w.patch(TRAINING_JOB, name, {"op": "add", "path": "/spec/colour", "value": "x"})
    assert version(same) == version(made)


@case
async def an_unknown_field_in_an_apply_is_no_use_to_repeat(w: World) -> None:
    with pytest.raises(BadRequest, match=r"\.spec\.colour: field not declared in schema"):
        await w.apply(GPU_NODE, w.name("gn"), {"spec": {"epoch": 1, "colour": "x"}})
    with pytest.raises(BadRequest, match="duplicate entries for key"):
        await w.apply(WORKLOAD_PROFILE, w.name("profile"), a_profile(0.5, 0.6))


@case
async def limits_are_requests_too(w: World) -> None:
    resources = {"limits": {"ullage.dev/slot": "1", "cpu": "2"}, "requests": {"cpu": "1"}}
    container = {"name": "main", "image": "none.invalid/none", "resources": resources}
    made = await w.create(POD, a_pod(w.name("pod"), containers=[container]))
    requests = made["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"ullage.dev/slot": "1", "cpu": "1"}


@case
async def what_a_template_holds_passes_through(w: World) -> None:
    made = await w.create(TRAINING_JOB, a_job(w.name("job")))
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "none.invalid/none"


@case
async def a_status_in_a_create_is_dropped(w: World) -> None:
    body = {**a_job(w.name("job")), "status": {"phase": "Running"}}
    made = await w.create(TRAINING_JOB, body)
    assert "status" not in made


@case
async def an_update_at_an_old_version_conflicts(w: World) -> None:
    made = await w.create(LEASE, {"metadata": {"name": w.name("lease")}, "spec": {}})
    changed = {**made, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 12}}
    await w.cluster.update(LEASE, w.name("lease"), changed, namespace=w.namespace)
    with pytest.raises(Conflict):
        await w.cluster.update(LEASE, w.name("lease"), changed, namespace=w.namespace)


@case
async def a_lease_may_be_held_by_no_one(w: World) -> None:
    name = w.name("lease")
    made = await w.create(LEASE, {"metadata": {"name": name}, "spec": {"holderIdentity": "a"}})
    body = {
        **made,
        "spec": {
            "holderIdentity": "",
            "leaseTransitions": 3,
            "leaseDurationSeconds": 12,
            "renewTime": "2026-01-02T03:04:05.678901Z",
        },
    }
    done = await w.cluster.update(LEASE, name, body, namespace=w.namespace)
    spec = done["spec"]
    assert isinstance(spec, dict)
    assert spec["holderIdentity"] == ""
    assert spec["renewTime"] == "2026-01-02T03:04:05.678901Z"


@case
async def an_update_that_changes_nothing_keeps_the_version(w: World) -> None:
    made = await w.create(LEASE, {"metadata": {"name": w.name("lease")}, "spec": {}})
    done = await w.cluster.update(LEASE, w.name("lease"), made, namespace=w.namespace)
    assert version(done) == version(made)


@case
async def a_custom_resource_cannot_be_updated_without_a_version(w: World) -> None:
    made = await w.create(TRAINING_JOB, a_job(w.name("job")))
    del made["metadata"]["resourceVersion"]
    with pytest.raises(Invalid, match="must be specified for an update"):
        await w.cluster.update(TRAINING_JOB, w.name("job"), made, namespace=w.namespace)


@case
async def the_generation_counts_changes_of_the_spec_alone(w: World) -> None:
    name = w.name("job")
    await w.create(TRAINING_JOB, a_job(name))
    labelled = await w.patch(
        TRAINING_JOB, name, {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    )
    assert labelled["metadata"]["generation"] == 1
    changed = await w.patch(TRAINING_JOB, name, {"op": "add", "path": "/spec/replicas", "value": 2})
    assert changed["metadata"]["generation"] == 2
    told = await w.apply(TRAINING_JOB, name, {"status": {"phase": "Pending"}}, subresource="status")
    assert told["metadata"]["generation"] == 2


@case
async def a_failed_test_of_a_json_patch_is_invalid(w: World) -> None:
    name = w.name("pod")
    await w.create(POD, a_pod(name))
    add = {"op": "add", "path": "/metadata/labels/x", "value": "y"}
    with pytest.raises(Invalid):
        await w.patch(POD, name, {"op": "test", "path": "/metadata/uid", "value": "other"}, add)
    with pytest.raises(Invalid):
        await w.patch(POD, name, {"op": "test", "path": "/spec/nodeName", "value": "n"}, add)
    with pytest.raises(Invalid):
        await w.patch(POD, name, {"op": "remove", "path": "/spec/schedulingGates/7"})
    assert "x" not in (await w.get(POD, name))["metadata"]["labels"]


@case
async def a_json_patch_escapes_slashes_and_appends(w: World) -> None:
    name = w.name("pod")
    await w.create(POD, a_pod(name))
    done = await w.patch(
        POD,
        name,
        {"op": "test", "path": "/metadata/labels/ullage.dev~1managed", "value": "true"},
        {"op": "add", "path": "/metadata/annotations", "value": {"ullage.dev/decision": "x"}},
        {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "k", "operator": "Exists"}},
    )
    assert done["metadata"]["annotations"]["ullage.dev/decision"] == "x"
    assert done["spec"]["tolerations"][-1]["key"] == "k"


@case
async def a_json_patch_may_bear_a_version(w: World) -> None:
    name = w.name("gn")
    made = await w.create(GPU_NODE, {"metadata": {"name": name}, "spec": {"epoch": 1}})
    at = {"op": "test", "path": "/metadata/resourceVersion", "value": version(made)}
    await w.patch(GPU_NODE, name, at, {"op": "replace", "path": "/spec/epoch", "value": 2})
    with pytest.raises(Invalid):
        await w.patch(GPU_NODE, name, at, {"op": "replace", "path": "/spec/epoch", "value": 3})


@case
async def a_json_patch_may_test_the_generation_which_a_status_leaves_alone(w: World) -> None:
    name = w.name("job")
    await w.create(TRAINING_JOB, a_job(name))
    await w.apply(TRAINING_JOB, name, {"status": {"phase": "Pending"}}, subresource="status")
    at = {"op": "test", "path": "/metadata/generation", "value": 1}
    await w.patch(TRAINING_JOB, name, at, {"op": "add", "path": "/spec/replicas", "value": 2})
    with pytest.raises(Invalid):
        await w.patch(TRAINING_JOB, name, at, {"op": "add", "path": "/spec/replicas", "value": 3})


@case
async def an_object_of_another_kind_is_refused(w: World) -> None:
    with pytest.raises(BadRequest):
        await w.create(POD, {**a_pod(w.name("pod")), "kind": "Node"})


@case
async def a_lower_epoch_is_refused_even_with_force(w: World) -> None:
    name = w.name("gn")
    await w.apply(GPU_NODE, name, {"spec": {"epoch": 5, "slices": [a_slice(epoch=5)]}})
    with pytest.raises(Invalid, match="epoch"):
        await w.apply(GPU_NODE, name, {"spec": {"epoch": 4, "slices": []}})
    same = await w.apply(GPU_NODE, name, {"spec": {"epoch": 5, "slices": []}})
    assert not same["spec"].get("slices")


@case
async def deleting_another_uid_conflicts(w: World) -> None:
    name = w.name("pod")
    made = await w.create(POD, a_pod(name))
    with pytest.raises(Conflict):
        await w.delete(POD, name, uid="00000000-0000-0000-0000-000000000000")
    await w.delete(POD, name, uid=uid(made))
    await w.gone(POD, name)


@case
async def a_finalizer_holds_a_deletion(w: World) -> None:
    name = w.name("job")
    body = a_job(name)
    body["metadata"]["finalizers"] = ["ullage.dev/cleanup"]
    await w.create(TRAINING_JOB, body)
    await w.delete(TRAINING_JOB, name)
    waiting = await w.get(TRAINING_JOB, name)
    assert waiting["metadata"]["deletionTimestamp"]
    await w.patch(TRAINING_JOB, name, {"op": "remove", "path": "/metadata/finalizers"})
    await w.gone(TRAINING_JOB, name)


@case
async def what_an_object_owns_goes_with_it(w: World) -> None:
    owner = await w.create(TRAINING_JOB, a_job(w.name("job")))
    child = a_pod(w.name("pod"))
    child["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "ullage.dev/v1alpha1",
            "kind": "TrainingJob",
            "name": w.name("job"),
            "uid": uid(owner),
            "controller": True,
        }
    ]
    await w.create(POD, child)
    await asyncio.sleep(0)
    await w.delete(TRAINING_JOB, w.name("job"))
    await w.gone(POD, w.name("pod"))


@case
async def the_scale_of_a_service_is_its_replicas(w: World) -> None:
    name = w.name("svc")
    template = {"spec": {"containers": [{"name": "main", "image": "none.invalid/none"}]}}
    await w.create(
        INFERENCE_DEPLOYMENT, {"metadata": {"name": name}, "spec": {"template": template}}
    )
    path = f"/apis/ullage.dev/v1alpha1/namespaces/{w.namespace}/inferencedeployments/{name}/scale"
    scale = await w.cluster._transport.read(path, [])
    assert scale["spec"] == {"replicas": 1}
    await w.cluster._transport.write("PUT", path, {**scale, "spec": {"replicas": 3}})
    assert (await w.get(INFERENCE_DEPLOYMENT, name))["spec"]["replicas"] == 3


@case
async def replicas_are_set_for_the_newest_version_alone(w: World) -> None:
    name = w.name("svc")
    template = {"spec": {"containers": [{"name": "main", "image": "none.invalid/none"}]}}
    made = await w.create(
        INFERENCE_DEPLOYMENT, {"metadata": {"name": name}, "spec": {"template": template}}
    )

    async def scale(replicas: int, at: str) -> None:
        await w.cluster.scale(
            INFERENCE_DEPLOYMENT, name, replicas, namespace=w.namespace, resource_version=at
        )

    async def scaled(replicas: int) -> None:
        """For the newest version; an operator may write a status meanwhile."""
        for _ in range(20):
            try:
                await scale(replicas, version(await w.get(INFERENCE_DEPLOYMENT, name)))
            except Conflict:
                continue
            return

    await scaled(3)
    held = await w.get(INFERENCE_DEPLOYMENT, name)
    assert (held["spec"]["replicas"], held["metadata"]["generation"]) == (3, 2)
    with pytest.raises(Conflict):
        await scale(2, version(made))
    assert (await w.get(INFERENCE_DEPLOYMENT, name))["spec"]["replicas"] == 3

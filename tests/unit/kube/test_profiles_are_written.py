# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lessons reach the API: profiles are created once, statuses and models applied whole."""

from __future__ import annotations

from fakes import writer_rig as do
from fakes.cluster_port import Call
from fakes.virtual_time import run_virtual
from fakes.writer_rig import a_rig
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.profile import DeviceModel, ProfileStatus, StepRow
from ullage.ports import DEVICE_PROFILE, WORKLOAD_PROFILE, Kind
from ullage.scheduling.model.plan import Action, CreateProfile, SetDeviceModel, SetProfile

ROW = StepRow(id="node-1/1", accelerator="emulated", share=50, step_s=0.01, at_s=1.5e9)


def _target(kind: str = "WorkloadProfile", namespace: str = "default", uid: str = "") -> ObjectRef:
    return ObjectRef(kind=kind, namespace=namespace, name="one", uid=uid)


CREATE = CreateProfile(target=_target(), workload_class="resnet", **do.WHY)
STATUS = SetProfile(
    target=_target(uid="uid-one"),
    status=ProfileStatus(observed_generation=2, source="Measured", step_time=(ROW,)),
    **do.WHY,
)
MODEL = SetDeviceModel(
    target=_target("DeviceProfile", "", "uid-one"),
    generation=3,
    model=DeviceModel(version=2, rung="prior", rows=12, updated=1.5e9),
    **do.WHY,
)


def written(*actions: Action, held: Kind | None = None) -> tuple[list[Call], int]:
    async def main() -> tuple[list[Call], int]:
        async with a_rig() as rig:
            if held is not None:
                namespace = "default" if held.namespaced else ""
                meta = {"name": "one", "uid": "uid-one", "namespace": namespace}
                rig.cluster.put(held, {"metadata": meta, "spec": {}})
            for action in actions:
                await rig.write(action)
            return [call for call in rig.cluster.calls if call.verb != "get"], len(rig.errors)

    return run_virtual(main())


def test_a_profile_is_created_with_its_class_alone() -> None:
    (call,), errors = written(CREATE)
    assert (call.verb, call.kind, call.namespace) == ("create", "WorkloadProfile", "default")
    assert call.body["spec"] == {"class": "resnet"}
    assert (call.body["metadata"]["name"], call.body["kind"]) == ("one", "WorkloadProfile")
    assert not errors


def test_a_profile_that_is_there_already_is_not_taken_over() -> None:
    calls, errors = written(CREATE, held=WORKLOAD_PROFILE)
    assert {call.verb for call in calls} == {"create"}
    assert errors


def test_a_status_is_applied_whole_and_only_to_the_object_it_was_made_for() -> None:
    calls, errors = written(STATUS, STATUS, held=WORKLOAD_PROFILE)
    assert not errors
    assert len(calls) == 1, "an equal body is not sent twice"
    assert (calls[0].verb, calls[0].subresource) == ("apply", "status")
    assert calls[0].body["metadata"]["uid"] == "uid-one"
    assert calls[0].body["status"]["stepTime"][0]["id"] == "node-1/1"


def test_a_model_goes_to_its_device_profile() -> None:
    (call,), errors = written(MODEL, held=DEVICE_PROFILE)
    assert not errors
    assert (call.kind, call.subresource) == ("DeviceProfile", "status")
    assert call.body["status"]["model"]["rung"] == "prior"
    assert call.body["metadata"] == {"name": "one", "uid": "uid-one"}

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from typing import Any

import pytest

from builders import an_owner
from builders_children import member_body
from builders_raw import raw_template
from ullage.api.labels import GATE, SLOT_RESOURCE
from ullage.api.readers import WireError
from ullage.cluster.values.names import pod_name, workers_service
from ullage.scheduling.model.selectors import selector_text

JOB = an_owner("train")


def body(template: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "owner": JOB,
        "name": pod_name("train", changes.get("rank", 1)),
        "rank": 1,
        "replicas": 4,
        "slots": 1,
        "template_hash": "0123456789ab",
    }
    return member_body(raw_template() if template is None else template, **fields | changes)


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}


def test_a_member_is_gated_owned_and_labelled() -> None:
    pod = body(raw_template(labels={"team": "a", "ullage.dev/managed": "no"}))
    assert pod["metadata"]["name"] == "train-1"
    assert pod["metadata"]["labels"] == {
        "team": "a",
        "ullage.dev/managed": "true",
        "ullage.dev/kind": "TrainingJob",
        "ullage.dev/owner": "train",
        "ullage.dev/rank": "1",
    }
    assert pod["metadata"]["annotations"] == {"ullage.dev/template-hash": "0123456789ab"}
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "ullage.dev/v1alpha1",
            "kind": "TrainingJob",
            "name": "train",
            "uid": JOB.uid,
            "controller": True,
        }
    ]
    assert pod["spec"]["schedulingGates"] == [{"name": GATE}]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("train-1", "train-workers")


def test_the_device_container_gets_its_slots_and_keeps_its_resources() -> None:
    pod = body(slots=4)
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi", SLOT_RESOURCE: "4"},
        "limits": {SLOT_RESOURCE: "4"},
    }


def test_other_containers_keep_the_end_of_their_log_and_else_stay_as_gates_do() -> None:
    template = raw_template(schedulingGates=[{"name": "other/gate"}])
    log = {"name": "log", "image": "log"}
    mute = {"name": "mute", "image": "mute", "terminationMessagePolicy": "File"}
    template["spec"]["containers"] += [log, mute]
    pod = body(template)
    # a member ends with whichever container fails, so the end of each log is kept
    kept = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    assert pod["spec"]["containers"][1:] == [log | kept, mute]
    assert [gate["name"] for gate in pod["spec"]["schedulingGates"]] == ["other/gate", GATE]


def test_a_gate_that_the_template_states_is_not_doubled() -> None:
    pod = body(raw_template(schedulingGates=[{"name": GATE}]))
    assert pod["spec"]["schedulingGates"] == [{"name": GATE}]


def test_a_gang_finds_its_first_member() -> None:
    assert environment(body(slots=2)) == {
        "MASTER_ADDR": "train-0.train-workers",
        "MASTER_PORT": "29500",
        "RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "PET_NNODES": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "train-0.train-workers",
        "PET_MASTER_PORT": "29500",
        "PET_NPROC_PER_NODE": "2",
        "JAX_COORDINATOR_ADDRESS": "train-0.train-workers:29500",
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "1",
    }


def test_a_member_in_place_is_told_bounds_and_promised_no_rank() -> None:
    pod = body(replicas=1, rank=0, name="train-0", slots=2, bounds=(1, 4))
    assert environment(pod) == {
        "ULLAGE_MEMBER": "train-0",
        "MASTER_ADDR": "train-0.train-workers",
        "MASTER_PORT": "29500",
        "PET_NNODES": "1:4",
        "PET_NPROC_PER_NODE": "2",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "train-0.train-workers:29500",
        "PET_RDZV_ID": JOB.uid,
        "PET_RDZV_CONF": "is_host=1,last_call_timeout=10",
        "PET_MAX_RESTARTS": "100",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "JAX_COORDINATOR_ADDRESS": "train-0.train-workers:29500",
    }
    # others come to it later: it has its name though it starts alone
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("train-0", "train-workers")
    assert "ullage.dev/world-size" not in pod["metadata"]["annotations"]


def test_where_members_in_place_meet_is_the_users_to_say() -> None:
    template = raw_template()
    template["spec"]["containers"][0]["env"] = [
        {"name": "PET_RDZV_BACKEND", "value": "etcd-v2"},
        {"name": "PET_RDZV_ENDPOINT", "value": "etcd:2379"},
    ]
    found = environment(body(template, bounds=(2, 4)))
    assert (found["PET_RDZV_BACKEND"], found["PET_RDZV_ENDPOINT"]) == ("etcd-v2", "etcd:2379")
    assert "PET_RDZV_CONF" not in found  # no member is the place


def test_only_the_first_member_in_place_is_where_the_others_meet() -> None:
    hosts = [
        environment(body(rank=rank, name=f"train-{rank}", bounds=(2, 4)))["PET_RDZV_CONF"]
        for rank in (0, 1, 3)
    ]
    assert [conf.split(",")[0] for conf in hosts] == ["is_host=1", "is_host=0", "is_host=0"]


@pytest.mark.parametrize("name", ["MASTER_ADDR", "PET_RDZV_ENDPOINT"])
def test_no_member_in_place_is_the_host_of_a_place_that_the_template_names(name: str) -> None:
    template = raw_template()
    template["spec"]["containers"][0]["env"] = [{"name": name, "value": "elsewhere"}]
    assert "PET_RDZV_CONF" not in environment(body(template, rank=0, bounds=(2, 4)))


def test_a_lone_member_talks_to_itself_and_has_no_service() -> None:
    pod = body(replicas=1, rank=0)
    assert environment(pod)["MASTER_ADDR"] == "127.0.0.1"
    assert "subdomain" not in pod["spec"]


def test_what_the_template_sets_stays_and_carries_over() -> None:
    template = raw_template()
    template["spec"]["containers"][0]["env"] = [
        {"name": "MASTER_PORT", "value": "1234"},
        {"name": "WORLD_SIZE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "MINE", "value": "x"},
    ]
    entries = body(template)["spec"]["containers"][0]["env"]
    assert entries[:3] == template["spec"]["containers"][0]["env"]
    values = {entry["name"]: entry.get("value") for entry in entries}
    assert len(values) == len(entries), "no name twice"
    assert values["PET_MASTER_PORT"] == "1234"
    assert values["JAX_COORDINATOR_ADDRESS"] == "train-0.train-workers:1234"


@pytest.mark.parametrize(
    ("stated", "wanted", "result"),
    [(None, 0, None), (None, 20, None), (None, 90, 90), (60, 90, 90), (120, 90, 120)],
)
def test_the_grace_is_at_least_what_a_checkpoint_needs(
    stated: int | None, wanted: int, result: int | None
) -> None:
    template = raw_template()
    if stated is not None:
        template["spec"]["terminationGracePeriodSeconds"] = stated
    assert body(template, grace_s=wanted)["spec"].get("terminationGracePeriodSeconds") == result


def test_the_template_is_not_changed() -> None:
    template = raw_template()
    before = copy.deepcopy(template)
    body(template)
    assert template == before


def test_unknown_fields_pass_through() -> None:
    assert body(raw_template(futureField={"a": 1}))["spec"]["futureField"] == {"a": 1}


@pytest.mark.parametrize(
    "template", [{"spec": {"containers": []}}, {"spec": {"containers": "none"}}, {}]
)
def test_a_template_without_containers_is_refused(template: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="containers"):
        body(template)


def test_names_and_selectors_follow_from_the_owner() -> None:
    assert pod_name("train", 12) == "train-12"
    assert workers_service("train") == "train-workers"
    assert selector_text(JOB) == (
        "ullage.dev/kind=TrainingJob,ullage.dev/managed=true,ullage.dev/owner=train"
    )

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is written for a job in tiers is what its coordinator and its members read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from builders import EPOCH, an_owner
from builders_children import member_body
from ullage.api.labels import GATE, LABEL_LEAD, LABEL_TIER
from ullage.api.reasons import Reason
from ullage.api.trainingjob import TierTerms
from ullage.cluster.projection.pod_template import Blueprint, canonical_json
from ullage.cluster.records.pod_shape import NodeAffinity
from ullage.engines.tiers.flush import BYTES_PER_SECOND
from ullage.kube.coordinators import Coordinators, named
from ullage.kube.manifests.tiers import guard_name, narrowed
from ullage.kube.manifests.ungate import ungate_patch
from ullage.ports import NETWORK_POLICY, SECRET, BadRequest, Conflict
from ullage.scheduling.lifecycle import coordinator
from ullage.scheduling.model.plan import ApplyService, CoordinatorStart, CreatePod, Labels
from ullage.scheduling.model.selectors import owner_labels
from ullage_coordinator import server
from ullage_coordinator.server import parser, terms_of
from ullage_run import orders
from ullage_run.orders import Identity

Json = dict[str, Any]
OWNER = an_owner("train", "team")
TERMS = TierTerms(
    reliable=1, stage=2, state_bytes=3 << 30, dirty_bytes=1 << 20, every_steps=2, max_lag_steps=5,
    shards=16, silence_s=7,
)  # fmt: skip
TEMPLATE: Json = {
    "metadata": {"labels": {"mine": "yes"}},
    "spec": {
        "containers": [{"name": "main", "image": "train:1"}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"accelerator": "h100"},
    },
}
COORDINATORS = Coordinators(image="ullage-operator:1", namespace="ullage-system")


def blueprint(terms: TierTerms | None = TERMS) -> Blueprint:
    return Blueprint(
        template_json=canonical_json(TEMPLATE),
        template_hash="abc",
        replicas=3,
        slots=1,
        tiers=terms,
        least=2,
    )


def a_coordinator(on: tuple[Labels, ...] = (), notice_s: float | None = 120.0) -> CreatePod:
    return CreatePod(
        owner=OWNER,
        name="train-lead",
        rank=-1,
        template_hash="abc",
        lead=CoordinatorStart(members=3, notice_s=notice_s),
        on=on,
        epoch=EPOCH,
        reason=Reason.WAITS_FOR_LEAD,
        text="leads",
    )


def coordinator_pod(**how: Any) -> Json:
    return cast(Json, COORDINATORS.pod(a_coordinator(**how), blueprint()))


def member(rank: int = 0, **more: Any) -> Json:
    return member_body(
        TEMPLATE, owner=OWNER, name=f"train-{rank}", rank=rank, replicas=3, tiers=TERMS, **more
    )


def environment(pod: Json) -> Json:
    """As the container sees it on a node."""
    labels = pod["metadata"]["labels"]
    found: Json = {}
    for entry in pod["spec"]["containers"][0]["env"]:
        path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        if path == "spec.nodeName":
            found[entry["name"]] = "node-7"
        elif path:
            key = path.removeprefix("metadata.labels['").removesuffix("']")
            found[entry["name"]] = labels.get(key, "")
        else:
            found[entry["name"]] = entry["value"]
    return found


def test_the_lead_understands_how_it_is_started() -> None:
    command = coordinator_pod()["spec"]["containers"][0]["command"]
    assert command[:3] == ["python", "-m", "ullage_coordinator.server"]
    given = parser().parse_args(command[3:])
    terms = terms_of(given)
    assert (terms.members, terms.least, terms.notice_s) == (3, 2, 120.0)
    assert (terms.link.state_bytes, terms.link.dirty_bytes_per_step) == (3 << 30, 1 << 20)
    assert (terms.link.every_steps, terms.link.max_lag_steps) == (2, 5)
    assert (terms.settings.pinned, terms.settings.shards) == (2, 16)
    assert given.status.endswith(":7072")
    assert given.silent_seconds == 7
    assert str(given.token_file).endswith("/token")


def test_a_lead_ends_with_the_exit_codes_that_are_read() -> None:
    assert coordinator.STATE_LOST == server.STATE_LOST
    assert coordinator.NEVER_JOINED == server.NEVER_JOINED
    assert coordinator.STATE_TOO_LARGE == server.STATE_TOO_LARGE
    assert coordinator.ENDED == server.ENDED
    codes = {
        server.STATE_LOST,
        server.NEVER_JOINED,
        server.STATE_TOO_LARGE,
        server.BAD_ARGUMENTS,
    }
    assert len(codes | {0, coordinator.KILLED, server.ENDED}) == 7, "each says one thing"


def test_the_lead_assumes_the_link_that_notices_are_judged_by() -> None:
    given = parser().parse_args(coordinator_pod()["spec"]["containers"][0]["command"][3:])
    assert given.bytes_per_second == BYTES_PER_SECOND
    by_hand = parser().parse_args(["--members", "1", "--state-bytes", "1"])
    assert by_hand.bytes_per_second == BYTES_PER_SECOND


def test_a_step_changes_no_more_than_the_state() -> None:
    odd = replace(TERMS, dirty_bytes=TERMS.state_bytes + 1)
    pod = cast(Json, COORDINATORS.pod(a_coordinator(), blueprint(odd)))
    given = parser().parse_args(pod["spec"]["containers"][0]["command"][3:])
    assert terms_of(given).link.dirty_bytes_per_step == TERMS.state_bytes


def test_what_no_one_stated_is_left_to_the_lead() -> None:
    plain = replace(TERMS, stage=0, dirty_bytes=0)
    pod = cast(Json, COORDINATORS.pod(a_coordinator(notice_s=None), blueprint(plain)))
    given = parser().parse_args(pod["spec"]["containers"][0]["command"][3:])
    assert (given.stage, given.dirty_bytes, given.notice_seconds) == (None, None, None)


def test_a_member_finds_its_lead_and_says_who_it_is() -> None:
    env = environment(member(0))
    assert (env[orders.ENV_LEAD], env[orders.ENV_KEEPER]) == ("train-lead:7070", "train-lead:7071")
    assert env[orders.ENV_TOKEN].endswith("/token")
    assert (env[orders.ENV_EVERY], env[orders.ENV_LAG], env[orders.ENV_SHARDS]) == ("2", "5", "16")
    who = Identity.from_environment(env)
    assert (who.name, who.node, who.reliable) == ("train-0", "node-7", True)
    assert not Identity.from_environment(environment(member(1))).reliable
    assert member(1)["metadata"]["labels"][LABEL_TIER] == "transient"
    assert orders.RELIABLE == "reliable"


def test_what_the_template_sets_itself_stays() -> None:
    stated = {"name": "ULLAGE_SHARDS", "value": "7"}
    template = {"spec": {"containers": [{"name": "main", "image": "x", "env": [stated]}]}}
    found = member_body(template, owner=OWNER, name="train-0", tiers=TERMS)["spec"]
    env = cast(Json, found)["containers"][0]["env"]
    assert [one for one in env if one["name"] == "ULLAGE_SHARDS"] == [stated]


def test_members_and_lead_share_one_token_that_stands_in_no_pod() -> None:
    guards = COORDINATORS.guards(OWNER)
    secret = cast(Json, guards[SECRET])
    token = secret["stringData"]["token"]
    assert len(token) >= 40
    assert token != cast(Json, COORDINATORS.guards(OWNER)[SECRET])["stringData"]["token"]
    for pod in (coordinator_pod(), member()):
        volume = next(one for one in pod["spec"]["volumes"] if "secret" in one)
        assert volume["secret"]["secretName"] == secret["metadata"]["name"]
        mounts = pod["spec"]["containers"][0]["volumeMounts"]
        assert any(one["name"] == volume["name"] and one["readOnly"] for one in mounts)
        assert token not in str(pod)


def test_an_earlier_job_of_the_name_has_another_token() -> None:
    assert guard_name(OWNER) != guard_name(replace(OWNER, uid="another-uid"))


def test_only_the_jobs_own_pods_reach_the_lead() -> None:
    policy = cast(Json, COORDINATORS.guards(OWNER)[NETWORK_POLICY])["spec"]
    labels = coordinator_pod()["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    members, status = policy["ingress"]
    assert members["from"] == [{"podSelector": {"matchLabels": owner_labels(OWNER)}}]
    assert members["from"][0]["podSelector"]["matchLabels"].items() <= (
        member()["metadata"]["labels"].items()
    )
    assert [one["port"] for one in members["ports"]] == [7070, 7071]
    assert "namespaceSelector" in status["from"][0]
    assert [one["port"] for one in status["ports"]] == [7072]


def test_the_service_names_the_lead_alone() -> None:
    step = ApplyService(
        owner=OWNER, name="train-lead", headless=True, lead=True, epoch=1,
        reason=Reason.WAITS_FOR_LEAD, text="",
    )  # fmt: skip
    body = cast(Json, named(step, "uid-1"))
    selector = body["spec"]["selector"]
    assert selector.items() <= coordinator_pod()["metadata"]["labels"].items()
    assert selector[LABEL_LEAD] == "true"
    assert LABEL_LEAD not in member()["metadata"]["labels"]
    assert body["metadata"]["uid"] == "uid-1"


def test_the_lead_is_confined_and_has_room_for_two_copies() -> None:
    spec = coordinator_pod()["spec"]
    container = spec["containers"][0]
    assert spec["securityContext"]["runAsNonRoot"]
    assert not spec["automountServiceAccountToken"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    memory = container["resources"]["limits"]["memory"]
    assert memory == container["resources"]["requests"]["memory"] == f"{2 * 3 * 1024 + 256}Mi"
    assert not any("gpu" in one or "slot" in one for one in container["resources"]["requests"])
    assert "schedulingGates" not in spec
    assert "nodeSelector" not in spec
    assert {"key": "gpu", "operator": "Exists"} in spec["tolerations"]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]


def test_machines_that_stay_are_required_beside_what_the_template_asks() -> None:
    on = ((("pool", "a"),), (("pool", "b"), ("zone", "z")))
    stated = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "arch", "operator": "In", "values": ["amd64"]}]}
        ]
    }}, "podAntiAffinity": {"x": 1}}  # fmt: skip
    found = cast(Json, narrowed(stated, on))
    required = found["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    asked = [
        {one["key"]: one["values"][0] for one in term["matchExpressions"]}
        for term in required["nodeSelectorTerms"]
    ]
    assert asked == [
        {"arch": "amd64", "pool": "a"},
        {"arch": "amd64", "pool": "b", "zone": "z"},
    ]
    assert found["podAntiAffinity"] == {"x": 1}
    assert "affinity" in member(on=on)["spec"]
    assert "affinity" in coordinator_pod(on=on)["spec"]
    assert "affinity" not in member()["spec"]


def test_a_pod_is_told_its_pool_when_it_is_let_go() -> None:
    patch = ungate_patch("u", 0, NodeAffinity(), "node-1", (("ullage.dev/pool", "spot-a"),))
    assert {"op": "add", "path": "/metadata/labels/ullage.dev~1pool", "value": "spot-a"} in patch
    assert patch[1]["value"] == GATE


def test_without_an_image_it_is_said_what_to_set() -> None:
    with pytest.raises(BadRequest, match="ULLAGE_DECIDE_LEAD_IMAGE"):
        Coordinators().pod(a_coordinator(), blueprint())


def test_a_job_that_left_its_tiers_gets_no_lead() -> None:
    with pytest.raises(Conflict):
        COORDINATORS.pod(a_coordinator(), blueprint(None))

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A real API server adopts labelled pods, and says of a wrong label what to write instead.

A control plane without nodes is enough: nothing here runs.
"""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from admitted_pods import CASES, generated, parts
from demo.cluster import LOCALCLUSTER, start_localcluster
from demo.images import ROOT
from demo.install import NAMESPACE
from demo.progress import run
from e2e.stack import printed
from fakes.apiserver.patches import json_patch
from ullage import ports
from ullage.api.labels import GATE, SLOT_RESOURCE
from ullage.cli.look import snapshot_of
from ullage.cli.target import ClusterTarget
from ullage.cluster.values import streams
from ullage.webhook.mutation import mutation

HOME: Final = ROOT / "build" / "adoption"
SERVED: Final = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
OPERATOR: Final = f"system:serviceaccount:{NAMESPACE}:ullage-operator"
GROUPS: Final = (
    "--feature-gate", "GenericWorkload", "--serve-api", ports.POD_GROUP.api_version
)  # fmt: skip
"""Flags of a cluster whose pods may name a PodGroup: a beta of 1.37 that is off by default."""
WAIT_S: Final = 120.0
Json = dict[str, Any]


class ControlPlane:
    """kubectl of the control plane, as its administrator."""

    def __init__(self, kubectl: str, kubeconfig: str) -> None:
        self.target = ClusterTarget(kubeconfig=kubeconfig)
        self._command = [kubectl, "--kubeconfig", kubeconfig]

    def say(self, *words: str, body: Json | None = None) -> subprocess.CompletedProcess[str]:
        stdin = json.dumps(body) if body is not None else None
        return subprocess.run(
            [*self._command, *words], input=stdin, capture_output=True, text=True, check=False
        )

    def refusal(self, body: Json) -> str:
        """Why an object is not taken, empty where it is."""
        done = self.say("create", "-f", "-", "--dry-run=server", body=body)
        return done.stderr if done.returncode else ""

    def taken(self, body: Json) -> Json:
        """An object as the API server would store it."""
        (found,) = self.all_taken(body)
        return found

    def all_taken(self, *bodies: Json) -> list[Json]:
        """Objects as the API server would store them."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
        done = self.say("create", "-f", "-", "--dry-run=server", "-o", "json", body=items)
        assert done.returncode == 0, done.stderr
        return list(printed(done.stdout))


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    environment = {"LOCALCLUSTER_HOME": str(HOME)}
    run(LOCALCLUSTER, "down", env=environment)
    try:
        start_localcluster("--nodes", "0", *GROUPS, home=HOME)
        status = json.loads(run(LOCALCLUSTER, "status", "--json", env=environment))
        found = ControlPlane(status["kubectl"], status["kubeconfig"])
        helm = dict(
            line.split(maxsplit=1)
            for line in run(LOCALCLUSTER, "build", "--tools", "helm").splitlines()
        )["helm"]
        policies = run(
            helm, "template", "ullage", str(ROOT / "charts" / "ullage"), "--namespace", NAMESPACE,
            "--api-versions", SERVED, "--set", "admissionPolicy.adoption.enabled=true",
            "--show-only", "templates/adoption-policy.yaml",
            "--show-only", "templates/admission-policy.yaml",
        )  # fmt: skip
        path = Path(HOME) / "policies.yaml"
        path.write_text(policies)
        done = found.say("apply", "-f", str(path))
        assert done.returncode == 0, done.stderr
        _wait_for_policies(found)
        yield found
    finally:
        run(LOCALCLUSTER, "down", env=environment)


def _wait_for_policies(found: ControlPlane) -> None:
    """Every policy takes a moment until the API server follows it."""
    ends = time.monotonic() + WAIT_S
    wrong = (
        pod({"share": "0"}),
        pod({"share": "30"}, {"template-hash": "x"}),
        deployment({"share": "0"}),
        a_gang("Deployment"),
        a_gang("StatefulSet"),
    )
    while any(not found.refusal(body) for body in wrong) or not gated(
        found.say, pod({"share": "5"})
    ):
        assert time.monotonic() < ends, "the policies do not take effect"
        time.sleep(0.2)


def gated(say: Any, body: Json) -> bool:
    done = say("create", "-f", "-", "--dry-run=server", "-o", "json", body=body)
    return "schedulingGates" in done.stdout


def pod(labels: Json, annotations: Json | None = None, **spec: Any) -> Json:
    containers = [{"name": "main", "image": "i"}, {"name": "side", "image": "i"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "labels": {f"ullage.dev/{key}": value for key, value in labels.items()},
            "annotations": {
                f"ullage.dev/{key}": value for key, value in (annotations or {}).items()
            },
        },
        "spec": {"containers": containers, **spec},
    }


def deployment(labels: Json, annotations: Json | None = None) -> Json:
    template = pod({**labels}, annotations)
    template["metadata"]["labels"]["app"] = "web"
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {key: template[key] for key in ("metadata", "spec")},
        },
    }


def a_gang(kind: str, size: str = "2", **spec: Any) -> Json:
    """A Deployment or StatefulSet of two pods that are a gang."""
    body = deployment({"share": "20", "gang": "g"}, {"gang-size": size})
    body["spec"] |= {"replicas": 2, **({"serviceName": "g"} if kind == "StatefulSet" else {})}
    return body | {"kind": kind, "spec": body["spec"] | spec}


def rolling(**bounds: Any) -> Json:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": bounds}}


def slots(body: Json) -> dict[str, str]:
    """Slots that containers ask for, by name."""
    found = {}
    for one in body["spec"]["containers"]:
        limits = one["resources"].get("limits", {})
        if SLOT_RESOURCE in limits:
            assert one["resources"]["requests"][SLOT_RESOURCE] == limits[SLOT_RESOURCE]
            found[one["name"]] = limits[SLOT_RESOURCE]
    return found


def test_a_labelled_pod_gets_gate_slot_and_marks(control_plane: ControlPlane) -> None:
    body = control_plane.taken(pod({"share": "30-60"}))
    assert body["spec"]["schedulingGates"] == [{"name": GATE}]
    assert slots(body) == {"main": "1"}
    assert body["metadata"]["annotations"]["ullage.dev/adopted"] == "1"
    assert body["metadata"]["labels"]["ullage.dev/managed"] == "true"
    assert body["metadata"]["labels"]["ullage.dev/kind"] == "Pod"


def test_pods_of_a_pod_group_are_read_as_its_gang(control_plane: ControlPlane) -> None:
    group = {
        "apiVersion": ports.POD_GROUP.api_version,
        "kind": ports.POD_GROUP.kind,
        "metadata": {"name": "theirs", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    pods = [pod({"share": "30"}, schedulingGroup={"podGroupName": "theirs"}) for _ in range(3)]
    for number, body in enumerate(pods):
        body["metadata"]["name"] = f"member-{number}"
    streams_read = (streams.PODS, streams.POD_GROUPS)

    async def workloads() -> dict[str, tuple[int, str]]:
        async with control_plane.target.connect() as api:
            found = (await snapshot_of(api, streams_read)).workloads.values()
        return {unit.ref.name: (unit.replicas, unit.invalid) for unit in found}

    def created(*bodies: Json) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
        done = control_plane.say("create", "-f", "-", body=items)
        assert done.returncode == 0, done.stderr

    try:
        created(*pods[:2])
        before = asyncio.run(workloads())
        assert set(before) == {"member-0", "member-1"}
        assert all("no PodGroup theirs" in invalid for _, invalid in before.values())
        created(group, pods[2])
        assert asyncio.run(workloads()) == {"theirs": (3, "")}
    finally:
        control_plane.say("delete", "pods", "--all", "--grace-period=0", "--force")
        control_plane.say("delete", "podgroups", "--all", "--wait=false")


def test_devices_and_their_container_are_chosen_by_their_keys(control_plane: ControlPlane) -> None:
    assert slots(control_plane.taken(pod({"devices": "2"}, {"container": "side"}))) == {"side": "2"}


def test_the_policy_prepares_pods_as_the_table_says_and_as_the_webhook_does(
    control_plane: ControlPlane,
) -> None:
    pods = [case.pod for case in CASES.values()] + list(generated(200, seed=3))
    prepared = control_plane.all_taken(*pods)
    assert len(prepared) == len(pods)
    for found, case in zip(prepared, CASES.values(), strict=False):
        assert parts(found) == case.after
    for found, before in zip(prepared, pods, strict=True):
        by_webhook = json_patch(copy.deepcopy(before), mutation(before))
        assert parts(found) == parts(dict(by_webhook))


def test_gates_of_others_stay(control_plane: ControlPlane) -> None:
    theirs = {"name": "kueue.x-k8s.io/admission"}
    body = control_plane.taken(pod({"share": "30"}, schedulingGates=[theirs]))
    assert body["spec"]["schedulingGates"] == [theirs, {"name": GATE}]


def test_a_pod_without_our_labels_stays_as_it_is(control_plane: ControlPlane) -> None:
    body = control_plane.taken(pod({"class": "resnet"}, {"tenant": "a"}))
    assert "schedulingGates" not in body["spec"]
    assert not slots(body)
    assert "ullage.dev/managed" not in body["metadata"]["labels"]


WRONG: Final = [
    *(({"share": value}, {}) for value in ("", "0", "101", "007", "a", "60-30", "30-60-90")),
    *(({"devices": value}, {}) for value in ("", "0", "17", "x", "1000000000")),
    *(
        ({"share": "30"}, {key: value})
        for key, values in {
            "max-slowdown": ("0.9", "fast", "x" * 200_000),
            "latency-ms": ("-1", "0", "1.5"),
            "percentile": ("99",),
            "memory": ("1", "1e3", "-8Gi", "9999Pi"),
            "lane": ("1Gi", "1Gi+", "1Gi+1e3", "1Gi+1Gi+1Gi", "1Gi+9999Pi"),
            "accelerators": ("A", ",", ",".join("a" * 30 for _ in range(17))),
            "class": ("a b", "r\n1"),
            "tenant": ("A b",),
            "trust-domain": ("namespace/other",),
            "profile": ("../other",),
            "checkpoint": ("yes",),
            "container": ("nobody", "ñ" * 300),
            "gang-size": ("3",),
        }.items()
        for value in values
    ),
    ({"share": "30"}, {"lane": "1Gi+1Gi", "memory": "2Gi"}),
    ({"devices": "1"}, {"lane": "1Gi+1Gi"}),
    ({"share": "30", "gang": "g"}, {}),
    ({"share": "30", "gang": "g"}, {"gang-size": "0"}),
    ({"share": "30", "gang": "g"}, {"gang-size": "5000"}),
]


@pytest.mark.parametrize("make", [pod, deployment])
def test_a_wrong_value_is_refused_with_its_key_and_the_remedy(
    control_plane: ControlPlane, make: Any
) -> None:
    for labels, notes in WRONG:
        key = next(reversed(notes or labels))
        said = control_plane.refusal(make(labels, notes))
        assert f"ullage.dev/{key}" in said or "ullage.dev/gang" in said, (labels, said)
        assert "write " in said, said
        assert len(said) < 1_000


def test_share_and_devices_exclude_one_another(control_plane: ControlPlane) -> None:
    said = control_plane.refusal(pod({"share": "30", "devices": "1"}))
    assert "beside one another" in said


def test_slots_follow_from_the_label_alone(control_plane: ControlPlane) -> None:
    asked = {"limits": {SLOT_RESOURCE: "3"}}
    other = [{"name": "main", "image": "i"}, {"name": "b", "image": "i", "resources": asked}]
    said = control_plane.refusal(pod({"share": "30"}, containers=other))
    assert f"resources {SLOT_RESOURCE}: leave it out" in said
    first = [{"name": "first", "image": "i", "resources": asked}]
    assert SLOT_RESOURCE in control_plane.refusal(pod({"share": "30"}, initContainers=first))
    assert "only the Ullage operator" in control_plane.refusal(pod({}, containers=other))


def test_a_node_beside_the_label_is_refused_in_our_words_in_pod_and_template(
    control_plane: ControlPlane,
) -> None:
    template = deployment({"share": "20"})
    template["spec"]["template"]["spec"]["nodeName"] = "node-2"
    for body in (pod({"share": "20"}, nodeName="node-2"), template):
        said = control_plane.refusal(body)
        assert "spec.nodeName stands beside the label ullage.dev/share" in said
        assert "spec.nodeSelector with kubernetes.io/hostname" in said
    assert not control_plane.refusal(pod({}, nodeName="node-2"))


def test_a_gang_that_its_controller_would_keep_waiting_is_refused_with_the_remedy(
    control_plane: ControlPlane,
) -> None:
    for spec in ({}, {"podManagementPolicy": "OrderedReady"}):
        said = control_plane.refusal(a_gang("StatefulSet", **spec))
        assert "ullage.dev/gang=g: none of its 2 pods starts before all exist" in said
        assert "write spec.podManagementPolicy: Parallel" in said
    for spec in (
        {},
        rolling(maxSurge="25%", maxUnavailable="25%"),
        rolling(maxSurge=1, maxUnavailable=0),
        rolling(maxSurge=0, maxUnavailable=1),
        rolling(maxSurge="50%", maxUnavailable="50%"),
    ):
        said = control_plane.refusal(a_gang("Deployment", **spec))
        assert "ullage.dev/gang=g: none of its 2 pods starts before all exist" in said
        assert "write spec.strategy.type: Recreate" in said
    for body in (
        a_gang("StatefulSet", podManagementPolicy="Parallel"),
        a_gang("StatefulSet", "1"),
        a_gang("Deployment", "1"),
        a_gang("Deployment", strategy={"type": "Recreate"}),
        a_gang("Deployment", **rolling(maxSurge="100%", maxUnavailable=0)),
        a_gang("Deployment", **rolling(maxSurge=2, maxUnavailable=0)),
        a_gang("Deployment", **rolling(maxSurge="51%", maxUnavailable=0)),
        a_gang("Deployment", **rolling(maxSurge=0, maxUnavailable="100%")),
        a_gang("Deployment", replicas=0, **rolling(maxSurge="100%", maxUnavailable=0)),
    ):
        assert not control_plane.refusal(body), body["spec"]


def test_a_rolling_update_is_judged_when_it_is_written(control_plane: ControlPlane) -> None:
    """What existed before may be scaled and labelled; its next revision is told the remedy."""
    recreated = a_gang("Deployment", strategy={"type": "Recreate"})
    done = control_plane.say("create", "-f", "-", body=recreated)
    assert done.returncode == 0, done.stderr
    assert control_plane.say("scale", "deployment", "web", "--replicas=3").returncode == 0
    to_rolling = json.dumps({"spec": rolling(maxSurge=1, maxUnavailable=0)})
    said = control_plane.say("patch", "deployment", "web", "-p", to_rolling).stderr
    assert "write spec.strategy.type: Recreate" in said
    assert control_plane.say("rollout", "restart", "deployment/web").returncode == 0
    control_plane.say("delete", "deployment", "web", "--now")


def test_marks_of_the_operator_are_forged_by_no_one(control_plane: ControlPlane) -> None:
    forged = (
        pod({"managed": "true", "kind": "Pod"}),
        pod({"share": "30", "owner": "train"}),
        pod({"share": "30", "rank": "0"}),
        pod({"share": "30"}, {"scheduling": "{}"}),
        pod({"share": "30"}, {"template-hash": "0123456789ab"}),
    )
    for body in forged:
        assert "only the Ullage operator" in control_plane.refusal(body), body["metadata"]
    body = control_plane.taken(pod({"share": "30", "kind": "TrainingJob"}, {"adopted": "9"}))
    assert body["metadata"]["labels"]["ullage.dev/kind"] == "Pod"
    assert body["metadata"]["annotations"]["ullage.dev/adopted"] == "1"


def test_keys_of_a_pod_that_exists_are_changed_by_the_operator_alone(
    control_plane: ControlPlane,
) -> None:
    done = control_plane.say("create", "-f", "-", body=pod({"share": "30"}))
    assert done.returncode == 0, done.stderr
    for words in (
        ("label", "pod", "p", "ullage.dev/share=50", "--overwrite"),
        ("label", "pod", "p", "ullage.dev/share-"),
        ("label", "pod", "p", "ullage.dev/gang=g"),
        ("label", "pod", "p", "ullage.dev/managed-"),
        ("annotate", "pod", "p", "ullage.dev/tenant=x"),
        ("annotate", "pod", "p", "ullage.dev/scheduling={}"),
    ):
        said = control_plane.say(*words).stderr
        assert "only the Ullage operator" in said, words
        assert "create it again" in said, words
    assert control_plane.say("label", "pod", "p", "team=b").returncode == 0
    words = ("annotate", "pod", "p", "ullage.dev/scheduling={}", "--as", OPERATOR)
    said = control_plane.say(*words, "--as-group", "system:masters").stderr
    assert not said
    control_plane.say("delete", "pod", "p", "--now")

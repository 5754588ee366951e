# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of pods about other pods, ports and volumes are read whole, or said to be too many."""

from __future__ import annotations

from typing import Any

import pytest

from builders_raw import (
    raw_claim,
    raw_foreign_pod,
    raw_namespace,
    raw_node,
    raw_pod,
    raw_storage_class,
    raw_volume,
)
from fakes.node_affinity import REQUIRED
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.pod_rules import MOST_LABELS, MOST_TERMS, foreign_traits, pod_rules
from ullage.cluster.records.pod_rules import ClaimRecord, HostPort, LabelSelector, PodRules
from ullage.cluster.records.pod_shape import Requirement
from ullage.cluster.values import streams

Json = dict[str, Any]
SELECTOR: Json = {"matchLabels": {"app": "web"}}
IS_WEB = Requirement(key="app", operator="In", values=("web",))
ZONE: Json = {"key": "zone", "operator": "Exists"}
TERM: Json = {"topologyKey": "zone", "labelSelector": SELECTOR}


def rules_of(spec: Json, **labels: str) -> PodRules:
    found = pod_rules(spec, namespace="own", name="web-0", labels=labels)
    assert found is not None
    return found


def affinity(kind: str, *terms: Json) -> Json:
    return {"affinity": {kind: {REQUIRED: list(terms)}}}


def node_terms(*terms: Json) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"tolerations": [{"operator": "Exists"}] * 256},
        node_terms(*[{"matchExpressions": [ZONE] * 64}] * 64),
        {"containers": [{"name": "main", "ports": [{"containerPort": 80}]}]},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
        {"volumes": [{"name": "tmp", "emptyDir": {}}]},
        {
            "initContainers": [{"name": "first", "ports": [{"containerPort": 1, "hostPort": 1}]}],
            "hostNetwork": True,
        },
    ],
)
def test_what_demands_nothing_has_no_rules(spec: Json) -> None:
    assert pod_rules(spec, namespace="own", name="web-0", labels={}) is None


def test_a_spread_constraint_has_the_defaults_of_kubernetes() -> None:
    bare = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    (rule,) = rules_of({"topologySpreadConstraints": [bare]}).spread
    assert (rule.min_domains, rule.selector) == (1, None)
    assert (rule.honours_affinity, rule.honours_taints) == (True, False)
    said = {**bare, "minDomains": 3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    (rule,) = rules_of({"topologySpreadConstraints": [said]}).spread
    assert (rule.min_domains, rule.honours_affinity, rule.honours_taints) == (3, False, True)


def test_keys_of_labels_narrow_a_selector_by_the_pods_own_values() -> None:
    rule = {**TERM, "maxSkew": 1, "matchLabelKeys": ["version", "absent"]}
    (found,) = rules_of({"topologySpreadConstraints": [rule]}, version="7").spread
    same = Requirement(key="version", operator="In", values=("7",))
    assert found.selector == LabelSelector(requirements=(IS_WEB, same))
    term = {**TERM, "mismatchLabelKeys": ["team"]}
    (wanted,) = rules_of(affinity("podAntiAffinity", term), team="red").anti_affinity
    apart = Requirement(key="team", operator="NotIn", values=("red",))
    assert wanted.selector == LabelSelector(requirements=(IS_WEB, apart))


def test_a_term_without_namespaces_means_its_own() -> None:
    others = {**TERM, "namespaces": ["a", "b"]}
    chosen = {**TERM, "namespaceSelector": {}}
    found = rules_of(affinity("podAffinity", TERM, others, chosen)).affinity
    assert [term.namespaces for term in found] == [("own",), ("a", "b"), ()]
    assert [term.namespace_selector for term in found] == [None, None, LabelSelector()]


def test_ports_are_those_of_containers_that_run_as_long_as_the_pod() -> None:
    def container(port: int, **more: object) -> Json:
        return {"name": "c", "ports": [{"containerPort": port, "hostPort": port}], **more}

    spec = {
        "containers": [container(1), {"name": "n", "ports": [{"containerPort": 9}]}],
        "initContainers": [container(2), container(3, restartPolicy="Always")],
    }
    assert [port.port for port in rules_of(spec).ports] == [1, 3]
    assert [port.port for port in rules_of({**spec, "hostNetwork": True}).ports] == [1, 3, 9]
    said = {"containerPort": 5, "hostPort": 5, "hostIP": "10.0.0.1", "protocol": "UDP"}
    (port,) = rules_of({"containers": [{"name": "c", "ports": [said]}]}).ports
    assert port == HostPort(ip="10.0.0.1", protocol="UDP", port=5)


def test_claims_are_those_that_are_named_and_those_of_ephemeral_volumes() -> None:
    volumes = [
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "tmp", "emptyDir": {}},
    ]
    found = rules_of({"volumes": volumes})
    assert found.claims == ("data", "web-0-scratch")
    assert found.ephemeral == ("web-0-scratch",)


def test_a_claim_of_an_ephemeral_volume_is_the_pods_own() -> None:
    state = ClusterState(effect_of)
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    state.upsert(streams.PODS, raw_pod(spec={"volumes": [volume]}), 1.0)
    state.upsert(streams.VOLUMES, raw_volume(), 1.0)
    key = ("default", "train-0-scratch")
    state.upsert(streams.CLAIMS, raw_claim(key[1], volume="pv-1"), 1.0)
    assert "was not made for" in state.freeze(1.0).claims[key].problem
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train-0", "uid": "uid-train-0"}
    meta = {
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        "ownerReferences": [{**owner, "controller": True}],
    }
    state.upsert(streams.CLAIMS, raw_claim(key[1], volume="pv-1", meta=meta), 1.0)
    assert state.freeze(1.0).claims[key].problem == ""


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (affinity("podAffinity", *[TERM] * (MOST_TERMS + 1)), "affinity.podAffinity: 17"),
        (
            {"topologySpreadConstraints": [{**TERM, "maxSkew": 1}] * 17},
            "topologySpreadConstraints: 17",
        ),
        (
            affinity(
                "podAffinity",
                {**TERM, "labelSelector": {"matchLabels": {f"k{at}": "" for at in range(33)}}},
            ),
            "labelSelector: requirements: 33",
        ),
        (affinity("podAffinity", {**TERM, "namespaces": ["a"] * 257}), "namespaces: 257"),
        ({"tolerations": [{"operator": "Exists"}] * 257}, "tolerations: 257"),
        ({"nodeSelector": {f"k{at}": "v" for at in range(257)}}, "nodeSelector: 257"),
        (node_terms(*[{"matchExpressions": [ZONE]}] * 65), "affinity.nodeAffinity: 65"),
        (
            node_terms({"matchExpressions": [ZONE] * 65}),
            "affinity.nodeAffinity: matchExpressions: 65",
        ),
        (
            {"initContainers": [{"resources": {"limits": {f"r{at}": "1" for at in range(257)}}}]},
            "containers: limits: 257",
        ),
    ],
)
def test_what_is_more_than_is_read_is_said_with_its_field(spec: Json, named: str) -> None:
    found = rules_of(spec)
    assert found == PodRules(unjudged=found.unjudged)
    assert found.unjudged.startswith(f"spec.{named}, at most")


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"containers": [{"ports": [{"hostPort": at} for at in range(1, 258)]}]}, "host ports"),
        (
            {"volumes": [{"persistentVolumeClaim": {"claimName": f"c{at}"}} for at in range(257)]},
            "claims",
        ),
    ],
)
def test_no_more_of_them_are_made_than_are_judged(spec: Json, what: str) -> None:
    assert f"{what}: more than the 256 that are judged" in rules_of(spec).unjudged


def test_a_foreign_pod_repels_no_one_by_the_size_of_its_rules() -> None:
    raw = raw_foreign_pod()
    raw["spec"] |= affinity("podAntiAffinity", *[TERM] * (MOST_TERMS + 1))
    raw["metadata"]["labels"] = {f"k{at:04}": "v" for at in range(1000)}
    found = foreign_traits(raw, Sharer())
    assert (found.anti_affinity, len(found.labels)) == ((), MOST_LABELS)


def test_a_foreign_pod_whose_rules_cannot_be_read_still_counts() -> None:
    state = ClusterState(effect_of)
    state.upsert(streams.NODES, raw_node(), 1.0)
    raw = raw_foreign_pod()
    raw["spec"]["affinity"] = {"podAntiAffinity": "odd"}
    state.upsert(streams.FOREIGN_PODS, raw, 1.0)
    snapshot = state.freeze(1.0)
    assert snapshot.foreign_use["node-1"].cpu_milli == 1000
    assert (snapshot.pods_around, state.projection_errors) == ({}, {})


def test_other_peoples_pods_are_shown_while_rules_look_at_them() -> None:
    state = ClusterState(effect_of)
    state.upsert(streams.NODES, raw_node(), 1.0)
    plain, repels = raw_foreign_pod("plain"), raw_foreign_pod("repels", node="cpu-1")
    repels["spec"] |= affinity("podAntiAffinity", TERM)
    assert state.upsert(streams.FOREIGN_PODS, plain, 1.0)
    assert state.freeze(1.0).pods_around == {}
    assert state.upsert(streams.FOREIGN_PODS, repels, 1.0), "it may keep a pod of ours away"
    assert set(state.freeze(1.0).pods_around) == {"cpu-1"}
    ours = raw_pod(spec=affinity("podAffinity", TERM))
    assert state.upsert(streams.PODS, ours, 1.0)
    assert set(state.freeze(1.0).pods_around) == {"node-1", "cpu-1"}
    assert state.remove(streams.FOREIGN_PODS, repels, 1.0)
    assert state.remove(streams.PODS, ours, 1.0)
    assert state.freeze(1.0).pods_around == {}


USES: Json = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def claim_of(*objects: Json) -> ClaimRecord:
    """The claim of a pod of ours beside these objects."""
    state = ClusterState(effect_of)
    of_kind = {
        "PersistentVolumeClaim": streams.CLAIMS,
        "PersistentVolume": streams.VOLUMES,
        "StorageClass": streams.STORAGE_CLASSES,
        "Namespace": streams.NAMESPACES,
    }
    for raw in objects:
        state.upsert(of_kind[raw["kind"]], raw, 1.0)
    state.upsert(streams.PODS, raw_pod(spec=USES), 1.0)
    assert not state.projection_messages
    return state.freeze(1.0).claims["default", "data"]


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        ((), "PersistentVolumeClaim data does not exist"),
        ((raw_claim(volume="pv-1"),), "the volume pv-1 of PersistentVolumeClaim data"),
        ((raw_claim(phase="Pending"),), "is not bound to a volume yet"),
        ((raw_claim(volume="pv-1", bound=False), raw_storage_class()), "is not bound"),
        ((raw_claim(volume="pv-1", phase="Lost"),), "has lost its volume pv-1"),
        ((raw_claim(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),), "is being deleted"),
    ],
)
def test_a_claim_that_can_be_used_nowhere_says_why(objects: tuple[Json, ...], problem: str) -> None:
    assert problem in claim_of(*objects).problem


def test_a_bound_claim_has_the_nodes_and_zones_of_its_volume() -> None:
    volume = raw_volume(node="node-2")
    volume["metadata"]["labels"] = {"topology.kubernetes.io/zone": "a__b"}
    found = claim_of(raw_claim(volume="pv-1", accessModes=["ReadWriteOncePod"]), volume)
    assert (found.problem, found.once, found.volume) == ("", True, "pv-1")
    ((expression,),) = [term.expressions for term in found.nodes or ()]
    assert expression.values == ("node-2",)
    assert found.zones == (("topology.kubernetes.io/zone", ("a", "b")),)


def test_a_claim_that_waits_has_the_volumes_that_suit_it_smallest_first() -> None:
    def volume(name: str, size: str = "2Gi", **more: Any) -> Json:
        return raw_volume(name, **{"capacity": {"storage": size}, **more})

    found = claim_of(
        raw_claim(phase="Pending", selector={"matchLabels": {"disk": "ssd"}}),
        raw_storage_class(),
        *(
            {**raw, "metadata": {**raw["metadata"], "labels": {"disk": "ssd"}}}
            for raw in (
                volume("large", "9Gi"),
                volume("fits", "1Gi"),
                volume("small", "1Mi"),
                volume("bound", phase="Bound"),
                volume("block", volumeMode="Block"),
                volume("other-class", storageClassName="other"),
                volume("read-only", accessModes=["ReadOnlyMany"]),
                volume("taken", claimRef={"namespace": "far", "name": "data"}),
            )
        ),
        volume("unlabelled"),
    )
    assert [one.name for one in found.candidates] == ["fits", "large"]
    assert (found.problem, found.volume, found.provisioned, found.one_node) == ("", "", False, True)


def test_a_claim_that_waits_takes_only_the_volume_that_names_it() -> None:
    named = raw_volume("mine", claimRef={"namespace": "default", "name": "data"})
    found = claim_of(raw_claim(phase="Pending"), raw_storage_class(), named, raw_volume("any"))
    assert found.own == "mine"


def test_a_class_that_makes_volumes_says_where() -> None:
    where = [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]
    made = raw_storage_class(provisioner="example.com/made", allowedTopologies=where)
    chosen = {"annotations": {"volume.kubernetes.io/selected-node": "node-9"}}
    found = claim_of(raw_claim(phase="Pending", meta=chosen), made, raw_namespace())
    assert (found.provisioned, found.selected_node) == (True, "node-9")
    assert found.topologies == ((("zone", ("a", "b")),),)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every affinity case of the pin, applied to the pod as the API server would."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from builders_raw import raw_pod
from ullage.api.labels import GATE
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.pod import project_pod
from ullage.kube.manifests.ungate import NodeAffinityConflict, ungate_patch
from ullage.scheduling.inventory.node_fit import pin_conflict

PIN = {"key": "metadata.name", "operator": "In", "values": ["node-3"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def elsewhere(operator: str = "In", node: str = "node-9") -> dict[str, Any]:
    return {"key": "metadata.name", "operator": operator, "values": [node]}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def pod_with(affinity: dict[str, Any] | None, gates: tuple[str, ...] = (GATE,)) -> dict[str, Any]:
    spec: dict[str, Any] = {"schedulingGates": [{"name": name} for name in gates]}
    return raw_pod(spec=spec | ({"affinity": affinity} if affinity is not None else {}))


def applied(pod: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902, the three operations used; a failed test raises."""
    result: Any = copy.deepcopy(pod)
    for operation in patch:
        *parents, last = operation["path"].strip("/").split("/")
        place = result
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        index: Any = int(last) if isinstance(place, list) and last != "-" else last
        match operation["op"]:
            case "test":
                assert place[index] == operation["value"], operation["path"]
            case "remove":
                del place[index]
            case "add" if isinstance(place, list):
                place.insert(len(place) if last == "-" else index, operation["value"])
            case "add":
                place[index] = operation["value"]
    return result


def ungated(pod: dict[str, Any], node: str = "node-3") -> dict[str, Any]:
    record, _ = project_pod(pod, 0.0, Sharer())
    index = record.gates.index(GATE)
    patch = ungate_patch(record.uid, index, record.shape.affinity, node)
    return applied(pod, patch)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, required({"matchFields": [PIN]})),
        ({}, required({"matchFields": [PIN]})),
        (
            {"podAntiAffinity": {"x": 1}},
            {"podAntiAffinity": {"x": 1}, **required({"matchFields": [PIN]})},
        ),
        (
            {"nodeAffinity": {PREFERRED: [1]}},
            {
                "nodeAffinity": {
                    PREFERRED: [1],
                    REQUIRED: {"nodeSelectorTerms": [{"matchFields": [PIN]}]},
                }
            },
        ),
        (
            required({"matchExpressions": [ZONE]}),
            required({"matchExpressions": [ZONE], "matchFields": [PIN]}),
        ),
        (
            required({"matchExpressions": [ZONE]}, {"matchFields": [elsewhere("NotIn")]}),
            required(
                {"matchExpressions": [ZONE], "matchFields": [PIN]},
                {"matchFields": [elsewhere("NotIn"), PIN]},
            ),
        ),
        (required({"matchFields": [PIN]}), required({"matchFields": [PIN]})),
    ],
    ids=["none", "empty", "pods-only", "preferred", "expressions", "two-terms", "already-ours"],
)
def test_the_pod_is_pinned_at_the_right_depth(
    before: dict[str, Any] | None, after: dict[str, Any]
) -> None:
    result = ungated(pod_with(before))
    assert result["spec"]["affinity"] == after
    assert result["spec"]["schedulingGates"] == []


def test_only_our_gate_goes_wherever_it_stands() -> None:
    result = ungated(pod_with(None, ("a/b", GATE, "c/d")))
    assert result["spec"]["schedulingGates"] == [{"name": "a/b"}, {"name": "c/d"}]


@pytest.mark.parametrize(
    ("affinity", "message"),
    [
        (required({}), "term 0 is empty"),
        (required({"matchExpressions": [ZONE]}, {}), "term 1 is empty"),
        (required({"matchFields": [elsewhere()]}), "pins the pod to node node-9, not to node-3"),
        (required({"matchFields": [elsewhere("NotIn", "node-3")]}), "excludes node node-3"),
    ],
)
def test_a_pin_that_cannot_narrow_is_refused(affinity: dict[str, Any], message: str) -> None:
    with pytest.raises(NodeAffinityConflict, match=message):
        ungated(pod_with(affinity))


def test_one_excluding_term_among_others_is_no_conflict() -> None:
    affinity = required(
        {"matchFields": [elsewhere("NotIn", "node-3")]}, {"matchExpressions": [ZONE]}
    )
    record, _ = project_pod(pod_with(affinity), 0.0, Sharer())
    assert pin_conflict(record.shape.affinity, "node-3") == ""


@pytest.mark.parametrize(
    ("seen", "now"),
    [
        (
            required({"matchExpressions": [ZONE]}),
            required({"matchExpressions": [ZONE | {"key": "k"}]}),
        ),
        (required({"matchExpressions": [ZONE]}), required({"matchExpressions": [ZONE]}, {})),
    ],
)
def test_a_pod_changed_since_it_was_seen_refuses_the_patch(
    seen: dict[str, Any], now: dict[str, Any]
) -> None:
    record, _ = project_pod(pod_with(seen), 0.0, Sharer())
    patch = ungate_patch(record.uid, 0, record.shape.affinity, "node-3")
    with pytest.raises(AssertionError, match="nodeSelectorTerms"):
        applied(pod_with(now), patch)


def test_a_namesake_and_a_moved_gate_refuse_the_patch() -> None:
    patch = ungate_patch(
        "uid-train-0", 0, project_pod(raw_pod(), 0.0, Sharer())[0].shape.affinity, "n"
    )
    other = raw_pod(meta={"uid": "other"})
    with pytest.raises(AssertionError, match="/metadata/uid"):
        applied(other, patch)
    with pytest.raises(AssertionError, match="/spec/schedulingGates/0/name"):
        applied(pod_with(None, ("a/b", GATE)), patch)

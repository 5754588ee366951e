# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Scale, eviction, binding, and the two reviews a client may ask about itself."""

from __future__ import annotations

from typing import Any

import orjson

from fakes.apiserver.access import Access
from fakes.apiserver.errors import Refusal, changed
from fakes.apiserver.faults import Faults
from fakes.apiserver.patches import json_patch, merge_patch
from fakes.apiserver.store import Stored
from fakes.apiserver.verbs import Target, Verbs

Obj = dict[str, Any]


def scale_of(target: Target, stored: Stored) -> Obj:
    """The Scale view of an object."""
    meta = stored.obj["metadata"]
    keep = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status = stored.obj.get("status") or {}
    scale: Obj = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in keep if key in meta},
        "spec": {"replicas": (stored.obj.get("spec") or {}).get("replicas", 0)},
        "status": {"replicas": status.get("replicas", 0)},
    }
    if isinstance(status.get("selector"), str):
        scale["status"]["selector"] = status["selector"]
    return scale


def change_scale(verbs: Verbs, target: Target, body: Any, manager: str, *, patch: str = "") -> Obj:
    """Set the replicas through the Scale view; ``patch`` is "json" or "merge"."""
    main = Target(resource=target.resource, namespace=target.namespace, name=target.name)
    live = verbs.live(main)
    view = scale_of(target, live)
    if patch:
        view = json_patch(view, body) if patch == "json" else merge_patch(view, body)
    else:
        view = body
    version = (view.get("metadata") or {}).get("resourceVersion")
    if version and version != live.obj["metadata"]["resourceVersion"]:
        raise changed(target.resource.plural, target.name)
    obj = orjson.loads(live.raw)
    obj["spec"]["replicas"] = view["spec"]["replicas"]
    return scale_of(target, verbs.update(main, obj, manager))


def evict(verbs: Verbs, faults: Faults, target: Target, body: Obj) -> Obj:
    """Delete the pod unless a disruption budget refuses."""
    pod = Target(resource=target.resource, namespace=target.namespace, name=target.name)
    verbs.live(pod)
    if faults.eviction_budget is not None:
        if faults.eviction_budget <= 0:
            raise Refusal(
                429,
                "Cannot evict pod as it would violate the pod's disruption budget.",
                "TooManyRequests",
                retry_after_s=faults.eviction_retry_after_s,
            )
        faults.eviction_budget -= 1
    verbs.delete(pod, body.get("deleteOptions") or {})
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def bind(verbs: Verbs, target: Target, body: Obj) -> Obj:
    """Put a pod on a node, as kube-scheduler does; refused while gates stand."""
    pod = Target(resource=target.resource, namespace=target.namespace, name=target.name)
    obj = orjson.loads(verbs.live(pod).raw)
    if obj["spec"].get("schedulingGates"):
        raise Refusal(409, f"pod {target.name} has non-empty .spec.schedulingGates")
    if obj["spec"].get("nodeName"):
        raise Refusal(409, f'pod {target.name} is already assigned to node "{target.name}"')
    obj["spec"]["nodeName"] = body["target"]["name"]
    verbs.store.put(pod.resource, pod.key, obj)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def self_access_review(access: Access, body: Obj) -> Obj:
    """May I?"""
    asked = (body.get("spec") or {}).get("resourceAttributes") or {}
    resource = asked.get("resource", "")
    if asked.get("subresource"):
        resource += "/" + asked["subresource"]
    allowed = access.allows(
        asked.get("verb", ""), asked.get("group", ""), resource, asked.get("namespace", "")
    )
    return body | {"status": {"allowed": allowed}}


def self_subject_review(user: str) -> Obj:
    """Who am I?"""
    return {
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": None},
        "status": {"userInfo": {"username": user, "groups": ["system:authenticated"]}},
    }

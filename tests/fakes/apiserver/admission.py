# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the real server checks and fills in before it stores an object, as far as we meet it.

Pods: defaults, the gated condition, and which fields may change. GPUNodes: the epoch never falls.
CEL in general is judged by the real API server only.
"""

from __future__ import annotations

import re
from typing import Any

from fakes.apiserver.errors import Refusal, invalid
from fakes.apiserver.resources import Resource
from fakes.apiserver.schema import Schemas

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
_POD_FIELDS = (
    "pod updates may not change fields other than `spec.containers[*].image`, "
    "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` "
    "(only additions to existing tolerations), `spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)
_EVICT_LATER = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
"""Added to every pod by an admission plugin."""


class Admission:
    """Defaults and validation by kind."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def admit(
        self, resource: Resource, old: dict[str, Any] | None, new: dict[str, Any], now: str
    ) -> None:
        """Fill in defaults in place; refuse what the API refuses with 422."""
        name = new["metadata"]["name"]
        kind = resource.qualified_kind
        if not _NAME.match(name) or len(name) > 253:
            raise invalid(kind, name, f'metadata.name: Invalid value: "{name}"')
        self._schemas.admit(resource, new)
        if not resource.custom and isinstance(new.get("spec"), dict):
            new["spec"] = {k: v for k, v in new["spec"].items() if v is not None and v != []}
        match resource.plural:
            case "pods" if old is None:
                _new_pod(new, now)
            case "pods" if old is not None:
                _changed_pod(old, new)
            case "gpunodes" if old is not None:
                _epoch_never_falls(old, new)
            case "leases":
                _lease(new)


def _new_pod(pod: dict[str, Any], now: str) -> None:
    name = pod["metadata"]["name"]
    spec = pod.setdefault("spec", {})
    if not spec.get("containers"):
        raise invalid("Pod", name, "spec.containers: Required value")
    gates = spec.get("schedulingGates")
    if gates and spec.get("nodeName"):
        raise invalid(
            "Pod",
            name,
            "spec.nodeName: Forbidden: nodeName cannot be set until all schedulingGates have been "
            "cleared",
        )
    for key, value in {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
        "priority": 0,
    }.items():
        spec.setdefault(key, value)
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if all(known.get("key") != key for known in tolerations):
            tolerations.append({**_EVICT_LATER, "key": key})
    status = pod.setdefault("status", {})
    status.setdefault("phase", "Pending")
    if gates:
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastTransitionTime": None,
                "lastProbeTime": None,
            }
        ]


def _changed_pod(old: dict[str, Any], new: dict[str, Any]) -> None:
    name = new["metadata"]["name"]
    before, after = dict(old.get("spec") or {}), dict(new.get("spec") or {})
    gates = before.get("schedulingGates") or []
    left = after.get("schedulingGates") or []
    if added := [gate for gate in left if gate not in gates]:
        raise invalid(
            "Pod",
            name,
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new "
            f"scheduling gate '{added[0].get('name')}'",
        )
    if gates:
        _narrowed_selector(name, before.get("nodeSelector") or {}, after.get("nodeSelector") or {})
        _narrowed_affinity(name, _affinity(before), _affinity(after))
    if not _tolerations_only_added(before, after):
        raise invalid("Pod", name, f"spec: Forbidden: {_POD_FIELDS}")
    if _fixed(before, gated=bool(gates)) != _fixed(after, gated=bool(gates)):
        raise invalid("Pod", name, f"spec: Forbidden: {_POD_FIELDS}")


def _affinity(spec: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = (spec.get("affinity") or {}).get("nodeAffinity")
    return found


def _fixed(spec: dict[str, Any], *, gated: bool) -> dict[str, Any]:
    """The part of a pod's spec that no one may change."""
    out = {k: v for k, v in spec.items() if v is not None}
    for free in ("schedulingGates", "tolerations", "activeDeadlineSeconds"):
        out.pop(free, None)
    for group in ("containers", "initContainers"):
        if group in out:
            out[group] = [{k: v for k, v in c.items() if k != "image"} for c in out[group]]
    if gated:
        out.pop("nodeSelector", None)
        rest = {k: v for k, v in (out.pop("affinity", None) or {}).items() if k != "nodeAffinity"}
        if rest:
            out["affinity"] = rest
    return out


def _tolerations_only_added(before: dict[str, Any], after: dict[str, Any]) -> bool:
    kept = after.get("tolerations") or []
    return all(toleration in kept for toleration in before.get("tolerations") or [])


def _narrowed_selector(name: str, before: dict[str, str], after: dict[str, str]) -> None:
    if any(after.get(key) != value for key, value in before.items()):
        raise invalid(
            "Pod",
            name,
            "spec.nodeSelector: Invalid value: only additions to spec.nodeSelector are allowed "
            "(no mutations or deletions)",
        )


def _terms(affinity: dict[str, Any] | None) -> list[dict[str, Any]]:
    required = (affinity or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: list[dict[str, Any]] = required.get("nodeSelectorTerms") or []
    return terms


def _narrowed_affinity(
    name: str, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> None:
    """Required terms may be set once; afterwards each may only get further expressions."""
    where = (
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms"
    )
    for terms in (_terms(after),):
        for term in terms:
            for entry in term.get("matchFields") or []:
                if entry.get("key") != "metadata.name" or len(entry.get("values") or []) != 1:
                    raise invalid("Pod", name, f"{where}.matchFields: Invalid value: {entry}")
    old, new = _terms(before), _terms(after)
    if not old:
        return
    if len(old) != len(new):
        raise invalid(
            "Pod",
            name,
            f"{where}: Invalid value: no additions/deletions to non-empty NodeSelectorTerms list "
            "are allowed",
        )
    for was, now in zip(old, new, strict=True):
        if not _only_additions(was, now):
            raise invalid(
                "Pod",
                name,
                f"{where}[0]: Invalid value: only additions are allowed (no mutations or "
                "deletions)",
            )


def _only_additions(was: dict[str, Any], now: dict[str, Any]) -> bool:
    """An empty term matches nothing and may not be filled."""
    empty = not was.get("matchExpressions") and not was.get("matchFields")
    if empty and (now.get("matchExpressions") or now.get("matchFields")):
        return False
    for part in ("matchExpressions", "matchFields"):
        before, after = was.get(part) or [], now.get(part) or []
        if after[: len(before)] != before:
            return False
    return True


def _epoch_never_falls(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = (old.get("spec") or {}).get("epoch", 0)
    after = (new.get("spec") or {}).get("epoch", 0)
    if after < before:
        raise invalid(
            "GPUNode.ullage.dev",
            new["metadata"]["name"],
            f"spec: Invalid value: the epoch must not fall: it is {before}, the request bears "
            f"{after}",
        )


def _lease(lease: dict[str, Any]) -> None:
    seconds = (lease.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        raise invalid(
            "Lease",
            lease["metadata"]["name"],
            f"spec.leaseDurationSeconds: Invalid value: {seconds}: must be greater than 0",
        )
    if not isinstance(lease.get("spec") or {}, dict):
        raise Refusal(400, "spec: expected an object")

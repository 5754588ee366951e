# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the request of an action.

Bodies are built at the last moment from current data; a template that changed since the decision
ends the action instead of creating something undecided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from ullage import ports
from ullage.api.labels import MANAGER_OPERATOR, MANAGER_QUOTA, MANAGER_READER, MANAGER_TRACES
from ullage.api.readers import WireError
from ullage.api.reasons import Reason
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.projection.pod_template import Blueprint, Seen
from ullage.cluster.records.object_ref import ObjectRef
from ullage.kube.coordinators import Coordinators, named
from ullage.kube.errors import Refused
from ullage.kube.manifests import applied, children
from ullage.kube.manifests.node_requests import order_body, registration_patch
from ullage.kube.manifests.router import router_deployment
from ullage.kube.manifests.tiers import guard_name
from ullage.kube.manifests.trials import trial_body
from ullage.kube.manifests.ungate import NodeAffinityConflict, ungate_patch
from ullage.ports import BadRequest, Conflict, Invalid, JsonObject, JsonPatch, Kind
from ullage.scheduling.model.plan import (
    Action,
    ApplyDeployment,
    ApplyGPUNode,
    ApplyRouter,
    ApplyService,
    CreateDeviceProfile,
    CreatePod,
    CreateProfile,
    CreateProfileRequest,
    CreateTrial,
    DeleteChild,
    DeletePod,
    DeleteWorkload,
    Emit,
    EvictPod,
    OrderTraces,
    RegisterNode,
    ScaleWorkload,
    SetConditions,
    SetDeviceModel,
    SetPoolStatus,
    SetProfile,
    SetProfileRequestStatus,
    SetQuotaStatus,
    SetStatus,
    SetTuningStatus,
    TaintNode,
    UngatePod,
)

KINDS: Final[Mapping[str, Kind]] = {
    kind.kind: kind
    for kind in (
        ports.TRAINING_JOB,
        ports.INFERENCE_DEPLOYMENT,
        ports.WORKLOAD_PROFILE,
        ports.GPU_NODE,
        ports.DEVICE_PROFILE,
        ports.SCHEDULING_POLICY,
        ports.CAPACITY_POOL,
        ports.TUNING_JOB,
        ports.PROFILE_REQUEST,
        ports.NODE,
        ports.POD,
        ports.DEPLOYMENT,
        ports.SERVICE,
    )
}
"""Kinds by the word that references use."""


class ApiVerb(StrEnum):
    """Verbs of writes, as metrics name them."""

    CREATE = "create"
    APPLY = "apply"
    PATCH = "patch"
    DELETE = "delete"
    EVICT = "evict"
    SCALE = "scale"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One write; ``uid`` is its precondition, if any.

    ``owner`` is set if the name may be taken by an object of another owner.
    """

    verb: ApiVerb
    kind: Kind
    namespace: str
    name: str
    subresource: str = ""
    body: JsonObject = field(default_factory=dict)
    patch: JsonPatch = ()
    uid: str = ""
    grace_s: int | None = None
    owner: ObjectRef | None = None
    resource_version: str = ""
    """Version on which a scale is based."""
    replicas: int = 0
    """Replicas of a scale."""
    manager: str = MANAGER_OPERATOR
    """Field manager of an apply."""


STATUS, READING, QUOTA, TRACES = "status", "reading", "quota", "traces"
ObjectKey = tuple[str, str, str, str]
"""Kind, namespace, name and part of an object: at most one write to it may be in flight."""


Place = tuple[ApiVerb, str, str, str, str]
"""Verb, and kind, namespace, name and part of the written object."""


def verb_of(action: Action) -> tuple[ApiVerb, str]:
    """Verb and kind of an action, as metrics name them."""
    verb, kind, _, _, part = _place(action)
    return verb, f"{kind}/status" if part in (STATUS, READING, QUOTA) else kind


def key_of(action: Action) -> ObjectKey:
    """The object, and the part of it, that an action writes."""
    return _place(action)[1:]


def status_key(owner: ObjectRef) -> ObjectKey:
    """The status of a workload, as a write to it is named."""
    return _at(ApiVerb.APPLY, owner, STATUS)[1:]


def _place(action: Action) -> Place:
    match action:
        case CreatePod():
            return ApiVerb.CREATE, ports.POD.kind, action.owner.namespace, action.name, ""
        case DeletePod():
            return _at(ApiVerb.DELETE, action.pod)
        case EvictPod():
            return _at(ApiVerb.EVICT, action.pod)
        case UngatePod():
            return _at(ApiVerb.PATCH, action.pod)
        case TaintNode():
            return ApiVerb.PATCH, ports.NODE.kind, "", action.node.name, ""
        case RegisterNode():
            return ApiVerb.PATCH, ports.NODE.kind, "", action.node.name, "registered"
        case ApplyGPUNode():
            return ApiVerb.APPLY, ports.GPU_NODE.kind, "", action.name, ""
        case ApplyService():
            return ApiVerb.APPLY, ports.SERVICE.kind, action.owner.namespace, action.name, ""
        case ApplyDeployment():
            return ApiVerb.APPLY, ports.DEPLOYMENT.kind, action.owner.namespace, action.name, ""
        case ApplyRouter():
            return ApiVerb.APPLY, ports.DEPLOYMENT.kind, action.owner.namespace, action.name, ""
        case DeleteChild():
            return _at(ApiVerb.DELETE, action.child)
        case DeleteWorkload():
            return _at(ApiVerb.DELETE, action.owner)
        case ScaleWorkload():
            return _at(ApiVerb.SCALE, action.owner)
        case SetStatus():
            return _at(ApiVerb.APPLY, action.owner, STATUS)
        case SetConditions() if action.reading:
            return _at(ApiVerb.APPLY, action.target, READING)
        case SetQuotaStatus():
            return _at(ApiVerb.APPLY, action.target, QUOTA)
        case SetConditions() | SetProfile() | SetDeviceModel() | SetPoolStatus():
            return _at(ApiVerb.APPLY, action.target, STATUS)
        case SetTuningStatus() | SetProfileRequestStatus():
            return _at(ApiVerb.APPLY, action.target, STATUS)
        case OrderTraces():
            return _at(ApiVerb.APPLY, action.node, TRACES)
        case CreateTrial():
            kind, space = ports.TRAINING_JOB.kind, action.owner.namespace
            return ApiVerb.CREATE, kind, space, action.name, ""
        case CreateProfileRequest():
            kind, space = ports.PROFILE_REQUEST.kind, action.owner.namespace
            return ApiVerb.CREATE, kind, space, action.name, ""
        case CreateProfile() | CreateDeviceProfile():
            return _at(ApiVerb.CREATE, action.target)
        case Emit():
            about, kind = action.target, ports.EVENT.kind
            return ApiVerb.CREATE, kind, about.namespace, about.uid, action.reason.value


def _at(verb: ApiVerb, ref: ObjectRef, part: str = "") -> Place:
    return verb, ref.kind, ref.namespace, ref.name, part


def _pod_request(verb: ApiVerb, pod: ObjectRef, patch: JsonPatch = ()) -> ApiRequest:
    return ApiRequest(
        verb=verb,
        kind=ports.POD,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        patch=patch,
    )


def _registration(action: RegisterNode) -> ApiRequest:
    patch = registration_patch(action.node.uid)
    return ApiRequest(
        verb=ApiVerb.PATCH, kind=ports.NODE, namespace="", name=action.node.name, patch=patch
    )


class RequestBuilder:
    """Builds requests from actions and the cached state of their owners."""

    def __init__(
        self,
        source: ClusterState,
        *,
        pre_stop_sleep_s: int,
        order_image: str = "",
        coordinators: Coordinators | None = None,
    ) -> None:
        """``pre_stop_sleep_s`` is set in serving pods that have no preStop of their own.

        ``order_image`` is the image of the placeholder pods of node requests, ``coordinators``
        those of jobs in tiers.
        """
        self._source = source
        self._order_image, self._coordinators = order_image, coordinators or Coordinators()
        self._pre_stop_sleep_s = pre_stop_sleep_s

    def request(self, action: Action, resource_version: str = "") -> ApiRequest:
        """The request of an action.

        Args:
            action: Any action but ``Emit``.
            resource_version: The version on which a status apply is based.

        Raises:
            Conflict: the owner (for a GPUNode: the node) is gone, or its template has changed.
            Refused: the pod's own affinity cannot be narrowed to the node.
            BadRequest: the template cannot be read.
        """
        match action:
            case DeletePod():
                gone = _pod_request(ApiVerb.DELETE, action.pod)
                return replace(gone, grace_s=0) if action.at_once else gone
            case EvictPod():
                return replace(_pod_request(ApiVerb.EVICT, action.pod), grace_s=action.grace_s)
            case UngatePod():
                return self._ungate(action)
            case RegisterNode():
                return _registration(action)
            case DeleteChild():
                return self._about(ApiVerb.DELETE, action.child, "")
            case DeleteWorkload():
                return self._about(ApiVerb.DELETE, action.owner, "")
            case ScaleWorkload():
                scaled = self._about(ApiVerb.SCALE, action.owner, "scale")
                version = action.resource_version
                return replace(scaled, resource_version=version, replicas=action.replicas)
            case SetStatus():
                body = applied.status_body(action, resource_version)
                return self._about(ApiVerb.APPLY, action.owner, "status", body)
            case SetConditions():
                body = applied.conditions_body(action)
                request = self._about(ApiVerb.APPLY, action.target, "status", body)
                return replace(request, manager=MANAGER_READER) if action.reading else request
            case SetQuotaStatus():
                body = applied.quota_status_body(action)
                request = self._about(ApiVerb.APPLY, action.target, "status", body)
                return replace(request, manager=MANAGER_QUOTA)
            case SetProfile() | SetDeviceModel():
                body = applied.profile_status_body(action)
                return self._about(ApiVerb.APPLY, action.target, "status", body)
            case SetPoolStatus():
                return self._about(
                    ApiVerb.APPLY, action.target, "status", applied.pool_status_body(action)
                )
            case SetTuningStatus():
                body = applied.tuning_status_body(action)
                return self._about(ApiVerb.APPLY, action.target, "status", body)
            case SetProfileRequestStatus():
                body = applied.profile_request_status_body(action)
                return self._about(ApiVerb.APPLY, action.target, "status", body)
            case OrderTraces():
                request = self._about(
                    ApiVerb.APPLY, action.node, "", applied.trace_orders_body(action)
                )
                return replace(request, manager=MANAGER_TRACES)
            case CreateTrial():
                return self._trial(action)
            case CreateProfileRequest():
                return ApiRequest(
                    verb=ApiVerb.CREATE,
                    kind=ports.PROFILE_REQUEST,
                    namespace=action.owner.namespace,
                    name=action.name,
                    body=applied.profile_request_body(action),
                    owner=action.owner,
                )
            case CreateProfile():
                return self._about(ApiVerb.CREATE, action.target, "", applied.profile_body(action))
            case CreateDeviceProfile():
                return self._about(
                    ApiVerb.CREATE, action.target, "", applied.device_profile_body(action)
                )
            case ApplyGPUNode():
                return self._gpu_node(action)
            case Emit() | TaintNode():
                raise BadRequest(0, f"{type(action).__name__} is no plain request")
            case _:
                return self._child(action)

    def before(self, action: Action) -> tuple[ApiRequest, ...]:
        """Objects that must exist before that of an action: created once, then kept."""
        if not isinstance(action, CreatePod) or action.lead is None:
            return ()
        space, name = action.owner.namespace, guard_name(action.owner)
        return tuple(
            ApiRequest(verb=ApiVerb.CREATE, kind=kind, namespace=space, name=name, body=body)
            for kind, body in self._coordinators.guards(action.owner).items()
        )

    def seen(self, request: ApiRequest) -> Seen | None:
        """Identity of a request's object in the watch cache."""
        return self._source.seen(request.kind.kind, request.namespace, request.name)

    def _child(
        self, action: CreatePod | ApplyService | ApplyDeployment | ApplyRouter
    ) -> ApiRequest:
        try:
            match action:
                case CreatePod():
                    return self._create(action)
                case ApplyService():
                    return self._service(action)
                case ApplyDeployment():
                    return self._deployment(action)
                case ApplyRouter():
                    return self._router(action)
        except WireError as error:
            raise BadRequest(400, f"spec.template: {error}", "BadRequest") from error

    def _about(
        self, verb: ApiVerb, ref: ObjectRef, subresource: str, body: JsonObject | None = None
    ) -> ApiRequest:
        return ApiRequest(
            verb=verb,
            kind=KINDS[ref.kind],
            namespace=ref.namespace,
            name=ref.name,
            subresource=subresource,
            body=body or {},
            uid=ref.uid,
        )

    def _gpu_node(self, action: ApplyGPUNode) -> ApiRequest:
        if not action.node_uid:
            raise Conflict(409, f"node {action.name} is gone, its GPUNode follows", "Conflict")
        return ApiRequest(
            verb=ApiVerb.APPLY,
            kind=ports.GPU_NODE,
            namespace="",
            name=action.name,
            body=applied.gpunode_body(action),
        )

    def _ungate(self, action: UngatePod) -> ApiRequest:
        try:
            patch = ungate_patch(
                action.pod.uid, action.gate_index, action.affinity, action.node, action.labels
            )
        except NodeAffinityConflict as error:
            cause = Invalid(422, str(error), "NodeAffinityConflict")
            raise Refused(
                Reason.NODE_AFFINITY_CONFLICT,
                ports.POD.kind,
                action.pod.namespace,
                action.pod.name,
                cause,
            ) from error
        return _pod_request(ApiVerb.PATCH, action.pod, patch)

    def _trial(self, action: CreateTrial) -> ApiRequest:
        owner = action.owner
        job = self._source.tuning_jobs().get((owner.namespace, owner.name))
        if job is None or job.ref.uid != owner.uid:
            raise Conflict(409, f"TuningJob {owner.namespace}/{owner.name} is gone", "Conflict")
        try:
            body = trial_body(action, job)
        except WireError as error:
            raise BadRequest(400, f"spec.trialTemplate: {error}", "BadRequest") from error
        return ApiRequest(
            verb=ApiVerb.CREATE,
            kind=ports.TRAINING_JOB,
            namespace=owner.namespace,
            name=action.name,
            body=body,
            owner=owner,
        )

    def _blueprint(self, owner: ObjectRef, template_hash: str = "") -> Blueprint:
        blueprint = self._source.blueprint(owner.uid)
        if blueprint is None:
            raise Conflict(409, f"{owner.kind} {owner.namespace}/{owner.name} is gone", "Conflict")
        if template_hash and blueprint.template_hash != template_hash:
            raise Conflict(409, "the template changed since the decision", "Conflict")
        return blueprint

    def _create(self, action: CreatePod) -> ApiRequest:
        blueprint = self._blueprint(action.owner, action.template_hash)
        if action.order is not None:
            body = order_body(action, action.order, blueprint.template(), self._order_image)
            return self._created(action, body)
        if action.lead is not None:
            return self._created(action, self._coordinators.pod(action, blueprint))
        return self._created(action, children.pod_body(action, blueprint))

    def _created(self, action: CreatePod, body: JsonObject) -> ApiRequest:
        return ApiRequest(
            verb=ApiVerb.CREATE,
            kind=ports.POD,
            namespace=action.owner.namespace,
            name=action.name,
            body=body,
            owner=action.owner,
        )

    def _service(self, action: ApplyService) -> ApiRequest:
        blueprint = self._blueprint(action.owner)
        uid = self._known_uid(ports.SERVICE, action.owner, action.name)
        if action.lead:
            return self._applied(ports.SERVICE, action.owner, action.name, named(action, uid))
        body = children.service_body(action, blueprint.template(), uid)
        return self._applied(ports.SERVICE, action.owner, action.name, body)

    def _deployment(self, action: ApplyDeployment) -> ApiRequest:
        blueprint = self._blueprint(action.owner, action.template_hash)
        uid = self._known_uid(ports.DEPLOYMENT, action.owner, action.name)
        body = children.deployment_body(action, blueprint, self._pre_stop_sleep_s, uid)
        return self._applied(ports.DEPLOYMENT, action.owner, action.name, body)

    def _router(self, action: ApplyRouter) -> ApiRequest:
        template = self._blueprint(action.owner).template()
        uid = self._known_uid(ports.DEPLOYMENT, action.owner, action.name)
        body = router_deployment(action, template, uid)
        return self._applied(ports.DEPLOYMENT, action.owner, action.name, body)

    def _applied(self, kind: Kind, owner: ObjectRef, name: str, body: JsonObject) -> ApiRequest:
        return ApiRequest(
            verb=ApiVerb.APPLY,
            kind=kind,
            namespace=owner.namespace,
            name=name,
            body=body,
            uid=self._known_uid(kind, owner, name),
            owner=owner,
        )

    def _known_uid(self, kind: Kind, owner: ObjectRef, name: str) -> str:
        """Uid of the child if the watch shows it as ours."""
        seen = self._source.seen(kind.kind, owner.namespace, name)
        return seen.uid if seen is not None and seen.owner_uid == owner.uid else ""

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The router of a service: created before the Service leads to it, deleted after it no longer does.

No request is lost in either direction: the Service selects only ready pods, and a router that
terminates answers its pending requests.
"""

from __future__ import annotations

import hashlib

from ullage.api.observations import INTER_TOKEN
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.snapshot import DeploymentRecord, ServiceRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.names import replicas_service, router_name
from ullage.scheduling.model.conditions import DesiredCondition
from ullage.scheduling.model.lifecycle_step import write_refused
from ullage.scheduling.model.plan import Action, ApplyRouter, ApplyService, DeleteChild
from ullage.scheduling.model.view import View


def leads_to_router(view: View, service: WorkloadRecord) -> bool:
    """True when the Service should select the router: from the moment that it is ready.

    A Service that does not exist yet has no requests to lose and selects the router at once.
    """
    if service.batching is None:
        return False
    front = view.snapshot.services.get((service.ref.namespace, service.ref.name))
    if front is None:
        return bool(view.settings.router_image) and _conflict(view, service) is None
    router = _router(view, service)
    return front.routed or (router is not None and router.ready > 0)


def router_steps(view: View, service: WorkloadRecord, *, new_template: bool) -> tuple[Action, ...]:
    """Steps that bring the router and the headless Service of the replicas in line with the spec.

    Args:
        view: The cycle's snapshot.
        service: The service.
        new_template: True when the ports of the replicas may have changed.
    """
    if service.batching is None:
        return _taken_away(view, service)
    if not view.settings.router_image or _conflict(view, service) is not None:
        return ()
    ref, epoch = service.ref, view.settings.epoch
    actions: list[Action] = []
    if _replicas(view, service) is None:
        actions.append(
            ApplyService(
                owner=ref,
                name=replicas_service(ref.name),
                headless=True,
                epoch=epoch,
                reason=Reason.ROUTER_STARTING,
                text="names the replicas for the router",
            )
        )
    # all inputs of the router's pods but the template of the replicas
    inputs = repr((view.settings.router_image, service.batching, service.slo))
    router, version = _router(view, service), hashlib.sha256(inputs.encode()).hexdigest()[:12]
    wanted = service.batching.router.replicas
    if (
        new_template
        or router is None
        or (router.template_hash, router.replicas) != (version, wanted)
    ):
        slo, generative = service.slo, service.batching.generative
        latency_ms = slo.latency_ms if slo is not None else 0
        inter_token_ms = 0
        if generative is not None:
            of_tokens = slo is not None and slo.metric == INTER_TOKEN
            inter_token_ms = generative.inter_token_ms or (latency_ms if of_tokens else 0)
        actions.append(
            ApplyRouter(
                owner=ref,
                name=router_name(ref.name),
                image=view.settings.router_image,
                batching=service.batching,
                objective_ms=(generative.first_token_ms if generative else 0) or latency_ms,
                inter_token_ms=inter_token_ms,
                version=version,
                epoch=epoch,
                reason=Reason.ROUTER_STARTING,
                text=f"routes requests, {wanted} replicas",
            )
        )
    return tuple(actions)


def router_condition(view: View, service: WorkloadRecord) -> DesiredCondition | None:
    """The condition ``RouterReady``; ``None`` = the service has no router."""
    if service.batching is None:
        return None
    if not view.settings.router_image:
        text = "no image for routers: set operator.routerImage in the chart"
        return DesiredCondition(ConditionType.ROUTER_READY, False, Reason.NO_ROUTER_IMAGE, text)
    conflict = _conflict(view, service)
    if conflict is not None:
        return DesiredCondition(ConditionType.ROUTER_READY, False, *conflict)
    if ready_routers(view, service):
        return DesiredCondition(ConditionType.ROUTER_READY, True, Reason.ROUTER_SERVES)
    fault = view.snapshot.router_faults.get((service.ref.namespace, service.ref.name))
    if fault:
        return DesiredCondition(ConditionType.ROUTER_READY, False, Reason.ROUTER_FAILS, fault)
    name, wanted = router_name(service.ref.name), service.batching.router.replicas
    text = f"the Deployment {name} has no ready pod yet, {wanted} wanted"
    return DesiredCondition(ConditionType.ROUTER_READY, False, Reason.ROUTER_STARTING, text)


def ready_routers(view: View, service: WorkloadRecord) -> int:
    """Pods of the router that are ready, where the Service leads to them."""
    router = _router(view, service)
    front = view.snapshot.services.get((service.ref.namespace, service.ref.name))
    return router.ready if router is not None and front is not None and front.routed else 0


def _router(view: View, service: WorkloadRecord) -> DeploymentRecord | None:
    key = (service.ref.namespace, router_name(service.ref.name))
    deployment = view.snapshot.deployments.get(key)
    return (
        deployment if deployment is not None and deployment.owner_uid == service.ref.uid else None
    )


def _replicas(view: View, service: WorkloadRecord) -> ServiceRecord | None:
    key = (service.ref.namespace, replicas_service(service.ref.name))
    service_record = view.snapshot.services.get(key)
    return (
        service_record
        if service_record is not None and service_record.owner_uid == service.ref.uid
        else None
    )


def _conflict(view: View, service: WorkloadRecord) -> tuple[Reason, str] | None:
    """The reason for which the router or the Service of the replicas cannot be written."""
    namespace = service.ref.namespace
    router, name = router_name(service.ref.name), replicas_service(service.ref.name)
    if (namespace, router) in view.snapshot.deployments and _router(view, service) is None:
        return Reason.NAME_CONFLICT, f"the Deployment {router} exists and belongs to another owner"
    if (namespace, name) in view.snapshot.services and _replicas(view, service) is None:
        return Reason.NAME_CONFLICT, f"the Service {name} exists and belongs to another owner"
    return write_refused(view, "Deployment", namespace, router) or write_refused(
        view, "Service", namespace, name
    )


def _taken_away(view: View, service: WorkloadRecord) -> tuple[Action, ...]:
    """Delete the router and the Service of the replicas once no request reaches them."""
    front = view.snapshot.services.get((service.ref.namespace, service.ref.name))
    if front is not None and front.routed:
        return ()
    children = (("Deployment", _router(view, service)), ("Service", _replicas(view, service)))
    return tuple(
        DeleteChild(
            child=ObjectRef(
                kind=kind, namespace=record.namespace, name=record.name, uid=record.uid
            ),
            owner=service.ref,
            epoch=view.settings.epoch,
            reason=Reason.ROUTER_STARTING,
            text="the service asks for no router",
        )
        for kind, record in children
        if record is not None
    )

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The router of a service: made before the Service leads to it, taken away after it does no more.

Requests are lost in neither direction: whoever the Service leads to is ready at that moment, and
a router that ends answers what it has.
"""

from __future__ import annotations

import hashlib

from ullage.api.batching import Batching
from ullage.api.observations import INTER_TOKEN, LatencyObjective
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.snapshot import (
    DeploymentRecord,
    ObjectRef,
    ServiceRecord,
    WorkloadRecord,
)
from ullage.cluster.values.names import replicas_service, router_name
from ullage.scheduling.model.conditions import Said
from ullage.scheduling.model.lifecycle_step import write_refused
from ullage.scheduling.model.plan import Action, ApplyRouter, ApplyService, DeleteChild
from ullage.scheduling.model.view import View


def leads_to_router(view: View, service: WorkloadRecord) -> bool:
    """Whether the Service shall lead to the router: as soon as it is ready, then on.

    A Service that does not exist yet has no requests to lose, and leads to it at once.
    """
    if service.batching is None:
        return False
    front = view.snapshot.services.get((service.ref.namespace, service.ref.name))
    if front is None:
        return bool(view.settings.router_image) and _conflict(view, service) is None
    router = _router(view, service)
    return front.routed or (router is not None and router.ready > 0)


def steps(view: View, service: WorkloadRecord, *, new_template: bool) -> tuple[Action, ...]:
    """What brings the router and the name of the replicas to what is wanted.

    Args:
        view: the cycle's snapshot.
        service: what is wanted.
        new_template: the ports of the replicas may be others than before.
    """
    if service.batching is None:
        return _taken_away(view, service)
    if not view.settings.router_image or _conflict(view, service) is not None:
        return ()
    ref, epoch = service.ref, view.settings.epoch
    found: list[Action] = []
    if _replicas(view, service) is None:
        found.append(
            ApplyService(
                owner=ref,
                name=replicas_service(ref.name),
                headless=True,
                epoch=epoch,
                reason=Reason.ROUTER_STARTING,
                text="names the replicas for the router",
            )
        )
    router, version = _router(view, service), _version(view, service)
    wanted = service.batching.router.replicas
    if (
        new_template
        or router is None
        or (router.template_hash, router.replicas) != (version, wanted)
    ):
        found.append(
            ApplyRouter(
                owner=ref,
                name=router_name(ref.name),
                image=view.settings.router_image,
                batching=service.batching,
                objective_ms=_objective_ms(service.batching, service.slo),
                inter_token_ms=_inter_token_ms(service.batching, service.slo),
                version=version,
                epoch=epoch,
                reason=Reason.ROUTER_STARTING,
                text=f"routes requests, {wanted} replicas",
            )
        )
    return tuple(found)


def said(view: View, service: WorkloadRecord) -> Said | None:
    """What condition ``RouterReady`` says; ``None`` where no router is asked for."""
    if service.batching is None:
        return None
    if not view.settings.router_image:
        text = "no image for routers: set operator.routerImage in the chart"
        return Said(ConditionType.ROUTER_READY, False, Reason.NO_ROUTER_IMAGE, text)
    conflict = _conflict(view, service)
    if conflict is not None:
        return Said(ConditionType.ROUTER_READY, False, *conflict)
    if ready_routers(view, service):
        return Said(ConditionType.ROUTER_READY, True, Reason.ROUTER_SERVES)
    fault = view.snapshot.router_faults.get((service.ref.namespace, service.ref.name))
    if fault:
        return Said(ConditionType.ROUTER_READY, False, Reason.ROUTER_FAILS, fault)
    name, wanted = router_name(service.ref.name), service.batching.router.replicas
    text = f"the Deployment {name} has no ready pod yet, {wanted} wanted"
    return Said(ConditionType.ROUTER_READY, False, Reason.ROUTER_STARTING, text)


def ready_routers(view: View, service: WorkloadRecord) -> int:
    """Pods of the router that are ready, where the Service leads to them."""
    router = _router(view, service)
    front = view.snapshot.services.get((service.ref.namespace, service.ref.name))
    return router.ready if router is not None and front is not None and front.routed else 0


def _router(view: View, service: WorkloadRecord) -> DeploymentRecord | None:
    key = (service.ref.namespace, router_name(service.ref.name))
    found = view.snapshot.deployments.get(key)
    return found if found is not None and found.owner_uid == service.ref.uid else None


def _replicas(view: View, service: WorkloadRecord) -> ServiceRecord | None:
    key = (service.ref.namespace, replicas_service(service.ref.name))
    found = view.snapshot.services.get(key)
    return found if found is not None and found.owner_uid == service.ref.uid else None


def _conflict(view: View, service: WorkloadRecord) -> tuple[Reason, str] | None:
    """Why the router or the name of the replicas cannot be kept."""
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
    """Delete what no request comes to any more."""
    front = view.snapshot.services.get((service.ref.namespace, service.ref.name))
    if front is not None and front.routed:
        return ()
    held = (("Deployment", _router(view, service)), ("Service", _replicas(view, service)))
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
        for kind, record in held
        if record is not None
    )


def _objective_ms(batching: Batching, slo: LatencyObjective | None) -> int:
    """Deadline of requests that name none, ms; of generative servers that of the first token."""
    latency_ms = slo.latency_ms if slo is not None else 0
    return (batching.generative.first_token_ms if batching.generative else 0) or latency_ms


def _inter_token_ms(batching: Batching, slo: LatencyObjective | None) -> int:
    """Time between tokens that is kept, ms; 0 = any."""
    if batching.generative is None:
        return 0
    of_tokens = slo is not None and slo.metric == INTER_TOKEN
    return batching.generative.inter_token_ms or (slo.latency_ms if slo and of_tokens else 0)


def _version(view: View, service: WorkloadRecord) -> str:
    """Names all that the router's pods are made from, but for the template of the replicas."""
    stated = repr((view.settings.router_image, service.batching, service.slo))
    return hashlib.sha256(stated.encode()).hexdigest()[:12]

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The end of an InferenceDeployment with a router: the router drains before its replicas go."""

from __future__ import annotations

from typing import Final

from ullage.api.readers import JsonObject
from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import ObjectRef
from ullage.cluster.values.names import router_name
from ullage.handlers.ends import LeaderContext, Left, Life, stated
from ullage.ports import DEPLOYMENT, INFERENCE_DEPLOYMENT


def has_router(item: JsonObject) -> bool:
    """Whether an InferenceDeployment asks for a router, whatever else it says."""
    return isinstance(stated(item, "spec", "batching"), dict)


def left(leader: LeaderContext, service: ObjectRef, now: float) -> Left:
    """The router, as far as it is of this service, and pods of it that still answer."""
    router = leader.state.freeze(now).deployments.get(
        (service.namespace, router_name(service.name))
    )
    pods = leader.state.router_pods(service.namespace, service.name)
    begins = "the router answers what it holds; the replicas go after it"
    if router is not None and router.owner_uid == service.uid:
        name, uid = router.name, router.uid
        child = ObjectRef(kind=DEPLOYMENT.kind, namespace=router.namespace, name=name, uid=uid)
        return Left(text=f"the router with {pods} pods is", begins=begins, goes=(child,))
    return Left(text=f"{pods} router pods are", begins=begins) if pods else Left()


LIFE: Final = Life(
    kind=INFERENCE_DEPLOYMENT, reason=Reason.ROUTER_DRAINS, lives=has_router, left=left
)

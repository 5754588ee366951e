# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds whose objects may have external resources, and the end of their objects.

A service's router drains before its replicas are deleted. Members of a job in tiers save and end
while their coordinator still answers: without it a member cannot finish its step, and its work
since its last checkpoint is lost. Trials of a search stop, and existing results are counted, both
by steps of the search. Pools are in ``pools``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.readers import JsonObject
from ullage.api.reasons import Reason
from ullage.api.words import Tiers
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.values.names import router_name
from ullage.handlers import pools
from ullage.handlers.ends import LeaderContext, Left, Life, field_at
from ullage.handlers.mirror import HasLife
from ullage.ports import (
    CAPACITY_POOL,
    DEPLOYMENT,
    INFERENCE_DEPLOYMENT,
    POD,
    TRAINING_JOB,
    TUNING_JOB,
    Kind,
)
from ullage.scheduling.model.phases import OVER


def has_router(item: JsonObject) -> bool:
    """True when an InferenceDeployment requests a router, whatever its other fields."""
    return isinstance(field_at(item, "spec", "batching"), dict)


def has_lead(item: JsonObject) -> bool:
    """True when a TrainingJob trains in tiers and is not over, whatever its other fields."""
    tiers = field_at(item, "spec", "elasticity", "tiers")
    over = field_at(item, "status", "phase") in OVER
    return isinstance(tiers, str) and tiers != Tiers.DISABLED and not over


def is_under_way(item: JsonObject) -> bool:
    """True when a TuningJob is not over, whatever its other fields."""
    return field_at(item, "status", "phase") not in OVER


def left_of_service(leader: LeaderContext, service: ObjectRef, now: float) -> Left:
    """The service's router, and its pods that still answer."""
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


def left_of_job(leader: LeaderContext, job: ObjectRef, _: float) -> Left:
    """Members and machines requested for them, then the coordinator, unless they have ended."""
    pods = [pod for pod in leader.state.pods_of(job.uid) if not pod.stage.finished]
    members = [pod for pod in pods if not pod.lead]
    goes = tuple(
        ObjectRef(kind=POD.kind, namespace=pod.namespace, name=pod.name, uid=pod.uid)
        for pod in sorted(members or pods, key=lambda pod: pod.name)
        if not pod.deleting
    )
    if not pods:
        return Left()
    begins = "its members save and end; the lead goes after them" if members else "the lead goes"
    text = f"{len(members)} members and their lead are" if members else "its lead is"
    return Left(text=text, begins=begins, goes=goes)


def left_of_search(leader: LeaderContext, search: ObjectRef, now: float) -> Left:
    """Trials that still run, or with an uncounted result."""
    job = leader.state.tuning_jobs().get((search.namespace, search.name))
    if job is None or job.ref.uid != search.uid or not job.deleting:
        return Left()  # its deletion was never read, so no step knows that it ends
    counted = {(result.trial, result.epoch) for result in job.status.results}
    workloads = leader.state.freeze(now).workloads
    runs = [workloads[uid] for uid in leader.state.trials_of(search.uid)]
    open_runs = sum(
        run.trial is not None
        and run.ref.namespace == search.namespace
        and (run.trial.trial, run.trial.until_epoch) not in counted
        for run in runs
    )
    begins = "its trials stop; it goes once results that exist are counted"
    return Left(text=f"{open_runs} trials are", begins=begins) if open_runs else Left()


LIVES: Final[tuple[Life, ...]] = (
    Life(
        kind=INFERENCE_DEPLOYMENT,
        reason=Reason.ROUTER_DRAINS,
        lives=has_router,
        left=left_of_service,
    ),
    Life(kind=TRAINING_JOB, reason=Reason.LEAD_ENDS, lives=has_lead, left=left_of_job),
    Life(kind=TUNING_JOB, reason=Reason.TRIALS_STOP, lives=is_under_way, left=left_of_search),
    pools.LIFE,
)
KINDS: Final[Mapping[Kind, HasLife]] = {life.kind: life.lives for life in LIVES}
FOLLOWED: Final = frozenset({CAPACITY_POOL})
"""Kinds whose objects have timers, with or without external resources."""

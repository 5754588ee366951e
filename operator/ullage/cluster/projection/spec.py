# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of a workload's spec, one reader each, as strict as schema and rules of the CRD.

The API server has refused what is wrong already, unless its CRD is older than this operator. What
is refused here becomes condition ``Invalid``; the bounds are those of the schema, and a test walks
every rule of ``ullage.api.rules``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ullage.api.contract import (
    INTER_TOKEN,
    GPUMode,
    JsonObject,
    LatencyObjective,
    WireError,
    objects,
    section,
)
from ullage.api.readers import quoted
from ullage.api.words import CostObjective, Inject, ScalingPolicy, Tiers
from ullage.cluster.codecs.objects import (
    bounded,
    is_accelerator,
    is_domain,
    one_of,
    optional_text,
    strings,
    within,
)
from ullage.cluster.records.spec_fields import (
    BATCHING,
    COST_AIM,
    ELASTICITY,
    FAILURE_POLICY,
    GPU_REQUEST,
    MOST_REPLICAS,
    OFFERED_LOAD,
    RENDEZVOUS,
    REPLICA_BOUNDS,
    SHARING_RULES,
    TIER_TERMS,
    Batching,
    CostAim,
    Elasticity,
    FailurePolicy,
    GPURequest,
    OfferedLoad,
    OnNotice,
    ReplicaBounds,
    SharingRules,
    TierTerms,
    decimal,
    positive,
)

MOST_STEPS: Final = 10**12
LEAST_QUANTILE: Final = 0.5
"""Of a latency that replicas are scaled by: the queue's formula holds above it."""
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")


def check_name(name: str) -> None:
    """Check that pods and Services can be named after the workload.

    Raises:
        WireError: they cannot.
    """
    if not _NAME.fullmatch(name):
        raise WireError(
            f"metadata.name: {quoted(name)} must have at most 52 lower-case letters, digits and "
            "dashes and begin with a letter"
        )


def read_gpu(spec: JsonObject) -> GPURequest:
    """``spec.gpu``."""
    with within("gpu"):
        request = GPU_REQUEST.read(section(spec, "gpu"))
        share = request.share
        if (request.mode is GPUMode.FRACTIONAL) != (share is not None):
            raise WireError("share: belongs to mode Fractional, and to no other")
        if share is not None and request.count != 1:
            raise WireError("count: mode Fractional gives a share of one device")
        if share is not None and share.min_percent > share.max_percent:
            raise WireError(
                f"share.minPercent: {share.min_percent} is above maxPercent, {share.max_percent}"
            )
        return _with_lane(request)


def read_accelerators(spec: JsonObject) -> tuple[str, ...]:
    """``spec.accelerators``."""
    keys = strings(spec, "accelerators")
    for index, key in enumerate(keys):
        if not is_accelerator(key):
            raise WireError(f"accelerators[{index}]: {quoted(key)} is no key of an accelerator")
    if len(keys) > 16:
        raise WireError(f"accelerators: {len(keys)} entries, at most 16")
    return keys


def _with_lane(request: GPURequest) -> GPURequest:
    """``spec.gpu`` of a container that shares a lane: its memory is both parts.

    Raises:
        WireError: the lane does not fit the rest.
    """
    lane = request.lane
    if lane is None:
        return request
    if request.mode is not GPUMode.FRACTIONAL:
        raise WireError("lane: belongs to mode Fractional, and to no other")
    if request.memory_mib:
        raise WireError("lane: says how much memory there is; leave memory out")
    return replace(request, memory_mib=lane.persistent_mib + lane.ephemeral_mib)


def read_trust_domain(spec: JsonObject) -> str:
    """``spec.trustDomain``; empty = none is named. The domain of a namespace cannot be named."""
    domain = optional_text(spec, "trustDomain")
    if "/" in domain:
        raise WireError("trustDomain: must not hold a slash; leave it out to share within your own")
    if domain and not is_domain(domain):
        raise WireError(f"trustDomain: {quoted(domain)} is no name of a trust domain")
    return domain


def read_failure(spec: JsonObject) -> FailurePolicy:
    """``spec.failurePolicy``."""
    with within("failurePolicy"):
        return FAILURE_POLICY.read(section(spec, "failurePolicy"))


def read_inject(spec: JsonObject) -> bool:
    """``spec.runtime.inject``: whether the device container gets the step hook."""
    with within("runtime"):
        return one_of(section(spec, "runtime"), "inject", Inject.NEVER) is Inject.AUTO


def read_grace_s(spec: JsonObject) -> int:
    """``spec.checkpoint.graceSeconds``; 0 without a checkpoint."""
    if spec.get("checkpoint") is None:
        return 0
    with within("checkpoint"):
        return bounded(section(spec, "checkpoint"), "graceSeconds", 1, 3600, 30)


def read_steps(spec: JsonObject) -> int:
    """``spec.work.steps``; 0 = it does not say."""
    if spec.get("work") is None:
        return 0
    with within("work"):
        return bounded(section(spec, "work"), "steps", 1, MOST_STEPS)


def read_objectives(spec: JsonObject) -> tuple[float | None, float | None]:
    """``spec.slo`` of a job: most slowdown and least throughput, one of them or neither."""
    if spec.get("slo") is None:
        return None, None
    with within("slo"):
        raw = section(spec, "slo")
        slowdown = decimal(raw, "maxSlowdown", 1.0)
        throughput = positive(raw, "minThroughput")
        if (slowdown is None) == (throughput is None):
            raise WireError("maxSlowdown: give exactly one of maxSlowdown and minThroughput")
        return slowdown, throughput


def read_latency(spec: JsonObject) -> LatencyObjective | None:
    """``spec.slo`` of a service."""
    if spec.get("slo") is None:
        return None
    with within("slo"):
        raw = section(spec, "slo")
        bounded(raw, "latencyMs", 1, 3_600_000)
        bounded(raw, "windowSeconds", 1, 300, 5)
        return LatencyObjective.from_wire(raw)


def read_batching(spec: JsonObject) -> Batching | None:
    """``spec.batching``; ``None`` = requests go to the replicas directly."""
    if spec.get("batching") is None:
        return None
    with within("batching"):
        found = BATCHING.read(section(spec, "batching"))
        if found.limits.body_bytes > found.limits.queue_bytes:
            raise WireError("limits.body: above queueMemory, so that no such request could wait")
        if spec.get("slo") is None:
            raise WireError("needs spec.slo, the deadline of requests that name none")
        if found.generative is not None and found.sizes != (1,):
            raise WireError("generative: needs sizes [1]; such servers make their own batches")
        of_tokens = section(spec, "slo").get("metric") == INTER_TOKEN
        if of_tokens and not (found.generative and found.generative.first_token_ms):
            raise WireError("generative.firstTokenMs: needed; slo.metric itl is not a deadline")
        return found


def read_load(spec: JsonObject) -> OfferedLoad | None:
    """``spec.load``; ``None`` = as measured."""
    if spec.get("load") is None:
        return None
    with within("load"):
        return OFFERED_LOAD.read(section(spec, "load"))


def read_scaling(
    spec: JsonObject, slo: LatencyObjective | None, batching: Batching | None
) -> ReplicaBounds | None:
    """``spec.scaling`` where the operator scales; ``None`` = people or other autoscalers do."""
    if spec.get("scaling") is None:
        return None
    with within("scaling"):
        raw = section(spec, "scaling")
        if one_of(raw, "policy", ScalingPolicy.EXTERNAL) is ScalingPolicy.EXTERNAL:
            return None
        if slo is None or slo.quantile <= LEAST_QUANTILE:
            raise WireError("policy: SLO needs spec.slo with a percentile above 50")
        bounds = REPLICA_BOUNDS.read(raw)
        least, most = bounds.min_replicas, bounds.max_replicas
        if least > most:
            raise WireError(f"minReplicas: {least} is above maxReplicas, {most}")
        if not least and (batching is None or not batching.hold_s):
            raise WireError("minReplicas: 0 needs spec.batching with holdSeconds above 0")
        return bounds


def read_sharing(spec: JsonObject) -> SharingRules:
    """``spec.sharing``."""
    with within("sharing"):
        return SHARING_RULES.read(section(spec, "sharing"))


def read_elasticity(spec: JsonObject) -> Elasticity | None:
    """``spec.elasticity``; ``None`` = the number of members is fixed."""
    if spec.get("elasticity") is None:
        return None
    with within("elasticity"):
        raw = section(spec, "elasticity")
        bounds = ELASTICITY.read(raw)
        least, most = bounds.min_replicas, bounds.max_replicas
        if least > most:
            raise WireError(f"minReplicas: {least} is above maxReplicas, {most}")
        stated = one_of(raw, "tiers", Tiers.DISABLED)
        tiers = _tiers(raw, stated, least) if stated is not Tiers.DISABLED else None
        in_place = bounds.in_place or tiers is not None
        if least == most and in_place:
            raise WireError("minReplicas: must be below maxReplicas where members come and go")
        _check_untiered(raw, bounds.on_notice, tiers)
        elsewhere = _names_rendezvous(spec)
        return replace(bounds, in_place=in_place, tiers=tiers, meets_elsewhere=elsewhere)


def _check_untiered(raw: JsonObject, on_notice: OnNotice, tiers: TierTerms | None) -> None:
    """Checks for fields that only a job in tiers can have."""
    if tiers is not None:
        return
    if on_notice is OnNotice.FLUSH:
        raise WireError("onNotice: Flush needs a job in tiers")
    if bounded(raw, "reliableReplicas", 0, MOST_REPLICAS, 0):
        raise WireError("reliableReplicas: belongs to a job in tiers")
    if raw.get("backup") is not None:
        raise WireError("backup: belongs to a job in tiers")


def _names_rendezvous(spec: JsonObject) -> bool:
    """Whether the device container says itself where members meet."""
    containers = objects(section(section(spec, "template"), "spec"), "containers")
    stated = [one.get("name") for one in objects(containers[0], "env")] if containers else []
    return any(one in RENDEZVOUS for one in stated)


def _tiers(raw: JsonObject, stated: Tiers, least: int) -> TierTerms:
    """Settings of the state of a job in tiers."""
    reliable = bounded(raw, "reliableReplicas", 0, MOST_REPLICAS, 0)
    if not 1 <= reliable <= least:
        raise WireError(f"reliableReplicas: {reliable} must be from 1 to minReplicas, {least}")
    with within("backup"):
        backup = TIER_TERMS.read(section(raw, "backup"))
        if backup.max_lag_steps < backup.every_steps:
            raise WireError(
                f"maxLagSteps: {backup.max_lag_steps} is below everySteps, {backup.every_steps}"
            )
        return replace(backup, reliable=reliable, stage=stated.stage)


def read_cost(spec: JsonObject) -> CostAim | None:
    """``spec.cost``; ``None`` = capacity is not chosen for it."""
    if spec.get("cost") is None:
        return None
    with within("cost"):
        aim = COST_AIM.read(section(spec, "cost"))
        _check_aim(aim)
        return aim


def _check_aim(aim: CostAim) -> None:
    due = aim.objective == CostObjective.DEADLINE
    if not aim.objective and aim.max_cost is None and aim.max_time_s is None:
        raise WireError("objective: say objective, maxCost or maxTime")
    if due != (aim.deadline_s is not None):
        raise WireError("deadline: belongs to objective Deadline, and to no other")
    if due and aim.allow_spot and not aim.on_demand_fallback:
        raise WireError("onDemandFallback: a job on spot alone cannot keep a deadline")
    if aim.budget_per_hour is not None and not aim.objective:
        raise WireError("budgetPerHour: bounds what an objective chooses, and there is none")
    if aim.delay_cost_per_hour is not None and aim.objective != CostObjective.COST_PER_WORK:
        raise WireError("delayCostPerHour: belongs to objective CostPerWork, and to no other")
    if None not in (aim.deadline_s, aim.estimated_work_s) and (
        (aim.deadline_s or 0.0) < (aim.estimated_work_s or 0.0)
    ):
        raise WireError("deadline: is sooner than estimatedWork takes")


def check_whole(
    spec: JsonObject, cost: CostAim | None, sharing: SharingRules, gpu: GPURequest
) -> None:
    """Check what parts of a TrainingJob's spec ask of one another.

    Raises:
        WireError: one lacks another; the text names the field.
    """
    saves = spec.get("checkpoint") is not None
    elastic = spec.get("elasticity") is not None
    if elastic and spec.get("replicas") is not None:
        raise WireError("replicas: leave it out, elasticity says how many members there may be")
    if elastic and not saves:
        raise WireError("elasticity: needs spec.checkpoint")
    if sharing.resizable and not saves:
        raise WireError("sharing.resizable: Restart needs spec.checkpoint")
    one = not elastic and spec.get("replicas") in (None, 1)
    whole = gpu.mode is GPUMode.EXCLUSIVE and gpu.count == 1 and gpu.memory_mib
    if sharing.allow_packing and not (saves and one and whole):
        raise WireError(
            "sharing.allowPacking: needs one member, gpu.mode Exclusive with count 1, gpu.memory"
            " and spec.checkpoint"
        )
    if cost is not None and spec.get("work") is None:
        raise WireError("cost: needs spec.work.steps")
    if cost is not None and cost.delay_cost_per_hour is not None and not elastic:
        raise WireError("cost.delayCostPerHour: needs spec.elasticity")
    if (
        cost is not None
        and cost.objective == CostObjective.DEADLINE
        and cost.allow_spot
        and not saves
    ):
        raise WireError("cost: a job with a deadline runs on spot only with spec.checkpoint")

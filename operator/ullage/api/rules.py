# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The validation rules that the API server itself evaluates (CEL), by name.

They are in one place because the golden set needs a valid and an invalid manifest for each, and
because users read their messages first: a message says what is wrong and what to do. Names are for
tests and the reference page; the API server never sees them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

from ullage.api.codec import wire_name
from ullage.api.devices import GPUMode
from ullage.api.labels import FOREIGN_GPU_RESOURCE, GROUP, SLOT_RESOURCE, TEMPLATE_KEYS
from ullage.api.observations import INTER_TOKEN
from ullage.api.readers import quoted
from ullage.api.rule import Rule as Rule
from ullage.api.rule import at_least
from ullage.api.rule import validations as validations
from ullage.api.words import (
    CostObjective,
    OnNotice,
    ParameterType,
    PriceSourceType,
    ScalingPolicy,
    Tiers,
    TuningAlgorithm,
)

_KIB: Final = 2**10
_MIB: Final = 2**20


def _positive(held: float) -> bool:
    return held > 0


def _not_negative(held: float) -> bool:
    return held >= 0


_ON: Final = "self.tiers != 'Disabled'"

TIERS_NEED_BOUNDS: Final = Rule(
    name="tiers-need-bounds",
    rule="self.tiers == 'Disabled' || self.minReplicas < self.maxReplicas",
    holds=lambda held: held.tiers is Tiers.DISABLED or held.min_replicas < held.max_replicas,
    message="in tiers members come and go between minReplicas and maxReplicas: lower minReplicas "
    "or raise maxReplicas, or leave tiers out",
    field=".tiers",
)
TIERS_NEED_RELIABLE: Final = Rule(
    name="tiers-need-reliable",
    rule=f"({_ON}) == (self.reliableReplicas > 0)",
    holds=lambda held: (held.tiers is not Tiers.DISABLED) == (held.reliable_replicas > 0),
    message="elasticity.tiers and elasticity.reliableReplicas belong together: set tiers and at "
    "least one reliable member, or leave both out",
    field=".reliableReplicas",
)
RELIABLE_WITHIN_BOUNDS: Final = Rule(
    name="reliable-within-bounds",
    rule="self.reliableReplicas <= self.minReplicas",
    holds=lambda held: held.reliable_replicas <= held.min_replicas,
    figures=lambda held: (held.reliable_replicas, held.min_replicas),
    message="elasticity.reliableReplicas is above elasticity.minReplicas: reliable members always "
    "run, so raise minReplicas or lower reliableReplicas",
    expression="'elasticity.reliableReplicas (%d) is above elasticity.minReplicas (%d): reliable "
    "members always run, so raise minReplicas or lower reliableReplicas'"
    ".format([self.reliableReplicas, self.minReplicas])",
    field=".reliableReplicas",
)
TIERS_NEED_BACKUP: Final = Rule(
    name="tiers-need-backup",
    rule=f"({_ON}) == has(self.backup)",
    holds=lambda held: (held.tiers is not Tiers.DISABLED) == (held.backup is not None),
    message="elasticity.tiers and elasticity.backup belong together: set the size of the state in "
    "backup.stateBytes, or leave both out",
    field=".backup",
)
FLUSH_NEEDS_TIERS: Final = Rule(
    name="flush-needs-tiers",
    rule=f"self.onNotice != 'Flush' || {_ON}",
    holds=lambda held: held.on_notice is not OnNotice.FLUSH or held.tiers is not Tiers.DISABLED,
    message="onNotice Flush hands a member's state to others, which needs a job in tiers: set "
    "tiers: Auto, or onNotice: Checkpoint",
    field=".onNotice",
)
LAG_COVERS_PUSHES: Final = Rule(
    name="lag-covers-pushes",
    rule="self.maxLagSteps >= self.everySteps",
    holds=lambda backup: backup.max_lag_steps >= backup.every_steps,
    figures=lambda backup: (backup.max_lag_steps, backup.every_steps),
    message="backup.maxLagSteps is below backup.everySteps, so the job would wait for a copy that "
    "no member pushes: raise maxLagSteps or lower everySteps",
    expression="'backup.maxLagSteps (%d) is below backup.everySteps (%d), so the job would wait "
    "for a copy that no member pushes: raise maxLagSteps or lower everySteps'"
    ".format([self.maxLagSteps, self.everySteps])",
    field=".maxLagSteps",
)
STATE_POSITIVE: Final = Rule(
    name="state-positive",
    rule=at_least("1Ki"),
    holds=lambda size: size >= _KIB,
    message="backup.stateBytes must be an amount of at least 1Ki: write it with a unit such as 6Gi",
)
DIRTY_POSITIVE: Final = Rule(
    name="dirty-positive",
    rule=at_least("1Ki"),
    holds=lambda size: size >= _KIB,
    message="backup.dirtyBytesPerStep must be an amount of at least 1Ki such as 600Mi: leave it "
    "out if a step changes the whole state",
)


COST_SAYS_SOMETHING: Final = Rule(
    name="cost-says-something",
    rule="has(self.objective) || has(self.maxCost) || has(self.maxTime)",
    holds=lambda aim: bool(aim.objective) or aim.capped,
    message="spec.cost needs objective (CostPerWork, Deadline or Makespan), maxCost or maxTime: "
    "set one of them, or leave cost out",
)
DEADLINE_WITH_OBJECTIVE: Final = Rule(
    name="deadline-with-objective",
    rule="has(self.deadline) == (has(self.objective) && self.objective == 'Deadline')",
    holds=lambda aim: (aim.deadline_s is not None) == (aim.objective == CostObjective.DEADLINE),
    message="cost.deadline and cost.objective Deadline belong together: set both, or neither",
)
DEADLINE_NEEDS_FALLBACK: Final = Rule(
    name="deadline-needs-fallback",
    rule="!has(self.objective) || self.objective != 'Deadline' || !self.allowSpot "
    "|| self.onDemandFallback",
    holds=lambda aim: (
        aim.objective != CostObjective.DEADLINE or not aim.allow_spot or aim.on_demand_fallback
    ),
    message="a job that runs only on spot cannot keep a deadline: set cost.onDemandFallback to "
    "true, or choose another objective",
    field=".onDemandFallback",
)
DEADLINE_HOLDS_WORK: Final = Rule(
    name="deadline-holds-work",
    rule="!has(self.estimatedWork) || !has(self.deadline) "
    "|| duration(self.deadline) >= duration(self.estimatedWork)",
    holds=lambda aim: (
        aim.estimated_work_s is None
        or aim.deadline_s is None
        or aim.deadline_s >= aim.estimated_work_s
    ),
    message="cost.deadline is shorter than cost.estimatedWork: allow more time, or make the job "
    "smaller or wider",
    field=".deadline",
)
BUDGET_WITH_OBJECTIVE: Final = Rule(
    name="budget-with-objective",
    rule="!has(self.budgetPerHour) || (has(self.objective) "
    "&& double(string(self.budgetPerHour)) > 0.0)",
    holds=lambda aim: (
        aim.budget_per_hour is None or (bool(aim.objective) and aim.budget_per_hour > 0)
    ),
    message="cost.budgetPerHour bounds what cost.objective chooses: it must be above 0, and "
    "objective must be set",
    field=".budgetPerHour",
)
DELAY_COST_OBJECTIVE: Final = Rule(
    name="delay-cost-objective",
    rule="!has(self.delayCostPerHour) || (has(self.objective) && self.objective == 'CostPerWork')",
    holds=lambda aim: (
        aim.delay_cost_per_hour is None or aim.objective == CostObjective.COST_PER_WORK
    ),
    message="cost.delayCostPerHour chooses the size by cost: set cost.objective to CostPerWork",
    field=".delayCostPerHour",
)
DELAY_COST_NEEDS_ELASTICITY: Final = Rule(
    name="delay-cost-needs-elasticity",
    rule="!has(self.cost) || !has(self.cost.delayCostPerHour) || has(self.elasticity)",
    holds=lambda spec: (
        spec.cost is None or spec.cost.delay_cost_per_hour is None or spec.elasticity is not None
    ),
    message="cost.delayCostPerHour chooses the number of members: set its bounds in "
    "spec.elasticity",
    field=".cost",
)
COST_NEEDS_WORK: Final = Rule(
    name="cost-needs-work",
    rule="!has(self.cost) || has(self.work)",
    holds=lambda spec: spec.cost is None or spec.work is not None,
    message="spec.cost covers the whole training: set its length in spec.work.steps",
    field=".cost",
)

_A_TIME: Final = "self.matches('^([0-9]+([.][0-9]+)?(h|m|s))+$') && duration(self) > duration('0s')"
REPLACE_AFTER_A_MINUTE: Final = Rule(
    name="replace-after-a-minute",
    rule="self.matches('^([0-9]+([.][0-9]+)?(h|m|s))+$') && duration(self) >= duration('1m')",
    holds=lambda held: held >= 60,
    message="stragglers.replaceAfter must be a time of at least one minute such as 10m",
)
MAX_TIME_POSITIVE: Final = Rule(
    name="max-time-positive",
    rule=_A_TIME,
    holds=_positive,
    message="cost.maxTime must be a time above 0 such as 60h or 1h30m",
)
DEADLINE_POSITIVE: Final = Rule(
    name="deadline-positive",
    rule=_A_TIME,
    holds=_positive,
    message="cost.deadline must be a time above 0 such as 60h or 1h30m, counted from the creation "
    "of the job",
)
ESTIMATED_WORK_POSITIVE: Final = Rule(
    name="estimated-work-positive",
    rule=_A_TIME,
    holds=_positive,
    message="cost.estimatedWork must be a time above 0 such as 48h: the undisturbed run time of "
    "the whole training",
)
MIN_HOLD_POSITIVE: Final = Rule(
    name="min-hold-positive",
    rule=_A_TIME,
    holds=_positive,
    message="spot.minHold must be a time above 0 such as 10m",
)
HAZARD_HALF_LIFE_POSITIVE: Final = Rule(
    name="hazard-half-life-positive",
    rule=_A_TIME,
    holds=_positive,
    message="spot.hazardHalfLife must be a time above 0 such as 48h",
)
DECISION_PERIOD_POSITIVE: Final = Rule(
    name="decision-period-positive",
    rule=_A_TIME,
    holds=_positive,
    message="spec.decisionPeriod must be a time above 0 such as 24h",
)
DEADLINE_NEEDS_CHECKPOINT: Final = Rule(
    name="deadline-needs-checkpoint",
    rule="!has(self.cost) || !has(self.cost.objective) || self.cost.objective != 'Deadline' "
    "|| !self.cost.allowSpot || has(self.checkpoint)",
    holds=lambda spec: (
        spec.cost is None
        or spec.cost.objective != CostObjective.DEADLINE
        or not spec.cost.allow_spot
        or spec.checkpoint is not None
    ),
    message="a job with a deadline runs on spot only if it can resume from a checkpoint: add "
    "spec.checkpoint, or set cost.allowSpot to false",
    field=".cost",
)


WORKLOAD_NAME: Final = Rule(
    name="workload-name",
    rule="size(self.metadata.name) <= 52 "
    "&& self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    message="metadata.name must have at most 52 characters, begin with a letter and hold only "
    "lower-case letters, digits and dashes, because pods and Services are named after it",
    field=".metadata.name",
)
ACCELERATOR_NAME: Final = Rule(
    name="accelerator-name",
    rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",
    message="metadata.name must be an accelerator key: the product name in lower case, with a dash "
    "for every other character, at most 63 characters, such as nvidia-h100-80gb-hbm3",
    field=".metadata.name",
)
SHARE_ORDER: Final = Rule(
    name="share-order",
    rule="self.minPercent <= self.maxPercent",
    holds=lambda share: share.min_percent <= share.max_percent,
    figures=lambda share: (share.min_percent, share.max_percent),
    message="share.minPercent is above share.maxPercent: raise maxPercent or lower minPercent",
    expression="'share.minPercent (%d) is above share.maxPercent (%d): raise maxPercent or lower "
    "minPercent'.format([self.minPercent, self.maxPercent])",
)
SHARE_WITH_FRACTIONAL: Final = Rule(
    name="share-with-fractional",
    rule="(self.mode == 'Fractional') == has(self.share)",
    holds=lambda gpu: (gpu.mode is GPUMode.FRACTIONAL) == (gpu.share is not None),
    message="gpu.share belongs only to mode Fractional: set mode: Fractional and share.minPercent "
    "together, or leave share out",
)
ONE_FRACTION: Final = Rule(
    name="one-fraction",
    rule="self.mode != 'Fractional' || self.count == 1",
    holds=lambda gpu: gpu.mode is not GPUMode.FRACTIONAL or gpu.count == 1,
    message="mode Fractional gives a share of one device: set gpu.count to 1, or use mode "
    "Exclusive for several whole devices",
    field=".count",
)
MEMORY_POSITIVE: Final = Rule(
    name="memory-positive",
    rule=at_least("1Mi"),
    holds=lambda size: size >= _MIB,
    message="gpu.memory.limit must be an amount of at least 1Mi: write it with a unit such as "
    "4Gi, or leave it out to get memory in proportion to the share",
)
LANE_MEMORY_POSITIVE: Final = Rule(
    name="lane-memory-positive",
    rule=at_least("1Mi"),
    holds=lambda size: size >= _MIB,
    message="gpu.lane.persistent and gpu.lane.ephemeral must be amounts of at least 1Mi: write "
    "them with a unit such as 4Gi",
)
DEVICE_MEMORY_POSITIVE: Final = Rule(
    name="device-memory-positive",
    rule=at_least("1Mi"),
    holds=lambda size: size >= _MIB,
    message="spec.memory must be an amount of at least 1Mi: write it with a unit such as 80Gi",
)
_NOT_NEGATIVE: Final = "string(self).matches('^[0-9]{1,9}([.][0-9]{1,6})?$')"
_ABOVE_ZERO: Final = f"{_NOT_NEGATIVE} && double(string(self)) > 0.0"
_A_PRICE: Final = "string(self).matches('^[0-9]{1,6}([.][0-9]{1,6})?$')"
DECIMAL_NOT_NEGATIVE: Final = Rule(
    name="decimal-not-negative",
    rule=_NOT_NEGATIVE,
    holds=_not_negative,
    message='must be a number of at least 0, a fraction in quotes: 12 or "12.5"',
)
PRICE_NOT_NEGATIVE: Final = Rule(
    name="price-not-negative",
    rule=_A_PRICE,
    holds=_not_negative,
    message='a price must be a number of at least 0, a fraction in quotes: 3 or "3.06"',
)
SLOWDOWN_AT_LEAST_ONE: Final = Rule(
    name="slowdown-at-least-one",
    rule="string(self).matches('^[0-9]{1,4}([.][0-9]{1,4})?$') && double(string(self)) >= 1.0",
    holds=lambda slowdown: slowdown >= 1,
    message='slo.maxSlowdown must be a number of at least 1, a fraction in quotes: "1.3" means at '
    "most 30 % slower than alone on the whole device",
)
ONE_OBJECTIVE: Final = Rule(
    name="one-objective",
    rule="has(self.maxSlowdown) != has(self.minThroughput)",
    holds=lambda slo: (slo.max_slowdown is None) != (slo.min_throughput is None),
    message="slo needs exactly one of maxSlowdown (relative to running alone) and minThroughput "
    "(steps per second)",
)
THROUGHPUT_POSITIVE: Final = Rule(
    name="throughput-positive",
    rule=_ABOVE_ZERO,
    holds=_positive,
    message="slo.minThroughput must be a number above 0 in steps per second, a fraction in quotes: "
    '"12.5"',
)
RESIZE_NEEDS_CHECKPOINT: Final = Rule(
    name="resize-needs-checkpoint",
    rule="!has(self.sharing) || self.sharing.resizable != 'Restart' || has(self.checkpoint)",
    holds=lambda spec: not spec.sharing.resizable or spec.checkpoint is not None,
    message="sharing.resizable Restart restarts the job at a checkpoint: add spec.checkpoint, or "
    "leave resizable at Never",
    field=".sharing.resizable",
)
PACKING_NEEDS: Final = Rule(
    name="packing-needs",
    rule="!has(self.sharing) || !self.sharing.allowPacking || (self.gpu.mode == 'Exclusive' "
    "&& self.gpu.count == 1 && has(self.gpu.memory) && has(self.checkpoint) "
    "&& !has(self.elasticity) && (!has(self.replicas) || self.replicas == 1))",
    holds=lambda spec: (
        not spec.sharing.allow_packing
        or (
            spec.gpu.mode is GPUMode.EXCLUSIVE
            and spec.gpu.count == 1
            and spec.gpu.memory_mib > 0
            and spec.checkpoint is not None
            and spec.elasticity is None
            and spec.replicas in (None, 1)
        )
    ),
    message="sharing.allowPacking pairs jobs of one whole device each: it needs one member, "
    "gpu.mode Exclusive with count 1, gpu.memory.limit and spec.checkpoint",
    field=".sharing.allowPacking",
)
PERCENTILE_IN_RANGE: Final = Rule(
    name="percentile-in-range",
    rule="string(self.percentile).matches('^[0-9]{1,2}([.][0-9]{1,3})?$') "
    "&& double(string(self.percentile)) > 0.0",
    message="slo.percentile must be above 0 and below 100: 99, or with a fraction as a quoted "
    'number such as "99.9"',
    field=".percentile",
)
RATE_POSITIVE: Final = Rule(
    name="rate-positive",
    rule=_ABOVE_ZERO,
    holds=_positive,
    message='load.requestsPerSecond must be a number above 0, a fraction in quotes: "12.5"; leave '
    "load out to let Ullage measure it",
)
ARRIVALS_NOT_NEGATIVE: Final = Rule(
    name="arrivals-not-negative",
    rule=_NOT_NEGATIVE,
    holds=_not_negative,
    message="load.cv2 must be a number of at least 0, a fraction in quotes: 1 for independent "
    "arrivals",
)
ACCELERATOR_KEY: Final = Rule(
    name="accelerator-key",
    rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    message="an accelerator is named by its key: the product name in lower case, with a dash for "
    "every other character, such as nvidia-h100-80gb-hbm3",
)
LENDING_WITHIN_NOMINAL: Final = Rule(
    name="lending-within-nominal",
    rule="!has(self.lendingLimit) || self.lendingLimit <= self.nominalQuota",
    holds=lambda quota: quota.lending_limit is None or quota.lending_limit <= quota.nominal_quota,
    message="lendingLimit is a part of nominalQuota: lower it, or leave it out to lend all",
)
LIMITS_NEED_COHORT: Final = Rule(
    name="limits-need-cohort",
    rule="has(self.cohort) || !has(self.quota) || "
    "self.quota.all(one, !has(one.borrowingLimit) && !has(one.lendingLimit))",
    holds=lambda tenant: (
        bool(tenant.cohort)
        or all((each.borrowing_limit, each.lending_limit) == (None, None) for each in tenant.quota)
    ),
    message="borrowingLimit and lendingLimit are about tenants of one cohort: name the cohort, or "
    "leave them out",
)
OWN_TRUST_DOMAIN: Final = Rule(
    name="own-trust-domain",
    rule="!self.contains('/')",
    message="spec.trustDomain must not contain a slash: a namespace's own domain has no name, so "
    "leave the field out to share within your namespace",
)
_FROZEN = "can change only while the job is suspended: set spec.suspend to true in a separate "
_FROZEN_END = "update, then change it"
FROZEN_REPLICAS: Final = Rule(
    name="frozen-replicas",
    rule="oldSelf.suspend || (has(self.replicas) ? self.replicas : 1) "
    "== (has(oldSelf.replicas) ? oldSelf.replicas : 1)",
    message=f"spec.replicas {_FROZEN}{_FROZEN_END}",
    expression=f"'spec.replicas {_FROZEN}{_FROZEN_END}; it is %d'"
    ".format([has(oldSelf.replicas) ? oldSelf.replicas : 1])",
    field=".replicas",
)
FROZEN_ELASTICITY: Final = Rule(
    name="frozen-elasticity",
    rule="oldSelf.suspend || (has(self.elasticity) ? has(oldSelf.elasticity) "
    "&& self.elasticity.minReplicas == oldSelf.elasticity.minReplicas "
    "&& self.elasticity.maxReplicas == oldSelf.elasticity.maxReplicas "
    "&& self.elasticity.membership == oldSelf.elasticity.membership "
    "&& self.elasticity.tiers == oldSelf.elasticity.tiers "
    "&& self.elasticity.reliableReplicas == oldSelf.elasticity.reliableReplicas "
    ": !has(oldSelf.elasticity))",
    message=f"the bounds, membership and tiers of spec.elasticity {_FROZEN}{_FROZEN_END}",
    field=".elasticity",
)
ELASTICITY_ORDER: Final = Rule(
    name="elasticity-order",
    rule="self.minReplicas <= self.maxReplicas",
    holds=lambda held: held.min_replicas <= held.max_replicas,
    figures=lambda held: (held.min_replicas, held.max_replicas),
    message="elasticity.minReplicas is above elasticity.maxReplicas: raise maxReplicas or lower "
    "minReplicas",
    expression="'elasticity.minReplicas (%d) is above elasticity.maxReplicas (%d): raise "
    "maxReplicas or lower minReplicas'.format([self.minReplicas, self.maxReplicas])",
)
MEMBERSHIP_NEEDS_BOUNDS: Final = Rule(
    name="membership-needs-bounds",
    rule="self.membership != 'InPlace' || self.minReplicas < self.maxReplicas",
    holds=lambda held: not held.in_place or held.min_replicas < held.max_replicas,
    message="membership InPlace lets members come and go between minReplicas and maxReplicas: "
    "lower minReplicas or raise maxReplicas, or leave membership out",
    field=".membership",
)
ELASTICITY_OR_REPLICAS: Final = Rule(
    name="elasticity-or-replicas",
    rule="!(has(self.replicas) && has(self.elasticity))",
    holds=lambda spec: spec.replicas is None or spec.elasticity is None,
    message="spec.replicas and spec.elasticity exclude each other: elasticity.minReplicas and "
    "maxReplicas set the number of members; leave replicas out",
    field=".elasticity",
)
ELASTICITY_NEEDS_CHECKPOINT: Final = Rule(
    name="elasticity-needs-checkpoint",
    rule="!has(self.elasticity) || has(self.checkpoint)",
    holds=lambda spec: spec.elasticity is None or spec.checkpoint is not None,
    message="spec.elasticity changes the number of members by a restart at a checkpoint: add "
    "spec.checkpoint, or set a fixed number in spec.replicas",
    field=".elasticity",
)
FROZEN_GPU: Final = Rule(
    name="frozen-gpu",
    rule="oldSelf.suspend || self.gpu == oldSelf.gpu || (has(self.sharing) "
    "&& self.sharing.resizable == 'Restart' && self.gpu.mode == oldSelf.gpu.mode "
    "&& self.gpu.count == oldSelf.gpu.count)",
    message=f"spec.gpu {_FROZEN}{_FROZEN_END}; with sharing.resizable Restart, share and memory "
    "change at any time",
    field=".gpu",
)
FROZEN_ACCELERATORS: Final = Rule(
    name="frozen-accelerators",
    rule="oldSelf.suspend || (has(self.accelerators) ? has(oldSelf.accelerators) "
    "&& self.accelerators == oldSelf.accelerators : !has(oldSelf.accelerators))",
    message=f"spec.accelerators {_FROZEN}{_FROZEN_END}",
    field=".accelerators",
)
BATCHING_NEEDS_SLO: Final = Rule(
    name="batching-needs-slo",
    rule="!has(self.batching) || has(self.slo)",
    holds=lambda spec: spec.batching is None or spec.slo is not None,
    message="spec.batching answers requests before their deadlines: set spec.slo.latencyMs, the "
    "deadline of requests that name none",
    field=".batching",
)
ITL_NEEDS_FIRST_TOKEN: Final = Rule(
    name="itl-needs-first-token",
    rule="!has(self.batching) || !has(self.slo) || !has(self.slo.metric) || self.slo.metric != "
    "'itl' || (has(self.batching.generative) && has(self.batching.generative.firstTokenMs))",
    holds=lambda spec: (
        spec.batching is None
        or spec.slo is None
        or spec.slo.metric != INTER_TOKEN
        or (spec.batching.generative is not None and spec.batching.generative.first_token_ms > 0)
    ),
    message="spec.slo.metric itl is the time between tokens, not a deadline of requests: set "
    "spec.batching.generative.firstTokenMs",
    field=".batching",
)
GENERATIVE_ALONE: Final = Rule(
    name="generative-alone",
    rule="!has(self.generative) || self.sizes == [1]",
    holds=lambda batching: batching.generative is None or batching.sizes == (1,),
    message="batching.generative: such servers make their own batches; set batching.sizes to [1], "
    "and batching.inFlight to the requests that one runs at once",
    field=".generative",
)
BATCH_SIZES_RISE: Final = Rule(
    name="batch-sizes-rise",
    rule="self.isSorted() && self.all(s, self.exists_one(t, t == s))",
    holds=lambda sizes: all(less < more for less, more in pairwise(sizes)),
    message="batching.sizes must rise, each size once, such as [1, 2, 4, 8]",
)
BODY_POSITIVE: Final = Rule(
    name="body-positive",
    rule=at_least("1Ki"),
    holds=lambda size: size >= _KIB,
    message="batching.limits.body and queueMemory must be amounts of at least 1Ki such as 4Mi",
)
BODY_FITS_QUEUE: Final = Rule(
    name="body-fits-queue",
    rule="quantity(string(self.body)).compareTo(quantity(string(self.queueMemory))) <= 0",
    holds=lambda limits: limits.body_bytes <= limits.queue_bytes,
    message="batching.limits.body is above queueMemory, so that no such request could wait: raise "
    "queueMemory or lower body",
    field=".body",
)
ROUTER_MEMORY_ENOUGH: Final = Rule(
    name="router-memory-enough",
    rule=at_least("128Mi"),
    holds=lambda size: size >= 128 * _MIB,
    message="batching.router.memory must be an amount of at least 128Mi such as 1Gi",
)
SCALING_ORDER: Final = Rule(
    name="scaling-order",
    rule="self.minReplicas <= self.maxReplicas",
    holds=lambda scaling: scaling.min_replicas <= scaling.max_replicas,
    figures=lambda scaling: (scaling.min_replicas, scaling.max_replicas),
    message="scaling.minReplicas is above scaling.maxReplicas: raise maxReplicas or lower "
    "minReplicas",
    expression="'scaling.minReplicas (%d) is above scaling.maxReplicas (%d): raise maxReplicas or "
    "lower minReplicas'.format([self.minReplicas, self.maxReplicas])",
)
REPLICAS_WITHIN_SCALING: Final = Rule(
    name="replicas-within-scaling",
    rule="!has(self.scaling) || self.scaling.minReplicas > self.scaling.maxReplicas "
    "|| (self.replicas >= self.scaling.minReplicas && self.replicas <= self.scaling.maxReplicas)",
    message="spec.replicas must be between scaling.minReplicas and scaling.maxReplicas",
    expression="'spec.replicas (%d) must be between scaling.minReplicas (%d) and "
    "scaling.maxReplicas (%d)'"
    ".format([self.replicas, self.scaling.minReplicas, self.scaling.maxReplicas])",
    field=".replicas",
)
SCALING_KEEPS_ONE: Final = Rule(
    name="scaling-keeps-one",
    rule="!has(self.scaling) || self.scaling.policy != 'SLO' || self.scaling.minReplicas >= 1 "
    "|| (has(self.batching) && self.batching.holdSeconds > 0)",
    holds=lambda spec: (
        spec.scaling is None
        or spec.scaling.policy is not ScalingPolicy.SLO
        or spec.scaling.min_replicas >= 1
        or (spec.batching is not None and spec.batching.hold_s > 0)
    ),
    message="scaling.policy SLO needs scaling.minReplicas of at least 1: nothing would hold "
    "requests while no replica runs. Raise it, or set spec.batching with holdSeconds above the "
    "time that a replica takes to start",
    field=".scaling.minReplicas",
)
SCALING_NEEDS_SLO: Final = Rule(
    name="scaling-needs-slo",
    rule="!has(self.scaling) || self.scaling.policy != 'SLO' || (has(self.slo) "
    "&& string(self.slo.percentile).matches('^[0-9]{1,2}([.][0-9]{1,3})?$') "
    "&& double(string(self.slo.percentile)) > 50.0)",
    holds=lambda spec: (
        spec.scaling is None
        or spec.scaling.policy is not ScalingPolicy.SLO
        or (spec.slo is not None and float(spec.slo.percentile) > 50)
    ),
    message="scaling.policy SLO needs spec.slo with a percentile above 50: add the latency that "
    "replicas are to keep, or set scaling.policy to External",
    field=".slo",
)


def _asks_for(resource: str) -> str:
    """CEL condition that the container's limits or requests name this resource."""
    asks = (
        f"(has(self.resources.{part}) && '{resource}' in self.resources.{part})"
        for part in ("limits", "requests")
    )
    return f"has(self.resources) && ({' || '.join(asks)})"


def _requests(container: Any, resource: str) -> bool:
    """The same of a container that was read."""
    stated = container.resources
    return stated is not None and any(
        amounts is not None and resource in amounts for amounts in (stated.limits, stated.requests)
    )


def _foreign_keys(metadata: Any) -> tuple[str, ...]:
    """Labels of ours that a template may not set."""
    labels = metadata.labels or {}
    return tuple(key for key in labels if key.startswith(f"{GROUP}/") and key not in TEMPLATE_KEYS)


NO_FOREIGN_GPU: Final = Rule(
    name="no-foreign-gpu",
    rule=f"!({_asks_for(FOREIGN_GPU_RESOURCE)})",
    holds=lambda container: not _requests(container, FOREIGN_GPU_RESOURCE),
    message=f"a container must not request {FOREIGN_GPU_RESOURCE}: a device has one owner. Request "
    "devices in spec.gpu and remove it from resources",
)
NO_SLOT: Final = Rule(
    name="no-slot",
    rule=f"!({_asks_for(SLOT_RESOURCE)})",
    holds=lambda container: not _requests(container, SLOT_RESOURCE),
    message=f"a container must not request {SLOT_RESOURCE}: the operator adds it to the first "
    "container. Request devices in spec.gpu and remove it from resources",
)
RESERVED_LABELS: Final = Rule(
    name="reserved-labels",
    rule=f"!has(self.labels) || self.labels.all(key, !key.startsWith('{GROUP}/') || "
    f"key in {list(TEMPLATE_KEYS)})",
    holds=lambda metadata: not _foreign_keys(metadata),
    figures=lambda metadata: tuple(map(quoted, _foreign_keys(metadata)[:3])),
    message=f"of the {GROUP} labels, a template may set only {' and '.join(TEMPLATE_KEYS)}; remove "
    "the others, the operator sets them",
    field=".labels",
)
RESTART_NEVER: Final = Rule(
    name="restart-never",
    rule="!has(self.restartPolicy) || self.restartPolicy == 'Never'",
    holds=lambda pod: pod.restart_policy in (None, "Never"),
    figures=lambda pod: (quoted(pod.restart_policy),),
    message="restartPolicy of a TrainingJob must be Never or left out: spec.failurePolicy "
    "decides on restarts, and the whole gang restarts together",
    field=".restartPolicy",
)
RESTART_ALWAYS: Final = Rule(
    name="restart-always",
    rule="!has(self.restartPolicy) || self.restartPolicy == 'Always'",
    holds=lambda pod: pod.restart_policy in (None, "Always"),
    figures=lambda pod: (quoted(pod.restart_policy),),
    message="restartPolicy of an InferenceDeployment must be Always or left out",
    field=".restartPolicy",
)
EPOCH_RISES: Final = Rule(
    name="epoch-rises",
    rule="oldSelf.epoch <= self.epoch",
    message="spec.epoch must not decrease: this write comes from an operator that is no longer "
    "the leader",
    expression="'spec.epoch must not decrease (%d to %d): this write comes from an operator that "
    "is no longer the leader'.format([oldSelf.epoch, self.epoch])",
    field=".epoch",
)

_STAYS: Final = "because it identifies the pool. Create another pool instead"
POOL_TYPE_STAYS: Final = Rule(
    name="pool-type-stays",
    rule="self == oldSelf",
    message=f"spec.type cannot change {_STAYS}",
)
POOL_ZONE_STAYS: Final = Rule(
    name="pool-zone-stays",
    rule="self == oldSelf",
    message=f"spec.zone cannot change {_STAYS}",
)
POOL_CAPACITY_STAYS: Final = Rule(
    name="pool-capacity-stays",
    rule="self == oldSelf",
    message=f"spec.capacityType cannot change {_STAYS}",
)
POOL_SELECTS_NODES: Final = Rule(
    name="pool-selects-nodes",
    rule="size(self) > 0",
    holds=bool,
    message="nodeSelector must name at least one label, usually instance type, zone and capacity "
    "type: a pool without labels would have no nodes",
)
PRICE_POSITIVE: Final = Rule(
    name="price-positive",
    rule=f"{_A_PRICE} && double(string(self)) > 0.0",
    holds=_positive,
    message='a price must be a number above 0, a fraction in quotes: 3 or "3.06"',
)
_PRICE_DETAILS: Final = {word: wire_name(word.attribute) for word in PriceSourceType}
PRICE_SOURCE_OF_TYPE: Final = Rule(
    name="price-source-of-type",
    rule=" && ".join(
        f"has(self.{field}) == (self.type == '{word}')" for word, field in _PRICE_DETAILS.items()
    ),
    holds=lambda source: all(
        (getattr(source, word.attribute) is not None) == (source.type is word)
        for word in PriceSourceType
    ),
    figures=lambda source: (f"type {source.type}",),
    message="priceSource needs exactly one object, the one that type names: "
    f"{', '.join([*_PRICE_DETAILS.values()][:-1])} or {[*_PRICE_DETAILS.values()][-1]}",
)
HTTP_ONE_ANSWER: Final = Rule(
    name="http-one-answer",
    rule="has(self.metric) != has(self.pointer) && (has(self.metric) || !has(self.labels))",
    holds=lambda http: (
        (http.metric is None) != (http.pointer is None)
        and (http.metric is not None or http.labels is None)
    ),
    message="http needs either metric (Prometheus text, optionally with labels) or pointer (JSON), "
    "not both",
)

_EARLIER_TRIALS: Final = (
    "is immutable, because earlier trials depend on it. Create another TuningJob instead"
)
TUNING_NAME: Final = Rule(
    name="tuning-name",
    rule="size(self.metadata.name) <= 38 "
    "&& self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    message="metadata.name must have at most 38 characters, begin with a letter and hold only "
    "lower-case letters, digits and dashes, because the TrainingJobs of its trials are named after "
    "it",
    field=".metadata.name",
)
EPOCHS_ORDER: Final = Rule(
    name="epochs-order",
    rule="self.minEpochs <= self.maxEpochs",
    holds=lambda algorithm: algorithm.min_epochs <= algorithm.max_epochs,
    figures=lambda algorithm: (algorithm.min_epochs, algorithm.max_epochs),
    message="algorithm.minEpochs is above algorithm.maxEpochs: raise maxEpochs or lower minEpochs",
    expression="'algorithm.minEpochs (%d) is above algorithm.maxEpochs (%d): raise maxEpochs or "
    "lower minEpochs'.format([self.minEpochs, self.maxEpochs])",
    field=".minEpochs",
)
ALGORITHM_STAYS: Final = Rule(
    name="algorithm-stays", rule="self == oldSelf", message=f"spec.algorithm {_EARLIER_TRIALS}"
)
GOAL_STAYS: Final = Rule(
    name="goal-stays", rule="self == oldSelf", message=f"spec.objective {_EARLIER_TRIALS}"
)
SEARCH_SPACE_STAYS: Final = Rule(
    name="search-space-stays",
    rule="self == oldSelf",
    message=f"spec.searchSpace {_EARLIER_TRIALS}",
)
TRIALS_STAY: Final = Rule(
    name="trials-stay", rule="self == oldSelf", message=f"spec.trials {_EARLIER_TRIALS}"
)
TRIALS_TIMES_PARAMETERS: Final = Rule(
    name="trials-times-parameters",
    rule="self.trials * size(self.searchSpace) <= 8000",
    holds=lambda spec: spec.trials * len(spec.search_space) <= 8000,
    figures=lambda spec: (spec.trials, len(spec.search_space)),
    message="spec.trials times the number of parameters is above 8000, more than one object can "
    "hold: lower trials, or search fewer parameters",
    expression="'spec.trials (%d) times the number of parameters (%d) is above 8000, more than one "
    "object can hold: lower trials, or search fewer parameters'"
    ".format([self.trials, size(self.searchSpace)])",
    field=".trials",
)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,15}([.][0-9]{1,15})?([eE][-+]?[0-9]{1,3})?")
_INTEGER: Final = re.compile(r"-?[0-9]{1,15}")
_NUMBER: Final = f"matches('^{_DECIMAL.pattern}$')"
_WHOLE: Final = f"matches('^{_INTEGER.pattern}$')"
_NUMERIC: Final = ("min", "max", "step")
"""Fields of a parameter that are numbers."""


def _are_all(pattern: re.Pattern[str], parameter: Any) -> bool:
    """True when the numbers that a parameter states are of this form."""
    texts = [getattr(parameter, field) for field in _NUMERIC]
    return all(pattern.fullmatch(text) for text in texts if text is not None)


def _numbers(parameter: Any) -> tuple[str, ...]:
    """The numbers of a parameter for an error, as ``lr: min '0.1'`` and ``max '0'``."""
    stated = [f"{field} {text!r}" for field in _NUMERIC if (text := getattr(parameter, field))]
    return (f"{parameter.name}: {' '.join(stated[:1])}", *stated[1:])


def _of_its_type(parameter: Any) -> bool:
    low, high, step = parameter.min, parameter.max, parameter.step
    if parameter.type is ParameterType.CATEGORICAL:
        return parameter.values is not None and not (low or high or step or parameter.log)
    return parameter.values is None and low is not None and high is not None


def _where(field: str, holds: str) -> str:
    """CEL of a field that may be absent; ``TEXT`` in what holds is its text."""
    return f"(!has(self.{field}) || {holds.replace('TEXT', f'string(self.{field})')})"


PARAMETER_OF_TYPE: Final = Rule(
    name="parameter-of-type",
    rule="self.type == 'Categorical' ? has(self.values) && !has(self.min) && !has(self.max) "
    "&& !has(self.step) && !self.log : has(self.min) && has(self.max) && !has(self.values)",
    holds=_of_its_type,
    figures=lambda parameter: (parameter.name,),
    message="a parameter of type Float or Int needs min and max and has no values; one of type "
    "Categorical needs values and has neither min, max, step nor log",
)
PARAMETER_NUMBERS: Final = Rule(
    name="parameter-numbers",
    rule=" && ".join(_where(field, f"TEXT.{_NUMBER}") for field in _NUMERIC),
    holds=lambda parameter: _are_all(_DECIMAL, parameter),
    figures=_numbers,
    message="min, max and step must be numbers; quote one that is not whole, such as "
    '"0.001" or "1e-4"',
)
PARAMETER_WHOLE: Final = Rule(
    name="parameter-whole",
    rule="self.type != 'Int' || "
    + "("
    + " && ".join(_where(field, f"TEXT.{_WHOLE}") for field in _NUMERIC)
    + ")",
    holds=lambda parameter: (
        parameter.type is not ParameterType.INT or _are_all(_INTEGER, parameter)
    ),
    figures=_numbers,
    message="min, max and step of an Int parameter must be whole numbers of at most 15 digits",
)
PARAMETER_ORDER: Final = Rule(
    name="parameter-order",
    rule="!has(self.min) || !has(self.max) "
    f"|| !string(self.min).{_NUMBER} || !string(self.max).{_NUMBER} "
    "|| double(string(self.min)) <= double(string(self.max))",
    holds=lambda parameter: (
        parameter.min is None
        or parameter.max is None
        or float(parameter.min) <= float(parameter.max)
    ),
    figures=_numbers,
    message="min of a parameter is above its max: raise max or lower min",
    field=".min",
)
PARAMETER_LOG: Final = Rule(
    name="parameter-log",
    rule="!self.log || (!has(self.step) && (!has(self.min) "
    f"|| !string(self.min).{_NUMBER} || double(string(self.min)) > 0.0))",
    holds=lambda parameter: (
        not parameter.log
        or (parameter.step is None and (parameter.min is None or float(parameter.min) > 0))
    ),
    figures=_numbers,
    message="log draws evenly by order of magnitude: it needs min above 0 and no step",
    field=".log",
)
PARAMETER_STEP: Final = Rule(
    name="parameter-step",
    rule=_where("step", f"!TEXT.{_NUMBER} || double(TEXT) > 0.0"),
    holds=lambda parameter: parameter.step is None or float(parameter.step) > 0,
    figures=_numbers,
    message="step of a parameter must be above 0; leave it out for a range without steps",
    field=".step",
)
SUGGESTION_STAYS: Final = Rule(
    name="suggestion-stays",
    rule="self == oldSelf",
    message="parameters of a suggestion are immutable, because its trial may be running: add "
    "another trial with another number",
)
SUGGESTED_EPOCHS_RISE: Final = Rule(
    name="suggested-epochs-rise",
    rule="!has(self.epochs) || self.epochs.isSorted()",
    message="epochs of a suggestion must be in rising order",
    field=".epochs",
)
SUGGESTED_EPOCHS_STAY: Final = Rule(
    name="suggested-epochs-stay",
    rule="!has(oldSelf.epochs) || (has(self.epochs) && oldSelf.epochs.all(e, e in self.epochs))",
    message="an epoch of a suggestion cannot be removed, because results depend on it; add later "
    "ones",
    field=".epochs",
)
SUGGESTIONS_FOR_EXTERNAL: Final = Rule(
    name="suggestions-for-external",
    rule="self.algorithm.ref == 'External' || !has(self.suggestions) "
    "|| size(self.suggestions) == 0",
    holds=lambda spec: spec.algorithm.ref is TuningAlgorithm.EXTERNAL or not spec.suggestions,
    message="suggestions belong to algorithm External; the other algorithms choose parameters "
    "themselves",
    field=".suggestions",
)
WIDTHS_FOR_WHOLE_DEVICES: Final = Rule(
    name="widths-for-whole-devices",
    rule="!has(self.resources) "
    "|| (self.trialTemplate.gpu.mode == 'Exclusive' && self.trialTemplate.gpu.count == 1)",
    holds=lambda spec: (
        spec.resources is None
        or (
            spec.trial_template.gpu.mode is GPUMode.EXCLUSIVE and spec.trial_template.gpu.count == 1
        )
    ),
    message="with spec.resources the operator chooses what each trial gets: remove mode, count, "
    "share and lane from trialTemplate.gpu, or remove resources",
    field=".trialTemplate.gpu",
)
WIDEST_IN_POOL: Final = Rule(
    name="widest-in-pool",
    rule="self.maxDevices <= self.devices",
    holds=lambda pool: pool.max_devices <= pool.devices,
    figures=lambda pool: (f"maxDevices {pool.max_devices}", f"devices {pool.devices}"),
    message="resources.maxDevices must not be above resources.devices",
    field=".maxDevices",
)
LABELS_NAME_PODS: Final = Rule(
    name="labels-name-pods",
    rule="size(self) > 0",
    holds=bool,
    message="podSelector.matchLabels must have at least one label: no labels would mean every pod "
    "of the namespace",
)
TRACES_ONE_JOB: Final = Rule(
    name="traces-one-job",
    rule="has(self.jobRef) != has(self.podSelector)",
    holds=lambda spec: (spec.job_ref is None) != (spec.pod_selector is None),
    message="state either jobRef or podSelector: a request traces one job, or the pods with some "
    "labels",
    field=".jobRef",
)
REQUEST_STAYS: Final = Rule(
    name="request-stays",
    rule="self == oldSelf",
    message="spec of a ProfileRequest is immutable, because its trace may be under way: create "
    "another request",
)


RULES: Final[tuple[Rule, ...]] = tuple(
    value for value in dict(globals()).values() if isinstance(value, Rule)
)
"""Every rule of this module."""

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The validation rules that the API server itself evaluates (CEL), by name.

They are in one place because the golden set needs a valid and an invalid manifest for each, and
because users read their messages first: a message says what is wrong and what to do. Names are for
tests and the reference page; the API server never sees them.
"""

from __future__ import annotations

from typing import Final

from ullage.api.contract import FOREIGN_GPU_RESOURCE, GROUP, SLOT_RESOURCE, TEMPLATE_KEYS
from ullage.api.rule import Rule as Rule
from ullage.api.rule import at_least
from ullage.api.rule import validations as validations
from ullage.api.rules_cost import BUDGET_WITH_OBJECTIVE as BUDGET_WITH_OBJECTIVE
from ullage.api.rules_cost import COST_NEEDS_WORK as COST_NEEDS_WORK
from ullage.api.rules_cost import COST_SAYS_SOMETHING as COST_SAYS_SOMETHING
from ullage.api.rules_cost import DEADLINE_HOLDS_WORK as DEADLINE_HOLDS_WORK
from ullage.api.rules_cost import DEADLINE_NEEDS_CHECKPOINT as DEADLINE_NEEDS_CHECKPOINT
from ullage.api.rules_cost import DEADLINE_NEEDS_FALLBACK as DEADLINE_NEEDS_FALLBACK
from ullage.api.rules_cost import DEADLINE_POSITIVE as DEADLINE_POSITIVE
from ullage.api.rules_cost import DEADLINE_WITH_OBJECTIVE as DEADLINE_WITH_OBJECTIVE
from ullage.api.rules_cost import DECISION_PERIOD_POSITIVE as DECISION_PERIOD_POSITIVE
from ullage.api.rules_cost import ESTIMATED_WORK_POSITIVE as ESTIMATED_WORK_POSITIVE
from ullage.api.rules_cost import HAZARD_HALF_LIFE_POSITIVE as HAZARD_HALF_LIFE_POSITIVE
from ullage.api.rules_cost import MAX_TIME_POSITIVE as MAX_TIME_POSITIVE
from ullage.api.rules_cost import MIN_HOLD_POSITIVE as MIN_HOLD_POSITIVE
from ullage.api.rules_tiers import DIRTY_POSITIVE as DIRTY_POSITIVE
from ullage.api.rules_tiers import FLUSH_NEEDS_TIERS as FLUSH_NEEDS_TIERS
from ullage.api.rules_tiers import LAG_COVERS_PUSHES as LAG_COVERS_PUSHES
from ullage.api.rules_tiers import RELIABLE_WITHIN_BOUNDS as RELIABLE_WITHIN_BOUNDS
from ullage.api.rules_tiers import STATE_POSITIVE as STATE_POSITIVE
from ullage.api.rules_tiers import TIERS_NEED_BACKUP as TIERS_NEED_BACKUP
from ullage.api.rules_tiers import TIERS_NEED_BOUNDS as TIERS_NEED_BOUNDS
from ullage.api.rules_tiers import TIERS_NEED_RELIABLE as TIERS_NEED_RELIABLE

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
    message="share.minPercent is above share.maxPercent: raise maxPercent or lower minPercent",
    expression="'share.minPercent (%d) is above share.maxPercent (%d): raise maxPercent or lower "
    "minPercent'.format([self.minPercent, self.maxPercent])",
)
SHARE_WITH_FRACTIONAL: Final = Rule(
    name="share-with-fractional",
    rule="(self.mode == 'Fractional') == has(self.share)",
    message="gpu.share belongs only to mode Fractional: set mode: Fractional and share.minPercent "
    "together, or leave share out",
)
ONE_FRACTION: Final = Rule(
    name="one-fraction",
    rule="self.mode != 'Fractional' || self.count == 1",
    message="mode Fractional gives a share of one device: set gpu.count to 1, or use mode "
    "Exclusive for several whole devices",
    field=".count",
)
MEMORY_POSITIVE: Final = Rule(
    name="memory-positive",
    rule=at_least("1Mi"),
    message="gpu.memory.limit must be an amount of at least 1Mi: write it with a unit such as "
    "4Gi, or leave it out to get memory in proportion to the share",
)
DEVICE_MEMORY_POSITIVE: Final = Rule(
    name="device-memory-positive",
    rule=at_least("1Mi"),
    message="spec.memory must be an amount of at least 1Mi: write it with a unit such as 80Gi",
)
SLOWDOWN_AT_LEAST_ONE: Final = Rule(
    name="slowdown-at-least-one",
    rule="self.matches('^[0-9]+([.][0-9]+)?$') && double(self) >= 1.0",
    message='slo.maxSlowdown must be a quoted decimal number of at least 1: "1.3" means at most '
    "30 % slower than alone on the whole device",
)
ONE_OBJECTIVE: Final = Rule(
    name="one-objective",
    rule="has(self.maxSlowdown) != has(self.minThroughput)",
    message="slo needs exactly one of maxSlowdown (relative to running alone) and minThroughput "
    "(steps per second)",
)
THROUGHPUT_POSITIVE: Final = Rule(
    name="throughput-positive",
    rule="self.matches('^[0-9]+([.][0-9]+)?$') && double(self) > 0.0",
    message="slo.minThroughput must be a quoted decimal number above 0, in steps per second: "
    '"12.5"',
)
RESIZE_NEEDS_CHECKPOINT: Final = Rule(
    name="resize-needs-checkpoint",
    rule="!has(self.sharing) || self.sharing.resizable != 'Restart' || has(self.checkpoint)",
    message="sharing.resizable Restart restarts the job at a checkpoint: add spec.checkpoint, or "
    "leave resizable at Never",
    field=".sharing.resizable",
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
    rule="self.matches('^[0-9]+([.][0-9]+)?$') && double(self) > 0.0",
    message='load.requestsPerSecond must be a quoted decimal number above 0: "12.5"; leave load '
    "out to let Ullage measure it",
)
ARRIVALS_NOT_NEGATIVE: Final = Rule(
    name="arrivals-not-negative",
    rule="self.matches('^[0-9]+([.][0-9]+)?$')",
    message='load.cv2 must be a quoted decimal number of at least 0: "1" for independent arrivals',
)
ACCELERATOR_KEY: Final = Rule(
    name="accelerator-key",
    rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    message="an accelerator is named by its key: the product name in lower case, with a dash for "
    "every other character, such as nvidia-h100-80gb-hbm3",
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
    message="elasticity.minReplicas is above elasticity.maxReplicas: raise maxReplicas or lower "
    "minReplicas",
    expression="'elasticity.minReplicas (%d) is above elasticity.maxReplicas (%d): raise "
    "maxReplicas or lower minReplicas'.format([self.minReplicas, self.maxReplicas])",
)
MEMBERSHIP_NEEDS_BOUNDS: Final = Rule(
    name="membership-needs-bounds",
    rule="self.membership != 'InPlace' || self.minReplicas < self.maxReplicas",
    message="membership InPlace lets members come and go between minReplicas and maxReplicas: "
    "lower minReplicas or raise maxReplicas, or leave membership out",
    field=".membership",
)
ELASTICITY_OR_REPLICAS: Final = Rule(
    name="elasticity-or-replicas",
    rule="!(has(self.replicas) && has(self.elasticity))",
    message="spec.replicas and spec.elasticity exclude each other: elasticity.minReplicas and "
    "maxReplicas set the number of members; leave replicas out",
    field=".elasticity",
)
ELASTICITY_NEEDS_CHECKPOINT: Final = Rule(
    name="elasticity-needs-checkpoint",
    rule="!has(self.elasticity) || has(self.checkpoint)",
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
SCALING_ORDER: Final = Rule(
    name="scaling-order",
    rule="self.minReplicas <= self.maxReplicas",
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


def _asks_for(resource: str) -> str:
    """CEL condition that the container's limits or requests name this resource."""
    asks = (
        f"(has(self.resources.{part}) && '{resource}' in self.resources.{part})"
        for part in ("limits", "requests")
    )
    return f"has(self.resources) && ({' || '.join(asks)})"


NO_FOREIGN_GPU: Final = Rule(
    name="no-foreign-gpu",
    rule=f"!({_asks_for(FOREIGN_GPU_RESOURCE)})",
    message=f"a container must not request {FOREIGN_GPU_RESOURCE}: a device has one owner. Request "
    "devices in spec.gpu and remove it from resources",
)
NO_SLOT: Final = Rule(
    name="no-slot",
    rule=f"!({_asks_for(SLOT_RESOURCE)})",
    message=f"a container must not request {SLOT_RESOURCE}: the operator adds it to the first "
    "container. Request devices in spec.gpu and remove it from resources",
)
RESERVED_LABELS: Final = Rule(
    name="reserved-labels",
    rule=f"!has(self.labels) || self.labels.all(key, !key.startsWith('{GROUP}/') || "
    f"key in {list(TEMPLATE_KEYS)})",
    message=f"of the {GROUP} labels, a template may set only {' and '.join(TEMPLATE_KEYS)}; remove "
    "the others, the operator sets them",
    field=".labels",
)
RESTART_NEVER: Final = Rule(
    name="restart-never",
    rule="!has(self.restartPolicy) || self.restartPolicy == 'Never'",
    message="restartPolicy of a TrainingJob must be Never or left out: spec.failurePolicy "
    "decides on restarts, and the whole gang restarts together",
    field=".restartPolicy",
)
RESTART_ALWAYS: Final = Rule(
    name="restart-always",
    rule="!has(self.restartPolicy) || self.restartPolicy == 'Always'",
    message="restartPolicy of an InferenceService must be Always or left out",
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
    message="nodeSelector must name at least one label, usually instance type, zone and capacity "
    "type: a pool without labels would have no nodes",
)
PRICE_POSITIVE: Final = Rule(
    name="price-positive",
    rule="self.matches('^[0-9]+([.][0-9]+)?$') && double(self) > 0.0",
    message='a price must be a quoted decimal number above 0, such as "3.06"',
)
HTTP_ONE_ANSWER: Final = Rule(
    name="http-one-answer",
    rule="has(self.metric) != has(self.pointer) && (has(self.metric) || !has(self.labels))",
    message="http needs either metric (Prometheus text, optionally with labels) or pointer (JSON), "
    "not both",
)

RULES: Final[tuple[Rule, ...]] = tuple(
    value for value in dict(globals()).values() if isinstance(value, Rule)
)
"""Every rule of this module."""

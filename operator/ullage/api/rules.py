# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The validation rules that the API server itself evaluates (CEL), by name.

They stand together because each needs one manifest that keeps it and one that breaks it in the
golden set, and because their messages are what a user reads first: a message says what is wrong
and what to do. Names are for tests and the reference page; the API server never sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic.config import JsonDict

from ullage.api.contract import FOREIGN_GPU_RESOURCE, SLOT_RESOURCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A CEL rule and the message of its refusal; ``field`` places the message below the node."""

    name: str
    rule: str
    message: str
    field: str = ""

    def schema(self) -> JsonDict:
        """The entry of ``x-kubernetes-validations``."""
        body: JsonDict = {"rule": self.rule, "message": self.message}
        return body | ({"fieldPath": self.field} if self.field else {})


def validations(*rules: Rule) -> JsonDict:
    """``json_schema_extra`` of a model or field that carries these rules."""
    return {"x-kubernetes-validations": [rule.schema() for rule in rules]}


WORKLOAD_NAME: Final = Rule(
    name="workload-name",
    rule="size(self.metadata.name) <= 52 "
    "&& self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    message="metadata.name must have at most 52 characters, begin with a letter and hold only "
    "lower-case letters, digits and dashes, because pods and Services are named after it",
)
ACCELERATOR_NAME: Final = Rule(
    name="accelerator-name",
    rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",
    message="metadata.name must be an accelerator key: the product name in lower case with every "
    "other character a dash, at most 63 characters, such as nvidia-h100-80gb-hbm3",
)
SHARE_ORDER: Final = Rule(
    name="share-order",
    rule="self.minPercent <= self.maxPercent",
    message="share.minPercent must not be above share.maxPercent: raise maxPercent or lower "
    "minPercent",
)
SHARE_WITH_FRACTIONAL: Final = Rule(
    name="share-with-fractional",
    rule="(self.mode == 'Fractional') == has(self.share)",
    message="gpu.share belongs to mode Fractional and to no other: set mode: Fractional and "
    "share.minPercent together, or leave share out",
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
    rule="quantity(string(self)).compareTo(quantity('1Mi')) >= 0",
    message="gpu.memory.limit must be at least 1Mi: write it with a unit such as 4Gi, or leave "
    "it out to get memory in proportion to the share",
)
DEVICE_MEMORY_POSITIVE: Final = Rule(
    name="device-memory-positive",
    rule="quantity(string(self)).compareTo(quantity('1Mi')) >= 0",
    message="spec.memory must be at least 1Mi: write it with a unit such as 80Gi",
)
SLOWDOWN_AT_LEAST_ONE: Final = Rule(
    name="slowdown-at-least-one",
    rule="double(self) >= 1.0",
    message="slo.maxSlowdown must be at least 1: 1.3 means at most 30 % slower than alone on the "
    "whole device",
)
_FROZEN = "can change only while the job is suspended: set spec.suspend to true in an update of "
_FROZEN_END = "its own, then change it"
FROZEN_REPLICAS: Final = Rule(
    name="frozen-replicas",
    rule="oldSelf.suspend || self.replicas == oldSelf.replicas",
    message=f"spec.replicas {_FROZEN}{_FROZEN_END}",
    field=".replicas",
)
FROZEN_GPU: Final = Rule(
    name="frozen-gpu",
    rule="oldSelf.suspend || self.gpu == oldSelf.gpu",
    message=f"spec.gpu {_FROZEN}{_FROZEN_END}",
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
    message="scaling.minReplicas must not be above scaling.maxReplicas",
)
REPLICAS_WITHIN_SCALING: Final = Rule(
    name="replicas-within-scaling",
    rule="!has(self.scaling) || (self.replicas >= self.scaling.minReplicas "
    "&& self.replicas <= self.scaling.maxReplicas)",
    message="spec.replicas must lie within scaling.minReplicas and scaling.maxReplicas",
    field=".replicas",
)
NO_FOREIGN_GPU: Final = Rule(
    name="no-foreign-gpu",
    rule="!has(self.resources) || !has(self.resources.limits) "
    f"|| !('{FOREIGN_GPU_RESOURCE}' in self.resources.limits)",
    message=f"a container must not ask for {FOREIGN_GPU_RESOURCE}: a device has one owner. Say "
    "what you need in spec.gpu and remove the limit",
)
NO_SLOT: Final = Rule(
    name="no-slot",
    rule="!has(self.resources) || !has(self.resources.limits) "
    f"|| !('{SLOT_RESOURCE}' in self.resources.limits)",
    message=f"a container must not ask for {SLOT_RESOURCE}: the operator adds it to the first "
    "container. Say what you need in spec.gpu and remove the limit",
)
RESTART_NEVER: Final = Rule(
    name="restart-never",
    rule="!has(self.restartPolicy) || self.restartPolicy == 'Never'",
    message="restartPolicy of a TrainingJob must be Never or left out: spec.failurePolicy "
    "decides about restarts, and the whole gang restarts together",
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
    message="spec.epoch must not go down: this write comes from an operator that is no longer "
    "the leader",
    field=".epoch",
)

RULES: Final[tuple[Rule, ...]] = tuple(
    value for value in dict(globals()).values() if isinstance(value, Rule)
)
"""Every rule of this module."""

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What operator, node agent and in-pod runtime agree on: names, epochs, wire records.

Every process of the product loads this module, so it uses the standard library only and must
never import anything else of the product but :mod:`ullage.api.reasons`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from ullage.api.codec import Wire, derived
from ullage.api.devices import Backend as Backend
from ullage.api.devices import GPUMode as GPUMode
from ullage.api.devices import Health as Health
from ullage.api.devices import MpsState as MpsState
from ullage.api.devices import MpsStatus as MpsStatus
from ullage.api.devices import ObservedDevice as ObservedDevice
from ullage.api.interruptions import Interruption as Interruption
from ullage.api.interruptions import InterruptionKind as InterruptionKind
from ullage.api.interruptions import sooner as sooner
from ullage.api.observations import MAX_ID as MAX_ID
from ullage.api.observations import MAX_OBSERVATIONS as MAX_OBSERVATIONS
from ullage.api.observations import MAX_PARTNERS as MAX_PARTNERS
from ullage.api.observations import Fingerprint as Fingerprint
from ullage.api.observations import LatencyObjective as LatencyObjective
from ullage.api.observations import Observation as Observation
from ullage.api.observations import ObservedPartner as ObservedPartner
from ullage.api.readers import JsonObject as JsonObject
from ullage.api.readers import WireError as WireError
from ullage.api.readers import bounded as bounded
from ullage.api.readers import count_of as count_of
from ullage.api.readers import filled as filled
from ullage.api.readers import flag as flag
from ullage.api.readers import objects as objects
from ullage.api.readers import quoted as quoted
from ullage.api.readers import section as section
from ullage.api.readers import text as text
from ullage.api.readers import whole as whole
from ullage.api.reasons import Reason as Reason
from ullage.api.steps import RESUMED_AT_MAX as RESUMED_AT_MAX
from ullage.api.steps import STEP_LAYOUT as STEP_LAYOUT
from ullage.api.steps import STEP_MAGIC as STEP_MAGIC
from ullage.api.steps import STEP_RECORD_BYTES as STEP_RECORD_BYTES
from ullage.api.steps import STEP_VERSION as STEP_VERSION
from ullage.api.steps import STEP_WORDS as STEP_WORDS
from ullage.api.steps import StepRecord as StepRecord
from ullage.api.times import moment_of as moment_of
from ullage.api.wire_fields import (
    IF_KNOWN,
    INT32_MAX,
    KEPT,
    NEEDED,
    Count,
    Counted,
    Embedded,
    Flag,
    Kind,
    Name,
    Percent,
    Schema,
    Text,
    Word,
    at_most,
    between,
    known_word,
    word,
)

GROUP: Final = "ullage.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
WIRE_VERSION: Final = 1
"""Version of the records exchanged between operator and node agent."""

# Labels and annotations (crds: keys).
LABEL_NODE: Final = "ullage.dev/node"
LABEL_CLASS: Final = "ullage.dev/class"
LABEL_FAMILY: Final = "ullage.dev/family"
TEMPLATE_KEYS: Final = (LABEL_CLASS, LABEL_FAMILY)
"""Keys of the group that a pod template may bear; all others are the operator's to set."""
LABEL_ACCELERATOR: Final = "ullage.dev/accelerator"
LABEL_MANAGED: Final = "ullage.dev/managed"
LABEL_KIND: Final = "ullage.dev/kind"
LABEL_OWNER: Final = "ullage.dev/owner"
LABEL_RANK: Final = "ullage.dev/rank"
LABEL_ORDER: Final = "ullage.dev/order"
LABEL_REGISTERED: Final = "ullage.dev/registered"
"""Of a Node that the operator has counted: a node request asks for one without it."""
"""Pool that a placeholder pod orders a node of; such a pod is no member of anything."""
LABEL_LEAD: Final = "ullage.dev/lead"
"""``true`` on the pod that leads a job in tiers; such a pod is no member of anything."""
LABEL_TIER: Final = "ullage.dev/tier"
"""``reliable`` or ``transient``, of a member of a job in tiers."""
LABEL_POOL: Final = "ullage.dev/pool"
"""Pool of its node, on a member that asks for it."""
ANNOTATION_KARPENTER_KEEP: Final = "karpenter.sh/do-not-disrupt"
ANNOTATION_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
ANNOTATION_TEMPLATE_HASH: Final = "ullage.dev/template-hash"
ANNOTATION_WORLD_SIZE: Final = "ullage.dev/world-size"
"""Members of the gang that a pod of an elastic job was made for."""

GATE: Final = "ullage.dev/placement"
SLOT_RESOURCE: Final = "ullage.dev/slot"
FOREIGN_GPU_RESOURCE: Final = "nvidia.com/gpu"
MANAGER_OPERATOR: Final = "ullage-scheduler"
MANAGER_READER: Final = "ullage-reader"
"""Of what is told of objects that cannot be read."""
MANAGER_NODE: Final = "ullage-node"
CDI_KIND: Final = "ullage.dev/slot"
EMULATED_MODEL: Final = "emulated"
LEASE_NAME: Final = "ullage-operator"

ENV_SLICE: Final = "ULLAGE_SLICE"
ENV_STEPS: Final = "ULLAGE_STEPS"
ENV_PERCENT: Final = "ULLAGE_PERCENT"
STEPS_MOUNT: Final = "/run/ullage/steps"
LIBRARY_MOUNT: Final = "/run/ullage/python"
"""Where every container with a slice finds ``ullage_run``, read-only."""
STEPS_FILE: Final = "record"

HEARTBEAT_SECONDS: Final = 60
"""Period of the node agent's heartbeat; older than three periods means no one listens there."""


MAX_EPOCH: Final = 2**53
"""No leader comes near; the next one is a larger number, and must still fit."""
MAX_MEMORY_MIB: Final = 2**31 - 1
"""Of a device: two pebibytes."""


class SlicePhase(StrEnum):
    """How far a node has come with a slice."""

    RESERVED = "Reserved"
    REFUSED = "Refused"
    PREPARED = "Prepared"
    ATTACHED = "Attached"
    VIOLATING = "Violating"
    FROZEN = "Frozen"
    FAILED = "Failed"

    @property
    def holds_capacity(self) -> bool:
        """Whether a slice in this phase counts against its device."""
        return self is not SlicePhase.REFUSED

    @property
    def started(self) -> bool:
        """Whether a container may have been created from the slice."""
        return self not in (SlicePhase.RESERVED, SlicePhase.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SliceKey(Wire):
    """Identity of a slice: the pod, the device container in it, and which of its devices."""

    pod_uid: Annotated[Word, NEEDED]
    """UID of the pod."""
    container: Annotated[Name, at_most(63)]
    """Container that gets the device."""
    index: Annotated[int, between(0, INT32_MAX), KEPT, Schema(default=0)] = 0
    """Index of the device within the container, from 0."""

    @property
    def directory(self) -> str:
        """Name of the step record's directory and value of ``ULLAGE_SLICE``."""
        return f"{self.pod_uid}_{self.container}"


SLICE_KEY: Final = Embedded(
    SliceKey.from_wire, SliceKey.to_wire, Schema(properties=derived(SliceKey).shape)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSlice(Wire):
    """One entry of ``GPUNode.spec.slices``: the durable record of a placement decision.

    ``memory_mib`` is what the container may allocate, without context overhead. The rest after
    ``protected`` is there so that guard and last word need no other object: the class of work,
    the objective as a slowdown (percent, 0 = none; a latency objective went through the queue
    map), the reference step time alone on the whole device (0 = not known), the objective as the
    user wrote it, whether the tenant is on probation, and whether a broken objective is only told
    (``onViolation: Alert``): no one is frozen for it then. ``context_overhead_mib`` is what each of
    its contexts was counted with beside that memory (0 = not said, by an operator of before: the
    node's own setting counts).
    """

    key: Annotated[SliceKey, SLICE_KEY]
    pod_namespace: Name
    pod_name: Name
    gpu: Name
    percent: Percent
    memory_mib: Annotated[int, between(0, MAX_MEMORY_MIB), NEEDED]
    epoch: Annotated[int, between(0, MAX_EPOCH), NEEDED]
    priority: Annotated[int, between(-(2**31), INT32_MAX), KEPT] = 0
    protected: Annotated[Flag, KEPT] = False
    workload_class: Annotated[Text, "class"] = ""
    family: Text = ""
    trust_domain: Text = ""
    max_slowdown_percent: Annotated[int, between(0, 100_000)] = 0
    solo_step_micros: Count = 0
    slo: LatencyObjective | None = None
    probation: Flag = False
    alert_only: Flag = False
    context_overhead_mib: Annotated[int, between(0, 65_536)] = 0


def _pids(raw: JsonObject, field: str) -> tuple[int, ...]:
    stated = raw[field] or []
    if not isinstance(stated, list):
        raise WireError(f"{field}: expected a list of whole numbers")
    return tuple(pid for pid in stated if type(pid) is int)


class Proof(StrEnum):
    """How the node knows that a share holds, strongest first.

    ``REPORTED``: the container reports the SM count that it sees. ``ENVIRONMENT``: the kernel shows
    that every process began with its share's variables. ``SERVER_LIST``: the MPS server lists every
    process, and more cannot be read. ``CGROUP``: the limits of an emulated device's container were
    read back.
    """

    REPORTED = "Reported"
    ENVIRONMENT = "Environment"
    SERVER_LIST = "ServerList"
    CGROUP = "Cgroup"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSlice(Wire):
    """One entry of ``GPUNode.status.slices``: what the node made of a slice.

    ``step_micros`` is the recent time of one step, ``solo_step_micros`` what the same step takes
    alone on the whole device; 0 means not known. ``latency_micros`` is the last window's latency
    at the objective's percentile; ``windows`` and ``violations`` count the guard's windows since
    the container started, and those above the objective. ``proof`` says how the node knows that
    the share holds; ``None`` = it does not, or there is none to prove. ``checkpoint_age_s`` is how
    long ago the container said that it saved its work, as of the report; 0 = it never said so.
    ``steps`` counts from 0 at each start of the container; ``resumed_at`` is the step of the
    checkpoint that the start went on from, as the container says; 0 = from the beginning, or it
    does not say.
    """

    key: Annotated[SliceKey, SLICE_KEY]
    phase: Annotated[SlicePhase, known_word(SlicePhase), NEEDED]
    gpu: Annotated[Text, KEPT]
    percent: Annotated[int, between(0, INT32_MAX), KEPT]
    memory_mib: Annotated[int, between(0, MAX_MEMORY_MIB), KEPT]
    epoch: Annotated[int, between(0, MAX_EPOCH), KEPT]
    reason: Text = ""
    message: Text = ""
    pids: Annotated[tuple[int, ...], Kind(_pids, list, ())] = ()
    sm_count: Counted = 0
    memory_used_mib: Counted = 0
    proof: Annotated[Proof | None, word(Proof), IF_KNOWN] = None
    steps: Counted = 0
    items: Counted = 0
    step_micros: Counted = 0
    solo_step_micros: Counted = 0
    latency_micros: Counted = 0
    windows: Counted = 0
    violations: Counted = 0
    checkpoint_age_s: Annotated[Counted, "checkpointAgeSeconds"] = 0
    resumed_at: Annotated[Counted, "resumedAtStep"] = 0


SLOT_PATTERN: Final = re.compile(r"^slot-(\d{2,4})$")


def slot_id(number: int) -> str:
    """Name of the slot with this number: ``slot-07``. Slots are fungible; the number means nothing.

    Raises:
        ValueError: the number is outside 0..9999.
    """
    if not 0 <= number <= 9999:
        raise ValueError(f"slot number {number} is outside 0..9999")
    return f"slot-{number:02d}"


def accelerator_key(product_name: str) -> str:
    """Key of an accelerator type: the product name in lower case, other characters a dash."""
    return re.sub(r"[^a-z0-9]", "-", product_name.lower())


def default_trust_domain(namespace: str) -> str:
    """Trust domain of a workload that names none; the slash keeps users from typing it."""
    return f"namespace/{namespace}"

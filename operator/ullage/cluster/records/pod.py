# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods, as the operator observes them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ullage.cluster.records.metrics import EpochValue
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod_rules import Labels, PodRules, PodTraits
from ullage.cluster.records.pod_shape import PodShape

_NO_RULES = PodRules()


class PodStage(StrEnum):
    """Stage of one of our pods; ``GATED`` by us, by others, or both."""

    GATED = "Gated"
    UNSCHEDULED = "Unscheduled"
    BOUND = "Bound"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    """It ended with exit code 0 before a deletion or disruption."""
    STOPPED = "Stopped"
    """It ended with exit code 0 after its deletion or disruption began: its work may continue."""
    FAILED = "Failed"

    @property
    def finished(self) -> bool:
        """True when no process of the pod will run again."""
        return self in (PodStage.SUCCEEDED, PodStage.STOPPED, PodStage.FAILED)


_PLAIN_ENDS: Final = ("", "Error", "Completed")

"""Kubelet's reasons that add nothing to the exit code."""


def end_text(code: int | None, reason: str, line: str) -> str:
    """Text of the end of a container: exit code, kubelet's reason, the last line."""
    status = "no exit code" if code is None else f"exit code {code}"
    word = f" ({reason})" if reason not in _PLAIN_ENDS else ""
    return f"{status}{word}" + (f": {line}" if line else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """One of our pods (label ``ullage.dev/managed=true``).

    ``owner`` is the TrainingJob or InferenceDeployment named by our labels; its uid is empty when
    the pod belongs to a ReplicaSet, and ``ClusterState`` sets it from the name. ``stage_since`` is
    when this process first observed the stage.
    """

    uid: str
    namespace: str
    name: str
    owner: ObjectRef
    created: float
    stage: PodStage
    stage_since: float
    shape: PodShape
    rank: int = -1
    gates: tuple[str, ...] = ()
    node: str = ""
    ready: bool = False
    ready_since: float = 0.0
    """Time of the last change of ``ready``, seconds since the epoch; 0 = unknown."""
    deleting: bool = False
    priority: int = 0
    disrupted: bool = False
    """Condition ``DisruptionTarget``, lost to an admission race, or failed once it was deleted."""
    lost_race: bool = False
    """Failed at kubelet's admission (``UnexpectedAdmissionError``, ``OutOf*``)."""
    exit_code: int | None = None
    end_reason: str = ""
    """Kubelet's reason for the end with ``exit_code``, such as OOMKilled."""
    last_line: str = ""
    """The last line of a failed container, from its termination message or log."""
    last_end: str = ""
    """Text of the end of the device container before kubelet restarted it."""
    container_restarts: int = 0
    """Restarts of the device container in this pod."""
    waiting_reason: str = ""
    waiting_message: str = ""
    scheduling_message: str = ""
    template_hash: str = ""
    reservation: str = ""
    """Reservation that it was created for; empty = its slices follow it."""
    planned: bool = False
    """It does not exist yet: a reservation stands for it, whose id is its uid."""
    order: str = ""
    """Pool of its node request; such a pod is no member of its owner."""
    lead: bool = False
    """It coordinates a job in tiers; such a pod is no member of its owner."""
    address: str = ""
    """Address of a coordinator."""
    grace_s: int = 30
    """Seconds between SIGTERM and SIGKILL."""
    world_size: int = 0
    """Members of its elastic gang; 0 = its gang is not elastic."""
    controlled: bool = False
    """True for an adopted pod whose controller recreates it."""
    controller: str = ""
    """uid of that controller."""
    report: tuple[EpochValue, ...] = ()
    """Report of the program by epoch, of a trial's pod that has ended."""
    labels: Labels = ()
    rules: PodRules | None = None
    """Demands on other pods, ports and volumes; ``None`` = none."""
    ended_at: float = 0.0
    """End of the last container of a pod that has ended, by its node's clock; 0 = unknown."""
    stop_asked: float = 0.0
    """Start of its deletion or disruption, by the API's clock, of a pod that has ended; 0 =
    never, or at a time that cannot be read."""

    @property
    def traits(self) -> PodTraits:
        """The part of the pod relevant to rules of other pods."""
        rules = self.rules or _NO_RULES
        return PodTraits(
            namespace=self.namespace,
            labels=self.labels,
            anti_affinity=rules.anti_affinity,
            ports=rules.ports,
            claims=rules.claims,
            leaving=self.deleting,
            assumed=not self.node,
        )

    @property
    def stopped(self) -> bool:
        """True when it was ended externally, whatever its exit code."""
        return self.stage is PodStage.STOPPED or (self.stage is PodStage.FAILED and self.disrupted)

    @property
    def how_it_ended(self) -> str:
        """Text of the end: exit code, kubelet's reason, the last line."""
        return end_text(self.exit_code, self.end_reason, self.last_line)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignPod:
    """A pod with our label that no workload of ours created; it is never changed.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        claims: The workload that it names, in its own namespace.
        why: Contradiction to the claim.
    """

    namespace: str
    name: str
    claims: ObjectRef
    why: str

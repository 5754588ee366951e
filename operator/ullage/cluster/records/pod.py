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
    """Stage of a pod of ours; ``GATED`` by us, by others, or both."""

    GATED = "Gated"
    UNSCHEDULED = "Unscheduled"
    BOUND = "Bound"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    """It ended with exit code 0 before anything asked it to end."""
    STOPPED = "Stopped"
    """It ended with exit code 0 after its deletion or disruption began: its work may go on."""
    FAILED = "Failed"

    @property
    def finished(self) -> bool:
        """True when no process of the pod will run again."""
        return self in (PodStage.SUCCEEDED, PodStage.STOPPED, PodStage.FAILED)


_PLAIN_ENDS: Final = ("", "Error", "Completed")

"""Kubelet's words that say no more than the exit code."""


def end_text(code: int | None, reason: str, line: str) -> str:
    """The end of a container in words: exit code, kubelet's word for it, the last line."""
    status = "no exit code" if code is None else f"exit code {code}"
    word = f" ({reason})" if reason not in _PLAIN_ENDS else ""
    return f"{status}{word}" + (f": {line}" if line else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """A pod of ours (label ``ullage.dev/managed=true``).

    ``owner`` is the TrainingJob or InferenceDeployment named by our labels; its uid is empty when
    the pod belongs to a ReplicaSet, and ``ClusterState`` fills it from the name.
    ``stage_since`` is when this process first saw the stage.
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
    """Kubelet's word for the end that ``exit_code`` is of, such as OOMKilled."""
    last_line: str = ""
    """The last line that a failed container left, in its termination message or log."""
    last_end: str = ""
    """End of the device container before kubelet started it again, in words."""
    container_restarts: int = 0
    """Restarts of the device container in this pod."""
    waiting_reason: str = ""
    waiting_message: str = ""
    scheduling_message: str = ""
    template_hash: str = ""
    order: str = ""
    """Pool that it orders a node of; such a pod is no member of its owner."""
    lead: bool = False
    """It leads a job in tiers; such a pod is no member of its owner."""
    address: str = ""
    """Address of a coordinator."""
    grace_s: int = 30
    """Seconds between SIGTERM and SIGKILL."""
    world_size: int = 0
    """Members of the elastic gang that it was made for; 0 = its gang is not elastic."""
    controlled: bool = False
    """A controller of others creates another one in its place, of an adopted pod."""
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
        """The part of the pod that rules of other pods look at."""
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
        """True when others ended it, whatever its exit code."""
        return self.stage is PodStage.STOPPED or (self.stage is PodStage.FAILED and self.disrupted)

    @property
    def how_it_ended(self) -> str:
        """The end in words: exit code, kubelet's word for it, the last line."""
        return end_text(self.exit_code, self.end_reason, self.last_line)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignPod:
    """A pod with our label that no workload of ours created; nothing is ever done to it.

    Attributes:
        namespace: Its own.
        name: Its own.
        claims: The workload that it names, in its own namespace.
        why: Contradiction to the claim.
    """

    namespace: str
    name: str
    claims: ObjectRef
    why: str

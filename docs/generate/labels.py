# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What each label of our metrics holds; closed sets of values come from the code."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from docs.generate.facts import FactsMissing, MetricFact
from ullage.api.devices import MpsState
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.api.words import EfficiencyRule
from ullage.cluster.records.pool import CapacityType
from ullage.cluster.records.tuning import PHASES
from ullage.cluster.values.streams import STREAMS
from ullage.metrics.inventory import DeviceUse, NodeState
from ullage.metrics.tenants import MOST_OF_A_NAMESPACE
from ullage.metrics.tuning import TrialStage
from ullage.scheduling.model.phases import Phase
from ullage_node.model.guard import PauseResult, WindowVerdict


def _of(words: type[StrEnum] | Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


LABELS: Final = {
    "UUID": "UUID of the device, as DCGM's exporter writes it",
    "accelerator": "accelerator key of a type of device (`GPUNode.status.devices[].model`)",
    "action": "kind of action that a decision takes, a class name such as `CreatePod`",
    "capacity": "kind of capacity that was chosen: `Spot`, `OnDemand`, ...",
    "capacity_type": _of(one.value for one in CapacityType),
    "cause": "of a violation: `neighbours`, `probation`, `load` (its own); of a preemption: "
    "`priority`, `reclaim` (of quota), `turn`; of a skipped cycle: why there was no work",
    "component": "`operator`, `node`",
    "currency": "ISO 4217 code of the prices (`ULLAGE_PRICE_CURRENCY`)",
    "decision": "`admitted`, `probation`, `refused`",
    "error": "class name of what failed, such as `SolverTimeout`",
    "field": "`slowdown`",
    "gpu": "index of the device on its node, as `nvidia-smi` and DCGM's exporter count; of a MIG "
    "device its GPU's",
    "group": "novelty group `G0` to `G4` (see [glossary](../glossary.md)), empty = none",
    "kept": "`yes`, `no`",
    "kind": "a kind of objects: of streams " + _of(stream.name for stream in STREAMS)
    + "; of memory `total`, `reserved`, `used`; of notices what the provider announced",
    "metric": "name of a GPM counter",
    "node": "name of the Node; on metrics of devices, written by the agent itself",
    "of": "`median`, `max`: over the ranks of a job",
    "phase": "of workloads " + _of(Phase) + "; of searches "
    + _of(PHASES) + "; of slices " + _of(SlicePhase),
    "pool": "name of a CapacityPool",
    "reason": "a [reason](reasons.md), such as " + _of((Reason.NO_CAPACITY, Reason.PLACED)),
    "result": "how it ended; of judged windows `kept`, `broken`; of pauses " + _of(PauseResult),
    "rule": "why device time is not used: " + _of(EfficiencyRule),
    "section": "part of the metrics",
    "source": "where a speed or a notice comes from",
    "stage": "stage of a job in tiers, a number",
    "state": "of nodes " + _of(NodeState) + "; of devices " + _of(DeviceUse) + "; of slots "
    "`free`, `used`, `unhealthy`; of device time `used`, `wasted`, `withheld`, `unmeasured`; "
    "of MPS servers " + _of(MpsState) + "; of trials "
    + _of(TrialStage),
    "task": "name of a background task",
    "tenant": "tenant of the SchedulingPolicy or of `spec.tenant`, else the namespace; at most "
    f"{MOST_OF_A_NAMESPACE} names of one namespace, work of further ones counts for the namespace",
    "verb": "verb of a request to the API server",
    "verdict": _of(WindowVerdict),
    "version": "version of the program",
    "volume": "block device of a node, with the volume of Kubernetes on it where known",
    "waits_for": "what a workload without a place waits for",
    "why": "why an observation is not told",
    "workload_namespace": "namespace of the workload",
    "xid": "number of an [Xid](xids.md), `other` = one that is not listed",
}  # fmt: skip


def label_rows(facts: Iterable[MetricFact]) -> list[tuple[str, str]]:
    """Every label of the metrics and what it holds, by name.

    Raises:
        FactsMissing: a label is not described, or a description is of no label.
    """
    used = {label for fact in facts for label in fact.labels}
    if used != LABELS.keys():
        raise FactsMissing(f"labels and LABELS differ in {sorted(used ^ LABELS.keys())}")
    return sorted(LABELS.items())

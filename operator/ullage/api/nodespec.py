# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The spec of a GPUNode: CRD, operator and node agent follow from this record.

Standard library only: the node agent loads no pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ullage.api.codec import derived
from ullage.api.dataio import IoFairness
from ullage.api.lanes import IterationPolicy
from ullage.api.observations import MAX_ID
from ullage.api.readers import JsonObject, text
from ullage.api.slices import MAX_EPOCH, DesiredSlice
from ullage.api.traces import MAX_TRACES, DesiredTrace
from ullage.api.wire_fields import Flag, Kind, Schema, at_most, atomic, between, word

MAX_SLICES: Final = 2048


def _acknowledged(raw: JsonObject, field: str) -> str:
    """Id of the last observation that was read; one that no observation can have counts as none."""
    stated = text(raw, field)
    return stated if len(stated) <= MAX_ID else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUNodeSpec:
    """Desired state of the node, written by the operator."""

    epoch: Annotated[int, between(0, MAX_EPOCH), Schema(required=True)] = 0
    """Term of the leader that wrote this spec; it never decreases."""
    retire: Annotated[Flag, Schema(default=False)] = False
    """Retire the node: the operator places nothing new on it, and the agent removes its files and
    withdraws. Set it back to false to use the node again."""
    slices: Annotated[tuple[DesiredSlice, ...], atomic(MAX_SLICES)] = ()
    """Every slice that the node must hold, unique by podUID, container and index."""
    lane_policy: Annotated[IterationPolicy, word(IterationPolicy, IterationPolicy.FAIR)] = (
        IterationPolicy.FAIR
    )
    """Whose step is next in the lanes of the node's devices, as the SchedulingPolicy says; absent =
    `FAIR`."""
    io_fairness: Annotated[IoFairness, word(IoFairness, IoFairness.OBSERVE)] = IoFairness.OBSERVE
    """Answer to a container that takes too much of a volume, as the SchedulingPolicy says; absent =
    `Observe`."""
    observations_read: Annotated[str, Kind(_acknowledged, schema=at_most(MAX_ID))] = ""
    """Newest observation of the node that the operator has stored; the agent stops reporting it
    and all before it."""
    traces: Annotated[tuple[DesiredTrace, ...], atomic(MAX_TRACES)] = ()
    """Orders to trace steps of pods, unique by id and podUID; one that is removed is taken back."""


GPU_NODE_SPEC: Final = derived(GPUNodeSpec)
WITHOUT_TRACES: Final = derived(GPUNodeSpec, ("traces",))
"""Of the operator's decisions, which no order of a trace concerns."""
WITHOUT_LISTS: Final = derived(GPUNodeSpec, ("slices", "traces"))
"""Of the node agent, which reads each entry apart: one that is wrong hides no other."""

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What both workload kinds report about their placement, its reason, and their sharing."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ullage.api.base import (
    ATOMIC,
    AnyName,
    Count,
    DecimalText,
    Epoch,
    Line,
    LongCount,
    Model,
    Percent,
    ReasonWord,
    SignedDecimal,
    Text,
    Threshold,
    Time,
    Word,
    list_map,
)


class Placement(Model):
    """One slice of one member: a summary of the GPUNode's spec for people."""

    pod_uid: Word
    """uid of the pod."""
    container: Annotated[str, Field(max_length=63)]
    """Container that gets the device."""
    index: Count = 0
    """Which of the container's devices, from 0."""
    pod: AnyName
    """Name of the pod."""
    node: AnyName
    """Node of the device."""
    gpu: AnyName
    """uuid of the device."""
    percent: Percent
    """Granted share of the device's compute."""
    memory_mib: LongCount
    """Granted device memory in MiB."""
    epoch: Epoch
    """Term of the leader that decided this."""


Placements = Annotated[
    tuple[Placement, ...],
    Field(max_length=65536, json_schema_extra=list_map("podUID", "container", "index")),
]


class Refusal(Model):
    """Devices that one reason rules out."""

    reason: ReasonWord
    """What binds."""
    devices: Count
    """How many devices it rules out."""
    nearest: Line
    """The device that comes closest."""
    message: Line
    """By how much it misses, and what would help."""


class Decision(Model):
    """Why the workload has its placement, or why it waits."""

    time: Time
    """When it was decided."""
    epoch: Epoch
    """Term of the leader that decided."""
    inputs_hash: Word
    """Hash of what the decision was made from; equal inputs give equal decisions."""
    chosen: Line | None = None
    """What was chosen and its score."""
    runner_up: Line | None = None
    """The next best and its score."""
    reason: ReasonWord
    """What binds, in one stable word."""
    message: Text | None = None
    """The decision in a sentence."""
    refusals: Annotated[
        tuple[Refusal, ...], Field(max_length=8, json_schema_extra=list_map("reason"))
    ] = ()
    """Why devices were refused, one entry per reason."""
    alone: bool | None = None
    """No other workload joins its devices until its latency is measured."""
    identity: Word | None = None
    """Digest of the decision; it stays the same while the decision stands."""


class Exclusion(Model):
    """A device that failed the workload and is left out for it."""

    reason: ReasonWord
    """How it failed."""
    node: AnyName
    """Node of the device."""
    gpu: AnyName
    """UUID of the device."""
    since: Time
    """When it failed."""
    until: Time | None = None
    """Until when it is left out; absent = with its whole node, until the node's agent reports."""
    message: Line | None = None
    """What happened, in a sentence."""


class Scheduling(Model):
    """What the operator remembers between its decisions; the operator alone writes it."""

    exclusions: Annotated[
        tuple[Exclusion, ...], Field(max_length=16, json_schema_extra=ATOMIC)
    ] = ()
    """Devices that are left out, the latest last; one whose time is over binds nothing."""
    preemptions: Count | None = None
    """Preemptions in a row: each doubles the wait before the next start."""
    preempted_at: Time | None = None
    """When the last preemption happened."""


class Sharing(Model):
    """Share of the slowest member, and how much slower it is than alone on a whole device."""

    percent: Percent
    """Granted share of the device's compute."""
    memory_mib: LongCount
    """Granted device memory in MiB."""
    predicted: DecimalText | None = None
    """Predicted slowdown (median), 1 = as fast as alone on the whole device."""
    predicted_upper: DecimalText | None = None
    """Slowdown that 95 of 100 such predictions stay below."""
    observed: DecimalText | None = None
    """Observed slowdown; absent until it is known."""
    latency_ms: LongCount | None = None
    """Observed latency of the last window at the objective's percentile, in milliseconds."""
    attainment: DecimalText | None = None
    """Part of the windows since the start that kept the objective, 0 to 1."""
    group: Word | None = None
    """How new this mixture of classes is: G0 (seen before) to G4 (three or more tenants)."""
    source: Word | None = None
    """Model that predicted, such as prior+gp."""
    z: SignedDecimal | None = None
    """Safety margin of the device's tightest objective, in standard deviations."""
    threshold: Annotated[Threshold | None, Field(alias="lambda")] = None
    """Minimum margin that the risk budget requires; Refuse = no margin is enough."""
    risk_used: DecimalText | None = None
    """Predicted chance that an objective on the device is broken."""

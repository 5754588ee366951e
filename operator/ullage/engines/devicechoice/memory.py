# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decides whether a job's memory fits a device, by the best evidence.

Order: a measured failure, a measured peak, an estimate from parameters and activations, nothing.
Nothing means unknown, and unknown must never become a placement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ADAM_BYTES_PER_PARAMETER: Final = 18.0
"""Mixed precision Adam: 2 weights + 4 gradients + 4 master + 8 moments (derived)."""


class MemoryFit(StrEnum):
    """Verdict of the evidence."""

    FITS = "Fits"
    TOO_LARGE = "TooLarge"
    UNKNOWN = "Unknown"


class MemoryEvidence(StrEnum):
    """Source of a verdict."""

    FAILED = "MeasuredFailure"
    PEAK = "MeasuredPeak"
    ESTIMATE = "Estimate"
    NONE = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Memory of a run of the same profile key on some device.

    Attributes:
        device_bytes: Memory of that device.
        peak_bytes: Largest amount in use; 0 with ``failed``.
        failed: It ran out of memory there.
    """

    device_bytes: float
    peak_bytes: float = 0.0
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory of a job on each device, where it is declared or profiled.

    Attributes:
        parameters: Parameters of the model; ``None`` = not known.
        activation_bytes_per_sample: ``None`` = not known.
        batch_per_gpu: Samples of a step on each device.
        workspace_bytes: Buffers of libraries and of communication.
        bytes_per_parameter: Weights, gradients and optimizer state.
    """

    parameters: float | None = None
    activation_bytes_per_sample: float | None = None
    batch_per_gpu: int = 1
    workspace_bytes: float = 0.0
    bytes_per_parameter: float = ADAM_BYTES_PER_PARAMETER

    def need_bytes(self) -> float | None:
        """Bytes needed; ``None`` where a part is unknown or not a number."""
        if self.parameters is None or self.activation_bytes_per_sample is None:
            return None
        parts = (
            self.parameters * self.bytes_per_parameter,
            self.activation_bytes_per_sample * self.batch_per_gpu,
            self.workspace_bytes,
        )
        return sum(parts) if all(math.isfinite(part) and part >= 0 for part in parts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVerdict:
    """The verdict for one job on one type of device.

    Attributes:
        verdict: The verdict.
        evidence: Its evidence.
        need_bytes: Bytes needed, context included; ``None`` = unknown.
        device_bytes: Memory of the device.
    """

    verdict: MemoryFit
    evidence: MemoryEvidence
    need_bytes: float | None
    device_bytes: float


def memory_verdict(
    device_bytes: float,
    *,
    context_bytes: float = 0.0,
    measured: Sequence[MeasuredMemory] = (),
    footprint: Footprint | None = None,
) -> MemoryVerdict:
    """Decide if a job fits a device.

    A failure holds for every device that is not larger. A peak on a device of this size always
    counts; one from another size only where it fits, since allocators keep more than they need on a
    larger device.

    Args:
        device_bytes: Memory of the device.
        context_bytes: Memory of a container there beyond its allocations.
        measured: Runs of the same profile key.
        footprint: Declared or profiled parts, the second best evidence.
    """

    def answer(verdict: MemoryFit, evidence: MemoryEvidence, need: float | None) -> MemoryVerdict:
        return MemoryVerdict(
            verdict=verdict, evidence=evidence, need_bytes=need, device_bytes=device_bytes
        )

    def judged(need: float, evidence: MemoryEvidence) -> MemoryVerdict:
        return answer(
            MemoryFit.FITS if need <= device_bytes else MemoryFit.TOO_LARGE, evidence, need
        )

    if not math.isfinite(device_bytes) or device_bytes <= 0:
        return answer(MemoryFit.UNKNOWN, MemoryEvidence.NONE, None)
    if any(run.failed and run.device_bytes >= device_bytes for run in measured):
        return answer(MemoryFit.TOO_LARGE, MemoryEvidence.FAILED, None)
    peaks = [run for run in measured if not run.failed and run.peak_bytes > 0]
    same = [run.peak_bytes for run in peaks if run.device_bytes == device_bytes]
    if same:
        return judged(max(same) + context_bytes, MemoryEvidence.PEAK)
    other = [run.peak_bytes + context_bytes for run in peaks]
    if other and max(other) <= device_bytes:
        return judged(max(other), MemoryEvidence.PEAK)
    need = footprint.need_bytes() if footprint is not None else None
    if need is None:
        return answer(MemoryFit.UNKNOWN, MemoryEvidence.NONE, None)
    return judged(need + context_bytes, MemoryEvidence.ESTIMATE)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a job fits into a device: failures first, then peaks, then what it declares."""

from __future__ import annotations

import math

import pytest

from ullage.engines.devicechoice.memory import (
    Footprint,
    MeasuredMemory,
    MemoryEvidence,
    MemoryFit,
    memory_verdict,
)

DEVICE = 100.0


def judged(
    *measured: MeasuredMemory, context: float = 0.0, footprint: Footprint | None = None
) -> tuple[MemoryFit, MemoryEvidence, float | None]:
    answer = memory_verdict(DEVICE, context_bytes=context, measured=measured, footprint=footprint)
    assert answer.device_bytes == DEVICE
    return answer.verdict, answer.evidence, answer.need_bytes


def peak(amount: float, device: float = DEVICE) -> MeasuredMemory:
    return MeasuredMemory(device_bytes=device, peak_bytes=amount)


def failure(device: float) -> MeasuredMemory:
    return MeasuredMemory(device_bytes=device, failed=True)


@pytest.mark.parametrize(
    ("amount", "context", "verdict"),
    [(1, 0, MemoryFit.FITS), (90, 10, MemoryFit.FITS), (91, 10, MemoryFit.TOO_LARGE)],
)
def test_a_peak_on_a_device_of_this_size_counts_with_the_context(
    amount: float, context: float, verdict: MemoryFit
) -> None:
    assert judged(peak(amount), context=context) == (verdict, MemoryEvidence.PEAK, amount + context)


def test_the_largest_peak_counts_and_those_of_this_size_come_first() -> None:
    assert judged(peak(20), peak(60)) == (MemoryFit.FITS, MemoryEvidence.PEAK, 60)
    assert judged(peak(20), peak(80, device=200)) == (MemoryFit.FITS, MemoryEvidence.PEAK, 20)


def test_peaks_of_other_sizes_count_only_where_they_fit() -> None:
    assert judged(peak(30, device=50), peak(90, device=200), context=10) == (
        MemoryFit.FITS,
        MemoryEvidence.PEAK,
        100,
    )
    # a larger device tempts allocators to keep more than they need
    assert judged(peak(91, device=200), context=10) == (
        MemoryFit.UNKNOWN,
        MemoryEvidence.NONE,
        None,
    )


def test_a_failure_holds_for_devices_that_are_not_larger() -> None:
    refused = (MemoryFit.TOO_LARGE, MemoryEvidence.FAILED, None)
    assert judged(failure(DEVICE), peak(10)) == refused
    assert judged(failure(200), peak(10)) == refused
    assert judged(failure(99), peak(10)) == (MemoryFit.FITS, MemoryEvidence.PEAK, 10)


def test_a_run_that_was_not_measured_says_nothing() -> None:
    assert judged(peak(0)) == (MemoryFit.UNKNOWN, MemoryEvidence.NONE, None)
    assert judged() == (MemoryFit.UNKNOWN, MemoryEvidence.NONE, None)


def test_what_is_declared_is_an_estimate_and_second_to_what_was_measured() -> None:
    footprint = Footprint(
        parameters=2.0,
        bytes_per_parameter=16.0,
        activation_bytes_per_sample=10.0,
        batch_per_gpu=4,
        workspace_bytes=8.0,
    )
    assert judged(context=20, footprint=footprint) == (MemoryFit.FITS, MemoryEvidence.ESTIMATE, 100)
    assert judged(context=21, footprint=footprint) == (
        MemoryFit.TOO_LARGE,
        MemoryEvidence.ESTIMATE,
        101,
    )
    assert judged(peak(10), footprint=footprint) == (MemoryFit.FITS, MemoryEvidence.PEAK, 10)


@pytest.mark.parametrize(
    "footprint",
    [
        Footprint(parameters=None, activation_bytes_per_sample=1.0),
        Footprint(parameters=1.0, activation_bytes_per_sample=None),
        Footprint(parameters=math.nan, activation_bytes_per_sample=1.0),
        Footprint(parameters=math.inf, activation_bytes_per_sample=1.0),
        Footprint(parameters=1.0, activation_bytes_per_sample=1.0, workspace_bytes=-1.0),
    ],
)
def test_a_declaration_with_a_part_that_is_no_amount_says_nothing(footprint: Footprint) -> None:
    assert judged(footprint=footprint) == (MemoryFit.UNKNOWN, MemoryEvidence.NONE, None)


def test_what_needs_no_memory_fits() -> None:
    nothing = Footprint(parameters=0.0, activation_bytes_per_sample=0.0)
    assert judged(footprint=nothing) == (MemoryFit.FITS, MemoryEvidence.ESTIMATE, 0)


@pytest.mark.parametrize("device", [0.0, -1.0, math.inf, math.nan])
def test_of_a_device_without_a_size_nothing_is_known(device: float) -> None:
    answer = memory_verdict(device, measured=(peak(1),))
    assert (answer.verdict, answer.evidence) == (MemoryFit.UNKNOWN, MemoryEvidence.NONE)
    assert memory_verdict(0.5, measured=(peak(0.5, device=0.5),)).verdict is MemoryFit.FITS

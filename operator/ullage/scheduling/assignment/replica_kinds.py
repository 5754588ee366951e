# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Possible kinds of replicas of a service: accelerators, their prices and free devices."""

from __future__ import annotations

from dataclasses import replace

from ullage.api.gpurequest import Share
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.records import ShareCurve
from ullage.scheduling.assignment.cycle_context import CycleContext
from ullage.scheduling.learning.device_prices import prices_of
from ullage.scheduling.lifecycle.share_choice import Kinds
from ullage.scheduling.times import SHORTEST_S


def kinds_of(context: CycleContext, service: WorkloadRecord) -> Kinds:
    """Possible kinds of replicas of a service in this cycle.

    Args:
        context: The context of the cycle.
        service: A service that the operator scales.
    """

    def seconds(accelerator: str, percent: int) -> float:
        curve, part = _curve(context, service, accelerator), percent / WHOLE_PERCENT
        return max(curve.seconds(part), SHORTEST_S) if curve is not None else 1 / part

    def room(accelerator: str, percent: int) -> int:
        share = Share(min_percent=percent, max_percent=percent)
        gpu = replace(service.gpu, share=share) if service.gpu.share is not None else service.gpu
        # the previous choice would limit it to the present accelerator
        status = replace(service.status, scaling=None)
        asked = replace(service, accelerators=(accelerator,), gpu=gpu, status=status)
        return context.placer.room(context.requests.of(asked, asked.shape))

    barred = context.requests.classes.of(service).barred
    return Kinds(
        seconds=seconds,
        prices=_prices(context, service),
        barred=[name for name, model in context.inventory.models.items() if model in barred],
        room=room,
    )


def _prices(context: CycleContext, service: WorkloadRecord) -> dict[str, float]:
    """Accelerators that it may use and that have a known request time."""
    prices = prices_of(context.view.snapshot)
    return {
        name: prices[name]
        for name in context.inventory.models
        if prices.get(name)
        and (not service.accelerators or name in service.accelerators)
        and _curve(context, service, name) is not None
    }


def _curve(context: CycleContext, service: WorkloadRecord, accelerator: str) -> ShareCurve | None:
    model = context.inventory.models.get(accelerator)
    if model is None:
        return None
    profile = context.requests.classes.of(service).tenants[model].profile
    return profile.curve if profile is not None else None

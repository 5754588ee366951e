# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The search over all devices and the engine's rules on one device refuse for the same reasons."""

from __future__ import annotations

import random

import pytest

import builders
from ullage.api.contract import Reason
from ullage.engines.admission.filters import (
    RULES,
    Device,
    Newcomer,
    Resident,
    first_refusal,
    share_ceiling,
)
from ullage.engines.admission.records import Tenant
from ullage.scheduling.assignment.cycle_state import look
from ullage.scheduling.feasibility.checks import CHAIN, ceiling, columns, figures
from ullage.scheduling.feasibility.occupancy import Domains, Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.inventory.inventory import take_inventory
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.prediction.workload_classes import Classes

ENGINES = {reason for reason, _ in RULES}


def test_the_chain_asks_in_the_order_of_the_engine() -> None:
    assert [reason for reason, _ in CHAIN if reason in ENGINES] == [reason for reason, _ in RULES]


@pytest.mark.parametrize("seed", range(12))
def test_every_device_is_refused_for_the_reason_that_the_engine_says(seed: int) -> None:
    chance = random.Random(seed)
    occupancy, requests = _crowded(chance)
    refused: set[Reason | None] = set()
    for request in requests:
        everything = columns(occupancy)
        chain = {reason: check(everything, request) for reason, check in CHAIN if reason in ENGINES}
        tops = ceiling(everything, request)
        for site in range(len(occupancy.inventory.sites)):
            device, newcomer = _as_the_engine_sees(occupancy, request, site)
            said = first_refusal(newcomer, device)
            mine = next((one for one, short in chain.items() if short[site] > 0), None)
            assert mine == (said.reason if said is not None else None)
            assert tops[site] == share_ceiling(newcomer, device)
            assert figures(occupancy, site).memory_used == device.memory_mib - _free(device)
            refused.add(mine)
    assert {None, Reason.TRUST_DOMAIN, Reason.PERCENT_LIMIT} <= refused


def test_a_share_smaller_than_its_context_is_refused_by_both() -> None:
    view_of = builders.a_snapshot(
        builders.a_node("node-0"),
        builders.a_gpu_node("node-0", devices=1),
        builders.a_job("small").fractional(1, 1),
        builders.a_device_profile(context_overhead_mib=4000),
    )
    occupancy, requests = _laid_out(view_of)
    device, newcomer = _as_the_engine_sees(occupancy, requests[0], 0)
    said = first_refusal(newcomer, device)
    assert said is not None
    assert said.reason is Reason.MEMORY_WOULD_OVERFLOW
    shorts = {reason: check(figures(occupancy, 0), requests[0]) for reason, check in CHAIN}
    assert [one for one, short in shorts.items() if short > 0] == [said.reason]


def _free(device: Device) -> int:
    held = [one.memory_mib or 0 for one in device.residents]
    return device.memory_mib - sum(held) - len(held) * device.context_overhead_mib


def _as_the_engine_sees(
    occupancy: Occupancy, request: ResourceRequest, site: int
) -> tuple[Device, Newcomer]:
    inventory, one = occupancy.inventory, occupancy.inventory.sites[site]
    device = Device(
        uuid=one.uuid,
        accelerator=one.device.model,
        memory_mib=one.device.memory_mib,
        contexts=inventory.contexts.item(site),
        context_overhead_mib=one.overhead_mib,
        percent_limit=request.percent_limit,
        residents=tuple(
            Resident(
                tenant=here.tenant,
                memory_mib=here.memory_mib,
                trust_domain=str(here.domain),
                enforced=not here.loose,
            )
            for here in occupancy.occupants[site]
        ),
    )
    newcomer = Newcomer(
        tenant=Tenant(name="newcomer", percent=1),
        min_percent=request.min_percent,
        max_percent=request.max_percent,
        memory_mib=request.memory_mib,
        trust_domain=str(request.domain),
    )
    return device, newcomer


def _crowded(chance: random.Random) -> tuple[Occupancy, list[ResourceRequest]]:
    jobs = [
        builders.a_job("share").fractional(20, 60),
        builders.a_job("wide").fractional(10, 100),
        builders.a_job("big").fractional(10, 50, memory_mib=6000),
        builders.a_job("red").fractional(30).trusting("domain-1"),
    ]
    nodes = [builders.a_gpu_node(f"node-{at}", devices=4) for at in range(6)]
    shapes = [builders.a_node(f"node-{at}") for at in range(6)]
    occupancy, requests = _laid_out(builders.a_snapshot(*shapes, *nodes, *jobs))
    for site in range(len(occupancy.inventory.sites)):
        for _ in range(chance.randrange(6)):
            occupancy.put(site, _occupant(chance))
    return occupancy, requests


def _laid_out(snapshot) -> tuple[Occupancy, list[ResourceRequest]]:  # type: ignore[no-untyped-def]
    view = look(snapshot, builders.NOW, DecideSettings(epoch=3), Ledger(snapshot))
    inventory = take_inventory(view)
    occupancy = Occupancy(inventory, Domains())
    requests = ResourceRequests(view, occupancy, Classes(view.snapshot, inventory))
    return occupancy, [requests.of(one, one.shape) for one in view.snapshot.workloads.values()]


def _occupant(chance: random.Random) -> Occupant:
    percent = chance.choice((10, 25, 40))
    return Occupant(
        pod_uid=f"pod-{chance.random()}",
        owner_uid="someone",
        tenant=Tenant(name="someone", percent=percent),
        memory_mib=percent * chance.choice((50, 100, 200)),
        domain=chance.choice((0, 0, 0, 1)),
        whole=False,
        loose=chance.random() < 0.05,
    )

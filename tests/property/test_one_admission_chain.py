# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One list of hard limits: of one device and of all at once, in the operator and on the node.

What must hold is written out here once more, tenant by tenant, not by the functions that decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from fakes.examples import examples
from fakes.node_slices import a_held, a_slice
from ullage.api.devices import GPUMode
from ullage.api.gpurequest import LaneMemory
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.engines.admission import filters
from ullage.engines.admission.filters import figures_of, first_refusal, request_for
from ullage.engines.admission.limits import LIMITS, MODE_BIT, ceiling, first_broken
from ullage.engines.admission.records import Tenant
from ullage.scheduling.assignment.observe import look
from ullage.scheduling.feasibility.device_facts import one_device
from ullage.scheduling.feasibility.occupancy import Domains, Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.inventory.inventory import Ints, Inventory, take_inventory
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.placement.placement import memory_mib
from ullage.scheduling.prediction.workload_classes import Classes
from ullage_node.model.slices import NodeDevice
from ullage_node.slices.invariants import candidate_for
from ullage_node.slices.invariants import first_refusal as refused_by_the_node

DEVICES = 3
NO_LIMIT = 100 * 100
SAID = {
    Reason.TRUST_DOMAIN: Reason.TRUST_DOMAIN,
    Reason.ENFORCEMENT_MISSING: Reason.UNENFORCED,
    Reason.CONTEXT_LIMIT: Reason.CAPACITY_EXCEEDED,
    Reason.MEMORY_WOULD_OVERFLOW: Reason.CAPACITY_EXCEEDED,
}
"""Limits that a node knows the facts of, and its words for them."""


@dataclass(frozen=True, kw_only=True)
class There:
    percent: int
    memory_mib: int
    domain: int
    loose: bool = False
    whole: bool = False
    unmeasured: bool = False


@dataclass(frozen=True, kw_only=True)
class Place:
    tenants: tuple[There, ...]
    memory_mib: int
    overhead_mib: int
    contexts: int
    model: int = 0
    health: int = 0
    modes: int = 3
    mps: int = 0
    suspends: int = 0
    least_percent: int = 0
    alone: int = 0


@dataclass(frozen=True, kw_only=True)
class Asked:
    least: int
    most: int
    limit: int
    memory_mib: int
    domain: int
    count: int = 1
    exclusive: bool = False
    lonely: bool = False
    suspendable: bool = False
    unmeasured: tuple[int, ...] = ()

    @property
    def mode(self) -> GPUMode:
        return GPUMode.EXCLUSIVE if self.exclusive else GPUMode.FRACTIONAL


def _rarely(value: object, otherwise: object) -> st.SearchStrategy[object]:
    return st.sampled_from([otherwise] * 19 + [value])


DOMAINS = st.sampled_from([0] * 19 + [1])
MEMORIES = st.one_of(st.sampled_from([0, 1, 500, 4_000, 15_500, 16_000]), st.integers(0, 20_000))
PLAIN_TENANTS = st.builds(
    There,
    percent=st.integers(1, 60),
    memory_mib=st.integers(0, 8_000),
    domain=DOMAINS,
    loose=_rarely(True, False),
)
TENANTS = st.builds(
    replace,
    PLAIN_TENANTS,
    whole=_rarely(True, False),
    unmeasured=_rarely(True, False),
)


def _places(tenants: st.SearchStrategy[There]) -> st.SearchStrategy[Place]:
    return st.builds(
        Place,
        tenants=st.lists(tenants, max_size=4).map(tuple),
        memory_mib=st.sampled_from([16_000, 81_920, 16_000, 81_920, 4_096, 511, 1]),
        overhead_mib=st.sampled_from([0, 307, 512]),
        contexts=st.sampled_from([44, 44, 44, 44, 3, 2, 1, 0]),
    )


PLAIN = _places(PLAIN_TENANTS)
PLACES = st.builds(
    replace,
    _places(TENANTS),
    model=st.integers(0, 1),
    health=st.sampled_from([0, 0, 0, 0, 1, 2, 4]),
    modes=st.sampled_from([3, 3, 3, 1, 2]),
    mps=_rarely(1, 0),
    suspends=st.sampled_from([0, 1]),
    least_percent=_rarely(20, 0),
    alone=_rarely(1, 0),
)
SHARES = st.builds(
    lambda between, limit, memory, domain: Asked(
        least=min(between), most=max(between), limit=limit, memory_mib=memory, domain=domain
    ),
    st.tuples(st.integers(1, 100), st.integers(1, 100)),
    st.sampled_from([50, 100, 200]),
    MEMORIES,
    DOMAINS,
)
WHOLES = st.builds(
    lambda one, count: replace(
        one, least=100, most=100, memory_mib=0, count=count, exclusive=True, lonely=True
    ),
    SHARES,
    st.integers(1, 2),
)
REQUESTS = st.one_of(
    SHARES,
    st.builds(
        replace,
        SHARES,
        lonely=st.booleans(),
        suspendable=_rarely(True, False),
        unmeasured=st.sampled_from([(), (0,)]),
    ),
    WHOLES,
)


LEAVES = LaneMemory(persistent_mib=1, ephemeral_mib=1, cooperative=False)
EDGES = st.sampled_from([None, None, -1, 0, 1, 1])
"""How far beyond the free memory of a device the newcomer asks, MiB."""


def _at_the_edge(place: Place, asked: Asked, edge: int | None) -> Asked:
    """The same newcomer, but for memory that just fits, or just does not."""
    held = sum(one.memory_mib + place.overhead_mib for one in place.tenants)
    wanted = place.memory_mib - held - place.overhead_mib + (edge or 0)
    if edge is None or wanted < 1 or asked.exclusive:
        return asked
    return replace(asked, memory_mib=wanted)


def by_hand(place: Place, asked: Asked) -> Reason | None:
    """The first limit that does not hold, from what people would say of it."""
    here = place.tenants
    held = sum(one.memory_mib + place.overhead_mib for one in here)
    share = place.memory_mib * asked.least // 100
    needed = asked.memory_mib + place.overhead_mib if asked.memory_mib else share
    percent = sum(one.percent for one in here)
    measured_alone = any(one.unmeasured for one in here)
    broken = {
        Reason.NODE_LEAVES: place.health == 4,
        Reason.NODE_UNHEALTHY: place.health == 2,
        Reason.DEVICE_UNHEALTHY: place.health == 1,
        Reason.MODE_UNSUPPORTED: not place.modes & MODE_BIT[asked.mode],
        Reason.DEVICES_NOT_COMBINED: asked.count > 1 and bool(place.alone),
        Reason.SHARE_TOO_SMALL: asked.least < place.least_percent,
        Reason.CHECKPOINT_UNAVAILABLE: asked.suspendable and not place.suspends,
        Reason.NO_CAPACITY: bool(here) if asked.lonely else any(one.whole for one in here),
        Reason.TRUST_DOMAIN: any(one.domain != asked.domain for one in here),
        Reason.NEED_PROFILE: measured_alone or bool(here and place.model in asked.unmeasured),
        Reason.MPS_NOT_READY: bool(place.mps),
        Reason.ENFORCEMENT_MISSING: any(one.loose for one in here),
        Reason.CONTEXT_LIMIT: len(here) + 1 > place.contexts,
        Reason.PERCENT_LIMIT: percent + (0 if asked.exclusive else asked.least)
        > (0 if asked.exclusive else asked.limit),
        Reason.MEMORY_WOULD_OVERFLOW: held + needed > place.memory_mib
        or needed <= place.overhead_mib,
    }
    assert list(broken) == [limit.reason for limit in LIMITS]
    return next((reason for reason, is_so in broken.items() if is_so), None)


@pytest.fixture(scope="module")
def empty() -> tuple[Inventory, ResourceRequest]:
    """Devices whose figures the examples set, and a request likewise."""
    snapshot = builders.a_snapshot(
        builders.a_node("node-0"),
        builders.a_gpu_node("node-0", devices=DEVICES),
        builders.a_job("share").fractional(20, 60),
    )
    view = look(snapshot, builders.NOW, DecideSettings(epoch=3), Ledger(snapshot))
    inventory = take_inventory(view)
    occupancy = Occupancy(inventory, Domains())
    requests = ResourceRequests(view, occupancy, Classes(snapshot, inventory))
    (job,) = snapshot.workloads.values()
    return inventory, requests.of(job, job.shape)


Empty = tuple[Inventory, ResourceRequest]
LATER = ("suspends", "least_percent", "alone")
"""Figures of devices that most nodes do not state."""


def _occupied(inventory: Inventory, places: tuple[Place, ...]) -> Occupancy:
    def column(name: str) -> Ints:
        return np.array([getattr(one, name) for one in places], dtype=np.int64)

    sites = tuple(
        replace(
            site,
            overhead_mib=one.overhead_mib,
            device=replace(site.device, memory_mib=one.memory_mib),
        )
        for site, one in zip(inventory.sites, places, strict=True)
    )
    names = ("model", "health", "modes", "contexts", "mps", *LATER)
    facts = replace(
        inventory.facts,
        **{name: column(name) for name in names},
        memory=column("memory_mib"),
        overhead=column("overhead_mib"),
    )
    found = Occupancy(replace(inventory, sites=sites, facts=facts), Domains())
    for site, place in enumerate(places):
        for number, one in enumerate(place.tenants):
            found.put(site, _occupant(number, one))
    return found


def _occupant(number: int, one: There) -> Occupant:
    return Occupant(
        pod_uid=f"pod-{number}",
        owner_uid="someone",
        tenant=Tenant(name=f"tenant-{number}", percent=one.percent),
        memory_mib=one.memory_mib,
        domain=one.domain,
        whole=one.whole,
        loose=one.loose,
        unmeasured="its speed" if one.unmeasured else "",
    )


def _request(template: ResourceRequest, asked: Asked) -> ResourceRequest:
    known = replace(template.known, unmeasured=dict.fromkeys(asked.unmeasured, "its speed"))
    return replace(
        template,
        known=known,
        mode=asked.mode,
        exclusive=asked.exclusive,
        lonely=asked.lonely,
        count=asked.count,
        min_percent=asked.least,
        max_percent=asked.most,
        percent_limit=asked.limit,
        memory_mib=asked.memory_mib,
        domain=asked.domain,
        lane=LEAVES if asked.suspendable else None,
    )


@examples(60, many=500)
@given(places=st.tuples(*[PLACES] * DEVICES), asked=REQUESTS, edge=EDGES)
def test_a_column_and_a_device_break_the_same_limit_first(
    empty: Empty, places: tuple[Place, ...], asked: Asked, edge: int | None
) -> None:
    inventory, template = empty
    asked = _at_the_edge(places[0], asked, edge)
    asked = replace(asked, unmeasured=()) if asked.exclusive else asked
    occupancy, request = _occupied(inventory, places), _request(template, asked)
    everything = occupancy.facts
    shorts = [
        np.broadcast_to(limit.short(everything, request), (DEVICES,)).tolist() for limit in LIMITS
    ]
    tops = ceiling(everything, request).tolist()
    for site, place in enumerate(places):
        one = one_device(occupancy.facts, site)
        assert [limit.short(one, request) for limit in LIMITS] == [short[site] for short in shorts]
        assert ceiling(one, request) == tops[site]
        first = next(
            (limit.reason for limit, short in zip(LIMITS, shorts, strict=True) if short[site] > 0),
            None,
        )
        said = first_broken(one, request)
        assert (said.reason if said is not None else None) is first
        assert by_hand(place, asked) is first
        if first is None and not asked.exclusive:
            assert asked.least <= tops[site], "a share is left wherever every limit holds"


@examples(60, many=500)
@given(place=PLAIN, asked=SHARES, edge=EDGES)
def test_the_records_of_one_device_break_it_too(
    empty: Empty, place: Place, asked: Asked, edge: int | None
) -> None:
    asked = _at_the_edge(place, asked, edge)
    device = filters.CheckedDevice(
        uuid="gpu-0",
        memory_mib=place.memory_mib,
        contexts=place.contexts,
        context_overhead_mib=place.overhead_mib,
        percent_limit=asked.limit,
        residents=tuple(
            filters.Resident(
                tenant=Tenant(name=f"tenant-{number}", percent=one.percent),
                memory_mib=one.memory_mib,
                trust_domain=str(one.domain),
                enforced=not one.loose,
            )
            for number, one in enumerate(place.tenants)
        ),
    )
    newcomer = filters.Newcomer(
        tenant=Tenant(name="newcomer", percent=1),
        min_percent=asked.least,
        max_percent=asked.most,
        memory_mib=asked.memory_mib,
        trust_domain=str(asked.domain),
    )
    said = first_refusal(newcomer, device)
    assert (said.reason if said is not None else None) is by_hand(place, asked)
    assert said is None or said.text
    inventory, template = empty
    occupancy = _occupied(inventory, (place,) * DEVICES)
    assert ceiling(figures_of(device, newcomer), request_for(newcomer, device)) == ceiling(
        one_device(occupancy.facts, 0), _request(template, asked)
    )


def _as_the_node_sees(place: Place, asked: Asked, percent: int, mib: int) -> Reason | None:
    """What a node says whose facts are those of the operator."""
    device = NodeDevice(
        uuid="gpu-0",
        memory_mib=place.memory_mib,
        contexts=place.contexts,
        overhead_mib=place.overhead_mib,
    )
    held = [
        a_held(
            f"there-{number}",
            SlicePhase.FAILED if one.loose else SlicePhase.ATTACHED,
            percent=one.percent,
            memory_mib=one.memory_mib,
            trust_domain=f"domain-{one.domain}",
            context_overhead_mib=place.overhead_mib,
        )
        for number, one in enumerate(place.tenants)
    ]
    newcomer = a_slice(
        "new",
        percent=percent,
        memory_mib=mib,
        trust_domain=f"domain-{asked.domain}",
        context_overhead_mib=place.overhead_mib,
    )
    refusal = refused_by_the_node(candidate_for(newcomer, held, {"gpu-0": device}))
    return refusal.reason if refusal is not None else None


@examples(60, many=500)
@given(place=_places(TENANTS), asked=REQUESTS, edge=EDGES, data=st.data())
def test_the_node_refuses_nothing_that_the_operator_admits(
    empty: Empty, place: Place, asked: Asked, edge: int | None, data: st.DataObject
) -> None:
    inventory, template = empty
    asked = _at_the_edge(place, asked, edge)
    occupancy = _occupied(inventory, (place,) * DEVICES)
    request = _request(template, asked)
    facts = one_device(occupancy.facts, 0)
    if first_broken(facts, request) is not None:
        return
    top = 100 if asked.exclusive else ceiling(facts, request)
    percent = data.draw(st.sampled_from(sorted({asked.least, top})))
    mib = memory_mib(occupancy, request, 0, percent)
    assert _as_the_node_sees(place, asked, percent, mib) is None


@examples(60, many=500)
@given(place=PLAIN, asked=SHARES, edge=EDGES)
def test_the_operator_refuses_nothing_that_the_node_takes(
    empty: Empty, place: Place, asked: Asked, edge: int | None
) -> None:
    """But for the sum of shares, which is policy, and what a node does not know."""
    if asked.least == 100 and not place.tenants:
        return  # to the node that is a whole device, whose contexts are the tenant's own
    inventory, template = empty
    asked = _at_the_edge(place, replace(asked, limit=NO_LIMIT), edge)
    occupancy = _occupied(inventory, (place,) * DEVICES)
    request = _request(template, asked)
    broken = first_broken(one_device(occupancy.facts, 0), request)
    mib = memory_mib(occupancy, request, 0, asked.least)
    said = _as_the_node_sees(place, asked, asked.least, mib)
    if mib < 1:
        assert said is Reason.CAPACITY_EXCEEDED  # asked first of all: it is no decision at all
        assert broken is not None
        return
    assert said is (SAID[broken.reason] if broken is not None else None)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Equal digests of the inputs of a decision mean equal devices and equal occupants."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from ullage.api.devices import Backend, GPUMode, Health, MpsState, MpsStatus, ObservedDevice
from ullage.engines.admission.filters import usable_contexts
from ullage.engines.admission.records import Tenant
from ullage.scheduling.assignment.digest import occupancy_digest
from ullage.scheduling.assignment.observe import look
from ullage.scheduling.feasibility.occupancy import Domains, Occupancy, Occupant
from ullage.scheduling.inventory.inventory import DEFAULT_CONTEXT_OVERHEAD_MIB, take_inventory
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.slice_ledger import Ledger

COUNTS: Final = st.integers(0, 64)
SERVERS: Final = st.none() | st.builds(
    MpsStatus,
    protocol=st.sampled_from((2, 3)),
    state=st.sampled_from(MpsState),
    server_pid=COUNTS,
    contexts=COUNTS,
    context_limit=COUNTS,
)
VALUES: Final = {
    "uuid": st.sampled_from(("GPU-a", "GPU-b")),
    "model": st.sampled_from(("a100", "h100")),
    "product_name": st.sampled_from(("A", "B")),
    "memory_mib": st.integers(0, 2**31 - 1),
    "contexts": COUNTS,
    "modes": st.lists(st.sampled_from(GPUMode), unique=True).map(tuple),
    "health": st.sampled_from(Health),
    "backend": st.sampled_from(Backend),
    "mps": SERVERS,
    "index": st.none() | COUNTS,
    "suspends": st.booleans(),
    "least_percent": st.integers(0, 100),
    "alone": st.booleans(),
}
DEVICES: Final = st.builds(ObservedDevice, **VALUES)


def _occupancy(device: ObservedDevice, node: str = "node-0") -> Occupancy:
    snapshot = builders.a_snapshot(
        builders.a_node(node), builders.a_gpu_node(node, devices=(device,))
    )
    view = look(snapshot, builders.NOW, DecideSettings(epoch=3), Ledger(snapshot))
    return Occupancy(take_inventory(view), Domains())


def _digest(device: ObservedDevice, node: str = "node-0") -> bytes:
    return occupancy_digest(_occupancy(device, node))


def _read(device: ObservedDevice) -> tuple[object, ...]:
    """What decisions read of a device, by hand."""
    mps, contexts = device.mps, device.contexts
    if mps is not None and mps.context_limit:
        contexts = min(contexts, usable_contexts(mps.context_limit)) - mps.contexts
    return (
        device.uuid,
        device.model,
        device.memory_mib,
        max(0, contexts),
        frozenset(device.modes),
        device.health,
        0 if device.backend is Backend.EMULATED else DEFAULT_CONTEXT_OVERHEAD_MIB,
        mps is not None and mps.state is not MpsState.ACTIVE,
        device.suspends,
        device.least_percent,
        device.alone,
    )


def test_every_field_of_a_device_is_tried() -> None:
    assert VALUES.keys() == {field.name for field in fields(ObservedDevice)}


@given(device=DEVICES, data=st.data(), field=st.sampled_from(sorted(VALUES)))
def test_a_field_that_a_decision_reads_changes_the_digest(
    device: ObservedDevice, data: st.DataObject, field: str
) -> None:
    other = replace(device, **{field: data.draw(VALUES[field])})
    assert (_digest(device) == _digest(other)) is (_read(device) == _read(other))


def test_the_node_of_a_device_counts() -> None:
    device = builders.a_device()
    assert _digest(device) != _digest(device, "node-1")


OCCUPANT: Final = Occupant(
    pod_uid="pod",
    owner_uid="job",
    tenant=Tenant(name="job", percent=30),
    memory_mib=1024,
    domain=0,
    whole=False,
)


@pytest.mark.parametrize(
    "other",
    [
        replace(OCCUPANT, tenant=Tenant(name="job", percent=31)),
        replace(OCCUPANT, memory_mib=1025),
        replace(OCCUPANT, domain=1),
        replace(OCCUPANT, whole=True),
        replace(OCCUPANT, loose=True),
        replace(OCCUPANT, unmeasured="no profile"),
    ],
)
def test_what_an_occupant_takes_changes_the_digest(other: Occupant) -> None:
    digests = set()
    for occupant in (OCCUPANT, other):
        occupancy = _occupancy(builders.a_device())
        for domain in ("blue", "red"):
            occupancy.domains.number(domain)
        occupancy.put(0, occupant)
        digests.add(occupancy_digest(occupancy))
    assert len(digests) == 2


def test_the_order_in_which_trust_domains_came_does_not_count() -> None:
    digests = set()
    for domains in (("blue", "red"), ("red", "blue")):
        occupancy = _occupancy(builders.a_device())
        for domain in domains:
            occupancy.domains.number(domain)
        occupancy.put(0, replace(OCCUPANT, domain=occupancy.domains.number("red")))
        digests.add(occupancy_digest(occupancy))
    assert len(digests) == 1

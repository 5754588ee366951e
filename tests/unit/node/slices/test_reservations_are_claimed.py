# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that were written before their pod existed become those of the pod that bears their id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.api.slices import DesiredSlice, SliceKey
from ullage_node.model.devices import ContainerKey
from ullage_node.model.slices import NodeDevice, Pod
from ullage_node.slices.desired import read_pod
from ullage_node.slices.table import SliceTable, binding_of

RESERVATION = "reservation-0123-4567"
WANTED = DesiredSlice(
    key=SliceKey(pod_uid=RESERVATION, container="main"),
    pod_namespace="team",
    pod_name="train-0",
    gpu="gpu-0",
    percent=100,
    memory_mib=3000,
    epoch=1,
)
POD = Pod(uid="uid-1", namespace="team", name="train-0", phase="Pending", reservation=RESERVATION)
OWN = ContainerKey(pod_uid="uid-1", container="main")


def a_table() -> SliceTable:
    table = SliceTable()
    table.set_devices([NodeDevice(uuid="gpu-0", memory_mib=4000, contexts=3)])
    return table


def phases(table: SliceTable) -> dict[str, str]:
    return {part.desired.key.pod_uid: part.phase.value for part in table.held}


def test_a_reservation_is_reserved_and_then_the_pods() -> None:
    table = a_table()
    table.intake(1, [WANTED])
    assert phases(table) == {RESERVATION: "Reserved"}
    assert table.claim(POD)
    assert phases(table) == {"uid-1": "Reserved"}
    assert [part.key.pod_uid for part in table.wanted_for(OWN)] == ["uid-1"]
    assert not table.claim(POD)


@pytest.mark.parametrize("named", [RESERVATION, "uid-1"])
def test_later_specs_may_name_it_by_either(named: str) -> None:
    table = a_table()
    table.intake(1, [WANTED])
    table.claim(POD)
    table.bind(binding_of([(table.wanted_for(OWN)[0], "slot-00")]))
    later = replace(WANTED, key=replace(WANTED.key, pod_uid=named))
    assert table.intake(1, [later]) == ()
    assert phases(table) == {"uid-1": "Prepared"}
    assert all(part.in_spec for part in table.held)
    assert table.violations() == []


def test_a_pod_that_is_known_first_gets_them_at_once() -> None:
    table = a_table()
    table.claim(POD)
    table.intake(1, [WANTED])
    assert phases(table) == {"uid-1": "Reserved"}


def test_an_agent_that_begins_again_needs_no_second_room_for_a_running_pod() -> None:
    table = a_table()
    table.claim(POD)
    table.intake(1, [WANTED])
    table.bind(binding_of([(table.wanted_for(OWN)[0], "slot-00")]))
    again = a_table()
    again.restore(1, table.held, table.bindings)
    again.intake(1, [WANTED])  # the pods are not listed yet
    again.claim(POD)
    assert phases(again) == {"uid-1": "Prepared"}
    assert all(part.in_spec for part in again.held)


@pytest.mark.parametrize(
    "change",
    [
        {"namespace": "other"},
        {"name": "train-1"},
        {"reservation": "reservation-0123-89ab"},
        {"reservation": ""},
    ],
)
def test_no_other_pod_gets_them(change: dict[str, str]) -> None:
    table = a_table()
    table.intake(1, [WANTED])
    forged = replace(POD, uid="forged", **change)  # type: ignore[arg-type]
    assert not table.claim(forged)
    table.intake(1, [WANTED])
    assert phases(table) == {RESERVATION: "Reserved"}
    assert table.wanted_for(ContainerKey(pod_uid="forged", container="main")) == ()


def test_a_reservation_that_leaves_the_spec_leaves_no_room_taken() -> None:
    table = a_table()
    table.intake(1, [WANTED])
    table.intake(1, [])
    assert table.held == ()
    table.claim(POD)
    assert table.held == ()


def test_they_end_with_their_pod_though_the_spec_still_names_the_reservation() -> None:
    table = a_table()
    table.intake(1, [WANTED])
    table.claim(POD)
    table.see_pods({"uid-1": POD}, ())
    assert table.see_pods({}, ()) == ()
    table.intake(1, [WANTED])
    assert phases(table) == {}


@pytest.mark.parametrize("stated", ["r" * 65, 7, None, ["reservation"]])
def test_what_no_slice_can_bear_is_no_reservation(stated: object) -> None:
    metadata = {
        "uid": "uid-1",
        "namespace": "team",
        "name": "train-0",
        "annotations": {"ullage.dev/reservation": stated},
    }
    assert read_pod({"metadata": metadata}).reservation == ""

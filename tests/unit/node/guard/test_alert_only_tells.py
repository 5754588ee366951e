# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A tenant that asked to be told only: its broken objective is said once, and no one is paused."""

from __future__ import annotations

from dataclasses import replace

from fakes.guard_rig import VICTIM, a_tenant, a_window
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage_node.guard.gather import tenants
from ullage_node.guard.machine import GuardMachine
from ullage_node.model.devices import Attachment, AttachState, ContainerKey
from ullage_node.model.guard import Action, Freeze, GuardTenant, Tell
from ullage_node.model.slices import HeldSlice

TOLD = replace(VICTIM, alert_only=True)
NOISE = a_tenant("noise")


def _windows(machine: GuardMachine, *ratios: float, begin: float = 100.0) -> list[Action]:
    found: list[Action] = []
    for at, ratio in enumerate(ratios):
        start = begin + at
        found += machine.window(a_window("victim", ratio, start, start + 1), start + 1)
    return found


def _machine(*who: GuardTenant) -> GuardMachine:
    machine = GuardMachine()
    machine.see(who, 100.0)
    return machine


def _told(actions: list[Action]) -> list[tuple[Reason, str]]:
    return [(one.reason, one.message) for one in actions if isinstance(one, Tell)]


def test_no_one_is_paused_and_it_is_said_once() -> None:
    machine = _machine(TOLD, NOISE)
    actions = _windows(machine, *[2.0] * 6)
    assert not [one for one in actions if isinstance(one, Freeze)]
    ((reason, message),) = [one for one in _told(actions) if one[0] is Reason.ABOVE_OBJECTIVE]
    assert reason is Reason.ABOVE_OBJECTIVE
    assert "onViolation is Alert, no one is paused for it" in message
    mark = machine.marks[TOLD.key]
    assert (mark.phase, mark.reason) == (SlicePhase.VIOLATING, Reason.ABOVE_OBJECTIVE)
    assert machine.marks.keys() == {TOLD.key}, "no one is named as the cause"


def test_being_near_the_objective_promises_no_pause() -> None:
    ((reason, message),) = _told(_windows(_machine(TOLD, NOISE), 0.95, 0.95))
    assert reason is Reason.SLO_AT_RISK
    assert "no one is paused for it" in message


def test_who_changes_its_mind_has_its_neighbours_paused() -> None:
    machine = _machine(TOLD, NOISE)
    _windows(machine, 2.0, 2.0)
    machine.see((VICTIM, NOISE), 102.0)
    (asked,) = [one for one in _windows(machine, 2.0, begin=102.0) if isinstance(one, Freeze)]
    assert asked.keys == (NOISE.key,)


def test_alone_on_the_device_it_can_only_blame_itself() -> None:
    machine = _machine(TOLD)
    assert [one for one, _ in _told(_windows(machine, 2.0, 2.0))] == [Reason.SELF_VIOLATING]


def test_it_is_never_paused_for_others_either() -> None:
    other = replace(a_tenant("victim", protected=True), alert_only=False)
    machine = _machine(other, replace(a_tenant("told", protected=True), alert_only=True))
    actions = _windows(machine, 2.0, 2.0, 2.0)
    assert not [one for one in actions if isinstance(one, Freeze)]


def test_the_slice_says_who_only_wants_to_be_told() -> None:
    key = ContainerKey(pod_uid="uid-1", container="main")
    wanted = DesiredSlice(
        key=SliceKey(pod_uid="uid-1", container="main"),
        pod_namespace="team",
        pod_name="trainer",
        gpu="gpu-0",
        percent=40,
        memory_mib=1000,
        epoch=3,
        protected=True,
        alert_only=True,
    )
    seen = {key: Attachment(state=AttachState.ENFORCED, pids=(4711,))}
    for said in (True, False):
        held = HeldSlice(desired=replace(wanted, alert_only=said), phase=SlicePhase.ATTACHED)
        (tenant,) = tenants([held], seen, {})
        assert tenant.alert_only is said

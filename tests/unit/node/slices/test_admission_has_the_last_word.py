# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The engine's rules where they are true: nothing is refused for what a node cannot know."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest

from fakes import node_slices
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason, Standing
from ullage.api.slices import SlicePhase
from ullage_node.model.slices import HeldSlice, NodeDevice
from ullage_node.slices.invariants import last_word, violations
from ullage_node.slices.table import SliceTable, binding_of

DEVICE = NodeDevice(uuid="gpu-0", memory_mib=16_000, contexts=3, overhead_mib=500)
a_slice = partial(node_slices.a_slice, memory_mib=4000)
a_held = partial(node_slices.a_held, memory_mib=4000)


def short_of_mib(message: str) -> int:
    """Memory by which a slice falls short, by its refusal."""
    needed, free = re.findall(r"needs (\d+) MiB with its context, (-?\d+) of", message)[0]
    return int(needed) - int(free)


@pytest.mark.parametrize(
    ("change", "neighbours", "reason", "words"),
    [
        (
            {"memory_mib": 16_000},
            (),
            Reason.CAPACITY_EXCEEDED,
            "gpu-0: needs 16500 MiB with its context, 16000 of 16000 MiB are free",
        ),
        (
            {"memory_mib": 7501},
            (a_held("a", memory_mib=7500),),
            Reason.CAPACITY_EXCEEDED,
            "needs 8001 MiB with its context, 8000 of 16000 MiB are free beside team/pod-a",
        ),
        ({"memory_mib": 0}, (), Reason.CAPACITY_EXCEEDED, "0 MiB beside its context"),
        ({"percent": 0}, (), Reason.CAPACITY_EXCEEDED, "share 0 % is outside 1..100"),
        (
            {},
            tuple(a_held(uid, memory_mib=1) for uid in "abc"),
            Reason.CAPACITY_EXCEEDED,
            "3 of 3 places on it are taken",
        ),
        (
            {"trust_domain": "research"},
            (a_held("a"),),
            Reason.TRUST_DOMAIN,
            "team/pod-a is of trust domain 'namespace/team', not 'research'",
        ),
        (
            {},
            (a_held("a", SlicePhase.FAILED),),
            Reason.UNENFORCED,
            "team/pod-a runs there without verified limits",
        ),
    ],
)
def test_a_rule_that_does_not_hold_here_is_named_with_its_number(
    change: dict[str, object], neighbours: tuple[HeldSlice, ...], reason: Reason, words: str
) -> None:
    refusal = last_word(DEVICE, a_slice("new", **change), neighbours)
    assert refusal is not None
    assert refusal.reason is reason
    assert words in refusal.message


@pytest.mark.parametrize(
    ("own", "neighbours", "most"),
    [(0, 0, 7500), (300, 300, 7900), (300, 0, 7700), (0, 700, 7300), (900, 300, 7300)],
    ids=["the node's setting", "as said", "of one only", "of the other", "each its own"],
)
def test_a_context_costs_what_its_slice_says(own: int, neighbours: int, most: int) -> None:
    there = a_held("a", memory_mib=7500, context_overhead_mib=neighbours)
    fits = a_slice("new", memory_mib=most, context_overhead_mib=own)
    assert last_word(DEVICE, fits, (there,)) is None
    assert violations([there, a_held("new", memory_mib=most, context_overhead_mib=own)], [], {
        "gpu-0": DEVICE
    }) == []  # fmt: skip
    refusal = last_word(DEVICE, replace(fits, memory_mib=most + 1), (there,))
    assert refusal is not None
    assert short_of_mib(refusal.message) == 1
    over = a_held("new", memory_mib=most + 1, context_overhead_mib=own)
    assert len(violations([there, over], [], {"gpu-0": DEVICE})) == 1


def test_what_a_slice_says_reaches_its_start() -> None:
    said = a_slice("new", context_overhead_mib=300)
    assert binding_of([(said, "slot-00")]).slices[0].cap_mib(500) == 4300
    silent = binding_of([(a_slice("new"), "slot-00")]).slices[0]
    assert silent.cap_mib(500) == 4500


def test_whoever_has_a_whole_device_pays_for_no_context() -> None:
    whole = {"percent": 100, "memory_mib": DEVICE.memory_mib}
    assert last_word(DEVICE, a_slice("new", **whole), ()) is None
    assert violations([a_held("a", **whole)], [], {"gpu-0": DEVICE}) == []
    refusal = last_word(DEVICE, a_slice("new", memory_mib=1), (a_held("a", **whole),))
    assert refusal is not None
    assert short_of_mib(refusal.message) == 1001


class TestWhatTheOperatorDecided:
    """Who is alone, on trial or beside an objective is there by the operator's word."""

    SLO = LatencyObjective(latency_ms=40)

    @pytest.mark.parametrize(
        "objective",
        [
            {"protected": True, "max_slowdown_percent": 100},
            {"protected": True, "slo": SLO},
            {"probation": True},
        ],
    )
    def test_who_is_alone_is_taken(self, objective: dict[str, object]) -> None:
        assert last_word(DEVICE, a_slice("new", percent=5, **objective), ()) is None

    def test_a_trial_beside_an_objective_is_taken(self) -> None:
        tight = a_held("a", protected=True, max_slowdown_percent=101)
        assert last_word(DEVICE, a_slice("new", probation=True), (tight,)) is None

    def test_risk_is_not_guessed_where_no_model_is(self) -> None:
        tight = a_held("a", SlicePhase.VIOLATING, protected=True, max_slowdown_percent=101)
        assert last_word(DEVICE, a_slice("new", percent=100), (tight,)) is None

    def test_a_status_that_does_not_say_the_share_stands_in_nobodys_way(self) -> None:
        old = a_held("a", percent=0, pod_namespace="", pod_name="")
        assert last_word(DEVICE, a_slice("new"), (old,)) is None


def a_table(device: NodeDevice = DEVICE) -> SliceTable:
    table = SliceTable()
    table.set_devices([device])
    return table


def test_a_new_agent_says_what_the_old_one_said() -> None:
    wanted = [a_slice("a-runs"), a_slice("b-waits"), a_slice("c-other", trust_domain="x")]
    table = a_table()
    table.intake(1, wanted)
    table.bind(binding_of([(wanted[0], "slot-00")]))
    assert [part.phase.value for part in table.held] == ["Prepared", "Reserved", "Refused"]
    successor = a_table()
    successor.restore(table.epoch, table.held, table.bindings)
    for _ in range(2):
        successor.intake(1, wanted)
        assert successor.held == table.held


def test_what_runs_stays_though_a_new_agent_would_not_have_let_it_in() -> None:
    runs = a_slice("runs", memory_mib=15_000)
    table = a_table()
    table.intake(1, [runs])
    table.bind(binding_of([(runs, "slot-00")]))
    smaller = a_table(replace(DEVICE, memory_mib=8000, contexts=1))
    smaller.restore(table.epoch, table.held, table.bindings)
    again = replace(runs, epoch=2, probation=True, trust_domain="research")
    smaller.intake(2, [again, a_slice("new", epoch=2, memory_mib=1)])
    assert {part.desired.key.pod_uid: part.phase.value for part in smaller.held} == {
        "runs": "Prepared",
        "new": "Refused",
    }


def test_waiting_lifts_no_foreign_trust_domain() -> None:
    assert Standing.LASTING in Reason.TRUST_DOMAIN.standing
    assert Standing.LASTING not in Reason.UNENFORCED.standing, "it may join once the other is gone"

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Contexts, trust domains, unproven neighbours and equal turns: who may join a shared device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.node_slices import a_held, a_slice
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage_node.model.slices import HeldSlice, NodeDevice, SliceRefusal
from ullage_node.slices.invariants import candidate_for, first_refusal, violations

DEVICE = NodeDevice(uuid="gpu-0", memory_mib=80_000, contexts=8, context_limit=44)


def judged(
    *held: HeldSlice, newcomer: DesiredSlice | None = None, device: NodeDevice = DEVICE
) -> SliceRefusal | None:
    wanted = newcomer or a_slice("new")
    return first_refusal(candidate_for(wanted, held, {"gpu-0": device}))


class TestContexts:
    def test_processes_count_not_containers(self) -> None:
        many = replace(DEVICE, contexts_used=44)
        refusal = judged(a_held("a"), device=many)
        assert refusal is not None
        assert refusal.reason is Reason.CAPACITY_EXCEEDED
        assert "45 contexts on gpu-0, which takes 44" in refusal.message

    def test_who_has_not_attached_yet_is_counted_too(self) -> None:
        device = replace(DEVICE, contexts_used=42)
        assert judged(a_held("a", SlicePhase.RESERVED), device=device) is None
        refusal = judged(
            a_held("a", SlicePhase.RESERVED), a_held("b", SlicePhase.PREPARED), device=device
        )
        assert refusal is not None

    def test_a_device_without_contexts_of_its_own_counts_containers(self) -> None:
        device = replace(DEVICE, context_limit=0, contexts_used=99)
        assert judged(a_held("a"), device=device) is None


class TestTrust:
    def test_two_namespaces_are_two_domains_unless_someone_says_otherwise(self) -> None:
        refusal = judged(a_held("a", pod_namespace="other"))
        assert refusal is not None
        assert refusal.reason is Reason.TRUST_DOMAIN
        assert "namespace/other" in refusal.message
        assert "namespace/team" in refusal.message
        both = {"trust_domain": "research"}
        assert (
            judged(a_held("a", pod_namespace="other", **both), newcomer=a_slice("new", **both))
            is None
        )

    def test_a_named_domain_keeps_a_namespace_out(self) -> None:
        assert judged(a_held("a", trust_domain="research")) is not None

    def test_what_is_not_known_is_the_operators_to_judge(self) -> None:
        assert judged(a_held("a", pod_namespace="", pod_name="")) is None

    def test_a_table_that_mixes_domains_is_named(self) -> None:
        held = [a_held("a"), a_held("b", pod_namespace="other")]
        (found,) = violations(held, [], {"gpu-0": DEVICE})
        assert found.startswith("I3: namespace/other, namespace/team on gpu-0")


class TestProof:
    def test_no_one_joins_a_neighbour_outside_its_limits(self) -> None:
        refusal = judged(a_held("a", SlicePhase.FAILED))
        assert refusal is not None
        assert refusal.reason is Reason.UNENFORCED
        assert "team/pod-a" in refusal.message
        assert not refusal.lasting, "it may join once the other is gone"

    def test_a_neighbour_that_failed_for_another_reason_is_none(self) -> None:
        lost = replace(a_held("a", SlicePhase.FAILED), reason=Reason.DEVICE_LOST.value)
        assert judged(lost) is None


class TestTurns:
    TURNS = replace(DEVICE, context_limit=0, equal_turns=True)

    @pytest.mark.parametrize(
        ("percents", "fits"), [((50, 50), True), ((60, 40), False), ((33, 33, 33), True)]
    )
    def test_no_one_gets_more_than_its_turn(self, percents: tuple[int, ...], fits: bool) -> None:
        *before, own = percents
        held = [a_held(str(number), percent=one) for number, one in enumerate(before)]
        newcomer = a_slice("new", percent=own)
        assert (judged(*held, newcomer=newcomer, device=self.TURNS) is None) is fits

    def test_an_objective_is_not_promised_beside_others(self) -> None:
        newcomer = a_slice("new", percent=50, protected=True)
        refusal = judged(a_held("a", percent=50), newcomer=newcomer, device=self.TURNS)
        assert refusal is not None
        assert refusal.reason is Reason.MODE_UNSUPPORTED
        assert judged(newcomer=newcomer, device=self.TURNS) is None

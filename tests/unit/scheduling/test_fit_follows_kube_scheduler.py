# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A node is fit exactly where kube-scheduler would take the pinned pod."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_gpu_node, a_job, a_node, a_shape, resources
from fakes.deciding import decided
from ullage.api.reasons import Reason
from ullage.cluster.records.pod_shape import (
    NodeAffinity,
    PodShape,
    Requirement,
    SelectorTerm,
    Taint,
    Toleration,
)
from ullage.scheduling.inventory.node_fit import Fit, judge_node, shortages, why_not

NODE = a_node("node-1", labels={"zone": "a", "size": "8"})
TAINT = Taint(key="gpu", value="only", effect="NoSchedule")


def _needing(*terms: SelectorTerm) -> PodShape:
    return a_shape(affinity=NodeAffinity(has_affinity=True, has_node_affinity=True, required=terms))


def _term(key: str, operator: str, *values: str) -> SelectorTerm:
    return SelectorTerm(expressions=(Requirement(key=key, operator=operator, values=values),))


def _named(operator: str, name: str) -> SelectorTerm:
    field = Requirement(key="metadata.name", operator=operator, values=(name,))
    return SelectorTerm(fields=(field,))


def test_a_plain_pod_fits_a_plain_node() -> None:
    assert judge_node(a_shape(), NODE) is Fit.OK
    assert why_not(a_shape(), NODE) == ""


def test_every_label_of_the_node_selector_must_be_there() -> None:
    assert judge_node(a_shape(node_selector={"zone": "a"}), NODE) is Fit.OK
    assert judge_node(a_shape(node_selector={"zone": "b"}), NODE) is Fit.NO_MATCH
    assert "asks for zone=b, the node has zone=a" in why_not(
        a_shape(node_selector={"zone": "b"}), NODE
    )
    assert "no such label" in why_not(a_shape(node_selector={"rack": "1"}), NODE)


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        (_term("zone", "In", "a", "b"), True),
        (_term("zone", "In", "b"), False),
        (_term("rack", "In", "1"), False),
        (_term("zone", "NotIn", "b"), True),
        (_term("zone", "NotIn", "a"), False),
        (_term("rack", "NotIn", "1"), True),
        (_term("zone", "Exists"), True),
        (_term("rack", "Exists"), False),
        (_term("rack", "DoesNotExist"), True),
        (_term("zone", "DoesNotExist"), False),
        (_term("size", "Gt", "4"), True),
        (_term("size", "Gt", "8"), False),
        (_term("size", "Lt", "9"), True),
        (_term("zone", "Gt", "4"), False),
        (_term("zone", "Newer", "a"), False),
        (_named("In", "node-1"), True),
        (_named("NotIn", "node-2"), True),
        (_named("NotIn", "node-1"), False),
    ],
)
def test_expressions_mean_what_they_mean_to_kubernetes(term: SelectorTerm, fits: bool) -> None:
    assert (judge_node(_needing(term), NODE) is Fit.OK) is fits


def test_one_of_several_terms_is_enough() -> None:
    shape = _needing(_term("zone", "In", "b"), _term("size", "In", "8"))
    assert judge_node(shape, NODE) is Fit.OK


def test_no_term_at_all_matches_nothing() -> None:
    assert judge_node(_needing(), NODE) is Fit.NO_MATCH


def test_a_pin_to_another_node_and_an_empty_term_are_conflicts() -> None:
    elsewhere = _needing(_named("In", "node-2"), _term("zone", "In", "a"))
    assert judge_node(elsewhere, NODE) is Fit.PIN_CONFLICT
    assert judge_node(_needing(SelectorTerm()), NODE) is Fit.PIN_CONFLICT
    assert "empty" in why_not(_needing(SelectorTerm()), NODE)


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration(key="gpu", operator="Equal", value="only"), True),
        (Toleration(key="gpu", operator="Equal", value="other"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="gpu", operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="cpu", operator="Exists"), False),
    ],
)
def test_taints_need_a_toleration(toleration: Toleration, fits: bool) -> None:
    node = a_node("node-1", taints=[TAINT])
    assert judge_node(a_shape(), node) is Fit.NO_MATCH
    assert (judge_node(a_shape(tolerations=[toleration]), node) is Fit.OK) is fits


def test_a_preference_is_no_taint() -> None:
    node = a_node("node-1", taints=[replace(TAINT, effect="PreferNoSchedule")])
    assert judge_node(a_shape(), node) is Fit.OK


def test_what_passes_by_itself_does_not_count_in_principle() -> None:
    away = Taint(key="node.kubernetes.io/not-ready", value="", effect="NoExecute")
    node = a_node("node-1", taints=[away], unschedulable=True)
    assert judge_node(a_shape(), node) is Fit.NO_MATCH
    assert judge_node(a_shape(), node, in_principle=True) is Fit.OK
    assert judge_node(a_shape(), a_node(unschedulable=True)) is Fit.CORDONED


def test_shortages_name_what_is_missing_and_how_much() -> None:
    found = shortages(resources(4, 2, 1, 2, disk=1), {"cpu": 1000, "memory": 2**40, "pods": 9})
    assert found == (("cpu", 4000, 1000), ("disk", 1, 0), ("ullage.dev/slot", 2, 0))


def test_our_own_and_other_peoples_pods_count_against_the_node() -> None:
    big = a_shape(cpu=6)
    first, second = a_job("first").shaped(big).aged(200), a_job("second").shaped(big)
    found = decided(
        a_node(cpu=16),
        a_gpu_node(),
        first,
        *first.pods(),
        second,
        *second.pods(),
        foreign_use={"node-1": resources(5)},
    )
    assert found.places() == {"first-0": ["GPU-node-1-0"]}
    assert found.decision(second).reason is Reason.NO_CAPACITY
    assert "cpu (6 asked, 5 free)" in found.decision(second).message


def test_who_holds_slots_that_were_not_given_is_named() -> None:
    job = a_job()
    found = decided(
        a_node(),
        a_gpu_node(),
        job,
        *job.pods(),
        foreign_use={"node-1": resources(1, slots=64)},
        slot_holders={"node-1": ("tenant-b/idle-0", "tenant-b/idle-1")},
    )
    assert found.decision(job).reason is Reason.NO_CAPACITY
    assert (
        "device slots (1 asked, 0 free), 64 held by tenant-b/idle-0, tenant-b/idle-1, which Ullage "
        "did not place" in found.decision(job).message
    )


def test_a_pod_that_asks_for_more_than_any_node_has_is_told_so() -> None:
    job = a_job().shaped(a_shape(cpu=100))
    found = decided(a_gpu_node(), job)
    assert found.decision(job).reason is Reason.NO_NODE_MATCHES
    assert "than any node has" in found.decision(job).message

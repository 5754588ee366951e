# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from builders import NOW, a_gpu_node, a_snapshot
from ullage.api.observations import Observation
from ullage.api.reasons import Reason
from ullage.cluster.records.node import GPUNodeRecord
from ullage.kube.manifests.applied import gpunode_body
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.learning.loop import ENOUGH_ROWS, NODES_MOST, taken_in
from ullage.scheduling.model.plan import ApplyGPUNode, Plan
from ullage.scheduling.times import ACKNOWLEDGE_S, OBSERVATION_GIVEN_UP_S


def row(number: int, age_s: float = 0.0) -> Observation:
    return Observation(
        id=f"row-{number}",
        workload_class="resnet",
        namespace="team",
        accelerator="emulated",
        percent=40,
        step_micros=10_000,
        at_s=int(NOW - age_s),
    )


def node(*rows: Observation, name: str = "node-1", read: str = "") -> GPUNodeRecord:
    return replace(a_gpu_node(), name=name, observations=rows, observations_read=read)


def test_a_few_new_rows_wait_and_many_do_not() -> None:
    few = [row(number) for number in range(ENOUGH_ROWS - 1)]
    waits = taken_in([node(*few)], frozenset(), NOW)
    assert (waits.up_to, waits.wake_at) == ({}, int(NOW) + ACKNOWLEDGE_S)
    many = taken_in([node(*few, row(99))], frozenset(), NOW)
    assert many.up_to == {"node-1": "row-99"}


def test_an_old_row_is_acknowledged_alone() -> None:
    assert taken_in([node(row(1, ACKNOWLEDGE_S + 1))], frozenset(), NOW).up_to == {
        "node-1": "row-1"
    }


def test_a_row_that_a_profile_will_take_holds_back_those_behind_it() -> None:
    rows = [row(number, 1000.0) for number in range(20)]
    assert taken_in([node(*rows)], {"row-3"}, NOW).up_to == {"node-1": "row-2"}
    assert taken_in([node(*rows)], {"row-0"}, NOW).up_to == {}


def test_a_row_that_no_profile_takes_holds_back_nothing_for_ever() -> None:
    rows = [row(0, OBSERVATION_GIVEN_UP_S + 1), row(1, 1000.0)]
    assert taken_in([node(*rows)], {"row-0"}, NOW).up_to == {"node-1": "row-1"}


def test_what_was_acknowledged_is_not_written_again() -> None:
    rows = [row(number, 1000.0) for number in range(20)]
    assert taken_in([node(*rows, read="row-19")], frozenset(), NOW).up_to == {}


def test_a_cycle_acknowledges_few_nodes_and_the_next_comes_soon() -> None:
    nodes = [node(row(1, 1000.0 + n), name=f"node-{n:03}") for n in range(3 * NODES_MOST)]
    found = taken_in(nodes, frozenset(), NOW)
    assert len(found.up_to) == NODES_MOST
    assert max(found.up_to) == f"node-{3 * NODES_MOST - 1:03}", "the oldest first"
    assert found.wake_at == NOW + 1.0


def test_an_acknowledgement_is_one_apply_that_changes_no_slice() -> None:
    held = node(row(1))
    picture = a_snapshot(held)
    plan = Plan(
        version=1,
        epoch=7,
        inputs_hash="",
        slices={held.name: held.desired},
        observations_read={held.name: "row-1"},
    )
    (action,) = diff(plan, picture)
    assert isinstance(action, ApplyGPUNode)
    assert action.reason is Reason.MEASURED
    assert gpunode_body(action)["spec"] == {"epoch": 7, "slices": [], "observationsRead": "row-1"}
    done = a_snapshot(replace(held, observations_read="row-1"))
    assert diff(plan, done) == ()


def test_a_change_of_slices_keeps_what_was_acknowledged() -> None:
    from builders import a_slice

    held = node(read="row-9")
    plan = Plan(version=1, epoch=7, inputs_hash="", slices={held.name: (a_slice(),)})
    (action,) = diff(plan, a_snapshot(held))
    assert isinstance(action, ApplyGPUNode)
    assert action.observations_read == "row-9"

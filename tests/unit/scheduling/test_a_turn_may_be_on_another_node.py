# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job whose turn is on another type leaves the node that it runs on.

The snapshot is of a real cluster: two types of devices, each on a node of its own, and two jobs
that are owed time on the other one.
"""

from __future__ import annotations

from replay.recording import Recording
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import EvictPod


def test_a_job_moves_to_the_node_of_the_type_that_it_is_owed() -> None:
    snapshot, now, settings = Recording(name="cluster-turns-move").inputs()
    held = {pod.name: pod.node for pod in snapshot.pods.values()}
    assert held["frugal-0"] == held["elastic-0"] == "node-1"
    actions = diff(decide(snapshot, now, settings), snapshot)
    leaving = {one.pod.name for one in actions if isinstance(one, EvictPod)}
    assert leaving == {"frugal-0", "elastic-0"}

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Absence of a pod means something once a complete list was there, not before."""

from __future__ import annotations

from ullage_node.model.slices import Pod
from ullage_node.slices.pods import PodCache

POD = Pod(uid="uid-a", namespace="ns", name="a", phase="Running")


def test_only_a_complete_list_makes_absence_mean_gone() -> None:
    pods = PodCache()
    assert not pods.synced
    pods.put(POD)
    assert not pods.synced
    pods.replace(())
    assert pods.synced
    assert not pods.by_uid
    pods.drop("uid-a")
    assert pods.synced

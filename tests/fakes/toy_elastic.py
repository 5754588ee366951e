# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Elastic gangs on a toy cluster: how large they are, and why they say so."""

from __future__ import annotations

from builders import MODEL, a_policy
from fakes.toy_rounds import Turns
from ullage.state.records import PodStage
from ullage.state.status.records import SizeRecord


def cluster(devices: int, nodes: int = 2) -> Turns:
    """Nodes n0, n1, ... with so many devices each, first come first served."""
    names = {f"n{at}": MODEL for at in range(nodes)}
    return Turns.of(names, policy=a_policy(), devices=devices)


def sizes(turns: Turns, name: str = "train") -> tuple[int, int]:
    """Members that the status tells, and those that run; these were all made for their number."""
    uid = f"uid-default-{name}"
    running = [
        one for one in turns.toy.members(uid) if one.stage is PodStage.RUNNING and not one.deleting
    ]
    assert all(one.world_size == len(running) for one in running)
    assert sorted(one.rank for one in running) == list(range(len(running)))
    return turns.job(name).status.replicas, len(running)


def size_of(turns: Turns, name: str = "train") -> SizeRecord:
    """Why a gang has its size."""
    size = turns.job(name).status.size
    assert size is not None
    return size


def events(turns: Turns, name: str = "train") -> list[str]:
    """Reasons of the Events of a job."""
    return [reason for target, reason in turns.events if target == name]

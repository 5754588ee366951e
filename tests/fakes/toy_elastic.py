# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Elastic gangs on a toy cluster: how large they are, and why they say so."""

from __future__ import annotations

from typing import Final

from builders import MODEL, a_job, a_policy
from fakes.toy_rounds import Turns
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.status import SizeRecord
from ullage.scheduling.times import GANG_HOLD_IN_PLACE_S, GANG_ROOM_LASTS_IN_PLACE_S

UID: Final = "uid-default-train"
JOINS_S: Final = GANG_HOLD_IN_PLACE_S + GANG_ROOM_LASTS_IN_PLACE_S + 10
"""How long after a change a member has joined at the latest, where there is room."""


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


def here(turns: Turns, name: str = "train") -> dict[int, str]:
    """uids of the members that run, by rank."""
    return {
        one.rank: one.uid
        for one in sorted(turns.toy.members(f"uid-default-{name}"), key=lambda one: one.rank)
        if one.stage is PodStage.RUNNING and not one.deleting
    }


def member(turns: Turns, rank: int) -> PodRecord:
    """The member of a rank that runs."""
    return turns.toy.pods[here(turns)[rank]]


def told(turns: Turns) -> int:
    """How many members the status says."""
    return turns.job("train").status.replicas


def taken_away(turns: Turns) -> int:
    """How many pods were asked to go."""
    return turns.counts["EvictPod"] + turns.counts["DeletePod"]


def in_place(
    devices: int = 1, nodes: int = 3, least: int = 1, most: int = 3, *, elsewhere: bool = False
) -> Turns:
    """A gang in place that has had all its members for a while.

    Its members meet at the first of them, or ``elsewhere``.
    """
    turns = cluster(devices, nodes)
    turns.add(a_job("train").elastic(least, most, in_place=True, meets_elsewhere=elsewhere))
    turns.run(60)
    assert list(here(turns)) == list(range(most))
    assert told(turns) == most
    turns.events.clear()
    turns.counts.clear()
    return turns

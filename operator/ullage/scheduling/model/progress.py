# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a gang stands in its whole training, from what its members count of the present start.

A container counts its steps from 0 at every start and may say which step it went on from. To
learn how much is done, callers ask here: the bare count looks undone after every restart. It must
never guess a step that no one said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ullage.api.slices import ObservedSlice
from ullage.cluster.records.status import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class GangProgress:
    """The slowest member, and what it has done.

    Attributes:
        steps: Of this and all earlier starts; of this one alone where no one says more.
        resumed_at: Step that the start went on from; 0 = it counts from the beginning.
        slowest: What its node says of it.
    """

    steps: int
    resumed_at: int
    slowest: ObservedSlice


def gang_progress(
    seen: Iterable[tuple[str, ObservedSlice | None]], before: Progress | None
) -> GangProgress | None:
    """Where a gang stands; ``None`` = not all of its members have said so since they started.

    Members of a gang go on from one checkpoint, so who does not say from where went on from where
    the others did. A single step from the beginning after more had been done says nothing yet:
    frameworks take one to build their state before they load a checkpoint into it.

    Args:
        seen: Slices of all members, each with the uid of its pod.
        before: What was known so far.
    """
    pods: set[str] = set()
    begun: set[str] = set()
    told: list[ObservedSlice] = []
    base = 0
    for pod, part in seen:
        pods.add(pod)
        if part is None or not (part.steps or part.resumed_at):
            continue
        begun.add(pod)
        told.append(part)
        if part.resumed_at and (not base or part.resumed_at < base):
            base = part.resumed_at
    if not told or len(begun) < len(pods):
        return None
    slowest = min(
        told, key=lambda part: ((part.resumed_at or base) + part.steps, -part.step_micros)
    )
    base = slowest.resumed_at or base
    if not base and slowest.steps == 1 and before is not None and before.steps > 1:
        return None
    return GangProgress(steps=base + slowest.steps, resumed_at=base, slowest=slowest)

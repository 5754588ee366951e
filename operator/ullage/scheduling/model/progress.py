# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Progress of a gang in its whole training, from the step counts of its present start.

A container counts its steps from 0 at every start and may report the step that it resumed at. The
bare count would fall back to 0 at every restart. An unreported step is never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ullage.api.slices import ObservedSlice
from ullage.cluster.records.status import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class GangProgress:
    """The slowest member, and its progress.

    Attributes:
        steps: Of this and all earlier starts; of this start alone if no member reports more.
        resumed_at: Step that the start resumed from; 0 = it counts from the beginning.
        slowest: Report of its node.
    """

    steps: int
    resumed_at: int
    slowest: ObservedSlice


def gang_progress(
    seen: Iterable[tuple[str, ObservedSlice | None]], before: Progress | None
) -> GangProgress | None:
    """Progress of a gang; ``None`` = not all members have reported since they started.

    Members of a gang resume at one checkpoint, so a member that does not report its step resumed
    with the others. A single step from the beginning, after more had been done, does not count as a
    report: frameworks run one to build their state before they load a checkpoint.

    Args:
        seen: Observed slices of all members, each with the uid of its pod.
        before: The progress so far.
    """
    pods: set[str] = set()
    begun: set[str] = set()
    reports: list[ObservedSlice] = []
    base = 0
    for pod, part in seen:
        pods.add(pod)
        if part is None or not (part.steps or part.resumed_at):
            continue
        begun.add(pod)
        reports.append(part)
        if part.resumed_at and (not base or part.resumed_at < base):
            base = part.resumed_at
    if not reports or len(begun) < len(pods):
        return None
    slowest = min(
        reports, key=lambda part: ((part.resumed_at or base) + part.steps, -part.step_micros)
    )
    base = slowest.resumed_at or base
    if not base and slowest.steps == 1 and before is not None and before.steps > 1:
        return None
    return GangProgress(steps=base + slowest.steps, resumed_at=base, slowest=slowest)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps readings to phases: attachment and failure of a prepared container.

Pure: readings and times in, phases out. A single odd reading has no effect; a container that is
seen outside its limits twice, or is unverified for too long, has failed, and the operator evicts
it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage_node.model.devices import Attachment, AttachState, ContainerKey
from ullage_node.model.slices import SliceRefusal
from ullage_node.times import ABSENT_S, UNVERIFIED_FIRST_S, UNVERIFIED_LATER_S

UNENFORCED_READINGS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange:
    """A change of phase of a container's slices, or of its reason."""

    phase: SlicePhase
    why: SliceRefusal | None


@dataclass(slots=True, kw_only=True)
class _VerificationTrack:
    state: AttachState
    since: float
    readings: int = 1


class Observer:
    """Remembers how long each container has been in which state; times are monotonic seconds."""

    def __init__(self) -> None:
        self._tracks: dict[ContainerKey, _VerificationTrack] = {}

    def keep(self, containers: Collection[ContainerKey]) -> None:
        """Forget all other containers."""
        for gone in self._tracks.keys() - set(containers):
            del self._tracks[gone]

    def restart(self, container: ContainerKey) -> None:
        """Reset a container that starts again: earlier readings are of another process."""
        self._tracks.pop(container, None)

    def judge(
        self, container: ContainerKey, phase: SlicePhase, seen: Attachment, now: float
    ) -> PhaseChange | None:
        """Judge a reading of a container in this phase; ``None`` = no change."""
        track = self._tracks.get(container)
        if track is None or track.state is not seen.state:
            track = _VerificationTrack(state=seen.state, since=now)
            self._tracks[container] = track
        else:
            track.readings += 1
        lasted = now - track.since
        patience_s = UNVERIFIED_LATER_S if phase is SlicePhase.ATTACHED else UNVERIFIED_FIRST_S
        match seen.state:
            case AttachState.ENFORCED:
                reason, message = seen.reason, seen.message
                warning = SliceRefusal(reason=reason, message=message) if reason else None
                return PhaseChange(phase=SlicePhase.ATTACHED, why=warning)
            case AttachState.UNENFORCED if track.readings >= UNENFORCED_READINGS:
                return _failed(seen.message or "limits do not hold")
            case AttachState.UNVERIFIED if lasted >= patience_s:
                return _failed(f"not verified for {lasted:.0f} s: {seen.message or 'no reading'}")
            case AttachState.ABSENT if phase is SlicePhase.ATTACHED and lasted >= ABSENT_S:
                return PhaseChange(phase=SlicePhase.PREPARED, why=None)
        return None


def _failed(message: str) -> PhaseChange:
    return PhaseChange(
        phase=SlicePhase.FAILED, why=SliceRefusal(reason=Reason.UNENFORCED, message=message)
    )

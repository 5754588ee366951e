# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The current tenants of the node's devices, with all observations of them.

Pure: the book of slices and the newest readings in, one record for each container out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ullage.api.observations import LatencyObjective
from ullage.api.slices import DesiredSlice
from ullage_node.model.devices import Attachment, AttachState, ContainerKey, StepProgress
from ullage_node.model.slices import HeldSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTenant:
    """One container on a device; of one with several devices the first slice is used.

    ``gpus`` are all its devices, ``frozen`` = the guard has stopped it.
    """

    desired: DesiredSlice
    gpus: tuple[str, ...]
    attachment: Attachment = field(default_factory=lambda: Attachment(state=AttachState.ABSENT))
    progress: StepProgress = field(default_factory=StepProgress)
    frozen: bool = False

    @property
    def key(self) -> ContainerKey:
        """The container."""
        return ContainerKey(pod_uid=self.desired.key.pod_uid, container=self.desired.key.container)

    @property
    def gpu(self) -> str:
        """Its device, the first one of several."""
        return self.desired.gpu

    @property
    def running(self) -> bool:
        """True if it has a process."""
        return self.attachment.state is not AttachState.ABSENT

    @property
    def objective(self) -> TenantObjective:
        """Its objective."""
        return TenantObjective(
            max_slowdown_percent=self.desired.max_slowdown_percent,
            solo_step_micros=self.progress.solo_micros(self.desired.solo_step_micros),
            slo=self.desired.slo,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantObjective:
    """Objective of a tenant: a latency, else a slowdown relative to its time alone."""

    max_slowdown_percent: int = 0
    solo_step_micros: int = 0
    slo: LatencyObjective | None = None

    @property
    def limit_micros(self) -> int:
        """Longest step or latency that meets it; 0 = no objective, or no reference."""
        if self.slo is not None:
            return self.slo.latency_ms * 1000
        return self.solo_step_micros * self.max_slowdown_percent // 100


def tenants_of(
    held: Iterable[HeldSlice],
    attachments: Mapping[ContainerKey, Attachment],
    progress: Mapping[ContainerKey, StepProgress],
    frozen: Collection[ContainerKey] = (),
) -> tuple[RunningTenant, ...]:
    """Every container with a started slice, sorted by its key."""
    parts: dict[ContainerKey, list[HeldSlice]] = {}
    for part in held:
        if part.phase.started:
            parts.setdefault(part.container, []).append(part)
    absent = Attachment(state=AttachState.ABSENT)
    tenants: list[RunningTenant] = []
    for key in sorted(parts):
        slices = sorted(parts[key], key=lambda part: part.desired.key.index)
        tenants.append(
            RunningTenant(
                desired=slices[0].desired,
                gpus=tuple(part.desired.gpu for part in slices),
                attachment=attachments.get(key, absent),
                progress=progress.get(key, StepProgress()),
                frozen=key in frozen,
            )
        )
    return tuple(tenants)

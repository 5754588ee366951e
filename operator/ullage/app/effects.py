# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Effects of actions on the snapshot before the API shows them.

Translates actions to effects, the only input of the overlay of ``cluster.cache``.
"""

from __future__ import annotations

from ullage.cluster.cache.overlay import (
    Effect,
    PodCreated,
    PodLeaving,
    PodUngated,
    ProfileSet,
    SlicesSet,
    StatusSet,
    WorkloadLeaving,
)
from ullage.cluster.codecs.profile import profile_as_stored
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.projection.node import by_key
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.model.plan import (
    ApplyGPUNode,
    CreatePod,
    CreateProfile,
    CreateReservedPod,
    DeletePod,
    DeleteWorkload,
    EvictPod,
    SetProfile,
    SetStatus,
    TellPod,
    UngatePod,
)


def effect_of(action: object) -> Effect | None:
    """Effect of this action on the next snapshot; ``None`` for Events and the like."""
    match action:
        case ApplyGPUNode():
            return SlicesSet(
                node=action.name,
                epoch=action.epoch,
                slices=by_key(action.slices),
                observations_read=action.observations_read,
                lane_policy=action.lane_policy,
                io_fairness=action.io_fairness,
            )
        case CreateReservedPod():
            return PodUngated(uid=action.reservation)
        case CreatePod():
            return PodCreated(namespace=action.owner.namespace, name=action.name)
        case UngatePod():
            return PodUngated(uid=action.pod.uid)
        case DeletePod() | EvictPod():
            return PodLeaving(uid=action.pod.uid)
        case DeleteWorkload():
            return WorkloadLeaving(uid=action.owner.uid)
        case TellPod():
            return StatusSet(uid=action.unit, status=as_stored(WorkloadKind.POD, action.status))
        case SetStatus():
            kind = WorkloadKind(action.owner.kind)
            return StatusSet(uid=action.owner.uid, status=as_stored(kind, action.status))
        case CreateProfile():
            at = (action.target.namespace, action.target.name)
            return ProfileSet(target=at, workload_class=action.workload_class, status=None)
        case SetProfile():
            at = (action.target.namespace, action.target.name)
            return ProfileSet(target=at, workload_class="", status=profile_as_stored(action.status))
        case _:
            return None

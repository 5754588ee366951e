# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a TrainingJob in tiers: members save and end while their lead still answers them.

A member without its lead cannot finish its step, and what it has done since its last checkpoint is
lost. Machines that are ordered for a job are pods of it, and go with its members.
"""

from __future__ import annotations

from typing import Final

from ullage.api.readers import JsonObject
from ullage.api.reasons import Reason
from ullage.api.words import Tiers
from ullage.cluster.records.snapshot import ObjectRef
from ullage.handlers.ends import LeaderContext, Left, Life, stated
from ullage.ports import POD, TRAINING_JOB
from ullage.scheduling.model.phases import OVER


def has_lead(item: JsonObject) -> bool:
    """Whether a TrainingJob trains in tiers and is not over, whatever else it says."""
    tiers = stated(item, "spec", "elasticity", "tiers")
    over = stated(item, "status", "phase") in OVER
    return isinstance(tiers, str) and tiers != Tiers.DISABLED and not over


def left(leader: LeaderContext, job: ObjectRef, _: float) -> Left:
    """Its members, then its lead, as far as they have not ended."""
    pods = [pod for pod in leader.state.pods_of(job.uid) if not pod.stage.finished]
    members = [pod for pod in pods if not pod.lead]
    goes = tuple(
        ObjectRef(kind=POD.kind, namespace=pod.namespace, name=pod.name, uid=pod.uid)
        for pod in sorted(members or pods, key=lambda pod: pod.name)
        if not pod.deleting
    )
    if not pods:
        return Left()
    begins = "its members save and end; the lead goes after them" if members else "the lead goes"
    text = f"{len(members)} members and their lead are" if members else "its lead is"
    return Left(text=text, begins=begins, goes=goes)


LIFE: Final = Life(kind=TRAINING_JOB, reason=Reason.LEAD_ENDS, lives=has_lead, left=left)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas on a node that goes: replaced before they are lost, where there is room.

The Deployment gets as many more as have to leave; one leaves for each that serves beyond what is
wanted. Just before the end they all leave, replaced or not. Without a known end they stay until
their replacements serve: the removal of the machine ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.scheduling.inventory.interruptions import left_s
from ullage.scheduling.lifecycle.drain import in_time
from ullage.scheduling.model.lifecycle_step import earliest, evict
from ullage.scheduling.model.plan import EvictPod
from ullage.scheduling.model.view import Member, PendingEviction, View
from ullage.scheduling.times import DRAIN_LAST_CALL_S

Marked = Sequence[tuple[Member, PendingEviction]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What is done about the replicas of one service in this cycle."""

    steps: tuple[EvictPod, ...] = ()
    extra: int = 0
    wake_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """A service with replicas on nodes that go.

    ``room`` is asked whether one more finds a place; ``None`` = the Deployment is left alone.
    """

    view: View
    service: WorkloadRecord
    replicas: Marked
    here: Sequence[Member]
    """Replicas that are there and not leaving, the doomed among them."""
    coming: bool
    """A replacement has its place and shortly serves."""
    room: Callable[[], bool] | None


def doomed_of(marked: Marked) -> Marked:
    """The marked replicas whose node goes; those that do not serve leave first."""
    found = [at for at in marked if at[1].reason is Reason.SPOT_INTERRUPTED]
    found.sort(key=lambda at: (at[0].pod.ready, at[0].pod.name))
    return found


def replaced_ahead(case: Doomed) -> Way:
    """What is done in this cycle."""
    last = [at for at in case.replicas if _is_last_call(case.view, at[0])]
    spare = sum(member.pod.ready for member in case.here) - case.service.replicas
    idle = [at for at in case.replicas if not at[0].pod.ready]
    others = [at for at in case.replicas if at[0].pod.ready][: max(0, spare)]
    leaving = {at[0].pod.uid: at for at in (*last, *idle, *others)}
    steps = tuple(_evict(case, *at) for at in leaving.values())
    wake_at = earliest(*(_last_call_at(case.view, one) for one, _ in case.replicas))
    extra = 0
    if case.room is not None and (steps or case.coming or case.room()):
        extra = len(case.replicas)
    return Way(steps=steps, extra=extra, wake_at=wake_at if wake_at > case.view.now else 0.0)


def _evict(case: Doomed, member: Member, eviction: PendingEviction) -> EvictPod:
    epoch = case.view.settings.epoch
    step = evict(case.service, member, epoch, eviction.reason, eviction.message)
    return in_time(case.view, step, member)


def _last_call_at(view: View, member: Member) -> float:
    left = left_s(view.snapshot, member.pod.node, view.now)
    return view.now + left - DRAIN_LAST_CALL_S if left is not None else 0.0


def _is_last_call(view: View, member: Member) -> bool:
    at = _last_call_at(view, member)
    return bool(at) and view.now >= at

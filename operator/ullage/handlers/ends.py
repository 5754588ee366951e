# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ordered ends: an object's external resources go first, then the object, then the rest.

Garbage collection deletes in any order, and loses work of remaining parts. The cluster shows the
progress of an end, so that the next leader continues it. Bounded: after a while the wait ends, with
an Event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import kopf

from ullage.api.readers import JsonObject, section, text
from ullage.api.reasons import Reason
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.values.lives import (
    KINDS_HELD,
    MOST,
    MOST_OF_NAMESPACE,
    ORPHAN,
    deleted_at,
    finalizers_of,
)
from ullage.handlers.frame import Bridge
from ullage.handlers.mirror import Mirror
from ullage.handlers.pool_watch import PoolWatch
from ullage.handlers.times import END_EVENT_S, END_FAILED_S, END_LEAST_S, END_LOOK_S, END_RETRY_S
from ullage.ports import POD, Clock, Kind
from ullage.scheduling.model.plan import Action, DeleteChild, DeletePod, Emit

TOLD_AT_ONCE: Final = 10
"""Owners of objects beyond the bound; scripts may create thousands at once."""
BEYOND: Final = (
    f"{MOST} objects of a kind, or {MOST_OF_NAMESPACE} of a namespace, end in order; this one is"
    " beyond, and would end in any order"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderContext:
    """The cluster for handlers, and their ways to act on it; only in the operator's loop.

    Attributes:
        state: The cluster.
        pool_watch: Watches instances of pools.
        clock: Time.
        epoch: Epoch of this leadership.
        submit: Queues writes.
        poke: Requests a decision, with a reason.
    """

    state: ClusterState
    pool_watch: PoolWatch
    clock: Clock
    epoch: Callable[[], int]
    submit: Callable[[Sequence[Action]], None]
    poke: Callable[[str], None]

    def tell(self, owner: ObjectRef, reason: Reason, what: str, *, warning: bool = False) -> None:
        """Queue an Event."""
        epoch = self.epoch()
        self.submit([Emit(target=owner, warning=warning, epoch=epoch, reason=reason, text=what)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Remaining resources of an object that ends.

    Attributes:
        text: Text for the end of the wait; empty = nothing remains.
        begins: The step that begins now, for one Event.
        goes: Pods, Deployments and Services whose deletion is due and was not observed yet.
    """

    text: str = ""
    begins: str = ""
    goes: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The end of objects of a kind.

    Attributes:
        kind: Kind of the objects.
        reason: Reason of their Events and writes.
        lives: True for an object in the API with any external resource.
        left: Remaining resources of a deleted object, at a time.
        owns: Its objects create others, which their author may keep with an orphaning deletion.
    """

    kind: Kind
    reason: Reason
    lives: Callable[[JsonObject], bool]
    left: Callable[[LeaderContext, ObjectRef, float], Left]
    owns: bool = True

    @property
    def most_s(self) -> float:
        """Time after the deletion until the wait ends."""
        return KINDS_HELD[self.kind]


async def end(leader: LeaderContext, life: Life, owner: ObjectRef, deleted_at: float) -> None:
    """Delete due resources, and wait until nothing is left or the time of the kind is over.

    Args:
        leader: The current leadership.
        life: End of the object's kind.
        owner: The object that is being deleted.
        deleted_at: Time of the deletion, seconds since the epoch; a future time counts as now.
    """
    now = leader.clock.now()
    since, asked_at, announced = min(deleted_at, now), 0.0, ""
    until = max(since + life.most_s, now + END_LEAST_S)
    asked: tuple[ObjectRef, ...] = ()
    while (left := life.left(leader, owner, now)).text:
        if now >= until:
            late = f"after {now - since:.0f} s {left.text} left; nothing waits for them now"
            leader.tell(owner, life.reason, late, warning=True)
            return
        if set(left.goes) - set(asked) or now - asked_at >= END_RETRY_S:
            asked, asked_at = left.goes, now
            epoch = leader.epoch()
            leader.submit([_deletion(life, owner, child, left.begins, epoch) for child in asked])
        if left.begins != announced:
            announced = left.begins
            leader.tell(owner, life.reason, announced)
        await asyncio.sleep(END_LOOK_S)
        now = leader.clock.now()


def _deletion(life: Life, owner: ObjectRef, child: ObjectRef, why: str, epoch: int) -> Action:
    if child.kind == POD.kind:
        return DeletePod(pod=child, owner=owner, epoch=epoch, reason=life.reason, text=why)
    return DeleteChild(child=child, owner=owner, epoch=epoch, reason=life.reason, text=why)


async def tell_unheld(leader: LeaderContext, mirror: Mirror) -> None:
    """Emit an Event on each object that is beyond the bound, once, until cancelled."""
    informed: set[str] = set()
    while True:
        unheld = mirror.unheld()
        informed.intersection_update(ref.uid for ref in unheld)
        for ref in [ref for ref in unheld if ref.uid not in informed][:TOLD_AT_ONCE]:
            informed.add(ref.uid)
            leader.tell(ref, Reason.ENDS_UNORDERED, BEYOND)
        await asyncio.sleep(END_EVENT_S)


def field_at(item: JsonObject, *path: str) -> object:
    """Value at a path of fields of an object; ``None`` = there is none."""
    value: object = item
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def register(
    registry: kopf.OperatorRegistry, bridge: Bridge, life: Life, leader: LeaderContext
) -> None:
    """Add the handler of a kind."""
    kind = life.kind

    @kopf.on.delete(
        kind.group,
        kind.version,
        kind.plural,
        registry=registry,
        id="in-order",
        when=lambda body, **_: bool(body.get("life")),
        backoff=END_FAILED_S,
        timeout=life.most_s,  # for one whose end cannot be checked
    )
    async def in_order(body: kopf.Body, uid: str, **_: Any) -> None:
        """Wait for the end; the cluster shows its progress, so nothing is stored."""
        metadata = section(body, "metadata")
        name, namespace = text(metadata, "name"), text(metadata, "namespace", "")
        owner = ObjectRef(kind=kind.kind, namespace=namespace, name=name, uid=uid)
        if not (life.owns and ORPHAN in finalizers_of(body)):
            await bridge.call(end(leader, life, owner, deleted_at(metadata)))

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ends in order: what an object has outside of itself goes first, then the object, then the rest.

Deleted in any order, as garbage collection does it, work is lost that some of it still holds. Where
an end has come is seen in the cluster, so that the next leader goes on with it. Bounded: after a
while the rest goes in any order, and an Event says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import kopf

from ullage.api.contract import JsonObject, Reason, WireError, section, text
from ullage.api.times import seconds
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import ObjectRef
from ullage.cluster.values.lives import KINDS_HELD, ORPHAN, finalizers_of
from ullage.handlers.frame import Bridge
from ullage.ports import Clock, Kind
from ullage.scheduling.model.plan import Action, DeleteChild, DeletePod, Emit

LOOK_EVERY_S: Final = 0.5
ASK_AGAIN_S: Final = 5.0
"""A deletion that was refused or lost is asked for again."""
AGAIN_S: Final = 2.0
"""Pause after a failure of our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is still there of an object that ends.

    Attributes:
        text: In words, for when it is waited for no longer; empty = nothing.
        begins: What happens now, told once.
        goes: Pods, Deployments and Services whose deletion is due and was not seen yet.
    """

    text: str = ""
    begins: str = ""
    goes: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How objects of a kind end.

    Attributes:
        kind: Of the objects.
        reason: Of their Events and writes.
        lives: Whether an object, as the API shows it, has anything outside of itself.
        left: What is left of one that is deleted, at a time.
    """

    kind: Kind
    reason: Reason
    lives: Callable[[JsonObject], bool]
    left: Callable[[ClusterState, ObjectRef, float], Left]

    @property
    def most_s(self) -> float:
        """After the deletion, until the rest is left alone."""
        return KINDS_HELD[self.kind]


class Ends:
    """Brings ends forward; called in the operator's loop."""

    def __init__(
        self,
        state: ClusterState,
        *,
        submit: Callable[[Sequence[Action]], None],
        epoch: Callable[[], int],
        clock: Clock,
    ) -> None:
        """``submit`` queues writes of the leader of this epoch."""
        self._state = state
        self._submit = submit
        self._epoch = epoch
        self._clock = clock

    async def end(self, life: Life, owner: ObjectRef, deleted_at: float) -> None:
        """Ask what is due to go, and wait until nothing is left, or for as long as may be.

        Args:
            life: Of the object's kind.
            owner: The object that is being deleted.
            deleted_at: Since when, seconds since the epoch; one to come counts as now.
        """
        now = self._clock.now()
        since, asked_at, told = min(deleted_at, now), 0.0, ""
        asked: tuple[ObjectRef, ...] = ()
        while (left := life.left(self._state, owner, now)).text:
            if now - since >= life.most_s:
                late = f"after {life.most_s:.0f} s {left.text} left; they end in any order"
                self._submit([self._said(life, owner, late, warning=True)])
                return
            if set(left.goes) - set(asked) or now - asked_at >= ASK_AGAIN_S:
                asked, asked_at = left.goes, now
                self._submit([self._deletion(life, owner, child, left.begins) for child in asked])
            if left.begins != told:
                told = left.begins
                self._submit([self._said(life, owner, told)])
            await asyncio.sleep(LOOK_EVERY_S)
            now = self._clock.now()

    def _deletion(self, life: Life, owner: ObjectRef, child: ObjectRef, why: str) -> Action:
        epoch, reason = self._epoch(), life.reason
        if child.kind == "Pod":
            return DeletePod(pod=child, owner=owner, epoch=epoch, reason=reason, text=why)
        return DeleteChild(child=child, owner=owner, epoch=epoch, reason=reason, text=why)

    def _said(self, life: Life, owner: ObjectRef, what: str, *, warning: bool = False) -> Emit:
        return Emit(
            target=owner, warning=warning, epoch=self._epoch(), reason=life.reason, text=what
        )


def register(registry: kopf.OperatorRegistry, bridge: Bridge, life: Life, ends: Ends) -> None:
    """Add the handler of a kind."""
    kind = life.kind

    @kopf.on.delete(
        kind.group,
        kind.version,
        kind.plural,
        registry=registry,
        id="in-order",
        when=lambda body, **_: bool(body.get("life")),
        backoff=AGAIN_S,
    )
    async def in_order(body: kopf.Body, uid: str, **_: Any) -> None:
        """What was reached is seen in the cluster: nothing need be written down."""
        metadata = section(body, "metadata")
        name, namespace = text(metadata, "name"), text(metadata, "namespace")
        owner = ObjectRef(kind=kind.kind, namespace=namespace, name=name, uid=uid)
        if ORPHAN not in finalizers_of(body):
            await bridge.call(ends.end(life, owner, deleted_at(metadata)))


def deleted_at(metadata: JsonObject) -> float:
    """When an object was deleted; one that does not say so in a way to be read was long ago."""
    try:
        return seconds(metadata.get("deletionTimestamp"), "deletionTimestamp")
    except WireError:
        return 0.0

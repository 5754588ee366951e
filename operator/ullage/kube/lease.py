# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Elects the leader and bounds how long it may write: our own election on one Lease object.

The epoch increases with every change of leader and fences late writes of an old one. A leader that
cannot renew must stop before another can start; it stands by in the same process and leads again as
a new holder. The rules are in ``election``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import assert_never

import structlog

from ullage.api.labels import LEASE_NAME
from ullage.api.readers import WireError, section, text
from ullage.kube.election import (
    LeaseMove,
    LeaseTimes,
    LeaseView,
    WatchedLease,
    decide,
    micro_time,
    observe,
    view_of,
)
from ullage.kube.failure_streak import Streak
from ullage.kube.times import LEASE_ATTEMPT_S, LEASE_OWNER_S
from ullage.ports import (
    DEPLOYMENT,
    LEASE,
    ApiError,
    Clock,
    ClusterPort,
    Conflict,
    JsonObject,
    NotFound,
    Unavailable,
)

log = structlog.get_logger("ullage.lease")


class Lease:
    """This replica's part in the election: ``campaign`` until it leads, ``keep`` until it has lost.

    Tests drive it by ``step``.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        *,
        new_identity: Callable[[], str],
        namespace: str,
        clock: Clock,
        highest_epoch: Callable[[], int],
        times: LeaseTimes | None = None,
        name: str = LEASE_NAME,
        owner: str = "",
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Set up the election; each leadership is a new holder, without state of an earlier one.

        Args:
            cluster: API server of the Lease; calls bypass our rate limits.
            new_identity: Returns an unused identity, for ``holderIdentity``.
            namespace: Namespace of the Lease.
            clock: Its monotonic time alone decides about expiry.
            highest_epoch: Highest epoch observed in GPUNodes, so that a deleted Lease starts no
                lower; the snapshot must be synced before the first step.
            times: Time limits of the election.
            name: Name of the Lease.
            owner: Deployment in its namespace that owns the Lease; empty = none.
            sleep: Used by ``run`` to wait.
        """
        self._cluster = cluster
        self._new_identity = new_identity
        self.identity = new_identity()
        """Holder of this leadership, or of the next one."""
        self._former = ""
        self._former_ends = float("inf")
        self._namespace = namespace
        self._clock = clock
        self._highest_epoch = highest_epoch
        self._times = times or LeaseTimes()
        self._name = name
        self._owner = owner
        self._references: list[JsonObject] = []
        self._sleep = sleep
        self._watched: WatchedLease | None = None
        self._raw: JsonObject = {}
        self._met = False
        self._last_ok = float("-inf")
        self.held = False
        """This replica leads, as far as it knows."""
        self.epoch = 0
        """Epoch of this replica's leadership, or of its last one."""
        self.holder = ""
        """Last observed holder of the Lease."""
        self.look_s = 0.0
        """Duration of the last attempt, renewal included."""
        self.lost = ""
        """Reason of the end of the last leadership."""
        self.streak = Streak()
        """Consecutive failed attempts."""

    def held_for_write(self) -> bool:
        """True if a write may be sent now; call it before each request."""
        return self.held and self._fresh()

    def _fresh(self) -> bool:
        return self._clock.monotonic() - self._last_ok < self._times.renew_deadline_s

    async def campaign(self, ready: Callable[[], bool] = lambda: True) -> int:
        """Try until this replica leads; returns its epoch.

        No request of an earlier leadership may be in flight. Tries only while ``ready``.
        """
        while True:
            if ready():
                await self.step()
            if self.held:
                return self.epoch
            await self._sleep(self._times.period_s)

    async def keep(self) -> str:
        """Renew until the leadership is lost; returns the reason."""
        while self.held:
            await self._sleep(self._times.period_s)
            await self.step()
        return self.lost

    async def step(self) -> None:
        """One read of the Lease and the resulting action; failures appear as an older renewal."""
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._patience()):
                await self._look()
        except (ApiError, TimeoutError) as error:
            log.warning("lease not reached", error=str(error) or "timed out", held=self.held)
            self.streak.failed(self._clock.monotonic(), _as_answer(error))
        except Exception as error:  # the boundary of one attempt: the Lease may have any content
            log.exception("lease not understood", held=self.held)
            self.streak.failed(self._clock.monotonic(), error)
        else:
            self.streak.worked(self._clock.monotonic())
        self.look_s = self._clock.monotonic() - began
        if self.held and not self._fresh():
            self._lose(f"not renewed for {self._times.renew_deadline_s:g} s")

    async def release(self) -> None:
        """Release the Lease so that another replica takes over at once; writes stop first."""
        if not self.held:
            return
        self._ends()
        try:
            async with asyncio.timeout(LEASE_ATTEMPT_S):
                await self._put(holder="", transitions=self.epoch)
        except (ApiError, TimeoutError) as error:
            log.warning("lease not released", error=str(error) or "timed out")

    def _patience(self) -> float:
        """A leader's attempt ends when its right to write does."""
        if not self.held:
            return LEASE_ATTEMPT_S
        left = self._last_ok + self._times.renew_deadline_s - self._clock.monotonic()
        return max(0.0, min(LEASE_ATTEMPT_S, left))

    async def _look(self) -> None:
        view = await self._get()
        now = self._clock.monotonic()
        highest = self._highest_epoch()
        self._watched = observe(self._watched, view, highest_epoch=highest, now=now)
        self._met |= view is not None
        self._raw = view.raw if view else {}
        self.holder = view.holder if view else ""
        move = decide(
            view,
            self._watched,
            identity=self.identity,
            former=self._former if now >= self._former_ends else "",
            is_leader=self.held,
            fresh=highest == 0 and not self._met,
            now=now,
            times=self._times,
        )
        transitions = view.transitions if view else 0
        match move:
            case LeaseMove.LOST:
                self._lose(f"the lease is held by {self.holder or 'no replica'}")
            case LeaseMove.RENEW:
                await self._renew(transitions)
            case LeaseMove.CREATE | LeaseMove.TAKE:
                await self._take(max(transitions, highest, self.epoch) + 1)
            case LeaseMove.WAIT:
                pass
            case _:
                assert_never(move)

    async def _get(self) -> LeaseView | None:
        try:
            return view_of(await self._cluster.get(LEASE, self._name, namespace=self._namespace))
        except NotFound:
            return None

    async def _renew(self, transitions: int) -> None:
        sent = self._clock.monotonic()
        try:
            await self._put(holder=self.identity, transitions=max(transitions, self.epoch))
        except Conflict:
            return  # another replica wrote in between: the next attempt shows which
        self._last_ok = sent

    async def _take(self, epoch: int) -> None:
        await self._find_owner()
        sent = self._clock.monotonic()
        try:
            await self._put(holder=self.identity, transitions=epoch, taking=True)
        except Conflict:
            return  # another candidate was faster
        self._last_ok = sent
        if not self._fresh():
            return  # the answer took so long that others may lead already: try again
        self.held, self.epoch, self.holder = True, epoch, self.identity
        log.info("leading", identity=self.identity, epoch=epoch)

    async def _find_owner(self) -> None:
        """Read the uid of the Deployment; a Lease without an owner is valid as well."""
        if not self._owner or self._references:
            return
        try:
            async with asyncio.timeout(LEASE_OWNER_S):
                deployment = await self._cluster.get(
                    DEPLOYMENT, self._owner, namespace=self._namespace
                )
            uid = text(section(deployment, "metadata"), "uid")
        except (ApiError, WireError, TimeoutError) as error:
            why = str(error) or "timed out"
            log.warning("the lease stays after an uninstall", owner=self._owner, error=why)
            return
        self._references = [
            {
                "apiVersion": DEPLOYMENT.api_version,
                "kind": DEPLOYMENT.kind,
                "name": self._owner,
                "uid": uid,
            }
        ]

    async def _put(self, *, holder: str, transitions: int, taking: bool = False) -> None:
        """Write the Lease at the version last read, or create it."""
        now = micro_time(self._clock.now())
        before = self._raw.get("spec")
        spec: dict[str, object] = {
            **(before if isinstance(before, dict) else {}),
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, round(self._times.duration_s)),
            "leaseTransitions": transitions,
            "renewTime": now,
        }
        if taking:
            spec["acquireTime"] = now
        owned = {"ownerReferences": self._references} if self._references else {}
        metadata = self._raw.get("metadata")
        if not isinstance(metadata, dict):
            body: JsonObject = {"metadata": {"name": self._name, **owned}, "spec": spec}
            self._raw = await self._cluster.create(LEASE, body, namespace=self._namespace)
            return
        body = {**self._raw, "metadata": {**metadata, **owned}, "spec": spec}
        self._raw = await self._cluster.update(LEASE, self._name, body, namespace=self._namespace)

    def _lose(self, reason: str) -> None:
        """End the leadership; logs it once."""
        log.error("leadership lost", identity=self.identity, epoch=self.epoch, reason=reason)
        self.lost = reason
        self._ends()

    def _ends(self) -> None:
        """Use a new identity for the next leadership.

        A pending request ends before others may have taken the Lease.
        """
        self.held = False
        self._former, self.identity = self.identity, self._new_identity()
        margin_s = self._times.duration_s - self._times.renew_deadline_s
        self._former_ends = self._clock.monotonic() + margin_s


def _as_answer(error: ApiError | TimeoutError) -> ApiError:
    """Time limit of an attempt, beyond which the API server counts as not answering."""
    return error if isinstance(error, ApiError) else Unavailable(0, "timed out")

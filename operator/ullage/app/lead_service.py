# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps what the leads of jobs in tiers tell in the picture, as one task of the leader.

Deciding never waits for it: a lead that does not answer leaves what it said last. Only what is news
to people or decisions wakes a decision; a step that went by does not. Where nobody leads nothing is
done: it must never make a picture of the cluster of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from ullage.adapters.lead_reader import LeadSilent
from ullage.state.records import PodRecord, PodStage
from ullage.state.status.tier import LeadReport

log = structlog.get_logger("ullage.leads")

LOOK_EVERY_S: Final = 3.0


class Reads(Protocol):
    """Asks one lead."""

    async def read(self, address: str) -> LeadReport | None:
        """Where its job stands; ``None`` before it begins. Raises :class:`LeadSilent`."""
        ...

    async def close(self) -> None:
        """End the connections."""
        ...


class Picture(Protocol):
    """What is needed of the cluster's picture."""

    def lead_pods(self) -> Mapping[str, PodRecord]:
        """Pods that lead, by uid of the job; cheap where there are none."""
        ...

    def set_leads(self, reports: Mapping[str, LeadReport]) -> None:
        """What leads tell, by uid of the job."""
        ...


class LeadService:
    """Asks every lead every few seconds."""

    def __init__(
        self,
        reader: Reads,
        picture: Picture,
        *,
        leads: Callable[[], bool],
        poke: Callable[[str], None],
    ) -> None:
        """``leads`` says whether this replica leads on a whole picture."""
        self._reader = reader
        self._picture = picture
        self._leads = leads
        self._poke = poke
        self._told: dict[str, LeadReport] = {}
        self._silent: set[str] = set()

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await self._reader.close()

    async def look(self) -> None:
        """Ask every lead that runs once."""
        if not self._leads():
            return
        there = {
            uid: pod
            for uid, pod in self._picture.lead_pods().items()
            if pod.stage is PodStage.RUNNING and pod.address
        }
        if not there and not self._told:
            return
        self._silent &= {pod.uid for pod in there.values()}
        answers = await asyncio.gather(*(self._ask(pod) for pod in there.values()))
        heard = {uid: one for uid, one in zip(there, answers, strict=True) if one is not None}
        kept = {uid: one for uid, one in self._told.items() if uid in there}
        told = kept | heard
        if told == self._told:
            return
        is_news = {uid: _news(one) for uid, one in told.items()} != {
            uid: _news(one) for uid, one in self._told.items()
        }
        self._told = told
        self._picture.set_leads(told)
        if is_news:
            self._poke("lead")

    async def _ask(self, pod: PodRecord) -> LeadReport | None:
        try:
            found = await self._reader.read(pod.address)
        except LeadSilent as error:
            if pod.uid not in self._silent:
                log.warning("lead silent", pod=f"{pod.namespace}/{pod.name}", error=str(error))
                self._silent.add(pod.uid)
            return None
        self._silent.discard(pod.uid)
        return found


def _news(report: LeadReport) -> tuple[object, ...]:
    """What is told at once."""
    return (
        report.stage,
        report.epoch,
        report.reliable,
        report.transient,
        report.lost_steps,
        report.committed is None,
    )

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the EfficiencyReports, outside of decisions.

Users create reports, few of them, so they are listed and not followed: a new one is written within
seconds, and all of them every ten minutes. One that cannot be read or written harms itself only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from ullage.api.efficiencyreport import read_report_spec
from ullage.api.labels import API_VERSION, MANAGER_OPERATOR
from ullage.api.readers import JsonObject, WireError, section, text
from ullage.app.times import EFFICIENCY_LOOK_S, EFFICIENCY_REPORT_S
from ullage.cluster.codecs.efficiency import report_status_from_wire, report_status_to_wire
from ullage.cluster.records.snapshot import Snapshot
from ullage.ports import EFFICIENCY_REPORT, ApiError, ClusterPort, NotFound, Selector
from ullage.scheduling.accounting.week_report import week_report

log = structlog.get_logger("ullage.efficiency")


class EfficiencyReports:
    """Brings every report up to date while this replica leads."""

    def __init__(
        self,
        cluster: ClusterPort,
        *,
        snapshot: Callable[[], Snapshot | None],
        may_write: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        """``snapshot`` returns ``None`` where this replica does not lead."""
        self._cluster = cluster
        self._snapshot = snapshot
        self._may_write = may_write
        self._now = now
        self._faults: Mapping[tuple[str, str], str] = {}

    async def run(self) -> None:
        """Write reports until cancelled."""
        while True:
            await self.write()
            for _ in range(int(EFFICIENCY_REPORT_S // EFFICIENCY_LOOK_S)):
                await asyncio.sleep(EFFICIENCY_LOOK_S)
                await self.write(only_new=True)

    async def write(self, *, only_new: bool = False) -> None:
        """Write all reports, or those that have no status yet.

        Those that cannot be listed are written the next time.
        """
        snapshot = self._snapshot()
        if snapshot is None:
            return
        faults: dict[tuple[str, str], str] = {}
        try:
            items = await self._listed()
        except ApiError as error:  # no reason to call the replica unhealthy
            log.warning("reports not listed", error=str(error))
            return
        for item in items:
            if only_new and item.get("status"):
                continue
            metadata = section(item, "metadata")
            at = text(metadata, "namespace"), text(metadata, "name")
            try:
                body = await asyncio.to_thread(_body, item, snapshot, self._now())
                if not self._may_write():
                    return
                await self._cluster.apply(
                    EFFICIENCY_REPORT,
                    at[1],
                    body,
                    namespace=at[0],
                    subresource="status",
                    manager=MANAGER_OPERATOR,
                )
            except NotFound:
                continue  # deleted meanwhile
            except (WireError, ApiError) as error:
                faults[at] = str(error)
                if self._faults.get(at) != faults[at]:
                    log.warning("report not written", report="/".join(at), error=faults[at])
        self._faults = {**self._faults, **faults} if only_new else faults

    async def _listed(self) -> list[JsonObject]:
        """All reports; none where the cluster has a chart of CRDs without the kind.

        Raises:
            ApiError: the API server refused or did not answer.
        """
        items: list[JsonObject] = []
        try:
            async for page in self._cluster.list_paged(EFFICIENCY_REPORT, Selector()):
                items += page.items
        except NotFound:
            return []
        return items


def _body(item: JsonObject, snapshot: Snapshot, now: float) -> JsonObject:
    """The report with its new status, for server-side apply.

    Raises:
        WireError: its spec cannot be read; an unreadable status is replaced.
    """
    metadata = section(item, "metadata")
    namespace = text(metadata, "namespace")
    spec = read_report_spec(section(item, "spec"))
    try:
        stored = section(item, "status")
        before = report_status_from_wire(stored) if stored else None
    except WireError:
        before = None
    status = week_report(before, snapshot, namespace, now, spec.top)
    return {
        "apiVersion": API_VERSION,
        "kind": EFFICIENCY_REPORT.kind,
        "metadata": {
            "name": text(metadata, "name"),
            "namespace": namespace,
            "uid": text(metadata, "uid"),
        },
        "status": report_status_to_wire(status),
    }

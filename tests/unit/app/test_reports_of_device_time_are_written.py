# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""EfficiencyReports are written by the leader alone, and a bad one harms no other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from builders import NOW, a_job, a_snapshot
from ullage.api.usage import DeviceTime
from ullage.app.efficiency_reports import EfficiencyReports
from ullage.cluster.records.efficiency import EfficiencyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.ports import (
    EFFICIENCY_REPORT,
    Forbidden,
    JsonObject,
    Kind,
    NotFound,
    Page,
    Selector,
    Unavailable,
)
from ullage.scheduling.accounting.efficiency import period_of


class Cluster:
    """The API server's part: reports, and what is applied to their status."""

    def __init__(self, *items: Mapping[str, Any]) -> None:
        self.items = {(i["metadata"]["namespace"], i["metadata"]["name"]): dict(i) for i in items}
        self.refused: set[str] = set()
        self.unknown = False
        self.away = False

    async def list_paged(self, kind: Kind, _: Selector, *, limit: int = 500) -> AsyncIterator[Page]:
        assert kind is EFFICIENCY_REPORT
        if self.away:
            raise Unavailable(503, "no answer")
        if self.unknown:
            raise NotFound(404, "no such resource")
        yield Page(items=list(self.items.values()), resource_version="1")

    async def apply(
        self,
        kind: Kind,
        name: str,
        body: JsonObject,
        *,
        namespace: str = "",
        subresource: str = "",
        manager: str,
    ) -> JsonObject:
        assert (kind, subresource) == (EFFICIENCY_REPORT, "status")
        assert manager
        if name in self.refused:
            raise Forbidden(403, "not allowed")
        self.items[namespace, name]["status"] = body["status"]
        return body

    def status(self, name: str, namespace: str = "team") -> Any:
        return self.items[namespace, name].get("status")


def a_report(name: str, namespace: str = "team", **fields: object) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {}, **fields}


def cluster_state() -> Snapshot:
    row = EfficiencyRecord(
        since=period_of(NOW), as_of=NOW, row=DeviceTime(allocated_ms=3_600_000, used_ms=900_000)
    )
    return a_snapshot(a_job(namespace="team").status(phase="Succeeded", efficiency=row))


def reports(
    cluster: Cluster, snapshot: Snapshot | None, *, may_write: bool = True
) -> EfficiencyReports:
    return EfficiencyReports(
        cluster,  # type: ignore[arg-type]  # the verbs that it needs
        snapshot=lambda: snapshot,
        may_write=lambda: may_write,
        now=lambda: NOW,
    )


async def test_each_report_holds_its_namespace() -> None:
    cluster = Cluster(a_report("mine"), a_report("theirs", "other"))
    await reports(cluster, cluster_state()).write()
    assert cluster.status("mine")["wastedHours"] == "0.75"
    assert "workloads" not in cluster.status("theirs", "other")
    first = cluster.status("mine")
    await reports(cluster, cluster_state()).write()  # another leader
    assert cluster.status("mine") == first


async def test_a_new_report_is_written_before_the_others_are_due() -> None:
    cluster = Cluster(a_report("old"))
    writer = reports(cluster, cluster_state())
    await writer.write()
    first = cluster.status("old")
    first["workloads"] = 7
    cluster.items["team", "new"] = a_report("new")
    await writer.write(only_new=True)
    assert cluster.status("new")["workloads"] == 1
    assert cluster.status("old")["workloads"] == 7


async def test_a_standby_and_a_leader_that_lost_its_lease_write_nothing() -> None:
    cluster = Cluster(a_report("mine"))
    await reports(cluster, None).write()
    await reports(cluster, cluster_state(), may_write=False).write()
    assert cluster.status("mine") is None


@pytest.mark.parametrize(
    "wild", [{"spec": {"top": "all"}}, {"spec": {"top": 10**9}}, {"spec": []}, {"status": [1]}]
)
async def test_a_wild_report_harms_itself_only(wild: dict[str, object]) -> None:
    cluster = Cluster({**a_report("bad"), **wild}, a_report("good"))
    await reports(cluster, cluster_state()).write()
    assert cluster.status("good")["workloads"] == 1


async def test_a_wild_status_is_made_anew_and_a_refused_write_stops_no_other() -> None:
    wild = {"since": "never", "rows": [{"uid": 7}]}
    cluster = Cluster(a_report("refused"), a_report("wild", status=wild))
    cluster.refused.add("refused")
    await reports(cluster, cluster_state()).write()
    assert cluster.status("refused") is None
    assert cluster.status("wild")["workloads"] == 1


async def test_an_api_server_that_is_away_is_asked_the_next_time() -> None:
    cluster = Cluster(a_report("mine"))
    writer = reports(cluster, cluster_state())
    cluster.away = True
    await writer.write()
    assert cluster.status("mine") is None
    cluster.away = False
    await writer.write()
    assert cluster.status("mine")["workloads"] == 1


async def test_a_cluster_without_the_kind_has_no_reports() -> None:
    cluster = Cluster(a_report("mine"))
    cluster.unknown = True
    await reports(cluster, cluster_state()).write()
    assert cluster.status("mine") is None

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage efficiency`` and ``why --efficiency``: wasted time, why, and what helps."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from builders import NOW, a_gpu_node, a_job, a_slice, a_snapshot, an_adopted, gpu, reported
from fakes.toy_books import on
from ullage.api.usage import DeviceTime, ObservedUsage, RecentUsage
from ullage.cli import access, main
from ullage.cli.efficiency import NOTHING, FleetEfficiency, explained, table, to_json
from ullage.cluster.records.efficiency import EfficiencyRecord
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values.streams import Stream
from ullage.engines.efficiency.ledger import UsageMark

RUNNER = CliRunner()
HOUR = 3_600_000
IDLE = RecentUsage(allocated_ms=1_800_000)
BUSY = RecentUsage(allocated_ms=1_800_000, used_ms=1_700_000, needed_percent=99, duty_percent=99)


def node(name: str, pod: str, recent: RecentUsage, used_ms: int) -> GPUNodeRecord:
    part = a_slice(f"uid-{pod}-0", device=gpu(name), percent=100)
    usage = ObservedUsage(allocated_ms=10 * HOUR, used_ms=used_ms, recent=recent)
    seen = replace(reported(part), usage=usage)
    return a_gpu_node(name, devices=1, desired=[part], observed=[seen], heartbeat=NOW)


def the_cluster() -> Snapshot:
    row = EfficiencyRecord(
        since=0.0, as_of=NOW - 10 * 3600, mark=UsageMark(slices=1), per_device_hour="2"
    )
    jobs = [
        a_job(name).status(phase="Running", placement=(on(place, pod=f"{name}-0"),), efficiency=row)
        for name, place in (("busy", "n1"), ("idle", "n2"))
    ]
    return a_snapshot(
        *jobs,
        node("n1", "busy", BUSY, 9 * HOUR),
        node("n2", "idle", IDLE, 0),
        a_job("waits"),
    )


def shown(what: RenderableType) -> str:
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(what)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def fleet(cluster: Snapshot) -> FleetEfficiency:
    return FleetEfficiency(cluster, cluster.workloads.values(), NOW)


def test_sums_opportunities_and_the_command_that_helps_are_printed() -> None:
    text = shown(table(fleet(the_cluster()), 10))
    facts = {line.split("  ")[0]: line.split()[-1] for line in text.splitlines() if line}
    assert facts["device hours"] == "20.00"
    assert "11.00 (55%), 10.00 of it explained" in text
    assert facts["cost of it"] == "22.00"
    (line,) = (line for line in text.splitlines() if line.startswith("Idle"))
    assert line.split()[-4:] == ["1", "10.00", "20.00", "default/idle"]
    assert (
        "kubectl patch trainingjob idle -n default --type merge -p"
        """ '{"spec":{"suspend":true}}'"""
    ) in text
    assert "busy" not in text


def test_scripts_get_whole_numbers_and_text_of_money() -> None:
    body = json.loads(to_json(fleet(the_cluster()), 10))
    assert body["asOf"] == int(NOW)
    total = body["total"]
    assert total["usedMs"] + total["wastedMs"] == total["allocatedMs"] == 20 * HOUR
    assert total["wastedCost"] == "22.000000"
    first, second = body["workloads"]
    assert (first["name"], first["wastedMs"], second["name"]) == ("idle", 10 * HOUR, "busy")
    (finding,) = first["findings"]
    assert (finding["rule"], finding["gain"]) == ("Idle", 1.0)
    assert finding["command"].startswith("kubectl patch trainingjob idle")
    assert body["opportunities"][0]["example"] == "default/idle"


def test_nothing_measured_is_said_so() -> None:
    assert shown(table(fleet(a_snapshot(a_job("waits"))), 10)) == NOTHING
    assert shown(explained(fleet(a_snapshot(a_job("waits"))))) == NOTHING


def test_time_of_ullage_and_estimates_are_said_to_be_so() -> None:
    row = EfficiencyRecord(
        since=0.0,
        as_of=NOW,
        row=DeviceTime(allocated_ms=HOUR, used_ms=HOUR, withheld_ms=HOUR, unmeasured_ms=HOUR),
        estimated=True,
    )
    text = shown(explained(fleet(a_snapshot(a_job().status(phase="Running", efficiency=row)))))
    assert "at most: it shares its device" in text
    assert "withheld by Ullage" in text
    assert "unmeasured" in text
    assert "no finding" in text


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[Stream]]:
    """The streams that a command reads, of a cluster in which it may read all."""
    asked: list[list[Stream]] = []
    pods = an_adopted("web").status(phase="Running").build()
    cluster = the_cluster()
    web = node("n3", "web", IDLE, 0)
    cluster = replace(
        cluster,
        workloads={**cluster.workloads, pods.ref.uid: pods},
        gpu_nodes={**cluster.gpu_nodes, "n3": web},
    )

    def allowed(_: object, wanted: Sequence[Stream], __: Collection[Stream]) -> Snapshot:
        asked.append(list(wanted))
        return cluster

    monkeypatch.setattr(access, "allowed", allowed)
    monkeypatch.setattr("time.time", lambda: NOW)
    return asked


def test_the_command_reads_one_namespace_or_all(seen: list[list[Stream]]) -> None:
    done = RUNNER.invoke(main.app, ["efficiency", "-n", "default", "-o", "json"])
    assert done.exit_code == 0
    assert {entry["name"] for entry in json.loads(done.stdout)["workloads"]} == {
        "busy",
        "idle",
        "web",
    }
    done = RUNNER.invoke(main.app, ["efficiency", "-A", "--top", "1"])
    assert done.exit_code == 0
    assert [stream.selector.namespace for stream in seen[0]][:3] == ["default"] * 3
    assert [stream.selector.namespace for stream in seen[1]][:3] == [""] * 3


def test_why_explains_one_workload_or_pods_by_a_label(seen: list[list[Stream]]) -> None:
    idle = RUNNER.invoke(main.app, ["why", "tj/idle", "-n", "default", "--efficiency"])
    assert idle.exit_code == 0
    assert "Idle: 100% of the time" in idle.stdout
    web = RUNNER.invoke(main.app, ["why", "pod/web", "-n", "default", "--efficiency"])
    assert web.exit_code == 0
    assert "scale their controller down" in web.stdout
    absent = RUNNER.invoke(main.app, ["why", "tj/nobody", "-n", "default", "--efficiency"])
    assert absent.exit_code == 1

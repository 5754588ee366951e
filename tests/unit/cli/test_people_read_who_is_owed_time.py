# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``explain policy`` puts what a job had beside what it was promised."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from builders import (
    MODEL,
    NOW,
    a_device_profile,
    a_gpu_node,
    a_job,
    a_pod,
    a_policy,
    a_slice,
    a_snapshot,
    gpu,
)
from ullage.api.schedulingpolicy import Quota, Tenant
from ullage.cli import tables_policy
from ullage.cli.main import app
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import (
    AllocationRecord,
    Condition,
    DroppedDeadline,
    QuotaStatus,
    Received,
    SolveRecord,
)
from ullage.scheduling.inventory.tenant_quotas import usages_of

SOLVE = SolveRecord(
    time=NOW - 30,
    result="Optimal",
    inputs_hash="a",
    fractions_hash="b",
    jobs=2,
    objective_value="0.75",
    prices=(("fast", "0.25"),),
)


def shown(snapshot: Snapshot, held: Snapshot | None = None) -> str:
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(tables_policy.policy(snapshot, NOW, held))
    return capture.get()


def row(text: str, *words: str) -> list[str]:
    """The cells of the line that has all these words."""
    (line,) = [line for line in text.splitlines() if all(word in line for word in words)]
    return line.split()


def test_promise_received_and_owed_stand_side_by_side() -> None:
    books = AllocationRecord(
        since=NOW - 100,
        fractions=(("fast", "0.25"), ("slow", "0.5")),
        source="Measured",
        deficit_seconds=(("fast", "10"),),
        received=(("fast", Received(seconds=20)), ("slow", Received(seconds=0, since=NOW - 40))),
    )
    job = a_job("train").aged(200).with_(tenant="research", weight=3)
    ended = a_job("done").status(phase="Succeeded", allocation=books)
    text = shown(
        a_snapshot(
            job.status(phase="Running", allocation=books),
            ended,
            a_policy(
                objective="MaxMinFairness",
                last_solve=SOLVE,
                tenants=(
                    Tenant(
                        name="research",
                        weight=2,
                        fifo=True,
                        cohort="all",
                        quota=(Quota(accelerator="fast", nominal_quota=150),),
                    ),
                ),
            ),
        )
    )
    assert row(text, "fast", "25.0%") == [
        "default/train", "research", "3", "fast", "25.0%", "10.0%", "20", "+35", "Measured",
    ]  # fmt: skip
    slow = row(text, "slow", "50.0%")
    assert slow[:4] == ["slow", "50.0%", "20.0%", "40"]
    assert "its turn for 40s" in text
    assert "done" not in text
    assert "research 2 (oldest first)" in text
    assert "research: 150 % of fast; cohort all, reclaimWithinCohort Never" in text
    assert "the operator has not told yet what tenants hold" in text
    assert "Optimal, 30s ago, 2 jobs, objective 0.75" in text
    assert "fast (0.25)" in text


def test_quota_shows_what_is_held_borrowed_and_left() -> None:
    tenants = tuple(
        Tenant(
            name=name,
            namespaces=frozenset({name}),
            cohort="all",
            quota=(Quota(accelerator=MODEL, nominal_quota=nominal),),
        )
        for name, nominal in (("a", 50), ("b", 200))
    )
    jobs = [a_job(f"of-{name}", name).build() for name in ("a", "b")]
    pods = [
        a_pod(f"{job.ref.name}-0", owner=job, stage=PodStage.RUNNING, node="node-1") for job in jobs
    ]
    slices = [
        a_slice(pod, device=gpu("node-1", at), percent=percent)
        for at, (pod, percent) in enumerate(zip(pods, (100, 50), strict=True))
    ]
    snapshot = a_snapshot(
        a_policy(tenants=tenants), *jobs, *pods, a_gpu_node(devices=4, desired=slices)
    )
    text = " ".join(shown(snapshot, snapshot).split())
    assert f"a: 50 % of {MODEL} (holds 100 %, 50 % of it borrowed, can get 100 %)" in text
    assert f"b: 200 % of {MODEL} (holds 50 %, can get 100 %)" in text
    assert "status" not in text
    told = QuotaStatus(time=NOW - 30, borrowing_tenants=1, usage=usages_of(snapshot))
    policy = a_policy(tenants=tenants, quota_status=told)
    without_rights = " ".join(shown(a_snapshot(policy)).split())
    assert f"a: 50 % of {MODEL} (holds 100 %, 50 % of it borrowed, can get 100 %)" in without_rights
    assert "what tenants hold is that of 30s ago, as the status tells it" in without_rights


def test_prices_show_what_the_promise_costs_and_what_is_not_kept() -> None:
    late = DroppedDeadline(cause="TooSlow", needed="9", best="4")
    books = AllocationRecord(
        since=NOW - 100, fractions=(("fast", "0.25"), ("slow", "0.5")), dropped=late
    )
    job = a_job("train").gang(2).status(phase="Running", allocation=books)
    prices = [
        replace(a_device_profile("fast"), price_per_hour=8.0),
        replace(a_device_profile("slow"), price_per_hour=1.0),
    ]
    policy = a_policy(objective="MinCostSLO", last_solve=replace(SOLVE, dropped=1))
    text = shown(a_snapshot(job, policy, *prices))
    assert "fast 8.00, slow 1.00 (one device for an hour)" in text
    assert "5.00 an hour, all jobs together" in text
    assert "4.00" in row(text, "fast", "25.0%")
    assert "1.00" in row(text, "slow", "50.0%")
    assert "1 are not kept" in text
    assert "deadline is not kept: TooSlow" in text


def test_a_part_of_a_device_costs_its_part_of_the_price() -> None:
    books = AllocationRecord(since=NOW - 100, fractions=(("fast", "0.5"),))
    half = a_job("half").fractional(25, 50).gang(3).status(phase="Running", allocation=books)
    whole = a_job("whole").exclusive(2).status(phase="Running", allocation=books)
    price = replace(a_device_profile("fast"), price_per_hour=8.0)
    policy = a_policy(objective="MinCostSLO", last_solve=SOLVE)
    text = shown(a_snapshot(half, whole, policy, price))
    assert "6.00" in row(text, "default/half")  # 3 members, half a device each, half of the time
    assert "8.00" in row(text, "default/whole")  # 2 devices, half of the time
    assert "14.00 an hour, all jobs together" in text


@pytest.mark.parametrize(("result", "colour"), [("Optimal", "32"), ("Infeasible", "31")])
def test_a_division_that_failed_stands_out(result: str, colour: str) -> None:
    snapshot = a_snapshot(a_policy(objective="SJF", last_solve=replace(SOLVE, result=result)))
    console = Console(width=200, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(tables_policy.policy(snapshot, NOW))
    (line,) = [line for line in capture.get().splitlines() if result in line]
    assert f"\x1b[{colour}m{result}" in line


def test_a_missing_price_is_shown_where_the_objective_stands() -> None:
    condition = Condition(
        type="Degraded", status="True", reason="PriceMissing", message="MinCost needs a price"
    )
    text = shown(a_snapshot(a_policy(objective="MinCost", conditions=(condition,))))
    assert "PriceMissing: MinCost needs a price" in text


def test_under_fifo_it_says_that_time_is_not_divided() -> None:
    text = shown(a_snapshot(a_job("train"), a_policy()))
    assert "The objective is FIFO" in text


def test_an_idle_policy_says_that_no_one_takes_turns() -> None:
    text = shown(a_snapshot(a_policy(objective="SJF")))
    assert "no job takes turns now" in text


def test_a_reason_is_still_explained_by_the_same_command() -> None:
    said = CliRunner().invoke(app, ["explain", "WaitsForRound"])
    assert said.exit_code == 0
    assert "owed more time" in said.output

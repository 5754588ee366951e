# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage cost``: spent, on-demand, saved, lost; what is not known is said to be so."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from builders import NOW, a_job, a_service, a_snapshot
from ullage.cli import access, cost, main
from ullage.cli.forms import CostBy as By
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Account, Progress, SpendRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.streams import SCHEDULING_POLICIES, Stream

RUNNER = CliRunner()


def spend(total: str = "", **figures: object) -> SpendRecord:
    account = Account(since=NOW - 100, as_of=NOW, total=total, **figures)  # type: ignore[arg-type]
    return SpendRecord(account=account)


def the_cluster() -> Snapshot:
    cheap = a_job("cheap").with_(tenant="research")
    return a_snapshot(
        cheap.status(
            spend=spend(
                "12.5",
                on_demand_total="37.5",
                per_hour="2",
                on_demand_per_hour="6",
                lost_seconds=600,
                lost_steps=1200,
                evictions=3,
                earlier_steps=3000,
            ),
            progress=Progress(steps=700),
        ),
        a_service("chat").status(spend=spend("40", on_demand_total="32")),
        a_job("dark").status(spend=spend(message="CapacityPool spot has no price yet")),
        a_job("idle"),
    )


def found(by: By = By.JOB) -> list[cost.CostLine]:
    return cost.lines(the_cluster().workloads.values(), by, NOW, PolicyRecord())


def shown(what: RenderableType) -> str:
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(what)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_the_table_of_jobs() -> None:
    assert shown(cost.table(found(), By.JOB)) == (
        "JOB            TENANT    SPENT  ON-DEMAND         SAVED         LOST WORK  LOSSES"
        "  PER 1000 STEPS  NOW/H\n"
        "default/chat   default   40.00      32.00  -8.00 (-25%)                 -       0"
        "               -      -\n"
        "default/cheap  research  12.50      37.50   25.00 (67%)  10m (1200 steps)       3"
        "               5   2.00\n"
        "default/dark   default       ?          ?             ?                 -       0"
        "               -      -\n"
        "all                      52.50      69.50   17.00 (24%)  10m (1200 steps)       3"
        "               5   2.00\n"
        "default/dark: CapacityPool spot has no price yet"
    )


def test_the_table_of_tenants_adds_up() -> None:
    text = shown(cost.table(found(By.TENANT), By.TENANT))
    rows = {line.split()[0]: line.split() for line in text.splitlines()[1:]}
    assert rows["default"][1:4] == ["2", "40.00", "32.00"]
    assert rows["research"][1:4] == ["1", "12.50", "37.50"]
    assert rows["all"][1:4] == ["3", "52.50", "69.50"]
    assert "default: CapacityPool spot has no price yet" in text


def test_scripts_read_money_as_text_and_what_is_not_known_as_null() -> None:
    body = json.loads(cost.to_json(found(), By.JOB, NOW + 0.7))
    assert body["asOf"] == NOW
    lines = {one["job"]: one for one in body["lines"]}
    assert lines["default/cheap"]["spent"] == "12.500000"
    assert lines["default/cheap"]["savingsRatio"] == 0.6667
    assert lines["default/chat"]["kind"] == "InferenceDeployment"
    assert lines["default/dark"]["spent"] is None
    assert lines["default/dark"]["message"] == "CapacityPool spot has no price yet"
    assert body["total"]["spent"] == "52.500000"


def test_what_the_rest_should_save_is_a_column_where_it_is_known() -> None:
    cluster = the_cluster()
    cheap, *others = cluster.workloads.values()
    record = replace(spend("12.5"), expected_savings="30.5")
    told = [replace(cheap, status=replace(cheap.status, spend=record)), *others]
    lines = cost.lines(told, By.JOB, NOW, PolicyRecord())
    rows = {line.split()[0]: line.split() for line in shown(cost.table(lines, By.JOB)).splitlines()}
    assert rows["JOB"][-2:] == ["TO", "SAVE"]
    assert rows["default/cheap"][-1] == "30.50"
    assert rows["default/chat"][-1] == "-"
    assert rows["all"][-1] == "30.50"
    body = json.loads(cost.to_json(lines, By.JOB, NOW))
    assert {one["job"]: one["expectedSavings"] for one in body["lines"]} == {
        "default/cheap": "30.500000",
        "default/chat": None,
        "default/dark": None,
    }


def test_without_prices_one_is_told_what_to_do() -> None:
    none: list[WorkloadRecord] = [a_job("idle").build()]
    found = cost.lines(none, By.JOB, NOW, PolicyRecord())
    assert "pricePerHour" in shown(cost.table(found, By.JOB))
    assert "pricePerHour" in shown(cost.bars([]))


def test_bars_of_text_are_as_long_as_the_money() -> None:
    lengths = [
        line.count("█") for line in shown(cost.bars(found())).splitlines() if "▏" not in line
    ]
    assert [one for one in lengths if one] == [40, 32, 12, 38]


class _Figure:
    def __init__(self) -> None:
        self.calls: dict[str, tuple[object, ...]] = {}

    def __getattr__(self, name: str) -> object:
        def call(*words: object, **_: object) -> _Figure:
            self.calls[name] = words
            return self

        return call

    def subplots(self, *_: object, **__: object) -> tuple[_Figure, _Figure]:
        return self, self


def test_the_picture_has_two_bars_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = _Figure()
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, figure)
    assert cost.picture(found(), tmp_path / "cost.png") == tmp_path / "cost.png"
    assert figure.calls["savefig"] == (tmp_path / "cost.png",)
    names, widths = figure.calls["barh"]
    assert list(zip(names, widths, strict=True))[-2:] == [  # type: ignore[call-overload]
        ("default/chat on-demand", 32.0),
        ("default/chat", 40.0),
    ]


def test_the_command_asks_for_one_namespace_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def look(_: object, wanted: list[Stream], optional: tuple[Stream, ...]) -> Snapshot:
        assert optional == (SCHEDULING_POLICIES,)
        asked.extend(one.selector.namespace for one in wanted if one not in optional)
        return the_cluster()

    monkeypatch.setattr(access, "allowed", look)
    words = ["cost", "-n", "default", "--by", "tenant", "-o", "json", "--plot", "terminal"]
    told = RUNNER.invoke(main.app, words)
    assert told.exit_code == 0, told.output
    body = json.loads(told.stdout)
    assert {one["tenant"] for one in body["lines"]} == {"default", "research"}
    assert asked == ["default", "default"]
    assert RUNNER.invoke(main.app, ["cost", "-A"], env={"COLUMNS": "200"}).exit_code == 0
    assert asked[2:] == ["", ""]
    both = RUNNER.invoke(main.app, ["cost", "-A", "-n", "default"])
    assert both.exit_code == 1
    assert "all of them with -A" in both.output

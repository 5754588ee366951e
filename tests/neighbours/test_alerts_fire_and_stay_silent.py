# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Prometheus's own promtool plays series through the rules: each alert fires, and stays silent."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from chart.rendered import CHART
from demo.cluster import LocalCluster
from e2e.stack import Json
from neighbours.alert_cases import CASES, Case

RULES: Final = CHART / "rules" / "ullage.yaml"
LEADER: Final = 'ullage_leader{instance="a"}'
OF_NO_REPLICA: Final = "workload_namespace:"
"""Recorded series, without the instance."""
FIRING: Final = 'count by (alertname) (ALERTS{alertstate="firing"})'


@pytest.fixture(scope="module")
def promtool() -> Path:
    return LocalCluster().tool("promtool", component="prometheus")


def _placed(series: str) -> str:
    """A series as it is scraped: of the replica that leads, where it names none."""
    name, brace, labels = series.partition("{")
    if "instance=" in series or name.startswith(OF_NO_REPLICA):
        return series
    if brace:
        return f'{name}{{instance="a",{labels}'
    name, _, values = series.partition(" ")
    return f'{name}{{instance="a"}} {values}'


def play(series: tuple[str, ...], minutes: int, firing: set[str]) -> Json:
    """A test of promtool: after so long exactly these alerts fire."""
    given = [_placed(one) for one in series]
    given = [one.rsplit("} ", 1) if "{" in one else one.split(" ", 1) for one in given]
    inputs = [
        {"series": name + ("}" if "{" in name else ""), "values": values} for name, values in given
    ]
    if not any(one["series"] == LEADER for one in inputs):
        inputs.append({"series": LEADER, "values": f"1x{minutes}"})
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)]
    return {
        "interval": "1m",
        "input_series": inputs,
        "promql_expr_test": [{"expr": FIRING, "eval_time": f"{minutes}m", "exp_samples": samples}],
    }


def verdict(promtool: Path, tmp_path: Path, test: Json) -> str:
    """What promtool says where the test fails; nothing where it passes."""
    path = tmp_path / "test.yaml"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}))  # JSON is YAML
    done = subprocess.run(
        [str(promtool), "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_prometheus_takes_the_rules(promtool: Path) -> None:
    subprocess.run([str(promtool), "check", "rules", "--lint-fatal", str(RULES)], check=True)


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires(promtool: Path, tmp_path: Path, alert: str) -> None:
    case: Case = CASES[alert]
    assert verdict(promtool, tmp_path, play(case.fires, case.minutes, {alert})) == ""


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_stays_silent(promtool: Path, tmp_path: Path, alert: str) -> None:
    case: Case = CASES[alert]
    assert verdict(promtool, tmp_path, play(case.silent, case.minutes, set())) == ""

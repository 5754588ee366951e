# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Prometheus scrapes operator and agents without an error, and knows every series by our page."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from chart.rendered import CHART
from demo.install import NAMESPACE
from e2e.stack import Json, Stack, busy_template, eventually, training_job
from neighbours.karpenter import process

ADDRESS: Final = "127.0.0.1:19843"
PARTS: Final = re.compile(r"_(bucket|count|sum|created)$")
PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


SHOWN: Final = {"Devices", "Granted", "Leaders", "Granted and free", "Devices by state", "Slices"}
"""Panels that show something as soon as one job runs."""


def concrete(expression: str) -> str:
    """A query of a dashboard with its variables filled in."""
    filled = expression.replace("$__rate_interval", "1m")
    return re.sub(r"\$(node|tenant)", ".*", filled)


@pytest.fixture
def prometheus(stack: Stack, tmp_path: Path) -> Iterator[Stack]:
    """Prometheus reads the pods that the chart's PodMonitor would choose."""
    program = stack.cluster.tool("prometheus")
    config = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": targets(stack, name)}]}
            for name in ("operator", "node")
        ],
    }
    path = tmp_path / "prometheus.yml"
    path.write_text(json.dumps(config))  # JSON is YAML
    words = [
        str(program),
        f"--config.file={path}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={ADDRESS}",
    ]
    with process("prometheus", words, {}):
        yield stack


def targets(stack: Stack, component: str) -> list[str]:
    """Addresses of the port ``http`` of a component's pods."""
    found = []
    for pod in stack.list("pods", NAMESPACE, f"app.kubernetes.io/component={component}"):
        ports = [
            port["containerPort"]
            for container in pod["spec"]["containers"]
            for port in container.get("ports", [])
            if port.get("name") == "http"
        ]
        found += [f"{pod['status']['podIP']}:{port}" for port in ports]
    assert found
    return found


def ask(path: str, **words: str) -> Any:
    """An answer of Prometheus's API; nothing while it does not answer."""
    url = f"http://{ADDRESS}/api/v1/{path}?{urllib.parse.urlencode(words)}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def query(text: str) -> list[Json]:
    """Result of an instant query."""
    data = ask("query", query=text)
    return data["result"] if data else []


def test_every_target_is_up_and_every_series_is_documented(
    prometheus: Stack, namespace: str
) -> None:
    prometheus.apply(training_job("measured", namespace, busy_template(20)))
    prometheus.job_reaches("measured", namespace, "Running")

    def all_up() -> list[Json]:
        active = (ask("targets") or {}).get("activeTargets", [])
        return active if active and all(one["health"] == "up" for one in active) else []

    active = eventually(all_up, within_s=60, what="every target is up")
    assert {one["labels"]["job"] for one in active} == {"operator", "node"}
    assert [one["lastError"] for one in active] == [""] * len(active)
    (leaders,) = query("sum(ullage_leader)")
    assert leaders["value"][1] == "1"
    eventually(
        lambda: (
            query('ullage_reflector_objects{kind="TrainingJob"} > 0')
            or query("ullage_reflector_objects > 0")
        ),
        within_s=30,
        what="the operator counts what it sees",
    )
    assert query("ullage_node_slots"), "agents are read, too"
    names = {
        one["metric"]["__name__"] for one in query('group by (__name__) ({__name__=~"ullage_.+"})')
    }
    assert len(names) > 50
    documented = {*re.findall(r"`(ullage_[a-z0-9_]+)`", PAGE.read_text("utf-8"))}
    unknown = {name for name in names if name not in documented} - {
        name for name in names if PARTS.sub("", name) in documented
    }
    assert unknown == set()
    for path in sorted((CHART / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            for target in panel["targets"]:
                answer = ask("query", query=concrete(target["expr"]))
                assert answer is not None, (path.stem, panel["title"], target["expr"])
                if panel["title"] in SHOWN:
                    assert answer["result"], (path.stem, panel["title"], target["expr"])
    # what Prometheus itself counts as wrong with the exposition
    for wrong in ("out_of_order", "duplicate_timestamp", "out_of_bounds"):
        assert query(f"prometheus_target_scrapes_sample_{wrong}_total > 0") == []

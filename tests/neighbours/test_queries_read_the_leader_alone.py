# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Dashboards, alerts and recording rules say the same of two replicas as of the leader alone.

One Prometheus scrapes two pages of the operator, as its two replicas tell them, and an agent;
another scrapes the leader's page and the agent. Every query has the same result in both.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
import yaml

from chart.promql import RECORD, documented
from chart.rendered import CHART, ROOT
from demo.cluster import LocalCluster
from e2e.stack import eventually
from neighbours.karpenter import process

BOTH: Final = "127.0.0.1:19851"
LEADER: Final = "127.0.0.1:19852"
PAGE: Final = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
OPERATOR, AGENT = PAGE.split("## Node agent")
ROW: Final = re.compile(r"^\| `((?:ullage|process)_[a-z0-9_]+)` \| (\w+) \|", re.MULTILINE)
LABELS: Final = documented()
VALUES: Final = {
    "phase": ("Pending", "Starting", "Attached"),
    "state": ("Shared", "Unhealthy", "Silent", "Fault"),
    "result": ("kept", "broken", "failed"),
    "kept": ("yes", "no"),
}
"""Values of labels that queries ask for; others have one."""


def _samples(name: str, labels: set[str], value: float) -> Iterator[str]:
    """Series of a metric, one for each value of its first label that queries ask for."""
    chosen = next((label for label in sorted(labels) if label in VALUES), "")
    for at, word in enumerate(VALUES.get(chosen, ("",)), start=1):
        said = dict.fromkeys(labels, "x") | ({chosen: word} if chosen else {})
        text = ",".join(f'{label}="{one}"' for label, one in sorted(said.items()))
        yield f"{name}{{{text}}} {value * at:g}\n"


@dataclass(slots=True)
class Told:
    """A page of metrics; counters grow with time."""

    part: str
    leads: bool
    factor: float
    began: float

    def page(self) -> str:
        passed = time.monotonic() - self.began
        lines: list[str] = []
        for name, kind in ROW.findall(self.part):
            if name == "ullage_leader":
                lines.append(f"ullage_leader {int(self.leads)}\n")
            elif kind == "histogram":
                for bound, part in (("1", 0.5), ("10", 0.9), ("+Inf", 1.0)):
                    grown = self.factor * passed * (part if self.leads else part**3)
                    text = ",".join(f'{one}="x"' for one in sorted(LABELS[name]))
                    joint = "," if text else ""
                    lines.append(f'{name}_bucket{{{text}{joint}le="{bound}"}} {grown:g}\n')
            else:
                grown = self.factor * (passed if kind == "counter" else 1)
                lines.extend(_samples(name, LABELS[name], grown))
        return "".join(lines)


def serve(told: Told) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = told.page().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def ask(address: str, path: str, **words: str) -> Any:
    url = f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(words)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def results(address: str, query: str) -> dict[str, float]:
    """Result of an instant query by labels that no scrape adds."""
    data = ask(address, "query", query=query)
    assert data is not None, query
    rows = data["result"] if data["resultType"] == "vector" else [{"metric": {}, **data}]
    found: dict[str, float] = {}
    for row in rows:
        labels = {k: v for k, v in row["metric"].items() if k not in ("instance", "job")}
        key = json.dumps(labels, sort_keys=True)
        assert key not in found, (query, key)
        found[key] = float(row["value"][1])
    return found


def queries() -> dict[str, str]:
    """Every query that the chart brings, by where it stands; windows are as short as the test."""
    found: dict[str, str] = {}
    for path in sorted((CHART / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            for target in panel["targets"]:
                found[f"{path.stem}: {panel['title']}: {target['refId']}"] = target["expr"]
    groups = yaml.safe_load((CHART / "rules" / "ullage.yaml").read_text("utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    recorded = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
    for rule in rules:
        found[rule.get("alert") or rule["record"]] = rule["expr"]
    return {name: _short(text, recorded) for name, text in found.items()}


def _short(query: str, recorded: Mapping[str, str]) -> str:
    # no rule is evaluated here: what is recorded is asked for
    query = RECORD.sub(lambda name: f"({recorded[name[0]]})", query)
    query = re.sub(r"\$(node|tenant)", ".*", query).replace("$__rate_interval", "10s")
    # without limits every alert has a value
    query = re.sub(r" [<>] [0-9.]+| == [01]$", "", query.strip())
    return re.sub(r"\[\d+[mhd]\]", "[10s]", query)


def _scraped(address: str, targets: float) -> bool:
    """Whether so many targets were scraped often enough for rates."""
    data = ask(address, "query", query="count(count_over_time(up[1m]) > 8)")
    return bool(data and data["result"]) and float(data["result"][0]["value"][1]) == targets


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Both instances of Prometheus, once each has seen enough to tell rates."""
    program = LocalCluster().tool("prometheus")
    began = time.monotonic()
    pages = (
        Told(OPERATOR, True, 1.0, began),
        Told(OPERATOR, False, 7.0, began),
        Told(AGENT, False, 1.0, began),
    )
    with ExitStack() as stack:
        servers = [serve(told) for told in pages]
        for server in servers:
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        leads, stands_by, agent = [f"127.0.0.1:{server.server_port}" for server in servers]
        for address, targets in ((BOTH, [leads, stands_by, agent]), (LEADER, [leads, agent])):
            folder = tmp_path_factory.mktemp("prometheus")
            config = {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "scrape_configs": [
                    {"job_name": "ullage", "static_configs": [{"targets": targets}]}
                ],
                "rule_files": [],
            }
            (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
            words = [
                str(program),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ]
            stack.enter_context(process(f"prometheus-{address[-1]}", words, {}))
        for address, count in ((BOTH, 3.0), (LEADER, 2.0)):
            eventually(
                partial(_scraped, address, count),
                within_s=120,
                what="each target was scraped often enough for rates",
            )
        yield


OF_EACH_REPLICA: Final = {"UllageTasksFail", "UllageMetricsIncomplete", "UllageWritesFenced"}
"""Alerts about a replica, whichever it is: one that no longer leads is fenced."""


@pytest.mark.parametrize("name", [name for name in queries() if name not in OF_EACH_REPLICA])
def test_a_query_says_the_same_of_two_replicas_as_of_the_leader(scraped: None, name: str) -> None:
    query = queries()[name]
    both, alone = results(BOTH, query), results(LEADER, query)
    assert alone, "the query has a result"
    assert both.keys() == alone.keys()
    for key, value in alone.items():
        assert both[key] == pytest.approx(value, rel=0.4, nan_ok=True), (key, query)


@pytest.mark.parametrize("metric", ["ullage_devices", "ullage_job_cost_per_hour"])
def test_a_sum_over_both_replicas_would_be_seen(scraped: None, metric: str) -> None:
    (both,) = results(BOTH, f"sum({metric})").values()
    (alone,) = results(LEADER, f"sum({metric})").values()
    assert both == pytest.approx(8 * alone)

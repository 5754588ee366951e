# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every replica of the operator tells what it sees; queries count what the leader tells alone."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest
import yaml

from chart.rendered import CHART, ROOT
from docs.generate.dashboards import OF_LEADER, of_leader

PAGE: Final = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
OPERATOR: Final = frozenset(
    re.findall(r"^\| `(ullage_[a-z0-9_]+)` \|", PAGE.split("## Node agent")[0], re.MULTILINE)
)
OF_EACH_REPLICA: Final = {
    "ullage_leader", "ullage_task_failures_total", "ullage_metrics_failures_total",
    "ullage_fenced_writes_total",
}  # fmt: skip
"""What each replica tells of itself."""


def _queries() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted((CHART / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            for target in panel["targets"]:
                found[f"{path.stem}: {panel['title']}: {target['refId']}"] = target["expr"]
    for group in yaml.safe_load((CHART / "rules" / "ullage.yaml").read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            found[rule.get("alert") or rule["record"]] = rule["expr"]
    return found


QUERIES: Final = _queries()
READ: Final = re.compile(
    r"(?<![:\w])(ullage_[a-z0-9_]+)(?:\{[^}]*\})?(?:\[[^\]]*\]\))?(.{0,60})", re.S
)


@pytest.mark.parametrize("name", list(QUERIES))
def test_what_the_operator_tells_of_the_cluster_is_read_of_its_leader(name: str) -> None:
    for metric, after in READ.findall(QUERIES[name].replace(f" {OF_LEADER}", " <leader>")):
        known = re.sub(r"_(bucket|sum|count)$", "", metric)
        if not {metric, known} & OPERATOR or metric in OF_EACH_REPLICA:
            continue
        assert after.startswith((" <leader>", " offset ")), metric


@pytest.mark.parametrize(
    ("query", "narrowed"),
    [
        ("sum(ullage_devices)", f"sum(ullage_devices {OF_LEADER})"),
        ('ullage_x{a="b"} > 1', f'(ullage_x{{a="b"}} {OF_LEADER}) > 1'),
        ("sum by (a) (rate(ullage_x[5m]))", f"sum by (a) (rate(ullage_x[5m]) {OF_LEADER})"),
        ("sum(ullage_leader)", "sum(ullage_leader)"),
    ],
)
def test_a_selector_is_narrowed_where_it_stands(query: str, narrowed: str) -> None:
    assert of_leader(query) == narrowed

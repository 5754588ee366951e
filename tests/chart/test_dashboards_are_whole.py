# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Dashboards read metrics and labels that exist, and come with the chart when asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from chart.promql import check, documented
from chart.rendered import CHART, Helm, Json, Rendered

FILES: Final = sorted((CHART / "dashboards").glob("*.json"))
PAGES: Final[dict[str, Json]] = {path.stem: json.loads(path.read_text("utf-8")) for path in FILES}
LABELS_OF: Final = re.compile(r"label_values\((\w+), (\w+)\)")
each = pytest.mark.parametrize("page", PAGES.values(), ids=list(PAGES))


@each
def test_queries_read_metrics_and_labels_that_exist(page: Json) -> None:
    known = documented()
    for panel in page["panels"]:
        for target in panel["targets"]:
            shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            check(target["expr"], known, shown=shown)


@each
def test_variables_are_of_labels_that_exist_and_are_used(page: Json) -> None:
    known = documented()
    text = json.dumps(page["panels"])
    for variable in page["templating"]["list"]:
        assert f"${{{variable['name']}}}" in text or f"${variable['name']}" in text
        if variable["type"] == "query":
            check(variable["query"], known)
            found = LABELS_OF.fullmatch(variable["query"])
            assert found is not None
            assert found[2] == variable["name"]


@each
def test_panels_lie_beside_one_another(page: Json) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in page["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["description"].endswith(".")


def test_dashboards_are_there_only_when_asked_for(rendered: Rendered) -> None:
    assert not [one for one in rendered.all("ConfigMap") if "dashboard" in one["metadata"]["name"]]


def test_a_sidecar_finds_every_dashboard_as_it_is(helm: Helm) -> None:
    bodies = helm.template(
        "--set", "monitoring.dashboards.enabled=true",
        "--set", "monitoring.dashboards.annotations.grafana_folder=Ullage",
    )  # fmt: skip
    for path in FILES:
        body = bodies.one("ConfigMap", f"ullage-dashboard-{path.stem}")
        assert body["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert body["metadata"]["annotations"] == {"grafana_folder": "Ullage"}
        assert body["data"] == {f"ullage-{Path(path).name}": path.read_text("utf-8")}

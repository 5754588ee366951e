# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every alert has words, a runbook and cases, and reads metrics and labels that exist."""

from __future__ import annotations

import re
from typing import Final

import pytest
import yaml

from chart.promql import check, documented
from chart.rendered import CHART, ROOT, ChartRefused, Helm, Json, Rendered
from neighbours.alert_cases import CASES

RULES: Final[list[Json]] = [
    rule
    for group in yaml.safe_load((CHART / "rules" / "ullage.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
ALERTS: Final = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED: Final = {rule["record"] for rule in RULES if "record" in rule}
ON: Final = ("--set", "monitoring.prometheusRule.enabled=true")
each = pytest.mark.parametrize("alert", ALERTS)


def test_there_are_enough_alerts_and_no_name_stands_twice() -> None:
    assert len(ALERTS) >= 18
    assert len(ALERTS) == sum("alert" in rule for rule in RULES)


@each
def test_an_alert_says_what_happened_and_how_bad_it_is(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description"}
    assert all(text.endswith(".") for text in rule["annotations"].values())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_reads_metrics_and_labels_that_exist(rule: Json) -> None:
    said = str(rule.get("annotations", ""))
    shown = set(re.findall(r"\$labels\.(\w+)", said))
    check(rule["expr"], documented(), recorded=RECORDED, shown=shown)


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    page = (ROOT / "docs" / "runbooks.md").read_text("utf-8")
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == list(ALERTS)


def test_every_alert_has_cases_that_promtool_plays() -> None:
    assert list(CASES) == list(ALERTS)


def test_rules_are_there_only_when_asked_for(rendered: Rendered) -> None:
    assert not rendered.all("PrometheusRule")


def test_the_chart_gives_the_rules_as_they_are(helm: Helm) -> None:
    body = helm.template(*ON).one("PrometheusRule", "ullage")
    assert [rule for group in body["spec"]["groups"] for rule in group["rules"]] == RULES


def test_alerts_link_runbooks_carry_labels_and_can_be_left_out(helm: Helm) -> None:
    body = helm.template(
        *ON,
        "--set", "monitoring.prometheusRule.runbookURL=https://docs.example.org/runbooks",
        "--set", "monitoring.prometheusRule.alertLabels.team=gpu",
        "--set", "monitoring.prometheusRule.labels.release=prometheus",
        "--set", "monitoring.prometheusRule.disabledAlerts={UllageForeignPods}",
    ).one("PrometheusRule", "ullage")  # fmt: skip
    assert body["metadata"]["labels"]["release"] == "prometheus"
    rules = [rule for group in body["spec"]["groups"] for rule in group["rules"]]
    left = {rule["alert"]: rule for rule in rules if "alert" in rule}
    assert left.keys() == ALERTS.keys() - {"UllageForeignPods"}
    for name, rule in left.items():
        assert rule["labels"] == {"team": "gpu", **ALERTS[name]["labels"]}
        link = f"https://docs.example.org/runbooks#{name.lower()}"
        assert rule["annotations"]["runbook_url"] == link


def test_labels_of_the_values_win(helm: Helm) -> None:
    body = helm.template(*ON, "--set", "monitoring.prometheusRule.alertLabels.severity=info")
    rules = [
        rule
        for group in body.one("PrometheusRule", "ullage")["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert {rule["labels"]["severity"] for rule in rules} == {"info"}


def test_a_wrong_address_of_runbooks_is_refused(helm: Helm) -> None:
    with pytest.raises(ChartRefused, match="runbookURL"):
        helm.template(*ON, "--set", "monitoring.prometheusRule.runbookURL=docs#x")

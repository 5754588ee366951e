# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Grafana dashboards, from lists of panels. Pure: data in, JSON out.

``DASHBOARDS`` says what is shown; everything else is layout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

SCHEMA_VERSION: Final = 39
"""Of Grafana 10.4: newer ones read it."""
ACROSS: Final = 24
"""Columns of a dashboard."""
HEIGHT: Final = 8
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
PER_SECOND: Final = "[$__rate_interval]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture: queries by the legend of their series.

    ``unit`` is one of Grafana's; ``kind`` ``stat`` shows the newest value alone.
    """

    title: str
    says: str
    queries: Mapping[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One page; ``variables`` are labels to choose by, with the metric that has them."""

    title: str
    uid: str
    panels: Sequence[Panel]
    variables: Mapping[str, str] = field(default_factory=dict)
    of_leader: bool = True
    """It reads metrics of the operator. Every replica tells them, and the leader alone acts on what
    it sees: both together would count each device twice."""


OF_LEADER: Final = "and on (instance) (ullage_leader == 1)"
_READ: Final = re.compile(
    r"(?:(?:rate|increase)\()?\bullage_(?!leader\b)[a-z0-9_]+(?:\{[^}]*\})?(?:\[[^\]]*\]\))?"
)
"""A selector of ours, with the rate that is taken of it."""


def of_leader(query: str) -> str:
    """The query with every selector of ours narrowed to the replica that leads."""

    def narrowed(found: re.Match[str]) -> str:
        alone = query[: found.start()].endswith("(") and query[found.end() :].startswith(")")
        text = f"{found[0]} {OF_LEADER}"
        return text if alone else f"({text})"

    return _READ.sub(narrowed, query)


def _share(part: str, whole: str) -> str:
    return f"sum({part}) / clamp_min(sum({whole}), 1e-9)"


def _quantile(part: float, histogram: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    rate = f"sum by ({labels}) (rate({histogram}_bucket{PER_SECOND}))"
    return f"histogram_quantile({part}, {rate})"


_TIME: Final = "ullage_workload_device_seconds_total"
_OF: Final = 'workload_namespace=~"$workload_namespace"'

DASHBOARDS: Final[Mapping[str, Dashboard]] = {
    "cluster": Dashboard(
        title="Ullage / Cluster",
        uid="ullage-cluster",
        panels=(
            Panel(title="Devices", says="All devices that agents report.", kind="stat", width=4,
                  queries={"devices": "sum(ullage_devices)"}),
            Panel(title="Granted", says="Part of the healthy devices that is granted.",
                  kind="stat", width=4, unit="percentunit",
                  queries={"granted": _share("ullage_devices_granted",
                                             'ullage_devices{state!="Unhealthy"}')}),
            Panel(title="Waiting", says="Workloads that wait.", kind="stat", width=4,
                  queries={"waiting": 'sum(ullage_workloads{phase="Pending"}) or vector(0)'}),
            Panel(title="Objectives kept", says="Part of the judged windows of the last hour.",
                  kind="stat", width=4, unit="percentunit",
                  queries={"kept": 'sum(rate(ullage_slo_windows_total{result="kept"}[1h]))'
                                   " / sum(rate(ullage_slo_windows_total[1h]))"}),
            Panel(title="Cost per hour",
                  says="Of the devices that workloads hold now, in the currency of the prices.",
                  kind="stat", width=4, unit="none",
                  queries={"cost": "sum(ullage_job_cost_per_hour)"}),
            Panel(title="Leaders", says="One, or something is wrong.", kind="stat", width=4,
                  queries={"leaders": "sum(ullage_leader)"}),
            Panel(title="Granted and free", says="Devices of each type, and what is granted.",
                  queries={"{{accelerator}} granted":
                           "sum by (accelerator) (ullage_devices_granted)",
                           "{{accelerator}} healthy":
                           'sum by (accelerator) (ullage_devices{state!="Unhealthy"})'}),
            Panel(title="Devices by state", says="Free, shared, full or unhealthy.", stacked=True,
                  queries={"{{state}}": "sum by (state) (ullage_devices)"}),
            Panel(title="Why workloads wait", says="What binds, by reason.", stacked=True,
                  queries={"{{reason}}": "sum by (reason) (ullage_workloads_waiting)"}),
            Panel(title="Time to admission", says="Of workloads that were admitted.", unit="s",
                  queries={"median": _quantile(0.5, "ullage_workload_wait_seconds"),
                           "90 %": _quantile(0.9, "ullage_workload_wait_seconds")}),
            Panel(title="Slowdown, 90 % of windows",
                  says="What was predicted beside what was observed.", unit="none",
                  queries={"predicted {{accelerator}}":
                           _quantile(0.9, "ullage_predicted_slowdown_ratio", "accelerator"),
                           "observed {{accelerator}}":
                           _quantile(0.9, "ullage_observed_slowdown_ratio", "accelerator")}),
            Panel(title="Coverage of the 90 % bound",
                  says="Part of recent windows below their bound; 0.9 is right.",
                  unit="percentunit",
                  queries={"{{group}}": "min by (group) (ullage_prediction_coverage_ratio)"}),
            Panel(title="Decision time", says="Of whole cycles.", unit="s",
                  queries={"median": _quantile(0.5, "ullage_decision_seconds"),
                           "99 %": _quantile(0.99, "ullage_decision_seconds")}),
            Panel(title="Writes", says="Requests that write, by how they ended.", unit="reqps",
                  queries={"{{result}}":
                           f"sum by (result) (rate(ullage_writes_total{PER_SECOND}))"}),
            Panel(title="Slices", says="By phase; unproven shares and leaked slices.",
                  queries={"{{phase}}": "sum by (phase) (ullage_slices)",
                           "unproven": "max(ullage_slices_unproven)",
                           "leaked": "max(ullage_slices_undesired)"}),
        ),
    ),
    "efficiency": Dashboard(
        title="Ullage / Efficiency",
        uid="ullage-efficiency",
        variables={"workload_namespace": "ullage_workload_device_seconds_total"},
        panels=(
            Panel(title="Used", says="Part of the allocated and measured device time.",
                  kind="stat", width=6, unit="percentunit",
                  queries={"used": _share(f'rate({_TIME}{{{_OF},state="used"}}[1h])',
                                          f'rate({_TIME}{{{_OF},state=~"used|wasted"}}[1h])')}),
            Panel(title="Wasted devices", says="Devices' worth of time that is not used.",
                  kind="stat", width=6, unit="none",
                  queries={"wasted": f'sum(rate({_TIME}{{{_OF},state="wasted"}}[1h]))'}),
            Panel(title="Idle devices", says="Held for half an hour without any use.",
                  kind="stat", width=6, unit="none",
                  queries={"idle": "sum(ullage_efficiency_explained_devices"
                                   f'{{{_OF},rule="Idle"}}) or vector(0)'}),
            Panel(title="Workloads with findings", says="By rule, overlapping.",
                  kind="stat", width=6, unit="none",
                  queries={"{{rule}}": f"sum by (rule) (ullage_efficiency_findings{{{_OF}}})"}),
            Panel(title="Device time", says="Devices' worth of it, by what became of it.",
                  unit="none", stacked=True, width=12,
                  queries={"{{state}}":
                           f"sum by (state) (rate({_TIME}{{{_OF}}}{PER_SECOND}))"}),
            Panel(title="Wasted, by namespace", says="Devices' worth of time.", unit="none",
                  stacked=True, width=12,
                  queries={"{{workload_namespace}}": "sum by (workload_namespace) (rate("
                           f'{_TIME}{{{_OF},state="wasted"}}{PER_SECOND}))'}),
            Panel(title="What findings would free", says="Devices, by rule; rules overlap.",
                  unit="none", width=12,
                  queries={"{{rule}}": "sum by (rule) (ullage_efficiency_explained_devices"
                                       f"{{{_OF}}})"}),
            Panel(title="Findings, by namespace", says="Workloads with any finding of a rule.",
                  unit="none", width=12,
                  queries={"{{workload_namespace}} {{rule}}":
                           "sum by (workload_namespace, rule) (ullage_efficiency_findings"
                           f"{{{_OF}}})"}),
        ),
    ),
    "tenants": Dashboard(
        title="Ullage / Tenants",
        uid="ullage-tenants",
        variables={"tenant": "ullage_workload_wait_seconds_count"},
        panels=(
            Panel(title="Time to admission, 90 %", says="By what workloads waited for last.",
                  unit="s", width=12,
                  queries={"{{tenant}}: {{reason}}":
                           "histogram_quantile(0.9, sum by (le, tenant, reason) (rate("
                           'ullage_workload_wait_seconds_bucket{tenant=~"$tenant"}'
                           f"{PER_SECOND})))"}),
            Panel(title="Objectives kept", says="Part of the judged windows, by namespace.",
                  unit="percentunit", width=12,
                  queries={"{{workload_namespace}}":
                           "sum by (workload_namespace) (rate(ullage_slo_windows_total"
                           f'{{result="kept"}}{PER_SECOND})) / sum by (workload_namespace)'
                           f" (rate(ullage_slo_windows_total{PER_SECOND}))"}),
            Panel(title="Cost per hour",
                  says="Of the devices that workloads hold now, in the currency of the prices.",
                  unit="none", stacked=True,
                  queries={"{{tenant}}": 'ullage_job_cost_per_hour{tenant=~"$tenant"}'}),
            Panel(title="Saved against on-demand", says="Part of the on-demand cost.",
                  unit="percentunit",
                  queries={"{{tenant}}": 'ullage_job_savings_ratio{tenant=~"$tenant"}'}),
            Panel(title="Work lost", says="Seconds of work that losses took, per second.",
                  unit="none",
                  queries={"{{tenant}}": "rate(ullage_job_lost_work_seconds_total"
                                         f'{{tenant=~"$tenant"}}{PER_SECOND})'}),
            Panel(title="Quota used", says="Devices that tenants hold, beside their nominal quota;"
                  " above it they borrow.", unit="none",
                  queries={"{{tenant}}: {{accelerator}}":
                           'ullage_tenant_quota_used_devices{tenant=~"$tenant"}',
                           "{{tenant}}: {{accelerator}}, nominal":
                           'ullage_tenant_quota_devices{tenant=~"$tenant"}'}),
            Panel(title="Time promised", says="Parts of a type, by tenant.", unit="none",
                  queries={"{{tenant}}: {{accelerator}}":
                           'ullage_allocation_ratio{tenant=~"$tenant"}'}),
            Panel(title="Time received", says="Parts of a type since creation.", unit="none",
                  queries={"{{tenant}}: {{accelerator}}":
                           'ullage_received_ratio{tenant=~"$tenant"}'}),
            Panel(title="Deadlines", says="Jobs with a deadline, by whether it will be kept.",
                  stacked=True, queries={"kept: {{kept}}": "ullage_job_deadlines"}),
        ),
    ),
    "node": Dashboard(
        title="Ullage / Node",
        uid="ullage-node",
        variables={"node": "ullage_device_granted_ratio"},
        of_leader=False,
        panels=(
            Panel(title="Granted", says="Part of each device; the rest is headroom.",
                  unit="percentunit",
                  queries={"{{node}} GPU {{gpu}}": 'ullage_device_granted_ratio{node=~"$node"}'}),
            Panel(title="Memory", says="Given to slices, and used by their containers.",
                  unit="bytes",
                  queries={"GPU {{gpu}} {{kind}}": 'ullage_device_memory_bytes{node=~"$node"}'}),
            Panel(title="Busy", says="Time in which any kernel ran.", unit="percentunit",
                  queries={"GPU {{gpu}}": 'ullage_device_busy_ratio{node=~"$node"}'}),
            Panel(title="Health", says="1 = the device may be used.", unit="none",
                  queries={"GPU {{gpu}}": 'ullage_device_health{node=~"$node"}'}),
            Panel(title="MPS servers", says="State of each device's server.", unit="none",
                  queries={"GPU {{gpu}} {{state}}":
                           'ullage_mps_server_state{node=~"$node"} == 1'}),
            Panel(title="MPS clients", says="Of each device's server.",
                  queries={"GPU {{gpu}}": 'ullage_mps_clients{node=~"$node"}'}),
            Panel(title="Pauses by the guard", says="Of best-effort neighbours, by how they ended.",
                  queries={"{{node}} {{result}}": "sum by (node, result) (increase("
                           f'ullage_guard_freezes_total{{node=~"$node"}}{PER_SECOND}))'}),
            Panel(title="Windows judged", says="Of tenants with an objective, by verdict.",
                  queries={"{{node}} {{verdict}}": "sum by (node, verdict) (increase("
                           f'ullage_guard_windows_total{{node=~"$node"}}{PER_SECOND}))'}),
            Panel(title="Starts refused", says="Containers, by reason.",
                  queries={"{{node}} {{reason}}": "sum by (node, reason) (increase("
                           f'ullage_node_refusals_total{{node=~"$node"}}{PER_SECOND}))'}),
            Panel(title="Power", says="That each device draws.", unit="watt",
                  queries={"GPU {{gpu}}": 'ullage_device_power_watts{node=~"$node"}'}),
            Panel(title="Faults", says="Xids that the driver told of.",
                  queries={"GPU {{gpu}} Xid {{xid}}": "increase(ullage_node_device_faults_total"
                           f'{{node=~"$node"}}{PER_SECOND})'}),
            # other processes on a node have the same metric; the agent alone has the second one
            Panel(title="Memory of the agent", says="Resident.", unit="bytes",
                  queries={"{{node}}": 'process_resident_memory_bytes{node=~"$node"} '
                           "and on (instance) ullage_node_interrupted"}),
        ),
    ),
}  # fmt: skip


def dashboard_files() -> dict[str, str]:
    """Every dashboard: path below the repository's root -> JSON."""
    return {
        f"charts/ullage/dashboards/{name}.json": json.dumps(page(one), indent=1) + "\n"
        for name, one in DASHBOARDS.items()
    }


def page(dashboard: Dashboard) -> dict[str, object]:
    """A dashboard as Grafana imports it."""
    return {
        "title": dashboard.title,
        "uid": dashboard.uid,
        "tags": ["ullage"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables(dashboard.variables))},
        "panels": list(_placed(dashboard)),
    }


def _variables(labels: Mapping[str, str]) -> Iterable[dict[str, object]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource",
           "query": "prometheus"}  # fmt: skip
    for label, metric in labels.items():
        yield {
            "name": label,
            "type": "query",
            "datasource": DATASOURCE,
            "query": f"label_values({metric}, {label})",
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _placed(dashboard: Dashboard) -> Iterable[dict[str, object]]:
    """Panels from left to right, a new row where one is full."""
    left = top = 0
    narrow = of_leader if dashboard.of_leader else str
    for number, panel in enumerate(dashboard.panels, start=1):
        height = HEIGHT // 2 if panel.kind == "stat" else HEIGHT
        if left + panel.width > ACROSS:
            left, top = 0, top + HEIGHT
        place = {"x": left, "y": top, "w": panel.width, "h": height}
        left += panel.width
        yield _panel(number, panel, place, narrow)


def _panel(
    number: int, panel: Panel, place: Mapping[str, int], narrow: Callable[[str], str]
) -> dict[str, object]:
    custom: dict[str, object] = {"fillOpacity": 10}
    if panel.stacked:
        custom = {"fillOpacity": 30, "stacking": {"mode": "normal"}}
    options = {} if panel.kind == "timeseries" else {"reduceOptions": {"calcs": ["lastNotNull"]}}
    return {
        "id": number,
        "title": panel.title,
        "description": panel.says,
        "type": panel.kind,
        "datasource": DATASOURCE,
        "gridPos": dict(place),
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                **({"custom": custom} if panel.kind == "timeseries" else {}),
            },
            "overrides": [],
        },
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": DATASOURCE,
                "expr": narrow(query),
                "legendFormat": legend,
            }
            for at, (legend, query) in enumerate(panel.queries.items())
        ],
    }

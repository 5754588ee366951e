# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reference pages are made of: settings and metrics of operator and node agent.

Metrics are read from the real collectors over one example of everything, in the words a Prometheus
sees. The agent is asked in a process of its own: the operator's packages never import it.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ullage.api.contract import JsonObject, objects, text
from ullage.app.settings import SECTIONS, Settings, variables
from ullage.cluster.records.pool import CapacityType, PoolRecord, PoolStatus
from ullage.metrics.collector import (
    OperatorCollector,
    OperatorFigures,
    SectionGuard,
    StreamFigures,
)
from ullage.metrics.cost import CostFigures
from ullage.metrics.devices import DeviceFigures
from ullage.metrics.histograms import (
    decision_seconds,
    division_seconds,
    observed_slowdown,
    predicted_slowdown,
)
from ullage.metrics.pools import PoolFigures
from ullage.metrics.sharing import ModelFigures, SharingFigures
from ullage.metrics.spending import SpendFigures
from ullage.metrics.tiers import TierFigures
from ullage.metrics.turns import TurnFigures

AGENT: Final = "ullage_node.reference"
OPERATOR_SETTINGS: Final = "operator/ullage/app/settings.py"
AGENT_SETTINGS: Final = "deviceplugin/ullage_node/settings.py"
WORDS: Final = {str: "text", int: "whole number", float: "number"}
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

Texts = Mapping[tuple[str, str], str]
"""Docstring of an attribute, by class and field."""


class FactsMissing(Exception):
    """A setting or a metric does not say what it is; the text names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One environment variable."""

    variable: str
    kind: str
    """text, path, number, whole number, true or false, or one of."""
    choices: Sequence[str]
    default: str | None
    """As it would stand in the environment; None = required."""
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFact:
    """One family as Prometheus names it."""

    name: str
    kind: str
    labels: Sequence[str]
    meaning: str


def attribute_texts(source: Path) -> Texts:
    """The docstrings under the annotated fields of every class of a file."""
    found: dict[tuple[str, str], str] = {}
    for owner in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(owner, ast.ClassDef):
            for field, after in pairwise(owner.body):
                words = _words(after)
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and words
                ):
                    found[owner.name, field.target.id] = words
    return found


def operator_settings(root: Path) -> list[Setting]:
    """Every setting of the operator, in the order of its code.

    Raises:
        FactsMissing: a field has no docstring.
    """
    texts = attribute_texts(root / OPERATOR_SETTINGS)
    rows: list[Setting] = []
    for variable, (section, field, kind) in variables().items():
        owner = SECTIONS[section] if section else Settings
        levels = LOG_LEVELS if field == "log_level" else ()
        rows.append(
            Setting(
                variable=variable,
                kind="one of" if levels else WORDS[kind],
                choices=levels,
                default=str(getattr(owner(), field)),
                meaning=_meaning(texts, owner.__name__, field),
            )
        )
    return rows


def operator_metrics() -> list[MetricFact]:
    """Every metric of the operator."""
    registry = CollectorRegistry(auto_describe=False)
    guard = SectionGuard()
    guard.failures["cost"] = 1
    registry.register(OperatorCollector(_example, guard))
    return metric_facts(generate_latest(registry).decode())


def agent_facts(root: Path) -> tuple[list[Setting], list[MetricFact]]:
    """Settings and metrics of the node agent.

    Raises:
        FactsMissing: the agent could not be asked, or a field has no docstring.
    """
    command = [sys.executable, "-m", AGENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FactsMissing(f"{' '.join(command)} failed:\n{done.stderr}")
    answer: JsonObject = json.loads(done.stdout)
    texts = attribute_texts(root / AGENT_SETTINGS)
    settings = [_agent_setting(row, texts) for row in objects(answer, "settings")]
    return settings, metric_facts(text(answer, "metrics"))


def metric_facts(exposition: str) -> list[MetricFact]:
    """The families of a scrape, sorted by name.

    Raises:
        FactsMissing: a family has no sample, so that its labels are unknown, or no text.
    """
    families = [f for f in text_string_to_metric_families(exposition) if not _birth(f)]
    for family in families:
        if not (family.samples and family.documentation):
            raise FactsMissing(f"metric {family.name} needs a text and an example")
    return sorted((_fact(family) for family in families), key=lambda fact: fact.name)


def _fact(family: Metric) -> MetricFact:
    labels = {label for sample in family.samples for label in sample.labels} - {"le"}
    total = "_total" if family.type == "counter" else ""
    return MetricFact(
        name=family.name.removesuffix(total) + total,
        kind=family.type,
        labels=sorted(labels),
        meaning=family.documentation,
    )


def _birth(family: Metric) -> bool:
    """Whether a family only says since when another one counts."""
    return family.type == "gauge" and family.name.endswith("_created")


def _agent_setting(row: JsonObject, texts: Texts) -> Setting:
    choices = row["choices"]
    return Setting(
        variable=text(row, "variable"),
        kind=text(row, "kind"),
        choices=[str(choice) for choice in choices] if isinstance(choices, list) else [],
        default=None if row["default"] is None else text(row, "default"),
        meaning=_meaning(texts, text(row, "owner"), text(row, "field")),
    )


def _meaning(texts: Texts, owner: str, field: str) -> str:
    try:
        return texts[owner, field]
    except KeyError:
        raise FactsMissing(f"{owner}.{field} has no docstring") from None


def _words(node: ast.stmt) -> str:
    """The text of a docstring, in one line; empty = the statement is none."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""


def _example() -> OperatorFigures:
    """One of everything, so that every family shows its labels."""
    stream = StreamFigures(name="pods", age_s=0.0, objects=0, relists=0, drift=0, errors=0)
    return OperatorFigures(
        leading=True,
        epoch=1,
        loop_lag_s=0.0,
        streams=[stream],
        decision_seconds=decision_seconds(),
        timeouts=0,
        crashes=0,
        pokes=Counter(pods=1),
        skipped=Counter({"not-leading": 1}),
        failed=Counter(SolverTimeout=1),
        decision_age_s=0.0,
        actions=Counter(CreatePod=1),
        writes={("create", "Pod", "ok"): 1},
        queue_depth=0,
        fenced=0,
        assumed=0,
        assume_expired=0,
        projection_errors={"pods": 1},
        task_failures={"pools": 1},
        set_aside={"workloads": 1},
        faults={"workloads": 1},
        foreign_pods=0,
        workloads={("TrainingJob", "Running"): 1},
        waiting={"NoCapacity": 1},
        requeues={"Capacity": 1},
        sharing=_sharing_example(),
        cost=CostFigures(
            dollars={"research": 1.0},
            evictions={"research": 1.0},
            lost_seconds={"research": 1.0},
            per_hour={"research": 1.0},
            savings={"research": 0.5},
        ),
        tiers=TierFigures(stages={2: 1}, most_lag=1, lost_steps=2),
        spend=SpendFigures(
            cost_per_work={"research": 1.0}, switches={"Spot": 1}, deadlines={"yes": 1}
        ),
        turns=TurnFigures(
            allocation={("emulated", "research"): 1.0},
            received={("emulated", "research"): 1.0},
            deficit={("emulated", "research"): 1.0},
            preemptions={"turn": 1},
            divisions=division_seconds(),
        ),
        pools=_pools_example(),
        devices=DeviceFigures(errors={("emulated", "Estimated"): 0.1}, regrets={"emulated": 1.0}),
    )


def _pools_example() -> PoolFigures:
    pool = PoolRecord(
        name="spot-a",
        instance_type="p3.2xlarge",
        zone="us-east-1a",
        capacity_type=CapacityType.SPOT,
        accelerator="tesla-v100-sxm2-16gb",
        status=PoolStatus(price=1.0, hazard_per_hour=0.1, nodes=1),
    )
    return PoolFigures(pools=(pool,), answers={"read": 1})


def _sharing_example() -> SharingFigures:
    predicted, observed = predicted_slowdown(), observed_slowdown()
    for slowdown in (predicted, observed):
        slowdown.labels("emulated")
    return SharingFigures(
        decisions={("admitted", "Placed", "G1"): 1},
        predicted=predicted,
        observed=observed,
        coverage={"G1": 0.9},
        error=0.1,
        violations={"neighbours": 1},
        probation_seconds=0.0,
        unusable={"Share": 1},
        profiles=1,
        models={"emulated": ModelFigures(rung=3, rows=1, version=1, failing=False)},
        lessons={"done": 1},
        learning_seconds=0.0,
    )

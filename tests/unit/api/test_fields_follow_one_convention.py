# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Units and times of all fields are written alike, as the head of the API reference says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from docs.generate.crds.pages import CONVENTIONS

CRDS: Final = [
    yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    for file in sorted((Path(__file__).parents[3] / "crds").glob("*.yaml"))
]
Node = Mapping[str, Any]

SPANS: Final = frozenset(
    {
        "deadline",
        "estimatedWork",
        "maxTime",
        "decisionPeriod",
        "minHold",
        "hazardHalfLife",
        "replaceAfter",
    }
)
"""Fields that people plan with: durations such as 60h."""
DURATION: Final = r"^([0-9]+(\.[0-9]+)?(h|m|s))+$"
MOMENT: Final = re.compile(
    r"^(at|time|since|until|before|eta|asOf|updated|resumes|heartbeat|lastUsed|nextDecision"
    r"|faultsCountedTo|[a-z]\w*(At|Time|Since|Updated))$"
)
SPAN_WITH_UNIT: Final = re.compile(r"^(seconds|\w+(Seconds|Ms|Micros|Hours)(PerClass)?)$")
OTHER_UNITS: Final = re.compile(r"(Sec|Secs|Millis|Minutes|Mins|Days|Pct|Mb|MB|Gb|GB|Duration)$")
PERCENT: Final = re.compile(r"^(percent|\w+Percent(Sum)?)$")
TABLES: Final = ("WorkloadProfile.", "DeviceProfile.", "GPUNode.status.observations[].")
"""Rows that programs write for programs: plain numbers."""
EXCEPTIONS: Final[Mapping[str, str]] = {
    "GPUNode.status.interruption.deadline": "the moment at which the machine goes",
    "GPUNode.status.observations[].at": "rows are many: seconds since the epoch",
}


def fields(kind: str, node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """Every field below a schema with its path."""
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from fields(kind, child, f"{path}.{name}")
    if "items" in node:
        yield from fields(kind, node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from fields(kind, node["additionalProperties"], f"{path}{{}}")


def all_fields() -> Iterator[tuple[str, Node]]:
    for crd in CRDS:
        kind = crd["spec"]["names"]["kind"]
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            yield from fields(kind, schema["properties"][part], f"{kind}.{part}")


def faults(path: str, node: Node) -> list[str]:
    """What a field writes otherwise than the others."""
    if path in EXCEPTIONS or ".template." in path:
        return []
    name, kind = path.rpartition(".")[2].strip("[]{}"), node.get("type")
    table = path.startswith(TABLES)
    decimal = kind == "string" and "[0-9]" in node.get("pattern", "")
    rules = {
        "has no description": bool(node.get("description")),
        "is a list without a type": kind != "array" or "x-kubernetes-list-type" in node,
        "is a plain number": kind != "number" or table,
        "is a span that people plan with": (name in SPANS) == (node.get("pattern") == DURATION),
        "is a moment": kind not in ("string", "integer", "number")
        or (node.get("format") == "date-time") == bool(MOMENT.match(name) and name not in SPANS),
        "is a span with its unit": kind == "array"
        or not SPAN_WITH_UNIT.match(name)
        or kind in ("integer", "object")
        or (decimal and node.get("pattern") != DURATION)
        or (kind == "number" and table),
        "has a unit that no other has": kind == "array" or not OTHER_UNITS.search(name),
        "is a percent": not PERCENT.match(name)
        or (kind == "integer" and node.get("minimum", -1) >= 0),
        "is memory": not name.endswith("MiB") or kind == "integer",
        "is for rows alone": not name.endswith("Permille") or path.startswith(TABLES[2]),
    }
    return [f"{path}: {rule}" for rule, holds in rules.items() if not holds]


def test_every_field_follows_the_convention() -> None:
    shown = list(all_fields())
    assert len(shown) > 600
    assert [fault for path, node in shown for fault in faults(path, node)] == []


def test_exceptions_and_spans_exist_and_are_told() -> None:
    paths = dict(all_fields())
    assert set(EXCEPTIONS) <= paths.keys()
    names = {path.rpartition(".")[2] for path in paths}
    assert names >= SPANS
    page = "\n".join(CONVENTIONS)
    assert {span for span in SPANS if f"`{span}`" not in page} == set()
    assert "deadline` is a span" in page


def test_every_column_says_what_it_shows() -> None:
    for crd in CRDS:
        for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]:
            assert column.get("description"), (crd["spec"]["names"]["kind"], column["name"])


def told(**node: object) -> dict[str, object]:
    return {"type": "integer", "minimum": 0, "description": "Says it."} | node


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("TrainingJob.spec.graceSeconds", told(description="")),
        ("TrainingJob.spec.names", told(type="array", items={"type": "string"})),
        ("TrainingJob.spec.speed", told(type="number")),
        ("TrainingJob.spec.deadline", told()),
        ("TrainingJob.spec.graceSeconds", told(type="string", pattern=DURATION)),
        ("TrainingJob.spec.patience", told(type="string", pattern=DURATION)),
        ("TrainingJob.status.startTime", told()),
        ("TrainingJob.status.started", told(type="string", format="date-time")),
        ("TrainingJob.spec.graceSecs", told()),
        ("TrainingJob.spec.waitMinutes", told()),
        ("TrainingJob.spec.graceSeconds", told(type="string")),
        ("TrainingJob.spec.minPercent", told(type="string")),
        ("TrainingJob.spec.minPercent", {"type": "integer", "description": "Says it."}),
        ("TrainingJob.spec.memoryMiB", told(type="string")),
        ("TrainingJob.status.smPermille", told()),
    ],
)
def test_a_field_that_is_written_otherwise_is_found(path: str, node: Node) -> None:
    assert faults(path, node)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What was seen while one rule ran, and the file it is kept in, so that judging can be repeated.

Nothing is judged here. Times are seconds since the rule's first arrival.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.mixed_plan import Arrival, Plan
from ullage.api.readers import objects, section, text, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The step record of one running container, with what its workload's status said then."""

    at_s: float
    name: str
    pod: str
    """uid: a restart is another pod."""
    steps: int
    busy_ns: int
    percent: int = 0
    predicted: float = 0.0
    """Median slowdown in ``status.sharing``, 0 = none."""
    upper: float = 0.0
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How long a fixed piece of work took on the core of a node's device, before all others."""

    at_s: float
    node: str
    unit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; ``latency_s`` from the moment it was due, ``None`` = not answered well."""

    due_s: float
    latency_s: float | None


@dataclass(slots=True, kw_only=True)
class Recording:
    """Everything seen under one rule. ``looks_s`` holds the times at which was looked."""

    rule: str
    plan: Plan
    looks_s: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    finished_s: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a job that never ran waited, as last told."""
    load: list[float] = field(default_factory=list)
    """The machine's load average at every look."""
    speeds: list[Speed] = field(default_factory=list)
    """Empty where no speed was measured."""

    def save(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load_from(cls, path: Path) -> Recording:
        """Read the file.

        Raises:
            SystemExit: it is not there or holds something else; the text says what to do.
        """
        try:
            raw = section({"file": json.loads(path.read_text(encoding="utf-8"))}, "file")
            return cls(
                rule=text(raw, "rule"),
                plan=_plan(section(raw, "plan")),
                looks_s=_numbers(raw, "looks_s"),
                readings=[_reading(one) for one in objects(raw, "readings")],
                requests=[_request(one) for one in objects(raw, "requests")],
                finished_s={k: _number(v) for k, v in section(raw, "finished_s").items()},
                failed=[str(one) for one in _list(raw, "failed")],
                reasons={k: str(v) for k, v in section(raw, "reasons").items()},
                load=_numbers(raw, "load"),
                speeds=[_speed(one) for one in objects(raw, "speeds")],
            )
        except (OSError, ValueError, KeyError) as error:
            raise SystemExit(f"{path}: {error}; run make bench-mixed first") from error


def _plan(raw: Mapping[str, object]) -> Plan:
    return Plan(
        seed=whole(raw, "seed"),
        seconds=_number(raw["seconds"]),
        jobs=tuple(
            Arrival(
                at_s=_number(one["at_s"]),
                name=text(one, "name"),
                workload_class=text(one, "workload_class"),
                steps=whole(one, "steps"),
                max_slowdown=_optional(one["max_slowdown"]),
            )
            for one in objects(raw, "jobs")
        ),
        requests_s=tuple(_numbers(raw, "requests_s")),
        service_latency_ms=whole(raw, "service_latency_ms"),
    )


def _reading(raw: Mapping[str, object]) -> Reading:
    return Reading(
        at_s=_number(raw["at_s"]),
        name=text(raw, "name"),
        pod=text(raw, "pod"),
        steps=whole(raw, "steps"),
        busy_ns=whole(raw, "busy_ns"),
        percent=whole(raw, "percent"),
        predicted=_number(raw["predicted"]),
        upper=_number(raw["upper"]),
        node=text(raw, "node", ""),
    )


def _speed(raw: Mapping[str, object]) -> Speed:
    return Speed(at_s=_number(raw["at_s"]), node=text(raw, "node"), unit_s=_number(raw["unit_s"]))


def _request(raw: Mapping[str, object]) -> Request:
    return Request(due_s=_number(raw["due_s"]), latency_s=_optional(raw["latency_s"]))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _optional(value: object) -> float | None:
    return None if value is None else _number(value)


def _list(raw: Mapping[str, object], name: str) -> list[object]:
    found = raw.get(name)
    if not isinstance(found, list):
        raise ValueError(f"{name} is no list")
    return found


def _numbers(raw: Mapping[str, object], name: str) -> list[float]:
    return [_number(one) for one in _list(raw, name)]

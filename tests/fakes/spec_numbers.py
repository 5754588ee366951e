# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The numbers of every spec, their largest values, and what decisions cost with them.

Numbers are found in the CRDs, so that a new field is tried without a word here. Cost is a count of
lines that the deciding code runs, the same on every machine and under any load.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import FrameType
from typing import Any, Final

import yaml

import builders
from bench.report import ROOT
from bench.wild import real
from fakes.toy_cluster import ToyCluster
from fakes.toy_world import Shape
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams
from ullage.cluster.values.streams import Stream
from ullage.engines.allocation.policies import allocate
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.tuning.step import Around, next_step

Json = dict[str, Any]
Path = tuple[str, ...]
"""Steps from the spec down; ``[]`` = the first of a list, ``{}`` = the first of a mapping."""

STREAMS: Final[Mapping[str, Stream]] = {
    "TrainingJob": streams.TRAINING_JOBS,
    "InferenceDeployment": streams.INFERENCE_DEPLOYMENTS,
    "TuningJob": streams.TUNING_JOBS,
    "WorkloadProfile": streams.WORKLOAD_PROFILES,
    "SchedulingPolicy": streams.SCHEDULING_POLICIES,
    "CapacityPool": streams.CAPACITY_POOLS,
    "DeviceProfile": streams.DEVICE_PROFILES,
    "GPUNode": streams.GPU_NODES,
}
TEXTS: Final = (
    "9999999999999999Pi",
    "9999999999Pi",
    "9999999999",
    "999999999.999999",
    "99999999h",
    "9999.9999",
    "99999",
    "999.99",
    "99.999",
    "99.9",
    "0.99",
    "0.999999",
    "1.0",
    "1",
)
"""Numbers as texts, the largest first."""
ROUNDS: Final = 3
"""Decisions that are looked at, each with what the one before did."""
START: Final = 1_767_330_000.0
OTHERS: Final = 24
"""Jobs of others that run."""
NODES: Final = 24


@dataclass(frozen=True, slots=True)
class Number:
    """A field of a spec that holds a number, and the largest that its schema takes."""

    kind: str
    path: Path
    most: int | float | str

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(self.path)}={self.most}"


@cache
def spec_schemas() -> Mapping[str, Json]:
    """Schema of the spec of each kind."""
    found: dict[str, Json] = {}
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        crd = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        found[crd["spec"]["names"]["kind"]] = schema["properties"]["spec"]
    return found


def numbers_of(kind: str) -> tuple[Number, ...]:
    """Every number of a kind's spec."""
    return tuple(Number(kind, path, most) for path, most in _numbers(spec_schemas()[kind], ()))


def _numbers(schema: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, int | float | str]]:
    if schema.get("type") in ("integer", "number"):
        size = 2**31 - 1 if schema.get("format") == "int32" else 2**53
        yield path, schema.get("maximum", size)
    elif (most := _largest_text(schema)) is not None:
        yield path, most
    for name, inner in schema.get("properties", {}).items():
        yield from _numbers(inner, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from _numbers(schema["items"], (*path, "[]"))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _numbers(schema["additionalProperties"], (*path, "{}"))


def _largest_text(schema: Mapping[str, Any]) -> str | None:
    """The largest number that a text may be; ``None`` = it is not a number."""
    pattern = schema.get("pattern", "")
    is_text = schema.get("type") == "string" or schema.get("x-kubernetes-int-or-string")
    if not is_text or not pattern or re.search(pattern, "a"):
        return None
    most = schema.get("maxLength", 64)
    return next((text for text in TEXTS if len(text) <= most and re.search(pattern, text)), None)


def with_number(body: Json, path: Path, value: object) -> Json | None:
    """A copy of an object with another number; ``None`` = it has no such place."""
    if _place(body, path) is None:
        return None
    found = copy.deepcopy(body)
    holder, key = _place(found, path) or ({}, "")
    holder[key] = value
    return found


def _place(body: Json, path: Path) -> tuple[Any, int | str] | None:
    """The list or mapping that holds a number, and its key there."""
    at: Any = body["spec"]
    for step in path[:-1]:
        at = _inside(at, step)
    last = path[-1]
    if last == "[]":
        return (at, 0) if isinstance(at, list) and at else None
    if last == "{}":
        return (at, next(iter(at))) if isinstance(at, dict) and at else None
    return (at, last) if isinstance(at, dict) else None


def _inside(at: Any, step: str) -> Any:
    if step == "[]":
        return at[0] if isinstance(at, list) and at else None
    if step == "{}":
        return next(iter(at.values()), None) if isinstance(at, dict) else None
    return at.get(step) if isinstance(at, dict) else None


_OF_ALL: Final = ("SchedulingPolicy", "CapacityPool", "DeviceProfile", "GPUNode")
"""Kinds without a namespace."""
_WIDE: Final[Json] = {
    "kind": "TrainingJob",
    "spec": {
        "elasticity": {"minReplicas": 1, "maxReplicas": 2},
        "gpu": {"mode": "Fractional", "share": {"minPercent": 1, "maxPercent": 100}},
        "checkpoint": {"graceSeconds": 5},
        "data": {"io": {"maxWorkers": 2}},
        "template": {"spec": {"containers": [{"name": "main", "image": "example/none:1"}]}},
    },
}
"""An elastic gang that any device has room for."""
_RARE: Final[Mapping[str, Json]] = {
    "SchedulingPolicy": {
        "kind": "SchedulingPolicy",
        "spec": {"reconsider": {"minSavingsPercent": 25, "holdSeconds": 600}},
    },
}
"""Objects with numbers that no golden manifest has."""
_FAILURES: Final[Json] = {"maxRestarts": 1, "retryExitCodes": [1]}


@cache
def bases(kind: str) -> tuple[Json, ...]:
    """Objects of a kind that the API server takes, free to run on any device."""
    golden = [body for body in real()[STREAMS[kind]] if "spec" in body]
    own = [_WIDE] if kind == "TrainingJob" else []
    rare = [_RARE[kind]] if kind in _RARE else []
    if kind == "TuningJob":
        path = ("trialTemplate", "failurePolicy")
        rare = [one for body in golden[:1] if (one := with_number(body, path, _FAILURES))]
    return tuple(_placed(kind, body) for body in (*own, *golden, *rare))


def _placed(kind: str, body: Mapping[str, Any]) -> Json:
    found = copy.deepcopy({name: part for name, part in body.items() if name != "status"})
    found["spec"].pop("accelerators", None)
    found["metadata"] = {
        "name": "default" if kind == "SchedulingPolicy" else "wide",
        "uid": "uid-wide",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        **({} if kind in _OF_ALL else {"namespace": "tenant-a"}),
    }
    return found


def base_of(numbers: Sequence[Number]) -> Json | None:
    """The first object that has a place for all these numbers; ``None`` = there is none."""
    return next(
        (
            body
            for body in bases(numbers[0].kind)
            if all(_place(body, number.path) for number in numbers)
        ),
        None,
    )


def largest(body: Json, numbers: Sequence[Number]) -> Json | None:
    """A copy with the largest values of these numbers; ``None`` = it has no place for one."""
    found: Json | None = body
    for number in numbers:
        found = with_number(found, number.path, number.most) if found is not None else None
    return found


# -- cost ------------------------------------------------------------------------------------------


class Lines:
    """Counts the lines that the operator's code runs."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        self.count += 1
        return self._line if "ullage" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        self.count += 1
        return self._line


@cache
def _busy() -> ToyCluster:
    """A cluster on which others run, made once and copied."""
    shape = Shape(nodes=NODES, devices=2, contexts=8, memory_mib=81_920)
    toy = ToyCluster(1, shape)
    for at in range(OTHERS):
        team = f"team-{at % 10}"
        toy.add(
            builders.a_job(f"other-{at}", team).fractional(20, 40).with_(created=toy.now).build()
        )
    for _ in range(6):
        _decided(toy, {})
    assert sum(bool(pod.node) for pod in toy.pods.values()) == OTHERS
    return toy


def _decided(toy: ToyCluster, beside: Mapping[str, Any], lines: Lines | None = None) -> None:
    """One decision that is carried out, and the world moves."""
    snapshot = toy.snapshot()
    both = {"gpu_nodes": {**snapshot.gpu_nodes, **beside.get("gpu_nodes", {})}}
    snapshot = replace(snapshot, **{**beside, **both})
    if lines is None:
        plan = decide(snapshot, toy.now, DecideSettings(epoch=1), allocate)
        actions = diff(plan, snapshot)
    else:
        with lines:
            plan = decide(snapshot, toy.now, DecideSettings(epoch=1), allocate)
            actions = diff(plan, snapshot)
    toy.apply(actions, lambda _: True)
    toy.control_deployments()
    toy.move()
    toy.now += 1.0


def read(bodies: Sequence[Json]) -> ClusterState:
    """Some objects, as the operator reads them."""
    state = ClusterState(effect_of)
    for body in bodies:
        state.upsert(STREAMS[body["kind"]], body, START)
    return state


_TABLES: Final = ("profiles", "device_profiles", "pools", "policy", "gpu_nodes")


def cost(bodies: Sequence[Json]) -> int:
    """Lines of the dearest decision beside others, of whom a new one comes each time.

    Args:
        bodies: Objects of one tenant and of administrators.
    """
    toy, state = copy.deepcopy(_busy()), read(bodies)
    found = state.freeze(START)
    for workload in found.workloads.values():
        toy.add(replace(workload, created=toy.now))
    beside = {name: getattr(found, name) for name in _TABLES if getattr(found, name)}
    searches = state.tuning_jobs().values()
    dearest = 0
    for number in range(ROUNDS):
        new = builders.a_job(f"new-{number}", "newcomers").fractional(5, 5)
        toy.add(new.with_(created=toy.now).build())
        lines = Lines()
        with lines:
            for search in searches:
                next_step(search, Around(runs={}, now=toy.now, epoch=1))
        _decided(toy, beside, lines)
        dearest = max(dearest, lines.count)
    return dearest

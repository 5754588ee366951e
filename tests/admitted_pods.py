# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""New pods, and what admission adds to each: one table for the chart's policy and the webhook."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]
SLOT: Final = "ullage.dev/slot"
GATE: Final = "ullage.dev/placement"
THEIRS: Final = "kueue.x-k8s.io/admission"
MARKS: Final = {"ullage.dev/managed": "true", "ullage.dev/kind": "Pod"}
ADOPTED: Final = {"ullage.dev/adopted": "1"}


def new_pod(
    labels: Json, annotations: Json | None = None, *, namespace: str = "default", **spec: Any
) -> Json:
    """A pod of two containers unless said otherwise; without annotations it has no such field."""
    metadata: Json = {"name": "p", "namespace": namespace, "labels": labels}
    if annotations is not None:
        metadata["annotations"] = annotations
    containers = [{"name": "main", "image": "i"}, {"name": "side", "image": "i"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, **spec},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What admission may change in a pod."""

    labels: Json = field(default_factory=dict)
    annotations: Json = field(default_factory=dict)
    gates: list[str] = field(default_factory=list)
    slots: Json = field(default_factory=dict)
    """Slots by container; limit and request."""


def parts(pod: Json) -> Parts:
    """The parts of a pod, as it stands before or after admission."""
    metadata, spec = pod["metadata"], pod["spec"]
    slots = {}
    for container in spec.get("containers") or []:
        resources = container.get("resources") or {}
        found = tuple((resources.get(name) or {}).get(SLOT) for name in ("limits", "requests"))
        if found != (None, None):
            slots[container["name"]] = found
    return Parts(
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        gates=[gate.get("name") for gate in spec.get("schedulingGates") or []],
        slots=slots,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A pod that the API server takes, and its parts afterwards."""

    pod: Json
    after: Parts


def _prepared(
    labels: Json,
    annotations: Json | None = None,
    *,
    slots: Json,
    gates: tuple[str, ...] = (GATE,),
    **spec: Any,
) -> Case:
    after = Parts(
        labels={**labels, **MARKS},
        annotations={**(annotations or {}), **ADOPTED},
        gates=list(gates),
        slots={name: (count, count) for name, count in slots.items()},
    )
    return Case(pod=new_pod(labels, annotations, **spec), after=after)


def _untouched(labels: Json, annotations: Json | None = None, **spec: Any) -> Case:
    pod = new_pod(labels, annotations, **spec)
    return Case(pod=pod, after=parts(pod))


def _with_resources(resources: Json) -> list[Json]:
    return [
        {"name": "main", "image": "i", "resources": resources},
        {"name": "side", "image": "i"},
    ]


SHARE: Final = {"ullage.dev/share": "30-60"}
CPU: Final = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
CASES: Final[dict[str, Case]] = {
    "a share": _prepared(SHARE, slots={"main": "1"}),
    "a share beside other labels": _prepared({**SHARE, "app": "web"}, slots={"main": "1"}),
    "one device": _prepared({"ullage.dev/devices": "1"}, slots={"main": "1"}),
    "sixteen devices": _prepared({"ullage.dev/devices": "16"}, slots={"main": "16"}),
    "another container": _prepared(
        {"ullage.dev/devices": "2"}, {"ullage.dev/container": "side"}, slots={"side": "2"}
    ),
    "annotations of others": _prepared(SHARE, {"team": "a/b~c"}, slots={"main": "1"}),
    "no annotation in the field": _prepared(SHARE, {}, slots={"main": "1"}),
    "an older mark": _prepared(
        {**SHARE, "ullage.dev/kind": "TrainingJob"},
        {"ullage.dev/adopted": "9"},
        slots={"main": "1"},
    ),
    "a gate of another controller": _prepared(
        SHARE, slots={"main": "1"}, gates=(THEIRS, GATE), schedulingGates=[{"name": THEIRS}]
    ),
    "our gate already": _prepared(
        SHARE,
        slots={"main": "1"},
        gates=(GATE, THEIRS),
        schedulingGates=[{"name": GATE}, {"name": THEIRS}],
    ),
    "no gate in the field": _prepared(SHARE, slots={"main": "1"}, schedulingGates=[]),
    "other resources": _prepared(SHARE, slots={"main": "1"}, containers=_with_resources(CPU)),
    "requests alone": _prepared(
        SHARE, slots={"main": "1"}, containers=_with_resources({"requests": {"cpu": "1"}})
    ),
    "no resource in the field": _prepared(
        SHARE, slots={"main": "1"}, containers=_with_resources({})
    ),
    "slots of its own in the right container": _prepared(
        SHARE, slots={"main": "1"}, containers=_with_resources({"limits": {SLOT: "3"}})
    ),
    "prepared already": _prepared(
        {**SHARE, **MARKS},
        ADOPTED,
        slots={"main": "1"},
        schedulingGates=[{"name": GATE}],
        containers=_with_resources({"limits": {SLOT: "1"}, "requests": {SLOT: "1"}}),
    ),
    "no label": _untouched({}),
    "other labels and our annotations": _untouched(
        {"app": "web", "ullage.dev/class": "resnet"},
        {"ullage.dev/tenant": "a"},
        schedulingGates=[{"name": THEIRS}],
        containers=_with_resources(CPU),
    ),
}


def generated(count: int, seed: int) -> Iterator[Json]:
    """Pods at random that the API server takes: labelled or not, in every combination of fields."""
    draw = random.Random(seed)
    for _ in range(count):
        labels = draw.choice(
            (
                {},
                {"ullage.dev/share": str(draw.randint(1, 100))},
                {"ullage.dev/share": f"{draw.randint(1, 50)}-{draw.randint(50, 100)}"},
                {"ullage.dev/devices": str(draw.randint(1, 16))},
            )
        ) | draw.choice(({}, {"app": "web"}, {"ullage.dev/class": "c"}))
        names = [f"c{index}" for index in range(draw.randint(1, 4))]
        notes = draw.choice((None, {}, {"team": "a/b"}))
        if labels and draw.random() < 0.4:
            notes = {**(notes or {}), "ullage.dev/container": draw.choice(names)}
        containers: list[Json] = [{"name": name, "image": "i"} for name in names]
        for container in containers:
            container |= copy.deepcopy(draw.choice(({}, {"resources": {}}, {"resources": CPU})))
        spec: Json = {"containers": containers}
        spec |= draw.choice(({}, {"schedulingGates": [{"name": THEIRS}]}))
        yield new_pod(labels, notes, **spec)

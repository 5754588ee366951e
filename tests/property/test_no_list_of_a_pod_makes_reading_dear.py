# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""No list of a pod or a template makes reading dear, however long it is.

A user chooses how long lists are, and the operator reads on the loop that serves everyone. Each
list is as long as its schema takes, and far longer, as the API server lets lists of pods be. What
reading costs is counted in lines that run, in proportion to the bytes of the object.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import orjson
import pytest

from builders_raw import (
    raw_adopted_pod,
    raw_foreign_pod,
    raw_job,
    raw_pod,
    raw_service,
    raw_template,
    raw_tuning_job,
)
from fakes.node_affinity import REQUIRED
from fakes.spec_numbers import Json, Lines
from ullage.api import template_bounds
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams
from ullage.cluster.values.streams import Stream

SMALL: Final = 4_000
"""Lines that reading an object costs whose lists are short, at most."""
OF_A_BYTE: Final = 1.0
"""Lines for each byte beside these: a list costs what its bytes do, no more."""
SIZE: Final = 120_000
"""Bytes of a list that no schema bounds."""
OF_AN_ENTRY: Final = 500
"""Lines for each entry of a list that is read."""
OF_AN_ENTRY_SEEN: Final = 50
"""The same, of a template that is known."""
BOUNDS: Final = {
    "tolerations": template_bounds.MOST_TOLERATIONS,
    "volumes": template_bounds.MOST_VOLUMES,
    "imagePullSecrets": template_bounds.MOST_SECRETS,
    "schedulingGates": template_bounds.MOST_GATES,
    "env": template_bounds.MOST_VARIABLES,
    "ports": template_bounds.MOST_PORTS,
    "volumeMounts": template_bounds.MOST_MOUNTS,
    "node selector": template_bounds.MOST_SELECTED,
    "terms": template_bounds.MOST_NODE_TERMS,
    "expressions": template_bounds.MOST_NODE_TERMS,
    "amounts": template_bounds.MOST_AMOUNTS,
    "sidecars": 16,
}
"""Entries that the schema of a template takes of each list."""
NOW: Final = 1_767_330_000.0

Maker = Callable[[int], Json]
"""An entry of a list by its number."""

POD_LISTS: Final[dict[str, Maker]] = {
    "tolerations": lambda _: {},
    "volumes": lambda at: {"name": f"v{at}", "emptyDir": {}},
    "imagePullSecrets": lambda at: {"name": f"s{at}"},
    "schedulingGates": lambda at: {"name": f"g{at}"},
    "topologySpreadConstraints": lambda _: {"maxSkew": 1, "topologyKey": "zone"},
    "other": lambda _: {},
}
CONTAINER_LISTS: Final[dict[str, Maker]] = {
    "env": lambda at: {"name": f"E{at}"},
    "ports": lambda at: {"containerPort": at % 65_535 + 1, "hostPort": at % 65_535 + 1},
    "volumeMounts": lambda _: {},
}
EXPRESSION: Final = {"key": "k", "operator": "Exists"}


def _few(most: int, make: Callable[[int], Any]) -> list[Any]:
    """So many entries, or as many as fit the bytes."""
    return [make(at) for at in range(min(most, SIZE // len(orjson.dumps(make(9_999)))))]


def _affinity(*terms: Json) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def changes(most: int) -> dict[str, Callable[[Json], object]]:
    """Each makes one list of a pod's spec that long."""
    made: dict[str, Callable[[Json], object]] = {
        "node selector": lambda spec: spec.update(
            nodeSelector=dict(_few(most, lambda at: (f"k{at}", "v")))
        ),
        "terms": lambda spec: spec.update(
            _affinity(*_few(most, lambda _: {"matchExpressions": [EXPRESSION]}))
        ),
        "expressions": lambda spec: spec.update(
            _affinity({"matchExpressions": _few(most, lambda _: EXPRESSION)})
        ),
        "values": lambda spec: spec.update(
            _affinity(
                {"matchExpressions": [{**EXPRESSION, "values": _few(most, lambda at: f"v{at}")}]}
            )
        ),
        "amounts": lambda spec: spec["containers"][0].update(
            resources={"limits": dict(_few(most, lambda at: (f"a.example/r{at}", f"{at}.5")))}
        ),
        "sidecars": lambda spec: spec.update(
            initContainers=_few(
                most,
                lambda at: {
                    "name": f"c{at}",
                    "image": "example/none:1",
                    "imagePullPolicy": "IfNotPresent",
                    "restartPolicy": "Always",
                    "resources": {"requests": {f"a.example/r{at}": "1"}},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                },
            )
        ),
    }
    for name, make in POD_LISTS.items():
        made[name] = lambda spec, name=name, make=make: spec.update({name: _few(most, make)})
    for name, make in CONTAINER_LISTS.items():
        made[name] = lambda spec, name=name, make=make: spec["containers"][0].update(
            {name: _few(most, make)}
        )
    return made


OBJECTS: Final[dict[str, tuple[Stream, Callable[[], Json], tuple[str, ...]]]] = {
    "job": (streams.TRAINING_JOBS, raw_job, ("spec", "template", "spec")),
    "service": (
        streams.INFERENCE_DEPLOYMENTS,
        lambda: raw_service(template=raw_template(ports=(80,))),
        ("spec", "template", "spec"),
    ),
    "search": (
        streams.TUNING_JOBS,
        raw_tuning_job,
        ("spec", "trialTemplate", "template", "spec"),
    ),
    "pod of ours": (streams.PODS, raw_pod, ("spec",)),
    "adopted pod": (streams.PODS, raw_adopted_pod, ("spec",)),
    "pod of others": (streams.FOREIGN_PODS, raw_foreign_pod, ("spec",)),
}


def lines_of(stream: Stream, body: Json) -> int:
    """Lines that reading the object costs, as new or with its next event, whichever is dearer."""
    state, dearest = ClusterState(effect_of), 0
    for version in ("1", "2"):
        event = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        with Lines() as lines:
            state.upsert(stream, event, NOW)
        dearest = max(dearest, lines.count)
    return dearest


@pytest.mark.parametrize("change", changes(0))
@pytest.mark.parametrize("name", OBJECTS)
def test_a_list_costs_what_its_bytes_do(name: str, change: str) -> None:
    stream, make, path = OBJECTS[name]
    body = copy.deepcopy(make())
    spec: Any = body
    for step in path:
        spec = spec[step]
    assert lines_of(stream, body) <= SMALL
    changes(10**9)[change](spec)
    size = len(orjson.dumps(body))
    assert size > SIZE / 2
    assert lines_of(stream, body) <= SMALL + OF_A_BYTE * size


@pytest.mark.parametrize("change", BOUNDS)
def test_a_template_at_its_bounds_is_read_once(change: str) -> None:
    """For a second job of the same template no entry is read again, only counted."""
    most = BOUNDS[change]
    state = ClusterState(effect_of)
    for name, each in (("first", OF_AN_ENTRY), ("second", OF_AN_ENTRY_SEEN)):
        body = copy.deepcopy(raw_job(name))
        changes(most)[change](body["spec"]["template"]["spec"])
        with Lines() as lines:
            state.upsert(streams.TRAINING_JOBS, body, NOW)
        assert lines.count <= SMALL + each * most
    assert not any(job.invalid for job in state.freeze(NOW).workloads.values())

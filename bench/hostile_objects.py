# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Objects that a tenant can write and that must harm only the tenant.

Each is valid by the schema of the API server, or is refused there, and is wild in content: types,
sizes, depth, times, or names that belong to another namespace. Bodies are JSON texts, because some
of them hold what a JSON library would not write. The benchmark and the end-to-end tests use them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from demo.images import image_name

Json = dict[str, Any]

TENANTS: Final = ("tenant-a", "tenant-b")
VICTIM: Final = "tenant-c"
OPERATOR_NAMESPACE: Final = "ullage-system"
ANY_ACCELERATOR: Final = ""

RAW: Final = "@raw@"
"""Marks the place of a text that enters the body as it is."""


class Fate(StrEnum):
    """What became of an object."""

    REFUSED = "refused"
    """By the API server, with a text."""
    TOLD = "told"
    """Accepted; the status says what is wrong, or why it waits."""
    RUNS = "runs"
    """Accepted, and harmless: it runs."""
    IGNORED = "ignored"
    """Accepted, and nothing of ours: no status is due."""
    SILENT = "silent"
    """Accepted as ours and never answered: a fault of the product."""


HARMED: Final = frozenset({Fate.REFUSED, Fate.TOLD})
HARMLESS: Final = HARMED | {Fate.RUNS}
FOREIGN: Final = frozenset({Fate.REFUSED, Fate.IGNORED})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileObject:
    """One object, who writes it, and what may become of it."""

    case: str
    namespace: str
    """Of the tenant who writes it; empty = an administrator does."""
    path: str
    """Collection that it is posted to."""
    name: str
    body: str
    may: frozenset[Fate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """What is known of the namespace that the forged objects name."""

    job: str
    uid: str
    """Of its running job."""


def collection(kind: str, namespace: str) -> str:
    """Path of a kind's objects."""
    roots = {
        "pods": "/api/v1",
        "configmaps": "/api/v1",
        "services": "/api/v1",
        "deployments": "/apis/apps/v1",
    }
    root = roots.get(kind, "/apis/ullage.dev/v1alpha1")
    return f"{root}/namespaces/{namespace}/{kind}" if namespace else f"{root}/{kind}"


def hostile_objects(
    victim: Victim, *, accelerator: str = ANY_ACCELERATOR, tenants: Sequence[str] = TENANTS
) -> tuple[HostileObject, ...]:
    """All of them, divided among the tenants in turn.

    Args:
        victim: Whose name and uid are forged.
        accelerator: What the jobs ask for; empty = any device.
        tenants: Namespaces that write them.
    """
    cases = [
        *_jobs(accelerator, victim),
        *_services(accelerator),
        *_profiles(),
        *_pods(victim),
    ]
    found = [
        _placed(case, tenants[number % len(tenants)], number) for number, case in enumerate(cases)
    ]
    return (*found, *_of_administrators())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A case before it has a name and a namespace."""

    name: str
    kind: str
    body: Json
    may: frozenset[Fate]
    raw: Mapping[str, str]
    """Texts that stand for their marks."""


def _placed(case: _Case, namespace: str, number: int) -> HostileObject:
    name = case.body.get("metadata", {}).get("name") or f"h{number:02d}-{case.name}"[:52]
    metadata = {**case.body.get("metadata", {}), "name": name, "namespace": namespace}
    text = json.dumps({**case.body, "metadata": metadata})
    for mark, raw in case.raw.items():
        text = text.replace(f'"{RAW}{mark}"', raw)
    return HostileObject(
        case=case.name,
        namespace=namespace,
        path=collection(case.kind, namespace),
        name=name,
        body=text,
        may=case.may,
    )


def container(**more: Any) -> Json:
    """A container that waits."""
    return {
        "name": "main",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}},
        **more,
    }


def share(percent: int) -> Json:
    """``spec.gpu`` of a part of a device with little memory."""
    bounds = {"minPercent": percent, "maxPercent": percent}
    return {"mode": "Fractional", "share": bounds, "memory": {"limit": "64Mi"}}


def _template(
    containers: Sequence[Json] | None = None, metadata: Json | None = None, **pod: Any
) -> Json:
    spec = {"containers": list(containers or [container()]), "terminationGracePeriodSeconds": 1}
    return {"metadata": metadata or {}, "spec": spec | pod}


def _nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


STEPPING: Final = (
    "import time, ullage_run\nwhile True:\n    ullage_run.step()\n    time.sleep(0.4)\n"
)
"""A job whose estimated end lies beyond any calendar when it has 10**12 steps to do."""


def _jobs(accelerator: str, victim: Victim) -> Iterator[_Case]:
    for name, template, raw, may in _templates():
        yield _job(name, accelerator, may, raw, template=template)
    yield _job("nothing-wild", accelerator, frozenset({Fate.RUNS}))  # the others differ from it
    steps = _template([container(command=["python3", "-c", STEPPING])])
    yield _job("steps-1e12", accelerator, HARMLESS, template=steps, work={"steps": 10**12})
    yield _job("steps-int64", accelerator, HARMLESS, template=steps, work={"steps": 2**63 - 1})
    yield _job("steps-1e400", accelerator, HARMED, {"s": "1e400"}, work={"steps": f"{RAW}s"})
    for name, may, spec in _specs():
        yield _job(name, accelerator, may, **spec)
    owner = {**_owner(victim), "blockOwnerDeletion": True}
    forged = {"ownerReferences": [owner], "labels": {"ullage.dev/managed": "true"}}
    yield _job("job-owner-forged", accelerator, HARMLESS | FOREIGN, metadata=forged)


def _job(
    name: str,
    accelerator: str,
    may: frozenset[Fate],
    raw: Mapping[str, str] | None = None,
    metadata: Json | None = None,
    **spec: Any,
) -> _Case:
    spec = {"template": _template(), "gpu": share(5), **spec}
    if accelerator:
        spec.setdefault("accelerators", [accelerator])
    body = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": metadata or {},
        "spec": spec,
    }
    return _Case(name=name, kind="trainingjobs", body=body, may=may, raw=raw or {})


def _templates() -> Iterator[tuple[str, Json, Mapping[str, str], frozenset[Fate]]]:
    """Pod templates; what the API server does not know it keeps."""
    many, endless = "9" * 20, "9" * 4301
    wrong: dict[str, Json] = {
        "env-name-object": container(env=[{"name": {"a": 1}}]),
        "env-number": container(env=7),
        "env-of-words": container(env=["A=1"]),
        "env-value-object": container(env=[{"name": "A", "value": {"b": 1}}]),
        "command-object": container(command={"a": 1}),
        "ports-of-words": container(ports=["http"]),
        "port-beyond": container(ports=[{"containerPort": 10**18}]),
        "mounts-number": container(volumeMounts=3),
        "image-object": container(image={"name": "x"}),
        "image-endless": container(image="x" * 20_000),
        "requests-exponent": container(resources={"requests": {"cpu": "1E999999999"}}),
        "requests-digits": container(resources={"requests": {"cpu": "9" * 32}}),
        "claims-string": container(resources={"claims": "x"}),
    }
    for name, one in wrong.items():
        yield name, _template([one]), {}, HARMED
    pods: dict[str, Json] = {
        "overhead-digits": {"overhead": {"cpu": "9" * 5000}},
        "affinity-string": {"affinity": "everywhere"},
        "selector-list": {"nodeSelector": ["a"]},
        "tolerations-object": {"tolerations": {"key": "a"}},
        "volumes-nameless": {"volumes": [{}]},
        "grace-object": {"terminationGracePeriodSeconds": {"s": 1}},
        "priority-beyond": {"priority": 10**12},
        "priority-class-absent": {"priorityClassName": "no-such-class"},
        "account-absent": {"serviceAccountName": "no-such-account"},
        "gates-number": {"schedulingGates": 5},
        "containers-of-init-wild": {"initContainers": [{"name": "i", "env": {"a": []}}]},
    }
    for name, pod in pods.items():
        yield name, _template(**pod), {}, HARMED
    endless_grace = _template(terminationGracePeriodSeconds=10**18)
    yield "grace-beyond", endless_grace, {}, HARMLESS
    for depth in (255, 900):
        nested = _template(deep=f"{RAW}deep")
        yield f"nested-{depth}", nested, {"deep": _nested(depth)}, HARMLESS
    notes: dict[str, Json] = {
        "world-size-20-digits": {"ullage.dev/world-size": many},
        "world-size-4301-digits": {"ullage.dev/world-size": endless},
        "annotations-huge": {f"example.com/{n}": "x" * 20_000 for n in range(12)},
        "annotation-object": {"example.com/a": {"b": 1}},
        "annotation-surrogate": {"example.com/a": f"{RAW}lone"},
    }
    for name, noted in notes.items():
        template = _template(metadata={"annotations": noted})
        yield name, template, {"lone": '"\\ud800"'}, HARMLESS


def _specs() -> Iterator[tuple[str, frozenset[Fate], Json]]:
    """Fields of a job beside its template."""
    checkpoint, work = {"graceSeconds": 1}, {"steps": 1000}
    yield (
        "deadline-without-deadline",
        HARMED,
        {
            "cost": {"objective": "Deadline"},
            "work": work,
            "checkpoint": checkpoint,
        },
    )
    yield "deadline-endless", HARMLESS, {
        "cost": {"objective": "Deadline", "deadline": "9000000h", "estimatedWork": "1h"},
        "work": work,
        "checkpoint": checkpoint,
    }  # fmt: skip
    yield "share-that-no-node-gives", HARMED, {"gpu": share(1)}
    yield "gang-of-4096", HARMED, {"replicas": 4096}
    yield "gang-elastic-4096", HARMED, {
        "elasticity": {"minReplicas": 4096, "maxReplicas": 4096},
        "checkpoint": checkpoint,
    }  # fmt: skip
    yield "trust-domain-typed", HARMED, {"trustDomain": VICTIM}
    yield "tenant-typed", HARMLESS, {"tenant": VICTIM, "weight": 1000}
    yield "profile-elsewhere", HARMLESS, {"profileRef": "no-such-profile"}


def _owner(victim: Victim) -> Json:
    """A reference to another namespace's job."""
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": victim.job,
        "uid": victim.uid,
        "controller": True,
    }


def _services(accelerator: str) -> Iterator[_Case]:
    wild = {
        "service-env-object": ({"template": _template([container(env=[{"name": {"a": 1}}])])}),
        "service-port-digits": (
            {"template": _template([container(ports=[{"containerPort": f"{RAW}port"}])])}
        ),
        "service-probe-string": ({"template": _template([container(readinessProbe="x")])}),
    }
    for name, spec in wild.items():
        body: Json = {
            "apiVersion": "ullage.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {},
            "spec": {"gpu": share(5), **spec},
        }
        if accelerator:
            body["spec"]["accelerators"] = [accelerator]
        raw = {"port": "9" * 4301}
        yield _Case(name=name, kind="inferencedeployments", body=body, may=HARMED, raw=raw)


def _profiles() -> Iterator[_Case]:
    """Declared behaviour: of another namespace's class, and beyond all measure."""
    rows = [
        {"device": "emulated", "share": share, "stepsPerSecond": 1e-9, "smUtil": 1.0}
        for share in range(1, 65)
    ]
    windows = [
        {
            "id": f"row-{number}",
            "accelerator": "emulated",
            "share": 20,
            "stepSeconds": 1e17,
            "at": ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")[number % 2],
        }
        for number in range(64)
    ]
    for name, spec in (
        ("profile-64-rows", {"class": "shared-class", "solo": rows}),
        ("profile-times-wild", {"class": "shared-class", "stepTime": windows}),
    ):
        body = {
            "apiVersion": "ullage.dev/v1alpha1",
            "kind": "WorkloadProfile",
            "metadata": {},
            "spec": spec,
        }
        may = HARMLESS | {Fate.IGNORED}
        yield _Case(name=name, kind="workloadprofiles", body=body, may=may, raw={})


def _pods(victim: Victim) -> Iterator[_Case]:
    """Pods and what stands beside them, forged as ours or as another namespace's."""
    ours = {
        "ullage.dev/managed": "true",
        "ullage.dev/kind": "TrainingJob",
        "ullage.dev/owner": victim.job,
        "ullage.dev/rank": "0",
    }
    owner = _owner(victim)
    slot = container(resources={"limits": {"ullage.dev/slot": "1"}})
    gate: Json = {"schedulingGates": [{"name": "ullage.dev/placement"}]}
    forged = {"labels": ours, "ownerReferences": [owner]}
    yield _pod("pod-owner-forged", {"name": f"{victim.job}-0", **forged})
    yield _pod("pod-owner-forged-gated", forged, slot, **gate)
    yield _pod("pod-owner-of-other-group", {
        "labels": ours, "ownerReferences": [{**owner, "apiVersion": "batch/v1", "kind": "Job"}],
    })  # fmt: skip
    for digits in (20, 4301):
        noted = {**forged, "annotations": {"ullage.dev/world-size": "9" * digits}}
        yield _pod(f"pod-world-size-{digits}", noted, **gate)
    wild = {"ullage.dev/decision": "[" * 2000, "ullage.dev/template-hash": "x"}
    yield _pod("pod-decision-forged", {**forged, "annotations": wild})
    yield _pod("pod-lead-forged", {"labels": {**ours, "ullage.dev/lead": "true"}})
    yield _pod("pod-order-forged", {"labels": {"ullage.dev/order": "pool", **ours}})
    for number in range(6):
        yield _pod(f"pod-slot-{number}", {}, slot)
    yield _Case(
        name="service-named-as-ours",
        kind="services",
        body={
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"labels": ours, "ownerReferences": [owner]},
            "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
        },
        may=FOREIGN,
        raw={},
    )


def _pod(name: str, metadata: Json, one: Json | None = None, **pod: Any) -> _Case:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [one or container()], "terminationGracePeriodSeconds": 1, **pod},
    }
    return _Case(name=name, kind="pods", body=body, may=FOREIGN, raw={})


def _of_administrators() -> Iterator[HostileObject]:
    """Prices that a broken exporter writes: the administrator's objects, wild all the same."""
    name = "wild-prices"
    table = '{"wild-pool": {"pricePerHour": 1.5, "at": 1e400}, "other": 1e400}'
    yield HostileObject(
        case="price-table-1e400",
        namespace="",
        path=collection("configmaps", OPERATOR_NAMESPACE),
        name=name,
        body=json.dumps(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": OPERATOR_NAMESPACE},
                "data": {"prices.json": table},
            }
        ),
        may=FOREIGN,
    )
    pool = {
        "type": "wild",
        "zone": "wild",
        "capacityType": "Spot",
        "accelerator": "wild",
        "nodeSelector": {"example.com/wild": "true"},
        "priceSource": {"type": "ConfigMap", "configMap": {"name": name}},
    }
    yield HostileObject(
        case="pool-price-1e400",
        namespace="",
        path=collection("capacitypools", ""),
        name="wild-pool",
        body=json.dumps(
            {
                "apiVersion": "ullage.dev/v1alpha1",
                "kind": "CapacityPool",
                "metadata": {"name": "wild-pool"},
                "spec": pool,
            }
        ),
        may=HARMED,
    )

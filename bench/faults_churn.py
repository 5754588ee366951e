# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What users do meanwhile: jobs, gangs and services come, change, end and are deleted."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from bench.api_client import ApiClient
from bench.hostile_objects import collection, container, share

Json = dict[str, Any]
NAMESPACE: Final = "churn"
MOST: Final = 10
"""Workloads at once: the devices are full, and some wait."""
WORK: Final = """
import signal, sys, time
import ullage_run
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    ullage_run.step()
    time.sleep(0.2)
"""
SERVE: Final = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)"
JOBS: Final = collection("trainingjobs", NAMESPACE)
SERVICES: Final = collection("inferencedeployments", NAMESPACE)


@dataclass(slots=True)
class Churn:
    """Creates, deletes and suspends at random; remembers what it made."""

    api: ApiClient
    random: random.Random
    alive: dict[str, str] = field(default_factory=dict)
    """Path of each object that was created and not deleted, by name."""
    counts: Counter[str] = field(default_factory=Counter)

    def open(self) -> None:
        """Make the namespace.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.api.create("/api/v1/namespaces", body)

    def step(self) -> str:
        """One thing that users do; says what.

        Raises:
            NotAnswered: the API server is away, or refuses; what was begun counts as not done.
        """
        self._forget_ended()
        if len(self.alive) >= MOST or (self.alive and self.random.random() < 0.2):
            return self._delete()
        if self.alive and self.random.random() < 0.15:
            return self._suspend()
        kinds = {"job": 5, "gang": 3, "elastic": 2, "service": 1}
        (kind,) = self.random.choices(list(kinds), list(kinds.values()))
        name = f"{kind}-{sum(self.counts[one] for one in kinds)}"
        path, body = self._body(kind, name)
        self.api.create(path, body)
        self.alive[name] = path
        self.counts[kind] += 1
        return f"{name} created"

    def settle(self) -> None:
        """Let everything run that is suspended, so that all of it can end.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        for name, path in self.alive.items():
            if path == JOBS:
                self._set_suspend(name, value=False)

    def unfinished(self) -> list[str]:
        """Jobs that have not ended, with where they are.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        return [
            f"{job['metadata']['name']} is {job.get('status', {}).get('phase')}"
            for job in self.api.list(JOBS)
            if job.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def ended(self) -> Counter[str]:
        """How jobs that are still there ended, by phase.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        return Counter(str(job.get("status", {}).get("phase")) for job in self.api.list(JOBS))

    def remove_all(self) -> None:
        """Delete every workload.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        for path in (JOBS, SERVICES):
            self.api.delete(path)
        self.alive.clear()

    def _forget_ended(self) -> None:
        """Delete jobs that ended, as people do after a while."""
        for job in self.api.list(JOBS):
            name, phase = job["metadata"]["name"], job.get("status", {}).get("phase")
            if phase in ("Succeeded", "Failed") and name in self.alive:
                self.api.delete(f"{JOBS}/{name}")
                del self.alive[name]
                self.counts[phase.lower()] += 1

    def _delete(self) -> str:
        name = self.random.choice(sorted(self.alive))
        self.api.delete(f"{self.alive[name]}/{name}")
        del self.alive[name]
        self.counts["deleted"] += 1
        return f"{name} deleted"

    def _suspend(self) -> str:
        jobs = sorted(name for name, path in self.alive.items() if path == JOBS)
        if not jobs:
            return self._delete()
        name, value = self.random.choice(jobs), self.random.random() < 0.5
        self._set_suspend(name, value=value)
        self.counts["suspended" if value else "resumed"] += 1
        return f"{name} {'suspended' if value else 'resumed'}"

    def _set_suspend(self, name: str, *, value: bool) -> None:
        body = json.dumps({"spec": {"suspend": value}})
        self.api.patch(f"{JOBS}/{name}", body)

    def _body(self, kind: str, name: str) -> tuple[str, Json]:
        gpu = share(self.random.choice((10, 20, 40)))
        if kind == "service":
            one = container(command=["python3", "-c", SERVE], ports=[{"containerPort": 8000}])
            spec: Json = {"replicas": self.random.choice((1, 2)), "template": _pod(one)}
            return SERVICES, _object("InferenceDeployment", name, spec | {"gpu": gpu})
        seconds = self.random.choice((3, 10, 25, 60))
        one = container(command=["python3", "-c", WORK, str(seconds)])
        spec = {
            "template": _pod(one),
            "gpu": gpu,
            "failurePolicy": {"maxRestarts": 1000},
            "checkpoint": {"graceSeconds": 5},
        }
        if kind == "gang":
            spec["replicas"] = self.random.choice((2, 3))
        if kind == "elastic":
            spec["elasticity"] = {"minReplicas": 1, "maxReplicas": 3}
        return JOBS, _object("TrainingJob", name, spec)


def _pod(one: Json) -> Json:
    return {"spec": {"containers": [one], "terminationGracePeriodSeconds": 5}}


def _object(kind: str, name: str, spec: Json) -> Json:
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }

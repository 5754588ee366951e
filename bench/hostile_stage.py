# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Two tenants who write hostile objects beside a third who works, on the local cluster.

It submits, looks what became of each object, times the third namespace's jobs, and asks operator
and agents whether they are well. The caller decides what that must be.
"""

from __future__ import annotations

import json
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from bench.api_client import Answer, ApiClient, NotAnswered
from bench.books import wanted_slices
from bench.hostile_objects import (
    TENANTS,
    VICTIM,
    Fate,
    HostileObject,
    Victim,
    collection,
    container,
    hostile_objects,
    share,
)
from demo.cluster import EmulatedDevice
from demo.install import NAMESPACE
from demo.progress import every

Json = dict[str, Any]
T = TypeVar("T")
ARENA: Final = "arena"
"""Model of the devices that only the hostile tenants ask for: they take no room from others."""
WORK: Final = "emulated"
DEVICES: Final = {
    f"node-{core + 1}": [
        EmulatedDevice(core=core, percent=50, model=WORK),
        *(EmulatedDevice(core=core, percent=20, model=ARENA) for _ in range(2)),
    ]
    for core in range(2)
}
RESIDENT: Final = "resident"
"""The third namespace's job that runs all the time and must not be touched."""
RUNNING_S: Final = 480.0
ANSWER_S: Final = 240.0
RELEASE_S: Final = 360.0
LOOK_S: Final = 0.1
HEALTH_PORT: Final = 8080
WORKLOADS: Final = ("trainingjobs", "inferencedeployments")


class NotPlayed(RuntimeError):
    """The cluster did not do what the run needs; the text says what was waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one hostile object."""

    object: HostileObject
    fate: Fate
    text: str
    """The refusal, the condition, or the reason why it waits."""

    @property
    def expected(self) -> bool:
        """Whether it harmed only itself and said so."""
        return self.fate in self.object.may and (self.fate is not Fate.REFUSED or bool(self.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Container restarts of Ullage's pods, by pod uid."""

    operator: Mapping[str, int]
    agents: Mapping[str, int]

    def since(self, before: Restarts) -> tuple[int, int]:
        """Restarts of operators and agents since then; a pod that is gone counts as one."""
        pairs = ((self.operator, before.operator), (self.agents, before.agents))
        first, second = (
            sum(now.get(uid, then + 1) - then for uid, then in earlier.items())
            for now, earlier in pairs
        )
        return first, second


@dataclass(slots=True)
class Health:
    """What operators answered to health checks, sampled once a second."""

    samples: int = 0
    unwell: list[str] = field(default_factory=list)


def until(look: Callable[[], T | None], within_s: float, what: str, every_s: float = 0.5) -> T:
    """The first true answer; an API server that is away has none.

    Raises:
        NotPlayed: there is none in time.
    """
    deadline = time.monotonic() + within_s
    while True:
        seen = ""
        try:
            if found := look():
                return found
        except NotAnswered as error:
            seen = f" ({error})"
        if time.monotonic() > deadline:
            raise NotPlayed(f"not within {within_s:.0f} s: {what}{seen}")
        time.sleep(every_s)


@dataclass(slots=True)
class Stage:
    """The namespaces of the run on a cluster with Ullage."""

    api: ApiClient
    accelerator: str = WORK
    """What the third namespace's jobs ask for."""

    # -- before and after ------------------------------------------------------------------------

    def open(self) -> None:
        """Make the namespaces, each with a user of its own, and the resident job.

        Raises:
            NotAnswered: the API server is away, or refuses.
            NotPlayed: the resident does not run.
        """
        for namespace in (*TENANTS, VICTIM):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            self.api.create("/api/v1/namespaces", body)
            roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
            self.api.create(roles, _binding(namespace))
        self.start(RESIDENT)
        self.until_running(RESIDENT)

    def close(self) -> None:
        """Remove all of it and wait until no device is held.

        Raises:
            NotAnswered: the API server is away, or refuses.
            NotPlayed: a device is still held after a while.
        """
        for namespace in (*TENANTS, VICTIM):
            for kind in (*WORKLOADS, "pods"):
                self.api.delete(collection(kind, namespace))
            self.api.delete(f"/api/v1/namespaces/{namespace}")
        until(lambda: not self.held(), RELEASE_S, "no device is held")

    def held(self, namespaces: Sequence[str] = (*TENANTS, VICTIM)) -> list[Json]:
        """Slices of these namespaces, as wanted of the nodes."""
        pods = self.api.list("/api/v1/pods")
        return [
            one
            for node in self.api.list(collection("gpunodes", ""))
            for one in wanted_slices(node, pods)
            if one["podNamespace"] in namespaces
        ]

    # -- the third namespace ---------------------------------------------------------------------

    def start(self, name: str, percent: int = 10, **more: Any) -> None:
        """Create a job of the third namespace.

        Raises:
            NotAnswered: the API server is away, or refuses.
        """
        self.api.create(
            collection("trainingjobs", VICTIM), job(name, self.accelerator, percent, **more)
        )

    def job(self, name: str) -> Json:
        """Status of a job of the third namespace."""
        found = self.api.get(f"{collection('trainingjobs', VICTIM)}/{name}") or {}
        status: Json = found.get("status", {})
        return status

    def runs(self, name: str) -> bool:
        """Whether a job of the third namespace runs."""
        return self.job(name).get("phase") == "Running"

    def until_running(self, name: str) -> None:
        """Wait until a job of the third namespace runs.

        Raises:
            NotPlayed: it does not; the text holds its status.
        """
        try:
            until(lambda: self.runs(name), RUNNING_S, f"{name} runs", LOOK_S)
        except NotPlayed as error:
            raise NotPlayed(f"{error}; its status: {json.dumps(self.job(name))}") from error

    def remove(self, *names: str) -> None:
        """Delete jobs of the third namespace and wait until their devices are free.

        Raises:
            NotPlayed: they are still held after a while.
        """
        for name in names:
            self.api.delete(f"{collection('trainingjobs', VICTIM)}/{name}")
        pods = {f"{name}-0" for name in names}
        until(
            lambda: not any(one["podName"] in pods for one in self.held((VICTIM,))),
            RELEASE_S,
            f"the devices of {', '.join(names)} are free",
        )

    def times_to_running(self, name: str, count: int) -> list[float]:
        """Seconds from the creation of each job to its phase Running; one after another.

        Raises:
            NotPlayed: one does not run.
        """
        seconds = []
        for number in range(count):
            one, began = f"{name}-{number}", time.monotonic()
            self.start(one)
            self.until_running(one)
            seconds.append(time.monotonic() - began)
            self.remove(one)
        return seconds

    def resident(self) -> Json:
        """What must not change while others misbehave: the resident's pods and slices."""
        pods = self.api.list(
            f"{collection('pods', VICTIM)}?labelSelector=ullage.dev%2Fowner%3D{RESIDENT}"
        )
        uids = sorted(pod["metadata"]["uid"] for pod in pods)
        return {
            "pods": uids,
            "containers": sorted(_restarts(pod) for pod in pods),
            "restarts": self.job(RESIDENT).get("restarts", 0),
            "slices": sorted(
                (one["podUID"], one["gpu"], one["percent"], one["memoryMiB"])
                for one in self.held((VICTIM,))
                if one["podUID"] in uids
            ),
        }

    # -- the hostile tenants ---------------------------------------------------------------------

    def objects(self) -> tuple[HostileObject, ...]:
        """The hostile objects, forged with the resident's name and uid."""
        found = self.api.get(f"{collection('trainingjobs', VICTIM)}/{RESIDENT}") or {}
        victim = Victim(job=RESIDENT, uid=found.get("metadata", {}).get("uid", ""))
        return hostile_objects(victim, accelerator=ARENA)

    def submit(self, objects: Sequence[HostileObject]) -> dict[str, Answer]:
        """Post them all, each in the name of its tenant; answers by case."""
        return {
            one.case: self.api.ask("POST", one.path, one.body, user=one.namespace)
            for one in objects
        }

    def remove_hostile(self, objects: Sequence[HostileObject]) -> None:
        """Delete them all and wait until the tenants hold no device.

        Raises:
            NotAnswered: the API server is away, or refuses.
            NotPlayed: a device is still held after a while.
        """
        for one in objects:
            self.api.delete(f"{one.path}/{one.name}")
        until(lambda: not self.held(TENANTS), RELEASE_S, "the tenants hold no device")

    def outcomes(
        self, objects: Sequence[HostileObject], answers: Mapping[str, Answer]
    ) -> list[Outcome]:
        """What became of each; waits a while for those of which nothing is said yet."""
        found: list[Outcome] = []

        def all_told() -> bool:
            found[:] = [self._outcome(one, answers[one.case]) for one in objects]
            return not any(one.fate is Fate.SILENT for one in found)

        with suppress(NotPlayed):  # the outcomes name those that were not
            until(all_told, ANSWER_S, "every object is answered", 2.0)
        return found

    def _outcome(self, one: HostileObject, answer: Answer) -> Outcome:
        if not answer.accepted:
            refused = 400 <= answer.status < 500
            fate = Fate.REFUSED if refused else Fate.SILENT
            return Outcome(object=one, fate=fate, text=answer.message)
        found = self.api.get(f"{one.path}/{one.name}")
        if found is None:
            return Outcome(object=one, fate=Fate.IGNORED, text="it is gone")
        fate, text = fate_of(found)
        return Outcome(object=one, fate=fate, text=text)

    # -- operator and agents ---------------------------------------------------------------------

    def restarts(self) -> Restarts:
        """Restarts of the containers of Ullage so far."""
        by_component: dict[str, dict[str, int]] = {"operator": {}, "node": {}}
        for pod in self.api.list(collection("pods", NAMESPACE)):
            component = pod["metadata"].get("labels", {}).get("app.kubernetes.io/component", "")
            if component in by_component:
                by_component[component][pod["metadata"]["uid"]] = _restarts(pod)
        return Restarts(operator=by_component["operator"], agents=by_component["node"])

    def health(self) -> dict[str, str]:
        """What is wrong by the health checks of each operator, by pod and check; empty = well."""
        selector = "labelSelector=app.kubernetes.io%2Fcomponent%3Doperator"
        pods = self.api.list(f"{collection('pods', NAMESPACE)}?{selector}")
        addresses = {p["metadata"]["name"]: p.get("status", {}).get("podIP", "") for p in pods}
        return {
            f"{name} {check}": text
            for name, address in addresses.items()
            for check in ("healthz", "readyz")
            if (text := _unwell(f"http://{address}:{HEALTH_PORT}/{check}"))
        }

    @contextmanager
    def watched_health(self, every_s: float = 1.0) -> Iterator[Health]:
        """Ask for health in the background."""
        health = Health()

        def sample() -> None:
            try:
                found = self.health()
            except NotAnswered as error:
                found = {"API server": str(error)}
            health.samples += 1
            health.unwell += [f"{where}: {text}" for where, text in found.items()]

        with every(every_s, sample):
            yield health


def job(name: str, accelerator: str, percent: int, **more: Any) -> Json:
    """A job of the third namespace: one container that waits."""
    pod = {"containers": [container()], "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": VICTIM},
        "spec": {
            "template": {"spec": pod},
            "gpu": share(percent),
            "accelerators": [accelerator],
            **more,
        },
    }


def fate_of(found: Json) -> tuple[Fate, str]:
    """What the object of a tenant says of itself.

    Returns:
        Its fate, and the text that stands for it.
    """
    kind, status = found["kind"], found.get("status", {})
    conditions = {one["type"]: one for one in status.get("conditions", [])}
    invalid = conditions.get("Invalid", {})
    if invalid.get("status") == "True":
        return Fate.TOLD, f"Invalid: {invalid.get('reason')}: {invalid.get('message')}"
    if kind == "CapacityPool":
        fresh = conditions.get("PriceFresh", {})
        told = fresh.get("status") in ("False", "Unknown")
        return (Fate.TOLD if told else Fate.SILENT), f"PriceFresh: {fresh.get('message', '')}"
    if kind not in ("TrainingJob", "InferenceDeployment"):
        return Fate.IGNORED, ""
    if status.get("phase") in ("Running", "Ready", "Succeeded"):
        return Fate.RUNS, status["phase"]
    decision = status.get("decision") or {}
    if decision.get("reason"):
        return Fate.TOLD, f"{decision['reason']}: {decision.get('message', '')}"
    return Fate.SILENT, json.dumps(status)[:200]


def ratio(loud: Sequence[float], quiet: Sequence[float]) -> float:
    """How much longer the median job took."""
    return statistics.median(loud) / statistics.median(quiet)


def _binding(namespace: str) -> Json:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": namespace, "apiGroup": group}],
    }


def _restarts(pod: Json) -> int:
    return sum(one["restartCount"] for one in pod.get("status", {}).get("containerStatuses", []))


def _unwell(url: str) -> str:
    """What a health check says is wrong; empty = well."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            answer.read()
            return ""
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode(errors='replace').strip()}"
    except OSError as error:
        return str(error)

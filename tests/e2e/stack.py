# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A running Ullage on the local cluster, as the end-to-end tests see it.

Tests look only at what a user sees: objects, events, logs, metrics. The one exception is
:meth:`Stack.ledger`, which checks the books of every device.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.books import Books, problems, wanted_slices
from certificates import certificate
from demo.cluster import Devices, LocalCluster
from demo.images import image_name
from demo.install import NAMESPACE, install
from demo.progress import Progress
from e2e.reading import ApiReader, Json
from ullage.api.labels import LEASE_NAME

T = TypeVar("T")
LOOK_CHARACTERS = 8000
"""Most of one command's answer that stands in the report of a failure: the newest."""
STATUSES = 'jsonpath={range .items[*]}{.metadata.name}: {.status}{"\\n"}{end}'
WORLD_SIZES = (
    r"jsonpath={range .items[*]}{.metadata.name}: {.metadata.annotations.ullage\.dev/world-size}"
    r' {.metadata.deletionTimestamp} {.status.containerStatuses}{"\n"}{end}'
)
SLICES = (
    "jsonpath={range .items[*]}{.metadata.name}: spec {.spec.slices} status {.status.slices}"
    '{"\\n"}{end}'
)
OUR_FOLDERS = {
    "/run/cdi": ["ullage.dev*"],
    "/var/lib/ullage": ["bin/*", "slots/*", "node/*"],
    "/run/ullage": ["steps/*"],
    "/var/lib/kubelet": ["device-plugins/ullage*"],
}
CHART_KINDS = (
    "clusterroles,clusterrolebindings,configmaps,daemonsets,deployments,flowschemas,jobs,"
    "mutatingadmissionpolicies,mutatingadmissionpolicybindings,mutatingwebhookconfigurations,"
    "networkpolicies,"
    "poddisruptionbudgets,pods,rolebindings,roles,serviceaccounts,services,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)
BUSY_MACHINE = 4.0
"""How much longer than on a machine of its own a wait may take: others run beside these tests."""
PATIENT = {"timeoutSeconds": 10}
"""Of a probe: the second that kubelet gives by itself is too short on a busy machine."""
RUNNING_PHASES = ("Prepared", "Attached", "Violating", "Frozen")

END_FILE = "/tmp/end"
BUSY = f"""
import os, signal, sys, time
import ullage_run
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end and not os.path.exists("{END_FILE}"):
    sum(i * i for i in range(20000))
    ullage_run.step()
    if len(sys.argv) > 3:
        time.sleep(float(sys.argv[3]))
sys.exit(int(sys.argv[2]))
"""


def busy_template(
    seconds: float = 3600, exit_code: int = 0, *, pause_s: float | None = 0.05, **pod: Any
) -> Json:
    """A pod template whose container counts steps for a while, then exits with a code.

    It does so earlier where :meth:`Stack.finish` tells it to.
    """
    words = [str(seconds), str(exit_code)] + ([str(pause_s)] if pause_s is not None else [])
    container = {
        "name": "main",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", BUSY, *words],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
    }
    container |= pod.pop("container", {})
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **pod}}


def served_template(module: str, ready: str, /, **environment: str) -> Json:
    """A pod template of a service of the examples' image.

    Args:
        module: What it runs.
        ready: The path of its probe.
        environment: Beside its port.
    """
    environment |= {"PORT": "8080", "OPENBLAS_NUM_THREADS": "1"}
    probe = {"httpGet": {"path": ready, "port": "http"}, "periodSeconds": 1, **PATIENT}
    container = {
        "name": "server",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["python", "-m", module],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
    }
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 15}}


def training_job(name: str, namespace: str, template: Json | None = None, /, **spec: Any) -> Json:
    """A TrainingJob of a quarter to half a device unless said otherwise."""
    gpu = {"mode": "Fractional", "share": {"minPercent": 30, "maxPercent": 40}}
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": template or busy_template(), "gpu": gpu, **spec},
    }


def whole_device(count: int = 1) -> Json:
    """``spec.gpu`` of whole devices."""
    return {"mode": "Exclusive", "count": count}


def share(minimum: int, maximum: int | None = None, **more: Any) -> Json:
    """``spec.gpu`` of a share of one device."""
    bounds = {"minPercent": minimum, "maxPercent": maximum or minimum}
    return {"mode": "Fractional", "share": bounds, **more}


def eventually(
    look: Callable[[], T | None], *, within_s: float, what: str, every_s: float = 0.2
) -> T:
    """The first true answer of a look; fails after a while with the last answer.

    Args:
        look: Asked again and again.
        within_s: More than enough on a machine of its own; a busy one has ``BUSY_MACHINE`` times
            as long, so that no test depends on its speed.
        what: What is waited for, for the failure.
        every_s: Between two looks.

    Raises:
        AssertionError: no answer was true.
    """
    began = time.monotonic()
    while True:
        found = look()
        if found:
            return found
        waited_s = time.monotonic() - began
        if waited_s > BUSY_MACHINE * within_s:
            raise AssertionError(f"not within {waited_s:.0f} s: {what}; last seen: {found!r}")
        time.sleep(every_s)


@contextmanager
def tls_secret(stack: Stack, name: str, folder: Path) -> Iterator[None]:
    """A certificate for a Service beside the operator: in a Secret, and in a folder, of its name.

    Installed anew without it, before the Secret goes.
    """
    certificate(folder, f"{name}.{NAMESPACE}.svc")
    stack.cluster.kubectl(
        "create", "secret", "tls", name, "--namespace", NAMESPACE,
        "--cert", str(folder / "tls.crt"), "--key", str(folder / "tls.key"),
    )  # fmt: skip
    try:
        yield
    finally:
        install(stack.cluster, Progress())
        stack.cluster.kubectl("delete", "secret", name, "--namespace", NAMESPACE)


def printed(text: str) -> Iterator[Json]:
    """Objects that stand one after the other, as `kubectl create` prints them."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        body, end = decoder.raw_decode(text)
        yield body
        text = text[end:]


@dataclass(slots=True)
class Stack:
    """The cluster with Ullage on it."""

    cluster: LocalCluster
    namespaces: list[str] = field(default_factory=list)
    _reader: ApiReader = field(init=False)

    def __post_init__(self) -> None:
        """Reads with the administrator's kubeconfig."""
        self._reader = ApiReader(self.cluster.kubeconfig)

    def close(self) -> None:
        """Nothing more is read."""
        self._reader.close()

    def get(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """One object, or None."""
        return self._reader.get(kind, name, namespace)

    def list(self, kind: str, namespace: str = "", selector: str = "") -> list[Json]:
        """All objects of a kind, in one namespace or in all."""
        return self._reader.list(kind, namespace, labelSelector=selector)

    def apply(self, *bodies: Json) -> None:
        """Apply objects as a user does."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)})
        self.cluster.kubectl("apply", "--filename", "-", stdin=text)

    def patch(self, kind: str, name: str, namespace: str, body: Json) -> None:
        """Merge-patch an object."""
        scope = ["--namespace", namespace] if namespace else []
        self.cluster.kubectl(
            "patch", kind, name, *scope, "--type", "merge", "--patch", json.dumps(body)
        )

    def delete(self, kind: str, name: str, namespace: str, *words: str) -> None:
        """Delete an object and wait until it is gone."""
        self.cluster.kubectl("delete", kind, name, "--namespace", namespace, *words)

    def logs(self, pod: str, namespace: str) -> str:
        """What a pod printed; nothing while it is not there or has not begun."""
        return self.cluster.kubectl("logs", pod, "--namespace", namespace, check=False).stdout

    def finish(self, pod: str, namespace: str) -> None:
        """Let the container of a :func:`busy_template` end now, with the exit code that it has."""
        words = ("exec", pod, "--namespace", namespace, "--", "python3", "-c")
        first = self.get("pods", pod, namespace)
        assert first is not None

        def told() -> bool:
            now = self.get("pods", pod, namespace)
            if now is None or now["metadata"]["uid"] != first["metadata"]["uid"]:
                return True
            if now["status"].get("phase") != "Running":
                return True  # it may end before the command in it has
            said = self.cluster.kubectl(*words, f"open({END_FILE!r}, 'w').close()", check=False)
            return said.returncode == 0

        eventually(told, within_s=60, what=f"{pod} is told to end")

    def status(self, kind: str, name: str, namespace: str) -> Json:
        """Status of a workload; empty before the operator wrote one."""
        found = self.get(kind, name, namespace)
        return (found or {}).get("status", {})

    def job(self, name: str, namespace: str) -> Json:
        """Status of a TrainingJob."""
        return self.status("trainingjobs.ullage.dev", name, namespace)

    def job_reaches(self, name: str, namespace: str, phase: str, within_s: float = 90) -> Json:
        """Wait for a phase of a TrainingJob; returns its status."""

        def look() -> Json | None:
            seen = self.job(name, namespace)
            return seen if seen.get("phase") == phase else None

        try:
            return eventually(look, within_s=within_s, what=f"TrainingJob {name} {phase}")
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {self.job(name, namespace)}") from None

    def job_waits_for(self, name: str, namespace: str, reason: str, within_s: float = 30) -> Json:
        """Wait until a TrainingJob says why it waits; returns its decision."""

        def look() -> Json | None:
            decision = self.job(name, namespace).get("decision") or {}
            return decision if decision.get("reason") == reason else None

        try:
            return eventually(look, within_s=within_s, what=f"TrainingJob {name} waits: {reason}")
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {self.job(name, namespace)}") from None

    def events(self, namespace: str, name: str) -> list[Json]:
        """Events about one object."""
        return self._reader.list("events", namespace, fieldSelector=f"involvedObject.name={name}")

    def tells(self, namespace: str, name: str, *reasons: str, within_s: float = 60) -> list[Json]:
        """Wait until Events about an object give all these reasons; returns those Events.

        An Event is written after what it is about: whoever has seen that may look too early.
        """

        def look() -> list[Json]:
            found = [one for one in self.events(namespace, name) if one["reason"] in reasons]
            return found if {one["reason"] for one in found} == {*reasons} else []

        return eventually(look, within_s=within_s, what=f"Events about {name} say {reasons}")

    def pods(self, namespace: str, owner: str = "") -> list[Json]:
        """Pods of ours in a namespace, of one owner or of all."""
        selector = "ullage.dev/managed=true" + (f",ullage.dev/owner={owner}" if owner else "")
        return self.list("pods", namespace, selector)

    def leader(self) -> str:
        """Name of the operator pod that holds the Lease."""
        lease = self.get("leases", "ullage-operator", "ullage-system") or {}
        holder: str = lease.get("spec", {}).get("holderIdentity", "")
        names = [
            pod["metadata"]["name"]
            for pod in self.list("pods", "ullage-system", "app.kubernetes.io/component=operator")
        ]
        return next((name for name in names if holder.startswith(name)), "")

    def offer(self, devices: Devices) -> None:
        """Give the nodes these devices; their agents read the file when they start."""
        wanted = {node: [one.model for one in found] for node, found in devices.items()}
        for node, found in devices.items():
            self.cluster.write_devices(node, found)
        self.cluster.kubectl(
            "delete", "pods", "--namespace", NAMESPACE,
            "--selector", "app.kubernetes.io/component=node",
        )  # fmt: skip

        def offered() -> bool:
            return wanted == {
                node["metadata"]["name"]: [
                    device["model"]
                    for device in node.get("status", {}).get("devices", [])
                    if device.get("health") == "Healthy"
                ]
                for node in self.list("gpunodes.ullage.dev")
            }

        eventually(offered, within_s=90, what=f"nodes offer {wanted}")
        for node in devices:  # kubelet counts the slots of the new agents a moment later
            eventually(lambda node=node: self.takes_work(node), within_s=120, what=f"{node} works")

    def takes_work(self, name: str) -> bool:
        """The node is Ready, nothing keeps pods away, and kubelet counts the slots of its agent."""
        node = self.get("nodes", name) or {}
        ready = any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in node.get("status", {}).get("conditions", [])
        )
        slots = node.get("status", {}).get("allocatable", {}).get("ullage.dev/slot", "0")
        agents = [
            pod
            for pod in self.list("pods", NAMESPACE, "app.kubernetes.io/component=node")
            if pod["spec"].get("nodeName") == name
            and "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("phase") == "Running"
        ]
        return ready and slots != "0" and not node["spec"].get("taints") and len(agents) == 1

    def ledger(self) -> list[str]:
        """What is wrong in the books of the devices; empty = nothing.

        Percent and memory within every device, one slice per live device container, no slice
        without a pod.
        """
        pods = self.list("pods")
        books = Books(
            nodes=self.list("gpunodes.ullage.dev"),
            pods=pods,
            jobs=self.list("trainingjobs.ullage.dev"),
            services=self.list("inferencedeployments.ullage.dev"),
        )
        return [f"{one.kind}: {one.text}" for one in sorted(problems(books))]

    def books_balance(self, within_s: float = 30) -> None:
        """The ledger is right, at the latest after the reconciliation of a moment."""
        try:
            eventually(lambda: not self.ledger(), within_s=within_s, what="the books balance")
        except AssertionError as error:
            raise AssertionError(f"{error}; now {self.ledger()}") from None

    def holdings(self, namespace: str) -> Json:
        """What must outlast an upgrade: pods of a namespace, their restarts, and their slices."""
        pods = self.list("pods", namespace)
        restarts = {
            pod["metadata"]["uid"]: [one["restartCount"] for one in _containers(pod)]
            for pod in pods
        }
        slices = [item for item in self.slices(pods) if item["podUID"] in restarts]
        return {"restarts": restarts, "slices": sorted(slices, key=str)}

    def slices(self, pods: Sequence[Json] | None = None) -> list[Json]:
        """Slices that GPUNodes are to hold, each with the uid of its pod.

        Args:
            pods: The pods that may have any; those of all namespaces where there are none.
        """
        every = self.list("pods") if pods is None else pods
        return [
            piece
            for node in self.list("gpunodes.ullage.dev")
            for piece in wanted_slices(node, every)
        ]

    def left_behind(self) -> list[str]:
        """What an uninstall should have removed: files on nodes, objects of the chart."""
        files = [
            str(path)
            for node in self.list("nodes")
            for folder, patterns in OUR_FOLDERS.items()
            for pattern in patterns
            for path in self.cluster.private(node["metadata"]["name"], folder).glob(pattern)
            if not path.is_dir()
        ]
        done = self.cluster.kubectl(
            "get", CHART_KINDS, "--all-namespaces", "--output", "name",
            "--selector", "app.kubernetes.io/name=ullage",
        )  # fmt: skip
        lease = self.get("leases", LEASE_NAME, NAMESPACE)
        return [*files, *done.stdout.split(), *([f"lease {LEASE_NAME}"] if lease else [])]

    def nothing_is_left(self, within_s: float = 30) -> None:
        """An uninstall has removed everything, at the latest when its hook's pod is collected."""
        with suppress(AssertionError):
            eventually(lambda: not self.left_behind(), within_s=within_s, what="nothing is left")
        assert self.left_behind() == []

    def describe(self, namespace: str) -> str:
        """What a person would look at after a failure in a namespace, as kubectl prints it."""
        looks = {
            "jobs": ("get", "trainingjobs.ullage.dev", "-n", namespace, "-o", STATUSES),
            "pods": ("get", "pods", "-n", namespace, "-o", "wide"),
            "world sizes": ("get", "pods", "-n", namespace, "-o", WORLD_SIZES),
            "events": ("get", "events", "-n", namespace),
            "nodes": ("get", "nodes", "-o", "wide"),
            "device nodes": ("get", "gpunodes.ullage.dev", "-o", SLICES),
            "pools": ("get", "capacitypools.ullage.dev"),
            "operator": (
                "logs", "-n", NAMESPACE, "--tail=80", "-l", "app.kubernetes.io/component=operator",
            ),
        }  # fmt: skip
        parts = []
        for title, words in looks.items():
            done = self.cluster.kubectl(*words, check=False)
            parts.append(f"== {title}\n{(done.stdout + done.stderr)[-LOOK_CHARACTERS:]}")
        return "\n".join(parts)

    @contextmanager
    def own_namespace(self) -> Iterator[str]:
        """A namespace for a test; its slices are released before the next test starts."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        self.create_namespace(name)
        yield name
        self.clean(name)

    def create_namespace(self, name: str) -> None:
        """A namespace in which pods may be created: its ServiceAccount comes a moment later."""
        self.cluster.kubectl("create", "namespace", name)
        eventually(
            lambda: self.get("serviceaccounts", "default", name),
            within_s=60,
            what=f"pods may be created in {name}",
        )

    def clean(self, namespace: str, kinds: Sequence[str] = ()) -> None:
        """Remove a test's namespace and wait until its slices are released."""
        # TuningJobs first: one would create its trials again
        own = ("tuningjobs", "trainingjobs", "inferencedeployments")
        every = ",".join(kinds or (f"{kind}.ullage.dev" for kind in own))
        self.cluster.kubectl("delete", every, "--all", "--namespace", namespace, "--wait=false")
        self.cluster.kubectl("delete", "namespace", namespace, "--wait=false")
        self.cluster.kubectl(
            "delete", "pods", "--all", "--namespace", namespace, "--grace-period=1", "--wait=false"
        )

        def released() -> bool:
            nodes, pods = self.list("gpunodes.ullage.dev"), self.list("pods")
            desired = [s for node in nodes for s in wanted_slices(node, pods)]
            reserved = [s for node in nodes for s in node["spec"].get("slices", [])]
            seen = [s for node in nodes for s in node.get("status", {}).get("slices", [])]
            # another namespace may hold some at any time
            others = {
                s["podUID"] for s in (*desired, *reserved) if s.get("podNamespace") != namespace
            }
            return all(s["podUID"] in others for s in (*desired, *seen))

        eventually(released, within_s=60, what=f"slices of {namespace} are released")


def _containers(pod: Json) -> list[Json]:
    found: list[Json] = pod["status"].get("containerStatuses", [])
    return found

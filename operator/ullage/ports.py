# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The only seams to the outside: the cluster's API, the clock.

Protocols and value types alone; every real adapter and every fake implements these verbs, and one
contract suite runs on both. Nothing here may know a client library.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

JsonObject = Mapping[str, object]
JsonPatch = Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One served resource type."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


def _ours(plural: str, kind: str, *, namespaced: bool) -> Kind:
    return Kind(
        group="ullage.dev", version="v1alpha1", plural=plural, kind=kind, namespaced=namespaced
    )


def _core(plural: str, kind: str, *, namespaced: bool) -> Kind:
    return Kind(group="", version="v1", plural=plural, kind=kind, namespaced=namespaced)


TRAINING_JOB: Final = _ours("trainingjobs", "TrainingJob", namespaced=True)
INFERENCE_DEPLOYMENT: Final = _ours("inferencedeployments", "InferenceDeployment", namespaced=True)
WORKLOAD_PROFILE: Final = _ours("workloadprofiles", "WorkloadProfile", namespaced=True)
GPU_NODE: Final = _ours("gpunodes", "GPUNode", namespaced=False)
DEVICE_PROFILE: Final = _ours("deviceprofiles", "DeviceProfile", namespaced=False)
SCHEDULING_POLICY: Final = _ours("schedulingpolicies", "SchedulingPolicy", namespaced=False)
TUNING_JOB: Final = _ours("tuningjobs", "TuningJob", namespaced=True)
EFFICIENCY_REPORT: Final = _ours("efficiencyreports", "EfficiencyReport", namespaced=True)
PROFILE_REQUEST: Final = _ours("profilerequests", "ProfileRequest", namespaced=True)
CAPACITY_POOL: Final = _ours("capacitypools", "CapacityPool", namespaced=False)
NODE: Final = _core("nodes", "Node", namespaced=False)
POD: Final = _core("pods", "Pod", namespaced=True)
NAMESPACE: Final = _core("namespaces", "Namespace", namespaced=False)
CLAIM: Final = _core("persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
VOLUME: Final = _core("persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASS: Final = Kind(
    group="storage.k8s.io",
    version="v1",
    plural="storageclasses",
    kind="StorageClass",
    namespaced=False,
)
SERVICE: Final = _core("services", "Service", namespaced=True)
SECRET: Final = _core("secrets", "Secret", namespaced=True)
EVENT: Final = _core("events", "Event", namespaced=True)
CONFIG_MAP: Final = _core("configmaps", "ConfigMap", namespaced=True)
POD_GROUP: Final = Kind(
    group="scheduling.k8s.io",
    version="v1beta1",
    plural="podgroups",
    kind="PodGroup",
    namespaced=True,
)
DEPLOYMENT: Final = Kind(
    group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True
)
REPLICA_SET: Final = Kind(
    group="apps", version="v1", plural="replicasets", kind="ReplicaSet", namespaced=True
)
JOB: Final = Kind(group="batch", version="v1", plural="jobs", kind="Job", namespaced=True)
NETWORK_POLICY: Final = Kind(
    group="networking.k8s.io",
    version="v1",
    plural="networkpolicies",
    kind="NetworkPolicy",
    namespaced=True,
)
LEASE: Final = Kind(
    group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", namespaced=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Server-side filters of a list or a watch; empty strings filter nothing."""

    labels: str = ""
    fields: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list; ``resource_version`` is the same on all pages of one list."""

    items: Sequence[JsonObject]
    resource_version: str
    remaining: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One line of a watch; ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: JsonObject


class ApiError(Exception):
    """The API server answered with an error, or not at all.

    Attributes:
        status: HTTP status code, 0 when there was no answer.
        reason: the API's machine-readable reason ("" when it gave none).
        message: the API's own text.
    """

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFound(ApiError):
    """404: the object, or its type, is not there."""


class Conflict(ApiError):
    """409: it changed, exists already, or a field is owned by someone else."""


class Gone(ApiError):
    """410: the resource version is too old; list again."""


class Invalid(ApiError):
    """422: refused by validation, by a failed ``test`` or by the epoch rule."""


class Forbidden(ApiError):
    """401 or 403: not allowed; the text names the verb."""


class Throttled(ApiError):
    """429: too many requests, or an eviction that a disruption budget refuses.

    Attributes:
        retry_after_s: what the server asked for, seconds (0 when it said nothing).
    """

    def __init__(
        self, status: int, message: str, reason: str = "", retry_after_s: float = 0.0
    ) -> None:
        super().__init__(status, message, reason)
        self.retry_after_s = retry_after_s


class Unavailable(ApiError):
    """5xx, a time-out or no connection: worth another try."""


class BadRequest(ApiError):
    """Any other 4xx: our request was wrong."""


class ClusterPort(Protocol):
    """Verbs on the API server. Every call has a time limit and raises :class:`ApiError`."""

    def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500
    ) -> AsyncIterator[Page]:
        """Yield the pages of one consistent list."""
        ...

    def watch(
        self, kind: Kind, selector: Selector, *, resource_version: str, timeout_s: int = 45
    ) -> AsyncIterator[WatchEvent]:
        """Yield events after a version until the stream ends; ``Gone`` when it is too old."""
        ...

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        """Read one object."""
        ...

    async def create(self, kind: Kind, body: JsonObject, *, namespace: str = "") -> JsonObject:
        """Create one object."""
        ...

    async def update(
        self, kind: Kind, name: str, body: JsonObject, *, namespace: str = ""
    ) -> JsonObject:
        """Replace one object; the body bears the resource version it was read at."""
        ...

    async def apply(
        self,
        kind: Kind,
        name: str,
        body: JsonObject,
        *,
        namespace: str = "",
        subresource: str = "",
        manager: str,
    ) -> JsonObject:
        """Server-side apply of owned fields, with force."""
        ...

    async def json_patch(
        self, kind: Kind, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> JsonObject:
        """Apply a JSON patch (a list with ``test`` operations)."""
        ...

    async def scale(
        self, kind: Kind, name: str, replicas: int, *, namespace: str = "", resource_version: str
    ) -> JsonObject:
        """Set the replicas of an object of this very version; ``Conflict`` when it is another."""
        ...

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_s: int | None = None,
    ) -> None:
        """Delete one object, only if it still has this uid."""
        ...

    async def evict(
        self, name: str, *, namespace: str, uid: str, grace_s: int | None = None
    ) -> None:
        """Evict a pod through the Eviction API; ``Throttled`` when a budget refuses.

        ``grace_s`` takes the place of the pod's own grace.
        """
        ...


class Clock(Protocol):
    """Time, injected so that tests own it."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Fetches the records for a command, the same that the operator decides on.

Writes nothing but imported profiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ullage.api.readers import section, text
from ullage.api.reasons import ConditionType
from ullage.cli.target import ClusterTarget
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values import streams
from ullage.cluster.values.streams import Stream
from ullage.ports import WORKLOAD_PROFILE, ClusterPort, Forbidden, JsonObject, NotFound

WORKLOADS = (streams.TRAINING_JOBS, streams.INFERENCE_DEPLOYMENTS)


async def look(target: ClusterTarget, wanted: Sequence[Stream]) -> Snapshot:
    """Read these streams once, with the user's own credentials.

    Raises:
        CredentialsError: no usable credentials.
        ApiError: the API server refused or did not answer.
    """
    async with target.connect() as api:
        return await snapshot_of(api, wanted)


async def look_as_allowed(
    target: ClusterTarget, wanted: Sequence[Stream], optional: Collection[Stream]
) -> tuple[Snapshot, dict[str, str]]:
    """The same, without optional streams that the user may not list; see :func:`as_allowed`.

    Raises:
        CredentialsError: no usable credentials.
        ApiError: the API server refused another one or did not answer.
    """
    async with target.connect() as api:
        return await as_allowed(api, wanted, optional)


Join = Callable[[JsonObject, JsonObject], JsonObject]
"""Merge of the existing spec and the new one."""


async def save(target: ClusterTarget, body: JsonObject, join: Join | None = None) -> str:
    """Create or replace a WorkloadProfile's spec; returns which.

    ``join`` merges an existing spec with the new one; without it, the spec is replaced.

    Raises:
        CredentialsError: no usable credentials.
        ApiError: the API server refused or did not answer.
    """
    async with target.connect() as api:
        return await saved(api, body, join)


async def saved(cluster: ClusterPort, body: JsonObject, join: Join | None = None) -> str:
    """Create or replace a WorkloadProfile's spec; labels and annotations of an old one stay."""
    metadata = section(body, "metadata")
    name, namespace = text(metadata, "name"), text(metadata, "namespace")
    try:
        held = await cluster.get(WORKLOAD_PROFILE, name, namespace=namespace)
    except NotFound:
        await cluster.create(WORKLOAD_PROFILE, body, namespace=namespace)
        return "created"
    spec = section(body, "spec")
    patch = (
        {"op": "test", "path": "/metadata/uid", "value": text(section(held, "metadata"), "uid")},
        {
            "op": "replace",
            "path": "/spec",
            "value": spec if join is None else join(section(held, "spec"), spec),
        },
    )
    await cluster.json_patch(WORKLOAD_PROFILE, name, patch, namespace=namespace)
    return "replaced" if join is None else "completed"


async def snapshot_of(cluster: ClusterPort, wanted: Sequence[Stream]) -> Snapshot:
    """A snapshot of these streams."""
    return (await as_allowed(cluster, wanted))[0]


async def as_allowed(
    cluster: ClusterPort, wanted: Sequence[Stream], optional: Collection[Stream] = ()
) -> tuple[Snapshot, dict[str, str]]:
    """A snapshot of these streams, without optional ones that the user may not list.

    Returns:
        The snapshot; and the API server's error, by omitted kind.
    """
    state = ClusterState(lambda _: None)  # no assumptions here
    now, refused = time.time(), dict[str, str]()
    for stream in wanted:
        items: list[JsonObject] = []
        try:
            async for page in cluster.list_paged(stream.kind, stream.selector):
                items += page.items
        except NotFound:
            if not stream.optional:
                raise
        except Forbidden as error:
            if stream not in optional and not stream.optional:
                raise
            refused[stream.kind.kind] = error.message
            continue
        state.replace(stream, items, now)
    return state.freeze(now), refused


async def quota_held(cluster: ClusterPort) -> Snapshot | None:
    """Usage of quota by tenant; ``None`` = the user may not list all of it."""
    wanted = (*WORKLOADS, streams.SCHEDULING_POLICIES, streams.GPU_NODES, streams.PODS)
    try:
        return await snapshot_of(cluster, wanted)
    except Forbidden:
        return None


def inside(wanted: Sequence[Stream], namespace: str, name: str = "") -> tuple[Stream, ...]:
    """The same streams, of one namespace ("" = all) and, if given, of one name."""
    fields = f"metadata.name={name}" if name else ""
    return tuple(
        replace(stream, selector=replace(stream.selector, namespace=namespace, fields=fields))
        for stream in wanted
    )


def workloads(snapshot: Snapshot) -> list[WorkloadRecord]:
    """Workloads in reading order: namespace, then name, then kind."""
    return sorted(
        snapshot.workloads.values(), key=lambda w: (w.ref.namespace, w.ref.name, w.kind.value)
    )


def isolation_of(snapshot: Snapshot, workload: WorkloadRecord) -> Condition | None:
    """The condition with the reason for which the workload's class is isolated, if it is."""
    at = (workload.ref.namespace, workload.workload_class)
    profiles = snapshot.profiles.values()
    statuses = (
        profile.status for profile in profiles if (profile.namespace, profile.workload_class) == at
    )
    conditions = (status.condition(ConditionType.ISOLATED) for status in statuses)
    return next((condition for condition in conditions if condition is not None), None)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The pipeline's own limits: what the API server, the scheduler and KWOK can do at all.

A controller that decides nothing creates gated pods, removes the gate and pins in one patch. No
product can fill the cluster faster on the same machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bench.progress import Progress
from ullage.api.labels import API_VERSION, GATE, MANAGER_OPERATOR, SLOT_RESOURCE
from ullage.api.readers import section, text
from ullage.ports import (
    POD,
    TRAINING_JOB,
    ClusterPort,
    Gone,
    JsonObject,
    Kind,
    NotFound,
    Selector,
    Unavailable,
)

IN_FLIGHT = 50
IMAGE = "example/none:1"


def template(slots: int = 0) -> dict[str, object]:
    """The smallest pod template; KWOK pulls no image."""
    container: dict[str, object] = {
        "name": "main",
        "image": IMAGE,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    if slots:
        resources = {"requests": {"cpu": "10m", "memory": "16Mi", SLOT_RESOURCE: str(slots)}}
        container["resources"] = resources | {"limits": {SLOT_RESOURCE: str(slots)}}
    return {"spec": {"containers": [container]}}


def job(name: str) -> dict[str, object]:
    """A TrainingJob of one whole device."""
    return {
        "apiVersion": API_VERSION,
        "kind": TRAINING_JOB.kind,
        "metadata": {"name": name},
        "spec": {"template": template()},
    }


def _gated(name: str, label: str) -> dict[str, object]:
    spec = {**section(template(1), "spec"), "schedulingGates": [{"name": GATE}]}
    return {"metadata": {"name": name, "labels": {"bench": label}}, "spec": spec}


def _ungate(node: str) -> list[dict[str, object]]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return [
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        {"op": "add", "path": "/spec/affinity", "value": affinity},
    ]


async def for_each(count: int, act: Callable[[int], Awaitable[None]]) -> None:
    """Run an act for every number, a bounded number of them at once."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await act(number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.create_task(worker())


async def until_running(
    cluster: ClusterPort, selector: Selector, count: int, progress: Progress, what: str
) -> None:
    """Wait until so many pods have run.

    Watches with a filter of the server: listing thousands of pods again and again would disturb
    what is measured.
    """
    task = progress.task(what, count)
    chosen = replace(selector, fields="status.phase=Running")
    seen: set[str] = set()
    while len(seen) < count:
        version = ""
        async for page in cluster.list_paged(POD, chosen):
            seen |= {text(section(pod, "metadata"), "uid") for pod in page.items}
            version = page.resource_version
        try:
            async for event in cluster.watch(POD, chosen, resource_version=version):
                if event.type in ("ADDED", "MODIFIED"):
                    seen.add(text(section(event.object, "metadata"), "uid"))
                    task.to(len(seen))
                elif event.type == "DELETED":
                    seen.discard(text(section(event.object, "metadata"), "uid"))
                if len(seen) >= count:
                    break
        except (Gone, Unavailable):
            continue  # list again
    task.to(count)
    task.end()


async def limit_bare(
    cluster: ClusterPort, nodes: int, count: int, progress: Progress, label: str = "bare"
) -> float:
    """Seconds for bare pods: create, ungate and pin, bind, Running.

    ``label`` must be new for each call: KWOK may still delete a pod of an earlier call by name.
    """

    async def one(number: int) -> None:
        name = f"{label}-{number:05d}"
        await cluster.create(POD, _gated(name, label), namespace="default")
        patch = _ungate(f"kwok-{number % nodes:04d}")
        await cluster.json_patch(POD, name, patch, namespace="default")

    return await _timed(cluster, one, count, label, progress)


async def limit_same_objects(
    cluster: ClusterPort, nodes: int, count: int, progress: Progress
) -> float:
    """Seconds for the same with a TrainingJob and one status apply for each pod."""

    async def one(number: int) -> None:
        name = f"same-{number:05d}"
        made = await cluster.create(TRAINING_JOB, job(name), namespace="default")
        await cluster.create(POD, _gated(f"{name}-0", "same"), namespace="default")
        patch = _ungate(f"kwok-{number % nodes:04d}")
        await cluster.json_patch(POD, f"{name}-0", patch, namespace="default")
        body: JsonObject = {
            "apiVersion": API_VERSION,
            "kind": TRAINING_JOB.kind,
            "metadata": {"name": name, "uid": text(section(made, "metadata"), "uid")},
            "status": {"phase": "Running", "nodes": f"kwok-{number % nodes:04d}", "gpus": 1},
        }
        await cluster.apply(
            TRAINING_JOB, name, body, namespace="default", subresource="status",
            manager=MANAGER_OPERATOR,
        )  # fmt: skip

    return await _timed(cluster, one, count, "same", progress)


async def _timed(
    cluster: ClusterPort,
    one: Callable[[int], Awaitable[None]],
    count: int,
    label: str,
    progress: Progress,
) -> float:
    selector = Selector(labels=f"bench={label}")
    started = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(for_each(count, one))
        tasks.create_task(until_running(cluster, selector, count, progress, f"limit: {label}"))
    seconds = time.monotonic() - started
    await remove(cluster, selector, progress)
    return seconds


async def remove(cluster: ClusterPort, selector: Selector, progress: Progress) -> None:
    """Delete all TrainingJobs and the selected pods, and wait until they are gone."""
    await _delete_all(cluster, TRAINING_JOB, Selector(), progress)
    await _delete_all(cluster, POD, selector, progress)
    while await _left(cluster, selector):
        await asyncio.sleep(1.0)


async def _delete_all(
    cluster: ClusterPort, kind: Kind, selector: Selector, progress: Progress
) -> None:
    names = []
    async for page in cluster.list_paged(kind, selector):
        names += [text(section(item, "metadata"), "name") for item in page.items]
    task = progress.task(f"remove {kind.plural}", len(names))

    async def one(number: int) -> None:
        task.advance()
        try:
            await cluster.delete(kind, names[number], namespace="default", grace_s=0)
        except NotFound:
            return

    await for_each(len(names), one)
    task.end()


async def _left(cluster: ClusterPort, selector: Selector) -> bool:
    async for page in cluster.list_paged(POD, selector, limit=1):
        return bool(page.items)
    return False

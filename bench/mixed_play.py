# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plays a plan under a rule on the local cluster, in a namespace of its own.

A namespace of its own also means that nothing learned under one rule helps another. Everything is
removed at the end, also after an error; the cluster itself is its caller's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.mixed_judge import WINDOW_S, Alone
from bench.mixed_load import offer_apart, until_ready
from bench.mixed_look import Watch
from bench.mixed_plan import SERVICE, Plan
from bench.mixed_record import Recording
from bench.mixed_rules import Body, Rule, job, policy, profiles, service
from bench.mixed_speed import measure_apart
from bench.progress import Progress
from demo.cluster import LocalCluster
from demo.progress import CommandFailed
from ullage.api.readers import WireError, objects, section, text, whole
from ullage.ports import (
    GPU_NODE,
    INFERENCE_DEPLOYMENT,
    TRAINING_JOB,
    ApiError,
    ClusterPort,
    NotFound,
    Selector,
)
from ullage.ports import SERVICE as SERVICE_KIND

KINDS: Final = ("trainingjobs.ullage.dev", "inferencedeployments.ullage.dev")
RELEASE_S: Final = 90.0
SETTLE_S: Final = 3.0
"""Between the policy and the first arrival, so that the first decision is already by it."""
HEAD_START_S: Final = 60.0
"""Longest wait for the service before the jobs come all the same."""
MISSED_LOOKS: Final = 6
"""So many looks may fail in a row; more is no measurement."""


class NotMeasured(RuntimeError):
    """The cluster could not be watched; the text holds the last error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where plans are played."""

    local: LocalCluster
    cluster: ClusterPort
    folders: Mapping[str, Path]
    """Of step records, by node."""
    progress: Progress
    cores: Mapping[str, int]
    """Of devices, by node."""
    alone: Alone | None = None
    """What is declared of every class."""


async def play(
    stage: Stage, rule: Rule, plan: Plan, *, name: str, history: Plan | None = None
) -> Recording:
    """Play until the plan's time is over, or earlier when all of its jobs have ended.

    Args:
        stage: Where.
        rule: How devices are shared.
        plan: Who comes when.
        name: Of the recording.
        history: Played before, without objectives and without judgement: what was learned then
            stays.

    Raises:
        NotMeasured: the API server did not answer for a while.
        CommandFailed: the namespace could not be made or did not become free.
    """
    namespace = f"mixed-{name}"
    await asyncio.to_thread(_open, stage, namespace)
    try:
        if history is not None:
            await _act(stage, Rule.HISTORY, Recording(rule="history", plan=history), namespace)
        recording = Recording(rule=name, plan=plan)
        await _act(stage, rule, recording, namespace)
    finally:
        await asyncio.to_thread(
            stage.local.kubectl, "delete", "namespace", namespace, "--wait=false", check=False
        )
    return recording


async def _act(stage: Stage, rule: Rule, recording: Recording, namespace: str) -> None:
    """One plan from empty devices to empty devices; the service is there before the first job."""
    await asyncio.to_thread(_apply, stage.local, [policy(rule)])
    try:
        await asyncio.sleep(SETTLE_S)
        body = service(recording.plan, rule)
        await stage.cluster.create(INFERENCE_DEPLOYMENT, body, namespace=namespace)
        with suppress(TimeoutError):
            async with asyncio.timeout(HEAD_START_S):
                await until_ready(await _address(stage.cluster, namespace))
        await _run(stage, rule, recording, namespace)
    finally:
        await asyncio.to_thread(_clear, stage.local, namespace)
        await _released(stage, namespace)


async def _run(stage: Stage, rule: Rule, recording: Recording, namespace: str) -> None:
    """Arrivals and requests as background work, looks in front."""
    started = asyncio.get_running_loop().time()
    players = [
        asyncio.create_task(_arrive(stage.cluster, rule, recording.plan, namespace, started)),
        asyncio.create_task(_ask(stage.cluster, recording, namespace, started)),
        asyncio.create_task(measure_apart(stage.cores, started, recording.speeds)),
    ]
    try:
        await _watch(stage, recording, namespace, started, players)
    finally:
        for player in players:
            player.cancel()
        await asyncio.gather(*players, return_exceptions=True)


async def _watch(
    stage: Stage,
    recording: Recording,
    namespace: str,
    started: float,
    players: list[asyncio.Task[None]],
) -> None:
    """Look at the end of every window."""
    loop = asyncio.get_running_loop()
    plan, missed = recording.plan, 0
    watch = Watch(cluster=stage.cluster, namespace=namespace, folders=stage.folders, into=recording)
    stage.progress.say(f"{recording.rule} (at most {plan.seconds / 60:g} min)")
    task = stage.progress.task(recording.rule, plan.seconds)
    for number in range(1, int(plan.seconds / WINDOW_S) + 1):
        await asyncio.sleep(max(0.0, started + number * WINDOW_S - loop.time()))
        for player in players:
            if player.done():
                player.result()  # a player that failed ends the measurement
        try:
            await watch.look(loop.time() - started)
            missed = 0
        except (ApiError, WireError) as error:
            missed += 1
            if missed >= MISSED_LOOKS:
                raise NotMeasured(f"{missed} looks in a row failed: {error}") from error
        ended = len(recording.finished_s) + len(recording.failed)
        words = f"{recording.rule}: {ended} of {len(plan.jobs)} jobs ended"
        task.to(number * WINDOW_S, words)
        if ended == len(plan.jobs):
            break
    task.to(plan.seconds)
    task.end()


async def _arrive(
    cluster: ClusterPort, rule: Rule, plan: Plan, namespace: str, started: float
) -> None:
    loop = asyncio.get_running_loop()
    for arrival in plan.jobs:
        await asyncio.sleep(max(0.0, started + arrival.at_s - loop.time()))
        await cluster.create(TRAINING_JOB, job(arrival, rule), namespace=namespace)


async def _ask(cluster: ClusterPort, recording: Recording, namespace: str, started: float) -> None:
    """Wait for the server, then keep asking."""
    url = await _address(cluster, namespace)
    await until_ready(url)
    await offer_apart(url, recording.plan.requests_s, started, recording.requests)


async def _address(cluster: ClusterPort, namespace: str) -> str:
    """Where the service answers; waits until it has an address."""
    while True:
        with suppress(NotFound):
            found = section(await cluster.get(SERVICE_KIND, SERVICE, namespace=namespace), "spec")
            port = whole(objects(found, "ports")[0], "port")
            return f"http://{text(found, 'clusterIP')}:{port}"
        await asyncio.sleep(0.5)


def _open(stage: Stage, namespace: str) -> None:
    stage.local.kubectl("create", "namespace", namespace)
    _apply(stage.local, profiles(stage.alone), "--namespace", namespace)


def _apply(local: LocalCluster, bodies: list[Body], *words: str) -> None:
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
    local.kubectl("apply", *words, "--filename", "-", stdin=listed)


def _clear(local: LocalCluster, namespace: str) -> None:
    for kind in KINDS:
        local.kubectl("delete", kind, "--all", "--namespace", namespace, check=False)


async def _released(stage: Stage, namespace: str) -> None:
    """Wait until no device knows the namespace any more: the next rule finds empty devices.

    Raises:
        CommandFailed: they are still held after a while.
    """
    deadline = time.monotonic() + RELEASE_S
    while True:
        held = False
        async for page in stage.cluster.list_paged(GPU_NODE, Selector()):
            for node in page.items:
                wanted = objects(section(node, "spec"), "slices")
                held |= any(text(one, "podNamespace", "") == namespace for one in wanted)
                held |= bool(objects(section(node, "status"), "slices"))
        if not held:
            return
        if time.monotonic() > deadline:
            raise CommandFailed(f"devices are still held by {namespace} after {RELEASE_S:.0f} s")
        await asyncio.sleep(1.0)

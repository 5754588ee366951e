# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The API server restarts again and again: how soon does scheduling come back, and who ended?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bench.api_client import NotAnswered
from bench.hostile_objects import VICTIM, collection
from bench.hostile_stage import RUNNING_S, Stage, until

LOOK_S: Final = 0.2


@dataclass(slots=True)
class Restarted:
    """What was seen after each restart; seconds from the moment that it serves pods."""

    unreachable_s: list[float] = field(default_factory=list)
    """From the moment that the API server serves until it does so at its Service's address: the
    cluster's own part, before which no pod can reach it."""
    placed_s: list[float] = field(default_factory=list)
    """Until a job that was created then is placed: its node has reserved the device, and Ullage has
    handed the pod to kube-scheduler."""
    running_s: list[float] = field(default_factory=list)
    """Until it runs; kube-scheduler and kubelet have to come back too."""


def restart_and_schedule(
    stage: Stage,
    restart: Callable[[], None],
    *,
    count: int,
    every_s: float,
    said: Callable[[str], None],
) -> Restarted:
    """Restart the API server some times; each time create a job and wait for it.

    Args:
        stage: The namespaces.
        restart: Restarts the API server and returns when it serves.
        count: How often.
        every_s: From one restart to the next, at least.
        said: Takes lines for the reader.

    Raises:
        NotPlayed: a job did not come to run.
    """
    found = Restarted()
    for number in range(count):
        began = time.monotonic()
        restart()
        serves = time.monotonic()
        until(stage.api.serves_pods, RUNNING_S, "the API server serves pods", LOOK_S)
        found.unreachable_s.append(time.monotonic() - serves)
        placed, running = scheduled(stage, f"after-{number}")
        found.placed_s.append(placed)
        found.running_s.append(running)
        said(
            f"API server restart {number + 1} of {count}: pods reach it after "
            f"{found.unreachable_s[-1]:.1f} s, then a new job is placed after {placed:.1f} s and "
            f"runs after {running:.1f} s"
        )
        if number + 1 < count:
            time.sleep(max(0.0, began + every_s - time.monotonic()))
    return found


def scheduled(stage: Stage, name: str) -> tuple[float, float]:
    """Create a job now, wait for it and delete it.

    Returns:
        Seconds until it is placed, and until it runs.

    Raises:
        NotPlayed: it does not come to run.
    """
    began = time.monotonic()

    def created() -> bool:
        stage.start(name)
        return True

    until(created, RUNNING_S, f"{name} is created", LOOK_S)
    until(lambda: is_placed(stage, name), RUNNING_S, f"{name} is placed", LOOK_S)
    placed = time.monotonic() - began
    stage.until_running(name)
    running = time.monotonic() - began
    stage.remove(name)
    return placed, running


def is_placed(stage: Stage, name: str) -> bool:
    """Whether the job's pod was handed to kube-scheduler: it has no gate any more."""
    pod = stage.api.get(f"{collection('pods', VICTIM)}/{name}-0")
    return pod is not None and not pod["spec"].get("schedulingGates")


def fail_over(stage: Stage, end_leader: Callable[[], str]) -> tuple[float, float]:
    """End the leader without a word; seconds until a new job is placed, and runs.

    Raises:
        NotPlayed: it does not come to run.
    """

    def ended() -> str:
        try:
            return end_leader()
        except NotAnswered:
            return ""

    until(ended, RUNNING_S, "there is a leader to end", LOOK_S)
    return scheduled(stage, "after-fail-over")

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
    """What was seen after each restart; seconds from the moment that the API server serves."""

    bound_s: list[float] = field(default_factory=list)
    """Until a job that was created then has its pod on a node."""
    running_s: list[float] = field(default_factory=list)
    """Until it runs."""


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
        bound, running = scheduled(stage, f"after-{number}")
        found.bound_s.append(bound)
        found.running_s.append(running)
        said(
            f"API server restart {number + 1} of {count}: a new job is placed after {bound:.1f} s "
            f"and runs after {running:.1f} s"
        )
        if number + 1 < count:
            time.sleep(max(0.0, began + every_s - time.monotonic()))
    return found


def scheduled(stage: Stage, name: str) -> tuple[float, float]:
    """Create a job now, wait for it and delete it.

    Returns:
        Seconds until its pod is on a node, and until it runs.

    Raises:
        NotPlayed: it does not come to run.
    """
    began = time.monotonic()

    def created() -> bool:
        stage.start(name)
        return True

    until(created, RUNNING_S, f"{name} is created", LOOK_S)
    until(lambda: is_placed(stage, name), RUNNING_S, f"{name} is placed", LOOK_S)
    bound = time.monotonic() - began
    stage.until_running(name)
    running = time.monotonic() - began
    stage.remove(name)
    return bound, running


def is_placed(stage: Stage, name: str) -> bool:
    """Whether the job's pod is bound to a node."""
    pod = stage.api.get(f"{collection('pods', VICTIM)}/{name}-0") or {}
    return bool(pod.get("spec", {}).get("nodeName"))


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

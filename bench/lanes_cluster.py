# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Twenty small trainings in lanes beside time slicing by the kernel, on the local cluster.

``python -m bench.lanes_cluster``. The same trainings run twice on two emulated devices, each one
processor core: in lanes with policy SRTF, and as plain pods that are all there at once, pinned to
the core of their device, as NVIDIA's time slicing would have it. A training's completion time is
that from the submission of all to its own end. Figures go into ``lanes.json``.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from bench import report
from bench.cluster_objects import Json, get
from bench.local import installed
from demo.cluster import Cluster, EmulatedDevice
from demo.images import image_name
from demo.install import CHARTS, NAMESPACE, RELEASE, devices_offered
from demo.progress import CommandFailed

JOBS: Final = 20
DEVICES: Final = {f"node-{at + 1}": [EmulatedDevice(core=at)] for at in range(2)}
SHARERS: Final = JOBS // len(DEVICES)
"""Containers that a device takes, as many as it has under time slicing."""
MEAN_STEPS: Final = 600
SIZE: Final = {"BATCH": "1024", "HIDDEN": "512"}
"""A step takes some 20 ms: in turns that are much shorter than that, handing over costs most."""
SIGMA: Final = 0.8
"""Of the log-normal number of steps."""
SEED: Final = 1
LIMIT_S: Final = 1_200.0
LOOK_S: Final = 2.0
PINNED: Final = (
    "import os, runpy; os.sched_setaffinity(0, {{{core}}}); "
    "runpy.run_module('digits.train', run_name='__main__')"
)
BARS: Final[report.Bars] = {
    "cluster_completion_vs_slicing": lambda found: found >= 1.5,
    "cluster_killed": lambda found: found == 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Completion times of the trainings in seconds, and how many were killed for memory."""

    completion_s: Sequence[float]
    killed: int

    @property
    def mean_s(self) -> float:
        """Mean completion time, seconds."""
        return sum(self.completion_s) / len(self.completion_s)


def drawn(mean_steps: int) -> list[int]:
    """Steps of each training, ``mean_steps`` of them in the mean."""
    drawn = np.random.default_rng(SEED).lognormal(0.0, SIGMA, JOBS)
    return [max(20, int(one * mean_steps / drawn.mean())) for one in drawn]


def most_possible(lengths: Sequence[int]) -> float:
    """How many times as long the mean completion is under time slicing, were steps all it took.

    Time slicing gives every training of a device the same speed; the other extreme is the shortest
    first on the device that is free first. Source: derived.

    Args:
        lengths: Steps of each training, in the order of submission.
    """
    shared = [one for at in range(len(DEVICES)) for one in _shared(lengths[at :: len(DEVICES)])]
    free, ends = [0] * len(DEVICES), []
    for steps in sorted(lengths):
        end = heapq.heappop(free) + steps
        heapq.heappush(free, end)
        ends.append(end)
    return sum(shared) / sum(ends)


def _shared(lengths: Sequence[int]) -> list[int]:
    """When each training ends that has an equal part of one device, in steps."""
    left, now, ends = sorted(lengths), 0, list[int]()
    for at, steps in enumerate(left):
        now += (steps - (left[at - 1] if at else 0)) * (len(left) - at)
        ends.append(now)
    return ends


def take(cluster: Cluster, sharers: int) -> None:
    """Let a device take so many containers."""
    cluster.helm(
        "upgrade", RELEASE, str(CHARTS / "ullage"), "--namespace", NAMESPACE, "--reuse-values",
        "--set", f"node.maxSharers={sharers}", "--wait", "--timeout", "15m",
    )  # fmt: skip
    devices_offered(cluster)


def template(steps: int, command: Sequence[str]) -> Json:
    """The pod of a training."""
    values = {"STEPS": str(steps), **SIZE, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    container = {
        "name": "train",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": list(command),
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 20,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }


def in_lanes(namespace: str, lengths: Sequence[int]) -> list[Json]:
    """The trainings as TrainingJobs, and the order of turns."""
    policy = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "default"},
        "spec": {"risk": {"predictor": "UtilisationSum"}, "sharing": {"lanePolicy": "SRTF"}},
    }
    gpu = {
        "mode": "Fractional",
        "share": {"minPercent": 60},
        "lane": {"persistent": "128Mi", "ephemeral": "2Gi"},
    }
    jobs: list[Json] = [
        {
            "apiVersion": "ullage.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": f"small-{number:02}", "namespace": namespace},
            "spec": {
                "gpu": gpu,
                "work": {"steps": steps},
                "template": {"spec": template(steps, ("python", "-m", "digits.train"))},
            },
        }
        for number, steps in enumerate(lengths)
    ]
    return [policy, *jobs]


def sliced(namespace: str, lengths: Sequence[int]) -> list[Json]:
    """The trainings as plain pods, every other one on the second device."""
    pods = []
    for number, steps in enumerate(lengths):
        at = number % len(DEVICES)
        pod = template(steps, ("python", "-c", PINNED.format(core=at)))
        pod["nodeSelector"] = {"kubernetes.io/hostname": list(DEVICES)[at]}
        metadata = {"name": f"small-{number:02}-0", "namespace": namespace}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})
    return pods


def run(cluster: Cluster, namespace: str, bodies: Sequence[Json]) -> Ran:
    """Submit the trainings and wait for all of them.

    Raises:
        CommandFailed: one fails, or they do not end.
    """
    cluster.kubectl("create", "namespace", namespace)
    listed = {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
    began, limit = time.time(), time.monotonic() + LIMIT_S
    cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(listed))
    ends: dict[str, float] = {}
    killed = 0
    while time.monotonic() < limit:
        for pod in get(cluster, "pods", "", namespace)["items"]:
            name = pod["metadata"]["name"]
            for container in pod.get("status", {}).get("containerStatuses", []):
                ended = container["state"].get("terminated")
                if ended is None or name in ends:
                    continue
                killed += ended.get("reason") == "OOMKilled"
                if ended["exitCode"]:
                    raise CommandFailed(f"{namespace}/{name}: exit code {ended['exitCode']}")
                ends[name] = datetime.fromisoformat(ended["finishedAt"]).timestamp() - began
        if len(ends) == JOBS:
            return Ran(completion_s=list(ends.values()), killed=killed)
        time.sleep(LOOK_S)
    raise CommandFailed(f"{namespace}: {len(ends)} of {JOBS} ended within {LIMIT_S:.0f} s")


def main() -> int:
    """Measure, print one table, add the figures to build/bench/lanes.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=MEAN_STEPS, help="of a training, in the mean")
    lengths = drawn(parser.parse_args().steps)
    with installed("lanes", DEVICES, logs=("operator", "node")) as (local, steps):
        take(local, SHARERS)
        with steps.step("trainings in lanes", expect_s=120):
            ours = run(local, "lanes", in_lanes("lanes", lengths))
        with steps.step("trainings under time slicing", expect_s=120):
            others = run(local, "slicing", sliced("slicing", lengths))
    figures: dict[str, report.Figure] = {
        "cluster_completion_vs_slicing": round(others.mean_s / ours.mean_s, 3),
        "cluster_mean_completion_s": round(ours.mean_s, 1),
        "cluster_last_vs_slicing": round(max(others.completion_s) / max(ours.completion_s), 3),
        "cluster_killed": ours.killed,
        "cluster_most_possible": round(most_possible(lengths), 3),
    }
    rows = [
        report.Row(
            what="mean completion of 20 trainings, seconds",
            ours=f"{ours.mean_s:.0f}",
            baseline=f"{others.mean_s:.0f}",
            limit=f"a third less; at most {1 - 1 / most_possible(lengths):.0%} less",
        ),
        report.Row(
            what="the last one ends, seconds",
            ours=f"{max(ours.completion_s):.0f}",
            baseline=f"{max(others.completion_s):.0f}",
        ),
        report.Row(what="killed for memory", ours=f"{ours.killed}", limit="0"),
    ]
    report.write("lanes", report.figures_before("lanes") | figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())

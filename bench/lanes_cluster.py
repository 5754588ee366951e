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
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from bench import report
from bench.local import installed
from bench.wake import get
from demo.cluster import Cluster, EmulatedDevice
from demo.images import image_name
from demo.progress import CommandFailed

Json = dict[str, Any]

JOBS: Final = 20
DEVICES: Final = {f"node-{at + 1}": [EmulatedDevice(core=at)] for at in range(2)}
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


def drawn() -> list[int]:
    """Steps of each training."""
    drawn = np.random.default_rng(SEED).lognormal(0.0, SIGMA, JOBS)
    return [max(20, int(one * MEAN_STEPS / drawn.mean())) for one in drawn]


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


def in_lanes(namespace: str) -> list[Json]:
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
        for number, steps in enumerate(drawn())
    ]
    return [policy, *jobs]


def sliced(namespace: str) -> list[Json]:
    """The trainings as plain pods, every other one on the second device."""
    pods = []
    for number, steps in enumerate(drawn()):
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
    argparse.ArgumentParser(description=__doc__).parse_args()
    with installed("lanes", DEVICES, logs=("operator", "node")) as (local, steps):
        with steps.step("trainings in lanes", expect_s=120):
            ours = run(local, "lanes", in_lanes("lanes"))
        with steps.step("trainings under time slicing", expect_s=120):
            others = run(local, "slicing", sliced("slicing"))
    figures: dict[str, report.Figure] = {
        "cluster_completion_vs_slicing": round(others.mean_s / ours.mean_s, 3),
        "cluster_mean_completion_s": round(ours.mean_s, 1),
        "cluster_last_vs_slicing": round(max(others.completion_s) / max(ours.completion_s), 3),
        "cluster_killed": ours.killed,
    }
    rows = [
        report.Row(
            what="mean completion of 20 trainings, seconds",
            ours=f"{ours.mean_s:.0f}",
            baseline=f"{others.mean_s:.0f}",
            limit="a third less",
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

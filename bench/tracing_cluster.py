# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Time from a ProfileRequest to its result, with real kubelets and other jobs beside.

``TORCH_PYTHON=interpreter python -m bench.tracing_cluster``. A stock DDP script runs in four pods
on two kubelets, first as a TrainingJob, then as a Job of Kubernetes that shares devices by a label,
beside eight other jobs. Request after request is created at a random moment. Each must end with a
trace of every rank, and the file of each rank must say that it begins with the same step. Without
torch a program of its shape is traced, whose ranks do not meet.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from bench import report
from bench.api_client import ApiClient, NotAnswered
from bench.hostile_objects import collection
from bench.local import installed
from bench.progress import Progress
from bench.tracing_programs import Json, indexed_job, request, template
from demo.cluster import EmulatedDevice, LocalCluster
from demo.images import image_name
from demo.progress import CommandFailed

NAMESPACE: Final = "traced"
NODES: Final = ("node-1", "node-2")
DEVICES: Final = {name: [EmulatedDevice(core=at, percent=75)] for at, name in enumerate(NODES)}
RANKS: Final = 4
PERCENT: Final = 40
"""Of a device; two ranks fit on each, so the job takes both nodes."""
OTHERS: Final = 8
OTHERS_PERCENT: Final = 5
REQUESTS: Final = 20
STEPS: Final = 5
MOST_S: Final = 10.0
"""From the request to its end, beside the time of the traced steps."""
APART_S: Final = (0.5, 3.0)
LOOK_S: Final = 0.1
STARTS_WITHIN_S: Final = 420.0
ENDS_WITHIN_S: Final = 240.0
OTHER: Final = """
import time, ullage_run
while True:
    sum(i * i for i in range(20000))
    ullage_run.step()
    time.sleep(0.1)
"""
BARS: Final[report.Bars] = {
    "done_over_window_p95_s": lambda seconds: seconds <= MOST_S,
    "complete": lambda requests: requests == REQUESTS,
    "adopted_done_over_window_p95_s": lambda seconds: seconds <= MOST_S,
    "adopted_complete": lambda requests: requests == REQUESTS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A request that has ended."""

    done_s: float
    """From its creation until its end is seen."""
    window_s: float
    """Time of the traced steps."""
    complete: bool
    """Every rank was traced, from the same step on."""
    why: str
    """Its message, and what is wrong."""
    phases_s: tuple[tuple[str, float], ...]
    """Phases, and the time from the creation until each was seen."""


@dataclass(slots=True)
class Stage:
    """The cluster, with what runs on it."""

    local: LocalCluster
    api: ApiClient
    torch: str
    """Site-packages of a torch; empty = none."""
    say: Callable[[str], None]
    ranks: int = RANKS
    number: int = 0
    folders: dict[str, Path] = field(default_factory=dict)
    """Directories of step records, by node."""

    def begin(self) -> None:
        """Admit by utilisation, start the other jobs, and learn where nodes keep records."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        # each slot is a file system of its own, which only processes of the node see
        self.folders = {node: self.local.root_of(node) / "run/ullage/steps" for node in NODES}
        self._apply(
            {
                "apiVersion": "ullage.dev/v1alpha1",
                "kind": "SchedulingPolicy",
                "metadata": {"name": "default"},
                "spec": {"risk": {"predictor": "UtilisationSum"}},
            }
        )

    def start_others(self) -> None:
        """Start the jobs beside the traced one."""
        self._apply(*(other(f"other-{at}") for at in range(OTHERS)))
        self.wait(lambda: self.running("other") == OTHERS, STARTS_WITHIN_S, "the other jobs run")

    def start_training(self) -> Json:
        """Start the TrainingJob; returns the target of its requests."""
        self._apply(training(self.torch))
        self._starts("digits")
        return {"jobRef": {"kind": "TrainingJob", "name": "digits"}}

    def start_adopted(self) -> Json:
        """Start a Job of Kubernetes; returns the target of its requests."""
        self._apply(*indexed_job("batch", NAMESPACE, RANKS, self.torch, PERCENT))
        self._starts("batch")
        return {"jobRef": {"kind": "Job", "name": "batch"}}

    def end_training(self) -> None:
        """Delete the TrainingJob and wait until its pods are gone."""
        self.api.delete(f"{collection('trainingjobs', NAMESPACE)}/digits")
        self.wait(lambda: not self.pods("digits"), STARTS_WITHIN_S, "the TrainingJob is gone")

    def _apply(self, *bodies: Json) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)})
        self.local.kubectl("apply", "--filename", "-", stdin=text)

    def _starts(self, name: str) -> None:
        def steps() -> bool:
            return self.running(name) == self.ranks and len(self.records(name)) == self.ranks

        self.wait(steps, STARTS_WITHIN_S, f"all ranks of {name} make steps")

    def wait(self, look: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait until it is so.

        Raises:
            CommandFailed: it is not within this time.
        """
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            with suppress(NotAnswered):
                if look():
                    return
            time.sleep(1.0)
        pods = self.local.kubectl("get", "pods", "-A", "-o", "wide", check=False).stdout
        raise CommandFailed(f"not within {within_s:.0f} s: {what}\n{pods}")

    def pods(self, begins: str) -> list[Json]:
        """Pods of a job, or all."""
        begins = f"{begins}-" if begins else ""
        pods = self.api.list(collection("pods", NAMESPACE))
        return [pod for pod in pods if pod["metadata"]["name"].startswith(begins)]

    def running(self, begins: str) -> int:
        """Number of those that run."""
        return sum(
            pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
            for pod in self.pods(begins)
        )

    def records(self, begins: str) -> list[Path]:
        """Records of the ranks of these pods."""
        return [file for pod in self.pods(begins) for file in self.files(pod, "record-*")]

    def files(self, pod: Json, pattern: str) -> list[Path]:
        """Files in the directory of orders and answers of a pod."""
        folder = self.folders.get(pod["spec"].get("nodeName", ""))
        uid = pod["metadata"]["uid"]
        return sorted(folder.glob(f"{uid}*/trace/{pattern}")) if folder is not None else []

    def ask(self, target: Json, steps: int = STEPS) -> str:
        """Create a request; returns its name."""
        self.number += 1
        name = f"trace-{self.number:03}"
        objects = collection("profilerequests", NAMESPACE)
        self.api.create(objects, request(name, NAMESPACE, steps=steps, **target))
        return name

    def follow(self, name: str, within_s: float = ENDS_WITHIN_S) -> Traced:
        """Wait until a request has ended."""
        began, path = time.monotonic(), f"{collection('profilerequests', NAMESPACE)}/{name}"
        phases: list[tuple[str, float]] = []
        status: Json = {}
        while (passed_s := time.monotonic() - began) < within_s:
            with suppress(NotAnswered):
                status = (self.api.get(path) or {}).get("status", {})
            if status.get("phase") and status["phase"] != (phases[-1][0] if phases else ""):
                phases.append((status["phase"], round(passed_s, 1)))
            if status.get("phase") in ("Done", "Failed"):
                break
            time.sleep(LOOK_S)
        wrong = self._wrong(name, status)
        step = status.get("result", {}).get("step", {}).get("spanMicros", 0)
        return Traced(
            done_s=time.monotonic() - began,
            window_s=step / 1e6 / self.ranks,
            complete=not wrong,
            why=f"{status.get('message', '')} {wrong}".strip(),
            phases_s=tuple(phases),
        )

    def _wrong(self, name: str, status: Json) -> str:
        """What keeps a request from being complete; empty = nothing."""
        if status.get("phase") != "Done":
            return f"its phase is {status.get('phase')!r}"
        captures = status.get("ranks", [])
        ranks = [capture.get("rank") for capture in captures if capture["state"] == "Done"]
        if sorted(ranks) != list(range(self.ranks)):
            return f"ranks {ranks} are traced"
        body = self.api.get(f"{collection('profilerequests', NAMESPACE)}/{name}") or {}
        uid, attempt = body["metadata"]["uid"], status.get("attempt", 1)
        order = uid if attempt <= 1 else f"{uid}.{attempt}"
        by_name = {pod["metadata"]["name"]: pod for pod in self.pods("")}
        first: set[int] = set()
        for capture in captures:
            pattern = f"{order}-{capture.get('localRank', 0)}.json.gz"
            for file in self.files(by_name[capture["pod"]], pattern):
                first.add(json.loads(gzip.decompress(file.read_bytes()))["ullage"]["step"])
        wanted = {status["window"]["firstStep"]}
        return "" if first == wanted else f"traces begin with steps {sorted(first)}, not {wanted}"


def training(torch: str) -> Json:
    """The traced TrainingJob."""
    return _job(
        "digits",
        template(torch),
        percent=PERCENT,
        replicas=RANKS,
        runtime={"inject": "Auto"},
        failurePolicy={"maxRestarts": 1000},  # its ranks may be killed
    )


def other(name: str) -> Json:
    """A job beside the traced one."""
    container = {
        "name": "main",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", OTHER],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
    }
    return _job(name, {"spec": {"containers": [container]}}, percent=OTHERS_PERCENT)


def _job(name: str, template: Json, *, percent: int, **spec: object) -> Json:
    share = {"minPercent": percent, "maxPercent": percent}
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"template": template, "gpu": {"mode": "Fractional", "share": share}, **spec},
    }


def site_packages() -> str:
    """Where the torch of ``TORCH_PYTHON`` is; empty without one."""
    python = os.environ.get("TORCH_PYTHON", "")
    if not python:
        return ""
    code = "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def asked(stage: Stage, target: Json, requests: int, dice: random.Random) -> list[Traced]:
    """Requests, one after the other."""
    ended: list[Traced] = []
    for at in range(requests):
        time.sleep(dice.uniform(*APART_S))
        traced = stage.follow(stage.ask(target))
        phases = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in traced.phases_s)
        stage.say(f"{at + 1} of {requests}: {traced.done_s:.1f} s ({phases}): {traced.why}")
        ended.append(traced)
    return ended


def figures(ended: Sequence[Traced], prefix: str) -> dict[str, report.Figure]:
    """Flat figures; times in seconds."""
    done = [traced.done_s for traced in ended]
    over = [traced.done_s - traced.window_s for traced in ended]
    return {
        f"{prefix}done_p95_s": round(float(np.quantile(done, 0.95)), 2),
        f"{prefix}done_median_s": round(float(np.median(done)), 2),
        f"{prefix}done_over_window_p95_s": round(float(np.quantile(over, 0.95)), 2),
        f"{prefix}requests": len(ended),
        f"{prefix}complete": sum(traced.complete for traced in ended),
    }


def rows(found: dict[str, report.Figure], prefix: str, what: str) -> list[report.Row]:
    """Lines of the table."""
    return [
        report.Row(
            what=f"{what}: request to Done, p95 (median), seconds",
            ours=f"{found[f'{prefix}done_p95_s']} ({found[f'{prefix}done_median_s']})",
            limit=f"{MOST_S:.0f} + window",
        ),
        report.Row(
            what=f"{what}: the same steps of all {RANKS} ranks",
            ours=f"{found[f'{prefix}complete']} of {found[f'{prefix}requests']}",
            limit="all",
        ),
    ]


def main() -> int:
    """Measure, print one table, add the figures to build/bench/tracing.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch, dice = site_packages(), random.Random(options.seed)
    if not torch:
        print("without TORCH_PYTHON a program of torch's shape is traced, not a DDP script")
    found: dict[str, report.Figure] = {"live_torch": bool(torch)}
    kinds = ("operator", "node")
    with (
        installed("tracing", DEVICES, NotAnswered, logs=kinds) as (local, _),
        Progress() as progress,
    ):
        stage = Stage(local, ApiClient(local.kubeconfig), torch, progress.say)
        stage.begin()
        target = stage.start_training()
        stage.start_others()
        found |= figures(asked(stage, target, options.requests, dice), "")
        stage.end_training()
        target = stage.start_adopted()
        found |= figures(asked(stage, target, options.requests, dice), "adopted_")
    lines = [*rows(found, "", "TrainingJob"), *rows(found, "adopted_", "adopted Job")]
    report.write("tracing", report.figures_before("tracing") | found, lines)
    return report.judge(found, BARS)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``make demo``: from nothing to three workloads sharing two devices, and one that waits.

Everything is real: API server, kubelets, containers, training and requests. Only the devices are
emulated: each is a part of a CPU core, which its tenants really contend for.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rich.text import Text

from demo.cluster import Cluster, EmulatedDevice, KindCluster, LocalCluster
from demo.images import ROOT, image_name
from demo.install import install
from demo.progress import COLUMNS, CommandFailed, Progress, ending_with_a_reason, run
from demo.start import start

EXAMPLES: Final = ROOT / "examples"
DEVICES: Final = {
    "node-1": [EmulatedDevice(core=0, percent=70)],
    "node-2": [EmulatedDevice(core=1, percent=70)],
}
SHARING: Final = (
    "profiles.yaml",
    "01-training.yaml",
    "02-training-parallel.yaml",
    "03-inference.yaml",
)
WAITING: Final = "04-waits.yaml"
JOBS: Final = "trainingjobs.ullage.dev"
SERVICES: Final = "inferencedeployments.ullage.dev"


class Show:
    """The steps of the demonstration on one cluster."""

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        self.cluster = cluster
        self.progress = progress

    def run(self) -> None:
        """Apply the examples and tell what happens."""
        for name in SHARING:
            self._apply(name)
        with self.progress.step("two training jobs and an inference server share two devices"):
            self._until(lambda: self._phases(JOBS) == {"Running"}, 120, "training runs")
            self._until(lambda: self._phases(SERVICES) == {"Ready"}, 120, "the service is ready")
        self._tell("top")
        self._apply(WAITING)
        waiting = self._names(WAITING)[0]
        with self.progress.step(f"{waiting} asks for more than is left"):
            self._until(lambda: bool(self._refused(waiting)), 60, f"{waiting} is refused")
        self._tell("why", waiting)
        self._requests()
        with self.progress.step("wait for observed slowdowns", expect_s=60):
            self._until(self._observed, 150, "observed slowdowns")
        self._tell("status")
        with self.progress.step(f"room appears and {waiting} is admitted by itself", expect_s=60):
            self._until(
                lambda: self._status(JOBS, waiting).get("phase") in ("Running", "Succeeded"),
                300,
                f"{waiting} runs",
            )
        with self.progress.step("all training finishes", expect_s=60):
            self._until(lambda: self._phases(JOBS) == {"Succeeded"}, 400, "all jobs succeed")
        self._tell("status")
        self._accuracies()

    def _apply(self, name: str) -> None:
        self.progress.say(f"[bold]$ kubectl apply -f examples/{name}[/]")
        self.progress.say(self.cluster.kubectl("apply", "-f", str(EXAMPLES / name)).stdout.strip())

    def _tell(self, *words: str) -> None:
        """Run the plugin as a user would and show what it prints."""
        self.progress.say(f"\n[bold]$ kubectl ullage {' '.join(words)}[/]")
        printed = run(
            sys.executable, "-m", "ullage.cli.main", *words,
            env={
                "KUBECONFIG": str(self.cluster.kubeconfig),
                "COLUMNS": str(COLUMNS),
                "FORCE_COLOR": "1",
            },
        )  # fmt: skip
        self.progress.console.print(Text.from_ansi(printed.rstrip()), soft_wrap=True)
        self.progress.say("")

    def _items(self, kind: str) -> list[dict[str, dict[str, object]]]:
        done = self.cluster.kubectl("get", kind, "--namespace", "default", "--output", "json")
        items: list[dict[str, dict[str, object]]] = json.loads(done.stdout)["items"]
        return items

    def _phases(self, kind: str) -> set[str]:
        return {str(item.get("status", {}).get("phase")) for item in self._items(kind)}

    def _status(self, kind: str, name: str) -> dict[str, object]:
        for item in self._items(kind):
            if item["metadata"]["name"] == name:
                return item.get("status", {})
        return {}

    def _refused(self, name: str) -> list[object]:
        decision = self._status(JOBS, name).get("decision")
        refusals = decision.get("refusals") if isinstance(decision, dict) else None
        return refusals if isinstance(refusals, list) else []

    def _observed(self) -> bool:
        """Whether every job that started has an observed slowdown; one that ended keeps its own."""
        started = [
            sharing
            for item in self._items(JOBS)
            if item.get("status", {}).get("phase") in ("Running", "Succeeded")
            and isinstance(sharing := item["status"].get("sharing"), dict)
        ]
        return bool(started) and all(sharing.get("observed") for sharing in started)

    def _names(self, file: str) -> list[str]:
        done = self.cluster.kubectl(
            "get", "-f", str(EXAMPLES / file), "--output", "jsonpath={.metadata.name}"
        )
        return done.stdout.split()

    def _requests(self) -> None:
        """Ask the inference server from outside of its pod and print what the client saw."""
        name = str(self._items(SERVICES)[0]["metadata"]["name"])
        done = self.cluster.kubectl("get", "service", name, "--output", "json")
        url = f"http://{name}:{json.loads(done.stdout)['spec']['ports'][0]['port']}"
        with self.progress.step("send 200 requests to the inference server"):
            # from a pod: kind's Services are not reached from this machine
            printed = self.cluster.kubectl(
                "run", "client", f"--image={image_name('examples')}", "--image-pull-policy=Never",
                "--restart=Never", "--rm", "--attach", "--quiet", "--command", "--",
                "python3", "-m", "digits.load", "--url", url, "--requests", "200",
            ).stdout  # fmt: skip
        self.progress.say(printed.strip())

    def _accuracies(self) -> None:
        for item in self._items(JOBS):
            name = item["metadata"]["name"]
            log = self.cluster.kubectl("logs", f"{name}-0").stdout
            lines = [line for line in log.splitlines() if "test accuracy" in line]
            if not lines:
                raise CommandFailed(f"{name} printed no test accuracy")
            self.progress.say(f"[green]{name}[/]: {lines[-1]}")

    def _until(self, look: Callable[[], bool], limit_s: float, what: str) -> None:
        deadline = time.monotonic() + limit_s
        while not look():
            if time.monotonic() > deadline:
                self._tell("status")
                raise CommandFailed(f"not within {limit_s:.0f} s: {what}")
            time.sleep(1)


def main() -> None:
    """Run the demonstration and leave nothing behind, unless asked to."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--cluster", choices=("local", "kind"), default="local")
    parser.add_argument("--keep", action="store_true", help="keep the cluster to look around in")
    parser.add_argument("--picture", help="also save what was shown as an SVG file")
    options = parser.parse_args()
    progress = Progress()
    started = time.monotonic()
    if options.cluster == "local" and os.geteuid() != 0:
        raise SystemExit(
            "the local cluster starts real kubelets and needs root: sudo make demo\n"
            "without root: make demo CLUSTER=kind (Docker), or localcluster/run up --nodes 0 "
            "--kwok 3 for a control plane with simulated nodes"
        )
    cluster = LocalCluster() if options.cluster == "local" else KindCluster()
    with ending_with_a_reason():
        _show_on(cluster, progress, picture=options.picture, keep=options.keep)
    progress.say(f"[green]done[/] in {time.monotonic() - started:.0f} s")


def _show_on(
    cluster: LocalCluster | KindCluster, progress: Progress, *, picture: str | None, keep: bool
) -> None:
    """Everything between the cluster's start and its end.

    Raises:
        SystemExit: a step failed; the reason was told.
        CommandFailed: the cluster could not be taken down.
    """
    try:
        with ending_with_a_reason():
            start(cluster, DEVICES, progress)
            install(cluster, progress)
            progress.begin_picture()
            Show(cluster, progress).run()
            if picture:
                progress.save_picture(picture)
    finally:
        if keep:
            with suppress(CommandFailed):  # one that did not start has no kubeconfig
                progress.say(f"the cluster stays: export KUBECONFIG={cluster.kubeconfig}")
        else:
            with progress.step("take the cluster down"):
                cluster.down()


if __name__ == "__main__":
    main()

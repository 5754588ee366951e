# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The clusters a demonstration can stand on: our own local one, or kind. One set of verbs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypedDict

from demo.images import ROOT
from demo.progress import CommandFailed, run

LOCALCLUSTER: Final = str(ROOT / "localcluster" / "run")
SAYS: Final = "localcluster: "
"""Begins each of its own messages; the last one is the reason of a failure."""
NODE_LABELS: Final = ("ullage.dev/node=true", "ullage.dev/accelerator=emulated")
CHECKPOINT_FOLDER: Final = "/var/tmp"
"""Where the examples keep their checkpoints on a node."""
PRIVATE_FOLDERS: Final = ("/run/cdi", "/var/lib/ullage", "/run/ullage", CHECKPOINT_FOLDER)
DEVICE_FILE: Final = "emulated.json"
KUBERNETES: Final = "ULLAGE_KUBERNETES"
"""Environment variable: an older Kubernetes of the local cluster, such as 1.34."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedDevice:
    """One line of a node's device file: a CPU core, or a part of it."""

    core: int
    percent: int = 100
    memory_mib: int = 8192
    model: str = "emulated"

    def to_json(self) -> dict[str, object]:
        """As the node agent reads it."""
        return {
            "core": self.core,
            "percent": self.percent,
            "memoryMiB": self.memory_mib,
            "model": self.model,
        }


Devices = Mapping[str, Sequence[EmulatedDevice]]
"""Devices of each node, by node name."""


class Cluster(Protocol):
    """What the demonstration and the end-to-end tests ask of a cluster."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        ...

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; with ``check``, an error raises ``CommandFailed``."""
        ...

    def helm(self, *arguments: str) -> str:
        """Run helm and return what it printed."""
        ...

    def load_images(self, archives: Sequence[Path]) -> None:
        """Give every node the images of these OCI archives."""
        ...


class LocalNode(TypedDict):
    """What of a node's status is read here."""

    name: str
    private: dict[str, str]
    cgroup: str


def _checked(
    command: Sequence[str], stdin: str | None, check: bool
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        output = (done.stdout + done.stderr).strip()
        raise CommandFailed(f"{' '.join(command)} ended with {done.returncode}:\n{output}")
    return done


def start_localcluster(*flags: str, home: Path | None = None) -> None:
    """``localcluster up``; what it says goes to standard error as it comes.

    Args:
        flags: Of ``up``.
        home: The folder of its state; ``None`` = that of this user.

    Raises:
        CommandFailed: it did not start; the text is the reason, one line.
    """
    said: deque[str] = deque(maxlen=100)
    with subprocess.Popen(
        [LOCALCLUSTER, "up", *flags],
        env={**os.environ, **({"LOCALCLUSTER_HOME": str(home)} if home else {})},
        stderr=subprocess.PIPE, text=True, errors="replace",
    ) as child:  # fmt: skip
        assert child.stderr is not None
        for line in child.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            said.append(line.rstrip())
    if child.returncode != 0:
        own = [line.removeprefix(SAYS) for line in said if line.startswith(SAYS)]
        reason = own[-1] if own else f"it ended with {child.returncode}"
        raise CommandFailed(f"the local cluster did not start: {reason}")


class LocalCluster:
    """The cluster of ``localcluster/``: real kubelets as processes of this machine."""

    def __init__(self) -> None:
        self._programs: dict[str, str] = {}
        self._kubeconfig: Path | None = None

    def up(self, devices: Devices) -> None:
        """Start (or reuse) the cluster and give each node its emulated devices."""
        labels = [word for label in NODE_LABELS for word in ("--label", label)]
        private = [word for folder in PRIVATE_FOLDERS for word in ("--private", folder)]
        wanted = ["--nodes", str(len(devices))]
        if older := os.environ.get(KUBERNETES):
            wanted += ["--kubernetes", older]
        start_localcluster(*wanted, "--install-deps", *labels, *private)
        for node, found in devices.items():
            self.write_devices(node, found)
            self.private(node, CHECKPOINT_FOLDER).chmod(0o1777)  # as everywhere else

    def down(self) -> None:
        """Remove the cluster and everything it left."""
        run(LOCALCLUSTER, "down")

    def write_devices(self, node: str, devices: Sequence[EmulatedDevice]) -> None:
        """Write the device file of a node, which its agent reads."""
        folder = self.private(node, "/var/lib/ullage")
        folder.mkdir(parents=True, exist_ok=True)
        body = json.dumps({"devices": [device.to_json() for device in devices]}, indent=2)
        new = folder / f"{DEVICE_FILE}.new"
        new.write_text(body)
        new.replace(folder / DEVICE_FILE)  # its agent may read it at any moment

    def private(self, node: str, folder: str) -> Path:
        """Where a node's own copy of a host folder really lies."""
        nodes: list[LocalNode] = json.loads(run(LOCALCLUSTER, "status", "--json"))["nodes"]
        found = [item for item in nodes if item["name"] == node]
        if not found:
            raise CommandFailed(f"no node {node} in the local cluster")
        return Path(found[0]["private"][folder])

    def root_of(self, node: str) -> Path:
        """The root directory as the processes of a node see it, with what is mounted there."""
        processes = json.loads(run(LOCALCLUSTER, "status", "--json"))["processes"]
        found = [one["pid"] for one in processes if one.get("node") == node]
        if not found:
            raise CommandFailed(f"no process of node {node} in the local cluster")
        return Path(f"/proc/{found[0]}/root")

    def processes_of_pods(self) -> list[int]:
        """Numbers of all processes in pods of this cluster; another one may run beside it."""
        nodes: list[LocalNode] = json.loads(run(LOCALCLUSTER, "status", "--json"))["nodes"]
        below = tuple(f"{node['cgroup']}/" for node in nodes)
        found = []
        for groups in Path("/proc").glob("[0-9]*/cgroup"):
            try:
                lines = groups.read_text().splitlines()
            except OSError:
                continue  # it has ended
            if any(line.split(":", 2)[2].startswith(below) for line in lines):
                found.append(int(groups.parent.name))
        return found

    def restart(self, component: str, node: str = "") -> None:
        """Restart one process of the cluster and wait until it works."""
        self.control("restart", component, node)

    def control(self, verb: str, component: str, node: str = "") -> None:
        """``localcluster stop|start|restart COMPONENT [NODE]``."""
        run(LOCALCLUSTER, verb, component, *([node] if node else []))

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, asked for once: a cluster keeps its path."""
        if self._kubeconfig is None:
            self._kubeconfig = Path(run(LOCALCLUSTER, "kubeconfig").strip())
        return self._kubeconfig

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run the cluster's own kubectl."""
        command = [self._program("kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        return _checked(command, stdin, check)

    def helm(self, *arguments: str) -> str:
        """Run helm, built from its Go module at first use."""
        return run(self._program("helm"), "--kubeconfig", str(self.kubeconfig), *arguments)

    def shell(self, command: str, folder: Path) -> str:
        """Run a line as a user would who stands in a folder and has kubectl, helm and kubeconfig.

        Raises:
            CommandFailed: it ended with an error.
        """
        programs = (str(Path(self._program(name)).parent) for name in ("kubectl", "helm"))
        path = os.pathsep.join((*programs, os.environ["PATH"]))
        env = {"KUBECONFIG": str(self.kubeconfig), "PATH": path}
        return run("sh", "-c", f"cd {shlex.quote(str(folder))} && {command}", env=env)

    def _program(self, name: str) -> str:
        """Path of kubectl or helm, asked for once."""
        if name not in self._programs:
            status = json.loads(run(LOCALCLUSTER, "status", "--json"))
            self._programs[name] = status["kubectl"] if name == "kubectl" else str(self.tool(name))
        return self._programs[name]

    def tool(self, name: str, component: str = "") -> Path:
        """A program of localcluster, built from its component's Go module at first use."""
        lines = run(LOCALCLUSTER, "build", "--tools", component or name).splitlines()
        return Path(dict(line.split()[:2] for line in lines if line.strip())[name])

    def load_images(self, archives: Sequence[Path]) -> None:
        """Import the archives into every node's containerd."""
        run(LOCALCLUSTER, "load-image", *map(str, archives))


class KindCluster:
    """A kind cluster on Docker, for users who have both. Same charts, same examples."""

    NAME: Final = "ullage"

    def __init__(self) -> None:
        missing = [tool for tool in ("kind", "kubectl", "helm") if shutil.which(tool) is None]
        if missing:
            raise SystemExit(f"CLUSTER=kind needs {', '.join(missing)} in PATH")
        self._folder = Path(tempfile.mkdtemp(prefix="ullage-kind-"))

    def up(self, devices: Devices) -> None:
        """Create the cluster; each node mounts a folder that holds its device file."""
        config: dict[str, object] = {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [{"role": "control-plane"}, *map(self._node, devices.items())],
        }
        path = self._folder / "kind.json"
        path.write_text(json.dumps(config))
        run("kind", "create", "cluster", "--name", self.NAME, "--config", str(path))

    def _node(self, item: tuple[str, Sequence[EmulatedDevice]]) -> dict[str, object]:
        name, devices = item
        folder = self._folder / name
        folder.mkdir()
        body = json.dumps({"devices": [device.to_json() for device in devices]})
        (folder / DEVICE_FILE).write_text(body)
        return {
            "role": "worker",
            "labels": dict(label.split("=") for label in NODE_LABELS),
            "extraMounts": [{"hostPath": str(folder), "containerPath": "/var/lib/ullage"}],
        }

    def down(self) -> None:
        """Delete the cluster."""
        run("kind", "delete", "cluster", "--name", self.NAME)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of kind's context, in a file of its own."""
        path = self._folder / "kubeconfig"
        path.write_text(run("kind", "get", "kubeconfig", "--name", self.NAME))
        return path

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        return _checked(command, stdin, check)

    def helm(self, *arguments: str) -> str:
        """Run helm."""
        return run("helm", "--kubeconfig", str(self.kubeconfig), *arguments)

    def load_images(self, archives: Sequence[Path]) -> None:
        """Load the archives into kind's nodes."""
        for archive in archives:
            run("kind", "load", "image-archive", "--name", self.NAME, str(archive))

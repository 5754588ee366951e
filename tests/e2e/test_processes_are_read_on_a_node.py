# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The pod that reads processes, under a real kubelet: it serves, and counts as the host does.

No GPU is here, so what it says of one is that the driver's library is missing.
"""

from __future__ import annotations

import yaml

from demo.install import CHARTS, NAMESPACE, chart_values
from e2e.stack import Stack, eventually

ASK = """
import asyncio
from pathlib import Path
from ullage_node.devices.nvidia.host_processes import HostProcesses, ProcessesUnseen, identity

for process in Path("/proc").iterdir():
    if process.name.isdigit():
        try:
            words = (process / "cmdline").read_bytes().split(b"\\0")
            if words[-2:-1] == [b"processes"]:
                print("reader", *identity(process))
        except OSError:
            pass
try:
    ways = HostProcesses(Path("/run/ullage/processes/processes.sock"), Path("/proc"))
    asyncio.run(ways.look(["GPU-1"]))
except ProcessesUnseen as error:
    print(error)
"""
READ = "import sys; print(open(f'/host/proc/{sys.argv[1]}/stat').read())"


def test_the_reader_serves_and_its_number_is_the_hosts(stack: Stack) -> None:
    agents = stack.list("pods", NAMESPACE, "app.kubernetes.io/component=node")
    drawn = stack.cluster.helm(
        "template", "ullage", str(CHARTS / "ullage"), "--namespace", NAMESPACE,
        *chart_values(), "--set-string", "node.backend=nvidia",
        "--show-only", "templates/processes-daemonset.yaml",
    )  # fmt: skip
    body = yaml.safe_load(drawn)
    stack.apply(body)
    try:
        selector = "app.kubernetes.io/component=processes"

        def runs() -> dict[str, str]:
            pods = stack.list("pods", NAMESPACE, selector)
            found = {
                pod["spec"]["nodeName"]: pod["metadata"]["name"]
                for pod in pods
                if pod["status"]["phase"] == "Running"
            }
            return found if len(found) == 2 else {}

        pods = eventually(runs, within_s=60, what="both readers run")
        node, pod = next(iter(sorted(pods.items())))

        def answered() -> str:
            said = _run(stack, pod, "processes", ASK)
            return said if "libnvidia-ml.so.1 is not in this container" in said else ""

        said = eventually(answered, within_s=60, what="the reader serves, and misses a library")
        readers = [line.split()[1:] for line in said.splitlines() if line.startswith("reader ")]
        assert readers, said
        (agent,) = (one for one in agents if one["spec"]["nodeName"] == node)
        for number, start in readers:
            seen = _run(stack, agent["metadata"]["name"], "guard", READ, number)
            fields = seen.rpartition(") ")[2].split()
            assert (seen.split()[0], fields[19]) == (number, start)
    finally:
        stack.delete("daemonset", body["metadata"]["name"], NAMESPACE)


def _run(stack: Stack, pod: str, container: str, program: str, *words: str) -> str:
    command = ("exec", "--namespace", NAMESPACE, pod, "--container", container, "--")
    return stack.cluster.kubectl(*command, "python3", "-c", program, *words).stdout

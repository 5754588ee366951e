# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The commands that `helm install` prints work in a shell, one after the other."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from chart.rendered import CHART
from demo.cluster import LOCALCLUSTER
from demo.install import NAMESPACE, RELEASE
from demo.progress import run
from e2e.stack import Stack

COMMAND = re.compile(r"^ {5}(kubectl .*)$", re.MULTILINE)


def test_every_command_of_the_notes_works(stack: Stack) -> None:
    notes = stack.cluster.helm("get", "notes", RELEASE, "--namespace", NAMESPACE)
    commands = [line.replace(" NODE ", " node-1 ") for line in COMMAND.findall(notes)]
    assert len(commands) == len(COMMAND.findall((CHART / "templates/NOTES.txt").read_text())) == 7
    plugin = Path(sys.executable).parent
    assert (plugin / "kubectl-ullage").exists()
    said: dict[str, str] = {}
    try:
        for command in commands:
            line = f"PATH=$PATH:{plugin}; {command}"
            said[command.split(" --")[0]] = run(LOCALCLUSTER, "exec", "sh", "-ec", line)
            if command.startswith("kubectl run"):
                stack.cluster.kubectl(
                    "wait", "pod/first", "--for=condition=Ready", "--timeout=600s"
                )
    finally:
        stack.cluster.kubectl("delete", "pod", "first", "--ignore-not-found")
    assert "node-1" in said["kubectl get gpunodes"]
    assert "first" in said["kubectl ullage status"]
    assert "20" in said["kubectl ullage why pod/first"]
    stack.books_balance()

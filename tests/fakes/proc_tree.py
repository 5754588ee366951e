# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A ``/proc`` with the processes that a test wants."""

from __future__ import annotations

from pathlib import Path

from ullage_node.model.switching import ProcessId

START = 4242


def a_process(proc_root: Path, pid: int, *, start: int = START, pod_uid: str = "") -> ProcessId:
    """Let a process be there, of a pod or of none; an earlier one of its number has ended."""
    folder = proc_root / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    fields = ["S", *["1"] * 18, str(start), "0"]
    (folder / "stat").write_text(f"{pid} (a (strange) name) {' '.join(fields)}\n")
    path = f"/kubepods/pod{pod_uid}/c" if pod_uid else "/"
    (folder / "cgroup").write_text(f"0::{path}\n")
    return ProcessId(pid, start)

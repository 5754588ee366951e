# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lets the containers of the local cluster go before other work of the machine.

To the kernel all of them together weigh as much as one process outside of them. A device that is a
processor core would then be as slow as the machine is busy. The control groups, and the weight with
them, go when the cluster is taken down.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

CGROUP: Final = Path("/sys/fs/cgroup")
TIMES: Final = 8
DEFAULTS: Final[Mapping[str, int]] = {
    "cpu/{group}/cpu.shares": 1024,
    "cpu,cpuacct/{group}/cpu.shares": 1024,
    "{group}/cpu.weight": 100,
}
"""Files of both versions of control groups, with what the kernel puts there."""


class NoWeight(RuntimeError):
    """The control group of the cluster's nodes was not found; the text names it."""


def outweigh(node_group: str, root: Path = CGROUP) -> int:
    """Give the group above all nodes :data:`TIMES` the weight of one process.

    Args:
        node_group: A node's control group, as ``localcluster status --json`` says it.
        root: Where control groups are mounted.

    Returns:
        The weight that stands now.

    Raises:
        NoWeight: there is no such group with a processor's weight.
    """
    top = PurePosixPath("/", node_group).parts[1]
    for pattern, default in DEFAULTS.items():
        file = root / pattern.format(group=top)
        if file.exists():
            file.write_text(str(default * TIMES))
            return int(file.read_text())
    raise NoWeight(f"no processor weight of the control group {top} under {root}")

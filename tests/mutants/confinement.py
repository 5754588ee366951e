# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps what a change does away from other processes of this machine.

In a namespace of processes of its own a signal reaches only what the tests started, and all of it
ends with them. Memory is limited, since a loop that does not end may fill it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import Final

MEMORY_BYTES: Final = 8 << 30
"""Addresses that one process of the tests may have."""
_NAMESPACE: Final = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
# a first process of its own: signals without a handler do not reach the first of a namespace
_FIRST: Final = ("sh", "-c", '"$@"; exit $?', "sh")


@cache
def has_namespace() -> bool:
    """Whether processes can be kept in a namespace: Linux, as root."""
    return (
        os.geteuid() == 0
        and shutil.which("unshare") is not None
        and subprocess.run((*_NAMESPACE, "true"), check=False, capture_output=True).returncode == 0
    )


def confinement() -> tuple[str, ...]:
    """Words before those of a program that confine it, as far as this machine can."""
    limited = ("prlimit", f"--as={MEMORY_BYTES}") if shutil.which("prlimit") else ()
    return (*(_NAMESPACE + _FIRST if has_namespace() else ()), *limited)

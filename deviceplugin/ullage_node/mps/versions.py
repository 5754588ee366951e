# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Abilities of MPS by the driver's version. Pure.

The version comes from NVML: the control program comes with the driver, its option ``-v`` is
documented for Tegra only (NVIDIA, Multi-Process Service, tools and interface reference), and
``--help`` is not documented at all.
"""

from __future__ import annotations

import re
from typing import Final

NAMESPACES_SINCE: Final = 615
"""First branch with protocol 3 (NVIDIA, Multi-Process Service, release 615)."""
MANY_USERS_SINCE: Final = 535
"""First branch whose daemon is started with ``-multiuser-server``; unconfirmed for 535 to 545, so
a daemon that ends at once is started without it."""

_BRANCH: Final = re.compile(r"^(\d{1,6})\.", re.ASCII)


def branch_of(version: str) -> int:
    """Number of a driver's release branch, 0 = unknown."""
    match = _BRANCH.match(version)
    return int(match[1]) if match else 0

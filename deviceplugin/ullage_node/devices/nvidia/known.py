# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What probe and driver of a node both need: the GPUs ever found, and the way to ask about them."""

from __future__ import annotations

from ullage_node.devices.nvidia.nvml import NvmlApi, NvmlError, NvmlThread
from ullage_node.devices.nvidia.read import NvidiaDevice, explain


class NvidiaDevices:
    """The devices ever found, and the thread that talks to them; probe and driver share it."""

    def __init__(self, api: NvmlApi) -> None:
        self.thread = NvmlThread(api)
        self.known: dict[str, NvidiaDevice] = {}
        self.driver_version = ""


def said(error: Exception) -> str:
    """What NVML, or whoever waited for it, says of a failure."""
    return explain(error) if isinstance(error, NvmlError) else str(error)

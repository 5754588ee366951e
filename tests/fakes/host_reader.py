# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The reader of processes without its socket, in the host's PID namespace."""

from __future__ import annotations

from collections.abc import Sequence

from ullage_node.devices.nvidia.host_processes import ProcessesUnseen, ProcessReader
from ullage_node.devices.nvidia.nvml import NvmlSession, NvmlThread
from ullage_node.devices.nvidia.read import Usage
from ullage_node.line_socket import Unanswered


class HostReader(ProcessReader):
    """Asked directly; the socket and the proof of the numbers have tests of their own."""

    def __init__(self, thread: NvmlThread) -> None:
        super().__init__(NvmlSession(thread))

    async def look(self, uuids: Sequence[str]) -> Usage:
        try:
            return await super().look(uuids)
        except Unanswered as error:
            raise ProcessesUnseen(str(error)) from error

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The process beside the agent that performs reads and actions that need more rights.

It has the host's PIDs, and where an administrator permits it may see MIG devices and run
cuda-checkpoint. It never has a token of the API server. Each service has its own socket, for root
only.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

from ullage_node.devices.nvidia.cuda_checkpoint import SOCKET as CHECKPOINT_SOCKET
from ullage_node.devices.nvidia.cuda_checkpoint import CudaCheckpoint
from ullage_node.devices.nvidia.host_processes import DIRECTORY, SOCKET, ProcessReader
from ullage_node.devices.nvidia.mig import SOCKET as MIG_SOCKET
from ullage_node.devices.nvidia.mig import MigReader
from ullage_node.devices.nvidia.nvml import NvmlSession, NvmlThread, load_nvml
from ullage_node.line_socket import LineServer


async def serve(run_dir: Path, *, checkpoint: Path | None = None, mig: bool = False) -> None:
    """Answer until SIGTERM or SIGINT.

    Args:
        run_dir: Parent directory of the sockets.
        checkpoint: NVIDIA's cuda-checkpoint, with which the agent may suspend processes; ``None`` =
            it may not.
        mig: MIG devices are read for the agent, too.

    Raises:
        OSError: a socket cannot be made.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    session = NvmlSession(NvmlThread(load_nvml()))
    answers = {SOCKET: ProcessReader(session).answer}
    if checkpoint is not None:
        answers[CHECKPOINT_SOCKET] = CudaCheckpoint(path=checkpoint).answer
    if mig:
        answers[MIG_SOCKET] = MigReader(session).answer
    async with contextlib.AsyncExitStack() as sockets:
        for socket, answer in answers.items():
            await sockets.enter_async_context(LineServer(run_dir / DIRECTORY / socket, answer))
        await stop.wait()

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel of a node that is short of processes: each start is typed, told and tried again."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from ullage_node.devices.nvidia.cuda_checkpoint import CudaCheckpoint
from ullage_node.devices.nvidia.nvml import NvmlStuck, NvmlThread
from ullage_node.guard import watchdog
from ullage_node.mps.programs import ProgramCall, ProgramMissing, ProgramRunner

REFUSED = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
NO_THREAD = RuntimeError("can't start new thread")


@pytest.mark.parametrize("refused", [REFUSED, NO_THREAD])
async def test_programs_that_cannot_be_started_are_missing(refused: Exception) -> None:
    call = ProgramCall(words=(sys.executable, "-c", "pass"))
    with (
        patch.object(asyncio, "create_subprocess_exec", side_effect=refused),
        pytest.raises(ProgramMissing, match=str(refused.args[-1])),
    ):
        await ProgramRunner().start(call)


@pytest.mark.parametrize("refused", [REFUSED, NO_THREAD])
async def test_a_suspend_without_a_process_says_so(refused: Exception) -> None:
    program = CudaCheckpoint(path=Path(sys.executable))
    with patch.object(asyncio, "create_subprocess_exec", side_effect=refused):
        answer = await program.answer({"verb": "able"})
    assert str(refused.args[-1]) in str(answer["problem"])


async def test_nvml_without_a_thread_is_asked_again() -> None:
    thread = NvmlThread(Mock())
    with (
        patch.object(threading.Thread, "start", side_effect=NO_THREAD),
        pytest.raises(NvmlStuck, match="no thread"),
    ):
        await thread.call(lambda api: 1)
    assert await thread.call(lambda api: 1) == 1
    thread.stop()


def test_the_guard_waits_for_its_process() -> None:
    with (
        patch.object(os, "fork", side_effect=[REFUSED, REFUSED, 17]),
        patch.object(watchdog, "FORK_PAUSE_S", 0.0),
    ):
        assert watchdog._forked() == 17
    with (
        patch.object(os, "fork", side_effect=REFUSED),
        patch.object(watchdog, "FORK_PAUSE_S", 0.0),
        pytest.raises(BlockingIOError),
    ):
        watchdog._forked()

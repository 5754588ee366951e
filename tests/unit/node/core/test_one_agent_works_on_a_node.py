# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ullage_node.serve import alone_in

HOLDER = """
import asyncio, sys
from pathlib import Path
from ullage_node.serve import alone_in

async def hold():
    async with alone_in(Path(sys.argv[1]), asyncio.Event()) as held:
        print(held, flush=True)
        await asyncio.sleep(60)

asyncio.run(hold())
"""


async def test_the_second_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    second: asyncio.Task[bool]

    async def wait() -> bool:
        async with alone_in(tmp_path, asyncio.Event()) as held:
            return held

    async with alone_in(tmp_path, asyncio.Event()) as held:
        assert held
        second = asyncio.create_task(wait())
        await asyncio.sleep(0.05)
        assert not second.done()
    assert await second


async def test_who_waits_can_be_stopped(tmp_path: Path) -> None:
    stop = asyncio.Event()

    async def wait() -> bool:
        async with alone_in(tmp_path, stop) as held:
            return held

    async with alone_in(tmp_path, asyncio.Event()):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.05)
        stop.set()
        assert not await waiting


def test_a_killed_process_leaves_no_lock_and_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "device-plugins"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "True\n"
        os.kill(first.pid, signal.SIGKILL)

    async def hold() -> bool:
        async with alone_in(folder, asyncio.Event()) as held:
            return held

    assert asyncio.run(hold())
    assert list(folder.iterdir()) == []


async def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        async with alone_in(tmp_path / "file" / "plugins", asyncio.Event()):
            pass

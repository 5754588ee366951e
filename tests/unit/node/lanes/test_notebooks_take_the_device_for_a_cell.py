# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A real IPython shell in another process, on a lane of a real lane server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.lanes_rig import PATIENCE_S, LaneRig, Wire, eventually, hello, program
from ullage.api.environment import ENV_LANE, ENV_LANE_MEMORY
from ullage.api.lanes import Acquire, Done, Grant, InLane, Release

SHELL = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # as a job in the background it is ignored
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "ullage_run.notebook")
print("done", flush=True)
for line in sys.stdin:
    result = shell.run_cell(json.loads(line))
    print("done", result.success, flush=True)
"""
STEP = """
import time
print("begin", time.monotonic())
time.sleep(0.2)
print("end", time.monotonic())
"""


@dataclass(kw_only=True)
class Notebook:
    """A shell that runs cells one after the other."""

    process: asyncio.subprocess.Process

    async def begin(self, cell: str) -> None:
        """Send a cell."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(cell).encode() + b"\n")
        await self.process.stdin.drain()

    async def ended(self) -> tuple[bool, list[str]]:
        """Whether the cell ran well, and the lines that it printed."""
        assert self.process.stdout is not None
        printed: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while line := (await self.process.stdout.readline()).decode():
                if line.startswith("done"):
                    return line.split()[1:] == ["True"], printed
                printed.append(line.strip())
        raise AssertionError(f"the shell ended: {printed}")

    async def run(self, cell: str) -> tuple[bool, list[str]]:
        """Send a cell and wait for its end."""
        await self.begin(cell)
        return await self.ended()


@contextlib.asynccontextmanager
async def notebook(folder: Path, socket: Path | None) -> AsyncIterator[Notebook]:
    """A shell with the extension loaded, in a container of 100 + 300 MiB."""
    lane = {ENV_LANE: str(socket), ENV_LANE_MEMORY: "100,300"} if socket else {}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SHELL,
        env={**os.environ, "IPYTHONDIR": str(folder / "ipython"), **lane},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        found = Notebook(process=process)
        await found.ended()
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LaneRig]:
    """A device with memory for one lane."""
    made = LaneRig(root=tmp_path / "lanes", memory_mib=500)
    yield made
    await made.close()


async def holder(rig: LaneRig) -> tuple[Wire, int]:
    """Another program, in the middle of a step, and its lease."""
    wire = await rig.wire(await rig.hold("other", 100, 300))
    await wire.say(hello(), Acquire(iteration=1))
    assert isinstance(await wire.hear(), InLane)
    granted = await wire.hear()
    assert isinstance(granted, Grant)
    return wire, granted.lease


@pytest.mark.slow
async def test_others_have_the_device_between_cells_and_no_one_during_one(
    rig: LaneRig, tmp_path: Path
) -> None:
    train = await rig.hold("train", 100, 300)
    async with (
        notebook(tmp_path, await rig.hold("notebook", 100, 300)) as shell,
        program(train, steps=200, seconds=0.005) as other,
    ):
        await other.until("end")
        went_well, printed = await shell.run(STEP)
        spans = await other.spans()
    assert went_well
    begin, end = (float(line.split()[1]) for line in printed)
    assert all(one[1] <= begin or end <= one[0] for one in spans)
    assert any(end <= one[0] for one in spans)


async def test_a_cell_that_fails_gives_the_device_back(rig: LaneRig, tmp_path: Path) -> None:
    async with notebook(tmp_path, await rig.hold("notebook", 100, 300)) as shell:
        went_well, printed = await shell.run("1 / 0")
        assert not went_well
        assert any("ZeroDivisionError" in line for line in printed)
        await eventually(lambda: rig.holder_of("notebook") is None)
        assert await shell.run("print(1)") == (True, ["1"])


async def test_a_cell_whose_wait_is_interrupted_runs_nothing(rig: LaneRig, tmp_path: Path) -> None:
    other, lease = await holder(rig)
    async with notebook(tmp_path, await rig.hold("notebook", 100, 300)) as shell:
        await shell.begin("print('ran')")
        await eventually(lambda: rig.server.devices["gpu"].jobs["notebook"].asks)
        shell.process.send_signal(signal.SIGINT)
        went_well, printed = await shell.ended()
        assert not went_well
        assert "ran" not in printed
        assert any("KeyboardInterrupt" in line for line in printed)
        await other.say(Release(lease=lease, emptied=True))
        assert isinstance(await other.hear(), Done)
        assert await shell.run("print('ran')") == (True, ["ran"])


async def test_a_cell_that_runs_a_cell_has_one_turn(rig: LaneRig, tmp_path: Path) -> None:
    async with notebook(tmp_path, await rig.hold("notebook", 100, 300)) as shell:
        went_well, printed = await shell.run("get_ipython().run_cell('print(1)').success")
        assert went_well
        assert printed[0] == "1"


async def test_a_cell_may_await(rig: LaneRig, tmp_path: Path) -> None:
    async with notebook(tmp_path, await rig.hold("notebook", 100, 300)) as shell:
        await shell.run("import asyncio")
        assert await shell.run("await asyncio.sleep(0); print(2)") == (True, ["2"])


async def test_outside_a_lane_cells_run_as_ever(tmp_path: Path) -> None:
    async with notebook(tmp_path, None) as shell:
        assert await shell.run("print(1)") == (True, ["1"])


async def test_after_the_extension_is_unloaded_cells_wait_for_no_one(
    rig: LaneRig, tmp_path: Path
) -> None:
    async with notebook(tmp_path, await rig.hold("notebook", 100, 300)) as shell:
        await shell.run("%unload_ext ullage_run.notebook")
        await holder(rig)
        assert await shell.run("print(1)") == (True, ["1"])

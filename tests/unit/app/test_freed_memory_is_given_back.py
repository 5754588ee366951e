# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks that were freed below others that stay do not count as the process's for ever."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from ullage.app import memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def main():
    memory.EVERY_S = 0.05
    keeping = asyncio.create_task(memory.give_back())
    before = resident()
    blocks, held = [], []
    for _ in range(2000):  # each freed block lies below one that stays
        blocks.append(b"x" * 50_000)
        held.append(b"y" * 2_000)
    full = resident()
    del blocks
    for _ in range(100):
        await asyncio.sleep(0.1)
        if resident() - before < (full - before) / 4:
            print("given back")
            return

asyncio.run(main())
"""


def test_holes_between_what_stays_are_given_back() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    assert ended.stdout.strip() == "given back"

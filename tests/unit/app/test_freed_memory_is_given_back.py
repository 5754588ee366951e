# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks that were freed below others that stay do not count as the process's for ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, gc, os, sys
from ullage.app import memory

def holes():
    blocks, held = [], []
    for _ in range(2000):  # each freed block lies below one that stays
        blocks.append(b"x" * 50_000)
        held.append(b"y" * 2_000)
    return blocks, held

def ring():
    first = [b"z" * 100_000_000]
    first.append(first)
    return first, None

async def main(make):
    gc.disable()  # no collection comes by chance
    memory.MEMORY_TRIM_S = 0.05
    keeping = asyncio.create_task(memory.give_back())
    await asyncio.sleep(0.2)
    before = memory.resident_bytes()
    made, held = make()
    full = memory.resident_bytes()
    if len(sys.argv) > 2:
        await asyncio.sleep(float(sys.argv[2]))
    del made
    for _ in range(100):
        await asyncio.sleep(0.1)
        if memory.resident_bytes() - before < (full - before) / 4:
            print("given back")
            return

asyncio.run(main({"holes": holes, "ring": ring}[sys.argv[1]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", [("holes",), ("ring",), ("ring", "0.3")])
def test_what_nothing_uses_is_given_back(what: tuple[str, ...]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *what], check=True, capture_output=True, text=True
    )
    assert ended.stdout.strip() == "given back"

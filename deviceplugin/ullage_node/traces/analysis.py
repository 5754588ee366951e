# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Analyses a trace in a process of its own, which the agent ends when it takes too long.

A trace is a tenant's file. The process limits its own memory and CPU time before it opens the file
(``analyse``); what it prints is read with bounds, too.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from ullage.api.rank_traces import RANK_TRACE_BYTES
from ullage.api.reasons import Reason
from ullage_node.times import ANALYSIS_S
from ullage_node.traces.tracer import AnalysedTrace

MODULE: Final = "ullage_node.traces.analyse"
PRINTED_MOST: Final = 4 * RANK_TRACE_BYTES
TEXT_MOST: Final = 300


async def analysed(path: Path) -> AnalysedTrace:
    """The summary of a trace, or why there is none.

    Args:
        path: The file, which its tenant may change at any time.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            MODULE,
            str(path),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        return AnalysedTrace(reason=Reason.CAPTURE_FAILED, message=f"no analysis: {error}")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(ANALYSIS_S):
            printed = await process.stdout.read(PRINTED_MOST)
            await process.wait()
    except TimeoutError:
        text = f"the analysis took more than {ANALYSIS_S:.0f} s"
        return AnalysedTrace(reason=Reason.TRACE_TOO_SLOW, message=text)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return outcome(printed, process.returncode)

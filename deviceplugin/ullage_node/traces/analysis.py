# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Analyses a trace in a process of its own, which limits itself and is ended if it takes too long.

A trace is a tenant's file: it may make its process fail or stall, never the agent. What the process
prints is read with bounds and checked, too.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Final

from ullage.api.rank_traces import RANK_TRACE_BYTES, RankTrace
from ullage.api.reasons import Reason, Standing
from ullage_node.times import ANALYSIS_S
from ullage_node.traces.tracer import AnalysedTrace

MODULE: Final = "ullage_node.traces.analyse"
PRINTED_MOST: Final = RANK_TRACE_BYTES + 1024
TEXT_MOST: Final = 300
"""Characters of a message; it quotes the tenant's file."""


async def analysed(path: Path, *, limit_s: float = ANALYSIS_S) -> AnalysedTrace:
    """The summary of a trace, or why there is none.

    Args:
        path: The file, which its tenant may change at any time.
        limit_s: Seconds by the clock after which the process is ended.
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
            start_new_session=True,
        )
    except OSError as error:
        return AnalysedTrace(
            reason=Reason.CAPTURE_FAILED, message=f"no analysis can be started: {error.strerror}"
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(limit_s):
            printed = b""
            while len(printed) <= PRINTED_MOST and (
                piece := await process.stdout.read(PRINTED_MOST + 1 - len(printed))
            ):
                printed += piece
            code = await process.wait() if len(printed) <= PRINTED_MOST else 0
    except TimeoutError:
        return AnalysedTrace(
            reason=Reason.TRACE_TOO_SLOW, message=f"its analysis took more than {limit_s:g} s"
        )
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return outcome(printed, code)


def outcome(printed: bytes, code: int) -> AnalysedTrace:
    """The result of the process: what it printed and its exit status, checked.

    Args:
        printed: Its standard output, of at most ``PRINTED_MOST`` bytes and one.
        code: Its exit status; negative = the signal that ended it.
    """
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return AnalysedTrace(
            reason=Reason.TRACE_TOO_SLOW,
            message="its analysis used up its CPU time, or the node's memory, and was ended",
        )
    try:
        if code != 0 or len(printed) > PRINTED_MOST:
            raise ValueError(f"exit status {code}")
        body = json.loads(printed)
        if "summary" in body:
            RankTrace.from_wire(body["summary"])
            return AnalysedTrace(summary=json.dumps(body["summary"], separators=(",", ":")))
        reason, text = Reason(body["reason"]), str(body["message"])
        if Standing.REFUSES_TRACE not in reason.standing:
            raise ValueError(f"{reason} is not a reason that an analysis gives")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return AnalysedTrace(
            reason=Reason.CAPTURE_FAILED, message=f"its analysis failed: {str(error)[:TEXT_MOST]}"
        )
    plain = "".join(letter if letter.isprintable() else "?" for letter in text[:TEXT_MOST])
    return AnalysedTrace(reason=reason, message=plain)

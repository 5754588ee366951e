# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A tenant's file ends at most the process that reads it, and what that prints is checked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.kineto_traces import document, operation, step
from ullage.api.rank_traces import RANK_TRACE_BYTES, RankTrace
from ullage.api.reasons import Reason
from ullage_node.times import ANALYSIS_CPU_S
from ullage_node.traces import analyse
from ullage_node.traces.analysis import PRINTED_MOST, TEXT_MOST, analysed, outcome

GOOD = document([step(1, 0, 100), operation(10, 20)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(GOOD)
    return path


async def test_a_trace_becomes_a_summary(trace: Path) -> None:
    found = await analysed(trace)
    assert (found.reason, found.message) == (None, "")
    assert len(found.summary) <= RANK_TRACE_BYTES
    assert RankTrace.from_wire(json.loads(found.summary)).step.compute_micros == 20


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.json"
    path.write_bytes(GOOD[:-20])
    return path


async def test_a_broken_trace_has_a_reason(broken: Path) -> None:
    found = await analysed(broken)
    assert found.reason is Reason.TRACE_INVALID
    assert "in part" in found.message


def test_only_plain_files_are_opened(trace: Path, tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(trace)
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path, tmp_path / "none"):
        found = analyse.outcome_of(str(path))
        assert found["reason"] == Reason.TRACE_INVALID
        assert "cannot be read" in str(found["message"])


async def test_a_process_that_does_not_end_is_ended(trace: Path) -> None:
    found = await analysed(trace, limit_s=0.0)
    assert found.reason is Reason.TRACE_TOO_SLOW


@pytest.mark.parametrize(
    ("printed", "code", "reason"),
    [
        (b"", -signal.SIGXCPU, Reason.TRACE_TOO_SLOW),
        (b"", -signal.SIGKILL, Reason.TRACE_TOO_SLOW),
        (b"", -signal.SIGSEGV, Reason.CAPTURE_FAILED),
        (b"", 0, Reason.CAPTURE_FAILED),
        (b"[]", 0, Reason.CAPTURE_FAILED),
        (b'{"summary": {"rank": -1}}', 0, Reason.CAPTURE_FAILED),
        (b'{"summary": 7}', 0, Reason.CAPTURE_FAILED),
        (b'{"reason": "Placed", "message": ""}', 0, Reason.CAPTURE_FAILED),
        (b'{"reason": "TraceTooLarge"}', 0, Reason.CAPTURE_FAILED),
        (b'{"reason": "TraceTooLarge", "message": "x"}', 0, Reason.TRACE_TOO_LARGE),
        (b" " * (PRINTED_MOST + 1), 0, Reason.CAPTURE_FAILED),
        (b"[" * PRINTED_MOST, 0, Reason.CAPTURE_FAILED),
    ],
)
def test_what_is_printed_is_checked(printed: bytes, code: int, reason: Reason) -> None:
    found = outcome(printed, code)
    assert found.reason is reason
    assert found.summary == ""


def test_messages_are_cut_and_printable() -> None:
    body = {"reason": "TraceInvalid", "message": "\x1b[31m" + "x" * 999}
    found = outcome(json.dumps(body).encode(), 0)
    assert found.message == "?[31m" + "x" * (TEXT_MOST - 5)


def limits_within() -> dict[str, object]:
    """Limits of a process that has confined itself."""
    code = (
        "import json, os, resource as r; from ullage_node.traces.analyse import confine; confine();"
        "kinds = ('CPU', 'AS', 'DATA', 'FSIZE', 'CORE', 'NOFILE');"
        "print(json.dumps({k: r.getrlimit(getattr(r, 'RLIMIT_' + k)) for k in kinds}"
        " | {'nice': os.nice(0)}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_process_cannot_raise_its_limits_again() -> None:
    found = limits_within()
    assert found["CPU"] == [ANALYSIS_CPU_S] * 2
    assert found["AS"] == [analyse.ADDRESSES] * 2
    assert found["DATA"] == [analyse.MEMORY] * 2
    assert found["FSIZE"] == [analyse.WRITTEN] * 2
    assert found["CORE"] == [0, 0]
    assert found["NOFILE"] == [analyse.OPEN_FILES] * 2
    assert found["nice"] == min(19, os.nice(0) + analyse.NICE)


def test_memory_that_runs_out_is_a_reason(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(path: str) -> object:
        raise MemoryError

    monkeypatch.setattr(analyse, "chunks_of", exhausted)
    assert analyse.outcome_of(str(trace))["reason"] == "TraceTooLarge"


def test_the_command_says_how_it_is_called() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ullage_node.traces.analyse"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "python -m ullage_node.traces.analyse FILE" in done.stderr

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench import fill, kwok, local, mixed, soak
from demo import __main__ as demonstration
from demo.cluster import start_localcluster
from demo.progress import CommandFailed, ending_with_a_reason

REASON = "needs Go 1.26 or newer: install it"
Script = Callable[[str], Path]


@pytest.fixture
def localcluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Puts a script of a few lines in the place of localcluster."""

    def put(body: str) -> Path:
        file, calls = tmp_path / "run", tmp_path / "calls"
        file.write_text(f'#!/bin/sh\necho "$1" >> {calls}\n{body}\n')
        file.chmod(0o755)
        for module in ("demo.cluster", "bench.kwok", "bench.local"):
            monkeypatch.setattr(f"{module}.LOCALCLUSTER", str(file))
        monkeypatch.setattr("bench.kwok.HOME", tmp_path / "kwok")
        monkeypatch.setattr("demo.start.building", lambda _: nullcontext())
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(local, "machine_busy", lambda: 0.0)
        return calls

    return put


REFUSES = f"""
case $1 in
up) echo "localcluster: starting the control plane" >&2
    echo "localcluster: {REASON}" >&2
    echo "logs of all processes: somewhere" >&2
    exit 1 ;;
status) echo '{{"state": "stopped", "kubectl": "/nowhere/kubectl"}}' ;;
kubeconfig) echo "localcluster: no cluster" >&2; exit 1 ;;
esac
"""


def test_the_reason_is_the_last_thing_that_localcluster_says_itself(
    localcluster: Script, capfd: pytest.CaptureFixture[str]
) -> None:
    localcluster(REFUSES)
    with pytest.raises(CommandFailed, match=f"^the local cluster did not start: {REASON}$"):
        start_localcluster("--nodes", "0")
    assert "starting the control plane" in capfd.readouterr().err


def test_one_that_says_nothing_is_told_by_its_exit_status(localcluster: Script) -> None:
    localcluster("exit 7")
    with pytest.raises(CommandFailed, match="ended with 7"):
        start_localcluster()


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (fill.main, []),
        (soak.main, ["--out", "soak"]),
        (mixed.main, []),
        (demonstration.main, []),
        (demonstration.main, ["--keep"]),
    ],
    ids=["fill", "soak", "mixed", "demo", "demo-keep"],
)
def test_a_program_ends_with_the_reason_in_one_line(
    main: Callable[[], object],
    words: list[str],
    localcluster: Script,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    localcluster(REFUSES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if line.startswith("failed: ")] == [
        f"failed: the local cluster did not start: {REASON}"
    ]


def test_a_failure_and_a_clean_up_that_fails_are_both_told(
    localcluster: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    localcluster(
        f"{REFUSES}\n[ $1 = down ] && {{ echo 'localcluster: busy' >&2; exit 1; }}\nexit 0"
    )
    with pytest.raises(SystemExit), local.installed("mixed", {}):
        pass
    told = capsys.readouterr().err
    assert told.index(f"failed: the local cluster did not start: {REASON}") < told.index("busy")


def test_a_cluster_of_others_is_neither_used_nor_taken_down(
    localcluster: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = localcluster("""echo '{"state": "running"}'""")
    with pytest.raises(SystemExit), local.installed("mixed", {}):
        pass
    assert "failed: a local cluster is running" in capsys.readouterr().err
    assert calls.read_text().split() == ["status"]


def test_a_benchmark_leaves_the_cluster_of_another_one_alone(
    localcluster: Script, tmp_path: Path
) -> None:
    calls = localcluster("exit 0")
    with (tmp_path / "kwok.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(CommandFailed, match="another benchmark"), kwok.kwok_cluster(1):
            pass
    assert not calls.exists()


def test_what_an_earlier_benchmark_left_goes_before_the_start(localcluster: Script) -> None:
    calls = localcluster(
        """[ "$1" != status ] || echo '{"kubectl": "true", "kubeconfig": "/nowhere"}'"""
    )
    with kwok.kwok_cluster(1) as kubeconfig:
        assert kubeconfig == Path("/nowhere")
    assert calls.read_text().split() == ["down", "up", "status", "down"]


def test_a_fill_without_its_operator_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "LOOK_S", 0.05)
    with (
        subprocess.Popen(["false"]) as child,
        pytest.raises(CommandFailed, match="the operator ended with 1"),
    ):
        asyncio.run(fill.while_alive("the operator", child, asyncio.sleep(3600.0)))
    with subprocess.Popen(["sleep", "600"]) as child:
        asyncio.run(fill.while_alive("the operator", child, asyncio.sleep(0.0)))
        child.kill()


def test_tasks_that_failed_together_are_told_by_the_first_and_a_fault_keeps_its_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    away, fault = CommandFailed("no answer"), ZeroDivisionError()
    with pytest.raises(SystemExit), ending_with_a_reason():
        raise ExceptionGroup("tasks", [ExceptionGroup("inner", [away]), away])
    assert capsys.readouterr().err == "failed: no answer\n"
    with pytest.raises(ExceptionGroup), ending_with_a_reason():
        raise ExceptionGroup("tasks", [away, fault])
    assert capsys.readouterr().err == ""


def test_sigterm_takes_down_what_was_started(localcluster: Script) -> None:
    calls = localcluster(
        """[ "$1" != status ] || echo '{"kubectl": "true", "kubeconfig": "/nowhere"}'"""
    )

    async def measure() -> None:
        with kwok.kwok_cluster(1):
            try:
                asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
                await asyncio.sleep(3600.0)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)  # once more, while it cleans up

    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended, ending_with_a_reason(), ending_with_a_reason():
            asyncio.run(measure())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143
    assert calls.read_text().split()[-1] == "down"


def test_sigterm_means_afterwards_what_it_meant_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ending_with_a_reason():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_cluster_is_taken_down_after_it_was_measured_even_if_no_log_can_be_kept(
    localcluster: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = localcluster("""[ "$1" != status ] || echo '{"state": "stopped"}'""")
    archives = {"operator": tmp_path / "operator.tar"}
    monkeypatch.setattr("demo.start.build_all", lambda _: archives)
    monkeypatch.setattr(local, "install", lambda *_: None)
    monkeypatch.setattr(local, "_keep_log", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError), local.installed("mixed", {}):
        assert calls.read_text().split() == ["status", "up", "load-image"]
    assert calls.read_text().split()[-1] == "down"

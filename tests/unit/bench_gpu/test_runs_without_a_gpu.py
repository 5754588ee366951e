# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whole commands without a GPU: processes, sockets, the fake of MPS; one of full size."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench.gpu import crew, runner
from bench.gpu.measured import load
from bench.gpu.mps import Transcript, call
from bench.gpu.plan import Member, Plan, Window, make_plan
from bench.gpu.preflight import Preflight
from bench.gpu.rig import DRY_SCALE, Rig, dry_rig
from bench.gpu.runner import Options, Run
from bench.gpu.schema import RowRefused, read_cells

ROOT = Path(__file__).parents[3]
TWO = ("DEC", "PRE")


def options(out: Path, **more: object) -> Options:
    given: dict[str, object] = {"name": "r1", "out": out, "run_id": "t", "tenants": TWO, **more}
    return Options(**given)  # type: ignore[arg-type]


def silent(text: str) -> None:
    """No one reads."""


def summary(path: Path) -> dict[str, object]:
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_a_small_run_leaves_rows_summary_and_transcript(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = make_plan("r1", 0, seconds=1e9, tenants=TWO)
    whole = [one for one in full.windows if {member.percent for member in one.members} == {100}]
    plan = replace(full, windows=tuple(whole))
    monkeypatch.setattr(runner, "make_plan", lambda *given, **more: plan)
    said: list[str] = []
    outcome = Run(options(tmp_path), rig, say=said.append).do()
    assert outcome.ended == "complete"
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "gpu-rows-v1-t.csv.gz",
        "gpu-run-t.json",
        "transcript.txt",
    ]
    lines = read_cells(outcome.rows)
    assert {line["attached"] for line in lines} == {"true"}
    assert {line["error"] for line in lines} == {""}
    assert all(line["driver"] and line["gpu_name"] for line in lines)
    assert all(line["slowdown"] for line in lines if line["tenant"] in TWO)
    found = summary(outcome.summary)
    assert found["attachment_verdicts"] == found["windows_done"] == found["windows_planned"]
    assert found["no_gpu_was_used"] is True
    assert "no GPU was used" in said[0]
    assert "$ " in outcome.transcript.read_text()
    assert load([tmp_path]).left_out == {}


@pytest.fixture
def no_mps(rig: Rig) -> Rig:
    """The machine has no MPS: command 0 ends at once."""
    rig.mps.command = ("no-such-program",)
    return rig


@pytest.fixture
def few_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of eight windows."""

    def short(*given: object, **more: object) -> Plan:
        plan = make_plan(*given, **more)  # type: ignore[arg-type]
        return replace(plan, windows=plan.windows[:8])

    monkeypatch.setattr(runner, "make_plan", short)


def test_the_own_timer_ends_a_run_and_saves_it(no_mps: Rig, tmp_path: Path) -> None:
    run = Run(options(tmp_path, minutes=1.0), no_mps, say=silent)
    run._begun_s = time.monotonic() - 60.0  # the minute is over as soon as the workers stand
    outcome = run.do()
    assert outcome.ended == "own timer: 1 minutes"
    assert outcome.windows == 0
    assert read_cells(outcome.rows) == []


def test_an_xid_ends_the_run_and_saves_it(
    no_mps: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = Rig.before, []

    def shaken(rig: Rig, window: Window) -> None:
        before(rig, window)
        seen.append(window)
        if len(seen) == 4:
            rig.api.raise_xid(rig.api.gpus[0], 31)

    monkeypatch.setattr(Rig, "before", shaken)
    outcome = Run(options(tmp_path), no_mps, say=silent).do()
    assert outcome.ended == "abort rule: Xid 31"
    assert outcome.windows == 4
    assert len({line["window_id"] for line in read_cells(outcome.rows)}) == 4


@pytest.mark.slow
def test_without_mps_only_whole_shares_take_turns(no_mps: Rig, tmp_path: Path) -> None:
    outcome = Run(options(tmp_path), no_mps, say=silent).do()
    lines = read_cells(outcome.rows)
    assert {line["mps_mode"] for line in lines} == {"none"}
    assert {line["share_pct"] for line in lines} == {"100"}
    assert all(line["block"].startswith("time-slicing ") for line in lines)
    assert {line["attached"] for line in lines} == {"true"}
    found = summary(outcome.summary)["command_0"]
    assert isinstance(found, dict)
    assert found["abort_rules"] == ["no nvidia-cuda-mps-control: time-slicing pairs only"]


@pytest.mark.slow
def test_a_client_that_never_attaches_stops_the_mps_blocks(rig: Rig) -> None:
    says = "print('{\"sm_count\": 132}', flush=True); import time; time.sleep(9)"
    rig.client = (sys.executable, "-c", says)
    found = Preflight(rig).run()
    assert found.mode == "none"
    assert found.reasons == ["client not attached after 2 tries: MPS blocks stopped"]
    failed = [one.name for one in found.results if not one.ok]
    assert failed == ["attach try 1", "attach try 2"]
    assert not rig.mps.running


@pytest.mark.slow
@pytest.mark.usefixtures("few_windows")
def test_workers_that_miss_mps_silently_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Misspelt(crew.Crew):
        def __init__(self, folder: Path, env: Mapping[str, str], *, scale: float) -> None:
            wrong = {**env, "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/typo"}
            super().__init__(folder, wrong, scale=scale)

    monkeypatch.setattr(runner, "Crew", Misspelt)
    rig = dry_rig(Transcript(tmp_path / "transcript.txt"), scale=0.004, gpm=False)
    try:
        outcome = Run(options(tmp_path), rig, say=silent).do()
    finally:
        rig.close()
    lines = read_cells(outcome.rows)
    assert {line["attached"] for line in lines} == {"false"}
    with pytest.raises(RowRefused, match=r"no usable row.*not attached"):
        load([outcome.rows])
    assert {line["gpm_dram"] for line in lines} == {""}
    found = summary(outcome.summary)["command_0"]
    assert isinstance(found, dict)
    assert found["abort_rules"] == ["GPM unsupported: the run goes on without counters"]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A daemon that outlives its runner is asked to quit there."""
    with TemporaryDirectory(prefix="ug", dir="/dev/shm") as name:
        yield Path(name)
        rig = dry_rig(Transcript(Path(name) / "t"))
        rig.mps.move(Path(name) / "m")
        call(rig.mps.command, typed="quit\n", env=rig.mps.env)
        rig.close()


@pytest.mark.slow
def test_a_killed_runner_leaves_all_whole_windows(tmp_path: Path, short_folder: Path) -> None:
    words = ["-m", "bench.gpu", "r1", "--dry", "--out", str(tmp_path), "--tenants", ",".join(TWO)]
    words += ["--run-id", "k", "--mps-dir", str(short_folder / "m"), "--scale", "0.05"]
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    journal = tmp_path / "gpu-rows-v1-k.part.csv.gz"
    windows: set[str] = set()
    end_s = time.monotonic() + 100
    while len(windows) < 5 and time.monotonic() < end_s and process.poll() is None:
        time.sleep(0.05)
        with suppress(FileNotFoundError, RowRefused):  # not begun yet
            windows = {line["window_id"] for line in read_cells(journal)}
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    lines = read_cells(journal)
    sizes = {line["window_id"]: len(line["tenants"].split(";")) for line in lines}
    assert len(sizes) >= 5
    assert sorted(int(one) for one in sizes) == list(range(len(sizes)))
    assert all(
        sum(line["window_id"] == one for line in lines) == size for one, size in sizes.items()
    )


def test_a_tenant_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "bench.gpu", "r1", "--dry", "--tenants", "R51T"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("bench.gpu: no such tenant: R51T; known: BERTI")


def test_a_frozen_neighbour_goes_on_and_its_row_is_not_used(
    no_mps: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = tuple(Member(tenant=name, percent=100) for name in TWO)
    once = Window(block="freeze", members=members, measured_s=3.0, freeze=True)
    plan = Plan(name="r2", seed=0, windows=(once, replace(once, id=0, freeze=False)), dropped={})
    monkeypatch.setattr(runner, "make_plan", lambda *given, **more: plan)
    outcome = Run(options(tmp_path), no_mps, say=silent).do()
    errors = [line["error"] for line in read_cells(outcome.rows)]
    assert errors == ["", "frozen on purpose", "", ""]
    (freeze,) = json.loads(outcome.summary.read_text())["freezes"]
    assert freeze["victim"] == "DEC@100/0"
    assert freeze["latency_ms"] is None  # a sleeping workload is not cured by anything


@pytest.mark.e2e
@pytest.mark.timeout(400)
def test_a_run_of_full_size_measures_every_window(tmp_path: Path) -> None:
    rig = dry_rig(Transcript(tmp_path / "transcript.txt"), scale=DRY_SCALE)
    try:
        outcome = Run(options(tmp_path, tenants=(), minutes=5.0), rig, say=silent).do()
    finally:
        rig.close()
    assert outcome.ended == "complete"
    assert outcome.windows == 357
    assert load([tmp_path]).left_out == {}

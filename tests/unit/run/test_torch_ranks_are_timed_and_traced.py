# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A stock DDP program of two ranks under torchrun, with the real torch on the CPU over gloo.

``TORCH_PYTHON`` names an interpreter with torch where this one has none.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import ullage
import ullage_run
from ullage.api.captures import CaptureRefusal
from ullage.api.steps import RankRecord, StepRecord
from ullage_node.traces.collect import RankAnswer, collect
from ullage_node.traces.orders import TraceOrder, place

PYTHON: Final = os.environ.get("TORCH_PYTHON", sys.executable)
HAS_TORCH: Final = (
    subprocess.run(
        [PYTHON, "-c", "import importlib.util as u; exit(not u.find_spec('torch'))"], check=False
    ).returncode
    == 0
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: the hook is not tried"),
]
RANKS: Final = 2
SLEEP_NS: Final = 30_000_000
PATIENCE_S: Final = 300.0
"""On a busy machine an import of torch takes a minute."""
PROGRAM: Final = """
import os, sys, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Rows(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.randn(32), torch.tensor(index % 10)

dist.init_process_group("gloo")
torch.set_num_threads(1)
rank, last = dist.get_rank(), os.environ["TEST_END"]
network = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
model = torch.nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = Rows()
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), num_workers=1)
done = torch.zeros(())
steps = 0
BEFORE
while not done.item():
    for inputs, labels in loader:
        time.sleep(0.03 * rank)  # rank 1 is slow
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        EACH
        done.fill_(os.path.exists(last))
        dist.all_reduce(done, dist.ReduceOp.MAX)
        if done.item():
            break
AFTER
dist.destroy_process_group()
sys.exit(7)
"""


class Run:
    """The program, with the directories that the agent gives a container."""

    def __init__(self, folder: Path, **parts: str) -> None:
        self.folder = folder
        self.record = folder / "record"
        self.record.write_bytes(bytes(64))
        (folder / "trace").mkdir()
        (folder / "trace" / "armed").write_bytes(bytes(8))
        program = PROGRAM
        for name in ("BEFORE", "EACH", "AFTER"):
            program = program.replace(name, parts.get(name, "pass"))
        (folder / "program.py").write_text(program)
        runtime, contract = Path(ullage_run.__file__).parent, Path(ullage.__file__).parent.parent
        path = [str(runtime / "autostep"), str(runtime.parent), str(contract)]
        environment = {
            **os.environ,
            "PYTHONPATH": ":".join(path),
            "ULLAGE_STEPS": str(self.record),
            "TEST_END": str(folder / "end"),
            "OMP_NUM_THREADS": "1",
        }
        launcher = [PYTHON, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}"]
        self.output = folder / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*launcher, "--standalone", str(folder / "program.py")],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def ranks(self) -> dict[int, RankRecord]:
        """Records by number in the container."""
        paths = sorted((self.folder / "trace").glob("record-*"))
        raws = {int(path.name[7:]): path.read_bytes() for path in paths}
        records = {index: RankRecord.unpack(raw) for index, raw in raws.items() if len(raw) == 128}
        return {index: record for index, record in records.items() if record is not None}

    def until(self, steps: int) -> int:
        """Wait until every rank did so many steps; the most that one did."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = [record.steps for record in self.ranks().values()]
            if len(done) == RANKS and min(done) >= steps:
                return max(done)
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, f"{done} of {steps} steps"
            time.sleep(0.05)

    def answers(self, order: TraceOrder) -> tuple[RankAnswer, ...]:
        """Place an order and wait for every rank."""
        place(self.folder, order)
        deadline = time.monotonic() + PATIENCE_S
        while len(found := collect(self.folder, order.id)) < RANKS:
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, f"answers: {found}"
            time.sleep(0.05)
        return found

    def end(self) -> str:
        """Let the program end; what it printed."""
        (self.folder / "end").touch()
        self.process.wait(PATIENCE_S)
        text = self.output.read_text()
        assert text.count("exitcode  : 7") == RANKS, text
        return text

    def stop(self) -> None:
        """End it whatever it does."""
        self.process.kill()
        self.process.wait()


def trace(answer: RankAnswer) -> Mapping[str, Any]:
    assert answer.path is not None, answer
    with gzip.open(answer.path) as file:
        body: Mapping[str, Any] = json.load(file)
    return body


def test_each_rank_is_timed_and_traced_in_the_same_steps(tmp_path: Path) -> None:
    run = Run(tmp_path)
    try:
        at = run.until(20) + 30
        found = run.answers(TraceOrder(id="first", start_step=at, steps=5))
        metadata = [trace(answer)["ullage"] for answer in found]
        assert [
            (body["rank"], body["world"], body["step"], body["steps"]) for body in metadata
        ] == [
            (0, RANKS, at, 5),
            (1, RANKS, at, 5),
        ]
        for answer in found:
            names = {event.get("name", "") for event in trace(answer)["traceEvents"]}
            marks = {name for name in names if name.startswith("ProfilerStep#")}
            assert {f"ProfilerStep#{at + step}" for step in range(5)} <= marks
            assert any(name.startswith("aten::") for name in names)
        late = run.answers(TraceOrder(id="second", start_step=3, steps=5))
        assert [answer.reason for answer in late] == [CaptureRefusal.LATE] * RANKS
        other = TraceOrder(id="third", start_step=run.until(1) + 30, steps=1, ranks=(1,))
        place(run.folder, other)
        run.until(other.start_step + 20)
        assert [answer.rank for answer in collect(run.folder, "third")] == [1]
        run.end()
        fast, slow = run.ranks()[0], run.ranks()[1]
        whole = StepRecord.unpack(run.record.read_bytes())
        assert whole is not None
        assert whole.steps == fast.steps == slow.steps
        assert [(record.rank, record.world) for record in (fast, slow)] == [(0, 2), (1, 2)]
        assert slow.compute_ns >= slow.timed * SLEEP_NS, "it sleeps in its own part of the step"
        assert fast.step_ns >= fast.timed * SLEEP_NS, "and the other one waits for it"
        assert fast.wait_ns > 0
        batches = fast.timed
        assert 0 < batches < fast.steps
        assert (fast.samples, fast.batch_bytes) == (8 * batches, 8 * (32 * 4 + 8) * batches)
        for record in (fast, slow):
            parts = record.compute_ns + record.wait_ns + record.data_wait_ns
            assert 0 < parts <= record.step_ns
    finally:
        run.stop()


OWN: Final = "own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])"
REPORT: Final = "own.stop(); print('own trace', rank, len(own.events()) > 0, flush=True)"


def test_the_programs_own_profiler_goes_first(tmp_path: Path) -> None:
    run = Run(tmp_path, BEFORE=f"{OWN}; own.start()", AFTER=REPORT)
    try:
        found = run.answers(TraceOrder(id="uid", start_step=run.until(5) + 30, steps=5))
        assert [answer.reason for answer in found] == [CaptureRefusal.ALREADY_PROFILING] * RANKS
        text = run.end()
        assert all(f"own trace {rank} True" in text for rank in range(RANKS))
    finally:
        run.stop()


def test_a_profiler_that_the_program_starts_ends_our_trace(tmp_path: Path) -> None:
    begin = f"if steps == 60: {OWN}; own.start()"
    run = Run(tmp_path, EACH=begin, AFTER=REPORT)
    try:
        run.until(5)
        found = run.answers(TraceOrder(id="uid", start_step=50, steps=50))
        assert [answer.reason for answer in found] == [CaptureRefusal.ALREADY_PROFILING] * RANKS
        run.until(80)
        text = run.end()
        assert all(f"own trace {rank} True" in text for rank in range(RANKS))
    finally:
        run.stop()

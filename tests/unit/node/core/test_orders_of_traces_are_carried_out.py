# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Orders of traces: asked, placed, collected, analysed, taken back; files are the tenant's."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ullage.api.captures import ARMED_BYTES, ARMED_FILE, ORDER_FILE, TRACE_FOLDER, CaptureRefusal
from ullage.api.reasons import Reason
from ullage.api.steps import RANK_LAYOUT, RANK_MAGIC, RANK_VERSION
from ullage.api.traces import MAX_SUMMARIES, DesiredTrace, ObservedTrace, TraceState
from ullage_node.model.devices import ContainerKey, StepProgress
from ullage_node.telemetry.ranks import read_rank_records
from ullage_node.traces.retention import KEPT, drop_old_answers
from ullage_node.traces.tracer import AnalysedTrace, Tracer

POD = ContainerKey(pod_uid="pod-1", container="main")
ORDER = DesiredTrace(id="order-1", pod_uid="pod-1", steps=5)
ARMED = replace(ORDER, start_step=100)


class Clock:
    """CLOCK_MONOTONIC as tests set it."""

    now = 1000.0


@dataclass
class Rig:
    """One container, its files and a tracer; the analysis answers what it is told to."""

    root: Path
    outcome: AnalysedTrace = AnalysedTrace(summary="{}")  # noqa: RUF009 - it is frozen
    pods: dict[str, ContainerKey] = field(default_factory=lambda: {"pod-1": POD})
    progress: dict[ContainerKey, StepProgress] = field(default_factory=dict)
    analysed: list[str] = field(default_factory=list)
    changes: int = 0

    def __post_init__(self) -> None:
        self.folder = self.root / POD.directory / TRACE_FOLDER
        self.folder.mkdir(parents=True)
        (self.folder / ARMED_FILE).write_bytes(bytes(ARMED_BYTES))
        self.begin()

    def begin(self) -> None:
        """An agent begins, with nothing in memory."""
        self.tracer = Tracer(
            containers=self.pods.get,
            folder=lambda key: self.root / key.directory,
            progress=lambda: self.progress,
            read_ranks=read_rank_records,
            analyse=self._analyse,
        )
        self.tracer.on_change = self._changed

    def _changed(self) -> None:
        self.changes += 1

    async def _analyse(self, path: Path) -> AnalysedTrace:
        self.analysed.append(path.name)
        return self.outcome

    def steps(self, *counts: int, rank: int = 0, timed: int | None = None) -> None:
        """Ranks of the container have made so many steps of 35 ms, all or so many of them timed."""
        for index, count in enumerate(counts):
            times = count if timed is None else timed
            numbers = (1, rank + index, len(counts) + rank, times * 35_000_000, *[0] * 5, times)
            numbers += (0,) * 5  # batches that are not divided
            record = RANK_LAYOUT.pack(RANK_MAGIC, RANK_VERSION, count, *numbers)
            (self.folder / f"record-{index}").write_bytes(record)

    def answer(self, local_rank: int, order: str = "order-1") -> None:
        (self.folder / f"{order}-{local_rank}.json.gz").write_bytes(b"\x1f\x8btrace")

    def refuse(self, local_rank: int, reason: CaptureRefusal, text: str = "why") -> None:
        body = json.dumps({"reason": reason.value, "text": text})
        (self.folder / f"order-1-{local_rank}.refused").write_text(body)

    def files(self) -> set[str]:
        return {name for name in os.listdir(self.folder) if not name.startswith("record")}

    async def look(self, *orders: DesiredTrace) -> ObservedTrace:
        """One look with these orders in the spec; the first report."""
        self.tracer.want(orders)
        await self.tracer.look()
        return self.tracer.reports[0]


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("ullage_node.traces.tracer.time.monotonic", lambda: Clock.now)
    Clock.now = 1000.0
    return Rig(tmp_path)


async def test_the_step_of_the_pod_is_told_and_nothing_is_placed(rig: Rig) -> None:
    assert (await rig.look(ORDER)).state is TraceState.WAITING
    rig.steps(40, 42)
    report = await rig.look(ORDER)
    assert (report.state, report.step, report.step_micros) == (TraceState.READY, 42, 35_000)
    assert rig.files() == {ARMED_FILE}
    assert rig.changes == 1


async def test_a_step_that_was_not_timed_says_nothing_of_the_next_ones(rig: Rig) -> None:
    rig.steps(1, timed=0)  # the first one has no begin
    assert (await rig.look(ORDER)).state is TraceState.WAITING
    rig.steps(90, timed=30)
    report = await rig.look(ORDER)
    assert (report.state, report.step, report.step_micros) == (TraceState.READY, 90, 35_000)


async def test_the_step_is_renewed_every_few_seconds(rig: Rig) -> None:
    rig.steps(40)
    await rig.look(ORDER)
    rig.steps(90)
    assert (await rig.look(ORDER)).step == 40
    Clock.now += 6
    assert (await rig.look(ORDER)).step == 90


async def test_an_order_is_placed_once_and_the_word_changes(rig: Rig) -> None:
    rig.steps(40)
    await rig.look(ORDER)
    assert (await rig.look(ARMED)).state is TraceState.ARMED
    placed, word = (
        (rig.folder / ORDER_FILE).read_bytes(),
        (rig.folder / ARMED_FILE).read_bytes(),
    )
    assert json.loads(placed)["startStep"] == 100
    assert word != bytes(ARMED_BYTES)
    await rig.look(ARMED)
    rig.begin()
    assert (await rig.look(ARMED)).state is TraceState.ARMED
    assert (rig.folder / ARMED_FILE).read_bytes() == word


async def test_all_ranks_answer_and_their_traces_are_analysed_one_after_the_other(
    rig: Rig,
) -> None:
    rig.steps(99, 99)
    await rig.look(ARMED)
    rig.steps(102, 101)
    assert (await rig.look(ARMED)).state is TraceState.CAPTURING
    rig.answer(0)
    rig.answer(1)
    report = await rig.look(ARMED)
    assert (report.state, len(report.ranks)) == (TraceState.ANALYSING, 1)
    report = await rig.look(ARMED)
    assert report.state is TraceState.DONE
    assert [(rank.local_rank, rank.summary, rank.bytes) for rank in report.ranks] == [
        (0, "{}", 7),
        (1, "{}", 7),
    ]
    assert rig.analysed == ["order-1-0.json.gz", "order-1-1.json.gz"]
    assert ORDER_FILE not in rig.files()


async def test_ranks_that_are_not_listed_are_not_waited_for(rig: Rig) -> None:
    rig.steps(99, 99, rank=4)
    order = replace(ARMED, ranks=(5,))
    await rig.look(order)
    rig.answer(1)
    assert (await rig.look(order)).state is TraceState.DONE


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (CaptureRefusal.LATE, "Late"),
        (CaptureRefusal.ALREADY_PROFILING, "AlreadyProfiling"),
        (CaptureRefusal.NO_PROFILER, "NoProfiler"),
        (CaptureRefusal.DISK_FULL, "DiskFull"),
        (CaptureRefusal.FAILED, "CaptureFailed"),
    ],
)
async def test_a_refusal_is_told_in_a_word_of_the_table(
    rig: Rig, refusal: CaptureRefusal, reason: str
) -> None:
    rig.steps(99)
    await rig.look(ARMED)
    rig.refuse(0, refusal, "x" * 300)
    report = await rig.look(ARMED)
    assert report.state is TraceState.DONE
    assert [(rank.reason, rank.message) for rank in report.ranks] == [(reason, "x" * 300)]
    assert Reason(reason)


async def test_a_trace_that_cannot_be_used_says_why(rig: Rig) -> None:
    rig.outcome = AnalysedTrace(reason=Reason.TRACE_TOO_LARGE, message="y" * 999)
    rig.steps(99)
    await rig.look(ARMED)
    rig.answer(0)
    (rank,) = (await rig.look(ARMED)).ranks
    assert (rank.reason, rank.message, rank.summary) == ("TraceTooLarge", "y" * 300, "")


async def test_traces_of_a_finished_order_stay_and_those_of_another_go(rig: Rig) -> None:
    rig.steps(99)
    await rig.look(ARMED)
    rig.answer(0)
    assert (await rig.look(ARMED)).state is TraceState.DONE
    rig.tracer.want(())
    await rig.tracer.look()
    assert not rig.tracer.reports
    assert rig.files() == {ARMED_FILE, "order-1-0.json.gz"}
    other = replace(ARMED, id="order-2", start_step=200)
    await rig.look(other)
    rig.answer(3, "order-2")
    rig.tracer.want(())
    await rig.tracer.look()
    assert rig.files() == {ARMED_FILE, "order-1-0.json.gz"}


async def test_an_answer_that_comes_after_its_order_was_taken_back_goes(rig: Rig) -> None:
    rig.steps(99)
    await rig.look(ARMED)
    rig.tracer.want(())
    await rig.tracer.look()
    rig.answer(0)
    (rig.folder / "order-1-1.json.gz.tmp").write_text("half")
    (rig.folder / ".ullage-trace-x.json").write_text("half")
    (rig.folder / "order-10-1.json.gz.tmp").write_text("of another")
    await rig.tracer.look()
    assert rig.files() == {ARMED_FILE, "order-10-1.json.gz.tmp"}
    Clock.now += 61
    await rig.tracer.look()
    rig.answer(0)
    await rig.tracer.look()
    assert "order-1-0.json.gz" in rig.files()


async def test_an_order_that_is_wanted_again_stays(rig: Rig) -> None:
    rig.steps(99)
    await rig.look(ARMED)
    rig.tracer.want(())
    await rig.tracer.look()
    await rig.look(ARMED)
    await rig.look(ARMED)
    assert ORDER_FILE in rig.files()


async def test_what_a_killed_rank_began_goes_when_the_others_are_done(rig: Rig) -> None:
    rig.steps(99)
    await rig.look(ARMED)
    (rig.folder / "order-1-1.json.gz.tmp").write_text("half")
    rig.answer(0)
    assert (await rig.look(ARMED)).state is TraceState.DONE
    assert rig.files() == {ARMED_FILE, "order-1-0.json.gz"}


async def test_a_new_agent_takes_back_what_the_spec_has_no_longer(rig: Rig) -> None:
    rig.steps(99)
    await rig.look(ARMED)
    rig.answer(0)
    rig.begin()
    rig.tracer.want((ARMED,))
    rig.tracer.take_back_others([rig.root / POD.directory, rig.root / "none"])
    await rig.tracer.look()
    rig.begin()
    await rig.look(ARMED)
    assert rig.files() == {ARMED_FILE, "order-1-0.json.gz"}
    await rig.look(replace(ARMED, id="order-2"))
    rig.begin()
    rig.tracer.want(())
    rig.tracer.take_back_others([rig.root / POD.directory])
    await rig.tracer.look()
    assert ORDER_FILE not in rig.files()


async def test_a_restarted_agent_takes_up_what_ranks_wrote(rig: Rig) -> None:
    rig.steps(99)
    await rig.look(ARMED)
    rig.answer(0)
    rig.begin()
    report = await rig.look(ARMED)
    assert (report.state, [rank.summary for rank in report.ranks]) == (TraceState.DONE, ["{}"])


async def test_a_pod_that_is_not_there_is_waited_for_a_moment(rig: Rig) -> None:
    rig.pods.clear()
    assert (await rig.look(ORDER)).state is TraceState.WAITING
    Clock.now += 6
    report = await rig.look(ORDER)
    assert (report.state, report.reason) == (TraceState.FAILED, "JobEnded")


async def test_a_program_that_counts_its_own_steps_has_no_hook(rig: Rig) -> None:
    rig.progress[POD] = StepProgress(steps=10, step_micros=1000)
    assert (await rig.look(ORDER)).state is TraceState.WAITING
    Clock.now += 6
    report = await rig.look(ORDER)
    assert (report.state, report.reason) == (TraceState.FAILED, "NotInstrumented")


async def test_a_container_without_a_directory_of_orders_fails_alone(rig: Rig) -> None:
    other = ContainerKey(pod_uid="pod-2", container="main")
    rig.pods["pod-2"] = other
    (rig.root / other.directory).mkdir()
    rig.steps(99)
    bad = replace(ARMED, pod_uid="pod-2")
    await rig.look(ARMED, bad)
    states = {report.pod_uid: report.state for report in rig.tracer.reports}
    assert states == {"pod-1": TraceState.ARMED, "pod-2": TraceState.FAILED}


@pytest.mark.parametrize("name", [ORDER_FILE, ARMED_FILE])
async def test_what_a_tenant_puts_in_the_way_costs_its_own_order(rig: Rig, name: str) -> None:
    rig.steps(99)
    (rig.folder / name).unlink(missing_ok=True)
    (rig.folder / name).mkdir()
    (rig.folder / name / "x").write_text("")
    report = await rig.look(ARMED)
    assert (report.state, report.reason) == (TraceState.FAILED, "CaptureFailed")
    rig.tracer.want(())
    await rig.tracer.look()


async def test_one_status_holds_a_bounded_number_of_summaries(rig: Rig) -> None:
    orders = []
    for at in range(3):
        key = ContainerKey(pod_uid=f"pod-{at}", container="main")
        rig.pods[key.pod_uid] = key
        rig.folder = rig.root / key.directory / TRACE_FOLDER
        rig.folder.mkdir(parents=True, exist_ok=True)
        (rig.folder / ARMED_FILE).write_bytes(bytes(ARMED_BYTES))
        rig.steps(*[99] * 16)
        for rank in range(16):
            rig.answer(rank)
        orders.append(replace(ARMED, pod_uid=key.pod_uid))
    for _ in range(50):
        await rig.look(*orders)
    ranks = [rank for report in rig.tracer.reports for rank in report.ranks]
    assert (len(ranks), sum(bool(rank.summary) for rank in ranks)) == (48, MAX_SUMMARIES)
    assert all(rank.reason == "TraceTooLarge" for rank in ranks if not rank.summary)


def test_the_newest_answers_stay(rig: Rig) -> None:
    for at in range(5):
        rig.answer(0, f"order-{at}")
        rig.answer(1, f"order-{at}")
        for rank in (0, 1):
            os.utime(rig.folder / f"order-{at}-{rank}.json.gz", (at, at))
    drop_old_answers(rig.root / POD.directory)
    kept = {f"order-{at}-{rank}.json.gz" for at in (3, 4) for rank in (0, 1)}
    assert rig.files() - {ARMED_FILE} == kept
    assert len(kept) == 2 * KEPT

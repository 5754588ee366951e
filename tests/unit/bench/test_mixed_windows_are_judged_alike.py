# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import mixed_picture
from bench.mixed_judge import (
    NoReference,
    Outcome,
    judge,
    predictions,
    seen_alone,
    solo_ns,
    unit_s,
    waiting,
    windows,
)
from bench.mixed_plan import SERVICE, Arrival, Plan, reference
from bench.mixed_record import Reading, Recording, Request, Speed
from bench.mixed_report import figures, table

MS = 1_000_000
SOLO = {"dense": 4.0 * MS, "light": 2.0 * MS, SERVICE: 2.0 * MS}


def _plan(*jobs: Arrival, seconds: float = 20.0) -> Plan:
    return Plan(seed=1, seconds=seconds, jobs=jobs, requests_s=())


def _job(name: str = "a", workload_class: str = "dense", objective: float | None = 2.0) -> Arrival:
    return Arrival(
        at_s=2.0, name=name, workload_class=workload_class, steps=5000, max_slowdown=objective
    )


def _steps(
    name: str, *counts: int, step_ms: float = 4.0, pod: str = "p1", predicted: float = 0.0
) -> list[Reading]:
    """One reading every 5 s; each count is what the record said."""
    return [
        Reading(
            at_s=5.0 * (number + 1),
            name=name,
            pod=pod,
            steps=count,
            busy_ns=int(count * step_ms * MS),
            predicted=predicted,
        )
        for number, count in enumerate(counts)
    ]


def _recording(*readings: Reading, plan: Plan | None = None, **more: object) -> Recording:
    found = Recording(rule="ours", plan=plan or _plan(_job()), readings=list(readings))
    for name, value in more.items():
        setattr(found, name, value)
    return found


def test_a_window_is_held_up_to_the_objective_and_broken_above() -> None:
    slow = _steps("a", 100, 200, step_ms=8.0)
    slower = _steps("a", 100, 200, step_ms=8.1)
    assert [one.held for one in windows(_recording(*slow), SOLO)] == [True]
    (broken,) = windows(_recording(*slower), SOLO)
    assert broken.held is False
    assert broken.slowdown == pytest.approx(2.025)
    assert broken.goodput_s == 0.0


def _speeds(*units_ms: float, node: str = "node-1") -> list[Speed]:
    """One measurement every 2.5 s."""
    return [
        Speed(at_s=2.5 * (number + 1), node=node, unit_s=unit / 1000)
        for number, unit in enumerate(units_ms)
    ]


def _on_node(readings: list[Reading], node: str = "node-1") -> list[Reading]:
    return [replace(one, node=node) for one in readings]


def test_a_machine_that_becomes_slower_for_all_breaks_no_objective() -> None:
    readings = _on_node(_steps("a", 100, 200, step_ms=9.0))
    seen = _recording(*readings, speeds=_speeds(6.0, 6.0, 6.0, 6.0))
    (found,) = windows(seen, SOLO, 0.004)
    assert found.held is True
    assert found.slowdown == pytest.approx(1.5)
    (plain,) = windows(seen, SOLO)
    assert plain.held is False


def test_a_neighbour_that_slows_one_tenant_is_still_seen() -> None:
    readings = _on_node(_steps("a", 100, 200, step_ms=9.0))
    elsewhere = _speeds(6.0, 6.0, 6.0, 6.0, node="node-2")
    seen = _recording(*readings, speeds=[*_speeds(4.0, 4.0, 4.0, 4.0), *elsewhere])
    assert [one.held for one in windows(seen, SOLO, 0.004)] == [False]


def test_a_core_that_is_slower_than_another_is_no_change_of_speed() -> None:
    steady = [*_speeds(4.0, 4.0), *_speeds(6.0, 6.0, node="node-2")]
    assert judge(_recording(speeds=steady), SOLO).speed_range == 1.0
    changed = [*steady, *_speeds(*[4.0] * 50, *[8.0] * 50, node="node-3")]
    assert judge(_recording(speeds=changed), SOLO).speed_range == 2.0
    assert judge(_recording(), SOLO).speed_range == 0.0


def test_the_reference_is_taken_to_one_speed() -> None:
    plan = _plan(_job(workload_class="dense"), _job("b", "light"))
    readings = [
        *_on_node(_steps("a", 100, 200, step_ms=4.0)),
        *_on_node(_steps("b", 100, 200, step_ms=4.0, pod="p2"), "node-2"),
        *_on_node(_steps(SERVICE, 100, 200, step_ms=2.0, pod="p3")),
    ]
    speeds = [*_speeds(4.0, 4.0, 4.0, 4.0, 4.0), *_speeds(8.0, 8.0, 8.0, 8.0, node="node-2")]
    alone = _recording(*readings, plan=plan, speeds=speeds)
    assert unit_s(alone) == 0.004
    assert solo_ns(alone) == pytest.approx(SOLO)


def test_the_same_windows_are_judged_whether_or_not_the_rule_was_told() -> None:
    told, free = _recording(*_steps("a", 100, 200)), _recording(*_steps("a", 100, 200))
    free.rule = "uncontrolled"
    assert windows(told, SOLO) == windows(free, SOLO)


def test_best_effort_counts_for_goodput_and_for_no_objective() -> None:
    plan = _plan(_job(objective=None))
    (one,) = windows(_recording(*_steps("a", 100, 200, step_ms=16.0), plan=plan), SOLO)
    assert one.held is None
    assert one.goodput_s == pytest.approx(5.0 / 4.0)


def test_no_one_is_faster_than_alone() -> None:
    (one,) = windows(_recording(*_steps("a", 100, 200, step_ms=3.0)), SOLO)
    assert one.slowdown == 1.0


def test_a_tenant_that_stands_still_breaks_its_objective() -> None:
    stood, went = windows(_recording(*_steps("a", 100, 100, 200)), SOLO)
    assert (stood.held, stood.goodput_s) == (False, 0.0)
    assert went.held is True


def test_warm_up_and_restarts_are_no_windows() -> None:
    warm = _steps("a", 5, 100)
    again = _steps("a", 100, 200, pod="p2")
    assert windows(_recording(*warm), SOLO) == []
    assert windows(_recording(warm[1], again[0]), SOLO) == []
    assert windows(_recording(*_steps("a", 300, 100)), SOLO) == []


def test_a_service_is_judged_by_its_requests_from_when_they_were_due() -> None:
    readings = _steps(SERVICE, 100, 200, 300, 400, step_ms=2.0)
    asked = [
        Request(due_s=6.0, latency_s=0.060),
        Request(due_s=11.0, latency_s=0.061),
        Request(due_s=12.0, latency_s=0.001),
    ]
    seen = windows(_recording(*readings, requests=asked), SOLO)
    assert [(one.begin_s, one.held) for one in seen] == [(5.0, True), (10.0, False)]


def test_a_lost_request_is_infinitely_late() -> None:
    readings = _steps(SERVICE, 100, 200, step_ms=2.0)
    recording = _recording(*readings, requests=[Request(due_s=6.0, latency_s=None)])
    assert [one.held for one in windows(recording, SOLO)] == [False]
    assert judge(recording, SOLO).lost_requests == 1


def test_a_service_that_never_began_waited_the_whole_time() -> None:
    assert judge(_recording(), SOLO).service_wait_s == 20.0
    asked = [Request(due_s=7.0, latency_s=None), Request(due_s=6.5, latency_s=0.1)]
    assert judge(_recording(requests=asked), SOLO).service_wait_s == 6.5


def test_waiting_counts_until_the_first_step_or_the_end() -> None:
    plan = _plan(_job("a"), _job("b"), _job("c"))
    recording = _recording(*_steps("a", 0, 100), plan=plan, finished_s={"c": 5.0})
    waits, never = waiting(recording)
    assert waits == pytest.approx([8.0, 18.0, 3.0])
    assert never == 1


def test_work_done_is_what_a_device_alone_would_have_taken() -> None:
    plan = _plan(_job("a"), _job("b", "light"))
    recording = _recording(*_steps("a", 100, 250), plan=plan, finished_s={"b": 12.0})
    found = judge(recording, SOLO)
    assert found.work_s == pytest.approx(250 * 0.004 + 5000 * 0.002)
    assert (found.finished_jobs, found.jobs) == (1, 2)


def test_goodput_and_attainment_are_over_the_whole_time() -> None:
    readings = _steps("a", 100, 1100, 2100)
    late = [Reading(at_s=20.0, name="a", pod="p1", steps=2200, busy_ns=2_100 * 4 * MS + 10**9)]
    found = judge(_recording(*readings, *late), SOLO)
    assert found.attainment == pytest.approx(2 / 3)
    assert (found.judged_windows, found.broken_windows) == (3, 1)
    assert found.goodput == pytest.approx(2 * 5.0 / 20.0)


def test_predictions_are_compared_only_where_both_figures_are() -> None:
    seen = windows(_recording(*_steps("a", 100, 200, 200, predicted=1.5, step_ms=8.0)), SOLO)
    assert predictions(seen) == [(1.5, 2.0)]
    assert judge(_recording(*_steps("a", 100, 200)), SOLO).prediction_error is None
    told = judge(_recording(*_steps("a", 100, 200, predicted=1.5, step_ms=8.0)), SOLO)
    assert told.prediction_error == pytest.approx(0.25)


def test_the_reference_is_the_median_of_windows_alone() -> None:
    plan = reference()
    readings = [one for job in plan.jobs for one in _steps(job.name, 30, 60, 90, step_ms=4.0)]
    readings += _steps(SERVICE, 30, 60, step_ms=2.0)
    found = solo_ns(_recording(*readings, plan=plan))
    assert found[SERVICE] == pytest.approx(2.0 * MS)
    assert {found[job.workload_class] for job in plan.jobs} == {4.0 * MS}
    with pytest.raises(NoReference, match=SERVICE):
        solo_ns(_recording(*readings[:-2], plan=plan))


def test_what_is_declared_is_what_the_reference_showed() -> None:
    asked = [Request(due_s=0.1 * n, latency_s=0.01) for n in range(10)]
    found = seen_alone(_recording(requests=[*asked, Request(due_s=2, latency_s=None)]), SOLO)
    assert found.steps_per_s[SERVICE] == pytest.approx(500.0)
    assert found.steps_per_s.keys() == SOLO.keys()
    assert found.p99_s == pytest.approx(0.01)
    with pytest.raises(NoReference, match="answered nothing"):
        seen_alone(_recording(), SOLO)


def test_a_recording_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    recording = _recording(
        *_steps("a", 1, 2, predicted=1.25),
        requests=[Request(due_s=1.5, latency_s=None), Request(due_s=2.0, latency_s=0.5)],
        finished_s={"a": 7.0},
        failed=["b"],
        reasons={"a": "Running"},
        looks_s=[5.0, 10.0],
        load=[1.5, 2.0],
        speeds=_speeds(4.0),
    )
    recording.save(tmp_path / "new" / "one.json")
    assert Recording.load_from(tmp_path / "new" / "one.json") == recording


@pytest.mark.parametrize("content", ["{", "{}", '{"rule": 1}', "[]"])
def test_a_file_that_is_no_recording_says_what_to_do(tmp_path: Path, content: str) -> None:
    (tmp_path / "one.json").write_text(content)
    with pytest.raises(SystemExit, match="make bench-mixed"):
        Recording.load_from(tmp_path / "one.json")


def _outcomes() -> list[Outcome]:
    good = _recording(*_steps("a", 100, 200), requests=[Request(due_s=6.0, latency_s=0.02)])
    bad = _recording(*_steps("a", 100, 200, 300, step_ms=9.0))
    bad.rule = "uncontrolled"
    alone = _recording(*_steps("a", 100, 200), plan=_plan(_job(), seconds=40.0))
    alone.rule = "exclusive"
    return [judge(one, SOLO) for one in (good, bad, alone)]


def test_figures_are_flat_and_compare_ours_with_the_others() -> None:
    found = figures(_outcomes())
    assert found["ours_attainment"] == 1.0
    assert found["uncontrolled_broken_windows"] == 2
    assert found["goodput_vs_exclusive"] == 2.0
    assert found["violations_vs_uncontrolled"] == 0.0
    assert found["goodput_vs_uncontrolled"] is None
    assert all(value is None or isinstance(value, int | float) for value in found.values())


def test_the_table_has_a_column_for_every_rule() -> None:
    found = table(_outcomes(), "title")
    assert [column.header for column in found.columns] == ["", "ours", "uncontrolled", "exclusive"]


def test_without_a_plotter_the_text_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(mixed_picture.importlib, "import_module", missing)
    with pytest.raises(mixed_picture.NoPlotter, match=r"bench/plots\.txt"):
        mixed_picture.draw(tmp_path / "p.png", _outcomes(), {}, "title")
    assert not (tmp_path / "p.png").exists()


class _Recorder:
    """Stands for any object of matplotlib; keeps what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __getattr__(self, name: str) -> object:
        def call(*words: object, **_: object) -> _Recorder:
            self.calls.append((name, words))
            return self

        return call


class _Plotter(_Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = _Recorder(), _Recorder()

    def subplots(self, *_: object, **__: object) -> tuple[_Recorder, tuple[_Recorder, _Recorder]]:
        return self, (self.left, self.right)


def test_the_picture_shows_every_window_of_ours_and_every_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plotter = _Plotter()
    monkeypatch.setattr(mixed_picture.importlib, "import_module", lambda _: plotter)
    seen = windows(_recording(*_steps("a", 100, 200, 300, predicted=1.5, step_ms=8.0)), SOLO)
    mixed_picture.draw(tmp_path / "img" / "p.png", _outcomes(), {"ours": seen}, "title")
    assert ("scatter", ((1.5, 1.5), (2.0, 2.0))) in plotter.left.calls
    bars = [words for name, words in plotter.right.calls if name == "bar"]
    assert [heights for _, heights in bars] == [
        (one.attainment, one.goodput) for one in _outcomes()
    ]
    assert (tmp_path / "img").is_dir()

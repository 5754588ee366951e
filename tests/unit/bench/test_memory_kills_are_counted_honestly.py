# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The same trainings run packed and in a lane, and only the kernel's kills count as kills."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import lanes_memory
from bench.guard_node import Groups
from bench.lanes_memory import DUTY, MEMORY_MIB, Ran, averages, drawn, filled, ran_of
from bench.lanes_residents import packing, single_lane
from ullage.engines.lanes.records import JobDemand


def training(name: str, kept_mib: int, step_mib: int) -> JobDemand:
    return JobDemand(name=name, persistent_mib=kept_mib, ephemeral_mib=step_mib, duty=DUTY)


def test_means_let_in_what_a_lane_holds_and_peaks_do_not() -> None:
    chosen = filled(drawn(), averages)
    assert averages(chosen, MEMORY_MIB)
    assert single_lane(chosen, MEMORY_MIB)
    assert not packing(chosen, MEMORY_MIB)
    assert len(filled(drawn(), packing)) < len(chosen) < len(drawn()), "others wait"


def test_the_mean_of_a_training_is_what_it_keeps_and_its_steps_part_of_the_time() -> None:
    fits = [training("a", 100, 300), training("b", 100, 300)]
    assert averages(fits, 400)
    assert not averages(fits, 399)


@given(
    st.lists(
        st.tuples(st.integers(1, MEMORY_MIB // 2), st.integers(1, MEMORY_MIB // 2)), max_size=20
    )
)
def test_a_device_is_filled_in_order_and_never_beyond_its_rule(
    sizes: list[tuple[int, int]],
) -> None:
    demands = [training(f"job-{at}", *one) for at, one in enumerate(sizes)]
    for rule in (averages, packing):
        chosen = filled(demands, rule)
        assert chosen == demands[: len(chosen)]
        assert rule(chosen, MEMORY_MIB)
        if len(chosen) < len(demands):
            assert not rule(demands[: len(chosen) + 1], MEMORY_MIB)


def test_a_kill_by_the_kernel_is_told_from_other_failures() -> None:
    assert ran_of([0, -signal.SIGKILL, 0]) == Ran(ended=2, killed=1)
    for code in (1, 137, -signal.SIGTERM):
        with pytest.raises(RuntimeError, match="failed with"):
            ran_of([0, code])


def test_trainings_that_no_lane_holds_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_memory, "drawn", lambda: [training("a", 500, MEMORY_MIB)])
    with pytest.raises(RuntimeError, match="do not fit in one lane"):
        lanes_memory.measure()


def test_without_control_groups_it_says_so_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def written(*_: object) -> None:
        raise AssertionError("figures of nothing")

    monkeypatch.setattr(lanes_memory, "what_is_missing", lambda: "run it as root")
    monkeypatch.setattr(lanes_memory.report, "write", written)
    assert lanes_memory.main() == 0
    assert "run it as root" in capsys.readouterr().err


@pytest.mark.parametrize(("v2", "file"), [(True, "memory.max"), (False, "memory.limit_in_bytes")])
def test_a_device_has_its_memory_in_both_versions_of_control_groups(
    v2: bool, file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bench.guard_node.ROOT", tmp_path)
    if v2:
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n", "utf-8")
    groups = Groups(outweighs=False)
    folder = next(one for one in groups.folders if v2 or one.parent.name == "memory") / "device"
    folder.mkdir(parents=True)
    groups.limit_memory("device", 1024)
    assert (folder / file).read_text("utf-8") == str(1 << 30)

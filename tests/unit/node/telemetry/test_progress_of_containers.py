# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fakes.device_rigs import a_binding
from ullage.api.steps import STEP_LAYOUT, STEP_MAGIC, STEP_VERSION
from ullage_node.model.devices import (
    Attachment,
    AttachState,
    ContainerBinding,
    ProgressSource,
    StepProgress,
)
from ullage_node.telemetry.progress import StepTelemetry

SECOND = 10**9


class Steps:
    """Containers that write records, and the clock."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.now = 100.0

    def write(
        self,
        binding: ContainerBinding,
        *,
        steps: int,
        step_ms: int = 50,
        saved_s: float = 0.0,
        resumed_at: int = 0,
    ) -> None:
        busy = steps * step_ms * 10**6
        raw = STEP_LAYOUT.pack(
            STEP_MAGIC,
            STEP_VERSION,
            steps,
            int(self.now * 1e9),
            step_ms * 10**6,
            steps * 32,
            0,
            resumed_at,
            int(saved_s * 1e9),
            busy,
        )
        self.write_raw(binding, raw)

    def write_raw(self, binding: ContainerBinding, raw: bytes) -> None:
        directory = self.base / binding.key.directory
        directory.mkdir(exist_ok=True)
        (directory / "record").write_bytes(raw)


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    return Steps(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> StepTelemetry:
    return StepTelemetry(tmp_path)


def enforced(solo_ns: int = 0) -> Attachment:
    return Attachment(state=AttachState.ENFORCED, solo_time_ns=solo_ns)


def test_it_is_what_the_agent_asks_for(source: StepTelemetry) -> None:
    promised: ProgressSource = source
    assert promised.sample([], {}, 1.0) == {}


def test_progress_and_both_times_of_a_step(steps: Steps, source: StepTelemetry) -> None:
    binding = a_binding("gpu")
    for second in range(10):
        steps.now = 100.0 + second
        steps.write(binding, steps=1 + second * 20)
        attachments = {binding.key: enforced(solo_ns=SECOND + second * 20 * 15 * 10**6)}
        found = source.sample([binding], attachments, steps.now)
    assert found[binding.key] == StepProgress(
        steps=181,
        items=181 * 32,
        step_micros=50_000,
        solo_step_micros=15_000,
        busy_ns=181 * 50 * 10**6,
        last_step_ns=109 * SECOND,
    )


def test_a_container_that_never_began_is_left_out(steps: Steps, source: StepTelemetry) -> None:
    silent, absent, talking = a_binding("a"), a_binding("b"), a_binding("c")
    steps.write_raw(silent, bytes(64))
    steps.write(talking, steps=1)
    assert set(source.sample([silent, absent, talking], {}, 100.0)) == {talking.key}
    assert source.invalid_total == 0


def test_a_bad_record_is_counted_told_once_and_harms_no_one_else(
    steps: Steps, source: StepTelemetry
) -> None:
    bad, good = a_binding("a"), a_binding("b")
    steps.write_raw(bad, b"x" * 64)
    steps.write(good, steps=3)
    with capture_logs() as logs:
        for _ in range(3):
            assert set(source.sample([bad, good], {}, 100.0)) == {good.key}
        steps.write(bad, steps=1)
        assert set(source.sample([bad, good], {}, 100.0)) == {bad.key, good.key}
        steps.write_raw(bad, b"")
        source.sample([bad, good], {}, 100.0)
    assert source.invalid_total == 4
    assert [line["event"] for line in logs] == ["step record invalid"] * 2
    assert logs[0]["container"] == bad.key.directory


def test_a_restarted_container_begins_again(steps: Steps, source: StepTelemetry) -> None:
    binding = a_binding("a")
    for count in (100, 200):
        steps.now += 1
        steps.write(binding, steps=count)
        source.sample([binding], {}, steps.now)
    steps.write_raw(binding, bytes(64))
    assert source.sample([binding], {}, steps.now) == {}
    steps.now += 1
    steps.write(binding, steps=1, step_ms=7000)
    found = source.sample([binding], {}, steps.now)[binding.key]
    assert (found.steps, found.step_micros) == (1, 7_000_000)


def test_what_is_no_longer_bound_is_forgotten(steps: Steps, source: StepTelemetry) -> None:
    binding = a_binding("a")
    for count in (100, 200):
        steps.now += 10
        steps.write(binding, steps=count, step_ms=2000)
        source.sample([binding], {}, steps.now)
    source.sample([], {}, steps.now)
    found = source.sample([binding], {}, steps.now)[binding.key]
    assert found.step_micros == 2_000_000
    assert len(source._containers) == 1


def test_the_age_of_the_last_checkpoint_is_told_where_there_was_one(
    steps: Steps, source: StepTelemetry
) -> None:
    binding = a_binding("gpu")
    steps.write(binding, steps=5)
    assert source.sample([binding], {}, steps.now)[binding.key].checkpoint_age_s == 0
    steps.write(binding, steps=6, saved_s=steps.now - 10.0)
    assert source.sample([binding], {}, steps.now)[binding.key].checkpoint_age_s == 10
    steps.write(binding, steps=7, saved_s=steps.now - 0.1)
    assert source.sample([binding], {}, steps.now)[binding.key].checkpoint_age_s == 1


def test_where_a_start_resumed_is_told(steps: Steps, source: StepTelemetry) -> None:
    binding = a_binding("gpu")
    steps.write(binding, steps=5, resumed_at=5_000)
    found = source.sample([binding], {}, steps.now)[binding.key]
    assert (found.steps, found.resumed_at) == (5, 5_000)


def test_a_new_start_may_resume_anywhere(steps: Steps, source: StepTelemetry) -> None:
    binding = a_binding("gpu")
    for count, resumed_at in ((90, 5_000), (5, 4_000), (0, 0), (3, 0)):
        steps.write(binding, steps=count, resumed_at=resumed_at)
        found = source.sample([binding], {}, steps.now)[binding.key]
        assert (found.steps, found.resumed_at) == (count, resumed_at)
    assert source.invalid_total == 0


def test_a_base_that_shrinks_while_steps_go_on_is_refused_until_it_is_said_again(
    steps: Steps, source: StepTelemetry
) -> None:
    binding, other = a_binding("a"), a_binding("b")
    steps.write(other, steps=1)
    steps.write(binding, steps=90, resumed_at=5_000)
    source.sample([binding, other], {}, steps.now)
    steps.write(binding, steps=91, resumed_at=4_000)
    with capture_logs() as logs:
        assert set(source.sample([binding, other], {}, steps.now)) == {other.key}
    assert source.invalid_total == 1
    assert "resumed at step 4000, said 5000 before" in logs[0]["why"]
    steps.write(binding, steps=92, resumed_at=4_000)
    assert source.sample([binding], {}, steps.now)[binding.key].resumed_at == 4_000

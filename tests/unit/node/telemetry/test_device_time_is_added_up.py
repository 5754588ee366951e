# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The node adds up what each container held, used and could not use."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey, SlicePhase
from ullage.api.usage import ObservedUsage, RecentUsage
from ullage_node.model.devices import Attachment, AttachState, ContainerKey, StepProgress
from ullage_node.model.samples import DeviceSample, Metric
from ullage_node.model.slices import LaneReading
from ullage_node.telemetry.tenants import RunningTenant
from ullage_node.telemetry.usage import UsageMeter, UsageReading, metered_slices


@dataclass
class Program:
    """A container: part of a device that its work fills, by its own counter unless ``solo`` is off.

    ``duty`` is the part of the time in which a step is under way, as it reports.
    """

    name: str
    percent: int = 50
    busy: float = 0.2
    solo: bool = True
    running: bool = True
    frozen: bool = False
    lane: int = 0
    duty: float = 1.0
    memory_mib: int = 100
    gpus: tuple[str, ...] = ("gpu-0",)
    solo_ns: int = 1
    steps: int = 0
    busy_ns: int = 0

    @property
    def key(self) -> ContainerKey:
        return ContainerKey(pod_uid=self.name, container="main")

    def tenant(self) -> RunningTenant:
        part = DesiredSlice(
            key=SliceKey(pod_uid=self.name, container="main"),
            pod_namespace="team",
            pod_name=self.name,
            gpu=self.gpus[0],
            percent=self.percent,
            memory_mib=1000,
            lane=self.lane,
            epoch=1,
        )
        seen = Attachment(
            state=AttachState.ENFORCED if self.running else AttachState.ABSENT,
            memory_used_mib=self.memory_mib,
            solo_time_ns=self.solo_ns if self.solo and self.running else 0,
        )
        made = StepProgress(steps=self.steps, busy_ns=self.busy_ns)
        return RunningTenant(
            desired=part, gpus=self.gpus, attachment=seen, progress=made, frozen=self.frozen
        )


@dataclass
class Node:
    programs: list[Program]
    samples: dict[str, dict[Metric, float]] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    turns: dict[str, LaneReading] = field(default_factory=dict)
    now: float = 1000.0
    window_s: float = 900.0

    def __post_init__(self) -> None:
        self.meter = UsageMeter(self.window_s)
        self.look()

    def run(self, seconds: int, every: float = 1.0) -> None:
        for _ in range(int(seconds / every)):
            self.now += every
            for program in self.programs:
                if program.running and not program.frozen:
                    program.solo_ns += int(program.busy * every * 1e9)
                    program.busy_ns += int(program.duty * every * 1e9)
                    program.steps += 1
            self.look()

    def look(self) -> None:
        gpus = self.samples.keys() | self.busy.keys()
        self.meter.take(
            UsageReading(
                now=self.now,
                tenants=tuple(program.tenant() for program in self.programs),
                samples={
                    gpu: DeviceSample(
                        uuid=gpu,
                        at_s=self.now,
                        ratios=self.samples.get(gpu, {}),
                        busy=self.busy.get(gpu),
                    )
                    for gpu in gpus
                },
                turns=self.turns,
            )
        )

    def usage(self, program: Program) -> ObservedUsage:
        usage = self.meter.usage(program.key)
        assert usage is not None
        return usage


def recent(node: Node, program: Program) -> RecentUsage:
    usage = node.usage(program).recent
    assert usage is not None
    return usage


def near(milliseconds: float) -> object:
    return pytest.approx(milliseconds, rel=0.01, abs=5)


def test_a_share_holds_its_part_and_used_and_wasted_are_all_of_it() -> None:
    program = Program("a", percent=50, busy=0.2)
    node = Node([program])
    node.run(100)
    usage = node.usage(program)
    assert usage.allocated_ms == near(50_000)
    assert usage.used_ms == near(20_000)
    assert usage.used_ms + usage.wasted_ms == usage.allocated_ms
    assert not usage.estimated


def test_work_beyond_the_share_is_no_more_than_all_of_it() -> None:
    program = Program("a", percent=50, busy=0.9)
    node = Node([program])
    node.run(100)
    assert node.usage(program).wasted_ms == 0


def test_frozen_time_and_turns_of_others_are_not_the_containers() -> None:
    frozen = Program("a", frozen=True)
    waits = Program("b", busy=0.1)
    node = Node([frozen, waits])
    node.turns = {waits.key.directory: LaneReading(wait_percent=60)}
    node.run(100)
    assert node.usage(frozen) == ObservedUsage(withheld_ms=node.usage(frozen).withheld_ms)
    assert node.usage(frozen).withheld_ms == near(50_000)
    usage = node.usage(waits)
    assert usage.withheld_ms == near(30_000)
    assert (usage.allocated_ms, usage.used_ms) == (near(20_000), near(10_000))


def test_residents_of_a_lane_hold_its_share_together() -> None:
    first, second = Program("a", lane=1), Program("b", lane=1)
    node = Node([first, second])
    node.run(100)
    assert node.usage(first).held_ms + node.usage(second).held_ms == near(50_000)


def test_a_container_without_a_process_on_its_device_uses_nothing() -> None:
    program = Program("a", percent=100, running=False, solo=False)
    node = Node([program])
    node.run(60)
    assert node.usage(program).allocated_ms == near(60_000)
    assert node.usage(program).used_ms == 0


def test_counters_of_a_device_are_the_tenants_only_while_it_is_alone() -> None:
    alone = Program("a", percent=100, solo=False)
    node = Node([alone], samples={"gpu-0": {Metric.SM: 0.3, Metric.GRAPHICS: 0.6}}, window_s=30)
    node.run(60)
    assert node.usage(alone).used_ms == near(18_000)
    assert not node.usage(alone).estimated
    assert recent(node, alone).kernel_idle_percent == 40
    small, large = (
        Program(name, percent=percent, solo=False) for name, percent in (("b", 20), ("c", 80))
    )
    node = Node(
        [small, large], samples={"gpu-0": {Metric.SM: 0.3, Metric.GRAPHICS: 0.6}}, window_s=30
    )
    node.run(60)
    # each may have done all that the device did, up to its share
    assert node.usage(small).used_ms == near(12_000)
    assert node.usage(large).used_ms == near(18_000)
    assert node.usage(small).estimated
    assert recent(node, small).kernel_idle_percent == 0


def test_without_counters_of_multiprocessors_only_standstill_is_known() -> None:
    program = Program("a", percent=100, solo=False)
    node = Node([program], busy={"gpu-0": 0.0})
    node.run(60)
    assert node.usage(program).allocated_ms == near(60_000)
    node.busy = {"gpu-0": 0.5}
    node.run(60)
    assert node.usage(program).unmeasured_ms == near(60_000)
    node.busy = {}
    node.run(60)
    assert node.usage(program).unmeasured_ms == near(120_000)


def test_a_stopped_agent_knows_nothing_of_that_time() -> None:
    program = Program("a")
    node = Node([program])
    node.run(30, every=30)
    assert node.usage(program).unmeasured_ms == near(15_000)
    assert node.usage(program).allocated_ms == 0


def test_two_windows_together_hold_sums_needs_and_what_the_container_reports() -> None:
    program = Program("a", busy=0.1, duty=0.6, memory_mib=300)
    node = Node([program])
    node.run(900)
    assert node.usage(program).recent is None  # one window is no evidence
    node.run(420)
    program.busy = 0.4
    node.run(60)
    program.busy = 0.1
    node.run(220)
    assert node.usage(program).recent is None
    node.run(200)
    both = recent(node, program)
    assert both.allocated_ms == near(900_000)
    assert both.used_ms == near(198_000)
    assert both.needed_percent == 31  # a fifteenth of the time takes 40 / 31 of it: 2 % in all
    assert both.duty_percent == 60
    assert both.memory_mib == 300
    node.run(900)
    assert recent(node, program).needed_percent == both.needed_percent
    node.run(900)
    assert recent(node, program).needed_percent == 10


@pytest.mark.parametrize("burst_s", [2, 10, 30, 90])
def test_work_in_bursts_needs_what_it_uses_in_them(burst_s: int) -> None:
    program = Program("a", percent=100, busy=0.02)
    node = Node([program])
    while node.now < 1000 + 1810:
        program.busy = 0.9
        node.run(burst_s)
        program.busy = 0.02
        node.run(9 * burst_s)
    # a tenth of the time takes 90 / 75 of it: 2 % in all
    assert 75 <= recent(node, program).needed_percent <= 76


def test_kernels_that_use_all_of_a_device_for_a_tenth_of_each_second_need_it() -> None:
    program = Program("a", percent=100, solo=False)
    node = Node([program], samples={"gpu-0": {Metric.SM: 0.09, Metric.GRAPHICS: 0.1}})
    node.run(1810)
    assert recent(node, program).needed_percent == 75
    beside = Program("b", percent=50, solo=False)
    alone = Program("a", percent=50, solo=False)
    shared = Node([alone, beside], samples={"gpu-0": {Metric.SM: 0.09, Metric.GRAPHICS: 0.1}})
    shared.run(1810)
    assert recent(shared, alone).needed_percent == 9  # whose kernels they were is not known


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 30)), min_size=1, max_size=5),
    st.integers(0, 100),
)
def test_the_share_that_is_needed_is_the_smallest_without_a_slowdown(
    phases: list[tuple[int, int]], idle_s: int
) -> None:
    program = Program("a", percent=100, solo_ns=10**9)
    seconds = sum(length for _, length in phases) + idle_s
    node = Node([program], window_s=seconds)
    for _ in range(2):
        for percent, length in phases:
            program.busy = percent / 100
            node.run(length)
        program.busy = 0.0
        node.run(idle_s)

    def longer(share: int) -> float:
        return sum(length * max(0.0, percent / share - 1) for percent, length in phases)

    enough = [share for share in range(1, 101) if longer(share) <= 0.02 * seconds + 1e-6]
    assert recent(node, program).needed_percent == pytest.approx(enough[0], abs=0)


def test_few_steps_say_nothing_of_the_time_within_them() -> None:
    program = Program("a", busy=0.1)
    node = Node([program], window_s=60)
    for _ in range(130):
        node.run(1)
        program.steps = 1  # a step lasts for ages
    assert recent(node, program).duty_percent == 0


def test_loading_is_in_no_window() -> None:
    program = Program("a", percent=100, busy=0.0)
    node = Node([program])
    node.run(1000)  # a whole window of it, and a part of the next
    program.busy = 0.8
    node.run(1790)
    assert node.usage(program).recent is None
    node.run(20)
    both = recent(node, program)
    assert both.used_ms / both.allocated_ms == pytest.approx(0.8, rel=0.01)
    assert node.usage(program).allocated_ms == near(2_810_000)  # the sums hold all of it


def test_what_a_former_agent_saw_at_work_does_not_load_again() -> None:
    program = Program("a", percent=100, busy=0.5)
    node = Node([program], window_s=60)
    node.run(130)
    part = program.tenant().desired
    seen = ObservedSlice(
        key=part.key,
        phase=SlicePhase.ATTACHED,
        gpu=part.gpu,
        percent=part.percent,
        memory_mib=part.memory_mib,
        epoch=1,
        usage=node.usage(program),
    )
    for restored_first in (True, False):
        node.meter = UsageMeter(60)
        if restored_first:
            node.meter.restore([seen])
        node.look()
        node.meter.restore([seen])
        node.run(10)
        assert seen.usage is not None
        assert recent(node, program) == seen.usage.recent


def test_an_idle_container_is_known_to_be_until_it_works() -> None:
    program = Program("a", percent=100, busy=0.0)
    node = Node([program], window_s=60)
    node.run(130)
    assert recent(node, program).used_ms == 0
    program.busy = 0.5
    node.run(1)
    assert node.usage(program).recent is None


@pytest.mark.parametrize("freezes", [False, True])
def test_withheld_time_lowers_no_need_and_is_no_time_without_kernels(freezes: bool) -> None:
    program = Program("a", percent=100, solo=False)
    ratios = {Metric.SM: 0.8, Metric.GRAPHICS: 0.9}
    node = Node([program], samples={"gpu-0": ratios})
    if not freezes:  # it waits for its lane a third of the time, and does nothing meanwhile
        node.turns = {program.key.directory: LaneReading(wait_percent=33)}
        node.samples = {"gpu-0": {metric: ratio * 0.67 for metric, ratio in ratios.items()}}
    for _ in range(70):
        node.run(20)
        program.frozen = freezes
        if freezes:
            node.samples = {"gpu-0": {Metric.SM: 0.0, Metric.GRAPHICS: 0.0}}
        node.run(10)
        program.frozen = False
        if freezes:
            node.samples = {"gpu-0": ratios}
    both = recent(node, program)
    assert both.withheld_ms == near(600_000 if freezes else 594_000)
    assert 87 <= both.needed_percent <= 89  # in nine tenths of the time 80 / 90 of the device
    assert 10 <= both.kernel_idle_percent <= 11


def test_windows_that_were_hardly_measured_are_no_evidence() -> None:
    program = Program("a", percent=100, solo=False)
    node = Node([program], busy={"gpu-0": 0.0}, window_s=60)
    node.run(130)
    assert recent(node, program).allocated_ms == near(120_000)
    node.busy = {"gpu-0": 0.5}  # of which no more is known without counters
    node.run(60)
    assert node.usage(program).recent is None
    node.busy = {"gpu-0": 0.0}
    node.run(60)
    assert node.usage(program).recent is None  # one window


def test_a_container_that_starts_again_is_not_counted_backwards() -> None:
    program = Program("a", busy=0.5)
    node = Node([program], window_s=30)
    for _ in range(2):
        node.run(20)
        program.solo_ns, program.steps, program.busy_ns = 1, 0, 0
        node.run(10)
    usage = node.usage(program)
    assert usage.used_ms == near(29_000)
    assert recent(node, program).duty_percent == 97  # a second of each window is not known


def test_a_new_agent_goes_on_from_what_was_reported() -> None:
    program = Program("a")
    node = Node([program], window_s=30)
    node.run(70)
    part = program.tenant().desired
    seen = ObservedSlice(
        key=part.key,
        phase=SlicePhase.ATTACHED,
        gpu=part.gpu,
        percent=part.percent,
        memory_mib=part.memory_mib,
        epoch=1,
    )
    (reported,) = metered_slices([seen], node.meter)
    assert reported.usage is not None
    assert ObservedSlice.from_wire(reported.to_wire()) == reported
    later = Node([program])
    later.meter = UsageMeter()
    later.meter.restore([reported])
    assert later.usage(program) == reported.usage
    later.look()
    later.run(10)
    assert later.usage(program).allocated_ms == near(reported.usage.allocated_ms + 5000)
    assert later.usage(program).recent == reported.usage.recent is not None


def test_another_device_of_a_container_is_not_counted_twice() -> None:
    program = Program("a", percent=100, gpus=("gpu-0", "gpu-1"))
    node = Node([program])
    node.run(10)
    assert node.usage(program).allocated_ms == near(20_000)
    part = program.tenant().desired
    second = ObservedSlice(
        key=replace(part.key, index=1),
        phase=SlicePhase.ATTACHED,
        gpu="gpu-1",
        percent=100,
        memory_mib=1,
        epoch=1,
    )
    assert metered_slices([second], node.meter) == (second,)


def test_a_container_that_is_gone_is_forgotten() -> None:
    program = Program("a")
    node = Node([program])
    node.programs = []
    node.look()
    assert node.meter.usage(program.key) is None


SECONDS = st.lists(
    st.tuples(
        st.floats(0.01, 12), st.floats(-1, 3), st.booleans(), st.booleans(), st.integers(0, 100)
    ),
    max_size=40,
)


@given(SECONDS, st.integers(1, 100))
def test_whatever_happens_the_time_held_is_the_clocks(
    steps: list[tuple[float, float, bool, bool, int]], percent: int
) -> None:
    program = Program("a", percent=percent)
    node = Node([program], window_s=20)
    begun = node.now
    before = ObservedUsage()
    for seconds, busy, frozen, running, waits in steps:
        node.now += seconds
        program.frozen, program.running = frozen, running
        program.solo_ns = max(1, program.solo_ns + int(busy * 1e9))
        node.turns = {program.key.directory: LaneReading(wait_percent=waits)}
        node.look()
        usage = node.usage(program)
        assert usage.used_ms <= usage.allocated_ms
        assert usage.held_ms == pytest.approx((node.now - begun) * percent * 10, abs=3)
        for name in ("allocated_ms", "used_ms", "withheld_ms", "unmeasured_ms"):
            assert getattr(usage, name) >= getattr(before, name)  # counters only grow
        before = usage

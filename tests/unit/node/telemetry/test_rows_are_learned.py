# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from docs.generate.crds.definition import schema
from structure import faults
from ullage.api.gpunode import GPUNode
from ullage.api.observations import LatencyObjective, Observation, ObservedPartner
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage_node.model.devices import Attachment, AttachState, ContainerKey, StepProgress
from ullage_node.model.samples import DeviceSample, Metric, Samples
from ullage_node.model.slices import HeldSlice
from ullage_node.telemetry.histograms import LatencyHistogram
from ullage_node.telemetry.learning import NodeSnapshot, ObservationLearner
from ullage_node.telemetry.observations import ObservationBook
from ullage_node.telemetry.tenants import RunningTenant, tenants_of
from ullage_node.telemetry.windows import HistogramPage

GPU = "gpu-0"
WALL = 1_700_000_000.0
MILLI = 10**6

ROW = schema(GPUNode)["properties"]["status"]["properties"]["observations"]["items"]


@dataclass
class Job:
    """A container that works: ``step_ms`` for each step, of which ``cpu_ms`` on the device."""

    name: str
    workload_class: str = ""
    percent: int = 40
    step_ms: float = 100.0
    cpu_ms: float = 20.0
    per_s: float = 0.0
    """Steps in a second, 0 = one after another."""
    steps: float = 100.0
    busy_ns: int = 100 * 100 * MILLI
    solo_ns: int = 10**9
    slo: LatencyObjective | None = None
    max_slowdown_percent: int = 0
    solo_step_micros: int = 0
    page_every_s: int = 0
    frozen: bool = False
    running: bool = True
    counts: float = 0.0
    namespace: str = "team"

    def work(self, seconds: float) -> None:
        made = seconds * (self.per_s or 1000 / self.step_ms)
        self.steps += made
        self.counts += made
        self.busy_ns += int(made * self.step_ms * MILLI)
        self.solo_ns += int(made * self.cpu_ms * MILLI)

    @property
    def key(self) -> ContainerKey:
        return ContainerKey(pod_uid=self.name, container="main")

    def tenant(self, now: float) -> RunningTenant:
        part = DesiredSlice(
            key=SliceKey(pod_uid=self.name, container="main"),
            pod_namespace=self.namespace,
            pod_name=self.name,
            gpu=GPU,
            percent=self.percent,
            memory_mib=1000,
            epoch=1,
            workload_class=self.workload_class,
            family="nets",
            max_slowdown_percent=self.max_slowdown_percent,
            solo_step_micros=self.solo_step_micros,
            slo=self.slo,
        )
        state = AttachState.ENFORCED if self.running else AttachState.ABSENT
        seen = Attachment(
            state=state,
            memory_used_mib=321,
            cpu_time_ns=self.solo_ns // 2,
            solo_time_ns=self.solo_ns,
        )
        made = StepProgress(
            steps=int(self.steps), busy_ns=self.busy_ns, last_step_ns=int(now * 1e9)
        )
        made = made if self.steps >= 1 else StepProgress()
        return RunningTenant(
            desired=part, gpus=(GPU,), attachment=seen, progress=made, frozen=self.frozen
        )

    def page(self, now: float) -> HistogramPage:
        """A server whose requests all take between half and all of ``step_ms``."""
        bound = self.step_ms / 1000
        made = LatencyHistogram(
            bounds=(bound / 2, bound, math.inf),
            cumulative=(0.0, self.counts, self.counts),
            sum_seconds=self.counts * bound * 0.75,
            requests=self.counts,
        )
        return HistogramPage(at_s=now, histogram=made)


class Node:
    """A device, those on it, and the clock."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = list(jobs)
        self.now = 1000.0
        self.samples = Samples()
        self.book = ObservationBook(clock=lambda: self.now)
        self.learning = ObservationLearner("node-a", self.book, self.samples)
        self.pages: dict[ContainerKey, HistogramPage] = {}
        self.gpm: dict[Metric, float] = {}

    def run(self, seconds: int, every: float = 1.0) -> tuple[Observation, ...]:
        """Let time pass; the rows made in it."""
        before = len(self.book.rows)
        for _ in range(int(seconds / every)):
            self.now += every
            for job in self.jobs:
                if not job.frozen:
                    job.work(every)
                if job.page_every_s and round(self.now) % job.page_every_s == 0:
                    self.pages[job.key] = job.page(self.now)
            if self.gpm:
                self.samples.take(
                    [DeviceSample(uuid=GPU, at_s=self.now, gpm=True, ratios=dict(self.gpm))]
                )
            self.look()
        return self.book.rows[before:]

    def look(self) -> None:
        self.learning.take(
            NodeSnapshot(
                now=self.now,
                wall=WALL + self.now,
                tenants=tuple(job.tenant(self.now) for job in self.jobs),
                models={GPU: "emulated"},
                pages=self.pages,
                images={job.key: f"sha256:{job.name}" for job in self.jobs},
            )
        )


def test_every_half_minute_one_row_for_each_tenant() -> None:
    one = Job("a", "resnet", percent=40, step_ms=100, cpu_ms=20, max_slowdown_percent=300)
    two = Job("b", "bert", percent=60, step_ms=50, cpu_ms=25, solo_step_micros=25_000)
    rows = {row.workload_class: row for row in Node(one, two).run(40)}
    assert set(rows) == {"resnet", "bert"}
    row = rows["bert"]
    assert (row.step_micros, row.solo_step_micros, row.percent) == (50_000, 25_000, 60)
    assert row.partners == (ObservedPartner(workload_class="resnet", percent=40),)
    assert (row.namespace, row.family, row.accelerator) == ("team", "nets", "emulated")
    assert (row.image, row.requests_milli, row.violated) == ("sha256:b", 0, False)
    assert row.at_s == pytest.approx(WALL + 1031, abs=1)
    assert row.fingerprint is None, "not alone"
    for made in rows.values():
        assert faults(ROW, made.to_wire()) == []
        assert Observation.from_wire(made.to_wire()) == made


def test_a_class_of_another_namespace_says_so() -> None:
    one, two = Job("a", "resnet", percent=40), Job("b", "resnet", percent=60, namespace="other")
    rows = {row.namespace: row.partners for row in Node(one, two).run(40)}
    assert rows == {
        "team": (ObservedPartner(workload_class="other/resnet", percent=60),),
        "other": (ObservedPartner(workload_class="team/resnet", percent=40),),
    }


def test_alone_the_demand_is_known_from_cpu_time() -> None:
    (row,) = Node(Job("a", "resnet", step_ms=100, cpu_ms=30)).run(40)
    assert row.fingerprint is not None
    assert row.fingerprint.sm_permille == pytest.approx(300, abs=12)
    assert row.fingerprint.cpu_permille == pytest.approx(150, abs=6)
    assert row.fingerprint.duty_permille == pytest.approx(1000, abs=1)
    assert row.fingerprint.peak_memory_mib == 321


def test_alone_the_counters_of_the_device_are_the_tenants() -> None:
    node = Node(Job("a", "resnet"))
    node.gpm = {Metric.SM: 0.62, Metric.DRAM: 0.31, Metric.GRAPHICS: 0.8}
    (row,) = node.run(40)
    assert row.fingerprint is not None
    assert (row.fingerprint.sm_permille, row.fingerprint.dram_permille) == (620, 310)
    assert row.fingerprint.kernel_idle_permille == 200


def test_beside_others_the_counters_are_nobodys() -> None:
    node = Node(Job("a", "resnet"), Job("b", "bert"))
    node.gpm = {Metric.SM: 0.62}
    assert [row.fingerprint for row in node.run(40)] == [None, None]


def test_the_objective_is_judged() -> None:
    slow = Job("a", "resnet", step_ms=100, solo_step_micros=50_000, max_slowdown_percent=199)
    fine = Job("b", "bert", step_ms=100, solo_step_micros=50_000, max_slowdown_percent=200)
    assert {row.workload_class: row.violated for row in Node(slow, fine).run(40)} == {
        "resnet": True,
        "bert": False,
    }


def disturb_arrival(node: Node) -> None:
    node.jobs.append(Job("c", "new"))


def disturb_departure(node: Node) -> None:
    node.jobs.pop()


def disturb_end_of_process(node: Node) -> None:
    node.jobs[1].running = False


def disturb_freeze(node: Node) -> None:
    node.jobs[1].frozen = True


def disturb_restart(node: Node) -> None:
    node.jobs[1].steps, node.jobs[1].busy_ns, node.jobs[1].solo_ns = 30, 30, 30


def disturb_share(node: Node) -> None:
    node.jobs[1].percent = 50


def disturb_clock_forward(node: Node) -> None:
    node.now += 3600


def disturb_clock_back(node: Node) -> None:
    node.now -= 500


@pytest.mark.parametrize(
    "disturb",
    [
        disturb_arrival,
        disturb_departure,
        disturb_end_of_process,
        disturb_freeze,
        disturb_restart,
        disturb_share,
        disturb_clock_forward,
        disturb_clock_back,
    ],
)
def test_nothing_is_learned_across_a_change(disturb: object) -> None:
    assert callable(disturb)
    node = Node(Job("a", "resnet"), Job("b", "bert"))
    assert node.run(25) == ()
    disturb(node)
    assert node.run(10) == ()
    frozen = any(job.frozen for job in node.jobs)
    assert bool(node.run(30)) is not frozen, "and steady again it is"


def test_the_step_under_way_at_an_arrival_does_not_count() -> None:
    long = Job("a", "resnet", step_ms=4000, cpu_ms=400)
    node = Node(long)
    node.run(25)
    node.jobs.append(Job("b", "bert"))
    node.run(5)  # the first look at the newcomer
    rows = node.run(40)
    assert {row.workload_class: row.step_micros for row in rows}["resnet"] == 4_000_000


def test_the_first_steps_of_a_container_are_warm_up() -> None:
    young = Job("a", "resnet", step_ms=1000, steps=1, busy_ns=10**9)
    node = Node(young)
    assert node.run(48) == ()  # 20 steps, then 30 s
    assert len(node.run(5)) == 1


def test_a_container_without_steps_is_a_neighbour_after_a_while() -> None:
    silent = Job("b", "idle", step_ms=1000, per_s=1e-9, steps=0, busy_ns=0)
    node = Node(Job("a", "resnet"), silent)
    assert node.run(58) == ()
    (row,) = node.run(5)
    assert (row.workload_class, row.partners) == (
        "resnet",
        (ObservedPartner(workload_class="idle", percent=40),),
    )


def test_a_neighbour_of_unknown_class_spoils_the_rows_of_all() -> None:
    assert Node(Job("a", "resnet"), Job("b", "")).run(100) == ()


def test_too_few_steps_make_no_row() -> None:
    node = Node(Job("a", "resnet", step_ms=15_000))
    assert node.run(40) == ()
    (row,) = node.run(40)
    assert row.step_micros == 15_000_000, "long steps are counted on while nothing changes"


def a_server(per_s: float, **change: object) -> Job:
    slo = LatencyObjective(latency_ms=10, percentile="90")
    job = Job("s", "server", step_ms=8, cpu_ms=4, per_s=per_s, slo=slo, page_every_s=5)
    return replace(job, **change)  # type: ignore[arg-type]


def test_a_server_has_load_and_latency() -> None:
    (row,) = Node(a_server(40.0)).run(40)
    assert row.requests_milli == 40_000
    assert row.step_micros == 8000
    assert row.latency_micros == pytest.approx(7600, abs=1)
    assert row.percentile == "90"
    assert not row.violated


@pytest.mark.parametrize(
    ("latency_ms", "above", "violated"),
    [
        # half of the requests take 8 ms at most, so the median is just that
        (8, 0.0, False),
        (7, 0.0, True),
        # all take longer than the last bound, 16 ms, and no one knows how long
        (15, 1.0, True),
        (16, 1.0, True),
        (17, 1.0, False),
    ],
)
def test_an_objective_is_violated_above_it_and_where_the_last_bound_proves_it(
    latency_ms: int, above: float, violated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page(job: Job, now: float) -> HistogramPage:
        counts = job.counts
        below = counts * (1 - above)
        made = LatencyHistogram(
            bounds=(0.008, 0.016, math.inf),
            cumulative=(below / 2, below, counts),
            sum_seconds=counts * 0.008,
            requests=counts,
        )
        return HistogramPage(at_s=now, histogram=made)

    monkeypatch.setattr(Job, "page", page)
    slo = LatencyObjective(latency_ms=latency_ms, percentile="50")
    (row,) = Node(a_server(40.0, slo=slo)).run(40)
    assert row.violated is violated


def test_a_server_without_steps_has_the_mean_of_its_requests() -> None:
    node = Node(a_server(40.0, steps=-1e9))
    node.run(58)
    (row,) = node.run(10)
    assert row.step_micros == 6000


def test_a_load_that_changes_teaches_nothing() -> None:
    node = Node(a_server(40.0), Job("a", "resnet"))
    node.run(16)
    node.jobs[0].per_s = 60.0
    assert node.run(16) == ()
    assert len(node.run(30)) == 2


def test_a_server_without_a_histogram_is_known_by_its_idleness() -> None:
    node = Node(a_server(40.0, slo=None, page_every_s=0))
    node.run(16)
    node.jobs[0].per_s = 60.0
    assert node.run(16) == ()


def test_a_loop_that_goes_faster_has_no_load() -> None:
    node = Node(Job("a", "resnet", step_ms=100))
    node.run(16)
    node.jobs[0].step_ms = 60
    assert len(node.run(20)) == 1


def test_chance_alone_is_no_change_of_load() -> None:
    node = Node(a_server(1.0))
    node.run(16)
    node.jobs[0].per_s = 1.3  # 20 in one half, 15 in the other: chance does that
    assert len(node.run(16)) == 1


def test_tenants_are_told_by_container_with_all_their_devices() -> None:
    job = Job("a", "resnet").tenant(0.0)
    held = [
        HeldSlice(
            desired=replace(job.desired, key=replace(job.desired.key, index=i), gpu=f"gpu-{i}"),
            phase=SlicePhase.ATTACHED,
        )
        for i in (1, 0)
    ]
    reserved = replace(held[0], phase=SlicePhase.RESERVED)
    (tenant,) = tenants_of(held, {job.key: job.attachment}, {}, {job.key})
    assert (tenant.gpu, tenant.gpus, tenant.frozen) == ("gpu-0", ("gpu-0", "gpu-1"), True)
    assert tenants_of([reserved], {}, {}) == ()

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A slow rank is named once it was slow for a while, with its cause, and not again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from builders import NOW, a_gpu_node, a_job, a_pod, a_snapshot
from ullage.api.reasons import Reason
from ullage.api.rebalancing import StragglerPolicy
from ullage.api.slices import ObservedRank, ObservedSlice, SliceKey, SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.stragglers.detector import RankTimes, SlowCause, find_stragglers
from ullage.scheduling.observation.stragglers import (
    RankOfPod,
    Slowness,
    StragglerNews,
    look,
    named_straggler,
)

JOB = a_job("digits").record
PODS = {
    pod.uid: pod
    for pod in (
        a_pod("digits-0", owner=JOB, node="node-0"),
        a_pod("digits-1", owner=JOB, node="node-1"),
        a_pod("etl", owner=a_job("etl", "other").record, node="node-1"),
    )
}
UIDS = {pod.name: pod.uid for pod in PODS.values()}


def figures(rank: int, compute_ms: int, batch: int = 0) -> ObservedRank:
    return ObservedRank(
        rank=rank,
        steps=9,
        step_micros=100_000,
        compute_micros=compute_ms * 1000,
        batch=batch,
        even_batch=8 if batch else 0,
        even_step_micros=150_000 if batch else 0,
    )


def a_node(name: str, now: float, **ranks: tuple[ObservedRank, ...]) -> GPUNodeRecord:
    observed = tuple(
        ObservedSlice(
            key=SliceKey(pod_uid=UIDS[pod.replace("_", "-")], container="main"),
            phase=SlicePhase.ATTACHED,
            gpu="GPU-0",
            percent=50,
            memory_mib=1,
            epoch=1,
            ranks=of_pod,
        )
        for pod, of_pod in ranks.items()
    )
    return replace(a_gpu_node(name), observed=observed, heartbeat=now)


def cluster(now: float, slow_ms: int, *, etl: bool = False, batch: int = 0) -> Snapshot:
    """Two ranks on two nodes; the second one takes so long."""
    others = {"etl": ()} if etl else {}
    nodes = (
        a_node("node-0", now, digits_0=(figures(0, 50, 16 - batch if batch else 0),)),
        a_node("node-1", now, digits_1=(figures(1, slow_ms, batch),), **others),
    )
    return replace(a_snapshot(*nodes), pods=PODS, workloads={JOB.ref.uid: JOB})


class Watch:
    """Looks every ten seconds."""

    def __init__(self) -> None:
        self.now = NOW
        self.memory: Mapping[str, Slowness] = {}
        self.news: list[StragglerNews] = []

    def at(self, seconds: float, slow_ms: int, **more: object) -> list[Reason]:
        """Look for so long; the reasons that were told."""
        told: list[Reason] = []
        for _ in range(int(seconds // 10)):
            self.now += 10
            snapshot = cluster(self.now, slow_ms, **more)  # type: ignore[arg-type]
            self.memory, news = look(snapshot, self.memory, self.now)
            self.news += news
            told += [each.reason for each in news]
        return told


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a_slow_rank_is_named_within_a_minute_and_once(watch: Watch) -> None:
    assert watch.at(60, 100) == [Reason.STRAGGLER_FOUND]
    assert "rank 1 on node-1 takes 2.0 times as long" in watch.news[0].text
    assert watch.news[0].job.ref == JOB.ref
    assert watch.at(600, 100) == []
    assert watch.at(1800, 100) == [Reason.STRAGGLER_FOUND]


def test_equal_ranks_are_no_news(watch: Watch) -> None:
    assert watch.at(300, 51) == []
    assert watch.memory == {}


def test_one_slow_look_is_no_news(watch: Watch) -> None:
    assert watch.at(10, 100) == []
    assert watch.at(120, 50) == []
    assert watch.memory == {}


def test_the_end_is_told(watch: Watch) -> None:
    watch.at(60, 100)
    assert watch.at(120, 50) == [Reason.STRAGGLER_GONE]
    assert watch.memory == {}


def test_a_neighbour_on_its_device_is_named(watch: Watch) -> None:
    watch.at(60, 100, etl=True)
    assert "mostly to compute beside other/etl" in watch.news[0].text
    assert "; suspend or move other/etl" in watch.news[0].text


def test_another_cause_is_told(watch: Watch) -> None:
    watch.at(60, 100)
    assert watch.at(60, 100, etl=True) == [Reason.STRAGGLER_FOUND]


def test_the_status_names_it_from_then_on(watch: Watch) -> None:
    watch.at(60, 100)
    shown = watch.memory[JOB.ref.uid].shown
    assert shown is not None
    assert (shown.rank, shown.pod, shown.node) == (1, "digits-1", "node-1")
    assert (shown.cause, shown.ratio_percent, shown.since) == (SlowCause.COMPUTE, 200, NOW + 10)
    watch.at(600, 130)  # by another ratio
    assert watch.memory[JOB.ref.uid].shown is shown
    watch.at(60, 50)
    assert watch.memory == {}


def test_a_cause_that_comes_and_goes_changes_nothing_shown(watch: Watch) -> None:
    watch.at(60, 100)
    shown = watch.memory[JOB.ref.uid].shown
    for _ in range(10):
        watch.at(20, 100, etl=True)
        watch.at(20, 100)
        assert watch.memory[JOB.ref.uid].shown is shown
    watch.at(80, 100, etl=True)
    changed = watch.memory[JOB.ref.uid].shown
    assert changed is not None
    assert changed.cause is SlowCause.NEIGHBOUR


def test_a_pause_begins_it_anew_and_ends_nothing(watch: Watch) -> None:
    watch.at(60, 100)
    watch.at(30, 50)
    watch.at(10, 100)
    shown = watch.memory[JOB.ref.uid].shown
    assert shown is not None
    assert shown.since == watch.now


def test_of_two_slow_ranks_the_named_one_stays_named(watch: Watch) -> None:
    times = [RankTimes(compute=time) for time in (50, 100, 50, 50, 50)]
    ranks = [RankOfPod(pod="p", node="n", figures=figures(rank, 50)) for rank in range(len(times))]
    for other in (99, 105):
        times[3] = RankTimes(compute=other)
        stragglers = find_stragglers(times).stragglers
        assert len(stragglers) == 2
        assert ranks[named_straggler(ranks, stragglers, 1).at].figures.rank == 1
        assert ranks[named_straggler(ranks, stragglers, 3).at].figures.rank == 3


def test_another_pod_of_that_rank_is_another_case(watch: Watch) -> None:
    watch.at(60, 100)
    memory = replace(watch.memory[JOB.ref.uid], pod_uid="uid-of-a-pod-that-left")
    watch.memory = {JOB.ref.uid: memory}
    assert watch.at(10, 100) == []
    assert watch.memory[JOB.ref.uid].shown is None
    assert watch.at(60, 100) == [Reason.STRAGGLER_FOUND]


def test_uneven_batches_are_told_once(watch: Watch) -> None:
    assert watch.at(10, 50, batch=4) == [Reason.BATCHES_DIVIDED]
    assert "rank 1 on node-1 is given 4 of 8 samples" in watch.news[0].text
    assert "step 150.0 ms -> 100.0 ms" in watch.news[0].text
    assert watch.at(10, 50, batch=4) == []
    assert "2.0 times" not in watch.news[-1].text
    watch.at(20, 50)
    assert Reason.BATCHES_DIVIDED in watch.at(10, 50, batch=4)


def test_a_slow_rank_with_a_smaller_batch_is_still_slow(watch: Watch) -> None:
    assert Reason.STRAGGLER_FOUND in watch.at(60, 50, batch=4)


@pytest.mark.parametrize("policy", [StragglerPolicy.DISABLED])
def test_who_does_not_want_to_know_is_not_told(policy: StragglerPolicy) -> None:
    snapshot = cluster(NOW, 100)
    job = replace(JOB, stragglers=policy)
    quiet = replace(snapshot, workloads={JOB.ref.uid: job})
    memory: Mapping[str, Slowness] = {}
    for second in range(0, 60, 10):
        memory, news = look(quiet, memory, NOW + second)
        assert not news


def test_an_old_report_says_nothing(watch: Watch) -> None:
    snapshot = cluster(NOW, 100)
    memory: Mapping[str, Slowness] = {}
    for second in range(0, 3600, 300):
        memory, news = look(snapshot, memory, NOW + 3600 + second)
        assert not news

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of running jobs that the others wait for: what is said of them, and when.

A rank is named after it was slow for a while, once, until something about it changes. Nothing is
stopped or moved: a slow program is its owner's, and a node that is slow for one job may be right
for others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.rebalancing import EvenReason, StragglerPolicy
from ullage.api.slices import ObservedRank, ObservedSlice
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.straggler import StragglerRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.stragglers.detector import RankTimes, SlowCause, SlowRank, find_stragglers
from ullage.scheduling.times import (
    HEARTBEAT_MAX_AGE_S,
    STRAGGLER_GONE_S,
    STRAGGLER_HELD_S,
    STRAGGLER_PAUSE_S,
    STRAGGLER_QUIET_S,
    STRAGGLER_SHOWN_S,
)

AS_SLOW: Final = 0.9
"""Part of the slowest rank's ratio from which a rank that was named stays the named one. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOfPod:
    """A rank, and the pod that it runs in."""

    pod: str
    node: str
    figures: ObservedRank
    pod_uid: str = ""
    """Empty where only the name is known."""
    neighbours: tuple[str, ...] = ()
    """Other pods on its device, ``namespace/name``."""

    @property
    def divided(self) -> bool:
        """Its batch is smaller or larger than an even one."""
        return self.figures.batch != self.figures.even_batch

    @property
    def times(self) -> RankTimes:
        """Figures that the detector compares, microseconds that an even batch would take."""
        figures = self.figures
        part = figures.even_batch / figures.batch if self.divided and figures.batch else 1.0
        return RankTimes(
            compute=figures.compute_micros * part,
            data=figures.data_wait_micros * part,
            throttled_percent=figures.throttled_percent,
            neighbours=len(self.neighbours),
        )


def remarks(ranks: Sequence[RankOfPod], stragglers: Sequence[SlowRank]) -> Sequence[str]:
    """Sentences on the slowest rank, the division of batches, and why there is none.

    Args:
        ranks: Ranks of the job.
        stragglers: The slow ones among them, the slowest first.
    """
    sentences: list[str] = []
    if stragglers:
        rank = ranks[stragglers[0].at]
        sentences.append(_slowness(rank, stragglers[0]))
        if advice := _advice(rank, stragglers[0].cause):
            sentences.append(advice)
    smallest = _smallest(ranks)
    if smallest is not None:
        sentences.append(_division(smallest))
    reasons = {rank.figures.even_reason for rank in ranks} & set(EvenReason) - {EvenReason.NONE}
    return [
        *sentences,
        *(f"batches stay even: {word}: {EvenReason(word).text}" for word in sorted(reasons)),
    ]


def _smallest(ranks: Iterable[RankOfPod]) -> RankOfPod | None:
    """The rank with the smallest part of its even batch; ``None`` = all are even."""
    return min(
        (rank for rank in ranks if rank.divided and rank.figures.even_batch),
        key=lambda rank: rank.figures.batch / rank.figures.even_batch,
        default=None,
    )


def _slowness(rank: RankOfPod, slowest: SlowRank) -> str:
    stopped = rank.figures.throttled_percent
    causes = {
        SlowCause.COMPUTE: "mostly to compute",
        SlowCause.THROTTLED: f"stopped at its CPU limit {stopped} % of the time",
        SlowCause.NEIGHBOUR: f"mostly to compute beside {', '.join(rank.neighbours[:3])}",
        SlowCause.DATA: "mostly for its data",
        SlowCause.LINK: "mostly to communicate",
    }
    alike = "" if rank.divided else "; they wait for it in each step"
    return (
        f"rank {rank.figures.rank} on {rank.node} takes {slowest.ratio:.1f} times as long as the"
        f" others, {causes[slowest.cause]}{alike}"
    )


def _advice(rank: RankOfPod, cause: SlowCause) -> str:
    match cause:
        case SlowCause.NEIGHBOUR:
            return (
                f"suspend or move {rank.neighbours[0]}, or set spec.slo.maxSlowdown, which keeps"
                " such neighbours away"
            )
        case SlowCause.THROTTLED:
            return f"raise the CPU limit of pod {rank.pod}"
        case SlowCause.COMPUTE:
            return (
                f"where other jobs are slow on {rank.node}, too, delete pod {rank.pod}: its member"
                " is placed again"
            )
        case SlowCause.DATA | SlowCause.LINK:
            return ""


def _division(smallest: RankOfPod) -> str:
    figures = smallest.figures
    sentence = (
        f"rank {figures.rank} on {smallest.node} is given {figures.batch} of {figures.even_batch}"
        " samples, so that all ranks finish together"
    )
    if figures.even_step_micros and figures.step_micros:
        before, now = millis(figures.even_step_micros), millis(figures.step_micros)
        sentence += f": step {before} -> {now}"
    return sentence


def millis(micros: int) -> str:
    """A time as text; "-" = not known."""
    return f"{micros / 1000:.1f} ms" if micros else "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowness:
    """Memory of a job with a slow rank, or with uneven batches.

    Attributes:
        rank: The slowest rank; -1 = none now.
        cause: Of that.
        since: Begin of this state, seconds since the epoch.
        pod_uid: uid of the pod of that rank.
        lasting: Begin of the time in which that rank was slow without a pause.
        seen: When a rank was slow last.
        shown: The rank that the status names; ``None`` = none.
        reported: The rank and cause of the last Event, and its time.
        divided: Time of the last Event on uneven batches; 0 = they are even.
    """

    rank: int = -1
    cause: SlowCause = SlowCause.COMPUTE
    since: float = 0.0
    pod_uid: str = ""
    lasting: float = 0.0
    seen: float = 0.0
    shown: StragglerRecord | None = None
    reported: tuple[int, SlowCause, float] | None = None
    divided: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerNews:
    """Something to tell a job's owner."""

    job: WorkloadRecord
    reason: Reason
    text: str


def pods_by_device(slices: Iterable[ObservedSlice]) -> Mapping[str, Set[str]]:
    """Uids of the pods with a slice, by device.

    Args:
        slices: Of one node.
    """
    residents: defaultdict[str, set[str]] = defaultdict(set)
    for seen in slices:
        residents[seen.gpu].add(seen.key.pod_uid)
    return residents


def ranks_by_job(snapshot: Snapshot, now: float) -> Mapping[str, Sequence[RankOfPod]]:
    """Timed ranks of jobs that want to know, in order of their numbers, by uid of the job.

    Args:
        snapshot: The cluster.
        now: Seconds since the epoch; reports of silent nodes are not used.
    """
    ranks: defaultdict[str, list[RankOfPod]] = defaultdict(list)
    for name in sorted(snapshot.gpu_nodes):
        node = snapshot.gpu_nodes[name]
        if now - node.heartbeat > HEARTBEAT_MAX_AGE_S or not any(
            seen.ranks for seen in node.observed
        ):
            continue
        residents = pods_by_device(node.observed)
        for seen in node.observed:
            pod = snapshot.pods.get(seen.key.pod_uid)
            job = snapshot.workloads.get(pod.owner.uid) if pod is not None else None
            if pod is None or job is None or job.stragglers is StragglerPolicy.DISABLED:
                continue
            neighbours = tuple(
                sorted(
                    f"{other.namespace}/{other.name}"
                    for uid in residents[seen.gpu] - {pod.uid}
                    if (other := snapshot.pods.get(uid)) is not None
                )
            )
            ranks[job.ref.uid] += [
                RankOfPod(
                    pod=pod.name,
                    pod_uid=pod.uid,
                    node=name,
                    figures=figures,
                    neighbours=neighbours,
                )
                for figures in seen.ranks
            ]
    return {
        uid: sorted(of_job, key=lambda rank: (rank.figures.rank, rank.pod))
        for uid, of_job in ranks.items()
    }


def look(
    snapshot: Snapshot, before: Mapping[str, Slowness], now: float
) -> tuple[dict[str, Slowness], list[StragglerNews]]:
    """The next memory, by uid of the job, and what to tell.

    Args:
        snapshot: The cluster.
        before: The memory of the last look.
        now: Seconds since the epoch.
    """
    memory: dict[str, Slowness] = {}
    news: list[StragglerNews] = []
    ranks_of = ranks_by_job(snapshot, now)
    for uid in sorted(before.keys() | ranks_of.keys()):
        job = snapshot.workloads.get(uid)
        ranks = ranks_of.get(uid, ())
        if job is None or not ranks:
            continue  # it has ended, or starts again
        after, of_job = _next(job, ranks, before.get(uid, Slowness()), now)
        news += of_job
        if after != Slowness():
            memory[uid] = after
    return memory, news


def _next(
    job: WorkloadRecord, ranks: Sequence[RankOfPod], before: Slowness, now: float
) -> tuple[Slowness, list[StragglerNews]]:
    stragglers = find_stragglers([rank.times for rank in ranks]).stragglers
    news: list[StragglerNews] = []
    if before.pod_uid and all(rank.pod_uid != before.pod_uid for rank in ranks):
        before = Slowness(divided=before.divided)  # that pod has left
    after = before
    if stragglers:
        slowest = named_straggler(ranks, stragglers, before.rank)
        rank = ranks[slowest.at]
        number = rank.figures.rank
        if (number, slowest.cause) != (before.rank, before.cause):
            after = replace(after, rank=number, cause=slowest.cause, since=now)
        is_same = (number, rank.pod_uid) == (before.rank, before.pod_uid)
        if not is_same or now - before.seen > STRAGGLER_PAUSE_S:
            after = replace(after, pod_uid=rank.pod_uid, lasting=now)
        after = replace(after, seen=now)
        after = replace(after, shown=_shown(after, rank, slowest, now))
        if now - after.since >= STRAGGLER_HELD_S and _is_news(after, now):
            after = replace(after, reported=(number, slowest.cause, now))
            text = "; ".join(filter(None, (_slowness(rank, slowest), _advice(rank, slowest.cause))))
            news.append(StragglerNews(job=job, reason=Reason.STRAGGLER_FOUND, text=text))
    elif now - before.seen >= STRAGGLER_GONE_S:
        if before.reported is not None:
            text = f"rank {before.reported[0]} is as fast as the others again"
            news.append(StragglerNews(job=job, reason=Reason.STRAGGLER_GONE, text=text))
        after = Slowness(divided=before.divided)
    smallest = _smallest(ranks)
    if smallest is None:
        after = replace(after, divided=0.0)
    elif not after.divided or now - after.divided >= STRAGGLER_QUIET_S:
        after = replace(after, divided=now)
        text = _division(smallest)
        news.append(StragglerNews(job=job, reason=Reason.BATCHES_DIVIDED, text=text))
    return after, news


def named_straggler(
    ranks: Sequence[RankOfPod], stragglers: Sequence[SlowRank], before: int
) -> SlowRank:
    """The slowest rank, or the one of the last look while it is nearly as slow.

    Args:
        ranks: Ranks of the job.
        stragglers: The slow ones among them, the slowest first; at least one.
        before: Number of the rank that the last look named.
    """
    slowest = stragglers[0]
    return next(
        (
            slow
            for slow in stragglers
            if ranks[slow.at].figures.rank == before and slow.ratio >= AS_SLOW * slowest.ratio
        ),
        slowest,
    )


def _shown(
    slowness: Slowness, rank: RankOfPod, slowest: SlowRank, now: float
) -> StragglerRecord | None:
    """The rank that the status names next: another one, or another cause, must hold for longer."""
    before = slowness.shown
    current = StragglerRecord(
        rank=slowness.rank,
        pod=rank.pod,
        pod_uid=rank.pod_uid,
        node=rank.node,
        cause=slowness.cause,
        ratio_percent=round(100 * slowest.ratio),
        since=slowness.lasting,
    )
    if before is None:
        return current if now - slowness.since >= STRAGGLER_HELD_S else None
    same_rank = (before.rank, before.pod_uid) == (current.rank, current.pod_uid)
    if same_rank and before.cause is current.cause:
        return before if before.since == current.since else current
    if now - slowness.since >= STRAGGLER_SHOWN_S:
        return current
    return before


def _is_news(slowness: Slowness, now: float) -> bool:
    """True if no Event says it, or the last one is long ago."""
    reported = slowness.reported
    if reported is None or reported[:2] != (slowness.rank, slowness.cause):
        return True
    return now - reported[2] >= STRAGGLER_QUIET_S

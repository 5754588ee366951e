# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Eight tenants who each ask for as much as a spec can say: how much later do others get theirs?

One process, no cluster. Cost is a count of calls, so the figures are the same on every machine.
Others come one after another, on a cluster with and without the hostile tenants. Every decision is
made from scratch, as after a change that concerns everything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Final

from bench.decide_world import World
from bench.report import Figure
from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest, Share
from ullage.app.set_aside import SetAside
from ullage.app.watchdog import Watchdog
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.faults import TENANTS
from ullage.scheduling.model.plan import DecideSettings

HOSTILE: Final = 8
MOST_MEMBERS: Final = 4096
NODES: Final = 60
DEVICES: Final = 2
RESIDENTS: Final = 400
"""Jobs of others that run before."""
NEWCOMERS: Final = 24
"""Jobs of others that come, one for each decision."""
PATIENCE: Final = 40
"""Decisions after which a job that has no device counts as starved."""
LATER: Final = 1.2
SETTINGS: Final = DecideSettings(epoch=1)
_WIDE: Final = GPURequest(mode=GPUMode.FRACTIONAL, share=Share(min_percent=1, max_percent=100))
_SMALL: Final = GPURequest(mode=GPUMode.FRACTIONAL, share=Share(min_percent=5, max_percent=5))


@dataclass(slots=True)
class Waits:
    """What others waited, in calls of the decisions from a job's creation to its device."""

    calls: dict[str, int] = field(default_factory=dict)
    """By name of the job."""
    starved: int = 0
    """Jobs that had no device at the end."""
    aside: int = 0
    """Objects that no tenant wrote and that were set aside."""
    dearest: int = 0
    """Calls of the dearest decision."""


class Calls:
    """Counts calls."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is called inside."""
        before = sys.getprofile()
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _called(self, _: FrameType, event: str, __: Any) -> None:
        self.count += event in ("call", "c_call")


def waits(hostile: int, *, nodes: int = NODES, newcomers: int = NEWCOMERS) -> Waits:
    """What others wait beside so many hostile tenants.

    Args:
        hostile: Tenants, each with one elastic gang of up to 4,096 members.
        nodes: Of the cluster, with two devices each.
        newcomers: Jobs of others, whose waits are counted.
    """
    world, aside, found = World(), SetAside(), Waits()
    world.add_nodes(nodes, DEVICES)
    for _ in range(RESIDENTS * nodes // NODES):
        world.add_job(gpu=_SMALL)
    for _ in range(4):
        _decided(world, aside, found)
    found.dearest = 0
    for number in range(hostile):
        _add_wide(world, number)
    waiting: dict[str, WorkloadRecord] = {}
    for cycle in range(newcomers + PATIENCE):
        if cycle < newcomers:
            new = world.add_job(gpu=_SMALL)
            waiting[new.ref.uid] = new
        elif not waiting:
            break
        spent = _decided(world, aside, found)
        placed = {one.key.pod_uid for node in world.gpu_nodes.values() for one in node.desired}
        for uid, job in list(waiting.items()):
            found.calls[job.ref.name] = found.calls.get(job.ref.name, 0) + spent
            if world.pods_of.get(uid, set()) & placed:
                del waiting[uid]
    found.starved = len(waiting)
    return found


def _add_wide(world: World, number: int) -> None:
    """One gang of a hostile tenant, of a namespace of its own."""
    job = world.add_job(
        gpu=_WIDE,
        elasticity=Elasticity(min_replicas=1, max_replicas=MOST_MEMBERS),
        checkpoint=True,
    )
    space = f"hostile-{number}"
    ref = replace(job.ref, namespace=space, name=f"wide-{number}")
    world.workloads[ref.uid] = replace(job, ref=ref, trust_domain=f"namespace/{space}")


def _decided(world: World, aside: SetAside, found: Waits) -> int:
    """One decision from scratch, carried out; how many calls it took."""
    snapshot, calls = world.snapshot(), Calls()
    settings = replace(SETTINGS, aside=aside.of(snapshot, world.now))
    with Watchdog(snapshot), calls.counted():
        plan = decide(snapshot, world.now, settings)
        actions = diff(plan, snapshot)
    aside.decided(snapshot, plan.faults, world.now)
    held: Mapping[str, int] = aside.in_force()
    found.aside = max(
        found.aside, sum(count for table, count in held.items() if table not in TENANTS)
    )
    found.dearest = max(found.dearest, calls.count)
    if not aside.probes:
        world.carry_out(actions)
    world.beat(world.gpu_nodes)
    return calls.count


def tenants(*, nodes: int = NODES) -> dict[str, Figure]:
    """Flat figures for the report: medians, and how many jobs came later than the bar."""
    waits(1, nodes=2, newcomers=2)  # what a process does once, such as imports, counts for no one
    quiet, loud = waits(0, nodes=nodes), waits(HOSTILE, nodes=nodes)
    ratios = [one / two for one, two in zip(loud.calls.values(), quiet.calls.values(), strict=True)]
    return {
        "tenant_ratio_8": round(sum(loud.calls.values()) / sum(quiet.calls.values()), 3),
        "tenant_ratio_8_max": round(max(ratios), 3),
        "tenants_later": sum(ratio > LATER for ratio in ratios) + loud.starved,
        "innocent_nodes_aside": loud.aside,
        "tenant_calls_quiet": quiet.dearest,
        "tenant_calls_loud": loud.dearest,
    }

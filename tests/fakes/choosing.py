# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A small world with two types of device, prices that move, and jobs that follow them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import builders
from builders import Part, WorkloadBuilder, a_device, a_device_profile, a_gpu_node, a_profile
from ullage.api.reasons import Reason
from ullage.cluster.records.profile import ProfileRecord, ProfileStatus, SoloEntry
from ullage.cluster.records.status import Condition
from ullage.engines.admission.records import Fingerprint
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import DecideSettings, Emit, EvictPod, SetStatus
from ullage_simulate.world import World

MEMORY_MIB: Final = 40_000
RATES: Final = {"a100": 3.0, "t4": 1.0}
STEPS: Final = 360_000
"""A hundred hours on a t4, 33 on an a100."""
_MOST_CYCLES: Final = 30


def nodes(**devices: int) -> list[Part]:
    """A node of each type with so many devices."""
    return [
        a_gpu_node(
            f"node-{kind}",
            devices=[
                a_device(f"GPU-{kind}-{at}", model=kind, memory_mib=MEMORY_MIB)
                for at in range(count)
            ],
        )
        for kind, count in devices.items()
    ]


def known(**rates: float) -> ProfileRecord:
    """The class of the jobs, measured alone at these steps per second."""
    solo = tuple(
        SoloEntry(
            device=kind,
            share=100,
            steps_per_second=rate,
            samples=9,
            fingerprint=Fingerprint(peak_memory_mib=5_000),
        )
        for kind, rate in rates.items()
    )
    return replace(a_profile("resnet", workload_class="resnet"), status=ProfileStatus(solo=solo))


@dataclass(slots=True)
class Market:
    """The world, its clock, and who left for a better type when."""

    parts: list[Part]
    world: World = field(init=False)
    moves: list[tuple[str, float]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    wake_at: float = 0.0
    _cache: CycleCache = field(default_factory=CycleCache)

    def __post_init__(self) -> None:
        self.world = World(base=builders.a_snapshot(*self.parts), now=builders.NOW)

    def price(self, **prices: float) -> None:
        """The prices from now on."""
        profiles = {
            kind: replace(a_device_profile(kind, MEMORY_MIB), price_per_hour=price)
            for kind, price in prices.items()
        }
        self.world.base = replace(self.world.base, device_profiles=profiles)

    def add(self, *jobs: WorkloadBuilder) -> None:
        """Users apply jobs."""
        for one in jobs:
            job = one.with_(created=self.world.now).build()
            self.world.workloads[job.ref.uid] = job

    def settle(self) -> None:
        """Decide until nothing changes."""
        for _ in range(_MOST_CYCLES):
            snapshot = self.world.snapshot()
            plan = decide(
                snapshot, self.world.now, DecideSettings(epoch=builders.EPOCH), cache=self._cache
            )
            self.wake_at = plan.wake_at
            actions = diff(plan, snapshot)
            self.events += [
                (one.reason.value, one.target.name) for one in actions if isinstance(one, Emit)
            ]
            for one in actions:
                if isinstance(one, EvictPod) and one.reason is Reason.BETTER_CHOICE:
                    self.moves.append((one.owner.name, self.world.now))
            self.world.apply(actions)
            if all(isinstance(one, SetStatus) and one.passing for one in actions):
                return
        raise AssertionError("decisions never rest")

    def passes(self, seconds: float, every: float = 30.0) -> None:
        """Time passes, with a look now and then."""
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.now = min(end, self.world.now + every)
            self.settle()

    def types(self, name: str) -> list[str]:
        """Types of the devices that a job has."""
        uid = f"uid-default-{name}"
        return sorted(seen.gpu.split("-")[1] for _, seen in self.world.slices(uid))

    def condition(self, name: str) -> Condition | None:
        """Whether a job has what is recommended."""
        return self.world.workloads[f"uid-default-{name}"].status.condition("AsRecommended")

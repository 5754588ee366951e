# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An action that the picture cannot take costs its workload, never the cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from builders import a_gpu_node, a_job, a_snapshot
from fakes.virtual_time import LoopClock, run_virtual
from ullage.api.reasons import Reason
from ullage.app.effects import effect_of
from ullage.app.loop import DecisionLoop
from ullage.app.set_aside import SetAside
from ullage.app.trigger import Trigger
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import Snapshot
from ullage.kube.errors import FAILED, Refused
from ullage.ports import BadRequest, Invalid
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.faults import WORKLOADS
from ullage.scheduling.model.plan import (
    Action,
    ApplyGPUNode,
    CreatePod,
    DecideSettings,
    Plan,
    SetStatus,
)

BAD = "uid-one-bad"


class Inline:
    """Decides in this process, with what the memory sets aside; spoils the status of a job."""

    def __init__(self) -> None:
        self.aside = SetAside()

    async def run(
        self, snapshot: Snapshot, now: float, settings: DecideSettings
    ) -> tuple[Plan, tuple[Action, ...]]:
        aside = self.aside.of(snapshot, now)
        plan = decide(snapshot, now, replace(settings, aside=aside))
        self.aside.decided(snapshot, plan.faults, now)
        actions = diff(plan, snapshot)
        return plan, actions if aside else tuple(map(_spoilt, actions))


def _spoilt(action: Action) -> Action:
    """The status of the bad job becomes one that the picture does not take."""
    if isinstance(action, SetStatus) and action.owner.uid == BAD:
        return replace(action, status=replace(action.status, phase="Spoilt"))
    return action


class Rig:
    """The loop on a real picture."""

    def __init__(self) -> None:
        self.state = ClusterState(effect_of)
        self.solver = Inline()
        self.sent: list[Action] = []
        self.snapshot = a_snapshot(a_gpu_node(), a_job("bad", "one"), a_job("well", "two"))
        self.loop = DecisionLoop(
            state=self,
            writer=self,
            solver=self.solver,  # type: ignore[arg-type]
            trigger=Trigger(idle_s=0.05, max_s=0.5, resync_s=30.0),
            clock=LoopClock(),
            may_decide=lambda: "",
            settings=lambda: DecideSettings(epoch=1),
        )

    def freeze(self, now: float) -> Snapshot:
        return replace(self.snapshot, taken_at=now)

    def assume(self, actions: Sequence[Action], now: float) -> None:
        if any(isinstance(one, SetStatus) and one.status.phase == "Spoilt" for one in actions):
            raise OverflowError("date value out of range")
        self.state.assume(actions, now)

    def forget(self, action: Action) -> None: ...

    def expire(self, now: float, backpressure_ended_at: float = 0.0) -> int:
        return 0

    def refuse(
        self, key: tuple[str, str, str], refused: object, *, now: float, owner_uid: str = ""
    ) -> None: ...

    def next_retry(self) -> float | None:
        return None

    def submit(self, actions: Sequence[Action]) -> None:
        self.sent.extend(actions)


def cycles(count: int) -> Rig:
    async def main() -> Rig:
        rig = Rig()
        for _ in range(count):
            await rig.loop.cycle(frozenset({"pods"}))
        return rig

    return run_virtual(main())


def test_the_others_are_carried_out_in_the_same_cycle() -> None:
    rig = cycles(1)
    assert {one.owner.uid for one in rig.sent if isinstance(one, CreatePod)} >= {"uid-two-well"}
    assert BAD not in {one.owner.uid for one in rig.sent if isinstance(one, SetStatus)}
    assert rig.loop.stats.cycles == 1
    assert rig.solver.aside.in_force() == {WORKLOADS: 1}


def test_its_owner_is_told_in_the_next_cycle() -> None:
    rig = cycles(2)
    (told,) = [one for one in rig.sent if isinstance(one, SetStatus) and one.owner.uid == BAD]
    condition = told.status.condition("Invalid")
    assert condition is not None
    assert condition.reason == Reason.DECISION_FAILED


def test_a_status_that_the_writer_cannot_build_sets_its_workload_aside() -> None:
    async def main() -> Rig:
        rig = Rig()
        await rig.loop.cycle(frozenset({"pods"}))
        rig.solver.aside = SetAside()
        action = SetStatus(
            owner=rig.snapshot.workloads[BAD].ref,
            resource_version="1",
            status=rig.snapshot.workloads[BAD].status,
            epoch=1,
            reason=Reason.PLACED,
            text="",
        )
        cause = BadRequest(0, "it cannot be built or sent: TypeError: no", FAILED)
        rig.loop.written(action, Refused(Reason.WRITE_REFUSED, "TrainingJob", "one", "bad", cause))
        return rig

    assert run_virtual(main()).solver.aside.in_force() == {WORKLOADS: 1}


def test_a_slice_that_the_api_refuses_sets_its_workload_aside_not_the_node() -> None:
    async def main() -> Rig:
        rig = Rig()
        jobs = {name: a_job(name, space) for name, space in (("bad", "one"), ("well", "two"))}
        pods = {name: job.pods()[0] for name, job in jobs.items()}
        node = a_gpu_node(heartbeat=LoopClock().now())
        rig.snapshot = a_snapshot(node, *jobs.values(), *pods.values())
        await rig.loop.cycle(frozenset({"pods"}))
        (apply,) = [one for one in rig.sent if isinstance(one, ApplyGPUNode)]
        order = sorted(apply.slices, key=lambda one: one.key)
        number = [one.pod_name for one in order].index("bad-0")
        text = f'GPUNode "node-1" is invalid: spec.slices[{number}].family: Too long'
        rig.loop.written(apply, Invalid(422, text, "Invalid"))
        return rig

    rig = run_virtual(main())
    assert rig.solver.aside.in_force() == {WORKLOADS: 1}
    assert [one.key for one in rig.solver.aside.of(rig.snapshot, 0.0)] == [BAD]


def test_figures_that_cannot_be_counted_fail_no_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> Rig:
        rig = Rig()

        def look(*_: object) -> None:
            raise OverflowError("math range error")

        monkeypatch.setattr(rig.loop.outcomes, "look", look)
        await rig.loop.cycle(frozenset({"pods"}))
        return rig

    assert run_virtual(main()).loop.stats.cycles == 1

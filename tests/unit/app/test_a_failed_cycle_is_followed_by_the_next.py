# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One cycle that fails, wherever it does, costs that decision: it is counted and tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from structlog.testing import capture_logs

from builders import a_snapshot
from fakes.virtual_time import LoopClock, run_virtual
from ullage.app.loop import DecisionLoop
from ullage.app.solver import SolverTimeout
from ullage.app.times import CYCLE_RETRY_MOST_S, FAILING_S
from ullage.app.trigger import Trigger
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.plan import Action, DecideSettings, Plan


class Rig:
    """Picture, writer and solver in one; ``fails`` raises in the part it names."""

    def __init__(self) -> None:
        self.fails: dict[str, Exception] = {}
        self.obstacle = ""
        self.cycles: list[float] = []
        self.now = 0.0
        self.trigger = Trigger(idle_s=0.05, max_s=0.5, resync_s=30.0)
        self.loop = DecisionLoop(
            state=self,
            writer=self,
            solver=self,  # type: ignore[arg-type]
            trigger=self.trigger,
            clock=LoopClock(),
            may_decide=lambda: self.obstacle,
            settings=lambda: DecideSettings(epoch=1),
        )

    def _part(self, name: str) -> None:
        if name in self.fails:
            raise self.fails[name]

    def freeze(self, now: float) -> Snapshot:
        self.cycles.append(now)
        self._part("freeze")
        return a_snapshot(PolicyRecord())

    async def run(
        self, snapshot: Snapshot, now: float, settings: DecideSettings
    ) -> tuple[Plan, tuple[Action, ...]]:
        self._part("solver")
        return Plan(version=snapshot.version, epoch=settings.epoch, inputs_hash=""), ()

    def assume(self, actions: Sequence[Action], now: float) -> None: ...

    def forget(self, action: Action) -> None: ...

    def expire(self, now: float, backpressure_ended_at: float = 0.0) -> int:
        return 0

    def refuse(
        self, key: tuple[str, str, str], refused: object, *, now: float, owner_uid: str = ""
    ) -> None: ...

    def next_retry(self) -> float | None:
        return None

    def submit(self, actions: Sequence[Action]) -> None:
        self._part("submit")


def after(seconds: float, bend: Callable[[Rig], None]) -> Rig:
    """A loop that ran for so long, poked every 100 ms, after ``bend`` bent it at its start."""

    async def main() -> Rig:
        rig = Rig()
        bend(rig)
        task = asyncio.create_task(rig.loop.run())
        for _ in range(int(seconds * 10)):
            rig.trigger.poke("pods")
            await asyncio.sleep(0.1)
        rig.now = LoopClock().monotonic()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return rig

    with capture_logs():
        return run_virtual(main())


def age(rig: Rig) -> float:
    return float(rig.now - rig.loop.stats.last_completed)


def test_a_cycle_that_raises_never_ends_the_loop_and_is_no_completed_one() -> None:
    for part in ("freeze", "submit"):
        rig = after(70.0, lambda rig, part=part: rig.fails.update({part: KeyError("pod")}))  # type: ignore[misc]
        stats = rig.loop.stats
        assert stats.cycles == 0
        assert stats.failed == {"KeyError": len(rig.cycles)}
        assert stats.obstacle == "KeyError: 'pod'"
        assert age(rig) >= 70.0
        assert rig.loop.streak.own_seconds(rig.now) >= FAILING_S


def test_failed_cycles_come_ever_later_whatever_is_poked() -> None:
    rig = after(120.0, lambda rig: rig.fails.update({"freeze": KeyError("pod")}))
    gaps = [later - sooner for sooner, later in zip(rig.cycles, rig.cycles[1:], strict=False)]
    assert max(gaps) <= CYCLE_RETRY_MOST_S + 1.0
    assert 120.0 / CYCLE_RETRY_MOST_S <= len(rig.cycles) <= 120.0, "no hot loop, and no end"


def test_a_cycle_that_works_again_ends_the_streak() -> None:
    async def main() -> Rig:
        rig = Rig()
        rig.fails["freeze"] = KeyError("pod")
        task = asyncio.create_task(rig.loop.run())
        rig.trigger.poke("pods")
        await asyncio.sleep(100.0)
        rig.fails.clear()
        await asyncio.sleep(CYCLE_RETRY_MOST_S + 1.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        rig.now = LoopClock().monotonic()
        return rig

    with capture_logs():
        rig = run_virtual(main())
    assert rig.loop.stats.cycles > 0
    assert rig.loop.stats.obstacle == ""
    assert rig.loop.streak.own_seconds(rig.now) == 0.0


def test_a_skipped_cycle_is_no_completed_one_and_says_why() -> None:
    rig = after(40.0, lambda rig: setattr(rig, "obstacle", "not-synced"))
    assert rig.loop.stats.obstacle == "not-synced"
    assert rig.loop.stats.skipped["not-synced"] > 0
    assert age(rig) >= 40.0


def test_a_solver_that_fails_is_asked_again_and_brings_no_completed_cycle() -> None:
    rig = after(60.0, lambda rig: rig.fails.update(solver=SolverTimeout("no decision within 5 s")))
    assert (
        rig.loop.stats.failed["SolverTimeout"]
        == len(rig.cycles)
        > 60.0 / (CYCLE_RETRY_MOST_S + 1.0)
    )
    assert rig.loop.stats.obstacle == "SolverTimeout: no decision within 5 s"
    assert age(rig) >= 60.0
    assert rig.loop.streak.own_seconds(rig.now) == 0.0

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A decision that times out and one that crashes are told apart, whatever their texts say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from builders import a_snapshot
from ullage.app.loop import DecisionLoop
from ullage.app.solver import SolverCrashed, SolverTimeout
from ullage.app.trigger import Trigger
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition
from ullage.kube.clock import SystemClock
from ullage.scheduling.model.plan import Action, DecideSettings, Plan, SetConditions


class Broken:
    """A solver that fails, or one that is well again."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    async def run(
        self, snapshot: Snapshot, now: float, settings: DecideSettings
    ) -> tuple[Plan, tuple[Action, ...]]:
        if self.error is not None:
            raise self.error
        return Plan(version=snapshot.version, epoch=settings.epoch, inputs_hash=""), ()


class Memory:
    """Stands for the picture and the writer."""

    def __init__(self, policy: PolicyRecord) -> None:
        self.snapshot = a_snapshot(policy)
        self.sent: list[Action] = []

    def freeze(self, now: float) -> Snapshot:
        return self.snapshot

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
        self.sent += actions


async def _said(error: Exception | None, *shown: Condition) -> Condition:
    memory = Memory(PolicyRecord(uid="uid-default", conditions=shown))
    loop = DecisionLoop(
        state=memory,
        writer=memory,
        solver=Broken(error),  # type: ignore[arg-type]
        trigger=Trigger(idle_s=0.0, max_s=0.0, resync_s=1.0),
        clock=SystemClock(),
        may_decide=lambda: "",
        settings=lambda: DecideSettings(epoch=1),
    )
    await loop.cycle(frozenset({"test"}))
    (action,) = memory.sent
    assert isinstance(action, SetConditions)
    return action.conditions[-1]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SolverTimeout("it took too long"), "SolverTimeout"),
        (SolverCrashed("the answer was not within reach"), "SolverCrashed"),
    ],
)
async def test_a_timeout_and_a_crash_are_told_apart_by_what_they_are(
    error: Exception, reason: str
) -> None:
    said = await _said(error)
    assert (said.type, said.status, said.reason) == ("SolverDegraded", "True", reason)
    assert said.message == str(error)


async def test_the_policy_says_when_decisions_come_again() -> None:
    shown = Condition(type="SolverDegraded", status="True", reason="SolverTimeout")
    said = await _said(None, shown)
    assert (said.status, said.reason) == ("False", "Completed")

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slow ranks reach decisions once they are known, and ask for a decision when they change only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from fakes.clock import FakeClock
from ullage.app import straggler_service
from ullage.app.straggler_service import StragglerService
from ullage.app.tuning_service import BackgroundHooks
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.straggler import StragglerRecord
from ullage.engines.stragglers.detector import SlowCause
from ullage.scheduling.observation.stragglers import Slowness, StragglerNews

SLOW = StragglerRecord(
    rank=1,
    pod="digits-1",
    pod_uid="uid-1",
    node="node-1",
    cause=SlowCause.COMPUTE,
    ratio_percent=200,
    since=0.0,
)


@dataclass
class Rig:
    """The service of a leader whose ranks a test names."""

    clock: FakeClock = field(default_factory=FakeClock)
    epoch: int | None = 1
    slow: Mapping[str, StragglerRecord | None] = field(default_factory=dict)
    pokes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = ClusterState(lambda _: None)
        hooks = BackgroundHooks(
            synced=lambda: True,
            epoch=lambda: self.epoch,
            submit=lambda _: None,
            poke=self.pokes.append,
        )
        self.service = StragglerService(self.state, hooks, clock=self.clock)

    def look(
        self, snapshot: Snapshot, before: Mapping[str, Slowness], now: float
    ) -> tuple[Mapping[str, Slowness], list[StragglerNews]]:
        del snapshot, before, now
        return {uid: Slowness(shown=shown) for uid, shown in self.slow.items()}, []

    def after(self, seconds: float) -> Mapping[str, StragglerRecord] | None:
        """Slow ranks that decisions see after another look."""
        self.clock.advance(seconds)
        self.service.look()
        return self.state.freeze(self.clock.now()).stragglers


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    rig = Rig()
    monkeypatch.setattr(straggler_service, "look", rig.look)
    return rig


def test_nothing_is_known_at_first(rig: Rig) -> None:
    rig.slow = {"uid": SLOW}
    assert rig.after(0) is None
    assert rig.after(30) is None
    assert rig.after(30) == {"uid": SLOW}
    assert rig.pokes == ["stragglers"]


def test_only_a_change_asks_for_a_decision(rig: Rig) -> None:
    rig.after(0)
    assert rig.after(60) == {}
    rig.slow = {"uid": SLOW, "other": None}
    assert rig.after(10) == {"uid": SLOW}
    version = rig.state.version
    assert rig.after(10) == {"uid": SLOW}
    assert rig.state.version == version
    rig.slow = {"uid": replace(SLOW, cause=SlowCause.DATA)}
    rig.after(10)
    assert rig.pokes == ["stragglers"] * 3


def test_another_leadership_begins_anew(rig: Rig) -> None:
    rig.slow = {"uid": SLOW}
    rig.after(0)
    rig.after(60)
    rig.service.end_term()
    rig.state.end_term()
    rig.epoch = None
    assert rig.after(600) is None
    rig.epoch = 2
    assert rig.after(0) is None
    assert rig.after(60) == {"uid": SLOW}

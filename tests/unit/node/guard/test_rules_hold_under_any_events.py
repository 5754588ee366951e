# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever happens in whatever order: no one stands still too long, too often, or for no reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.guard_rig import a_tenant, a_window
from ullage_node.guard.machine import GuardMachine
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import Action, Ended, Freeze, GuardTenant, Thaw

EVERYBODY = (
    a_tenant("victim", protected=True),
    a_tenant("second", protected=True, gpus=("gpu-1",)),
    a_tenant("noise"),
    a_tenant("short", freeze_seconds=3.0),
    a_tenant("novel", protected=True, probation=True),
    a_tenant("gang-a", gang="g"),
    a_tenant("gang-b", gang="g", gpus=("gpu-1",)),
    a_tenant("split", gang="h", gang_here=False, gpus=("gpu-1",)),
)
NAMES = [tenant.pod for tenant in EVERYBODY]
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("window"),
            st.sampled_from(NAMES[:2]),
            st.sampled_from([0.0, 0.5, 0.95, 1.5, 3.0]),
        ),
        st.tuples(st.just("pass"), st.sampled_from([0.1, 1.0, 2.5, 11.0, 61.0]), st.just(None)),
        st.tuples(st.just("away"), st.sampled_from(NAMES), st.just(None)),
        st.tuples(st.just("leaving"), st.sampled_from(NAMES), st.just(None)),
        st.tuples(st.just("back"), st.sampled_from(NAMES), st.just(None)),
        st.tuples(st.just("trouble"), st.sampled_from(NAMES[:2]), st.just(None)),
        st.tuples(st.just("lost"), st.just(""), st.just(None)),
    ),
    max_size=80,
)


@dataclass
class World:
    """The machine, a freezer that may fail, and what must hold at every moment."""

    fails: list[bool]
    machine: GuardMachine = field(default_factory=GuardMachine)
    tenants: dict[str, GuardTenant] = field(default_factory=lambda: {t.pod: t for t in EVERYBODY})
    now: float = 0.0
    frozen: dict[ContainerKey, float] = field(default_factory=dict)
    """Who stands still, until when."""
    started: int = 0
    ended: int = 0

    def do(self, actions: Iterable[Action]) -> None:
        known = {tenant.key: tenant for tenant in self.tenants.values()}
        for action in actions:
            if isinstance(action, Freeze):
                self.started += 1
                assert not self.frozen.keys() & set(action.keys)
                for key in action.keys:
                    tenant = known[key]
                    assert tenant.best_effort
                    assert tenant.gang_here
                    assert not tenant.leaving
                    assert action.limit_seconds <= tenant.freeze_seconds
                gangs = {known[key].gang for key in action.keys if known[key].gang}
                whole = {key for key, tenant in known.items() if tenant.gang in gangs}
                assert whole <= set(action.keys)
                failed = self.fails.pop() if self.fails else False
                if not failed:
                    self.frozen |= dict.fromkeys(action.keys, self.now + action.limit_seconds)
                self.do(self.machine.answered(action.pause, "no" if failed else "", self.now))
            elif isinstance(action, Thaw):
                for key in action.keys:
                    self.frozen.pop(key, None)
            elif isinstance(action, Ended):
                self.ended += 1

    def step(self, what: str, which: object, ratio: float | None) -> None:
        if what == "trouble":
            for _ in range(2):
                self.step("window", which, 3.0)
            return
        if what == "pass":
            assert isinstance(which, float)
            self.now += which
        elif what == "window":
            self.now += 1.0
            window = a_window(str(which), ratio or 0.0, self.now - 1.0, self.now)
            self.do(self.machine.window(window, self.now))
        elif what == "lost":
            self.do(self.machine.lost("gone", self.now))
        else:
            self.change(what, str(which))
        self.do(self.machine.see(self.tenants.values(), self.now))
        self.do(self.machine.tick(self.now))

    def change(self, what: str, name: str) -> None:
        original = next(tenant for tenant in EVERYBODY if tenant.pod == name)
        if what == "away":
            self.tenants.pop(name, None)
        else:
            self.tenants[name] = replace(original, leaving=what == "leaving")

    def check(self) -> None:
        assert self.machine.frozen == self.frozen.keys()
        # to the microsecond: times are sums of floats
        assert all(self.now < until + 1e-6 for until in self.frozen.values())
        assert self.frozen.keys() <= {tenant.key for tenant in self.tenants.values()}
        assert bool(self.frozen) == (self.started > self.ended)


@settings(max_examples=150, deadline=None)
@given(events=EVENTS, fails=st.lists(st.booleans(), max_size=10))
def test_no_one_stands_still_too_long_or_unasked(
    events: list[tuple[str, object, float | None]], fails: list[bool]
) -> None:
    world = World(fails=fails)
    world.do(world.machine.see(world.tenants.values(), world.now))
    for what, which, ratio in events:
        world.step(what, which, ratio)
        world.check()
    world.now += 20
    world.do(world.machine.tick(world.now))
    assert world.frozen == {}
    assert world.started == world.ended

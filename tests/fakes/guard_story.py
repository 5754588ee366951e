# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A guard's machine told one window after another, for tests of its rules."""

from __future__ import annotations

from typing import TypeVar

from fakes.guard_rig import VICTIM, a_tenant, a_window
from ullage.api.reasons import Reason
from ullage_node.guard.machine import GuardLimits, GuardMachine
from ullage_node.model.guard import Action, Freeze, GuardTenant, Tell

Kind = TypeVar("Kind")
NOISE = a_tenant("noise")


class Story:
    """A machine and the second it is at; windows of one second follow one another."""

    def __init__(self, *tenants: GuardTenant, limits: GuardLimits | None = None) -> None:
        self.machine = GuardMachine(limits)
        self.tenants = list(tenants or (VICTIM, NOISE))
        self.now = 100.0
        self.machine.see(self.tenants, self.now)

    def window(
        self, ratio: float, *, name: str = "victim", seconds: float = 1.0, step_micros: int = 50_000
    ) -> list[Action]:
        begin, self.now = self.now, self.now + seconds
        window = a_window(name, ratio, begin, self.now, step_micros=step_micros)
        return self.machine.window(window, self.now)

    def freeze(self, *ratios: float, problem: str = "") -> Freeze:
        """Windows until someone is to be stopped, and the freezer's answer."""
        for ratio in ratios or (2.0, 2.0):
            actions = self.window(ratio)
        asked = one(actions, Freeze)
        self.machine.answered(asked.pause, problem, self.now)
        return asked

    def wait(self, seconds: float) -> list[Action]:
        self.now += seconds
        return self.machine.tick(self.now)

    def see(self, *tenants: GuardTenant) -> list[Action]:
        self.tenants = list(tenants)
        return self.machine.see(tenants, self.now)


def one(actions: list[Action], kind: type[Kind]) -> Kind:
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def some(actions: list[Action], kind: type[Kind]) -> list[Kind]:
    return [action for action in actions if isinstance(action, kind)]


def reasons(actions: list[Action]) -> list[Reason]:
    return [action.reason for action in actions if isinstance(action, Tell)]

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers the probes: ready when it can work now, alive when a restart would not help.

An API server that is away makes a replica unready and never ends it: Kubernetes would start it
again ever later, and it would be missing when the server is back. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.app.times import FAILING_S, LOOP_LAG_MOST_S


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """Input of the health check; every age in seconds.

    Attributes:
        loop_lag_s: How late the event loop is.
        untested: Why the self-test has not passed yet.
        lease_failing_s: How long no look at the Lease has succeeded.
        lease_error: How the last one failed.
        leading: This replica holds the Lease.
        decision_age_s: Since the last decision of this leadership, or since it began.
        cycle_age_s: Since the last look at whether to decide.
        max_age_s: Most that either may reach where this replica leads.
        obstacle: Why the last cycle brought no decision.
        cycles_failing_s: How long cycles have been failing by a fault of their own.
        behind: Streams that are not in step with the API server, and why.
        stuck: Streams that only a restart can mend, and why.
        failing_tasks: Tasks in the background that fail again and again, and how.
    """

    loop_lag_s: float
    is_leader: bool
    decision_age_s: float
    cycle_age_s: float
    max_age_s: float
    untested: str = ""
    lease_failing_s: float = 0.0
    lease_error: str = ""
    obstacle: str = ""
    cycles_failing_s: float = 0.0
    behind: Mapping[str, str] = field(default_factory=dict)
    stuck: Mapping[str, str] = field(default_factory=dict)
    failing_tasks: Mapping[str, str] = field(default_factory=dict)


def health_problems(view: HealthView) -> list[str]:
    """Problems that a restart may fix; empty = this process is healthy."""
    problems = [f"stream {name}: {why}" for name, why in sorted(view.stuck.items())]
    if view.loop_lag_s > LOOP_LAG_MOST_S:
        problems.append(f"event loop lags {view.loop_lag_s:.1f} s")
    if view.is_leader and view.cycle_age_s > view.max_age_s:
        problems.append(f"no decision was tried for {view.cycle_age_s:.0f} s")
    if view.is_leader and view.cycles_failing_s >= FAILING_S:
        problems.append(f"decisions fail for {view.cycles_failing_s:.0f} s: {view.obstacle}")
    problems += [f"task {name} fails: {why}" for name, why in sorted(view.failing_tasks.items())]
    return problems


def readiness_problems(view: HealthView) -> list[str]:
    """Why this replica does not do its work now; a standby's work is to follow the server."""
    if view.untested:
        return [f"self-test: {view.untested}", *health_problems(view)]
    problems = [f"{name} is not synced: {why}" for name, why in sorted(view.behind.items())]
    if view.lease_failing_s >= FAILING_S:
        problems.append(
            f"no look at the Lease for {view.lease_failing_s:.0f} s: {view.lease_error}"
        )
    if view.is_leader and view.decision_age_s > view.max_age_s:
        why = f": {view.obstacle}" if view.obstacle else ""
        problems.append(f"no decision completed for {view.decision_age_s:.0f} s{why}")
    return problems + health_problems(view)

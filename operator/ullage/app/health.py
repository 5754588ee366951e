# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers the probes: ready when it can work now, alive unless a restart would help.

An unavailable API server makes a replica unready and never ends it: Kubernetes would restart it
with growing back-off, and it would be missing when the server is back. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.app.times import FAILING_S, LOOP_LAG_MOST_S


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """Input of the health check; every age in seconds.

    Attributes:
        loop_lag_s: Lag of the event loop.
        untested: Reason why the self-test has not passed yet; empty = it has.
        lease_failing_s: Seconds since a successful access to the Lease.
        lease_error: Failure of the last access.
        leading: This replica holds the Lease.
        decision_age_s: Seconds since the last decision of this leadership, or its start.
        cycle_age_s: Seconds since the last cycle began.
        max_age_s: Limit of both ages where this replica leads.
        obstacle: Reason why the last cycle made no decision.
        cycles_failing_s: Seconds for which cycles have failed by a fault of their own.
        behind: Streams out of sync with the API server, with the reason.
        stuck: Streams that only a restart can repair, with the reason.
        failing_tasks: Background tasks that fail repeatedly, with the failure.
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
    """Reasons why this replica does not work now; a standby's work is to follow the server."""
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

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Back-off of gangs after a failure, a refusal or a preemption.

Each back-off doubles up to a limit; the settings of a decision have its base and its limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ullage.cluster.records.workload import WorkloadRecord
from ullage.process.doubling import doubled_s
from ullage.scheduling.model.view import Member, View

CALM_FACTOR: Final = 2.0
"""Multiple of the longest back-off without a preemption that resets the count in a row."""

MOST_PREEMPTIONS: Final = 2**31 - 1
"""Maximum of ``status.scheduling.preemptions``: an int32."""


def after_failure_s(view: View, restarts: int) -> float:
    """Seconds until a failed gang starts again, after ``restarts`` earlier restarts."""
    settings = view.settings
    return doubled_s(settings.restart_backoff_s, restarts, settings.restart_backoff_max_s)


def after_refusals_s(view: View, members: Sequence[Member]) -> float:
    """Seconds until members that nodes refused are created again; 0 = at once.

    Without a back-off the pods of an unplaceable job would be created and deleted continuously, at
    the cost of the node and of all pending work.
    """
    remembered = view.snapshot.refused_starts
    most = max(
        (len(remembered.get((member.pod.namespace, member.pod.name), ())) for member in members),
        default=0,
    )
    return after_failure_s(view, most - 2) if most >= 2 else 0.0


def after_pull_failure_s(view: View, workload: WorkloadRecord) -> float:
    """Seconds until a workload whose image could not be pulled now is placed again.

    At least as long as it held its share idle.
    """
    settings, before = view.settings, workload.status.scheduling.pull_failures
    return doubled_s(settings.start_timeout_s, before, settings.restart_backoff_max_s)


def after_preemption_s(view: View, job: WorkloadRecord) -> float:
    """Seconds until a job that is preempted now competes for room again."""
    settings = view.settings
    return doubled_s(
        settings.preemption_backoff_s,
        preemptions_in_a_row(view, job) - 1,
        settings.preemption_backoff_max_s,
    )


def preemptions_in_a_row(view: View, job: WorkloadRecord) -> int:
    """Number of consecutive preemptions, including a current one; 1 = it is the first."""
    state = job.status.scheduling
    forgotten_s = CALM_FACTOR * view.settings.preemption_backoff_max_s
    if not state.preemptions or view.now - state.preempted_at >= forgotten_s:
        return 1
    return min(state.preemptions + 1, MOST_PREEMPTIONS)

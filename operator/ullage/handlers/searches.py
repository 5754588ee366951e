# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a TuningJob: its trials stop, and results that exist are counted before it goes.

Steps of the search do both; nothing is done here but to wait for them.
"""

from __future__ import annotations

from typing import Final

from ullage.api.readers import JsonObject
from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import ObjectRef
from ullage.handlers.ends import LeaderContext, Left, Life, stated
from ullage.ports import TUNING_JOB
from ullage.scheduling.model.phases import OVER


def is_under_way(item: JsonObject) -> bool:
    """Whether a TuningJob is not over, whatever else it says."""
    return stated(item, "status", "phase") not in OVER


def left(leader: LeaderContext, search: ObjectRef, now: float) -> Left:
    """Trials that still run, or whose result is not counted."""
    job = leader.state.tuning_jobs().get((search.namespace, search.name))
    if job is None or job.ref.uid != search.uid or not job.deleting:
        return Left()  # it was never read as it is now, so no step knows that it ends
    counted = {(result.trial, result.epoch) for result in job.status.results}
    workloads = leader.state.freeze(now).workloads
    runs = [workloads[uid] for uid in leader.state.trials_of(search.uid)]
    open_runs = sum(
        run.trial is not None
        and run.ref.namespace == search.namespace
        and (run.trial.trial, run.trial.until_epoch) not in counted
        for run in runs
    )
    begins = "its trials stop; it goes once results that exist are counted"
    return Left(text=f"{open_runs} trials are", begins=begins) if open_runs else Left()


LIFE: Final = Life(kind=TUNING_JOB, reason=Reason.TRIALS_STOP, lives=is_under_way, left=left)

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of stops: exit code 0 of a pod that was asked to end is no success."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

POD: Final = "operator/ullage/cluster/projection/pod.py"
ENDS: Final = "operator/ullage/scheduling/lifecycle/termination.py"
LIFE: Final = "operator/ullage/scheduling/lifecycle/training.py"
STATUS: Final = "operator/ullage/scheduling/status/workload_status.py"

STOPS: Final = ("tests/unit/scheduling/test_a_stop_is_not_an_end.py",)
HISTORIES: Final = ("tests/property/test_a_stop_never_succeeds.py",)

MUTANTS: Final = (
    Mutant(
        "who was asked to end has not succeeded",
        POD,
        "if stage is PodStage.SUCCEEDED and not ended_first:",
        "if stage is PodStage.FAILED and not ended_first:",
        STOPS,
    ),
    Mutant(
        "a disruption without a deletion is a stop",
        POD,
        'if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"',
        'if condition.get("type") == "DisruptionTarget" and condition.get("status") == "False"',
        STOPS,
    ),
    Mutant(
        "clocks of nodes may be late",
        POD,
        "0 < ended_at < stop_asked - CLOCKS_APART_S",
        "0 < ended_at < stop_asked",
        STOPS,
    ),
    Mutant(
        "a failure after a deletion is not counted",
        POD,
        "disrupted=disrupted or (stage is PodStage.FAILED and not ended_first),",
        "disrupted=disrupted,",
        STOPS,
    ),
    Mutant(
        "only all declared steps make a stop an end",
        ENDS,
        "counted_steps(view, job, members) >= job.work_steps",
        "counted_steps(view, job, members) >= job.work_steps - 1",
        STOPS,
    ),
    Mutant(
        "only one may be stopped after all others had ended",
        ENDS,
        "and len(stopped) == 1",
        "",
        STOPS,
    ),
    Mutant(
        "the others had ended before it was stopped",
        ENDS,
        "0 < member.pod.ended_at < stop_asked for member in ended",
        "0 < member.pod.ended_at for member in ended",
        HISTORIES,
    ),
    Mutant(
        "members that have ended stay until the last one has",
        LIFE,
        "last = last_at_work(members)  # succeeded members stay until its exit code is known",
        "last = None  # succeeded members stay until its exit code is known",
        STOPS,
    ),
    Mutant(
        "progress is no more than was counted",
        STATUS,
        "if stopped and counted_steps(view, workload, inputs.members) < workload.work_steps:",
        "if stopped and not workload.work_steps:",
        STOPS,
    ),
)

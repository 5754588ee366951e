# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of TuningJobs and their trials. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

_REPORT: Final = (
    "Call ullage_run.tuning.report(epoch, value) at the end of each epoch, and end after the epoch "
    "in ULLAGE_TRIAL_EPOCHS."
)

TUNING: Final[Mapping[Reason, Explanation]] = {
    Reason.TRIALS_RUN: say("Trials of the search run or wait for devices.", "Nothing."),
    Reason.SEARCH_ENDED: say(
        "Every trial has ended; status.bestTrial holds the best parameters.", "Nothing."
    ),
    Reason.NO_RESULT: say(
        "Every trial has ended, and none has a value.",
        "See status.results for the reasons, and the logs of the trials. " + _REPORT,
    ),
    Reason.WAITS_FOR_SUGGESTIONS: say(
        "Every suggested trial has ended, and the external client may suggest more.",
        "Nothing while the client runs; afterwards, set spec.suggestionsEnded to true.",
    ),
    Reason.SUGGESTION_REFUSED: say(
        "A suggested trial lacks a parameter, has one outside the search space, or would run "
        "beyond algorithm.maxEpochs.",
        "Let the client choose parameters from spec.searchSpace, under a new trial number.",
    ),
    Reason.TOO_MANY_TRIALS_FAILED: say(
        "More trials failed than spec.maxFailedTrials allows; the running ones were stopped.",
        "Look at the logs of the failed trials, fix the program, and create the TuningJob again.",
    ),
    Reason.TRIAL_STARTED: say("The TrainingJob of a trial was created.", "Nothing."),
    Reason.TRIAL_RESIZED: say(
        "A trial gets more or less of a device, because its group is expected to end sooner, or "
        "because no device had room for it; a running one resumes from its checkpoint.",
        "Nothing. Leave out spec.resources for trials that never change.",
    ),
    Reason.TRIAL_STOPPED: say(
        "The trial does not go on: others of its group were better, or the search has ended.",
        "Nothing.",
    ),
    Reason.TRIAL_FAILED: say(
        "The TrainingJob of a trial failed; the trial has no value and does not go on.",
        "Look at the logs of the trial.",
    ),
    Reason.GROUP_FINISHED: say(
        "Every trial of a group has ended, and the best of them go on.", "Nothing."
    ),
    Reason.MAKESPAN_ESTIMATED: say(
        "The first trial has ended; status.groups shows when groups will have ended.", "Nothing."
    ),
    Reason.NOTHING_MEASURED: say(
        "No trial has ended yet, so it is unknown how long trials take.", "Nothing."
    ),
    Reason.NO_TRIAL_RUNS: say(
        "Trials are due, and for ten minutes none has run, started or ended. The message names "
        "what their TrainingJobs wait for.",
        "Look up the named reasons; `kubectl ullage why` explains each TrainingJob.",
    ),
    Reason.NO_DEVICE_FITS: say(
        "Even an empty cluster has no device that could take a trial.",
        "Request less in spec.trialTemplate.gpu, allow more accelerators, or add nodes. A change "
        "counts for trials that start later; delete the TrainingJobs that wait.",
    ),
    Reason.METRIC_MISSING: say(
        "A trial succeeded but reported no value for the epoch at which trials are compared.",
        _REPORT,
    ),
    Reason.METRIC_NOT_A_NUMBER: say(
        "A trial reported a value that is not a finite number; it does not go on.",
        "Nothing if training diverged; otherwise report a plain number.",
    ),
}

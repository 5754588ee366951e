# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains where a search and its trials are. Standard library only."""

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
        "Look at status.results for the reasons, and at the pods of the trials. " + _REPORT,
    ),
    Reason.WAITS_FOR_SUGGESTIONS: say(
        "Every trial that a client outside asked for has ended, and it may ask for more.",
        "Nothing while the client runs. Else set spec.suggestionsEnded to true.",
    ),
    Reason.SUGGESTION_REFUSED: say(
        "A trial that a client outside asked for has parameters that are not in the search space, "
        "lacks one, or is to run beyond algorithm.maxEpochs.",
        "Let the client draw from spec.searchSpace. The trial's number is used up.",
    ),
    Reason.TOO_MANY_TRIALS_FAILED: say(
        "More trials failed than spec.maxFailedTrials allows; those that ran were stopped.",
        "Look at the pods of the trials that failed, mend the program, and create the TuningJob "
        "again.",
    ),
    Reason.TRIAL_STARTED: say("The TrainingJob of a trial was created.", "Nothing."),
    Reason.TRIAL_STOPPED: say(
        "A trial does not go on: others of its group were better, or the search has ended.",
        "Nothing.",
    ),
    Reason.TRIAL_FAILED: say(
        "The TrainingJob of a trial failed; the trial has no value and does not go on.",
        "Look at the pods of the trial.",
    ),
    Reason.GROUP_FINISHED: say(
        "Every trial of a group has ended, and it is decided which go on.", "Nothing."
    ),
    Reason.METRIC_MISSING: say(
        "A trial ended well and reported no value for the epoch at which trials are compared.",
        _REPORT,
    ),
    Reason.METRIC_NOT_A_NUMBER: say(
        "A trial reported a value that is no finite number; it does not go on.",
        "Nothing if training diverged. Else report a plain number.",
    ),
}

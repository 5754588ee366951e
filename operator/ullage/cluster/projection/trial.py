# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which trial a TrainingJob runs, by what the operator wrote into its metadata.

Names are fixed, so labels that do not match the name are not the operator's.
"""

from __future__ import annotations

import json
from typing import Final

from ullage.api.labels import ANNOTATION_TRIAL_EPOCH, ANNOTATION_TRIAL_PARAMETERS, LABEL_TRIAL
from ullage.api.tuningjob import LONGEST_VALUE, MOST_PARAMETERS
from ullage.cluster.codecs.objects import Meta
from ullage.cluster.records.snapshot import TrialOf
from ullage.cluster.values.names import number_of, trial_run_name

KIND: Final = "TuningJob"
_LONGEST_JSON: Final = 8_192


def read_trial(meta: Meta) -> TrialOf | None:
    """The trial; ``None`` = the TrainingJob runs none.

    Args:
        meta: Of a TrainingJob.
    """
    tuning = meta.controller
    if tuning is None or not tuning.ours or tuning.kind != KIND:
        return None
    trial = number_of(meta.labels.get(LABEL_TRIAL, ""))
    until_epoch = number_of(meta.annotations.get(ANNOTATION_TRIAL_EPOCH, ""))
    if trial < 0 or until_epoch < 1:
        return None
    if meta.name != trial_run_name(tuning.name, trial, until_epoch):
        return None
    return TrialOf(
        tuning_uid=tuning.uid,
        trial=trial,
        until_epoch=until_epoch,
        parameters=_parameters(meta.annotations.get(ANNOTATION_TRIAL_PARAMETERS, "")),
    )


def _parameters(said: str) -> tuple[tuple[str, str], ...]:
    """Parameters as the operator wrote them; none where that is not readable any more."""
    if not said or len(said) > _LONGEST_JSON:
        return ()
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(found, dict) or len(found) > MOST_PARAMETERS:
        return ()
    if not all(_is_plain(name) and _is_plain(value) for name, value in found.items()):
        return ()
    return tuple(sorted(found.items()))


def _is_plain(said: object) -> bool:
    return isinstance(said, str) and len(said) <= LONGEST_VALUE and said.isprintable()

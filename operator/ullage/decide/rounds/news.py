# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What owners are told once of the division of time, beside what every change of place tells."""

from __future__ import annotations

from ullage.api.contract import Reason
from ullage.decide.model import Emit
from ullage.decide.rounds.words import GUESSED, estimate_text
from ullage.state.records import WorkloadRecord
from ullage.state.status import WorkloadStatus


def turn_news(workload: WorkloadRecord, status: WorkloadStatus, epoch: int) -> tuple[Emit, ...]:
    """The Event for a job whose part rests on a guess from now on."""
    before, now = workload.status.allocation, status.allocation
    if now is None or now.source not in GUESSED:
        return ()
    if before is not None and before.source in GUESSED:
        return ()
    return (
        Emit(
            target=workload.ref,
            warning=False,
            epoch=epoch,
            reason=Reason.ESTIMATE_USED,
            text=estimate_text(now),
        ),
    )

# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""That a job made room for another: ``status.madeRoom``, as a record.

What it says binds the job's next start and outlives the operator: without it a job would take the
room back that it gave, and be asked for it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ullage.api.wire_fields import NEEDED, Moment, Name, Percent, Word, at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRoom:
    """The job's last restart with a smaller share to make room for another workload."""

    time: Moment
    """Time of the restart request; for ten minutes the job's starts request at most percent."""
    percent: Percent
    """Share that the job keeps, in percent of the device."""
    node: Name
    """Node of that device."""
    gpu: Name
    """UUID of the device."""
    beneficiary: Annotated[Name, at_most(1024)]
    """Namespace and name of the workload that got the rest."""
    beneficiary_uid: Annotated[Word, NEEDED]
    """UID of that workload; once it is gone, the limit no longer applies."""

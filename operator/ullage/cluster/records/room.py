# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""That a job made room for another: ``status.madeRoom``, as a record.

What it says binds the job's next start and outlives the operator: without it a job would take the
room back that it gave, and be asked for it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.api.wire_fields import Moment, Name, Percent


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRoom:
    """The last time that a job was restarted with a smaller share for the sake of another.

    ``percent`` is the most that it was left, ``node`` and ``gpu`` the device where it keeps that
    much, ``beneficiary`` (namespace/name) and ``beneficiary_uid`` who got the rest.
    """

    time: Moment
    percent: Percent
    node: Name
    gpu: Name
    beneficiary: Name
    beneficiary_uid: Name

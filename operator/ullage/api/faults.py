# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of devices on the wire: which fault a node saw, and which pods were there.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ullage.api.codec import Wire
from ullage.api.wire_fields import (
    CLASS,
    KEPT,
    NEEDED,
    Listed,
    Moment,
    Name,
    Schema,
    Text,
    Word,
    at_most,
    between,
    keyed,
)
from ullage.api.xids import MAX_XID

MAX_FAULTS: Final = 16
"""Most faults that one node keeps in its status."""
MAX_SUSPECTS: Final = 16
"""Most pods that one fault names; two would do to say that none of them is certain."""
SUSPECTS: Final = Listed(
    most=MAX_SUSPECTS,
    rank="index",
    says=Schema(description="Which of the suspects, from 0."),
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Suspect(Wire):
    """A pod that held a slice of the device when it faulted."""

    pod_uid: Annotated[Word, NEEDED]
    """UID of the pod."""
    namespace: Annotated[Text, NEEDED, at_most(63)]
    """Namespace of the pod."""
    pod: Name
    """Name of the pod."""
    workload_class: Annotated[Text, "class", CLASS] = ""
    """Workload class of its slice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFault(Wire):
    """A fault of a device; those of one cause, device and pods within a minute are one."""

    id: Annotated[Word, NEEDED]
    """Identity; a fault is charged once."""
    gpu: Annotated[Text, KEPT, at_most(253)]
    """UUID of the device."""
    xid: Annotated[int, between(0, MAX_XID), NEEDED]
    """NVIDIA's number of the fault, the first where several came together."""
    at_s: Annotated[Moment, "at"]
    """Time at which the agent read the fault, by its own clock; the driver tells none."""
    suspects: Annotated[
        tuple[Suspect, ...],
        SUSPECTS,
        keyed("index", most=MAX_SUSPECTS),
    ] = ()
    """Pods that held a slice of the device since the faults were read before."""

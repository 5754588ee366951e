# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""State that a cycle leaves for later ones: ``status.scheduling``, as a record and as JSON.

It outlives the operator. Texts in it are for readers; nothing is decided by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.contract import JsonObject, Reason, WireError, objects, text
from ullage.api.readers import count_of
from ullage.cluster.values.device_ref import DeviceRef
from ullage.cluster.values.quantity import rfc3339, seconds

MOST_EXCLUSIONS: Final = 16
"""Exclusions that one status holds; the oldest go first."""
MOST_PREEMPTIONS: Final = 2**31 - 1
MESSAGE_LIMIT: Final = 1024
"""Characters of a message in the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A device that failed a workload and is left out for it until a moment.

    With ``until`` 0 the whole node is left out, until its agent reports something newer than
    ``since``.
    """

    reason: Reason
    node: str
    gpu: str
    since: float
    until: float
    message: str

    @property
    def device(self) -> DeviceRef:
        """The device that is left out."""
        return DeviceRef(self.node, self.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingState:
    """Memory of placing one workload.

    ``preemptions`` counts those in a row, the last of them at ``preempted_at``.
    """

    exclusions: tuple[Exclusion, ...] = ()
    preemptions: int = 0
    preempted_at: float = 0.0


NOTHING: Final = SchedulingState()


def scheduling_to_wire(state: SchedulingState) -> dict[str, object] | None:
    """``status.scheduling`` as the API stores it; ``None`` = it is left out."""
    body: dict[str, object] = {}
    if state.exclusions:
        body["exclusions"] = [_exclusion_to_wire(one) for one in state.exclusions]
    if state.preemptions:
        body["preemptions"] = state.preemptions
        body["preemptedAt"] = rfc3339(state.preempted_at)
    return body or None


def scheduling_from_wire(raw: JsonObject) -> SchedulingState:
    """``status.scheduling`` as it was read back; without exclusions of unknown reasons.

    Raises:
        WireError: a field is missing or malformed.
    """
    preemptions = min(count_of(raw, "preemptions"), MOST_PREEMPTIONS)
    found = (_exclusion_from_wire(one) for one in objects(raw, "exclusions"))
    return SchedulingState(
        exclusions=tuple(one for one in found if one is not None)[-MOST_EXCLUSIONS:],
        preemptions=preemptions,
        preempted_at=seconds(raw.get("preemptedAt"), "preemptedAt") if preemptions else 0.0,
    )


def _exclusion_to_wire(exclusion: Exclusion) -> dict[str, object]:
    body: dict[str, object] = {
        "reason": exclusion.reason.value,
        "node": exclusion.node,
        "gpu": exclusion.gpu,
        "since": rfc3339(exclusion.since),
    }
    if exclusion.until:
        body["until"] = rfc3339(exclusion.until)
    if exclusion.message:
        body["message"] = exclusion.message[:MESSAGE_LIMIT]
    return body


def _exclusion_from_wire(raw: JsonObject) -> Exclusion | None:
    try:
        reason = Reason(text(raw, "reason"))
    except WireError:
        raise
    except ValueError:
        return None  # a reason of another version
    return Exclusion(
        reason=reason,
        node=text(raw, "node"),
        gpu=text(raw, "gpu"),
        since=seconds(raw.get("since"), "since"),
        until=seconds(raw.get("until"), "until"),
        message="" if raw.get("message") is None else text(raw, "message"),
    )

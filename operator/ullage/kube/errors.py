# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Outcomes of a write beside the API's own errors, and how an error is judged.

One place decides whether an error means "the world moved on", "the user must see this" or "this
process leads no more"; the writer only acts on the verdict.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from ullage.api.reasons import Reason
from ullage.ports import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    Kind,
    NotFound,
    Throttled,
    Unavailable,
)
from ullage.scheduling.model.plan import (
    Action,
    ApplyDeployment,
    ApplyGPUNode,
    ApplyRouter,
    ApplyService,
    CreatePod,
    CreateTrial,
    EvictPod,
)


class Fenced(ApiError):
    """The Lease is not held any more: the request was not sent."""

    def __init__(self) -> None:
        super().__init__(0, "the lease is not held, nothing was sent", "Fenced")


class Refused(ApiError):
    """The user must see this: the text belongs on the owner, and the write waits for a back-off.

    Attributes:
        verdict: ``CreateRefused``, ``NameConflict``, ``NodeAffinityConflict`` or ``WriteRefused``.
        kind: kind of the object that was not written.
        namespace: its namespace.
        name: its name.
    """

    def __init__(
        self, verdict: Reason, kind: str, namespace: str, name: str, cause: ApiError
    ) -> None:
        super().__init__(cause.status, cause.message, cause.reason)
        self.verdict = verdict
        self.kind = kind
        self.namespace = namespace
        self.name = name


class RequestVerdict(StrEnum):
    """Consequence of an error for its write."""

    MOVED_ON = "conflict"
    """The object is not as it was seen: plan again."""
    LOST = "lost"
    """A newer leader has written."""
    REFUSED = "refused"
    """A create that quota, policy or validation refuses: the user's to see."""
    FORBIDDEN = "forbidden"
    """We lack a right: show it, no hot loop."""
    BUDGET = "budget"
    """A disruption budget refuses the eviction: later."""
    THROTTLED = "throttled"
    """Too fast: everyone slows down."""
    AGAIN = "unavailable"
    """No answer or a server error: worth another try."""
    BROKEN = "bad-request"
    """Our request was wrong."""
    FENCED = "fenced"
    """Not sent, the Lease is gone."""


FAILED: Final = "failed"
"""Result, and reason, of an action that met an exception of ours, not an answer of the API."""
WEBHOOK_SILENT: Final = "failed calling webhook"
"""In the API server's answer (500) where an admission webhook that must answer does not."""
CREATES = (CreatePod, CreateTrial, ApplyDeployment, ApplyRouter, ApplyService)
"""Actions whose refusal is shown as that of a create."""


def _names_the_epoch(message: str) -> bool:
    """True if a refusal is that of the rule on ``spec.epoch``, not of a slice's epoch."""
    return "spec.epoch" in message or "epoch must not" in message


def judge(action: Action, error: ApiError) -> RequestVerdict:
    """Judges what the error means for this action."""
    match error:
        case Fenced():
            return RequestVerdict.FENCED
        case Refused():
            return RequestVerdict.REFUSED
        case Throttled():
            budget = isinstance(action, EvictPod) and "disruption budget" in error.message
            return RequestVerdict.BUDGET if budget else RequestVerdict.THROTTLED
        case Unavailable():
            held = isinstance(action, CREATES) and WEBHOOK_SILENT in error.message
            return RequestVerdict.REFUSED if held else RequestVerdict.AGAIN
        case Invalid():
            if isinstance(action, ApplyGPUNode) and _names_the_epoch(error.message):
                return RequestVerdict.LOST
            if "metadata.uid" in error.message:
                return RequestVerdict.MOVED_ON
        case NotFound() | Conflict():
            return RequestVerdict.MOVED_ON
        case Forbidden() if error.status == 401:
            return RequestVerdict.FORBIDDEN
    if isinstance(action, CREATES) and isinstance(error, (BadRequest, Forbidden, Invalid)):
        return RequestVerdict.REFUSED
    if isinstance(error, Forbidden):
        return RequestVerdict.FORBIDDEN
    return RequestVerdict.BROKEN if isinstance(error, BadRequest) else RequestVerdict.MOVED_ON


def name_conflict(kind: Kind, namespace: str, name: str, holder: str) -> Refused:
    """The name that a child needs is held by someone else's object."""
    where = f"{namespace}/{name}" if namespace else name
    cause = Conflict(
        409,
        f"{kind.kind} {where} exists and belongs to {holder}; delete or rename it, or give the "
        "workload another name",
        "AlreadyExists",
    )
    return Refused(Reason.NAME_CONFLICT, kind.kind, namespace, name, cause)
